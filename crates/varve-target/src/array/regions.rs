//! Which regions are dirty, missed and written, in memory and in the log.
//!
//! Invariants:
//! - REGIONS1. A region with a writer is marked, or its writer still waits for the mark.
//! - REGIONS2. A region is clean only when it has no writer and all members have flushed what was written: a flush that began
//!   when the last write had ended, and that ended.
//! - REGIONS3. What the log says is dirty is at least what is active and marked, and what is not in sync.

use super::region_set::RegionSet;
use super::upkeep::region_work::{RegionWork, RegionWorks};
use crate::number_map::NumberMap;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Extent, MIB, Moment};
use varve_format::array::{Change, REGIONS_MAX};

/// The smallest region in bytes.
const REGION_SIZE_MIN: u64 = MIB;

/// Bytes of a region of an array of `size` bytes.
pub(super) fn region_size_for(size: u64) -> u64 {
    let mut region_size = REGION_SIZE_MIN;
    while size.div_ceil(region_size) > REGIONS_MAX {
        region_size *= 2;
    }
    region_size
}

/// The regions of an array.
pub(super) struct Regions {
    size: Cell<u64>,
    /// Whether pages are written before a region becomes clean.
    has_pages: bool,
    count: Cell<u64>,
    active: RefCell<NumberMap<u64, Active>>,
    unsynced: RefCell<RegionSet>,
    written: RefCell<RegionSet>,
    works: RegionWorks,
    /// Rises with each flush that begins, and the last that ended well (REGIONS2).
    flush_begun: Cell<u64>,
    flushed: Cell<u64>,
}

/// A region that is or was written and may be dirty.
#[derive(Clone, Copy)]
struct Active {
    writers: u32,
    /// Whether the log says that it is dirty.
    is_marked: bool,
    /// Whether the next record says that it is clean, and whether members have a stamp that does.
    is_clean: bool,
    is_stamped: bool,
    pages: Pages,
    last_write: Moment,
    /// The flush that had begun last when the last write ended, and the last of its pages was written.
    flush: u64,
}

/// How far the pages of checksums of an active region are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    Behind,
    BeingWritten,
    /// They were written, and the region has not been written since that began.
    Written,
}

impl Active {
    fn is_idle(&self, now: Moment, delay: Duration) -> bool {
        self.writers == 0 && self.is_marked && now.since(self.last_write) >= delay
    }
}

impl Regions {
    /// Regions of `size` bytes, of which some are not in sync and some were written.
    pub(super) fn new(
        size: u64,
        unsynced: RegionSet,
        written: RegionSet,
        count: u64,
        has_pages: bool,
    ) -> Self {
        Self {
            size: Cell::new(size),
            has_pages,
            count: Cell::new(count),
            active: RefCell::default(),
            unsynced: RefCell::new(unsynced),
            written: RefCell::new(written),
            works: RegionWorks::default(),
            flush_begun: Cell::new(0),
            flushed: Cell::new(0),
        }
    }

    /// Bytes of a region.
    pub(super) fn size(&self) -> u64 {
        self.size.get()
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }

    /// The regions that `extent`, not empty, touches.
    pub(super) fn of(&self, extent: Extent) -> Range<u64> {
        assert!(!extent.is_empty(), "REGIONS1: no bytes lie in no region");
        extent.offset / self.size()..extent.end().div_ceil(self.size())
    }

    /// The bytes of `region` in an array of `array_size` bytes.
    pub(super) fn extent(&self, region: u64, array_size: u64) -> Extent {
        assert!(region < self.count(), "ARRAY4: region {region} of {}", self.count());
        Extent::between(region * self.size(), ((region + 1) * self.size()).min(array_size))
    }

    /// The array has `array_size` bytes from now on, and no region is active. Returns how many times a region was doubled.
    pub(super) fn resize(&self, array_size: u64) -> u32 {
        assert!(self.active.borrow().is_empty(), "REGIONS2: a region is active");
        let size = self.size().max(region_size_for(array_size));
        let (doublings, count) = ((size / self.size()).ilog2(), array_size.div_ceil(size));
        for set in [&self.unsynced, &self.written] {
            let folded = set.borrow().folded(doublings, count);
            set.replace(folded);
        }
        self.size.set(size);
        self.count.set(count);
        self.works.resize(|region| (region < count).then(|| self.extent(region, array_size)));
        doublings
    }

    /// Work on `region` of an array of `array_size` bytes begins.
    pub(super) fn begin_work(&self, region: u64, array_size: u64) -> Rc<RegionWork> {
        self.works.begin(region, self.extent(region, array_size))
    }

