//! The exception store: what dependent snapshots of one origin share, as it is on its device.
//!
//! The store is a log in front of two maps. Each record of the log is one [`EntryBlock`] that says what happened (a
//! [`Entry`] each: old content was preserved for a snapshot, a snapshot was written, created, removed, …) and where the
//! next record will lie; the data that the entries speak of is wherever they say, as a rule directly behind the
//! block. A checkpoint brings the maps (`pdata`) and the table of snapshots up to what the log says. The
//! [`Superblock`], in two slots, says where they lie and where the log goes on from there.

mod block;
mod entry;
mod entry_layout;
mod superblock;

pub use block::{BLOCK_LAYOUT, BlockKind, ENTRY_CAPACITY, EntryBlock};
pub use entry::{Descriptor, ENTRY_LENGTH_MAX, Entry, Mapping, PIECE_LENGTH_MAX, ZEROS};
pub use entry_layout::{
    BYTES_LAYOUT, CREATE_LAYOUT, DROPPED_LAYOUT, FLAGS_LAYOUT, PIECE_LAYOUT, RENAME_LAYOUT, RESTORED_LAYOUT,
    RESTORED_LENGTH, ROLLBACK_LAYOUT, SNAPSHOT_LAYOUT,
};
pub use superblock::{
    CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, FIRST_BLOCK, Roots, SLOT_ADDRESSES, STORE_SIZE_MAX, SUPERBLOCK_LAYOUT,
    Superblock,
};
pub use uuid::Uuid;

/// Bytes of every metadata block of a store, and the unit in which content is preserved.
pub const PART_SIZE: u64 = 4096;
/// The version of these layouts.
pub const STORE_VERSION: u32 = 5;
/// The first byte that is neither of the superblock's slots.
pub const FIRST_ADDRESS: u64 = 2 * PART_SIZE;

/// The highest generation of a store and the highest number of a record: more than any store lives to see, and what is
/// higher is damage.
pub const NUMBER_MAX: u64 = 1 << 62;
/// Bytes of the largest origin.
pub const ORIGIN_SIZE_MAX: u64 = 1 << 62;

const SIZE: usize = PART_SIZE as usize;

/// The checksum of preserved data, as an entry of the log carries it.
pub fn data_checksum(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}

/// The checksum of data that ends with `data`, if `before` is that of what comes before.
pub fn data_checksum_on(before: u32, data: &[u8]) -> u32 {
    crc32c::crc32c_append(before, data)
}

/// Why bytes are not the block of a store that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFormatError {
    /// Something else is there, or nothing.
    #[error("there is no block of an exception store")]
    Absent,
    /// A block of another version.
    #[error(
        "the exception store has version {0}, and this varve knows version {STORE_VERSION} alone: use the one that wrote it"
    )]
    Version(u32),
    /// A block whose bytes have changed.
    #[error("the block is damaged: its checksum is wrong")]
    Checksum,
    /// A whole block, but of another place.
    #[error("the block was written for byte {0} of a store")]
    Misplaced(u64),
    /// A block with a sound checksum that breaks the rule named.
    #[error("the block contradicts itself ({0})")]
    Invalid(&'static str),
}
