//! The table of an image's internal snapshots.

use super::error::{Qcow2Error, require};
use super::header::{Header, L1_ENTRIES_MAX};
use super::{u32_at, u64_at};

/// Bytes of an entry without its variable parts.
const FIXED: usize = 40;
/// Bytes of the longest entry's extra data, as QEMU's.
const EXTRA_MAX: usize = 1024;

/// An internal snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotEntry {
    /// A number, as text.
    pub id: String,
    /// What the user called it.
    pub name: String,
    /// First byte of its L1 table.
    pub l1_offset: u64,
    /// Entries of its L1 table.
    pub l1_entries: u32,
    /// Virtual bytes; none if it is as large as the image was when the snapshot was taken by an old program.
    pub size: Option<u64>,
    /// When it was taken, in seconds since 1970.
    pub seconds: u32,
}

/// Reads the table that `bytes` begin with; also how many bytes it has. [`Qcow2Error::Truncated`] if `bytes` are too few.
pub fn decode_snapshots(bytes: &[u8], header: &Header) -> Result<(Vec<SnapshotEntry>, usize), Qcow2Error> {
    let mut found = Vec::new();
    let mut at = 0;
    for _ in 0..header.snapshots {
        let (entry, length) = decode(bytes.get(at..).unwrap_or(&[]), header)?;
        found.push(entry);
        at += length;
    }
    Ok((found, at))
}

fn decode(bytes: &[u8], header: &Header) -> Result<(SnapshotEntry, usize), Qcow2Error> {
    const TRUNCATED: Qcow2Error = Qcow2Error::Truncated("the table of snapshots");
    if bytes.len() < FIXED {
        return Err(TRUNCATED);
    }
    let length = |at: usize| usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1]);
    let (id_length, name_length, extra) = (length(12), length(14), u32_at(bytes, 36) as usize);
    require(extra <= EXTRA_MAX, "table of snapshots", "extra_data_size", extra as u64, "more than 1024")?;
    let end = FIXED + extra + id_length + name_length;
    let names = bytes.get(FIXED + extra..end).ok_or(TRUNCATED)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let size = u64_at(bytes, FIXED + 8);
    let entry = SnapshotEntry {
        id: text(&names[..id_length]),
        name: text(&names[id_length..]),
        l1_offset: u64_at(bytes, 0),
        l1_entries: u32_at(bytes, 8),
        size: (extra >= 16).then_some(size),
        seconds: u32_at(bytes, 16),
    };
    let field = |holds, field, value, expected| require(holds, "table of snapshots", field, value, expected);
    let aligned = entry.l1_offset.is_multiple_of(header.cluster_size()) && entry.l1_offset < 1 << 56;
    field(aligned, "l1_table_offset", entry.l1_offset, "not the offset of a cluster")?;
    let entries = entry.l1_entries.into();
    field(entry.l1_entries <= L1_ENTRIES_MAX, "l1_size", entries, "more than 4 Mi entries")?;
    let covered = entries.saturating_mul(header.cluster_size() * header.l2_entries());
    field(entry.size.is_none_or(|size| size <= covered), "l1_size", entries, "too few for the disk's size")?;
    Ok((entry, end.next_multiple_of(8)))
}
