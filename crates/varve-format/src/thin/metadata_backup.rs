//! The metadata of a pool put aside, block by block, in a volume of its own: what a repair leaves of the old one.
//!
//! A header, then the index: the numbers of the blocks in the backup, 8 bytes each, rising, filled up with zeros to whole
//! blocks; then these blocks, in the same order. The byte table is [`BACKUP_LAYOUT`].
//!
//! Invariants:
//! - BACKUP1. The checksum covers header and index.

use super::{PoolFormatError, SIZE, require};
use crate::layout::{Field, Layout};
use crate::pdata::Block;
use uuid::Uuid;
use varve_block::is_zero;

const MAGIC_VALUE: &[u8; 8] = b"VARVE\xffTK";
const VERSION_VALUE: u32 = 1;

const MAGIC: Field = Field::new(0, 8, "magic", "`VARVE`, byte 255, `TK`");
const VERSION: Field = Field::new(8, 4, "version", "of this layout: 1");
const CHECKSUM: Field =
    Field::new(12, 4, "checksum", "CRC32C of the header and the index behind it with this field zero");
const POOL: Field = Field::new(16, 16, "pool", "UUID of the pool");
const END_BLOCK: Field = Field::new(32, 8, "end_block", "number of the first block of 4 KiB behind the pool");
const BLOCKS: Field = Field::new(40, 8, "blocks", "number of blocks in the backup");
const RESERVED: Field = Field::new(48, 4048, "reserved", "zero");

/// The byte table of the header.
pub const BACKUP_LAYOUT: Layout = Layout::new(
    "Thin pool: metadata backup",
    "The first block of a volume to which a repair put the old metadata. The index of blocks follows, then the blocks.",
    SIZE,
    &[MAGIC, VERSION, CHECKSUM, POOL, END_BLOCK, BLOCKS, RESERVED],
);

/// Which blocks of which pool are in a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupHeader {
    /// The pool.
    pub pool: Uuid,
    /// The first block behind the pool.
    pub end_block: Block,
    /// Which ones, rising.
    pub blocks: Vec<Block>,
}

impl BackupHeader {
    /// Bytes of a header and an index of so many blocks.
    pub const fn head_length(blocks: u64) -> u64 {
        SIZE as u64 + (blocks * 8).next_multiple_of(SIZE as u64)
    }

    /// Header and index.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.blocks.is_sorted(), "the numbers rise");
        let mut bytes = vec![0; SIZE];
        MAGIC.put(&mut bytes, MAGIC_VALUE);
        VERSION.put_u32(&mut bytes, VERSION_VALUE);
        POOL.put_uuid(&mut bytes, self.pool);
        END_BLOCK.put_u64(&mut bytes, self.end_block.number());
        BLOCKS.put_u64(&mut bytes, self.blocks.len() as u64);
        bytes.extend(self.blocks.iter().flat_map(|block| block.number().to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(SIZE), 0);
        let checksum = super::checksum_without(&bytes, CHECKSUM);
        CHECKSUM.put_u32(&mut bytes, checksum);
        bytes
    }

    /// How many blocks are in the backup, by the header, which is not verified yet.
    pub fn count(header: &[u8]) -> Result<u64, PoolFormatError> {
        require(header.len() >= SIZE, "BACKUP1: a header is a block")?;
        if MAGIC.bytes(header) != MAGIC_VALUE {
            return Err(PoolFormatError::Absent);
        }
        match VERSION.u32(header) {
            VERSION_VALUE => Ok(BLOCKS.u64(header)),
            other => Err(PoolFormatError::Newer(other)),
        }
    }

    /// What header and index say.
    pub fn decode(bytes: &[u8]) -> Result<BackupHeader, PoolFormatError> {
        let count = Self::count(bytes)?;
        let fits = count.checked_mul(8).is_some_and(|length| length <= (bytes.len() - SIZE) as u64);
        require(fits && bytes.len() as u64 == Self::head_length(count), "BACKUP1: the length of the index")?;
        if CHECKSUM.u32(bytes) != super::checksum_without(bytes, CHECKSUM) {
            return Err(PoolFormatError::Checksum);
        }
        require(RESERVED.is_zero(bytes), "reserved bytes are not zero")?;
        let end = SIZE + usize::try_from(count * 8).unwrap_or(usize::MAX);
        let blocks = bytes[SIZE..end]
            .chunks_exact(8)
            .map(|block| Block::new(u64::from_le_bytes(block.try_into().expect("8 bytes"))));
        let (pool, end_block) = (POOL.uuid(bytes), Block::new(END_BLOCK.u64(bytes)));
        let header = BackupHeader { pool, end_block, blocks: blocks.collect() };
        require(is_zero(&bytes[end..]), "bytes behind the index are not zero")?;
        require(header.blocks.windows(2).all(|pair| pair[0] < pair[1]), "the numbers do not rise")?;
        require(header.blocks.last().is_none_or(|last| *last < end_block), "a block lies behind the pool")?;
        require(end_block < Block::new(1 << 48), "a pool is not that large")?;
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_round_trip_and_damage() {
        let header = BackupHeader {
            pool: Uuid::from_u128(9),
            end_block: Block::new(4096),
            blocks: [0, 1, 600].map(Block::new).to_vec(),
        };
        let bytes = header.encode();
        assert_eq!((&bytes[..8], bytes.len()), (&b"VARVE\xffTK"[..], 8192));
        assert_eq!(
            (bytes[32..34].to_vec(), bytes[40], bytes[4096 + 16..4096 + 18].to_vec()),
            (vec![0, 16], 3, vec![88, 2])
        );
        assert_eq!(BackupHeader::decode(&bytes), Ok(header));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(BackupHeader::decode(&damaged).is_err(), "BACKUP1: bit {bit}");
        }
    }
}
