//! The metadata area of an array's member: two slots for the [`Superblock`], then the ring of the log's [`Record`]s, and of an array
//! with checksums a [`ChecksumPage`] for each MiB of the array.
//!
//! Every member has superblocks; two of them, which the superblock names, have the log. What is said of members and regions
//! is the same on all of them.

mod checksum_page;
mod record;
mod superblock;

pub use crate::epoch::Epoch;
pub use checksum_page::{CHECKSUM_PAGE_LAYOUT, CHECKSUMS_OFFSET, ChecksumPage, SPAN_SIZE, fragment_checksum};
pub use record::{
    Change, ENTRY_LAYOUT, RECORD_BLOCKS_MAX, RECORD_LAYOUT, Record, STAMP_ENTRIES_MAX, record_blocks,
};
pub use superblock::{
    KNOWN_MAX, Kind, MEMBER_LAYOUT, MEMBERS_MAX, MemberEntry, MemberState, NUMBER_MAX, REGIONS_MAX,
    RING_OFFSET, RegionBits, SLOT_SIZE, SUPERBLOCK_LAYOUT, Superblock,
};
pub use uuid::Uuid;

/// Bytes of a block of metadata.
pub const BLOCK_SIZE: u64 = 4096;
/// The version of these layouts.
pub const ARRAY_VERSION: u32 = 3;

/// Why bytes are not the structure of an array that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayFormatError {
    /// Something else is there, or nothing.
    #[error("there is no member of an array")]
    Absent,
    /// A version that this program does not know.
    #[error(
        "the array has version {0}, and this varve knows version {ARRAY_VERSION} alone: use the one that wrote it"
    )]
    OtherVersion(u32),
    /// The bytes have changed.
    #[error("the block is damaged: its checksum is wrong")]
    Checksum,
    /// The checksum is sound and the content breaks the rule named.
    #[error("the block contradicts itself ({0})")]
    Invalid(&'static str),
}

fn require(condition: bool, broken: &'static str) -> Result<(), ArrayFormatError> {
    if condition { Ok(()) } else { Err(ArrayFormatError::Invalid(broken)) }
}

/// CRC32C of `block` as if the checksum itself, in `field`, were zero.
fn checksum_without(block: &[u8], field: crate::Field) -> u32 {
    let before = crc32c::crc32c(&block[..field.offset]);
    crc32c::crc32c_append(crc32c::crc32c_append(before, &[0; 4]), &block[field.end()..])
}
