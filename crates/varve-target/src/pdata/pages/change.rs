//! The entries of a node of this transaction, to be changed.

use super::{Entries, Link, Pages};
use varve_format::pdata::node::{Key, Value};

impl Pages {
    /// The entries of the leaf that `link` leads to.
    pub(in super::super) fn leaf(&mut self, link: Link) -> &mut Vec<(Key, Value)> {
        match &mut self.change(link.block()).entries {
            Entries::Leaf(entries) => entries,
            Entries::Branch(_) => unreachable!("NODE3: a path ends in a leaf"),
        }
    }

    /// The children of the branch that `link` leads to.
    pub(in super::super) fn branch(&mut self, link: Link) -> &mut Vec<(Key, Link)> {
        match &mut self.change(link.block()).entries {
            Entries::Branch(children) => children,
            Entries::Leaf(_) => unreachable!("NODE3: a step leads from a branch"),
        }
    }

    /// Takes the child at `index`, which is gone, out of a branch; the next one begins where it began (NODE4). Whether it was
    /// the only one.
    pub(in super::super) fn take_child(&mut self, branch: Link, index: usize) -> bool {
        let children = self.branch(branch);
        assert!(index < children.len(), "NODE3: what is gone was a child");
        let (key, _) = children.remove(index);
        match children.get_mut(index) {
            Some(first) if index == 0 => first.0 = key,
            _ => {}
        }
        children.is_empty()
    }
}
