//! Read views: what maps lead to at one instant stays readable while they go on to change.
//!
//! No block of that instant is used again while the view is open (SPACE3 of `space.rs`), and no node of it is changed in
//! place (PDATA1). Maps may free a node before it was ever written: the views that lead to it keep it in memory. Those are
//! at most as many as were dirty when the view was opened.
//!
//! Invariant NODEVIEW1: every node of a view is in memory, or on the disk where the view leads to it.

use super::{InUse, Link, Node};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// Maps at one instant, until it is dropped.
pub struct ReadView {
    _in_use: InUse,
    _unwritten: Rc<Unwritten>,
}

/// Nodes of a view that no map leads to any more and that are not on the disk (NODEVIEW1).
struct Unwritten {
    /// The generation of the youngest node of the view.
    youngest: u64,
    nodes: RefCell<BTreeMap<Link, Rc<Node>>>,
}

/// The views that are open.
#[derive(Default)]
pub(super) struct ReadViews {
    open: Vec<Weak<Unwritten>>,
}

impl ReadViews {
    /// A view of nodes of generations up to `youngest`, whose blocks are not used again while `in_use` is held.
    pub(super) fn open(&mut self, youngest: u64, in_use: InUse) -> ReadView {
        let unwritten = Rc::new(Unwritten { youngest, nodes: RefCell::default() });
        self.open.retain(|view| view.strong_count() > 0);
        self.open.push(Rc::downgrade(&unwritten));
        ReadView { _in_use: in_use, _unwritten: unwritten }
    }

    /// NODEVIEW1: no map leads to `node` any more, and it was never written.
    pub(super) fn keep(&self, node: &Rc<Node>) {
        let leads_to_it = |view: &Rc<Unwritten>| node.generation <= view.youngest;
        for view in self.open.iter().filter_map(Weak::upgrade).filter(leads_to_it) {
            view.nodes.borrow_mut().insert(Link::to(node), Rc::clone(node));
        }
    }

    /// The node that `link` leads to, if it is kept for a view.
    pub(super) fn get(&self, link: Link) -> Option<Rc<Node>> {
        let mut open = self.open.iter().filter_map(Weak::upgrade);
        open.find_map(|view| view.nodes.borrow().get(&link).cloned())
    }
}
