//! The unit in which space of a store or pool is counted: blocks of 4 KiB, by number, and runs of them.
//!
//! A place is never a plain number, so neither a byte offset, a part of a volume nor a generation is taken for one. How many
//! blocks there are is a plain number.

use std::fmt;
use std::ops::{Add, Sub};
use varve_block::{Extent, align_up};

/// Bytes of a node, of a page, and of the unit in which a store is allocated.
pub const PDATA_BLOCK: usize = 4096;

const SIZE: u64 = PDATA_BLOCK as u64;

/// The number of a block of 4 KiB of a store or pool: where a node, a page or content is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Block(u64);

impl Block {
    /// The block with this number.
    pub const fn new(number: u64) -> Block {
        Block(number)
    }

    /// Its number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The block that begins at this byte.
    pub const fn at(offset: u64) -> Block {
        assert!(offset.is_multiple_of(SIZE), "a block begins at a multiple of its size");
        Block(offset / SIZE)
    }

    /// The first block behind a device of so many bytes; less than a block is left out.
    pub const fn end_of(device_size: u64) -> Block {
        Block(device_size / SIZE)
    }

    /// Its first byte. Panics if that does not fit in 64 bits.
    pub const fn offset(self) -> u64 {
        match self.0.checked_mul(SIZE) {
            Some(offset) => offset,
            None => panic!("a block begins within 64 bits"),
        }
    }

    /// Its bytes.
    pub const fn extent(self) -> Extent {
        Extent::new(self.offset(), SIZE)
    }

    /// The first block from it on whose number is a multiple of `unit`, a power of two.
    pub const fn align_up(self, unit: u64) -> Block {
        Block(align_up(self.0, unit))
    }

    /// The block that is so many behind it, if there can be one.
    pub const fn checked_add(self, count: u64) -> Option<Block> {
        match self.0.checked_add(count) {
            Some(number) => Some(Block(number)),
            None => None,
        }
    }
}

impl Add<u64> for Block {
    type Output = Block;

    fn add(self, count: u64) -> Block {
        Block(self.0 + count)
    }
}

impl Sub<u64> for Block {
    type Output = Block;

    fn sub(self, count: u64) -> Block {
        Block(self.0 - count)
    }
}

/// How many blocks it is behind the other.
impl Sub<Block> for Block {
    type Output = u64;

    fn sub(self, before: Block) -> u64 {
        self.0 - before.0
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// Blocks one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockRun {
    /// The first of them.
    pub first: Block,
    /// How many there are.
    pub count: u64,
}

impl BlockRun {
    /// `count` blocks from `first` on.
    pub const fn new(first: Block, count: u64) -> BlockRun {
        BlockRun { first, count }
    }

    /// One block.
    pub const fn one(block: Block) -> BlockRun {
        BlockRun { first: block, count: 1 }
    }

    /// The blocks from `first` up to, not including, `end`.
    pub fn between(first: Block, end: Block) -> BlockRun {
        BlockRun { first, count: end - first }
    }

    /// The blocks in which these bytes lie, which are whole blocks.
    pub const fn of(extent: Extent) -> BlockRun {
        assert!(extent.is_aligned(SIZE), "space is counted in blocks");
        BlockRun { first: Block::at(extent.offset), count: extent.length / SIZE }
    }

    /// The first block behind the run.
    pub fn end(self) -> Block {
        self.first + self.count
    }

    /// Like [`BlockRun::end`], for values that come from outside.
    pub const fn checked_end(self) -> Option<Block> {
        self.first.checked_add(self.count)
    }

    /// Its bytes.
    pub const fn extent(self) -> Extent {
        Extent::new(self.first.offset(), self.count * SIZE)
    }

    /// The blocks that are in both, if any.
    pub fn intersect(self, other: BlockRun) -> Option<BlockRun> {
        let (first, end) = (self.first.max(other.first), self.end().min(other.end()));
        (first < end).then(|| BlockRun::between(first, end))
    }

    /// Its blocks, in order.
    pub fn blocks(self) -> impl DoubleEndedIterator<Item = Block> {
        (self.first.0..self.end().0).map(Block)
    }
}

impl fmt::Debug for BlockRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks from {} on", self.count, self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_bytes_lead_to_each_other() {
        let run = BlockRun::of(Extent::new(8192, 12288));
        assert_eq!(
            (run.first, run.end(), run.extent()),
            (Block::new(2), Block::new(5), Extent::new(8192, 12288))
        );
        assert_eq!(run.blocks().map(Block::offset).collect::<Vec<_>>(), [8192, 12288, 16384]);
        assert_eq!((Block::end_of(8191), Block::end_of(8192)), (Block::new(1), Block::new(2)));
        assert_eq!(format!("{} {:?} {run:?}", run.first, run.first), "2 block 2 3 blocks from 2 on");
    }

    #[test]
    fn runs_meet_only_where_both_have_blocks() {
        let run = |first: u64, count| BlockRun::new(Block::new(first), count);
        assert_eq!(run(2, 3).intersect(run(4, 9)), Some(run(4, 1)));
        assert_eq!((run(2, 3).intersect(run(5, 9)), run(2, 3).intersect(run(3, 0))), (None, None));
        assert_eq!(run(u64::MAX, 1).checked_end(), None);
    }

    #[test]
    #[should_panic(expected = "multiple of its size")]
    fn bytes_within_a_block_are_no_block() {
        Block::at(4097);
    }
}
