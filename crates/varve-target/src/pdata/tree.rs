//! The tree itself: search, insertion, removal, as attempts over the blocks in memory.
//!
//! Rodeh, "B-trees, shadowing, and clones" (ACM TOS 2008) is the source of shadowing; the rules of splitting and
//! merging are the usual ones, except that a leaf that overflows at its end is split there, so that keys that come
//! in order leave full leaves behind.

use super::pages::{Pages, Stop};
use std::rc::Rc;
use varve_format::pdata::node::{BRANCH_CAPACITY, Entries, Key, LEAF_CAPACITY, LEVEL_MAX, Node, Value};

/// A map, named by its root. Copying it copies the name only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Block of the root node; 0 for an empty map.
    pub root: u64,
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
    pub(super) address: u64,
    pub(super) index: usize,
}

/// What a change below gives its parent to do.
enum Grown {
    Same,
    Split(Key, u64),
}

impl Tree {
    /// A map without entries; has no node.
    pub const EMPTY: Tree = Tree { root: 0 };

    /// The value of `key`.
    pub fn get(self, pages: &mut Pages, key: Key) -> Result<Option<Value>, Stop> {
        Ok(self.floor(pages, key)?.filter(|entry| entry.0 == key).map(|entry| entry.1))
    }

    /// The last entry at or before `key`.
    pub fn floor(self, pages: &mut Pages, key: Key) -> Result<Option<(Key, Value)>, Stop> {
        if self.root == 0 { Ok(None) } else { floor_in(pages, self.root, key) }
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
        if self.root == 0 {
            return Ok(Leaf { entries: Vec::new(), next: None });
        }
        let (mut address, mut next) = (self.root, None);
        loop {
            let node = pages.node(address)?;
            match &node.entries {
                Entries::Branch(children) => {
                    let index = child_of(children, key);
                    next = children.get(index + 1).map(|child| child.0).or(next);
                    address = children[index].1;
                }
                Entries::Leaf(entries) => {
                    let start = entries.partition_point(|entry| entry.0 < key);
                    return Ok(Leaf { entries: entries[start..].to_vec(), next });
                }
            }
        }
    }

    /// Sets the value of `key`; the value it had.
    pub fn insert(&mut self, pages: &mut Pages, key: Key, value: Value) -> Result<Option<Value>, Stop> {
        let path = self.path(pages, key)?;
        // A copy and a split on every level, and a new root above.
        pages.reserve(path.len() * 2 + 1)?;
        if self.root == 0 {
            self.root = pages.create(0, Entries::Leaf(vec![(key, value)]));
            return Ok(None);
        }
        let leaf = self.shadow(pages, &path);
        let (old, mut grown) = insert_into_leaf(pages, leaf.address, key, value);
        for step in self.steps(pages, key, leaf.depth).into_iter().rev() {
            let Grown::Split(split_key, split) = grown else { break };
            grown = insert_child(pages, step, split_key, split);
        }
        if let Grown::Split(split_key, split) = grown {
            let level = level_of(pages, self.root) + 1;
            assert!(level <= LEVEL_MAX, "a tree is never that high");
            self.root = pages.create(level, Entries::Branch(vec![(0, self.root), (split_key, split)]));
        }
        Ok(old)
    }

    /// Removes `key`; the value it had.
    pub fn remove(&mut self, pages: &mut Pages, key: Key) -> Result<Option<Value>, Stop> {
        let path = self.path(pages, key)?;
        let Some(value) = self.get(pages, key)? else { return Ok(None) };
        require_siblings(pages, &path)?;
        pages.reserve(path.len() * 2)?;
        let leaf = self.shadow(pages, &path);
        let Entries::Leaf(entries) = &mut pages.change(leaf.address).entries else { unreachable!("N3") };
        entries.retain(|entry| entry.0 != key);
        for step in self.steps(pages, key, leaf.depth).into_iter().rev() {
            mend(pages, step);
        }
        self.lower(pages);
        Ok(Some(value))
    }

    /// The nodes from the root to the leaf where `key` lies or would lie.
    pub(super) fn path(self, pages: &mut Pages, key: Key) -> Result<Vec<Step>, Stop> {
        let mut path = Vec::new();
        let mut address = self.root;
        while address != 0 {
            let node = pages.node(address)?;
            let (index, child) = match &node.entries {
                Entries::Branch(children) => {
                    let index = child_of(children, key);
                    (index, children[index].1)
                }
                Entries::Leaf(_) => (0, 0),
            };
            path.push(Step { address, index });
            address = child;
        }
        Ok(path)
    }

