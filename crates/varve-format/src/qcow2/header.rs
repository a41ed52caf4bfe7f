//! The header of a qcow2 image, with its extensions: the first cluster of the file.
//!
//! Invariants of a decoded header:
//! - QHEADER1. A cluster has 512 bytes to 2 MiB; with extended L2 entries at least 16 KiB.
//! - QHEADER2. The L1 table covers the virtual size, and it and the refcount table are not larger than QEMU allows.
//! - QHEADER3. Tables start at a cluster, and no offset and length overflow.
//! - QHEADER4. No incompatible feature is set that this code does not know.

use super::backing::Backing;
use super::bitmaps::BitmapDirectory;
use super::error::{Qcow2Error, require};
use super::refcounts::{REFCOUNT_TABLE_MAX, RefcountWidth};
use super::{SECTOR, SUBCLUSTERS, u32_at, u64_at};

/// Entries of the longest L1 table (32 MiB, as QEMU's).
pub const L1_ENTRIES_MAX: u32 = 4 << 20;
/// The most snapshots of an image, as QEMU's.
const SNAPSHOTS_MAX: u32 = 65536;
/// Bytes of the longest name of a backing file.
const BACKING_NAME_MAX: u32 = 1023;
/// Bytes of a header of version 2.
const LENGTH_V2: usize = 72;
/// Bytes of a header of version 3 that has a compression type.
const LENGTH_V3: usize = 112;

const MAGIC_VALUE: &[u8; 4] = b"QFI\xfb";
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
const LAZY_REFCOUNTS: u64 = 1;
const AUTOCLEAR_BITMAPS: u64 = 1;

const EXTENSION_BACKING_FORMAT: u32 = 0xe279_2aca;
const EXTENSION_FEATURE_NAMES: u32 = 0x6803_f857;
const EXTENSION_BITMAPS: u32 = 0x2385_2875;

// Where fields lie.
const BACKING: usize = 8;
const SIZE: usize = 24;
const L1_ENTRIES: usize = 36;
const L1_OFFSET: usize = 40;
const ENCRYPTION: usize = 32;
const REFCOUNT_TABLE: usize = 48;
const REFCOUNT_CLUSTERS: usize = 56;
const INCOMPATIBLE: usize = 72;
const AUTOCLEAR: usize = 88;

/// How compressed clusters are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Deflate without a header.
    Deflate,
    /// Zstandard frames.
    Zstd,
}

/// What the header of an image says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// A cluster has two to the power of this many bytes.
    pub cluster_bits: u32,
    /// Bytes of the disk that the image holds.
    pub size: u64,
    /// Entries of the L1 table.
    pub l1_entries: u32,
    /// First byte of the L1 table.
    pub l1_offset: u64,
    /// First byte of the refcount table.
    pub refcount_table_offset: u64,
    /// Clusters of the refcount table.
    pub refcount_table_clusters: u32,
    /// Width of a reference count.
    pub refcount_width: RefcountWidth,
    /// Number of internal snapshots.
    pub snapshots: u32,
    /// First byte of the table of snapshots.
    pub snapshots_offset: u64,
    /// Reference counts may be too low: the last writer was interrupted.
    pub dirty: bool,
    /// Metadata contradicted itself: the image must not be written.
    pub corrupt: bool,
    /// Reference counts need not be written with each change.
    pub lazy_refcounts: bool,
    /// L2 entries of 16 bytes, with subclusters.
    pub extended_l2: bool,
    /// Where its persistent bitmaps lie.
    pub bitmaps: Option<BitmapDirectory>,
    /// It has an extension for bitmaps that a program left behind which did not keep them.
    pub void_bitmaps: bool,
    /// How compressed clusters are compressed.
    pub compression: Compression,
    /// The file below.
    pub backing: Option<Backing>,
}

impl Header {
    /// Bytes of the first cluster that [`Header::decode`] needs, said by the first [`SECTOR`] bytes.
    pub fn length(sector: &[u8]) -> Result<u64, Qcow2Error> {
        let bits = cluster_bits(sector)?;
        Ok(1 << bits)
    }

