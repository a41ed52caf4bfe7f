//! Trees that share nodes: a clone is a second root, and a change copies what the two share.
//!
//! A clone costs nothing but a count: one more tree holds the root. Counts go down the tree only where one of the trees
//! is changed: who copies a node that several hold lets go of the old one and becomes one more holder of each of its
//! children (Rodeh, "B-trees, shadowing, and clones", ACM TOS 2008; `dm-thin` and btrfs do the same). The owner of
//! the trees keeps the counts and hands them in as [`Sharing`].
//!
//! All changes are of one leaf: its entries are replaced by others as a whole. The owner takes care that what an entry
//! stands for ends before the next leaf begins ([`Span::end`]); so every question and every change is about one leaf.
//!
//! Invariants: T1 to T4 of the module, and
//! - X1. A node that others hold too is neither changed nor given up, only let go of.
//! - X2. A node made after [`Sharing::since`] is held by this tree alone: its path was copied since the last clone.
//! - X3. Everything that a change needs to know is read and every block set aside before anything is changed (T3, G1).

use super::down::Down;
use super::pages::{Pages, Room, Stop};
use super::tree::{Step, Tree, child_of, children, level_of};
use std::ops::Range;
use std::rc::Rc;
use varve_format::pdata::BlockError;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{BRANCH_CAPACITY, Entries, Key, LEAF_CAPACITY, LEVEL_MAX, Node, Value};

/// Who else holds the nodes of a tree and what its entries stand for.
pub trait Sharing {
    /// The generation of the newest node that another tree may hold too (X2).
    fn since(&self) -> u64;
    /// How many other trees, or nodes of them, hold the node in `block`.
    fn others(&self, pages: &mut Pages, block: u64) -> Result<u64, Stop>;
    /// One more holds the node in `block`.
    fn hold(&self, block: u64);
    /// One less holds the node in `block`, which others hold too.
    fn let_go(&self, block: u64);
    /// One more leaf has this entry.
    fn hold_entry(&self, key: Key, value: &Value);
    /// Whether every entry of this leaf is one that there can be: before it is copied with [`Sharing::hold_entry`].
    fn believe(&self, leaf: &Span) -> Result<(), Stop> {
        let _any = leaf;
        Ok(())
    }
}

/// Of a tree that is never cloned.
pub struct Alone;

impl Sharing for Alone {
    fn since(&self) -> u64 {
        0
    }
    fn others(&self, _: &mut Pages, _: u64) -> Result<u64, Stop> {
        Ok(0)
    }
    fn hold(&self, _: u64) {
        unreachable!("X2: nobody else holds a node")
    }
    fn let_go(&self, _: u64) {
        unreachable!("X2: nobody else holds a node")
    }
    fn hold_entry(&self, _: Key, _: &Value) {
        unreachable!("X2: nobody else holds a node")
    }
}

/// The leaf where a key lies. Who holds it while the leaf is changed has the old one.
#[derive(Clone, Debug)]
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
        match self.leaf.as_deref().map(|leaf| &leaf.entries) {
            Some(Entries::Leaf(entries)) => entries,
            Some(Entries::Branch(_)) => unreachable!("N3: a way ends in a leaf"),
            None => &[],
        }
    }

    /// The block of the leaf, 0 for none, and the transaction that made it.
    pub fn leaf(&self) -> (u64, u64) {
        self.leaf.as_deref().map_or((0, 0), |leaf| (leaf.address, leaf.generation))
    }
}

/// A change of some entries of a leaf: those in `range` make way for `entries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// Which of the entries go.
    pub range: Range<usize>,
    /// What comes in their place.
    pub entries: Vec<(Key, Value)>,
}

impl Splice {
    /// What makes `new` of the entries `old` of a leaf. What is the same at both ends stays: a leaf that becomes too long
    /// is then cut where it has grown.
    fn of(old: &[(Key, Value)], mut new: Vec<(Key, Value)>) -> Splice {
        let before = old.iter().zip(&new).take_while(|(one, two)| one == two).count();
        let rest = old[before..].iter().rev().zip(new[before..].iter().rev());
        let behind = rest.take_while(|(one, two)| one == two).count();
        new.truncate(new.len() - behind);
        new.drain(..before);
        Splice { range: before..old.len() - behind, entries: new }
    }

