//! The blocks of a map that are in memory, and the transaction that is under way: what an attempt works on.
//!
//! Invariants: PDATA1 to PDATA4 of the module, and
//! - RESERVE1. A change first reserves every block that it may need, so that it cannot stop half way (PDATA3).

mod belief;
mod budget;
mod change;
mod free;
mod read_view;
mod unpublished;

pub(crate) use belief::OF_ANOTHER_TIME;
pub use read_view::ReadView;
use read_view::ReadViews;
use varve_format::text::CachePolicy;

use super::cache::{Cache, CacheUse};
use super::options::MapOptions;
use super::space::{InUse, PageImage, Side, Space};
use std::rc::Rc;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{Entries, Node};
use varve_format::pdata::space_page::{Place, SpacePage};
use varve_format::pdata::{Block, BlockError, BlockRun};

/// A block that has to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needed {
    /// The node in this block.
    Node(Block),
    /// The space map's page of this group.
    Page(u64),
}

/// Why an attempt stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It needs a block that is not in memory; read it and try again.
    Missing(Needed),
    /// There is no free block left.
    Full,
    /// This block is not what the map leads to, though it is sound by itself: an older version, or of another map.
    Damaged(Block, BlockError),
}

/// What may take which free blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocClass {
    /// Any change: what is reserved and what a commit needs stays.
    Normal,
    /// What must not fail: a change for which blocks are reserved, a commit, and what a log says after a crash.
    Reserve,
}

/// The blocks in memory and the transaction under way.
pub struct Pages {
    store: u64,
    generation: u64,
    /// The last transaction that was frozen: no valid page of the space map is younger.
    frozen: u64,
    cache: Cache,
    space: Space,
    /// Free blocks set aside for the change that is about to be made.
    reserved: Vec<Block>,
    read_views: ReadViews,
    /// How many blocks of data were freed.
    data_freed: u64,
    /// Free blocks that data may not take.
    floor: u64,
    /// Free blocks that no change may take, for the next commit.
    commit_blocks: u64,
    /// Free blocks that only [`AllocClass::Reserve`] may take.
    reservation: u64,
    /// Nodes of all maps.
    nodes: u64,
    /// Whether a node of any generation is believed, against DESCENT3.
    trusts_generations: bool,
}

/// What a commit writes.
pub(super) struct Frozen {
    pub(super) generation: u64,
    pub(super) nodes: Vec<Rc<Node>>,
    pub(super) images: Vec<PageImage>,
    pub(super) free: u64,
    pub(super) node_count: u64,
    pub(super) end: Block,
    pub(super) places: Vec<Place>,
}

impl Pages {
    pub(super) fn new(options: &MapOptions, space: Space) -> Self {
        Self {
            store: options.store,
            generation: options.generation + options.skipped + 1,
            frozen: options.generation,
            cache: Cache::new(options.cache_bytes, options.policy),
            space,
            reserved: Vec::new(),
            read_views: ReadViews::default(),
            data_freed: 0,
            floor: options.floor_blocks,
            commit_blocks: 0,
            reservation: 0,
            nodes: options.nodes,
            trusts_generations: false,
        }
    }

    /// The transaction under way.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The last transaction that was frozen.
    pub(super) fn last_frozen(&self) -> u64 {
        self.frozen
    }

    /// First half of the store's id.
    pub(super) fn store(&self) -> u64 {
        self.store
    }

    /// How the cache does.
    pub fn cache_use(&self) -> CacheUse {
        self.cache.usage()
    }

    /// Whether so many nodes are dirty that they should be written where they will stay, or committed.
    pub fn wants_commit(&self) -> bool {
        self.cache.usage().dirty as usize > self.cache.budget() / 2
    }

    /// Whether nothing could stay in memory but dirty nodes, and more would exceed the budget.
    pub fn is_full_of_dirty(&self) -> bool {
        self.cache.usage().dirty as usize >= self.cache.budget()
    }

    /// Blocks that data may take now.
    pub fn free_blocks(&self) -> u64 {
        self.space.free().saturating_sub(self.floor)
    }

