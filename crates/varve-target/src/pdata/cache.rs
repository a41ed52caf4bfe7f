//! The nodes that are in memory, under a budget of bytes that they share with the pages of the space map.
//!
//! Invariants:
//! - NODECACHE1. A node that is dirty or pinned is not evicted (PDATA4).
//! - NODECACHE2. With nothing dirty or pinned there are at most as many nodes as the budget leaves beside the pages, and at least
//!   [`NODES_MIN`], after as many searches as it takes.
//! - NODECACHE3. Nodes are evicted only when one is read or written, never in the middle of an attempt (PDATA3).

use super::policy::{BlockMap, Policy, SEARCH_MAX, build};
use std::collections::BTreeSet;
use std::rc::Rc;
use varve_format::pdata::node::Node;
use varve_format::pdata::{Block, PDATA_BLOCK};
use varve_format::text::CachePolicy;

/// However small the budget is, so many nodes may stay: what an attempt has read stays until it ends anyhow (NODECACHE1).
const NODES_MIN: usize = 2;

/// How the cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Nodes that were asked for and there.
    pub hits: u64,
    /// Nodes that had to be read.
    pub loads: u64,
    /// Nodes that were evicted to make room.
    pub evictions: u64,
    /// Nodes now in memory.
    pub nodes: u64,
    /// Pages of the space map now in memory.
    pub pages: u64,
    /// Of the nodes, those not yet written.
    pub dirty: u64,
    /// Nodes and pages that may stay in memory.
    pub budget: u64,
}

impl CacheUse {
    /// Bytes of metadata now in memory.
    pub fn bytes(&self) -> u64 {
        (self.nodes + self.pages) * PDATA_BLOCK as u64
    }
}

pub(super) struct Cache {
    nodes: BlockMap<Rc<Node>>,
    dirty: BTreeSet<Block>,
    /// Where [`Cache::dirty_in_turn`] goes on.
    next_dirty: Block,
    pins: BlockMap<u32>,
    kind: CachePolicy,
    policy: Box<dyn Policy>,
    /// Nodes and pages.
    budget: usize,
    /// Pages that are in memory; they count against the budget.
    pages: usize,
    usage: CacheUse,
}

impl Cache {
    /// At most `budget_bytes` of nodes and pages.
    pub(super) fn new(budget_bytes: u64, policy: CachePolicy) -> Self {
        Self {
            nodes: BlockMap::default(),
            dirty: BTreeSet::new(),
            next_dirty: Block::default(),
            pins: BlockMap::default(),
            kind: policy,
            policy: build(policy),
            budget: blocks_of(budget_bytes),
            pages: 0,
            usage: CacheUse::default(),
        }
    }

    /// Nodes that may stay beside the pages.
    pub(super) fn budget(&self) -> usize {
        self.budget.saturating_sub(self.pages).max(NODES_MIN)
    }

    /// All that may stay: nodes and pages.
    pub(super) fn budget_whole(&self) -> usize {
        self.budget
    }

    /// From now on it has another budget and evicts nodes in another way. What is too much goes with
    /// [`Cache::shrink_all`], once it is known how many pages stay.
    pub(super) fn set(&mut self, budget_bytes: u64, policy: CachePolicy) {
        self.budget = blocks_of(budget_bytes);
        if policy != self.kind {
            let mut addresses: Vec<Block> = self.nodes.keys().copied().collect();
            addresses.sort_unstable();
            (self.kind, self.policy) = (policy, build(policy));
            addresses.into_iter().for_each(|address| self.policy.insert(address));
        }
        self.assert_consistent();
    }

    /// Nodes that are not written yet are in memory, and what is pinned is counted.
    fn assert_consistent(&self) {
        assert!(self.dirty.iter().all(|address| self.nodes.contains_key(address)), "NODECACHE1");
        assert!(self.pins.values().all(|count| *count > 0), "NODECACHE1: a pin is counted");
    }

    /// So many pages are in memory.
    pub(super) fn has_pages(&mut self, pages: usize) {
        self.pages = pages;
    }

    pub(super) fn usage(&self) -> CacheUse {
        CacheUse {
            nodes: self.nodes.len() as u64,
            pages: self.pages as u64,
            dirty: self.dirty.len() as u64,
            budget: self.budget as u64,
            ..self.usage
        }
    }