    /// A change of `regions` has failed on some members: work that is under way there is done again.
    pub(super) fn disturb(&self, regions: &Range<u64>) {
        assert!(regions.end <= self.count(), "ARRAY4: {regions:?} of {}", self.count());
        self.works.disturb(regions);
    }

    /// A writer of `regions` begins; see [`Regions::is_marked`].
    pub(super) fn enter(&self, regions: Range<u64>) {
        assert!(regions.end <= self.count(), "ARRAY4: {regions:?} of {}", self.count());
        let mut active = self.active.borrow_mut();
        for region in regions {
            let entry = active.entry(region).or_insert(Active {
                writers: 0,
                is_marked: false,
                is_clean: false,
                is_stamped: false,
                pages: Pages::Behind,
                last_write: Moment::default(),
                flush: 0,
            });
            entry.writers += 1;
            (entry.is_clean, entry.is_stamped, entry.pages) = (false, false, Pages::Behind);
        }
    }

    /// A writer of `regions` ends at `now`.
    pub(super) fn leave(&self, regions: Range<u64>, now: Moment) {
        assert!(regions.end <= self.count(), "ARRAY4: {regions:?} of {}", self.count());
        let mut active = self.active.borrow_mut();
        for region in regions {
            let entry = active.get_mut(&region).expect("REGIONS1: a writer began");
            entry.writers = entry.writers.checked_sub(1).expect("REGIONS1: a writer ends once");
            (entry.last_write, entry.flush) = (now, self.flush_begun.get());
            if entry.writers == 0 && !entry.is_marked {
                active.remove(&region); // It has written nothing.
            }
        }
    }

    /// Whether a writer of `regions` need not wait for the log: they are marked, and as written if it `writes`.
    pub(super) fn is_marked(&self, mut regions: Range<u64>, writes: bool) -> bool {
        let (active, written) = (self.active.borrow(), self.written.borrow());
        regions.all(|region| {
            active.get(&region).is_some_and(|entry| entry.is_marked) && (!writes || written.contains(region))
        })
    }

    /// The log says durably that `region` is dirty, and as written if it `writes`. Returns whether it was not written before.
    pub(super) fn mark(&self, region: u64, writes: bool) -> bool {
        assert!(region < self.count(), "ARRAY4: region {region} of {}", self.count());
        if let Some(entry) = self.active.borrow_mut().get_mut(&region) {
            entry.is_marked = true;
        }
        writes && self.written.borrow_mut().insert(region)
    }

    /// Whether there are regions that are or were written and may be dirty.
    pub(super) fn has_active(&self) -> bool {
        !self.active.borrow().is_empty()
    }

    /// Whether `region` is or was written and may be dirty.
    pub(super) fn is_active(&self, region: u64) -> bool {
        self.active.borrow().contains_key(&region)
    }

    /// The pages of checksums are about to be written of the regions that are idle for `delay`, which are returned.
    pub(super) fn begin_pages(&self, now: Moment, delay: Duration) -> HashSet<u64> {
        let mut active = self.active.borrow_mut();
        let is_due = |entry: &Active| entry.is_idle(now, delay) && entry.pages != Pages::Written;
        let due = active.iter_mut().filter(|(_, entry)| is_due(entry));
        due.map(|(region, entry)| {
            entry.pages = Pages::BeingWritten;
            *region
        })
        .collect()
    }

    /// The pages of these regions were written; they become clean when they were flushed, too (REGIONS2). `skips_flush`: a fault
    /// for tests.
    pub(super) fn end_pages(&self, regions: &HashSet<u64>, skips_flush: bool) {
        assert!(self.has_pages, "REGIONS2: there are no pages");
        let begun = self.flush_begun.get();
        for (_, entry) in self.active.borrow_mut().iter_mut().filter(|(region, _)| regions.contains(region)) {
            if entry.pages == Pages::BeingWritten {
                entry.pages = Pages::Written;
                entry.flush = if skips_flush { entry.flush } else { begun };
            }
        }
    }

    /// A flush of all members begins. Its number is for [`Regions::flush_ended`].
    pub(super) fn flush_begins(&self) -> u64 {
        self.flush_begun.set(self.flush_begun.get() + 1);
        self.flush_begun.get()
    }

    /// Flush `number` has ended well on all members.
    pub(super) fn flush_ended(&self, number: u64) {
        assert!(number <= self.flush_begun.get(), "REGIONS2: a flush that ends began");
        self.flushed.set(self.flushed.get().max(number));
    }