    /// Free blocks that are for `class`.
    pub fn available(&self, class: AllocClass) -> u64 {
        let kept = match class {
            AllocClass::Normal => self.commit_blocks + self.reservation,
            AllocClass::Reserve => 0,
        };
        self.space.free().saturating_sub(kept)
    }

    /// Keeps `blocks` free blocks for the next commit.
    pub fn keep_for_commit(&mut self, blocks: u64) {
        self.commit_blocks = blocks;
    }

    /// Free blocks that are kept for the next commit.
    pub fn kept_for_commit(&self) -> u64 {
        self.commit_blocks
    }

    /// Reserves `blocks` free blocks for changes with [`AllocClass::Reserve`], in place of what was reserved before.
    pub fn set_reservation(&mut self, blocks: u64) {
        self.reservation = blocks;
    }

    /// Nodes of all maps in the store.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The first block behind the store.
    pub fn end_block(&self) -> Block {
        self.space.end()
    }

    /// Takes a run of at most `limit` blocks for data.
    pub fn take(&mut self, limit: u64) -> Result<BlockRun, Stop> {
        let limit = limit.min(self.free_blocks());
        self.take_on(Side::Near, limit)
    }

    /// Takes a run of at most `limit` blocks, which the caller has found to be free, on one side of the store.
    pub fn take_on(&mut self, side: Side, limit: u64) -> Result<BlockRun, Stop> {
        if limit == 0 {
            return Err(Stop::Full);
        }
        self.space.take(limit, side).map_err(missing_page)?.ok_or(Stop::Full)
    }

    /// Takes a run of at most `limit` blocks that begins at `block`; an empty one if that is not free.
    pub fn take_at(&mut self, block: Block, limit: u64) -> Result<BlockRun, Stop> {
        self.space.take_at(block, limit).map_err(missing_page)
    }

    /// Takes `count` blocks in as few runs as there are, for a commit: all or none.
    pub fn take_for_commit(&mut self, count: u64) -> Result<Vec<BlockRun>, Stop> {
        let (mut runs, mut left) = (Vec::new(), count);
        // What was set aside for nodes is not needed any more in this transaction.
        std::mem::take(&mut self.reserved)
            .into_iter()
            .for_each(|block| self.space.untake(BlockRun::one(block)));
        while left > 0 {
            match self.take_on(Side::Far, left) {
                Ok(run) => {
                    left -= run.count;
                    runs.push(run);
                }
                Err(stop) => {
                    runs.into_iter().for_each(|run| self.space.untake(run)); // PDATA3
                    return Err(stop);
                }
            }
        }
        assert_eq!(runs.iter().map(|run| run.count).sum::<u64>(), count, "PDATA3: all or none");
        Ok(runs)
    }

    /// Takes a run for content to which nothing leads yet: a crash frees it, until [`Pages::publish`].
    pub fn take_unpublished(&mut self, limit: u64) -> Result<BlockRun, Stop> {
        let run = self.take_on(Side::Far, limit)?;
        self.space.mark_unpublished(run);
        Ok(run)
    }

    /// From now on something leads to these blocks, which were taken unpublished.
    pub fn publish(&mut self, run: BlockRun) {
        self.space.publish(run);
    }

    /// Gives back blocks that were taken a moment ago and are not used at all.
    pub fn untake(&mut self, run: BlockRun) {
        self.space.untake(run);
    }

    /// Marks blocks as in use that a log, replayed, says are. `Ok(false)` if one of them is already, or is not there.
    pub fn claim(&mut self, run: BlockRun) -> Result<bool, Stop> {
        self.space.claim(run).map_err(missing_page)
    }

    /// Makes sure that the pages are in memory that say whether these blocks are in use.
    pub fn require(&self, run: BlockRun) -> Result<(), Stop> {
        self.space.require(run).map_err(missing_page)
    }

    /// To be held while blocks that a map leads to now are read (PDATA5).
    pub fn in_use(&self) -> InUse {
        self.space.in_use()
    }

    /// Has `listener` called when readers have ended for which blocks waited; it must not touch the maps.
    pub fn when_readers_end(&self, listener: Rc<dyn Fn()>) {
        self.space.when_readers_end(listener);
    }

