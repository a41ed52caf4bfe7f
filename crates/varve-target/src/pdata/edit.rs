//! The editor of trees: every change replaces some entries of a leaf, or takes something out of the tree.
//!
//! Trees may share nodes: a clone is a second root, and a change copies what the two share. A clone costs nothing but a
//! count: one more tree holds the root. Counts go down the tree only where one of the trees is changed: a copy of a shared
//! node releases the old one and becomes one more holder of each of its children (Rodeh, "B-trees, shadowing, and
//! clones", ACM TOS 2008; `dm-thin` and btrfs do the same). The owner of the trees keeps the counts and hands them in as
//! [`Sharing`]; a tree that is never cloned is [`Alone`].
//!
//! The rules of splitting and merging are the usual ones, except that a leaf that overflows at its end is split there, so
//! that keys that come in order leave full leaves behind, and that a node is merged only with a neighbour that is in
//! memory (`merge.rs`). So a change needs the paths of its keys and nothing else. A node that falls empty is taken out of
//! its parent even if no neighbour is there.
//!
//! The owner of trees that are cloned takes care that what an entry stands for ends before the next leaf begins
//! ([`Span::end`](super::tree::Span::end)); so every question and every change is about one leaf.
//!
//! Invariants: PDATA1 to PDATA4 of the module, and
//! - EDIT1. A node that others hold too is neither changed nor freed; its count is decremented.
//! - EDIT2. A node made after [`Sharing::since`] is held by this tree alone: its path was copied since the last clone.
//! - EDIT3. Everything that a change needs to know is read and every block set aside before anything is changed (PDATA3, RESERVE1):
//!   also where several keys are changed as one ([`Tree::patch`]).
//! - EDIT4. Only nodes of a tree that is never cloned are merged: a neighbour may be others' too.

use super::down::Down;
use super::merge;
use super::pages::{AllocClass, Pages, Stop};
use super::sharing::{Alone, Sharing, copy_shared, first_shared};
use super::splice::Splice;
use super::tree::{Step, Tree, child_of, leaf_entries};
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{BRANCH_CAPACITY, Entries, Key, LEAF_CAPACITY, LEVEL_MAX, Value};
use varve_format::pdata::{Block, BlockError};

/// Most keys that one patch changes.
const PATCH_MAX: usize = 8;

/// What has left a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Something that others hold still: what it stands for has not changed.
    Shared,
    /// A leaf of this tree alone: as far as this tree goes, what these entries stand for has no holder any more.
    Own(Vec<(Key, Value)>),
}

/// What changes need, counted before the first of them is made (EDIT3).
#[derive(Default)]
struct Needs {
    /// How many blocks they take at most.
    blocks: usize,
    /// The nodes of their paths.
    nodes: Vec<Block>,
}

impl Needs {
    /// The nodes of `path` are made this transaction's and this tree's, of which others hold those from `shared` on, and
    /// the leaf gets so many more entries.
    fn add(&mut self, pages: &Pages, path: &[Step], shared: usize, added: usize) -> Result<(), Stop> {
        check_height(path)?;
        for (depth, step) in path.iter().enumerate() {
            if self.nodes.contains(&step.link.block()) {
                continue;
            }
            self.nodes.push(step.link.block());
            self.blocks += usize::from(depth >= shared || step.generation != pages.generation());
            if added > step.room {
                // A split, twice if the first was at the end, and a new root.
                self.blocks += 2 + added / (LEAF_CAPACITY / 2) + usize::from(depth == 0);
            }
        }
        Ok(())
    }

    /// A neighbour on each level of `path`, to merge with.
    fn add_neighbours(&mut self, path: &[Step]) {
        self.blocks += path.len().saturating_sub(1);
    }

    /// The first leaves of an empty tree, for so many entries, and their root.
    fn add_leaves(&mut self, entries: usize) {
        let leaves = entries.div_ceil(LEAF_CAPACITY);
        self.blocks += leaves + usize::from(leaves > 1);
    }

    /// Sets so many aside if fewer are needed: nodes that are made one after the other then lie side by side.
    fn set_ahead(&mut self, blocks: usize) {
        self.blocks = self.blocks.max(blocks);
    }