    /// Lets regions become clean that were idle for `delay` (REGIONS2). Returns whether there are others that only lack a
    /// flush. `skips_flush`: a fault for tests.
    pub(super) fn retire(&self, now: Moment, delay: Duration, skips_flush: bool) -> bool {
        let (flushed, mut lacks_flush) = (self.flushed.get(), false);
        let unsynced = self.unsynced.borrow();
        for (region, entry) in self.active.borrow_mut().iter_mut() {
            let is_idle = entry.is_idle(now, delay) && !entry.is_clean && !unsynced.contains(*region);
            let is_idle = is_idle && (entry.pages == Pages::Written || !self.has_pages);
            if is_idle && (entry.flush < flushed || skips_flush) {
                entry.is_clean = true;
            } else {
                lacks_flush |= is_idle;
            }
        }
        lacks_flush
    }

    /// Whether the next record has something to say of clean regions.
    pub(super) fn has_clean(&self) -> bool {
        self.active.borrow().values().any(|entry| entry.is_clean)
    }

    /// Clean regions of which no stamp says so, at most `most`.
    pub(super) fn unstamped(&self, most: usize) -> Vec<u64> {
        let active = self.active.borrow();
        let is_due = |entry: &Active| entry.is_clean && !entry.is_stamped;
        let mut due: Vec<u64> =
            active.iter().filter(|(_, entry)| is_due(entry)).map(|(region, _)| *region).collect();
        due.sort_unstable();
        due.truncate(most);
        due
    }

    /// Members have a stamp which says that `regions` are clean; those count that were not written since it was begun.
    pub(super) fn stamped(&self, regions: &[u64]) {
        let mut active = self.active.borrow_mut();
        for region in regions {
            if let Some(entry) = active.get_mut(region) {
                entry.is_stamped = entry.is_clean;
            }
        }
    }

    /// The clean regions, at most `most`, for a record that is about to be written; they are to be marked again before they are
    /// written. `are_stamped`: only those of which a stamp says so.
    pub(super) fn take_clean(&self, most: usize, are_stamped: bool) -> Vec<u64> {
        let mut active = self.active.borrow_mut();
        let is_taken = |entry: &Active| entry.is_clean && (entry.is_stamped || !are_stamped);
        let mut clean: Vec<u64> =
            active.iter().filter(|(_, entry)| is_taken(entry)).map(|(region, _)| *region).collect();
        clean.sort_unstable();
        clean.truncate(most);
        for region in &clean {
            let entry = active.remove(region).expect("it is there");
            assert_eq!(entry.writers, 0, "REGIONS2: region {region} is being written");
        }
        clean
    }

    /// All members have flushed and there is no writer: no region is dirty but those that are not in sync.
    pub(super) fn all_clean(&self) {
        let mut active = self.active.borrow_mut();
        assert!(active.values().all(|entry| entry.writers == 0), "REGIONS2: a region is being written");
        active.clear();
    }

    /// Panics if the states of regions contradict each other (REGIONS1, REGIONS3).
    pub(super) fn assert_consistent(&self) {
        let (active, unsynced, written) =
            (self.active.borrow(), self.unsynced.borrow(), self.written.borrow());
        assert!(active.keys().all(|region| *region < self.count()), "REGIONS3: a region that is not there");
        assert!(
            active.values().all(|entry| entry.writers > 0 || entry.is_marked),
            "REGIONS1: a region that nobody writes and that is not marked is forgotten"
        );
        assert!(
            active.values().all(|entry| !entry.is_clean || (entry.is_marked && entry.writers == 0)),
            "REGIONS2: a region that is written becomes clean"
        );
        assert!(unsynced.next(self.count()).is_none() && written.next(self.count()).is_none(), "REGIONS3");
        assert!(self.flushed.get() <= self.flush_begun.get(), "REGIONS2: a flush that ended began");
    }

    /// The regions that are marked because they are being written or were.
    pub(super) fn marked(&self) -> Vec<u64> {
        let active = self.active.borrow();
        active.iter().filter(|(_, entry)| entry.is_marked).map(|(region, _)| *region).collect()
    }

