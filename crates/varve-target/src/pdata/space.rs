//! Which blocks of a store are in use: pages in memory, what this transaction took and freed.
//!
//! Pages are loaded when a group is looked at: one bit a block, 4 KiB for 126 MiB of store. Which
//! of a group's two places is authoritative is said by the superblock, never guessed from what is there: a commit that a crash
//! cut short leaves pages behind that look like those of a later one.
//!
//! Two rules keep a block from being used again too early, and they must hold together. SPACE1 is about crashes: the last
//! commit, and the log behind it, lead to the block. SPACE3 is about requests under way: one that found the block in a map
//! may still be reading it, and a commit does not wait for requests. So a commit *hands over* what it freed: on the
//! disk it is free with that commit, in memory it goes on waiting until every reader of that moment has ended. There is
//! no wait the other way: a commit never waits for a request, and a request that finds no room is answered so.
//! Pages that are written while blocks wait say that these are free, as a crash would make them.
//!
//! Invariants:
//! - SPACE1. A block that was freed is marked as in use until the commit of that transaction is durable (PDATA2).
//! - SPACE2. A block is handed out only while its mark says that it is free.
//! - SPACE3. A freed block is handed out only when all that were reading it when that commit became durable have ended (PDATA5).
//! - SPACE4. Blocks taken unpublished (nothing leads to their content yet) are free on the disk until they are published.
//! - SPACE5. If freed blocks are to be discarded on the device below, they are handed out only after it has answered.
//! - SPACE6. What a map frees and the space map says is free, or frees twice, is found before it is committed
//!   (`contradiction.rs`).
//!
//! Which pages stay in memory says RESIDENT1 (`resident.rs`), which blocks are taken first REUSE1 (`reuse.rs`).

mod contradiction;
mod discard_queue;
mod free;
mod freed;
mod pending_free;
mod resident;
mod reuse;
mod unpublished;

use crate::reader_epochs::{EpochGuard, ReaderEpochs};
use discard_queue::DiscardQueue;
use freed::Freed;
pub use pending_free::FREED_RUNS_MAX;
use pending_free::{ByGroup, PendingFree};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use varve_format::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES, Place, SpacePage};
use varve_format::pdata::{Block, BlockRun};

/// How many free runs of a group are looked at for one that is long enough.
const SEARCH_RUNS: usize = 16;

/// Where blocks are looked for, so that what is written in sequence is not interrupted by other things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// From the beginning of the store on: a log and its content.
    Near,
    /// From the middle of the store on: everything else.
    Far,
}

/// Keeps the blocks that maps lead to now from being used for something else (SPACE3).
pub type InUse = EpochGuard;

/// Blocks that a commit has set free, and the mark of the readers that may still read them (SPACE3).
struct Waiting {
    mark: u64,
    blocks: u64,
    runs: Vec<BlockRun>,
}

pub(super) struct Space {
    store: u64,
    /// The first group's first block.
    base: Block,
    /// The first block behind the store.
    end: Block,
    pages: BTreeMap<u64, SpacePage>,
    /// Blocks of the longest free run of each page that was evicted (RESIDENT1).
    summaries: BTreeMap<u64, u64>,
    /// Pages that are pinned for a while, and how often.
    pins: BTreeMap<u64, u32>,
    /// Where the eviction of pages goes on.
    hand: u64,
    /// Groups whose pages a commit is writing (RESIDENT1).
    committing: BTreeSet<u64>,
    /// Groups whose page differs from what is on the disk.
    changed: BTreeSet<u64>,
    /// Which place of each group is authoritative.
    places: Vec<Place>,
    /// Freed in this transaction.
    freed: PendingFree,
    /// How many blocks were taken in it since it had freed many.
    taken_since: u64,
    /// Freed in the transaction that is being committed.
    freezing: PendingFree,
    /// Free on the disk, but held until the readers of that moment have ended (SPACE3).
    waiting: Vec<Waiting>,
    /// Free on the disk and no longer read, but held until the device has answered the discard (SPACE5).
    discards: DiscardQueue,
    readers: ReaderEpochs,
    /// How many blocks were freed and cannot be taken yet.
    pending_free: ByGroup,
    /// Taken for content to which nothing leads yet: first block and number (SPACE4).
    unpublished: BTreeMap<Block, u64>,
    /// Where the next search round the store begins on the near and on the far side.
    next: [Block; 2],
    /// Freed blocks to take again on both sides, and in units (REUSE1).
    freed_on: [Freed; 2],
    freed_units: Freed,
    /// Blocks not in use, and not freed either.
    free: u64,
    /// No whole unit was found free since space came back last.
    no_unit: bool,
    /// The first block of which maps and space map say different things (SPACE6).
    contradiction: Option<Block>,
    /// Against SPACE1 and SPACE3, for tests that prove that this is noticed.
    pub(super) reuse_at_once: bool,
    /// Against SPACE3 alone, for such tests.
    pub(super) reuse_while_read: bool,
}