    /// Sets them aside.
    fn reserve(self, pages: &mut Pages, class: AllocClass) -> Result<(), Stop> {
        pages.reserve_beside(self.blocks, class, self.nodes.into_iter())
    }
}

impl Tree {
    /// Sets the value of `key`; the value it had.
    pub fn insert(&mut self, pages: &mut Pages, key: Key, value: Value) -> Result<Option<Value>, Stop> {
        let old = self.get(pages, key)?;
        self.patch(pages, &[], &[(key, value)], AllocClass::Normal)?;
        Ok(old)
    }

    /// Removes `key`; the value it had.
    pub fn remove(&mut self, pages: &mut Pages, key: Key) -> Result<Option<Value>, Stop> {
        let old = self.get(pages, key)?;
        if old.is_some() {
            self.patch(pages, &[key], &[], AllocClass::Normal)?;
        }
        Ok(old)
    }

    /// Sets the values of some keys of a tree that is never cloned and removes others, which are there: all of it or
    /// nothing (EDIT3).
    pub fn patch(
        &mut self,
        pages: &mut Pages,
        removes: &[Key],
        puts: &[(Key, Value)],
        class: AllocClass,
    ) -> Result<(), Stop> {
        assert!(removes.len() + puts.len() <= PATCH_MAX, "EDIT3: {} and {}", removes.len(), puts.len());
        let mut needs = Needs::default();
        if self.root.is_none() {
            assert!(removes.is_empty(), "nothing can be removed from an empty map");
            needs.add_leaves(puts.len());
        }
        // More than these puts may need: nodes that are made one after the other then lie side by side.
        let added = if puts.is_empty() { 0 } else { PATCH_MAX };
        for key in removes.iter().chain(puts.iter().map(|put| &put.0)) {
            let path = self.path(pages, *key)?;
            needs.add(pages, &path, path.len(), added)?;
            if removes.contains(key) {
                needs.add_neighbours(&path);
            }
        }
        needs.reserve(pages, class)?;
        // In this order: the leaf of a key that is set is not taken out because others fell empty.
        for (key, value) in puts {
            self.change_now(pages, *key, |entries| Splice::put(entries, *key, *value));
        }
        for key in removes {
            let remove =
                |entries: &_| Splice::remove(entries, *key).expect("EDIT3: what is removed is there");
            self.change_now(pages, *key, remove);
        }
        Ok(())
    }

    /// Whether others hold the leaf of `key`, or something on the way to it.
    pub fn is_shared(self, pages: &mut Pages, sharing: &dyn Sharing, key: Key) -> Result<bool, Stop> {
        let path = self.path(pages, key)?;
        Ok(first_shared(pages, sharing, &path)? < path.len())
    }

    /// Replaces all entries of the leaf of `key`. Values of entries that stay the same stay held as they were; the
    /// caller counts the rest.
    pub fn edit(
        &mut self,
        pages: &mut Pages,
        sharing: &dyn Sharing,
        key: Key,
        entries: Vec<(Key, Value)>,
        class: AllocClass,
    ) -> Result<(), Stop> {
        let splice = Splice::of(self.span(pages, key)?.entries(), entries);
        self.splice(pages, sharing, key, splice, class)
    }

    /// Changes some entries of the leaf of `key`, which is as it was when the change was made up. Values of entries that
    /// stay the same stay held as they were; the caller counts the rest.
    pub fn splice(
        &mut self,
        pages: &mut Pages,
        sharing: &dyn Sharing,
        key: Key,
        splice: Splice,
        class: AllocClass,
    ) -> Result<(), Stop> {
        let path = self.path(pages, key)?;
        let shared = first_shared(pages, sharing, &path)?;
        if shared < path.len() {
            sharing.believe(&self.span(pages, key)?)?;
        }
        let mut needs = Needs::default();
        needs.add(pages, &path, shared, splice.added())?;
        if path.is_empty() {
            needs.add_leaves(splice.added());
        }
        if !sharing.may_merge() {
            needs.set_ahead(path.len() * 2 + 2);
        } else if splice.shrinks() {
            needs.add_neighbours(&path);
        }
        needs.reserve(pages, class)?;
        self.splice_now(pages, sharing, key, &path, shared, splice);
        Ok(())
    }

