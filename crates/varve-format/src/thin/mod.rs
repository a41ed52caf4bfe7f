//! The thin pool as it is on its device: superblock, records of the log, and what the pool's maps hold.
//!
//! Everything is in one address space of blocks of 4 KiB: two slots for the [`Superblock`], a ring for the log's
//! [`Record`]s, then data and the nodes of the maps (`pdata`) among each other. The pool's maps are one for each volume
//! ([`Mapping`]), one that counts what several hold ([`Share`]) and one of the volumes themselves ([`VolumeRows`]). The
//! superblock names the roots of a checkpoint; the log says what happened since.

mod mapping;
mod metadata_backup;
mod origin;
mod record;
mod superblock;
mod trashed;
mod volume;

pub use mapping::{MAPPING_LAYOUT, Mapping, SHARE_LAYOUT, Share};
pub use metadata_backup::{BACKUP_LAYOUT, BackupHeader};
pub use origin::{Backing, ORIGIN_LAYOUT, Origin};
pub use record::{Change, ENTRY_LAYOUT, RECORD_BLOCKS_MAX, RECORD_LAYOUT, Record, change_length};
pub use superblock::{
    BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, GENERATION_MAX, NUMBER_MAX, SLOT_BLOCKS_MAX, SUPERBLOCK_LAYOUT,
    Superblock, slot_blocks_for,
};
pub use trashed::{Trashed, is_stored_name, known_name};
pub use uuid::Uuid;
pub use volume::{ORIGIN_ENTRIES, VOLUME_LAYOUT, VolumeFlags, VolumeRows, volume_key};

/// Bytes of a part: the unit of mappings, and of every metadata block.
pub const PART_SIZE: u64 = 4096;
/// The version of these layouts.
pub const POOL_VERSION: u32 = 5;

const SIZE: usize = PART_SIZE as usize;

/// Why bytes are not the structure of a pool that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolFormatError {
    /// Something else is there, or nothing.
    #[error("there is no thin pool")]
    Absent,
    /// A version that this program does not know.
    #[error(
        "the pool has version {0}, and this varve knows version {POOL_VERSION} alone: use the one that wrote it"
    )]
    Newer(u32),
    /// The bytes have changed.
    #[error("the block is damaged: its checksum is wrong")]
    Checksum,
    /// The checksum is sound and the content breaks the rule named.
    #[error("the block contradicts itself ({0})")]
    Invalid(&'static str),
}

fn require(condition: bool, broken: &'static str) -> Result<(), PoolFormatError> {
    if condition { Ok(()) } else { Err(PoolFormatError::Invalid(broken)) }
}

/// CRC32C of `block` as if the checksum itself, in `field`, were zero.
fn checksum_without(block: &[u8], field: crate::Field) -> u32 {
    let before = crc32c::crc32c(&block[..field.offset]);
    crc32c::crc32c_append(crc32c::crc32c_append(before, &[0; 4]), &block[field.end()..])
}