    /// Reads a header from the first cluster, or what there is of it.
    pub fn decode(bytes: &[u8]) -> Result<Header, Qcow2Error> {
        let cluster_bits = cluster_bits(bytes)?;
        let version = u32_at(bytes, 4);
        let length = if version == 2 { LENGTH_V2 } else { u32_at(bytes, 100) as usize };
        let field = |holds, field, value, expected| require(holds, "header", field, value, expected);
        let room = 1_usize << cluster_bits;
        let fits = version == 2 || ((104..=room).contains(&length) && length.is_multiple_of(8));
        field(fits, "header_length", length as u64, "not a multiple of 8 from 104 bytes to a cluster")?;
        if bytes.len() < length {
            return Err(Qcow2Error::Truncated("the header"));
        }
        match u32_at(bytes, ENCRYPTION) {
            0 => {}
            1 => return Err(Qcow2Error::Encrypted("AES")),
            2 => return Err(Qcow2Error::Encrypted("LUKS")),
            other => field(false, "crypt_method", other.into(), "not 0 to 2")?,
        }
        let features = if version == 2 { [0; 3] } else { [72, 80, 88].map(|at| u64_at(bytes, at)) };
        let extensions = Extensions::decode(bytes, length, extensions_end(bytes, room))?;
        check_incompatible(features[0], &extensions)?;
        let bitmaps = extensions.bitmaps.filter(|_| features[2] & AUTOCLEAR_BITMAPS != 0);
        let bitmaps = bitmaps.map(BitmapDirectory::decode).transpose()?;
        let order = if version == 2 { 4 } else { u32_at(bytes, 96) };
        field(order <= 6, "refcount_order", order.into(), "not 0 to 6")?;
        let header = Header {
            version,
            cluster_bits,
            size: u64_at(bytes, SIZE),
            l1_entries: u32_at(bytes, L1_ENTRIES),
            l1_offset: u64_at(bytes, L1_OFFSET),
            refcount_table_offset: u64_at(bytes, REFCOUNT_TABLE),
            refcount_table_clusters: u32_at(bytes, REFCOUNT_CLUSTERS),
            refcount_width: RefcountWidth::of_order(order),
            snapshots: u32_at(bytes, 60),
            snapshots_offset: u64_at(bytes, 64),
            dirty: features[0] & DIRTY != 0,
            corrupt: features[0] & CORRUPT != 0,
            lazy_refcounts: features[1] & LAZY_REFCOUNTS != 0,
            extended_l2: features[0] & EXTENDED_L2 != 0,
            bitmaps,
            void_bitmaps: extensions.bitmaps.is_some() && features[2] & AUTOCLEAR_BITMAPS == 0,
            compression: compression(bytes, features[0], length)?,
            backing: backing(bytes, room, extensions.backing_format)?,
        };
        header.check()?;
        Ok(header)
    }

    /// QHEADER1 to QHEADER3.
    fn check(&self) -> Result<(), Qcow2Error> {
        let field = |holds, field, value, expected| require(holds, "header", field, value, expected);
        let enough = !self.extended_l2 || self.cluster_bits >= 14;
        field(enough, "cluster_bits", self.cluster_bits.into(), "less than 14 with extended L2 entries")?;
        let entries = u64::from(self.l1_entries);
        field(self.l1_entries <= L1_ENTRIES_MAX, "l1_size", entries, "more than 4 Mi entries")?;
        field(self.l1_entries_needed() <= entries, "l1_size", entries, "too few for the virtual size")?;
        self.check_table("l1_table_offset", self.l1_offset, entries * 8)?;
        let refcounts = u64::from(self.refcount_table_clusters) << self.cluster_bits;
        let value = self.refcount_table_clusters.into();
        field(value > 0, "refcount_table_clusters", value, "none")?;
        field(
            refcounts <= REFCOUNT_TABLE_MAX.max(self.cluster_size()),
            "refcount_table_clusters",
            value,
            "more than 8 MiB",
        )?;
        self.check_table("refcount_table_offset", self.refcount_table_offset, refcounts)?;
        let snapshots = self.snapshots <= SNAPSHOTS_MAX;
        field(snapshots, "nb_snapshots", self.snapshots.into(), "more than 65536")?;
        self.check_table("snapshots_offset", self.snapshots_offset, 0)
    }

