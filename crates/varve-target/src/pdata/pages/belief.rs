//! What of the blocks that were read is not believed, because it contradicts the rest.
//!
//! Checksums say that a block is what was written there once, not that it fits the others. What a contradiction could
//! make impossible half way through a change is looked for before the change begins (PDATA3).

use super::{AllocClass, Block, Entries, Link, Needed, Node, Pages, Stop};
use std::rc::Rc;
use varve_format::pdata::BlockError;

/// Why a node is not the one that a link names (DESCENT3).
pub(crate) const OF_ANOTHER_TIME: &str =
    "DESCENT3: a node of another transaction than the one that leads to it names";

impl Pages {
    /// The node that `link` leads to. Another one in its block goes from memory (DESCENT3 of `down.rs`).
    pub fn node(&mut self, link: Link) -> Result<Rc<Node>, Stop> {
        let address = link.block();
        let node = self.cache.get(address).or_else(|| self.read_views.get(link));
        let node = node.ok_or(Stop::Missing(Needed::Node(address)))?;
        if link.leads_to(&node) || self.trusts_generations {
            return Ok(node);
        }
        self.disbelieve(address);
        Err(Stop::Damaged(address, BlockError::Invalid(OF_ANOTHER_TIME)))
    }

    /// The node in block `address` is not what a map leads to.
    pub(in super::super) fn disbelieve(&mut self, address: Block) {
        self.cache.disbelieve(address);
    }

    /// Believes nodes of any generation, against DESCENT3; for tests that prove that this is noticed.
    #[doc(hidden)]
    pub fn trust_generations(&mut self) {
        self.trusts_generations = true;
    }

    /// Whether a block of a map can lie there.
    pub(in super::super) fn is_inside(&self, block: Block) -> bool {
        self.space.is_inside(block)
    }

    /// Why a node that was read cannot be one of this store, whatever leads to it.
    pub(in super::super) fn objection(&self, node: &Node) -> Option<&'static str> {
        if node.store != self.store {
            return Some("a node of another store");
        }
        if !(1..=self.generation).contains(&node.generation) {
            return Some("DESCENT2: a node of no transaction that there was");
        }
        // Only a contradiction has put another node there while this one was read (PDATA7).
        if self.cache.contains(node.address) {
            return Some("PDATA7: a node that another one overlaps");
        }
        match &node.entries {
            Entries::Branch(children) if children.iter().any(|child| !self.is_inside(child.1.block())) => {
                Some("NODE3: a branch that leads to where no node can lie")
            }
            _ => None,
        }
    }

    /// RESERVE1: sets aside `count` blocks for nodes, none of which is one of `path`: the space map may say that those are free.
    pub(in super::super) fn reserve_beside(
        &mut self,
        count: usize,
        class: AllocClass,
        mut path: impl Iterator<Item = Block>,
    ) -> Result<(), Stop> {
        self.reserve(count, class)?;
        match path.find(|address| self.reserved.contains(address)) {
            None => Ok(()),
            Some(block) => {
                let why = "a map leads to it, and the space map says that it is free";
                Err(Stop::Damaged(block, BlockError::Invalid(why)))
            }
        }
    }

    /// A block of which maps and space map, or maps and counts, say different things, if one was found: nothing that
    /// would be written now can be believed.
    pub(in super::super) fn contradiction(&self) -> Option<Block> {
        self.space.contradiction()
    }

    /// What is known of `block` contradicts itself.
    pub(crate) fn contradicts(&mut self, block: Block) {
        self.space.contradicts(block);
    }
}
