//! The blocks of a map that are in memory, and the transaction that is under way: what an attempt works on.
//!
//! Invariants: T1 to T4 of the module, and
//! - G1. A change first reserves every block that it may need, so that it cannot stop half way (T3).

use super::cache::{Cache, CacheUse};
use super::policy::PolicyKind;
use super::space::{PageImage, Run, Space};
use std::rc::Rc;
use varve_format::pdata::node::{Entries, Node};
use varve_format::pdata::space_page::{Place, SpacePage};

/// A block that has to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The node in this block.
    Node(u64),
    /// The space map's page of this group.
    Page(u64),
}

/// Why an attempt stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It needs a block that is not in memory; read it and try again.
    Missing(Wanted),
    /// There is no free block left.
    Full,
}

/// The blocks in memory and the transaction under way.
pub struct Pages {
    store: u64,
    generation: u64,
    cache: Cache,
    space: Space,
    /// Free blocks set aside for the change that is about to be made.
    reserved: Vec<u64>,
    /// Free blocks that only the map itself may use.
    floor: u64,
}

/// What a commit writes.
pub(super) struct Frozen {
    pub(super) generation: u64,
    pub(super) nodes: Vec<Rc<Node>>,
    pub(super) images: Vec<PageImage>,
    pub(super) free: u64,
    pub(super) places: Vec<Place>,
}

impl Pages {
    pub(super) fn new(
        store: u64,
        generation: u64,
        cache: (u64, PolicyKind),
        space: Space,
        floor: u64,
    ) -> Self {
        Self { store, generation, cache: Cache::new(cache.0, cache.1), space, reserved: Vec::new(), floor }
    }

    /// The transaction under way.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// First half of the store's id.
    pub(super) fn store(&self) -> u64 {
        self.store
    }

    /// How the cache does.
    pub fn cache_use(&self) -> CacheUse {
        self.cache.usage()
    }

    /// Whether so many nodes are dirty that a commit is due.
    pub fn wants_commit(&self) -> bool {
        self.cache.usage().dirty as usize > self.cache.budget() / 2
    }

    /// Blocks that data may take now.
    pub fn free_blocks(&self) -> u64 {
        self.space.free().saturating_sub(self.floor)
    }

    /// Blocks that were given up and become free with the next commits.
    pub fn reclaimable_blocks(&self) -> u64 {
        self.space.reclaimable()
    }

    /// Number of the first block behind the store.
    pub fn end_block(&self) -> u64 {
        self.space.end()
    }

    /// The node in block `address`.
    pub fn node(&mut self, address: u64) -> Result<Rc<Node>, Stop> {
        self.cache.get(address).ok_or(Stop::Missing(Wanted::Node(address)))
    }

    /// Takes a run of at most `limit` blocks for data.
    pub fn take(&mut self, limit: u64) -> Result<Run, Stop> {
        let limit = limit.min(self.free_blocks());
        if limit == 0 {
            return Err(Stop::Full);
        }
        self.space.take(limit).map_err(missing_page)?.ok_or(Stop::Full)
    }

    /// Marks blocks as in use that a log, replayed, says are.
    pub fn claim(&mut self, run: Run) -> Result<(), Stop> {
        self.space.claim(run).map_err(missing_page)
    }

    /// Gives up blocks of data; they are free once this transaction is committed (T2).
    pub fn give_up(&mut self, run: Run) {
        self.space.give_up(run);
    }

    /// Whether a block is in use.
    pub fn is_used(&self, block: u64) -> Result<bool, Stop> {
        self.space.is_used(block).ok_or_else(|| missing_page(self.space.group_of(block)))
    }