    /// Makes every node of `path` one of this transaction; where the leaf is now.
    fn shadow(&mut self, pages: &mut Pages, path: &[Step]) -> Shadowed {
        let mut parent: Option<Step> = None;
        for step in path {
            let address = pages.shadow(step.address);
            if address != step.address {
                match parent {
                    None => self.root = address,
                    Some(parent) => children(pages, parent.address)[parent.index].1 = address,
                }
            }
            parent = Some(Step { address, index: step.index });
        }
        let leaf = parent.expect("a tree with a root has a path");
        Shadowed { address: leaf.address, depth: path.len() - 1 }
    }

    /// The `depth` branches on the way to `key`, all in memory.
    fn steps(self, pages: &mut Pages, key: Key, depth: usize) -> Vec<Step> {
        let path = self.path(pages, key).expect("T3: the path of a change is in memory");
        path.into_iter().take(depth).collect()
    }

    /// Takes away roots that lead to one child only, and a leaf that is empty.
    fn lower(&mut self, pages: &mut Pages) {
        loop {
            let node = pages.node(self.root).expect("T3: the root is in memory");
            let next = match &node.entries {
                Entries::Branch(children) if children.len() == 1 => children[0].1,
                Entries::Leaf(entries) if entries.is_empty() => 0,
                _ => return,
            };
            pages.release(self.root);
            self.root = next;
            if next == 0 {
                return;
            }
        }
    }
}

struct Shadowed {
    address: u64,
    depth: usize,
}

/// The child whose range `key` lies in: the last that begins at or before it.
pub(super) fn child_of(children: &[(Key, u64)], key: Key) -> usize {
    children.partition_point(|child| child.0 <= key).saturating_sub(1)
}

fn floor_in(pages: &mut Pages, address: u64, key: Key) -> Result<Option<(Key, Value)>, Stop> {
    let node = pages.node(address)?;
    match &node.entries {
        Entries::Leaf(entries) => {
            let count = entries.partition_point(|entry| entry.0 <= key);
            Ok(count.checked_sub(1).map(|index| entries[index]))
        }
        Entries::Branch(children) => {
            // The child where the key lies may hold only larger keys: then its elder has the answer.
            for index in (0..=child_of(children, key)).rev() {
                if let Some(entry) = floor_in(pages, children[index].1, key)? {
                    return Ok(Some(entry));
                }
            }
            Ok(None)
        }
    }
}

fn insert_into_leaf(pages: &mut Pages, address: u64, key: Key, value: Value) -> (Option<Value>, Grown) {
    let Entries::Leaf(entries) = &mut pages.change(address).entries else { unreachable!("N3") };
    let at = match entries.binary_search_by_key(&key, |entry| entry.0) {
        Ok(found) => return (Some(std::mem::replace(&mut entries[found].1, value)), Grown::Same),
        Err(at) => at,
    };
    if entries.len() < LEAF_CAPACITY {
        entries.insert(at, (key, value));
        return (None, Grown::Same);
    }
    let mut upper = entries.split_off(if at == LEAF_CAPACITY { at } else { LEAF_CAPACITY / 2 });
    if at <= entries.len() && !upper.is_empty() {
        entries.insert(at, (key, value));
    } else {
        upper.insert(at - entries.len(), (key, value));
    }
    let split_key = upper[0].0;
    (None, Grown::Split(split_key, pages.create(0, Entries::Leaf(upper))))
}

fn insert_child(pages: &mut Pages, step: Step, key: Key, child: u64) -> Grown {
    let entries = children(pages, step.address);
    let at = step.index + 1;
    entries.insert(at, (key, child));
    if entries.len() <= BRANCH_CAPACITY {
        return Grown::Same;
    }
    let upper = entries.split_off(if at == BRANCH_CAPACITY { at } else { BRANCH_CAPACITY / 2 });
    let (split_key, level) = (upper[0].0, level_of(pages, step.address));
    Grown::Split(split_key, pages.create(level, Entries::Branch(upper)))
}