    /// Changes the leaf of `key` of a tree that is never cloned: all that it needs is there (EDIT3).
    fn change_now(&mut self, pages: &mut Pages, key: Key, splice: impl FnOnce(&[(Key, Value)]) -> Splice) {
        let path = self.path(pages, key).expect("EDIT3: the path of a change is in memory");
        let splice = match path.last() {
            Some(leaf) => splice(leaf_entries(&pages.node(leaf.link).expect("EDIT3: it is in memory"))),
            None => splice(&[]),
        };
        self.splice_now(pages, &Alone, key, &path, path.len(), splice);
    }

    /// Changes the leaf at the end of `path`, of which others hold what is from `shared` on: all that it needs is there
    /// (EDIT3).
    fn splice_now(
        &mut self,
        pages: &mut Pages,
        sharing: &dyn Sharing,
        key: Key,
        path: &[Step],
        shared: usize,
        splice: Splice,
    ) {
        let Some(leaf) = self.own(pages, sharing, path, shared) else {
            assert!(splice.range.is_empty() && splice.keeps_order(&[]), "NODE2: keys rise");
            return self.plant(pages, &splice.entries);
        };
        let (depth, merges) = (path.len() - 1, splice.shrinks() && sharing.may_merge());
        let entries = pages.leaf(leaf);
        assert!(splice.keeps_order(entries), "NODE2: keys rise");
        let at_end = splice.range.end == entries.len();
        entries.splice(splice.range, splice.entries);
        match entries.len() {
            length if length > LEAF_CAPACITY => self.overflow(pages, key, depth, leaf, at_end),
            _ if merges => self.mend(pages, key, depth),
            0 => {
                pages.release(leaf.block());
                self.unlink(pages, key, depth);
            }
            _ => {}
        }
    }

    /// Cuts the leaf that `link` leads to, which has become too long, into as many as it needs: full ones if it grew at its end.
    fn overflow(&mut self, pages: &mut Pages, key: Key, depth: usize, link: Link, at_end: bool) {
        let entries = pages.leaf(link);
        let count = entries.len().div_ceil(LEAF_CAPACITY);
        assert!(count > 1, "only a leaf that is too long is cut");
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

    /// Takes out of the tree what others hold too and is highest on the way to `key`; if there is nothing, the leaf.
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
        let mut needs = Needs::default();
        needs.add(pages, path, shared, 0)?;
        needs.set_ahead(path.len() * 2);
        needs.reserve(pages, AllocClass::Reserve)?;
        self.own(pages, sharing, &path[..depth], shared);
        let gone = if shared <= depth {
            sharing.decrement(dropped.address);
            Gone::Shared
        } else {
            pages.release(dropped.address);
            Gone::Own(leaf_entries(&dropped).to_vec())
        };
        self.unlink(pages, key, depth);
        Ok(gone)
    }

    /// The first leaves of an empty tree.
    fn plant(&mut self, pages: &mut Pages, entries: &[(Key, Value)]) {
        assert!(self.root.is_none(), "EDIT3: only an empty tree gets its first leaves");
        let mut leaves: Vec<_> = entries
            .chunks(LEAF_CAPACITY)
            .map(|entries| (entries[0].0, pages.create(0, Entries::Leaf(entries.to_vec()))))
            .collect();
        if let Some(first) = leaves.first_mut() {
            first.0 = 0; // NODE4: smaller keys may come
        }
        assert!(leaves.len() <= BRANCH_CAPACITY, "one change is not that large");
        self.root = match leaves[..] {
            [] => Link::NONE,
            [(_, leaf)] => leaf,
            _ => pages.create(1, Entries::Branch(leaves)),
        };
    }