    pub(super) fn get(&mut self, address: Block) -> Option<Rc<Node>> {
        let node = self.nodes.get(&address)?;
        self.usage.hits += 1;
        self.policy.touch(address);
        Some(Rc::clone(node))
    }

    pub(super) fn contains(&self, address: Block) -> bool {
        self.nodes.contains_key(&address)
    }

    /// Takes in a node that was read.
    pub(super) fn admit(&mut self, node: Node) {
        let address = node.address;
        assert!(!self.contains(address), "NODECACHE1: what is in memory is not read over");
        self.usage.loads += 1;
        self.put(node);
        self.shrink(Some(address));
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
    pub(super) fn change(&mut self, address: Block) -> &mut Node {
        self.dirty.insert(address);
        Rc::make_mut(self.nodes.get_mut(&address).expect("a node that is changed is in memory"))
    }

    /// Forgets a node that is no longer part of any map; returns it if it is not written yet.
    pub(super) fn forget(&mut self, address: Block) -> Option<Rc<Node>> {
        let is_dirty = self.dirty.remove(&address);
        let node = self.nodes.remove(&address)?;
        self.policy.remove(address);
        is_dirty.then_some(node)
    }

    /// Forgets a node that is not what a map leads to: if another map rightly leads to it, it is read again. Not one that is
    /// not written yet (NODECACHE1): another map leads to that.
    pub(super) fn disbelieve(&mut self, address: Block) {
        if !self.dirty.contains(&address) {
            drop(self.forget(address));
        }
    }

    /// The dirty nodes in order of address, shared.
    pub(super) fn dirty(&self) -> Vec<Rc<Node>> {
        self.dirty.iter().map(|address| Rc::clone(&self.nodes[address])).collect()
    }

    /// At most `limit` dirty nodes in order of address, from where the last ones ended, shared.
    pub(super) fn dirty_in_turn(&mut self, limit: usize) -> Vec<Rc<Node>> {
        if self.dirty.range(self.next_dirty..).next().is_none() {
            self.next_dirty = Block::default();
        }
        let addresses = self.dirty.range(self.next_dirty..).take(limit);
        let some: Vec<_> = addresses.map(|address| Rc::clone(&self.nodes[address])).collect();
        self.next_dirty = some.last().map_or(Block::default(), |node| node.address + 1);
        some
    }

    /// `node` is on the disk as it is here; if it was changed since, it stays dirty.
    pub(super) fn written(&mut self, node: &Rc<Node>) {
        if self.nodes.get(&node.address).is_some_and(|now| Rc::ptr_eq(now, node)) {
            self.dirty.remove(&node.address);
        }
        self.shrink(Some(node.address));
    }

    pub(super) fn evictions(&self) -> u64 {
        self.usage.evictions
    }

    pub(super) fn pin(&mut self, address: Block) {
        *self.pins.entry(address).or_default() += 1;
    }

    pub(super) fn unpin(&mut self, address: Block) {
        let count = self.pins.get_mut(&address).expect("NODECACHE1: a pin is taken once");
        *count -= 1;
        if *count == 0 {
            self.pins.remove(&address);
        }
    }

    /// Evicts nodes beyond the budget, but not `newest`. Not called while an attempt runs (NODECACHE3).
    pub(super) fn shrink(&mut self, newest: Option<Block>) {
        while self.nodes.len() > self.budget() {
            let (dirty, pins) = (&self.dirty, &self.pins);
            let may_go = |address: Block| {
                Some(address) != newest && !dirty.contains(&address) && !pins.contains_key(&address)
            };
            let Some(victim) = self.policy.victim(&may_go) else { return };
            assert!(!self.dirty.contains(&victim), "NODECACHE1, PDATA4: it is written first");
            self.nodes.remove(&victim);
            self.usage.evictions += 1;
        }
    }

    /// As [`Cache::shrink`], however many nodes have to be looked at.
    pub(super) fn shrink_all(&mut self) {
        for _ in 0..=self.nodes.len() * 2 / SEARCH_MAX {
            self.shrink(None);
        }
    }
}

/// The blocks of a budget.
fn blocks_of(bytes: u64) -> usize {
    usize::try_from(bytes / PDATA_BLOCK as u64).unwrap_or(usize::MAX).max(NODES_MIN)
}
