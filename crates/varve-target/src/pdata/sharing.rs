//! Other holders of the nodes of a tree and of what its entries stand for: what an editor asks before it changes a node.

use super::pages::{Pages, Stop};
use super::tree::{Span, Step};
use varve_format::pdata::Block;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{Entries, Key, Value};

/// The reference counts of nodes that several trees hold, and of what their entries stand for.
pub trait Sharing {
    /// The generation of the newest node that another tree may hold too (EDIT2).
    fn last_clone(&self) -> u64;
    /// How many other trees, or nodes of them, hold the node in `block`.
    fn others(&self, pages: &mut Pages, block: Block) -> Result<u64, Stop>;
    /// One more holds the node in `block`.
    fn increment(&self, block: Block);
    /// One less holds the node in `block`, which others hold too.
    fn decrement(&self, block: Block);
    /// One more leaf has this entry.
    fn increment_entry(&self, key: Key, value: &Value);
    /// This tree, which alone holds the node in `block`, is about to have a copy in its place.
    fn replaces(&self, block: Block, entries: &Entries) {
        let _any = (block, entries);
    }
    /// Whether every entry of this leaf is one that there can be: before it is copied with
    /// [`Sharing::increment_entry`].
    fn believe(&self, leaf: &Span) -> Result<(), Stop> {
        let _any = leaf;
        Ok(())
    }
    /// Whether nodes that have become too small are merged (EDIT4).
    fn may_merge(&self) -> bool {
        false
    }
}

/// Of a tree that is never cloned.
pub struct Alone;

impl Sharing for Alone {
    fn last_clone(&self) -> u64 {
        0
    }
    fn others(&self, _: &mut Pages, _: Block) -> Result<u64, Stop> {
        Ok(0)
    }
    fn increment(&self, _: Block) {
        unreachable!("EDIT2: nobody else holds a node")
    }
    fn decrement(&self, _: Block) {
        unreachable!("EDIT2: nobody else holds a node")
    }
    fn increment_entry(&self, _: Key, _: &Value) {
        unreachable!("EDIT2: nobody else holds a node")
    }
    fn may_merge(&self) -> bool {
        true
    }
}

/// The index of the first node of `path` that others hold too; everything below it is shared with them.
pub(super) fn first_shared(pages: &mut Pages, sharing: &dyn Sharing, path: &[Step]) -> Result<usize, Stop> {
    for (depth, step) in path.iter().enumerate() {
        if step.generation <= sharing.last_clone() && sharing.others(pages, step.link.block())? > 0 {
            return Ok(depth);
        }
    }
    Ok(path.len())
}

/// EDIT1: a copy of a node that others hold too.
pub(super) fn copy_shared(pages: &mut Pages, sharing: &dyn Sharing, link: Link) -> Link {
    assert!(sharing.last_clone() > 0, "EDIT1: nothing is shared before the first clone");
    let node = pages.node(link).expect("EDIT3: the path of a change is in memory");
    match &node.entries {
        Entries::Branch(children) => children.iter().for_each(|child| sharing.increment(child.1.block())),
        Entries::Leaf(entries) => {
            entries.iter().for_each(|(key, value)| sharing.increment_entry(*key, value));
        }
    }
    sharing.decrement(link.block());
    pages.create(node.level, node.entries.clone())
}