    /// Makes every node of `path` one of this transaction and of this tree alone; `shared` is the index of the first
    /// that others hold too. What leads to the last of them now.
    fn own(
        &mut self,
        pages: &mut Pages,
        sharing: &dyn Sharing,
        path: &[Step],
        shared: usize,
    ) -> Option<Link> {
        let mut parent: Option<(Link, usize)> = None;
        for (depth, step) in path.iter().enumerate() {
            let link = if depth >= shared {
                copy_shared(pages, sharing, step.link)
            } else if step.generation == pages.generation() {
                step.link
            } else {
                if step.generation <= sharing.last_clone() {
                    let node = pages.node(step.link).expect("EDIT3: the path of a change is in memory");
                    sharing.replaces(step.link.block(), &node.entries);
                }
                pages.shadow(step.link)
            };
            if link != step.link {
                match parent {
                    None => self.root = link,
                    Some((parent, index)) => pages.branch(parent)[index].1 = link,
                }
            }
            parent = Some((link, step.index));
        }
        parent.map(|(last, _)| last)
    }

    /// Takes the child at `depth` on the way to `key`, which is gone, out of its parent, and parents that become empty.
    fn unlink(&mut self, pages: &mut Pages, key: Key, depth: usize) {
        assert!(!self.root.is_none(), "there was something");
        for (branch, index) in self.branches(pages, key, depth).into_iter().rev() {
            if !pages.take_child(branch.link, index) {
                return self.lower(pages);
            }
            pages.release(branch.link.block());
        }
        self.root = Link::NONE;
    }

    /// Enters `grown` behind the child at `depth` on the way to `key`.
    fn grow(&mut self, pages: &mut Pages, key: Key, depth: usize, mut grown: Vec<(Key, Link)>) {
        for (branch, index) in self.branches(pages, key, depth).into_iter().rev() {
            let Some(next) = grown.first().map(|first| first.0) else { return };
            let children = pages.branch(branch.link);
            let at_end = index + 1 == children.len();
            assert!(index == 0 || children[index].0 < next, "NODE4: what has grown lies behind its child");
            if let Some(first) = children.first_mut().filter(|first| first.0 >= next) {
                first.0 = 0; // NODE4: where the first child begins is said above it
            }
            children.splice(index + 1..index + 1, grown.drain(..));
            if children.len() > BRANCH_CAPACITY {
                let upper = children.split_off(if at_end { BRANCH_CAPACITY } else { BRANCH_CAPACITY / 2 });
                let (upper_key, level) = (upper[0].0, level_of(pages, branch.link));
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

    /// EDIT4: mends what has become too small on the way to `key`, below the first `depth` branches and at the root.
    fn mend(&mut self, pages: &mut Pages, key: Key, depth: usize) {
        let branches = self.branches(pages, key, depth);
        branches.into_iter().rev().for_each(|(branch, index)| merge::mend(pages, branch, index));
        self.lower(pages);
    }

    /// The first `depth` branches on the way to `key`, all of them owned and in memory, and which child it goes on to.
    fn branches(self, pages: &mut Pages, key: Key, depth: usize) -> Vec<(Down, usize)> {
        let mut branches = Vec::with_capacity(depth);
        let mut down = Down::root(self.root);
        for _ in 0..depth {
            let node = pages.node(down.link).expect("EDIT3: the path of a change is in memory");
            let Entries::Branch(children) = &node.entries else { unreachable!("NODE3: leaves lie below") };
            let index = child_of(children, key);
            branches.push((down, index));
            down = down.to_child(&node, children, index);
        }
        branches
    }

    /// Takes away roots of this transaction that lead to one child only, or are empty.
    fn lower(&mut self, pages: &mut Pages) {
        while let Ok(node) = pages.node(self.root) {
            let next = match &node.entries {
                Entries::Branch(children) if children.len() == 1 => children[0].1,
                _ if node.is_empty() => Link::NONE,
                _ => return,
            };
            if node.generation != pages.generation() {
                return; // EDIT1: others may hold it
            }
            pages.release(self.root.block());
            self.root = next;
        }
    }
}

/// NODE3: a tree that could not grow has more entries than a store has blocks, or was never made so.
fn check_height(path: &[Step]) -> Result<(), Stop> {
    match path.first() {
        Some(root) if path.len() > LEVEL_MAX as usize => {
            Err(Stop::Damaged(root.link.block(), BlockError::Invalid("NODE3: a tree is never that high")))
        }
        _ => Ok(()),
    }
}

fn level_of(pages: &mut Pages, link: Link) -> u32 {
    pages.node(link).expect("EDIT3: the path of a change is in memory").level
}
