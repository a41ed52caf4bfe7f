//! The nodes that are in memory, under a budget of bytes.
//!
//! Invariants:
//! - K1. A node that is dirty or pinned is not given up (T4).
//! - K2. With nothing dirty or pinned there are at most `budget` nodes, after as many searches as it takes.
//! - K3. Nodes are given up only when one is read or written, never in the middle of an attempt (T3).

use super::policy::{BlockMap, Policy, PolicyKind};
use std::collections::BTreeSet;
use std::rc::Rc;
use varve_format::pdata::PDATA_BLOCK;
use varve_format::pdata::node::Node;

/// How the cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Nodes that were asked for and there.
    pub hits: u64,
    /// Nodes that had to be read.
    pub loads: u64,
    /// Nodes now in memory.
    pub nodes: u64,
    /// Of these, nodes not yet written.
    pub dirty: u64,
}

pub(super) struct Cache {
    nodes: BlockMap<Rc<Node>>,
    dirty: BTreeSet<u64>,
    /// Where [`Cache::dirty_in_turn`] goes on.
    next_dirty: u64,
    pins: BlockMap<u32>,
    policy: Box<dyn Policy>,
    budget: usize,
    usage: CacheUse,
}

impl Cache {
    /// At most `budget_bytes` of nodes. However few: what an attempt has read stays until it ends (K1).
    pub(super) fn new(budget_bytes: u64, policy: PolicyKind) -> Self {
        let budget = usize::try_from(budget_bytes / PDATA_BLOCK as u64).unwrap_or(usize::MAX).max(2);
        Self {
            nodes: BlockMap::default(),
            dirty: BTreeSet::new(),
            next_dirty: 0,
            pins: BlockMap::default(),
            policy: policy.build(),
            budget,
            usage: CacheUse::default(),
        }
    }

    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    pub(super) fn usage(&self) -> CacheUse {
        CacheUse { nodes: self.nodes.len() as u64, dirty: self.dirty.len() as u64, ..self.usage }
    }

    pub(super) fn get(&mut self, address: u64) -> Option<Rc<Node>> {
        let node = self.nodes.get(&address)?;
        self.usage.hits += 1;
        self.policy.touch(address);
        Some(Rc::clone(node))
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        self.nodes.contains_key(&address)
    }

    /// Takes in a node that was read.
    pub(super) fn admit(&mut self, node: Node) {
        let address = node.address;
        self.usage.loads += 1;
        self.put(node);
        self.shrink(address);
    }

    /// Takes in a node that is not on the disk yet.
    pub(super) fn admit_dirty(&mut self, node: Node) {
        self.dirty.insert(node.address);
        self.put(node);
    }

    fn put(&mut self, node: Node) {
        let address = node.address;
        if self.nodes.insert(address, Rc::new(node)).is_none() {
            self.policy.insert(address);
        }
    }

    /// The node to change; it is dirty from now on.
    pub(super) fn change(&mut self, address: u64) -> &mut Node {
        self.dirty.insert(address);
        Rc::make_mut(self.nodes.get_mut(&address).expect("a node that is changed is in memory"))
    }

    /// Forgets a node that is no longer part of any map.
    pub(super) fn forget(&mut self, address: u64) {
        self.dirty.remove(&address);
        if self.nodes.remove(&address).is_some() {
            self.policy.remove(address);
        }
    }

    /// The dirty nodes in order of address, shared.
    pub(super) fn dirty(&self) -> Vec<Rc<Node>> {
        self.dirty.iter().map(|address| Rc::clone(&self.nodes[address])).collect()
    }

    /// At most `limit` dirty nodes in order of address, from where the last ones ended, shared.
    pub(super) fn dirty_in_turn(&mut self, limit: usize) -> Vec<Rc<Node>> {
        if self.dirty.range(self.next_dirty..).next().is_none() {
            self.next_dirty = 0;
        }
        let addresses = self.dirty.range(self.next_dirty..).take(limit);
        let some: Vec<_> = addresses.map(|address| Rc::clone(&self.nodes[address])).collect();
        self.next_dirty = some.last().map_or(0, |node| node.address + 1);
        some
    }

    /// `node` is on the disk as it is here; if it was changed since, it stays dirty.
    pub(super) fn written(&mut self, node: &Rc<Node>) {
        if self.nodes.get(&node.address).is_some_and(|now| Rc::ptr_eq(now, node)) {
            self.dirty.remove(&node.address);
        }
        self.shrink(node.address);
    }

    pub(super) fn pin(&mut self, address: u64) {
        *self.pins.entry(address).or_default() += 1;
    }

    pub(super) fn unpin(&mut self, address: u64) {
        let count = self.pins.get_mut(&address).expect("K1: a pin is taken once");
        *count -= 1;
        if *count == 0 {
            self.pins.remove(&address);
        }
    }

    /// Gives up nodes beyond the budget, but not `newest`. Not called while an attempt runs (K3).
    pub(super) fn shrink(&mut self, newest: u64) {
        while self.nodes.len() > self.budget {
            let (dirty, pins) = (&self.dirty, &self.pins);
            let may_go =
                |address: u64| address != newest && !dirty.contains(&address) && !pins.contains_key(&address);
            let Some(victim) = self.policy.victim(&may_go) else { return };
            assert!(!self.dirty.contains(&victim), "K1");
            self.nodes.remove(&victim);
        }
    }
}
