//! What the maps of a pool hold: where a run of a volume's parts is, and how many hold a run of blocks.
//!
//! Invariants:
//! - MAPPING1. A run has at least one part, and neither its end nor the end of its place overflows.
//! - MAPPING2. The place 0 (a superblock is there) means zeros that were written: there is no data.
//! - MAPPING3. A count of holders is only kept when there is more than one.

use super::{PoolFormatError, require};
use crate::layout::{Field, Layout};
use crate::pdata::node::{Key, Value};
use crate::pdata::{Block, BlockRun};

const START: Field = Field::new(0, 16, "start", "the key: first part of 4 KiB of the volume");
const PLACE: Field = Field::new(16, 6, "place", "block of the pool where it lies; 0 for written zeros");
const COUNT: Field = Field::new(22, 4, "count", "number of parts, one behind the other in both");
const BIRTH: Field = Field::new(26, 6, "birth", "generation in which it was mapped, or an older one");

/// The byte table of a mapping: the key of a map's entry, and its value.
pub const MAPPING_LAYOUT: Layout = Layout::new(
    "Thin pool: mapping",
    "Where a run of a volume's parts lies. The entry of a leaf of a volume's map.",
    32,
    &[START, PLACE, COUNT, BIRTH],
);

const FIRST: Field = Field::new(0, 16, "first", "the key: first block of the pool");
const BLOCKS: Field = Field::new(16, 8, "blocks", "number of blocks");
const OTHERS: Field = Field::new(24, 8, "others", "how many hold each of them besides one");

/// The byte table of a count of holders.
pub const SHARE_LAYOUT: Layout = Layout::new(
    "Thin pool: share",
    "How many hold a run of blocks, of data or of nodes, if several do. The entry of a leaf of the map of shares.",
    32,
    &[FIRST, BLOCKS, OTHERS],
);

/// Highest number that six bytes hold.
const SIX_BYTES_MAX: u64 = (1 << 48) - 1;

/// Where a run of parts is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First part of the volume.
    pub start: u64,
    /// Number of parts.
    pub count: u64,
    /// First block of the pool; none for zeros (MAPPING2).
    pub place: Option<Block>,
    /// When it was mapped.
    pub birth: u64,
}

impl Mapping {
    /// The longest run.
    pub const COUNT_MAX: u64 = u32::MAX as u64;

    /// The first part behind the run.
    pub const fn end(&self) -> u64 {
        self.start + self.count
    }

    /// What begins with this part and is in these blocks, not mapped yet.
    pub const fn of(start: u64, blocks: BlockRun) -> Mapping {
        Mapping { start, count: blocks.count, place: Some(blocks.first), birth: 0 }
    }

    /// The blocks of the pool where it is; none for zeros.
    pub fn blocks(&self) -> Option<BlockRun> {
        self.place.map(|place| BlockRun::new(place, self.count))
    }

    /// What is behind its first parts, so many of them, or all of it.
    pub fn behind(self, parts: u64) -> Mapping {
        assert!(parts <= self.count, "MAPPING1: {parts} parts of {self:?}");
        let place = self.place.map(|place| place + parts);
        Mapping { start: self.start + parts, count: self.count - parts, place, ..self }
    }

    /// The key of the entry.
    pub fn key(&self) -> Key {
        Key::from(self.start)
    }

    /// The value of the entry.
    pub fn value(&self) -> Value {
        assert!(self.check().is_ok(), "MAPPING1: {self:?}");
        let mut value = [0; 16];
        value[..6].copy_from_slice(&self.place.map_or(0, Block::number).to_le_bytes()[..6]);
        value[6..10].copy_from_slice(&self.count.to_le_bytes()[..4]);
        value[10..].copy_from_slice(&self.birth.to_le_bytes()[..6]);
        value
    }

    /// The mapping that an entry holds.
    pub fn decode(key: Key, value: &Value) -> Result<Mapping, PoolFormatError> {
        let start =
            u64::try_from(key).map_err(|_| PoolFormatError::Invalid("MAPPING1: a part beyond all ends"))?;
        let (place, count, birth) = (number(&value[..6]), number(&value[6..10]), number(&value[10..]));
        let place = Some(Block::new(place)).filter(|place| place.number() > 0);
        let mapping = Mapping { start, count, place, birth };
        mapping.check()?;
        Ok(mapping)
    }

    fn check(&self) -> Result<(), PoolFormatError> {
        let fits = self.start.checked_add(self.count).is_some()
            && self.place.map_or(0, Block::number) + self.count <= SIX_BYTES_MAX;
        require((1..=Self::COUNT_MAX).contains(&self.count) && fits, "MAPPING1: a run")?;
        require(self.birth <= SIX_BYTES_MAX, "MAPPING1: a birth")
    }
}

/// How many hold a run of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Which blocks.
    pub run: BlockRun,
    /// How many hold them, besides one (MAPPING3).
    pub others: u64,
}

impl Share {
    /// The key under which a run that begins with `block` is found.
    pub fn key_of(block: Block) -> Key {
        Key::from(block.number())
    }

    /// The block that a key stands for; none if it is larger than that of any block.
    pub fn block_of(key: Key) -> Option<Block> {
        u64::try_from(key).ok().map(Block::new)
    }

    /// The key of the entry.
    pub fn key(&self) -> Key {
        Share::key_of(self.run.first)
    }

    /// The value of the entry.
    pub fn value(&self) -> Value {
        assert!(self.run.count > 0 && self.others > 0, "MAPPING3: {self:?}");
        let mut value = [0; 16];
        value[..8].copy_from_slice(&self.run.count.to_le_bytes());
        value[8..].copy_from_slice(&self.others.to_le_bytes());
        value
    }

    /// The share that an entry holds.
    pub fn decode(key: Key, value: &Value) -> Result<Share, PoolFormatError> {
        let first =
            Share::block_of(key).ok_or(PoolFormatError::Invalid("MAPPING1: a block beyond all ends"))?;
        let (run, others) = (BlockRun::new(first, number(&value[..8])), number(&value[8..]));
        require(run.checked_end().is_some(), "MAPPING1: a run")?;
        require(run.count > 0 && others > 0, "MAPPING3: a share of nothing")?;
        require(others <= SIX_BYTES_MAX, "MAPPING3: more holders than there can be volumes")?;
        Ok(Share { run, others })
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let mapping = Mapping { start: 1, count: 0x0302, place: Some(Block::new(0x0605)), birth: 0x0908 };
        assert_eq!(mapping.value(), [5, 6, 0, 0, 0, 0, 2, 3, 0, 0, 8, 9, 0, 0, 0, 0]);
        let zeros = Mapping { place: None, ..mapping };
        assert_eq!(Mapping::decode(zeros.key(), &zeros.value()), Ok(zeros), "MAPPING2");
        let share = Share { run: BlockRun::new(Block::new(1), 0x0302), others: 4 };
        assert_eq!(share.value(), [2, 3, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_what_was_stored_or_refused(key: u64, value: [u8; 16]) {
            let key = Key::from(key);
            if let Ok(mapping) = Mapping::decode(key, &value) {
                prop_assert_eq!((mapping.key(), mapping.value()), (key, value));
            }
            if let Ok(share) = Share::decode(key, &value) {
                prop_assert_eq!((share.key(), share.value()), (key, value));
            }
        }
    }
}
