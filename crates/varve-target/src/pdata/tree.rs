//! The tree itself: search, insertion, removal, as attempts over the blocks in memory.
//!
//! Rodeh, "B-trees, shadowing, and clones" (ACM TOS 2008) is the source of shadowing; the rules of splitting and
//! merging are the usual ones, except that a leaf that overflows at its end is split there, so that keys that come
//! in order leave full leaves behind, and that a node is merged only with a neighbour that is in memory. So a change
//! needs the paths of its keys and nothing else, and changing one key keeps the paths of the others in memory. A node
//! that falls empty is taken out of its parent even if no neighbour is there.
//!
//! Invariants:
//! - B1. Several keys are changed as one ([`Tree::patch`]): every path is in memory and every block is set aside
//!   before the first of them changes (T3).

mod merge;

use super::down::Down;
use super::edit::check_height;
use super::pages::{Pages, Room, Stop};
use std::rc::Rc;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{BRANCH_CAPACITY, Entries, Key, LEAF_CAPACITY, LEVEL_MAX, Node, Value};

/// Most maps are not higher.
const LEVELS_USUAL: usize = 4;
/// Most keys that one patch changes.
const PATCH_MAX: usize = 8;

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

/// A step from a branch to a child.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) link: Link,
    pub(super) index: usize,
    /// Of the node that `link` leads to.
    pub(super) generation: u64,
}