    /// How many entries a leaf of `length` has then.
    fn length(&self, length: usize) -> usize {
        length - self.range.len() + self.entries.len()
    }

    /// Whether `entries` with this change are in order (N2).
    fn keeps_order(&self, entries: &[(Key, Value)]) -> bool {
        let before = self.range.start.checked_sub(1).map(|index| entries[index].0);
        let behind = entries.get(self.range.end).map(|entry| entry.0);
        let keys = before.into_iter().chain(self.entries.iter().map(|entry| entry.0)).chain(behind);
        keys.is_sorted_by(|one, two| one < two)
    }
}

/// What has left a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Something that others hold still: what it stands for has not changed.
    Shared,
    /// A leaf of this tree alone: nobody holds what these entries stand for any more, as far as this tree goes.
    Own(Vec<(Key, Value)>),
}

impl Tree {
    /// The leaf where `key` lies or would lie.
    pub fn span(self, pages: &mut Pages, key: Key) -> Result<Span, Stop> {
        let mut down = Down::root(self.root);
        let mut leaf = None;
        while !down.link.is_none() && leaf.is_none() {
            let node = down.node(pages)?;
            match &node.entries {
                Entries::Branch(children) => down = down.to_child(&node, children, child_of(children, key)),
                Entries::Leaf(_) => leaf = Some(node),
            }
        }
        Ok(Span { first: down.low, end: down.high, leaf })
    }

    /// Whether others hold the leaf of `key`, or something on the way to it.
    pub fn is_shared(self, pages: &mut Pages, sharing: &dyn Sharing, key: Key) -> Result<bool, Stop> {
        let path = self.path(pages, key)?;
        Ok(first_shared(pages, sharing, &path)? < path.len())
    }

    /// Replaces all entries of the leaf of `key`. Values of entries that stay the same stay held as they were; the
    /// caller settles the rest.
    pub fn edit(
        &mut self,
        pages: &mut Pages,
        sharing: &dyn Sharing,
        key: Key,
        entries: Vec<(Key, Value)>,
    ) -> Result<(), Stop> {
        let splice = Splice::of(self.span(pages, key)?.entries(), entries);
        self.splice(pages, sharing, key, splice)
    }

    /// Changes some entries of the leaf of `key`, which is as it was when the change was made up. Values of entries that
    /// stay the same stay held as they were; the caller settles the rest.
    pub fn splice(
        &mut self,
        pages: &mut Pages,
        sharing: &dyn Sharing,
        key: Key,
        splice: Splice,
    ) -> Result<(), Stop> {
        let path = self.path(pages, key)?;
        let shared = first_shared(pages, sharing, &path)?;
        if shared < path.len() {
            sharing.believe(&self.span(pages, key)?)?;
        }
        check_height(&path)?;
        let blocks = path.len() * 2 + splice.entries.len() / (LEAF_CAPACITY / 2) + 2;
        pages.reserve_beside(blocks, Room::All, path.iter().map(|step| step.link.block()))?; // X3
        let Some(leaf) = self.own(pages, sharing, &path, shared) else {
            assert!(splice.range.is_empty() && splice.keeps_order(&[]), "N2: keys rise");
            self.plant(pages, &splice.entries);
            return Ok(());
        };
        let Entries::Leaf(entries) = &mut pages.change(leaf.link.block()).entries else {
            unreachable!("N3: a path ends in a leaf")
        };
        assert!(splice.keeps_order(entries), "N2: keys rise");
        let length = splice.length(entries.len());
        let at_end = splice.range.end == entries.len();
        entries.splice(splice.range, splice.entries);
        if length == 0 {
            pages.release(leaf.link.block());
            self.unlink(pages, key, path.len() - 1);
        } else if length > LEAF_CAPACITY {
            self.overflow(pages, key, path.len() - 1, leaf.link, at_end);
        }
        Ok(())
    }

    /// Cuts the leaf that `link` leads to, which has become too long, into as many as it needs: full ones if it grew at its end.
    fn overflow(&mut self, pages: &mut Pages, key: Key, depth: usize, link: Link, at_end: bool) {
        let Entries::Leaf(entries) = &mut pages.change(link.block()).entries else {
            unreachable!("N3: a path ends in a leaf")
        };
        let count = entries.len().div_ceil(LEAF_CAPACITY);
        let length = if at_end { LEAF_CAPACITY } else { entries.len().div_ceil(count) };
        let rest = entries.split_off(length);
        let leaves = rest
            .chunks(length)
            .map(|entries| (entries[0].0, pages.create(0, Entries::Leaf(entries.to_vec()))));
        let grown: Vec<_> = leaves.collect();
        self.grow(pages, key, depth, grown);
    }