    /// What the members differ in, or may: to be made equal.
    pub(super) fn unsynced(&self) -> std::cell::Ref<'_, RegionSet> {
        self.unsynced.borrow()
    }

    /// Members may differ in `regions` from now on.
    pub(super) fn desync(&self, regions: Range<u64>) {
        regions.for_each(|region| {
            self.unsynced.borrow_mut().insert(region);
        });
    }

    /// `region` was made equal on all members; it is dirty until they have flushed.
    pub(super) fn resynced(&self, region: u64, now: Moment) {
        let was_unsynced = self.unsynced.borrow_mut().remove(region);
        assert!(was_unsynced, "REGIONS3: region {region} is in sync already");
        self.enter(region..region + 1);
        self.mark(region, false);
        self.leave(region..region + 1, now);
    }

    /// What members may differ in does not matter any more: one has all that is authoritative.
    pub(super) fn accept_all(&self) {
        self.unsynced.borrow_mut().clear();
    }

    /// What members may differ in does not matter any more in these regions: what is there is authoritative.
    pub(super) fn accept(&self, regions: &[u64]) {
        let mut unsynced = self.unsynced.borrow_mut();
        for region in regions {
            let was_unsynced = unsynced.remove(*region);
            assert!(was_unsynced, "REGIONS3: region {region} is in sync already");
        }
    }

    /// Regions that hold anything but zeros.
    pub(super) fn written(&self) -> std::cell::Ref<'_, RegionSet> {
        self.written.borrow()
    }

    /// How many regions are dirty.
    pub(super) fn dirty(&self) -> u64 {
        let unsynced = self.unsynced.borrow();
        let active = self.active.borrow();
        let more = active.iter().filter(|(region, entry)| entry.is_marked && !unsynced.contains(**region));
        unsynced.count() + more.count() as u64
    }

    /// When a region may have been idle for `delay`, as things stand at `now`; none if no region is to become clean.
    pub(super) fn next_retirement(&self, now: Moment, delay: Duration) -> Option<Moment> {
        let (active, unsynced) = (self.active.borrow(), self.unsynced.borrow());
        let waits = |(region, entry): &(&u64, &Active)| {
            entry.is_marked && !entry.is_clean && !unsynced.contains(**region)
        };
        let idle_since = |entry: &Active| if entry.writers == 0 { entry.last_write } else { now };
        active.iter().filter(waits).map(|(_, entry)| idle_since(entry).after(delay)).min()
    }
}

/// `regions`, which rise, as runs for a record.
pub(super) fn runs(regions: &[u64], change: impl Fn(u64, u32) -> Change) -> Vec<Change> {
    let mut runs: Vec<(u64, u32)> = Vec::new();
    for region in regions {
        match runs.last_mut() {
            Some((first, count)) if *first + u64::from(*count) == *region => *count += 1,
            _ => runs.push((*region, 1)),
        }
    }
    runs.into_iter().map(|(first, count)| change(first, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_secs(1);

    fn regions() -> Regions {
        Regions::new(MIB, RegionSet::new(8), RegionSet::new(8), 8, false)
    }

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    #[test]
    fn a_region_is_clean_only_after_a_flush_that_began_when_nobody_wrote_it() {
        let regions = regions();
        regions.enter(1..3);
        assert!(!regions.is_marked(1..3, true), "REGIONS1");
        assert!([1, 2].map(|region| regions.mark(region, true)) == [true; 2]);
        assert!(regions.is_marked(1..3, true) && regions.dirty() == 2);
        let early = regions.flush_begins();
        regions.leave(1..3, at(1));
        regions.flush_ended(early);
        assert!(regions.retire(at(3), DELAY, false), "REGIONS2: the flush began too early");
        assert!(!regions.has_clean());
        let late = regions.flush_begins();
        assert!(regions.retire(at(3), DELAY, false), "REGIONS2: the flush has not ended");
        regions.flush_ended(late);
        assert!(
            !regions.retire(at(1), DELAY, false) && !regions.has_clean(),
            "it was not idle for long enough"
        );
        regions.retire(at(3), DELAY, false);
        regions.enter(2..3); // It is marked still, and stays so.
        assert!(regions.is_marked(2..3, true));
        assert_eq!(regions.take_clean(10, false), [1]);
        assert!(!regions.is_marked(1..2, false), "it is to be marked again");
        assert_eq!(regions.dirty(), 1);
    }

    #[test]
    fn a_region_is_dirty_once_when_it_is_marked_or_not_in_sync_and_not_before() {
        let regions = regions();
        regions.enter(1..4);
        assert_eq!(regions.dirty(), 0, "none is marked yet");
        regions.mark(1, true);
        assert_eq!(regions.dirty(), 1);
        regions.mark(2, true);
        regions.desync(2..3);
        regions.desync(6..7);
        assert_eq!(
            regions.dirty(),
            3,
            "two that are not in sync, one of them marked, and one that is marked"
        );
    }

    #[test]
    fn regions_are_sized_so_that_there_are_not_too_many() {
        assert_eq!(region_size_for(1), MIB);
        assert_eq!(region_size_for(REGIONS_MAX * MIB), MIB);
        assert_eq!(region_size_for(REGIONS_MAX * MIB + 1), 2 * MIB);
        assert_eq!(region_size_for(1 << 46), (1 << 46) / REGIONS_MAX);
    }

    #[test]
    fn neighbours_share_an_entry_of_the_record() {
        let expected = vec![Change::Clean(1, 3), Change::Clean(7, 1)];
        assert_eq!(runs(&[1, 2, 3, 7], Change::Clean), expected);
    }
}