    /// G1: sets aside `count` blocks for nodes.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), Stop> {
        while self.reserved.len() < count {
            let wanted = (count - self.reserved.len()) as u64;
            let run = self.space.take_for_nodes(wanted).map_err(missing_page)?.ok_or(Stop::Full)?;
            // Handed out from the back, so that a growing tree lies in order.
            self.reserved.splice(0..0, (run.0..run.0 + run.1).rev());
        }
        Ok(())
    }

    /// A new node in a reserved block; its address.
    pub(super) fn create(&mut self, level: u32, entries: Entries) -> u64 {
        let address = self.reserved.pop().expect("G1: blocks were reserved for this change");
        self.cache.admit_dirty(Node {
            address,
            generation: self.generation,
            store: self.store,
            level,
            entries,
        });
        address
    }

    /// The node in `address`, made in this transaction: itself, or a copy in a reserved block (T1).
    pub(super) fn shadow(&mut self, address: u64) -> u64 {
        let node = self.cache.get(address).expect("T3: the path of a change is in memory");
        if node.generation == self.generation {
            return address;
        }
        let copy = self.create(node.level, node.entries.clone());
        self.release(address);
        copy
    }

    /// The node in `address`, which was made in this transaction, to change.
    pub(super) fn change(&mut self, address: u64) -> &mut Node {
        let node = self.cache.change(address);
        assert_eq!(node.generation, self.generation, "T1");
        node
    }

    /// A node that is no longer part of the map. One of this transaction is free at once.
    pub(super) fn release(&mut self, address: u64) {
        let node = self.cache.get(address).expect("T3: the path of a change is in memory");
        self.cache.forget(address);
        if node.generation == self.generation {
            self.reserved.push(address);
        } else {
            self.space.give_up((address, 1));
        }
    }

    pub(super) fn is_loaded(&self, wanted: Wanted) -> bool {
        match wanted {
            Wanted::Node(address) => self.cache.contains(address),
            Wanted::Page(group) => self.space.is_loaded(group),
        }
    }

    pub(super) fn admit_node(&mut self, node: Node) {
        if !self.cache.contains(node.address) {
            self.cache.admit(node);
        }
    }

    pub(super) fn admit_page(&mut self, group: u64, found: Option<SpacePage>) {
        self.space.admit(group, found);
    }

    pub(super) fn page_address(&self, group: u64) -> Option<u64> {
        self.space.page_address(group)
    }

    pub(super) fn pin(&mut self, address: u64) {
        self.cache.pin(address);
    }

    pub(super) fn unpin(&mut self, address: u64) {
        self.cache.unpin(address);
    }

    pub(super) fn missing_for_commit(&self) -> Option<Wanted> {
        self.space.missing_for_commit().map(Wanted::Page)
    }

    /// Ends this transaction and begins the next.
    pub(super) fn freeze(&mut self) -> Frozen {
        for block in std::mem::take(&mut self.reserved) {
            self.space.untake((block, 1));
        }
        let generation = self.generation;
        self.generation += 1;
        let images = self.space.freeze(generation);
        let free = self.space.free() + self.space.reclaimable() + self.space.loose_blocks();
        Frozen { generation, nodes: self.cache.dirty(), images, free, places: self.space.places().to_vec() }
    }

    /// The nodes not yet written, in order of address.
    pub(super) fn dirty(&self) -> Vec<Rc<Node>> {
        self.cache.dirty()
    }

    pub(super) fn written(&mut self, node: &Rc<Node>) {
        self.cache.written(node);
    }

    pub(super) fn committed(&mut self) {
        self.space.committed();
    }

    pub(super) fn grow(&mut self, end: u64) {
        self.space.grow(end);
    }
}

impl Pages {
    /// Nodes are looked for from `block` on, away from data.
    pub fn place_nodes_from(&mut self, block: u64) {
        self.space.place_nodes_from(block);
    }

    /// Takes a run of at most `limit` blocks for content to which nothing leads yet, until [`Pages::settle`]: at
    /// `hint` if that is free; else `slot` blocks within a free unit of `unit` blocks; else anywhere.
    pub fn take_loose(&mut self, hint: Option<u64>, unit: u64, slot: u64, limit: u64) -> Result<Run, Stop> {
        let limit = limit.min(self.free_blocks());
        if limit == 0 {
            return Err(Stop::Full);
        }
        if let Some(hint) = hint
            && let Some(run) = self.space.take_at(hint, limit).map_err(missing_page)?
        {
            return Ok(run);
        }
        if let Some(run) = self.space.take_in_unit(unit, slot, limit).map_err(missing_page)? {
            return Ok(run);
        }
        self.space.take_loose(limit).map_err(missing_page)?.ok_or(Stop::Full)
    }

    /// Takes just these blocks, which a log says are in use, until [`Pages::settle`]. `false` if one of them is in use
    /// already, or is not in the store.
    pub fn claim_loose(&mut self, run: Run) -> Result<bool, Stop> {
        self.space.claim_loose(run).map_err(missing_page)
    }

    /// From now on something leads to these blocks, which were taken loose.
    pub fn settle(&mut self, run: Run) {
        self.space.settle(run);
    }

    /// Gives back blocks that were taken loose and to which nothing will lead.
    pub fn untake_loose(&mut self, run: Run) {
        self.space.untake_loose(run);
    }

    /// Frees blocks at once, against T2; for tests that prove that this is noticed.
    #[doc(hidden)]
    pub fn free_at_once(&mut self, run: Run) {
        self.space.untake(run);
    }

    /// From now on no node made so far is changed in place, as if a transaction had ended: what a clone needs.
    /// Returns the generation of the newest of them.
    pub fn fence(&mut self) -> u64 {
        self.generation += 1;
        self.generation - 1
    }

    /// Blocks that data may take once everything is free that was given up.
    pub fn free_blocks_after_commit(&self) -> u64 {
        (self.space.free() + self.space.reclaimable()).saturating_sub(self.floor)
    }

    /// Free blocks, those included that only the map itself may use.
    pub fn free_blocks_for_nodes(&self) -> u64 {
        self.space.free() + self.reserved.len() as u64
    }

    /// Every run that is marked as in use and to which nothing leads.
    pub fn unreachable_runs(&self) -> Vec<Run> {
        let reserved = self.reserved.iter().map(|block| (*block, 1));
        self.space.unreachable_runs().into_iter().chain(reserved).collect()
    }
}

fn missing_page(group: u64) -> Stop {
    Stop::Missing(Wanted::Page(group))
}