    /// Takes the leaf of `key` out of the tree as a whole.
    pub fn drop_leaf(
        &mut self,
        pages: &mut Pages,
        sharing: &dyn Sharing,
        key: Key,
    ) -> Result<Option<Gone>, Stop> {
        let path = self.path(pages, key)?;
        let Some(depth) = path.len().checked_sub(1) else { return Ok(None) };
        self.drop_at(pages, sharing, key, &path, depth).map(Some)
    }

    /// Takes out of the tree what others hold too and lies highest on the way to `key`; if there is nothing, the leaf.
    /// Says too where what is left behind it begins; `None` if there is nothing behind it.
    pub fn drop_highest(
        &mut self,
        pages: &mut Pages,
        sharing: &dyn Sharing,
        key: Key,
    ) -> Result<Option<(Gone, Option<Key>)>, Stop> {
        let path = self.path(pages, key)?;
        let Some(leaf) = path.len().checked_sub(1) else { return Ok(None) };
        let depth = first_shared(pages, sharing, &path)?.min(leaf);
        let mut end = None;
        for step in &path[..depth] {
            if let Entries::Branch(children) = &pages.node(step.link)?.entries {
                end = children.get(step.index + 1).map(|child| child.0).or(end);
            }
        }
        Ok(Some((self.drop_at(pages, sharing, key, &path, depth)?, end)))
    }

    fn drop_at(
        &mut self,
        pages: &mut Pages,
        sharing: &dyn Sharing,
        key: Key,
        path: &[Step],
        depth: usize,
    ) -> Result<Gone, Stop> {
        let shared = first_shared(pages, sharing, path)?;
        let dropped = pages.node(path[depth].link)?;
        pages.reserve_beside(path.len() * 2, Room::All, path.iter().map(|step| step.link.block()))?; // X3
        self.own(pages, sharing, &path[..depth], shared);
        let gone = if shared <= depth {
            sharing.let_go(dropped.address);
            Gone::Shared
        } else {
            pages.release(dropped.address);
            match &dropped.entries {
                Entries::Leaf(entries) => Gone::Own(entries.clone()),
                Entries::Branch(_) => unreachable!("only a leaf is taken out that nobody else holds"),
            }
        };
        self.unlink(pages, key, depth);
        Ok(gone)
    }

    /// The first leaves of an empty tree.
    fn plant(&mut self, pages: &mut Pages, entries: &[(Key, Value)]) {
        let mut leaves: Vec<_> = entries
            .chunks(LEAF_CAPACITY)
            .map(|entries| (entries[0].0, pages.create(0, Entries::Leaf(entries.to_vec()))))
            .collect();
        if let Some(first) = leaves.first_mut() {
            first.0 = 0; // N4: smaller keys may come
        }
        assert!(leaves.len() <= BRANCH_CAPACITY, "one change is not that large");
        self.root = match leaves[..] {
            [] => Link::NONE,
            [(_, leaf)] => leaf,
            _ => pages.create(1, Entries::Branch(leaves)),
        };
    }

    /// Makes every node of `path` one of this transaction and of this tree alone; `shared` is the index of the first
    /// that others hold too. Where the last of them is now.
    fn own(
        &mut self,
        pages: &mut Pages,
        sharing: &dyn Sharing,
        path: &[Step],
        shared: usize,
    ) -> Option<Step> {
        let mut parent: Option<Step> = None;
        for (depth, step) in path.iter().enumerate() {
            let link = if depth >= shared {
                copy_shared(pages, sharing, step.link)
            } else if step.generation == pages.generation() {
                step.link
            } else {
                pages.shadow(step.link)
            };
            if link != step.link {
                match parent {
                    None => self.root = link,
                    Some(parent) => children(pages, parent.link)[parent.index].1 = link,
                }
            }
            parent = Some(Step { link, ..*step });
        }
        parent
    }

