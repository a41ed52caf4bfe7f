//! A map by name and search in it: attempts over the blocks in memory.

use super::down::Down;
use super::pages::{Pages, Stop};
use std::rc::Rc;
use varve_format::pdata::Block;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{BRANCH_CAPACITY, Entries, Key, LEAF_CAPACITY, Node, Value};

/// Most maps are not higher.
const LEVELS_USUAL: usize = 4;

/// A map, named by its root. Copying it copies the name only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Leads to the root node; nowhere for an empty map.
    pub root: Link,
}

/// Part of a map: the entries of one leaf from some key on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Entries in order.
    pub entries: Vec<(Key, Value)>,
    /// Where the next leaf begins; `None` behind the last.
    pub next: Option<Key>,
}

/// The leaf where a key is. One that is held while the leaf is changed keeps the old leaf.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// The smallest key that it may contain.
    pub first: Key,
    /// The smallest key that the next leaf may contain; `None` for the last leaf.
    pub end: Option<Key>,
    leaf: Option<Rc<Node>>,
}

impl Span {
    /// All entries of the leaf.
    pub fn entries(&self) -> &[(Key, Value)] {
        self.leaf.as_deref().map_or(&[], leaf_entries)
    }

    /// The block of the leaf, the first for none, and the transaction that made it.
    pub fn leaf(&self) -> (Block, u64) {
        self.leaf.as_deref().map_or((Block::default(), 0), |leaf| (leaf.address, leaf.generation))
    }
}

/// A node on the way to a leaf.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) link: Link,
    /// Which child the way goes on to; of a leaf it means nothing.
    pub(super) index: usize,
    /// Of the node that `link` leads to.
    pub(super) generation: u64,
    /// How many entries more it can have.
    pub(super) room: usize,
}

impl Tree {
    /// A map without entries; has no node.
    pub const EMPTY: Tree = Tree { root: Link::NONE };

    /// The value of `key`.
    pub fn get(self, pages: &mut Pages, key: Key) -> Result<Option<Value>, Stop> {
        Ok(self.floor(pages, key)?.filter(|entry| entry.0 == key).map(|entry| entry.1))
    }

    /// The last entry at or before `key`.
    pub fn floor(self, pages: &mut Pages, key: Key) -> Result<Option<(Key, Value)>, Stop> {
        if self.root.is_none() { Ok(None) } else { floor_in(pages, Down::root(self.root), key) }
    }

    /// The first entry at or after `key`.
    pub fn ceiling(self, pages: &mut Pages, key: Key) -> Result<Option<(Key, Value)>, Stop> {
        let mut from = key;
        loop {
            let leaf = self.leaf(pages, from)?;
            match (leaf.entries.first(), leaf.next) {
                (Some(entry), _) => return Ok(Some(*entry)),
                (None, None) => return Ok(None),
                (None, Some(next)) => from = next,
            }
        }
    }

    /// The entries at or after `key` of the leaf where `key` would lie, and where the next leaf begins.
    pub fn leaf(self, pages: &mut Pages, key: Key) -> Result<Leaf, Stop> {
        let span = self.span(pages, key)?;
        let start = span.entries().partition_point(|entry| entry.0 < key);
        assert!(span.end.is_none_or(|end| end > key), "NODE4: the next leaf begins behind the key");
        Ok(Leaf { entries: span.entries()[start..].to_vec(), next: span.end })
    }

    /// The leaf where `key` is or would be.
    pub fn span(self, pages: &mut Pages, key: Key) -> Result<Span, Stop> {
        let found = self.descend(pages, key, |_| ())?;
        Ok(found.map_or_else(Span::default, |(down, leaf)| Span {
            first: down.low,
            end: down.high,
            leaf: Some(leaf),
        }))
    }

    /// The block of the leaf where `key` is; that of the root if the way there is not in memory.
    pub fn leaf_block(self, pages: &mut Pages, key: Key) -> Block {
        let leaf = self.span(pages, key).ok().and_then(|span| span.leaf);
        leaf.map_or(self.root.block(), |leaf| leaf.address)
    }

    /// The nodes from the root to the leaf where `key` is or would be.
    pub(super) fn path(self, pages: &mut Pages, key: Key) -> Result<Vec<Step>, Stop> {
        let mut path = Vec::with_capacity(LEVELS_USUAL);
        if let Some((down, leaf)) = self.descend(pages, key, |step| path.push(step))? {
            path.push(Step::of(down.link, &leaf, 0));
        }
        Ok(path)
    }

    /// Goes down to the leaf where `key` is or would be; tells of the branches on the way.
    fn descend(
        self,
        pages: &mut Pages,
        key: Key,
        mut on_branch: impl FnMut(Step),
    ) -> Result<Option<(Down, Rc<Node>)>, Stop> {
        if self.root.is_none() {
            return Ok(None);
        }
        let mut down = Down::root(self.root);
        loop {
            let node = down.node(pages)?;
            let Entries::Branch(children) = &node.entries else { return Ok(Some((down, node))) };
            let index = child_of(children, key);
            on_branch(Step::of(down.link, &node, index));
            down = down.to_child(&node, children, index);
        }
    }
}

impl Step {
    fn of(link: Link, node: &Node, index: usize) -> Self {
        Self { link, index, generation: node.generation, room: capacity(node).saturating_sub(node.len()) }
    }
}

/// The child whose range `key` is in: the last that begins at or before it.
pub(super) fn child_of(children: &[(Key, Link)], key: Key) -> usize {
    children.partition_point(|child| child.0 <= key).saturating_sub(1)
}

/// The entries of a leaf.
pub(super) fn leaf_entries(leaf: &Node) -> &[(Key, Value)] {
    match &leaf.entries {
        Entries::Leaf(entries) => entries,
        Entries::Branch(_) => unreachable!("NODE3: a way ends in a leaf"),
    }
}

/// How many entries a node can have.
pub(super) fn capacity(node: &Node) -> usize {
    match node.entries {
        Entries::Leaf(_) => LEAF_CAPACITY,
        Entries::Branch(_) => BRANCH_CAPACITY,
    }
}

fn floor_in(pages: &mut Pages, down: Down, key: Key) -> Result<Option<(Key, Value)>, Stop> {
    let node = down.node(pages)?;
    match &node.entries {
        Entries::Leaf(entries) => {
            let count = entries.partition_point(|entry| entry.0 <= key);
            Ok(count.checked_sub(1).map(|index| entries[index]))
        }
        Entries::Branch(children) => {
            // The child where the key is may hold only larger keys: then the one before it has the answer.
            for index in (0..=child_of(children, key)).rev() {
                if let Some(entry) = floor_in(pages, down.to_child(&node, children, index), key)? {
                    return Ok(Some(entry));
                }
            }
            Ok(None)
        }
    }
}