/// What a commit writes of the space map: a page and the block where it goes.
pub(super) struct PageImage {
    pub(super) address: Block,
    pub(super) page: SpacePage,
}

impl Space {
    /// The space map of a store of `end` blocks whose groups begin at `base`; `free` and `places` are what the
    /// superblock says.
    pub(super) fn new(store: u64, base: Block, end: Block, free: u64, mut places: Vec<Place>) -> Self {
        assert!(base + PAGE_PLACES < end, "a store has room for its first page");
        places.resize(index((end - base).div_ceil(GROUP_BLOCKS)), Place::Never);
        Self {
            store,
            base,
            end,
            pages: BTreeMap::new(),
            summaries: BTreeMap::new(),
            pins: BTreeMap::new(),
            hand: 0,
            committing: BTreeSet::new(),
            changed: BTreeSet::new(),
            places,
            freed: PendingFree::default(),
            taken_since: 0,
            freezing: PendingFree::default(),
            waiting: Vec::new(),
            discards: DiscardQueue::default(),
            readers: ReaderEpochs::default(),
            pending_free: ByGroup::default(),
            unpublished: BTreeMap::new(),
            next: [base, base + (end - base) / 2],
            freed_on: Default::default(),
            freed_units: Freed::default(),
            free,
            no_unit: false,
            contradiction: None,
            reuse_at_once: false,
            reuse_while_read: false,
        }
    }

    pub(super) fn groups(&self) -> u64 {
        (self.end - self.base).div_ceil(GROUP_BLOCKS)
    }

    pub(super) fn end(&self) -> Block {
        self.end
    }

    /// Blocks free now, without those freed since the last commit.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Runs that are free on the disk and not here (SPACE3, SPACE5).
    fn free_on_disk(&self) -> impl Iterator<Item = &BlockRun> {
        self.waiting.iter().flat_map(|waiting| &waiting.runs).chain(self.discards.runs())
    }