    /// Takes the child at `depth` on the way to `key`, which is gone, out of its parent, and parents that become empty.
    fn unlink(&mut self, pages: &mut Pages, key: Key, depth: usize) {
        assert!(!self.root.is_none(), "there was something");
        let parents = self.branches(pages, key, depth);
        for step in parents.into_iter().rev() {
            let entries = children(pages, step.link);
            let (first_key, _) = entries.remove(step.index);
            if let Some(first) = entries.first_mut() {
                if step.index == 0 {
                    first.0 = first_key; // N4
                }
                return self.lower_root(pages);
            }
            pages.release(step.link.block());
        }
        self.root = Link::NONE;
    }

    /// Enters `grown` behind the child at `depth` on the way to `key`.
    fn grow(&mut self, pages: &mut Pages, key: Key, depth: usize, mut grown: Vec<(Key, Link)>) {
        if grown.is_empty() {
            return;
        }
        for step in self.branches(pages, key, depth).into_iter().rev() {
            if grown.is_empty() {
                return;
            }
            let entries = children(pages, step.link);
            let at_end = step.index + 1 == entries.len();
            let next = grown[0].0;
            if let Some(first) = entries.first_mut().filter(|first| first.0 >= next) {
                first.0 = 0; // N4: where the first child begins is said above it
            }
            entries.splice(step.index + 1..step.index + 1, grown.drain(..));
            if entries.len() > BRANCH_CAPACITY {
                let upper = entries.split_off(if at_end { BRANCH_CAPACITY } else { BRANCH_CAPACITY / 2 });
                let (upper_key, level) = (upper[0].0, level_of(pages, step.link));
                grown.push((upper_key, pages.create(level, Entries::Branch(upper))));
            }
        }
        if !grown.is_empty() {
            let level = level_of(pages, self.root) + 1;
            assert!(level <= LEVEL_MAX, "a tree is never that high");
            grown.insert(0, (0, self.root));
            self.root = pages.create(level, Entries::Branch(grown));
        }
    }

    /// The first `depth` branches on the way to `key`, all of them owned and in memory.
    fn branches(self, pages: &mut Pages, key: Key, depth: usize) -> Vec<Step> {
        let mut steps = Vec::with_capacity(depth);
        let mut link = self.root;
        for _ in 0..depth {
            let node = pages.node(link).expect("T3: the path of a change is in memory");
            let Entries::Branch(children) = &node.entries else { unreachable!("N3: leaves lie below") };
            let index = child_of(children, key);
            steps.push(Step { link, index, generation: node.generation });
            link = children[index].1;
        }
        steps
    }

    /// A root of this transaction with one child makes way for it.
    fn lower_root(&mut self, pages: &mut Pages) {
        while let Ok(node) = pages.node(self.root) {
            let Entries::Branch(children) = &node.entries else { return };
            if children.len() > 1 || node.generation != pages.generation() {
                return;
            }
            pages.release(self.root.block());
            self.root = children[0].1;
        }
    }
}

/// N3: a tree that could not grow has more entries than a store has blocks, or was never made so.
pub(super) fn check_height(path: &[Step]) -> Result<(), Stop> {
    match path.first() {
        Some(root) if path.len() > LEVEL_MAX as usize => {
            Err(Stop::Damaged(root.link.block(), BlockError::Invalid("N3: a tree is never that high")))
        }
        _ => Ok(()),
    }
}

/// The index of the first node of `path` that others hold too; everything below it is shared with them.
fn first_shared(pages: &mut Pages, sharing: &dyn Sharing, path: &[Step]) -> Result<usize, Stop> {
    for (depth, step) in path.iter().enumerate() {
        if step.generation <= sharing.since() && sharing.others(pages, step.link.block())? > 0 {
            return Ok(depth);
        }
    }
    Ok(path.len())
}

/// X1: a copy of a node that others hold too.
fn copy_shared(pages: &mut Pages, sharing: &dyn Sharing, link: Link) -> Link {
    assert!(sharing.since() > 0, "X1: nothing is shared before the first clone");
    let node: Rc<Node> = pages.node(link).expect("T3: the path of a change is in memory");
    match &node.entries {
        Entries::Branch(children) => children.iter().for_each(|child| sharing.hold(child.1.block())),
        Entries::Leaf(entries) => entries.iter().for_each(|(key, value)| sharing.hold_entry(*key, value)),
    }
    sharing.let_go(link.block());
    pages.create(node.level, node.entries.clone())
}
