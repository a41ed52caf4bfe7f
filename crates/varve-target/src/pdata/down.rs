//! The way from the root of a tree to a leaf, and which nodes are believed on it.
//!
//! Invariants:
//! - DESCENT1. Only a node of the level and with keys of the range that its place in the tree says is believed: a disk may hold
//!   an older version of a block, with a sound checksum. So every way down ends, and a key is found where it is changed.
//! - DESCENT2. No node is younger than the one above it, no leaf is empty, and the keys of a branch lie in its range, but for the
//!   first, which says nothing: so nodes that are cut, joined and linked anew stay in order.
//! - DESCENT3. Only the node that a link names by its block and its generation is believed: where a write was lost, or went
//!   elsewhere, an older node is found, and with a sound checksum ([`Pages::node`]).

use super::pages::{Pages, Stop};
use std::rc::Rc;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{Entries, Key, Node};
use varve_format::pdata::{Block, BlockError};

/// A node on the way down, and what it may be (DESCENT1).
#[derive(Clone, Copy)]
pub(crate) struct Down {
    pub(crate) link: Link,
    /// Its level; a root may have any.
    level: Option<u32>,
    /// The transaction that made the node above it; a root is of this transaction or an older one.
    youngest: Option<u64>,
    /// The smallest key that it may contain.
    pub(crate) low: Key,
    /// The smallest key that the next node of its level may contain.
    pub(crate) high: Option<Key>,
}

impl Down {
    /// The root of a tree.
    pub(crate) fn root(link: Link) -> Self {
        Down { link, level: None, youngest: None, low: 0, high: None }
    }

    /// Its block.
    pub(crate) fn address(self) -> Block {
        self.link.block()
    }

    /// The child at `index` of `node`, which is this one, and has `children`.
    pub(crate) fn to_child(self, node: &Node, children: &[(Key, Link)], index: usize) -> Self {
        assert!(node.level > 0 && index < children.len(), "DESCENT1: a branch leads down");
        Down {
            link: children[index].1,
            level: Some(node.level - 1),
            youngest: Some(node.generation),
            low: if index == 0 { self.low } else { children[index].0 },
            high: children.get(index + 1).map(|child| child.0).or(self.high),
        }
    }

    /// The node, if it is one that may be here (DESCENT1 to DESCENT3). Another one is dropped from memory, where it might be
    /// taken for what the map leads to.
    pub(crate) fn node(self, pages: &mut Pages) -> Result<Rc<Node>, Stop> {
        let node = pages.node(self.link)?;
        let Some(objection) = self.objection(&node, pages.generation()) else { return Ok(node) };
        pages.disbelieve(self.address());
        Err(Stop::Damaged(self.address(), BlockError::Invalid(objection)))
    }

    /// The node, if it is in memory and one that may be here (DESCENT1 to DESCENT3).
    pub(super) fn node_in_memory(self, pages: &mut Pages) -> Option<Rc<Node>> {
        let generation = pages.generation();
        pages.node(self.link).ok().filter(|node| self.objection(node, generation).is_none())
    }

    /// Why `node` cannot be here (DESCENT1, DESCENT2), in a transaction of that generation.
    fn objection(self, node: &Node, generation: u64) -> Option<&'static str> {
        let (first, last) = match &node.entries {
            Entries::Leaf(entries) if entries.is_empty() => return Some("DESCENT2: an empty leaf"),
            Entries::Branch(children) if self.high.is_some_and(|high| children[0].0 >= high) => {
                return Some("NODE4: a branch that begins behind its end");
            }
            Entries::Leaf(entries) => {
                (entries.first().map(|entry| entry.0), entries.last().map(|entry| entry.0))
            }
            // Where its first child begins is said above it (NODE4).
            Entries::Branch(children) => {
                let others = &children[1..];
                (others.first().map(|child| child.0), others.last().map(|child| child.0))
            }
        };
        if self.level.is_some_and(|level| node.level != level) {
            return Some("NODE3: a node of another level");
        }
        if node.generation > self.youngest.unwrap_or(generation) {
            return Some("DESCENT2: a node that is younger than what leads to it");
        }
        // Of a branch it is the second child that is looked at, which begins behind the first.
        let least = self.low.saturating_add(Key::from(node.level > 0));
        let elsewhere = first.is_some_and(|first| first < least)
            || last.zip(self.high).is_some_and(|(last, high)| last >= high);
        elsewhere.then_some("NODE4: a node with keys of another place")
    }
}