    /// Of the blocks that were freed, those that wait only for possible readers.
    pub(super) fn held_blocks(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.blocks).sum()
    }

    /// Of these, those that a call of [`Space::reclaim`] would leave waiting.
    pub(super) fn read_blocks(&self) -> u64 {
        let read = self.waiting.iter().filter(|waiting| !self.readers.have_ended(waiting.mark));
        read.map(|waiting| waiting.blocks).sum()
    }

    /// Has `listener` called when readers have ended for which blocks waited. It must not touch this space.
    pub(super) fn when_readers_end(&self, listener: Rc<dyn Fn()>) {
        self.readers.listen(listener);
    }

    /// Blocks that are free on the disk once everything that was freed up to now is committed.
    pub(super) fn free_after_commit(&self) -> u64 {
        self.free + self.reclaimable() + self.unpublished_blocks()
    }

    /// Blocks taken for content to which nothing leads yet.
    pub(super) fn unpublished_blocks(&self) -> u64 {
        self.unpublished.values().sum()
    }

    /// The block where the page of `group` is; `None` if it was never written.
    pub(super) fn page_address(&self, group: u64) -> Option<Block> {
        let first = self.first_of(group);
        match self.places[index(group)] {
            Place::Never => None,
            Place::First => Some(first),
            Place::Second => Some(first + 1),
        }
    }

    /// Which place of each group is authoritative, once what was frozen is committed.
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn is_loaded(&self, group: u64) -> bool {
        self.pages.contains_key(&group)
    }

    /// Forgets the pages that are as they were read. Only before the first commit.
    pub(super) fn forget_unchanged(&mut self) {
        assert!(self.waiting.is_empty() && self.freezing.runs().next().is_none(), "nothing was committed");
        self.pages.retain(|group, _| self.changed.contains(group));
    }

    /// Takes in a page that was read; `None` for a group that was never written.
    pub(super) fn admit(&mut self, group: u64, found: Option<SpacePage>) {
        let store = self.store;
        self.summaries.remove(&group);
        self.pages.entry(group).or_insert_with(|| found.unwrap_or_else(|| SpacePage::new(store, group)));
    }

    /// Takes a run of at most `limit` free blocks: of a long run of freed ones, else next to the last one taken on that
    /// side if possible. `Err(group)` asks for that group's page; `Ok(None)` says that there is no free block.
    pub(super) fn take(&mut self, limit: u64, side: Side) -> Result<Option<BlockRun>, u64> {
        assert!(limit > 0, "SPACE2: something is taken");
        // What the superblock says of their number may be less than what the pages say.
        let limit = limit.min(self.free);
        if limit == 0 {
            return Ok(None);
        }
        if let Some(run) = self.take_freed(limit, side)? {
            return Ok(Some(run)); // REUSE1
        }
        let (start, groups) = (self.goes_on(side), self.groups());
        let (first, start_index) = self.locate(start);
        for step in 0..=groups {
            let group = (first + step) % groups;
            if !self.may_have(group, 1) {
                continue;
            }
            let Some(page) = self.pages.get(&group) else { return Err(group) };
            let from = if step == 0 { start_index } else { 0 };
            if let Some((index, length)) = longest_near(page, from, self.group_length(group), limit) {
                let run = BlockRun::new(self.first_of(group) + index, length);
                self.mark(run, true);
                self.next[side as usize] = run.end();
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// Takes a run of at most `limit` blocks that begins at `block`; an empty one if that is in use or not there, or was
    /// never used while a long run of freed blocks is there (REUSE1).
    pub(super) fn take_at(&mut self, block: Block, limit: u64) -> Result<BlockRun, u64> {
        let (nothing, limit) = (BlockRun::new(block, 0), limit.min(self.free));
        if limit == 0 || !(self.base..self.end).contains(&block) {
            return Ok(nothing);
        }
        let is_behind = block >= self.next[Side::Near as usize];
        if is_behind && self.freed_run(Side::Near)?.is_some() {
            return Ok(nothing);
        }
        let (group, index) = self.locate(block);
        let Some(page) = self.pages.get(&group) else { return Err(group) };
        let found = page.free_run(index, self.group_length(group), limit);
        let Some((_, length)) = found.filter(|(first, _)| *first == index) else { return Ok(nothing) };
        let run = BlockRun::new(block, length);
        self.mark(run, true);
        if is_behind {
            self.next[Side::Near as usize] = run.end();
        }
        Ok(run)
    }

    /// Marks blocks that a log says are in use. `Err(group)` asks for a page; `Ok(false)` says that one of them is in
    /// use already, or not there.
    pub(super) fn claim(&mut self, run: BlockRun) -> Result<bool, u64> {
        if run.count == 0 || run.count > self.free || !self.contains(run) {
            return Ok(false);
        }
        self.require(run)?;
        let taken = run.blocks().any(|block| self.is_used(block) != Some(false));
        if !taken {
            self.mark(run, true);
        }
        Ok(!taken)
    }

    /// Gives blocks back that were taken in this transaction and that nothing leads to.
    pub(super) fn untake(&mut self, run: BlockRun) {
        if self.require(run).is_err() {
            // A commit has said since that they are in use; the next one reads their page and says that they are free.
            return self.free_run(run, false);
        }
        self.mark(run, false);
    }

    /// SPACE3: to be held while blocks are read.
    pub(super) fn in_use(&self) -> InUse {
        self.readers.enter()
    }

    /// Where searches on the near side go on.
    pub(super) fn go_on_at(&mut self, block: Block) {
        self.next[Side::Near as usize] = block;
    }

    /// Freezes this transaction: the pages as they will be once it is committed.
    pub(super) fn freeze(&mut self, generation: u64) -> Vec<PageImage> {
        assert!(self.freezing.runs().next().is_none(), "SPACE1: one commit at a time");
        assert_eq!(self.missing_for_commit(), None, "every page of a commit is in memory");
        self.freezing = std::mem::take(&mut self.freed);
        self.taken_since = 0;
        let mut groups = std::mem::take(&mut self.changed);
        groups.extend(self.freezing.runs().flat_map(|run| self.groups_of(*run)));
        let mut images: BTreeMap<u64, SpacePage> =
            groups.into_iter().map(|group| (group, self.pages[&group].clone())).collect();
        let waiting = self.free_on_disk().copied();
        let unpublished = self.unpublished_runs();
        for run in self.freezing.runs().copied().chain(waiting).chain(unpublished) {
            for block in run.blocks() {
                let (group, index) = self.locate(block);
                // A group of which no page is written: its page on the disk says so already (SPACE3, SPACE4, SPACE5).
                if let Some(page) = images.get_mut(&group).filter(|page| page.is_used(index)) {
                    page.set(index, false);
                }
            }
        }
        self.committing = images.keys().copied().collect();
        images.into_iter().map(|(group, page)| self.image(group, page, generation)).collect()
    }

    /// A page at the place that the last commit does not count.
    fn image(&mut self, group: u64, mut page: SpacePage, generation: u64) -> PageImage {
        page.generation = generation;
        let place = &mut self.places[index(group)];
        *place = match place {
            Place::First => Place::Second,
            Place::Never | Place::Second => Place::First,
        };
        PageImage { address: self.page_address(group).expect("it has a place now"), page }
    }

    /// The frozen transaction is durable: what it freed is free, or will be when the present readers have ended.
    pub(super) fn committed(&mut self) {
        self.committing.clear();
        let PendingFree { read, unread, .. } = std::mem::take(&mut self.freezing);
        // What was written says so already: the pages have not changed.
        unread.into_iter().for_each(|run| self.come_back(run));
        assert!(read.iter().all(|run| run.count > 0), "SPACE3: a run has blocks");
        let blocks = read.iter().map(|run| run.count).sum();
        if blocks > 0 {
            self.waiting.push(Waiting { mark: self.readers.mark(), blocks, runs: read });
        }
        self.reclaim();
        self.assert_consistent();
    }

    /// Each group has a place; with debug assertions: what was freed is counted once, wherever it waits.
    fn assert_consistent(&self) {
        if cfg!(debug_assertions) {
            let waiting =
                self.freed.blocks() + self.freezing.blocks() + self.held_blocks() + self.discards.blocks();
            assert!(self.pending_free.is_counted(), "SPACE1: what was freed is counted");
            assert_eq!(self.pending_free.blocks(), waiting, "SPACE1, SPACE3, SPACE5: each block waits once");
        }
        assert_eq!(self.places.len() as u64, self.groups(), "SPACE2: each group has a place");
    }

    /// Makes free what is no longer read (SPACE3).
    pub(super) fn reclaim(&mut self) {
        let has_ended = |waiting: &&Waiting| self.reuse_while_read || self.readers.have_ended(waiting.mark);
        let ended = self.waiting.iter().take_while(has_ended).count();
        let ended: Vec<_> = self.waiting.drain(..ended).collect();
        ended.into_iter().flat_map(|waiting| waiting.runs).for_each(|run| self.come_back(run));
        assert!(self.waiting.is_sorted_by_key(|waiting| waiting.mark), "SPACE3: readers end in their order");
        self.readers.listen_for(self.waiting.first().map(|first| first.mark));
    }

    /// The store grew to `end` blocks.
    pub(super) fn grow(&mut self, end: Block) {
        assert!(end >= self.end, "SPACE2: a store does not shrink");
        self.free += fresh_blocks(self.base, end) - fresh_blocks(self.base, self.end);
        // The last group has more blocks now.
        self.summaries.remove(&(self.groups() - 1));
        self.end = end;
        self.no_unit = false;
        self.places.resize(index(self.groups()), Place::Never);
        self.assert_consistent();
    }

    /// The group of a block.
    pub(super) fn group_of(&self, block: Block) -> u64 {
        self.locate(block).0
    }

    pub(super) fn require(&self, run: BlockRun) -> Result<(), u64> {
        match self.groups_of(run).find(|group| !self.is_loaded(*group)) {
            Some(group) => Err(group),
            None => Ok(()),
        }
    }

    fn mark(&mut self, run: BlockRun, used: bool) {
        self.set(run, used);
        self.note_taken(if used { run.count } else { 0 });
        for group in self.groups_of(run) {
            self.changed.insert(group);
        }
    }

    /// SPACE2: every mark of the run changes; one that is free already was never to be freed (SPACE6).
    fn set(&mut self, run: BlockRun, used: bool) {
        let mut changed = 0;
        for block in run.blocks() {
            let (group, index) = self.locate(block);
            let page = self.pages.get_mut(&group).expect("a page that is marked is in memory");
            if !used && !page.is_used(index) {
                self.contradiction.get_or_insert(block);
                continue;
            }
            page.set(index, used);
            changed += 1;
        }
        if !used {
            self.no_unit = false;
            self.note_freed(run);
        }
        self.free = if used { self.free - changed } else { self.free + changed };
    }

    fn locate(&self, block: Block) -> (u64, u64) {
        assert!(self.is_inside(block), "{block:?} is not in the store");
        ((block - self.base) / GROUP_BLOCKS, (block - self.base) % GROUP_BLOCKS)
    }

    /// The first block of a group.
    fn first_of(&self, group: u64) -> Block {
        assert!(group < self.groups(), "SPACE2: there is no group {group}");
        self.base + group * GROUP_BLOCKS
    }

    fn groups_of(&self, run: BlockRun) -> impl Iterator<Item = u64> + use<> {
        let (first, last) = (self.locate(run.first).0, self.locate(run.end() - 1).0);
        first..=last
    }

    fn group_length(&self, group: u64) -> u64 {
        GROUP_BLOCKS.min(self.end - self.first_of(group))
    }

    /// Whether a block is marked as in use; its page must be in memory.
    pub(super) fn is_used(&self, block: Block) -> Option<bool> {
        let (group, index) = self.locate(block);
        self.pages.get(&group).map(|page| page.is_used(index))
    }
}

/// The first free run of a page from `from` on that is `limit` blocks long, of those near; else the longest of them.
fn longest_near(page: &SpacePage, from: u64, end: u64, limit: u64) -> Option<(u64, u64)> {
    let (mut at, mut best): (u64, Option<(u64, u64)>) = (from, None);
    for _ in 0..SEARCH_RUNS {
        let Some(run) = page.free_run(at, end, limit) else { break };
        if best.is_none_or(|best| best.1 < run.1) {
            best = Some(run);
        }
        if run.1 == limit {
            break;
        }
        at = run.0 + run.1;
    }
    best
}

/// Blocks of a fresh store that are free: all but the places of the space map's pages.
pub(super) fn fresh_blocks(base_block: Block, end_block: Block) -> u64 {
    let total = end_block - base_block;
    let (whole, rest) = (total / GROUP_BLOCKS, total % GROUP_BLOCKS);
    total - whole * PAGE_PLACES - rest.min(PAGE_PLACES)
}

fn index(group: u64) -> usize {
    usize::try_from(group).expect("groups are few")
}
