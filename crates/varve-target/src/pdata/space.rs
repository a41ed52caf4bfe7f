//! Which blocks of a store are in use: pages in memory, what this transaction took and gave up.
//!
//! Pages are loaded when a group is first looked at and then stay: one bit a block, 4 KiB for 126 MiB of store. Which
//! of a group's two places counts is said by the superblock, never guessed from what lies there: a commit that a crash
//! cut short leaves pages behind that look like those of a later one.
//!
//! Invariants:
//! - F1. A block that was given up is marked as in use until the commit of that transaction is durable (T2).
//! - F2. A block is handed out only while its mark says that it is free.
//! - F3. Blocks taken loose, for content to which nothing leads yet, are free on the disk until they are settled.

mod loose;

use std::collections::{BTreeMap, BTreeSet};
use varve_format::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES, Place, SpacePage};

/// A run of blocks: first and number.
pub(super) type Run = (u64, u64);

pub(super) struct Space {
    store: u64,
    /// Block number of the first group's first block.
    base: u64,
    /// Number of the first block behind the store.
    end: u64,
    pages: BTreeMap<u64, SpacePage>,
    /// Groups whose page differs from what is on the disk.
    changed: BTreeSet<u64>,
    /// Which place of each group counts.
    places: Vec<Place>,
    /// Given up in this transaction.
    freed: Vec<Run>,
    /// Given up in the transaction that is being committed.
    freezing: Vec<Run>,
    /// Where the next search begins.
    next: u64,
    /// Where the next search for nodes begins, if it is not where that for data does.
    next_node: Option<u64>,
    /// Taken for content to which nothing leads yet: first block and number (F3).
    loose: BTreeMap<u64, u64>,
    /// No whole unit was found free since space came back last.
    no_unit: bool,
    /// Blocks not in use, and not given up either.
    free: u64,
}

/// What a commit writes of the space map: a page and the block where it goes.
pub(super) struct PageImage {
    pub(super) address: u64,
    pub(super) page: SpacePage,
}

impl Space {
    /// The space map of a store of `end` blocks whose groups begin at `base`; `free` and `places` are what the
    /// superblock says.
    pub(super) fn new(store: u64, base: u64, end: u64, free: u64, mut places: Vec<Place>) -> Self {
        assert!(base + PAGE_PLACES < end, "a store has room for its first page");
        places.resize(index((end - base).div_ceil(GROUP_BLOCKS)), Place::Never);
        Self {
            store,
            base,
            end,
            pages: BTreeMap::new(),
            changed: BTreeSet::new(),
            places,
            freed: Vec::new(),
            freezing: Vec::new(),
            next: 0,
            next_node: None,
            loose: BTreeMap::new(),
            no_unit: false,
            free,
        }
    }