    /// Blocks that are marked as in use and to which nothing leads.
    pub fn unreachable_blocks(&self) -> u64 {
        self.reserved.len() as u64 + self.space.reclaimable() + self.space.unpublished_blocks()
    }

    /// Where searches on the near side go on.
    pub fn go_on_at(&mut self, block: Block) {
        self.space.go_on_at(block);
    }

    /// Uses space again at once, against PDATA2; for tests that prove that this is noticed.
    #[doc(hidden)]
    pub fn reuse_at_once(&mut self) {
        self.space.reuse_at_once = true;
    }

    /// Reuses space that may still be read, against PDATA5; for tests that prove that this is noticed.
    #[doc(hidden)]
    pub fn reuse_while_read(&mut self) {
        self.space.reuse_while_read = true;
    }

    /// Forgets the pages of the space map that are as they were read. For uses that change nothing.
    pub(crate) fn forget_unchanged_pages(&mut self) {
        self.space.forget_unchanged();
    }

    /// Of each of these blocks whether it is in use.
    pub(crate) fn marks(&self, run: BlockRun) -> Result<Vec<bool>, Stop> {
        self.require(run)?;
        run.blocks().map(|block| self.is_used(block)).collect()
    }

    /// Whether a block is in use.
    pub fn is_used(&self, block: Block) -> Result<bool, Stop> {
        self.space.is_used(block).ok_or_else(|| missing_page(self.space.group_of(block)))
    }

    /// RESERVE1: sets aside `count` blocks for nodes.
    pub(super) fn reserve(&mut self, count: usize, class: AllocClass) -> Result<(), Stop> {
        while self.reserved.len() < count {
            let wanted = (count - self.reserved.len()) as u64;
            if self.available(class) < wanted {
                return Err(Stop::Full);
            }
            let run = self.space.take(wanted, Side::Far).map_err(missing_page)?.ok_or(Stop::Full)?;
            // Handed out from the back, so that a growing tree is in order.
            self.reserved.splice(0..0, run.blocks().rev());
        }
        assert!(self.reserved.len() >= count, "RESERVE1: a change cannot stop half way");
        Ok(())
    }

