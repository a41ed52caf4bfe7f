//! Persistent bitmaps of an image: a directory, and for each a table of the clusters that hold its bits.

use super::error::{Qcow2Error, require};
use super::{OFFSET_MASK, u32_at, u64_at};

/// Bytes of the extension of the header.
const EXTENSION: usize = 24;
/// Bytes of an entry of the directory without its variable parts.
const FIXED: usize = 24;
/// The most bitmaps, and bytes of the longest directory, as QEMU's.
const BITMAPS_MAX: u32 = 65535;
const DIRECTORY_MAX: u64 = BITMAPS_MAX as u64 * 1024;
/// Entries of the longest table of a bitmap, as QEMU's.
const TABLE_ENTRIES_MAX: u32 = 0x0800_0000;

/// Where the directory of bitmaps is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitmapDirectory {
    /// How many bitmaps there are.
    pub count: u32,
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
}

/// A persistent bitmap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bitmap {
    /// What the user called it.
    pub name: String,
    /// Bytes of the disk that one bit stands for.
    pub granularity: u64,
    /// The program that changed it last did not end in order: its bits are void.
    pub in_use: bool,
    /// Whether it is kept up to date whenever the image is written.
    pub auto: bool,
    /// First byte of its table.
    pub table_offset: u64,
    /// Entries of its table.
    pub table_entries: u32,
}

impl BitmapDirectory {
    /// Reads the content of the header's extension.
    pub(super) fn decode(content: &[u8]) -> Result<Self, Qcow2Error> {
        let field =
            |holds, field, value, expected| require(holds, "bitmaps extension", field, value, expected);
        field(content.len() == EXTENSION, "length", content.len() as u64, "not 24")?;
        let directory =
            Self { count: u32_at(content, 0), length: u64_at(content, 8), offset: u64_at(content, 16) };
        field(
            (1..=BITMAPS_MAX).contains(&directory.count),
            "nb_bitmaps",
            directory.count.into(),
            "not 1 to 65535",
        )?;
        let length = directory.length;
        field((1..=DIRECTORY_MAX).contains(&length), "bitmap_directory_size", length, "not up to 64 MiB")?;
        field(
            directory.offset < 1 << 56,
            "bitmap_directory_offset",
            directory.offset,
            "beyond what an image can have",
        )?;
        Ok(directory)
    }

    /// Reads the directory, which `bytes` are.
    pub fn bitmaps(&self, bytes: &[u8], cluster_size: u64) -> Result<Vec<Bitmap>, Qcow2Error> {
        let mut found = Vec::new();
        let mut at = 0;
        for _ in 0..self.count {
            let (bitmap, length) = bitmap(bytes.get(at..).unwrap_or(&[]), cluster_size)?;
            found.push(bitmap);
            at += length;
        }
        Ok(found)
    }
}

fn bitmap(bytes: &[u8], cluster_size: u64) -> Result<(Bitmap, usize), Qcow2Error> {
    const TRUNCATED: Qcow2Error = Qcow2Error::Truncated("the directory of bitmaps");
    if bytes.len() < FIXED {
        return Err(TRUNCATED);
    }
    let field =
        |holds, field, value, expected| require(holds, "directory of bitmaps", field, value, expected);
    let (name, extra) = (usize::from(bytes[18]) << 8 | usize::from(bytes[19]), u32_at(bytes, 20) as usize);
    field(extra <= FIXED * 64, "extra_data_size", extra as u64, "more than 1536")?;
    let end = FIXED + extra + name;
    let name = String::from_utf8_lossy(bytes.get(FIXED + extra..end).ok_or(TRUNCATED)?).into_owned();
    let (bits, flags) = (bytes[17], u32_at(bytes, 12));
    field(bits < 64, "granularity_bits", bits.into(), "more than 63")?;
    let (table_offset, table_entries) = (u64_at(bytes, 0), u32_at(bytes, 8));
    let aligned = table_offset.is_multiple_of(cluster_size) && table_offset < 1 << 56;
    field(aligned, "bitmap_table_offset", table_offset, "not the offset of a cluster")?;
    field(
        table_entries <= TABLE_ENTRIES_MAX,
        "bitmap_table_size",
        table_entries.into(),
        "more than 128 Mi entries",
    )?;
    let (in_use, auto) = (flags & 1 != 0, flags & 2 != 0);
    let bitmap = Bitmap { name, granularity: 1 << bits, in_use, auto, table_offset, table_entries };
    Ok((bitmap, end.next_multiple_of(8)))
}

/// The cluster with bits that an entry of a bitmap's table leads to, if any.
pub fn bitmap_cluster(entry: u64, cluster_size: u64) -> Result<Option<u64>, Qcow2Error> {
    let offset = entry & OFFSET_MASK;
    let sound = offset.is_multiple_of(cluster_size) && (offset == 0 || entry == offset);
    require(sound, "table of a bitmap", "entry", entry, "not the offset of a cluster")?;
    Ok((offset > 0).then_some(offset))
}
