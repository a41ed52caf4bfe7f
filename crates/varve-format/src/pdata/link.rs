//! What leads to a node: the number of its block and the transaction that made it, in the 8 bytes of one field.
//!
//! A block is used again at the earliest one transaction later, so no other node that ever lay there has the generation
//! that is named. Only its low 24 bits are: generations that are a multiple of 2^24 apart are taken for one another.
//!
//! Invariants:
//! - I1. A link is made of a node, or read where one was written; 0 leads nowhere.
//! - I2. A block that a link leads to has a number below [`Link::BLOCK_END`].

use super::node::Node;

const BLOCK_BITS: u32 = 40;

/// Where a node lies and which transaction made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(u64);

impl Link {
    /// Leads nowhere: the root of an empty map.
    pub const NONE: Link = Link(0);
    /// Numbers of blocks are smaller: a pool has less than 2^37 blocks, a store less than 2^30.
    pub const BLOCK_END: u64 = 1 << BLOCK_BITS;

    /// What leads to `node`.
    pub fn to(node: &Node) -> Link {
        assert!(node.address < Self::BLOCK_END, "I2: block {}", node.address);
        Link(node.generation << BLOCK_BITS | node.address)
    }

    /// The link in a field.
    pub const fn unpack(field: u64) -> Link {
        Link(field)
    }

    /// The field: the number of the block in the low 40 bits, the low 24 bits of the generation above them.
    pub const fn pack(self) -> u64 {
        self.0
    }

    /// The number of the block.
    pub const fn block(self) -> u64 {
        self.0 % Self::BLOCK_END
    }

    /// Whether it leads nowhere.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether `node` is the one that it leads to.
    pub fn leads_to(self, node: &Node) -> bool {
        node.address == self.block() && node.generation << BLOCK_BITS == self.0 - self.block()
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::Entries;
    use super::*;

    fn node(address: u64, generation: u64) -> Node {
        Node { address, generation, store: 1, level: 0, entries: Entries::Leaf(Vec::new()) }
    }

    #[test]
    fn a_link_leads_to_the_node_of_its_block_and_generation_alone() {
        let link = Link::to(&node(0x12_3456_789a, 0x0fed_cba9));
        assert_eq!(link.pack(), 0xed_cba9_12_3456_789a, "I1: golden");
        assert_eq!((link.block(), Link::unpack(link.pack())), (0x12_3456_789a, link));
        assert!(link.leads_to(&node(0x12_3456_789a, 0x0fed_cba9)));
        assert!(!link.leads_to(&node(0x12_3456_789a, 0x0fed_cba8)));
        assert!(!link.leads_to(&node(0x12_3456_789b, 0x0fed_cba9)));
        assert!(link.leads_to(&node(0x12_3456_789a, 0x1fed_cba9 + (1 << 24))), "2^24 transactions later");
        assert!(Link::NONE.is_none() && !link.is_none());
    }

    #[test]
    #[should_panic(expected = "I2")]
    fn a_block_that_does_not_fit_is_not_cut() {
        Link::to(&node(Link::BLOCK_END, 1));
    }
}