    fn check_table(&self, name: &'static str, offset: u64, length: u64) -> Result<(), Qcow2Error> {
        let field = |holds, expected| require(holds, "header", name, offset, expected);
        field(offset.is_multiple_of(self.cluster_size()), "no multiple of the cluster size")?;
        field(length == 0 || offset >= self.cluster_size(), "in the header's cluster")?;
        field(offset.checked_add(length).is_some_and(|end| end < 1 << 56), "beyond what an image can have")
    }

    /// Bytes of a cluster.
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Bytes of an L2 entry.
    pub fn l2_entry_size(&self) -> u64 {
        if self.extended_l2 { 16 } else { 8 }
    }

    /// Entries of an L2 table.
    pub fn l2_entries(&self) -> u64 {
        self.cluster_size() / self.l2_entry_size()
    }

    /// The smallest unit that is allocated or not, in bytes.
    pub fn subcluster_size(&self) -> u64 {
        if self.extended_l2 { self.cluster_size() / SUBCLUSTERS } else { self.cluster_size() }
    }

    /// L1 entries that the virtual size needs.
    pub fn l1_entries_needed(&self) -> u64 {
        self.size.div_ceil(self.cluster_size() * self.l2_entries())
    }

    /// Says in `sector`, the first of the image, where the refcount table is, and that the image is not dirty.
    pub fn put_refcount_table(sector: &mut [u8], offset: u64, clusters: u32) {
        put(sector, REFCOUNT_TABLE, &offset.to_be_bytes());
        put(sector, REFCOUNT_CLUSTERS, &clusters.to_be_bytes());
        if u32_at(sector, 4) > 2 {
            let features = u64_at(sector, INCOMPATIBLE) & !DIRTY;
            put(sector, INCOMPATIBLE, &features.to_be_bytes());
        }
    }

    /// Says in `sector`, the first of the image, how large its disk is, and where the L1 table for that is.
    pub fn put_size(sector: &mut [u8], size: u64, l1_entries: u32, l1_offset: u64) {
        put(sector, SIZE, &size.to_be_bytes());
        put(sector, L1_ENTRIES, &l1_entries.to_be_bytes());
        put(sector, L1_OFFSET, &l1_offset.to_be_bytes());
    }

    /// Says in `sector`, the first of the image, that it has no backing image.
    pub fn clear_backing(sector: &mut [u8]) {
        put(sector, BACKING, &[0; 12]);
    }

    /// Takes the extension for bitmaps out of `bytes`, the first cluster of an image; whether there was one.
    pub fn drop_bitmaps(bytes: &mut [u8]) -> bool {
        let Ok(bits) = cluster_bits(bytes) else { return false };
        let end = extensions_end(bytes, 1 << bits);
        let mut at = if u32_at(bytes, 4) == 2 { LENGTH_V2 } else { u32_at(bytes, 100) as usize };
        while at + 8 <= end {
            let (kind, length) = (u32_at(bytes, at), u32_at(bytes, at + 4) as usize);
            let next = (at + 8).saturating_add(length.next_multiple_of(8));
            if kind == 0 || next > end {
                return false;
            }
            if kind == EXTENSION_BITMAPS {
                bytes.copy_within(next..end, at);
                bytes[end - (next - at)..end].fill(0);
                return true;
            }
            at = next;
        }
        false
    }

    /// Says in `sector`, the first of an image of version 3, that its metadata contradicted itself.
    pub fn put_corrupt(sector: &mut [u8]) {
        let features = u64_at(sector, INCOMPATIBLE) | CORRUPT;
        put(sector, INCOMPATIBLE, &features.to_be_bytes());
    }