pub(super) fn children(pages: &mut Pages, address: u64) -> &mut Vec<(Key, u64)> {
    match &mut pages.change(address).entries {
        Entries::Branch(children) => children,
        Entries::Leaf(_) => unreachable!("N3: a step leads from a branch"),
    }
}

pub(super) fn level_of(pages: &mut Pages, address: u64) -> u32 {
    pages.node(address).expect("T3: the path of a change is in memory").level
}

fn capacity(node: &Node) -> usize {
    match node.entries {
        Entries::Leaf(_) => LEAF_CAPACITY,
        Entries::Branch(_) => BRANCH_CAPACITY,
    }
}

/// Whether a node is so small that it should be merged, one entry before it happens.
fn may_underflow(node: &Node) -> bool {
    node.len() <= capacity(node) / 4 + 1
}

/// The neighbour with which the child at `step` is merged: the left one if there is one.
fn neighbour(count: usize, index: usize) -> Option<(usize, usize)> {
    match (index, count) {
        (_, 0 | 1) => None,
        (0, _) => Some((0, 1)),
        (index, _) => Some((index - 1, index)),
    }
}

/// Makes sure that the neighbours are in memory of every node on `path` that may need them (T3).
fn require_siblings(pages: &mut Pages, path: &[Step]) -> Result<(), Stop> {
    for pair in path.windows(2) {
        if !may_underflow(&*pages.node(pair[1].address)?) {
            continue;
        }
        let parent = pages.node(pair[0].address)?;
        let Entries::Branch(children) = &parent.entries else { unreachable!("N3") };
        if let Some((left, right)) = neighbour(children.len(), pair[0].index) {
            pages.node(children[left].1)?;
            pages.node(children[right].1)?;
        }
    }
    Ok(())
}

/// Merges the child at `step` with a neighbour if it is too small and both fit into one node; else, if it is empty
/// or nearly so, shares their entries out.
fn mend(pages: &mut Pages, step: Step) {
    let entries = children(pages, step.address).clone();
    let Some(index) = (step.index < entries.len()).then_some(step.index) else { return };
    let child = pages.node(entries[index].1).expect("T3: the path of a change is in memory");
    if child.len() > capacity(&child) / 4 {
        return;
    }
    let Some((left, right)) = neighbour(entries.len(), index) else { return };
    let (left_node, right_node) = (sibling(pages, entries[left].1), sibling(pages, entries[right].1));
    let joined = join(&left_node, &right_node, entries[right].0);
    let target = pages.shadow(entries[left].1);
    children(pages, step.address)[left].1 = target;
    if joined_len(&joined) <= capacity(&left_node) * 3 / 4 {
        pages.change(target).entries = joined;
        pages.release(entries[right].1);
        children(pages, step.address).remove(right);
        return;
    }
    let other = pages.shadow(entries[right].1);
    let (first, second, key) = halve(joined);
    pages.change(target).entries = first;
    pages.change(other).entries = second;
    children(pages, step.address)[right] = (key, other);
}

fn sibling(pages: &mut Pages, address: u64) -> Rc<Node> {
    pages.node(address).expect("T3: the neighbours of a small node are in memory")
}

/// The entries of two neighbours; the second one's first child begins where its parent says.
fn join(left: &Node, right: &Node, right_key: Key) -> Entries {
    match (&left.entries, &right.entries) {
        (Entries::Leaf(left), Entries::Leaf(right)) => Entries::Leaf([&left[..], &right[..]].concat()),
        (Entries::Branch(left), Entries::Branch(right)) => {
            let mut joined = [&left[..], &right[..]].concat();
            joined[left.len()].0 = right_key;
            Entries::Branch(joined)
        }
        _ => unreachable!("N3: neighbours are on one level"),
    }
}

fn joined_len(entries: &Entries) -> usize {
    match entries {
        Entries::Leaf(entries) => entries.len(),
        Entries::Branch(entries) => entries.len(),
    }
}

/// Two halves, and the key where the second begins.
fn halve(entries: Entries) -> (Entries, Entries, Key) {
    match entries {
        Entries::Leaf(mut first) => {
            let second = first.split_off(first.len() / 2);
            let key = second[0].0;
            (Entries::Leaf(first), Entries::Leaf(second), key)
        }
        Entries::Branch(mut first) => {
            let second = first.split_off(first.len() / 2);
            let key = second[0].0;
            (Entries::Branch(first), Entries::Branch(second), key)
        }
    }
}