/// What a change below gives its parent to do.
enum Grown {
    Same,
    Split(Key, Link),
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
        let (leaf, next) = self.leaf_of(pages, key)?;
        let Some(Entries::Leaf(entries)) = leaf.as_deref().map(|leaf| &leaf.entries) else {
            return Ok(Leaf { entries: Vec::new(), next });
        };
        let start = entries.partition_point(|entry| entry.0 < key);
        Ok(Leaf { entries: entries[start..].to_vec(), next })
    }

    /// The leaf where `key` lies or would lie, none in an empty map, and where the next leaf begins.
    pub(super) fn leaf_of(
        self,
        pages: &mut Pages,
        key: Key,
    ) -> Result<(Option<Rc<Node>>, Option<Key>), Stop> {
        if self.root.is_none() {
            return Ok((None, None));
        }
        let mut down = Down::root(self.root);
        loop {
            let node = down.node(pages)?;
            match &node.entries {
                Entries::Branch(children) => down = down.to_child(&node, children, child_of(children, key)),
                Entries::Leaf(_) => return Ok((Some(node), down.high)),
            }
        }
    }

    /// The block of the leaf where `key` lies; that of the root if the way there is not in memory.
    pub fn leaf_block(self, pages: &mut Pages, key: Key) -> u64 {
        self.leaf_of(pages, key)
            .ok()
            .and_then(|(leaf, _)| leaf)
            .map_or(self.root.block(), |leaf| leaf.address)
    }

    /// Sets the value of `key`; the value it had.
    pub fn insert(&mut self, pages: &mut Pages, key: Key, value: Value) -> Result<Option<Value>, Stop> {
        let old = self.get(pages, key)?;
        self.patch(pages, &[], &[(key, value)], Room::Ordinary)?;
        Ok(old)
    }

    /// Removes `key`; the value it had.
    pub fn remove(&mut self, pages: &mut Pages, key: Key) -> Result<Option<Value>, Stop> {
        let old = self.get(pages, key)?;
        if old.is_some() {
            self.patch(pages, &[key], &[], Room::Ordinary)?;
        }
        Ok(old)
    }

    /// Sets the values of some keys and removes others, which are there: all of it or nothing (B1).
    pub fn patch(
        &mut self,
        pages: &mut Pages,
        removes: &[Key],
        puts: &[(Key, Value)],
        room: Room,
    ) -> Result<(), Stop> {
        assert!(removes.len() + puts.len() <= PATCH_MAX, "B1: {} and {}", removes.len(), puts.len());
        let (blocks, nodes) = self.blocks_needed(pages, removes, puts)?;
        pages.reserve_beside(blocks, room, nodes.into_iter())?;
        // In this order: the leaf of a key that is set is not taken out because others fell empty.
        puts.iter().for_each(|(key, value)| self.insert_now(pages, *key, *value));
        removes.iter().for_each(|key| self.remove_now(pages, *key));
        Ok(())
    }

    /// All entries of the leaf where `key` lies or would lie, and where the next leaf begins.
    pub fn whole_leaf(self, pages: &mut Pages, key: Key) -> Result<Leaf, Stop> {
        let (leaf, next) = self.leaf_of(pages, key)?;
        let entries = match leaf.as_deref().map(|leaf| &leaf.entries) {
            Some(Entries::Leaf(entries)) => entries.clone(),
            _ => Vec::new(),
        };
        Ok(Leaf { entries, next })
    }

    /// Puts `entries` in place of those of the leaf that begins with the entry `first`: not more than there are, in
    /// order, and none before `first` or beyond the leaf. All of it or nothing (B1).
    pub fn replace_leaf(
        &mut self,
        pages: &mut Pages,
        first: Key,
        entries: Vec<(Key, Value)>,
        room: Room,
    ) -> Result<(), Stop> {
        let (blocks, nodes) = self.blocks_needed(pages, &[first], &[])?;
        pages.reserve_beside(blocks, room, nodes.into_iter())?;
        assert!(entries.is_sorted_by_key(|entry| entry.0), "N2: entries are in order");
        assert!(entries.first().is_none_or(|entry| entry.0 >= first), "N4: entries stay in their leaf");
        let path = self.path_now(pages, first);
        let leaf = self.shadow(pages, &path);
        let Entries::Leaf(old) = &mut pages.change(leaf.link.block()).entries else { unreachable!("N3") };
        assert!(
            old[0].0 == first && old.len() >= entries.len(),
            "B1: the leaf is the one that was looked at"
        );
        *old = entries;
        self.mend(pages, first, leaf.depth);
        Ok(())
    }

    /// How many blocks a patch takes at most, and the nodes of its paths, for which it asks.
    fn blocks_needed(
        self,
        pages: &mut Pages,
        removes: &[Key],
        puts: &[(Key, Value)],
    ) -> Result<(usize, Vec<u64>), Stop> {
        if self.root.is_none() {
            assert!(removes.is_empty(), "nothing can be removed from an empty map");
            return Ok((1, Vec::new()));
        }
        let mut seen: Vec<u64> = Vec::new();
        let mut blocks = 0;
        let keys = removes.iter().chain(puts.iter().map(|put| &put.0));
        for (number, key) in keys.enumerate() {
            let path = self.path(pages, *key)?;
            check_height(&path)?;
            if number < removes.len() {
                blocks += path.len() - 1; // A neighbour on each level, to merge with.
            }
            for step in &path {
                if seen.contains(&step.link.block()) {
                    continue;
                }
                seen.push(step.link.block());
                let node = pages.node(step.link)?;
                blocks += usize::from(!pages.is_new(&node));
                if node.len() + PATCH_MAX > capacity(&node) && !puts.is_empty() {
                    // A split, twice if the first was at the end, and a new root.
                    blocks += 2 + usize::from(step.link == self.root);
                }
            }
        }
        Ok((blocks, seen))
    }

    /// B1: inserts into nodes that are in memory, with blocks that were set aside.
    fn insert_now(&mut self, pages: &mut Pages, key: Key, value: Value) {
        if self.root.is_none() {
            self.root = pages.create(0, Entries::Leaf(vec![(key, value)]));
            return;
        }
        let path = self.path_now(pages, key);
        let leaf = self.shadow(pages, &path);
        let mut grown = insert_into_leaf(pages, leaf.link.block(), key, value);
        for step in self.steps(pages, key, leaf.depth).into_iter().rev() {
            let Grown::Split(split_key, split) = grown else { break };
            grown = insert_child(pages, step, split_key, split);
        }
        if let Grown::Split(split_key, split) = grown {
            let level = level_of(pages, self.root) + 1;
            assert!(level <= LEVEL_MAX, "a tree is never that high");
            self.root = pages.create(level, Entries::Branch(vec![(0, self.root), (split_key, split)]));
        }
    }

    /// B1: removes from nodes that are in memory.
    fn remove_now(&mut self, pages: &mut Pages, key: Key) {
        let path = self.path_now(pages, key);
        let leaf = self.shadow(pages, &path);
        let Entries::Leaf(entries) = &mut pages.change(leaf.link.block()).entries else { unreachable!("N3") };
        let count = entries.len();
        entries.retain(|entry| entry.0 != key);
        assert_eq!(entries.len() + 1, count, "B1: what is removed is there");
        self.mend(pages, key, leaf.depth);
    }

    fn path_now(self, pages: &mut Pages, key: Key) -> Vec<Step> {
        self.path(pages, key).expect("B1: the paths of a change are in memory")
    }

    /// The nodes from the root to the leaf where `key` lies or would lie.
    pub(super) fn path(self, pages: &mut Pages, key: Key) -> Result<Vec<Step>, Stop> {
        let mut path = Vec::with_capacity(LEVELS_USUAL);
        if self.root.is_none() {
            return Ok(path);
        }
        let mut down = Down::root(self.root);
        loop {
            let (node, link) = (down.node(pages)?, down.link);
            let generation = node.generation;
            let Entries::Branch(children) = &node.entries else {
                path.push(Step { link, index: 0, generation });
                return Ok(path);
            };
            let index = child_of(children, key);
            path.push(Step { link, index, generation });
            down = down.to_child(&node, children, index);
        }
    }

    /// Makes every node of `path` one of this transaction; where the leaf is now.
    fn shadow(&mut self, pages: &mut Pages, path: &[Step]) -> Shadowed {
        let mut parent: Option<Step> = None;
        for step in path {
            let link = pages.shadow(step.link);
            if link != step.link {
                match parent {
                    None => self.root = link,
                    Some(parent) => children(pages, parent.link)[parent.index].1 = link,
                }
            }
            parent = Some(Step { link, ..*step });
        }
        let leaf = parent.expect("a tree with a root has a path");
        Shadowed { link: leaf.link, depth: path.len() - 1 }
    }

    /// The `depth` branches on the way to `key`, all in memory.
    fn steps(self, pages: &mut Pages, key: Key, depth: usize) -> Vec<Step> {
        self.path_now(pages, key).into_iter().take(depth).collect()
    }

    /// Mends what has become too small below the `depth` branches on the way to `key`, all in memory, and the root.
    fn mend(&mut self, pages: &mut Pages, key: Key, depth: usize) {
        let mut steps: Vec<(Down, usize)> = Vec::with_capacity(depth);
        let mut down = Down::root(self.root);
        for _ in 0..depth {
            let node = pages.node(down.link).expect("B1: the paths of a change are in memory");
            let Entries::Branch(children) = &node.entries else { unreachable!("N3: leaves lie below") };
            let index = child_of(children, key);
            steps.push((down, index));
            down = down.to_child(&node, children, index);
        }
        steps.into_iter().rev().for_each(|(branch, index)| merge::mend(pages, branch, index));
        self.lower(pages);
    }

    /// Takes away roots that lead to one child only, and a leaf that is empty.
    fn lower(&mut self, pages: &mut Pages) {
        loop {
            // The only child of a root that goes may be elsewhere: then it has entries.
            let Ok(node) = pages.node(self.root) else { return };
            let next = match &node.entries {
                Entries::Branch(children) if children.len() == 1 => children[0].1,
                Entries::Branch(children) if children.is_empty() => Link::NONE,
                Entries::Leaf(entries) if entries.is_empty() => Link::NONE,
                _ => return,
            };
            pages.release(self.root.block());
            self.root = next;
            if next.is_none() {
                return;
            }
        }
    }
}

