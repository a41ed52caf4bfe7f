//! The layouts of qcow2, QEMU's format of disk images: versions 2 and 3, all fields big-endian.
//!
//! The format is QEMU's (`docs/interop/qcow2.rst` there); nothing here is Varve's own. What a file holds may be anything: each
//! `decode` checks what it gives, and allocates no more than it was given bytes.

mod backing;
mod bitmaps;
mod entry;
mod error;
mod header;
mod refcounts;
mod snapshots;

pub use backing::{Backing, BackingError, LAYERS_MAX, beside};
pub use bitmaps::{Bitmap, BitmapDirectory, bitmap_cluster};
pub use entry::{COPIED, Cluster, Entry, Subclusters, table_offset};
pub use error::Qcow2Error;
pub use header::{Compression, Header, L1_ENTRIES_MAX, NewHeader};
pub use refcounts::{RefcountWidth, refcount, set_refcount};
pub use snapshots::{SnapshotEntry, decode_snapshots};

/// Bytes of the smallest cluster, and of what a header needs at most without its extensions.
pub const SECTOR: u64 = 512;
/// Subclusters of a cluster of an image with extended L2 entries.
pub const SUBCLUSTERS: u64 = 32;
/// The bits of an offset.
pub const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    field(bytes, at).map_or(0, u32::from_be_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    field(bytes, at).map_or(0, u64::from_be_bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests;
