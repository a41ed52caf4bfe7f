//! What leads to a node: the number of its block and the transaction that made it, in the 8 bytes of one field.
//!
//! A block is used again at the earliest one transaction later, so no other node that ever lay there has the generation
//! that is named. Only its low 24 bits are: generations that are a multiple of 2^24 apart are taken for one another.
//!
//! Invariants:
//! - LINK1. A link is made of a node, or read where one was written; 0 leads nowhere.
//! - LINK2. A block that a link leads to has a number below [`Link::BLOCK_END`].

use super::Block;

const BLOCK_BITS: u32 = 40;

/// Where a node is and which transaction made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(u64);

impl Link {
    /// Leads nowhere: the root of an empty map.
    pub const NONE: Link = Link(0);
    /// Numbers of blocks are smaller: a pool has less than 2^37 blocks, a store less than 2^30.
    pub const BLOCK_END: Block = Block::new(1 << BLOCK_BITS);

    /// What leads to the node of that generation in `block`: [`Link::to`] makes it of a node.
    pub(super) fn new(block: Block, generation: u64) -> Link {
        assert!(block < Self::BLOCK_END, "LINK2: {block:?}");
        Link(generation << BLOCK_BITS | block.number())
    }

    /// The link in a field.
    pub const fn unpack(field: u64) -> Link {
        Link(field)
    }

    /// The field: the number of the block in the low 40 bits, the low 24 bits of the generation above them.
    pub const fn pack(self) -> u64 {
        self.0
    }

    /// The block.
    pub const fn block(self) -> Block {
        Block::new(self.0 % Self::BLOCK_END.number())
    }

    /// Whether the node that it leads to may have been made by the transaction of that generation.
    pub const fn may_be_of(self, generation: u64) -> bool {
        self.0 >> BLOCK_BITS == generation << BLOCK_BITS >> BLOCK_BITS
    }

    /// Whether it leads nowhere.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}
