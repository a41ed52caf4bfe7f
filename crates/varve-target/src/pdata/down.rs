//! The way from the root of a tree to a leaf, and which nodes are believed on it.
//!
//! Invariants:
//! - D1. Only a node of the level and with keys of the range that its place in the tree says is believed: a disk may hold
//!   an older version of a block, with a sound checksum. So every way down ends, and a key is found where it is changed.

use super::pages::{Pages, Stop};
use std::rc::Rc;
use varve_format::pdata::BlockError;
use varve_format::pdata::node::{Entries, Key, Node};

/// A node on the way down, and what it may be (D1).
#[derive(Clone, Copy)]
pub(crate) struct Down {
    pub(crate) address: u64,
    /// Its level; a root may have any.
    level: Option<u32>,
    /// The smallest key that it may contain.
    pub(crate) low: Key,
    /// The smallest key that the next node of its level may contain.
    pub(crate) high: Option<Key>,
}

impl Down {
    /// The root of a tree.
    pub(crate) fn root(address: u64) -> Self {
        Down { address, level: None, low: 0, high: None }
    }

    /// The child at `index` of `node`, which is this one, and has `children`.
    pub(crate) fn to_child(self, node: &Node, children: &[(Key, u64)], index: usize) -> Self {
        assert!(node.level > 0 && index < children.len(), "D1: a branch leads down");
        Down {
            address: children[index].1,
            level: Some(node.level - 1),
            low: if index == 0 { self.low } else { children[index].0 },
            high: children.get(index + 1).map(|child| child.0).or(self.high),
        }
    }

    /// The node, if it is one that may be here (D1). Another one goes from memory, where somebody might take it for what
    /// the map leads to.
    pub(crate) fn node(self, pages: &mut Pages) -> Result<Rc<Node>, Stop> {
        let node = pages.node(self.address)?;
        let Some(objection) = self.objection(&node) else { return Ok(node) };
        pages.disbelieve(self.address);
        Err(Stop::Damaged(self.address, BlockError::Invalid(objection)))
    }

    /// The node, if it is in memory and one that may be here (D1).
    pub(super) fn node_in_memory(self, pages: &mut Pages) -> Option<Rc<Node>> {
        pages.node(self.address).ok().filter(|node| self.objection(node).is_none())
    }

    /// Why `node` cannot be here (D1).
    fn objection(self, node: &Node) -> Option<&'static str> {
        let (first, last) = match &node.entries {
            Entries::Leaf(entries) => {
                (entries.first().map(|entry| entry.0), entries.last().map(|entry| entry.0))
            }
            // Where its first child begins is said above it (N4).
            Entries::Branch(children) => {
                let others = &children[1..];
                (others.first().map(|child| child.0), others.last().map(|child| child.0))
            }
        };
        if self.level.is_some_and(|level| node.level != level) {
            return Some("N3: a node of another level");
        }
        let elsewhere = first.is_some_and(|first| first < self.low)
            || last.zip(self.high).is_some_and(|(last, high)| last >= high);
        elsewhere.then_some("N4: a node with keys of another place")
    }
}