struct Shadowed {
    link: Link,
    depth: usize,
}

/// The child whose range `key` lies in: the last that begins at or before it.
pub(super) fn child_of(children: &[(Key, Link)], key: Key) -> usize {
    children.partition_point(|child| child.0 <= key).saturating_sub(1)
}

fn floor_in(pages: &mut Pages, down: Down, key: Key) -> Result<Option<(Key, Value)>, Stop> {
    let node = down.node(pages)?;
    match &node.entries {
        Entries::Leaf(entries) => {
            let count = entries.partition_point(|entry| entry.0 <= key);
            Ok(count.checked_sub(1).map(|index| entries[index]))
        }
        Entries::Branch(children) => {
            // The child where the key lies may hold only larger keys: then its elder has the answer.
            for index in (0..=child_of(children, key)).rev() {
                if let Some(entry) = floor_in(pages, down.to_child(&node, children, index), key)? {
                    return Ok(Some(entry));
                }
            }
            Ok(None)
        }
    }
}

fn insert_into_leaf(pages: &mut Pages, address: u64, key: Key, value: Value) -> Grown {
    let Entries::Leaf(entries) = &mut pages.change(address).entries else { unreachable!("N3") };
    let at = match entries.binary_search_by_key(&key, |entry| entry.0) {
        Ok(found) => {
            entries[found].1 = value;
            return Grown::Same;
        }
        Err(at) => at,
    };
    if entries.len() < LEAF_CAPACITY {
        entries.insert(at, (key, value));
        return Grown::Same;
    }
    let mut upper = entries.split_off(if at == LEAF_CAPACITY { at } else { LEAF_CAPACITY / 2 });
    if at <= entries.len() && !upper.is_empty() {
        entries.insert(at, (key, value));
    } else {
        upper.insert(at - entries.len(), (key, value));
    }
    let split_key = upper[0].0;
    Grown::Split(split_key, pages.create(0, Entries::Leaf(upper)))
}

fn insert_child(pages: &mut Pages, step: Step, key: Key, child: Link) -> Grown {
    let entries = children(pages, step.link);
    let at = step.index + 1;
    if entries[0].0 >= key {
        entries[0].0 = 0; // N4: where the first child begins is said above it
    }
    entries.insert(at, (key, child));
    if entries.len() <= BRANCH_CAPACITY {
        return Grown::Same;
    }
    let upper = entries.split_off(if at == BRANCH_CAPACITY { at } else { BRANCH_CAPACITY / 2 });
    let (split_key, level) = (upper[0].0, level_of(pages, step.link));
    Grown::Split(split_key, pages.create(level, Entries::Branch(upper)))
}

pub(super) fn children(pages: &mut Pages, link: Link) -> &mut Vec<(Key, Link)> {
    match &mut pages.change(link.block()).entries {
        Entries::Branch(children) => children,
        Entries::Leaf(_) => unreachable!("N3: a step leads from a branch"),
    }
}

pub(super) fn level_of(pages: &mut Pages, link: Link) -> u32 {
    pages.node(link).expect("T3: the path of a change is in memory").level
}

fn capacity(node: &Node) -> usize {
    match node.entries {
        Entries::Leaf(_) => LEAF_CAPACITY,
        Entries::Branch(_) => BRANCH_CAPACITY,
    }
}