    pub(super) fn groups(&self) -> u64 {
        (self.end - self.base).div_ceil(GROUP_BLOCKS)
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Blocks free now, without those given up since the last commit.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Blocks given up that a commit will make free.
    pub(super) fn reclaimable(&self) -> u64 {
        self.freed.iter().chain(&self.freezing).map(|run| run.1).sum()
    }

    /// The block where the page of `group` lies; `None` if it was never written.
    pub(super) fn page_address(&self, group: u64) -> Option<u64> {
        let first = self.base + group * GROUP_BLOCKS;
        match self.places[index(group)] {
            Place::Never => None,
            Place::First => Some(first),
            Place::Second => Some(first + 1),
        }
    }

    /// Which place of each group counts, once what was frozen is committed.
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn is_loaded(&self, group: u64) -> bool {
        self.pages.contains_key(&group)
    }

    /// Takes in a page that was read; `None` for a group that was never written.
    pub(super) fn admit(&mut self, group: u64, found: Option<SpacePage>) {
        let store = self.store;
        self.pages.entry(group).or_insert_with(|| found.unwrap_or_else(|| SpacePage::new(store, group)));
    }

    /// Takes a run of at most `limit` free blocks, next to the last one taken if possible. `Err(group)` asks for
    /// that group's page; `Ok(None)` says that there is no free block.
    pub(super) fn take(&mut self, limit: u64) -> Result<Option<Run>, u64> {
        assert!(limit > 0);
        if self.free == 0 {
            return Ok(None);
        }
        let (start, groups) = (self.next.max(self.base), self.groups());
        let first = ((start - self.base) / GROUP_BLOCKS).min(groups - 1);
        for step in 0..=groups {
            let group = (first + step) % groups;
            let Some(page) = self.pages.get(&group) else { return Err(group) };
            let from = if step == 0 { (start - self.base) % GROUP_BLOCKS } else { 0 };
            if let Some((index, length)) = page.free_run(from, self.group_length(group), limit) {
                let run = (self.base + group * GROUP_BLOCKS + index, length);
                self.mark(run, true);
                self.next = run.0 + run.1;
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// Marks blocks that a log says are in use. `Err(group)` asks for a page.
    pub(super) fn claim(&mut self, run: Run) -> Result<(), u64> {
        self.require(run)?;
        self.mark(run, true);
        Ok(())
    }

    /// Gives blocks back that were taken in this transaction and that no commit knows.
    pub(super) fn untake(&mut self, run: Run) {
        self.mark(run, false);
    }

    /// Gives up blocks; they are free once this transaction is committed.
    pub(super) fn give_up(&mut self, run: Run) {
        self.freed.push(run);
    }

    /// The group of the first page that a commit needs and that is not in memory.
    pub(super) fn missing_for_commit(&self) -> Option<u64> {
        let runs = self.freed.iter();
        runs.flat_map(|run| self.groups_of(*run)).find(|group| !self.is_loaded(*group))
    }

    /// Freezes this transaction: the pages as they will be once it is committed.
    pub(super) fn freeze(&mut self, generation: u64) -> Vec<PageImage> {
        assert!(self.freezing.is_empty(), "F1: one commit at a time");
        assert_eq!(self.missing_for_commit(), None, "every page of a commit is in memory");
        self.freezing = std::mem::take(&mut self.freed);
        let mut groups = std::mem::take(&mut self.changed);
        groups.extend(self.freezing.iter().flat_map(|run| self.groups_of(*run)));
        let mut images: BTreeMap<u64, SpacePage> =
            groups.into_iter().map(|group| (group, self.pages[&group].clone())).collect();
        for block in self.freezing.iter().flat_map(|run| run.0..run.0 + run.1) {
            let (group, index) = self.locate(block);
            images.get_mut(&group).expect("the pages of what was given up are written").set(index, false);
        }
        self.free_loose(&mut images);
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

    /// The frozen transaction is durable: what it gave up is free.
    pub(super) fn committed(&mut self) {
        for run in std::mem::take(&mut self.freezing) {
            // What was written says so already: the page has not changed.
            self.set(run, false);
        }
    }

    /// The store grew to `end` blocks.
    pub(super) fn grow(&mut self, end: u64) {
        assert!(end >= self.end);
        let (old_groups, old_end) = (self.groups(), self.end);
        self.end = end;
        self.no_unit = false;
        self.free += end - old_end;
        for group in old_groups..self.groups() {
            self.free -= PAGE_PLACES.min(self.group_length(group));
            self.places.push(Place::Never);
        }
    }

    /// The group of a block.
    pub(super) fn group_of(&self, block: u64) -> u64 {
        self.locate(block).0
    }

    fn require(&self, run: Run) -> Result<(), u64> {
        match self.groups_of(run).find(|group| !self.is_loaded(*group)) {
            Some(group) => Err(group),
            None => Ok(()),
        }
    }

    fn mark(&mut self, run: Run, used: bool) {
        self.set(run, used);
        for group in self.groups_of(run) {
            self.changed.insert(group);
        }
    }

    /// F2: every mark of the run must change.
    fn set(&mut self, run: Run, used: bool) {
        for block in run.0..run.0 + run.1 {
            let (group, index) = self.locate(block);
            self.held(group).set(index, used);
        }
        self.no_unit &= used;
        self.free = if used { self.free - run.1 } else { self.free + run.1 };
    }

    fn held(&mut self, group: u64) -> &mut SpacePage {
        self.pages.get_mut(&group).expect("a page that is marked is in memory")
    }

    fn locate(&self, block: u64) -> (u64, u64) {
        assert!((self.base..self.end).contains(&block), "block {block} is not in the store");
        ((block - self.base) / GROUP_BLOCKS, (block - self.base) % GROUP_BLOCKS)
    }

    fn groups_of(&self, run: Run) -> impl Iterator<Item = u64> + use<> {
        let (first, last) = (self.locate(run.0).0, self.locate(run.0 + run.1 - 1).0);
        first..=last
    }

    fn group_length(&self, group: u64) -> u64 {
        GROUP_BLOCKS.min(self.end - self.base - group * GROUP_BLOCKS)
    }

    /// Whether a block is marked as in use; its page must be in memory.
    pub(super) fn is_used(&self, block: u64) -> Option<bool> {
        let (group, index) = self.locate(block);
        self.pages.get(&group).map(|page| page.is_used(index))
    }
}

fn index(group: u64) -> usize {
    usize::try_from(group).expect("groups are few")
}