    /// Clears in `sector`, the first of the image, what a writer that does not keep it up to date has to clear; whether
    /// anything was set.
    pub fn clear_autoclear(sector: &mut [u8]) -> bool {
        let set = u32_at(sector, 4) > 2 && u64_at(sector, AUTOCLEAR) != 0;
        if set {
            put(sector, AUTOCLEAR, &[0; 8]);
        }
        set
    }
}

/// What a new image is to be like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewHeader {
    /// 2 or 3.
    pub version: u32,
    /// A cluster has two to the power of this many bytes.
    pub cluster_bits: u32,
    /// Virtual bytes.
    pub size: u64,
    /// Entries of the L1 table.
    pub l1_entries: u32,
    /// First byte of the L1 table.
    pub l1_offset: u64,
    /// Width of a reference count; 16 in version 2.
    pub refcount_width: RefcountWidth,
    /// L2 entries of 16 bytes, with subclusters.
    pub extended_l2: bool,
    /// The file below.
    pub backing: Option<Backing>,
}

impl NewHeader {
    /// The first cluster of the image; the refcount table is not there yet. None if the name of the backing file has no
    /// room.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 1 << self.cluster_bits];
        put(&mut bytes, 0, MAGIC_VALUE);
        put(&mut bytes, 4, &self.version.to_be_bytes());
        put(&mut bytes, 20, &self.cluster_bits.to_be_bytes());
        put(&mut bytes, SIZE, &self.size.to_be_bytes());
        put(&mut bytes, L1_ENTRIES, &self.l1_entries.to_be_bytes());
        put(&mut bytes, L1_OFFSET, &self.l1_offset.to_be_bytes());
        let mut at = LENGTH_V2;
        if self.version > 2 {
            let features = if self.extended_l2 { EXTENDED_L2 } else { 0 };
            put(&mut bytes, INCOMPATIBLE, &features.to_be_bytes());
            put(&mut bytes, 96, &self.refcount_width.order().to_be_bytes());
            put(&mut bytes, 100, &112_u32.to_be_bytes());
            at = LENGTH_V3;
        }
        let Some(backing) = &self.backing else { return Some(bytes) };
        if let Some(format) = &backing.format {
            put(&mut bytes, at, &EXTENSION_BACKING_FORMAT.to_be_bytes());
            put(&mut bytes, at + 4, &u32::try_from(format.len()).ok()?.to_be_bytes());
            bytes.get_mut(at + 8..at + 8 + format.len())?.copy_from_slice(format.as_bytes());
            at += 8 + format.len().next_multiple_of(8);
        }
        at += 8;
        let name = backing.name.as_bytes();
        let length =
            u32::try_from(name.len()).ok().filter(|length| (1..=BACKING_NAME_MAX).contains(length))?;
        bytes.get_mut(at..at + name.len())?.copy_from_slice(name);
        put(&mut bytes, 8, &(at as u64).to_be_bytes());
        put(&mut bytes, 16, &length.to_be_bytes());
        Some(bytes)
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// The fields that say how long the header may be: magic, version, cluster size.
fn cluster_bits(bytes: &[u8]) -> Result<u32, Qcow2Error> {
    if bytes.get(..4) != Some(MAGIC_VALUE) {
        return Err(Qcow2Error::Magic);
    }
    if bytes.len() < LENGTH_V2 {
        return Err(Qcow2Error::Truncated("the header"));
    }
    let version = u32_at(bytes, 4);
    if !(2..=3).contains(&version) {
        return Err(Qcow2Error::Version(version));
    }
    let bits = u32_at(bytes, 20);
    require((9..=21).contains(&bits), "header", "cluster_bits", bits.into(), "not 9 to 21")?;
    Ok(bits)
}

/// Extensions end where the backing file's name begins.
fn extensions_end(bytes: &[u8], room: usize) -> usize {
    let name = usize::try_from(u64_at(bytes, 8)).unwrap_or(usize::MAX);
    let end = if name == 0 { room } else { name };
    end.min(room).min(bytes.len())
}

/// Refuses incompatible features that this code does not know (QHEADER4).
fn check_incompatible(features: u64, extensions: &Extensions<'_>) -> Result<(), Qcow2Error> {
    if features & EXTERNAL_DATA != 0 {
        return Err(Qcow2Error::Feature("external data file".to_owned()));
    }
    let unknown = features & !(DIRTY | CORRUPT | COMPRESSION | EXTENDED_L2);
    if unknown == 0 {
        return Ok(());
    }
    let bit = unknown.trailing_zeros();
    let name = extensions.names.iter().find(|(number, _)| u32::from(*number) == bit);
    let name = name.map_or(format!("bit {bit}"), |(_, name)| format!("`{name}` (bit {bit})"));
    Err(Qcow2Error::Feature(name))
}

fn compression(bytes: &[u8], features: u64, length: usize) -> Result<Compression, Qcow2Error> {
    let kind = if length > 104 { bytes[104] } else { 0 };
    let flagged = features & COMPRESSION != 0;
    match (kind, flagged) {
        (0, false) => Ok(Compression::Deflate),
        (1, true) => Ok(Compression::Zstd),
        (0 | 1, _) => {
            require(false, "header", "compression_type", kind.into(), "not what the feature's bit says")
                .map(|()| Compression::Deflate)
        }
        _ => Err(Qcow2Error::Feature(format!("compression type {kind}"))),
    }
}

fn backing(bytes: &[u8], room: usize, format: Option<String>) -> Result<Option<Backing>, Qcow2Error> {
    let (offset, length) = (u64_at(bytes, 8), u32_at(bytes, 16));
    if offset == 0 {
        return Ok(None);
    }
    let field = |holds, field, value, expected| require(holds, "header", field, value, expected);
    field((1..=BACKING_NAME_MAX).contains(&length), "backing_file_size", length.into(), "not 1 to 1023")?;
    let end = offset.checked_add(length.into()).filter(|end| *end <= room as u64);
    field(end.is_some(), "backing_file_offset", offset, "not in the first cluster")?;
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let name = bytes.get(start..start.saturating_add(length as usize));
    let name = name.ok_or(Qcow2Error::Truncated("the backing file's name"))?;
    Ok(Some(Backing { name: text(name, "backing file's name")?, format }))
}

fn text(bytes: &[u8], what: &'static str) -> Result<String, Qcow2Error> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Qcow2Error::Name(what))
}

#[derive(Default)]
struct Extensions<'a> {
    backing_format: Option<String>,
    /// What the extension for bitmaps says.
    bitmaps: Option<&'a [u8]>,
    /// Of incompatible features, by bit.
    names: Vec<(u8, String)>,
}

impl<'a> Extensions<'a> {
    fn decode(bytes: &'a [u8], start: usize, end: usize) -> Result<Self, Qcow2Error> {
        let mut found = Self::default();
        let mut at = start;
        while at + 8 <= end {
            let (kind, length) = (u32_at(bytes, at), u32_at(bytes, at + 4) as usize);
            if kind == 0 {
                break;
            }
            let content = bytes[..end].get(at + 8..(at + 8).saturating_add(length));
            let content = content.ok_or(Qcow2Error::Truncated("a header extension"))?;
            match kind {
                EXTENSION_BACKING_FORMAT => {
                    found.backing_format = Some(text(content, "backing file's format")?);
                }
                EXTENSION_BITMAPS => found.bitmaps = Some(content),
                EXTENSION_FEATURE_NAMES => {
                    for entry in content.chunks_exact(48).filter(|entry| entry[0] == 0) {
                        let name = String::from_utf8_lossy(&entry[2..]);
                        found.names.push((entry[1], name.trim_end_matches('\0').to_owned()));
                    }
                }
                _ => {}
            }
            at += 8 + length.next_multiple_of(8);
        }
        Ok(found)
    }
}

const _: () = assert!(SECTOR as usize >= LENGTH_V3);