    /// Whether a block is set aside.
    pub(super) fn has_reserve(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// Whether a node was made in this transaction.
    pub(super) fn is_new(&self, node: &Node) -> bool {
        node.generation == self.generation
    }

    /// A new node in a reserved block; what leads to it.
    pub(super) fn create(&mut self, level: u32, entries: Entries) -> Link {
        let address = self.reserved.pop().expect("RESERVE1: blocks were reserved for this change");
        self.nodes = self.nodes.saturating_add(1);
        let node = Node { address, generation: self.generation, store: self.store, level, entries };
        let link = Link::to(&node);
        assert!(link.leads_to(&node), "PDATA8");
        self.cache.admit_dirty(node);
        link
    }

    /// The node that `link` leads to, made in this transaction: itself, or a copy in a reserved block (PDATA1).
    pub(super) fn shadow(&mut self, link: Link) -> Link {
        let node = self.node(link).expect("PDATA3: the path of a change is in memory");
        if node.generation == self.generation {
            return link;
        }
        let copy = self.create(node.level, node.entries.clone());
        self.release(link.block());
        copy
    }

    /// The node in `address`, which was made in this transaction, to change.
    pub(super) fn change(&mut self, address: Block) -> &mut Node {
        let node = self.cache.change(address);
        assert_eq!(node.generation, self.generation, "PDATA1");
        node
    }

    /// A node that is no longer part of the map. Even one of this transaction is free only with the next commit: it may
    /// have been written and evicted by the cache, and a request may be reading it (PDATA5).
    pub(super) fn release(&mut self, address: Block) {
        assert!(self.cache.contains(address), "PDATA3: the path of a change is in memory");
        if let Some(unwritten) = self.cache.forget(address) {
            self.read_views.keep(&unwritten);
        }
        self.nodes = self.nodes.saturating_sub(1); // What a superblock says may be anything.
        self.space.free_run(BlockRun::one(address), true);
    }

    pub(super) fn is_loaded(&self, needed: Needed) -> bool {
        match needed {
            Needed::Node(address) => self.cache.contains(address),
            Needed::Page(group) => self.space.is_loaded(group),
        }
    }

    pub(super) fn admit_node(&mut self, node: Node) {
        if !self.cache.contains(node.address) {
            self.cache.admit(node);
        }
    }

    pub(super) fn admit_page(&mut self, group: u64, found: Option<SpacePage>) {
        self.space.admit(group, found);
        self.shrink_pages();
    }

    pub(super) fn page_address(&self, group: u64) -> Option<Block> {
        self.space.page_address(group)
    }

    pub(super) fn missing_for_commit(&self) -> Option<Needed> {
        self.space.missing_for_commit().map(Needed::Page)
    }

    /// Ends this transaction and begins the next.
    pub(super) fn freeze(&mut self) -> Frozen {
        for block in std::mem::take(&mut self.reserved) {
            self.space.untake(BlockRun::one(block));
        }
        let generation = self.generation;
        assert!(self.frozen < generation, "PDATA8: each transaction has its own");
        (self.frozen, self.generation) = (generation, generation + 1);
        let images = self.space.freeze(generation);
        Frozen {
            generation,
            nodes: self.cache.dirty(),
            images,
            free: self.space.free_after_commit(),
            node_count: self.nodes,
            end: self.space.end(),
            places: self.space.places().to_vec(),
        }
    }

    /// Some of the nodes not yet written, in order of address, from where the last ones ended.
    pub(super) fn dirty_in_turn(&mut self, limit: usize) -> Vec<Rc<Node>> {
        self.cache.dirty_in_turn(limit)
    }

    pub(super) fn written(&mut self, node: &Rc<Node>) {
        self.cache.written(node);
    }

    pub(super) fn committed(&mut self) {
        self.space.committed();
        self.shrink_pages();
    }

    /// Evicts nodes beyond the budget, if any are clean.
    pub(super) fn shrink(&mut self) {
        self.cache.shrink(None);
    }

    pub(super) fn grow(&mut self, end: Block) {
        self.space.grow(end);
    }

    pub(super) fn set_floor(&mut self, floor: u64) {
        self.floor = floor;
    }
}

impl Pages {
    /// Frees blocks at once, against PDATA2; for tests that prove that this is noticed.
    #[doc(hidden)]
    pub fn free_at_once(&mut self, run: BlockRun) {
        self.space.untake(run);
    }

    /// From now on no node made so far is changed in place, as if a transaction had ended: what a clone needs.
    /// Returns the generation of the newest of them.
    pub fn fence(&mut self) -> u64 {
        self.generation += 1;
        self.generation - 1
    }

    /// The maps with these roots as they are now.
    pub fn read_view(&mut self, roots: &[Link]) -> ReadView {
        // The root is the youngest node of a map.
        while roots.iter().any(|root| root.may_be_of(self.generation)) {
            self.fence();
        }
        let in_use = self.in_use();
        assert!(self.generation > 0, "NODEVIEW1: what is made from now on is younger than the view");
        self.read_views.open(self.generation - 1, in_use)
    }

    /// Blocks that data may take once everything is free that was freed.
    pub fn free_blocks_after_commit(&self) -> u64 {
        (self.space.free() + self.space.reclaimable()).saturating_sub(self.floor)
    }

    /// Free blocks, those included that only the map itself may use.
    pub fn free_blocks_for_nodes(&self) -> u64 {
        self.space.free() + self.reserved.len() as u64
    }

    /// From now on no block is in use, whatever the pages say; the next commit writes all of them anew, each to the place
    /// that does not count now. For a store whose maps are made anew.
    pub fn forget_all_use(&mut self) {
        self.space.forget_all_use();
    }

    /// Every run that is marked as in use and to which nothing leads.
    pub fn unreachable_runs(&self) -> Vec<BlockRun> {
        let reserved = self.reserved.iter().map(|block| BlockRun::one(*block));
        self.space.unreachable_runs().into_iter().chain(reserved).collect()
    }
}

fn missing_page(group: u64) -> Stop {
    Stop::Missing(Needed::Page(group))
}
