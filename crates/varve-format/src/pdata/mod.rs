//! The blocks of the persistent ordered map (tree nodes and the pages of the space map), and what snapshots keep in it.

pub mod block;
pub mod exception;
pub mod link;
pub mod node;
pub mod space_page;
pub mod written;

pub use block::{Block, BlockRun, PDATA_BLOCK};

/// Why a block of the map is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Its bytes have changed, or something else is there.
    #[error("the checksum is wrong")]
    Checksum,
    /// It was written for another place.
    #[error("the block was written for block {0}")]
    Misplaced(Block),
    /// The checksum is sound and the content breaks the invariant named.
    #[error("the block contradicts itself ({0})")]
    Invalid(&'static str),
}

/// CRC32C of `block` as if the checksum itself, in `field`, were zero.
fn checksum_without(block: &[u8], field: crate::Field) -> u32 {
    let before = crc32c::crc32c(&block[..field.offset]);
    crc32c::crc32c_append(crc32c::crc32c_append(before, &[0; 4]), &block[field.end()..])
}
