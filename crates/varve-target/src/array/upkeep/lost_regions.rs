//! What an array knows of its lost regions: the blocks that were written there, and those that cannot be known.

use crate::ranges::Ranges;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use varve_block::Extent;
use varve_format::array::KNOWN_MAX;

/// What is known of an array's lost regions.
pub(in crate::array) struct Lost {
    /// Whether pages of checksums are as new as the last flush (ARRAYLOST1).
    pages_current: Cell<bool>,
    /// What was written to lost regions; outside of them it says nothing (ARRAYLOST4).
    known: RefCell<Ranges>,
    /// Regions before this one were verified.
    verified: Cell<u64>,
    /// What of these is neither known nor matches its checksums.
    unmatched: RefCell<Ranges>,
    /// Regions of which the rest has been written since they were verified.
    written_whole: RefCell<BTreeSet<u64>>,
    /// Writes under way that are about to add a run to what is known.
    adding: Cell<usize>,
}

/// Room for one more run.
pub(in crate::array) struct Room<'a>(Option<&'a Cell<usize>>);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|adding| adding.set(adding.get() - 1));
    }
}

impl Lost {
    pub(in crate::array) fn new(pages_current: bool, known: Ranges) -> Self {
        assert!(known.count() <= KNOWN_MAX, "ARRAYLOST4: a superblock has all that is known");
        Self {
            pages_current: Cell::new(pages_current),
            known: RefCell::new(known),
            verified: Cell::default(),
            unmatched: RefCell::default(),
            written_whole: RefCell::default(),
            adding: Cell::default(),
        }
    }

    /// Whether pages of checksums say what was flushed in lost regions, but where something was written since.
    pub(in crate::array) fn are_pages_current(&self) -> bool {
        self.pages_current.get()
    }

    /// Whether nothing is known of lost regions, as where none is lost.
    pub(in crate::array) fn is_nothing_known(&self) -> bool {
        !self.pages_current.get() && self.known.borrow().count() == 0
    }

    /// What is known, as a superblock has it.
    pub(in crate::array) fn known(&self) -> Vec<Extent> {
        self.known.borrow().iter().collect()
    }

    /// What of `extent` is not known.
    pub(in crate::array) fn unknown_in(&self, extent: Extent) -> Vec<Extent> {
        self.known.borrow().gaps(extent)
    }

    /// Whether any of `extent` was written while it was lost.
    pub(in crate::array) fn was_written(&self, extent: Extent) -> bool {
        self.unknown_in(extent) != [extent]
    }

    /// Room in the superblock for `extent`, if there is any (ARRAYLOST4).
    pub(in crate::array) fn room_for(&self, extent: Extent) -> Option<Room<'_>> {
        let around = Extent::between(extent.offset.saturating_sub(1), extent.end() + 1);
        if self.was_written(around) {
            return Some(Room(None)); // It becomes a part of a run.
        }
        if self.known.borrow().count() + self.adding.get() >= KNOWN_MAX {
            return None;
        }
        self.adding.set(self.adding.get() + 1);
        Some(Room(Some(&self.adding)))
    }

    /// All of `extent` is known from now on. The caller has room for it.
    pub(in crate::array) fn know(&self, extent: Extent) {
        self.known.borrow_mut().insert(extent);
        self.unmatched.borrow_mut().remove(extent);
        assert!(self.known.borrow().count() <= KNOWN_MAX, "ARRAYLOST4: there is room for it");
    }

    /// Some of `region`, which has these bytes, was written. Returns whether it is to be verified again: it may be lost no more.
    pub(in crate::array) fn wrote(&self, region: u64, extent: Extent) -> bool {
        let is_rest = region < self.verified.get() && self.unmatched.borrow().gaps(extent) == [extent];
        is_rest && self.written_whole.borrow_mut().insert(region)
    }

    /// The next regions to be verified: those of which the rest was written, and those of `lost`, from which all from a first one on are
    /// taken, that were not verified yet.
    pub(in crate::array) fn unverified(&self, next: impl Fn(u64) -> Option<u64>, most: usize) -> Vec<u64> {
        let written_whole = self.written_whole.borrow();
        let again = written_whole.iter().copied().filter(|region| next(*region) == Some(*region));
        let rest = std::iter::successors(next(self.verified.get()), |region| next(region + 1));
        again.chain(rest).take(most).collect()
    }

    /// `region`, which has these bytes, was verified: all but `unmatched` matches its checksums, or was known when it was looked at.
    /// Returns whether nothing of it is unknown.
    pub(in crate::array) fn was_verified(&self, region: u64, extent: Extent, unmatched: &[Extent]) -> bool {
        self.written_whole.borrow_mut().remove(&region);
        self.verified.set(self.verified.get().max(region + 1));
        let mut all = self.unmatched.borrow_mut();
        all.remove(extent);
        let since = |part: &Extent| self.unknown_in(*part);
        unmatched.iter().flat_map(since).for_each(|part| all.insert(part));
        all.gaps(extent) == [extent]
    }

    /// Of what is known only runs are kept that reach into lost regions.
    pub(in crate::array) fn keep_known(&self, is_lost: impl Fn(Extent) -> bool) {
        let mut known = self.known.borrow_mut();
        let over: Vec<Extent> = known.iter().filter(|run| !is_lost(*run)).collect();
        over.into_iter().for_each(|run| known.remove(run));
    }

    /// Regions have become larger: what was verified are others.
    pub(in crate::array) fn verify_anew(&self) {
        self.verified.set(0);
        self.unmatched.take();
        self.written_whole.take();
    }

    /// All data members are in sync: what they hold in lost regions is authoritative, and is changed from now on.
    pub(in crate::array) fn end(&self) {
        self.pages_current.set(false);
        self.known.take();
        self.verify_anew();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn block(number: u64) -> Extent {
        Extent::new(number * BLOCK, BLOCK)
    }

    #[test]
    fn there_is_room_for_so_many_runs_and_for_what_becomes_a_part_of_one() {
        let lost = Lost::new(false, Ranges::default());
        (1..KNOWN_MAX as u64).for_each(|run| {
            let _room = lost.room_for(block(2 * run)).expect("there is room");
            lost.know(block(2 * run));
        });
        let last = lost.room_for(block(0)).expect("for one more");
        assert!(lost.room_for(block(5000)).is_none(), "ARRAYLOST4: a write under way has it");
        assert!(lost.room_for(block(2)).is_some() && lost.room_for(block(3)).is_some(), "runs stay as many");
        drop(last);
        assert!(lost.room_for(block(5000)).is_some(), "that write has ended without it");
        lost.know(block(3));
        assert_eq!(lost.known().len(), KNOWN_MAX - 2, "two runs have become one");
        lost.keep_known(|run| run.offset < 8 * BLOCK);
        assert_eq!(lost.known(), [Extent::new(2 * BLOCK, 3 * BLOCK), block(6)]);
    }

    #[test]
    fn a_region_is_verified_again_when_the_rest_of_it_was_written() {
        let lost = Lost::new(true, Ranges::default());
        let extent = |region: u64| Extent::new(region * 4 * BLOCK, 4 * BLOCK);
        let next = |from: u64| (from <= 2).then_some(from);
        let write = |number: u64| {
            lost.know(block(number));
            lost.wrote(number / 4, extent(number / 4))
        };
        assert_eq!(lost.unverified(next, 2), [0, 1]);
        assert!(!write(0), "it was not verified yet");
        assert!(!lost.was_verified(0, extent(0), &[block(0), block(1), block(2)]), "two are not known");
        assert_eq!(lost.unverified(next, 9), [1, 2]);
        assert!(!write(1));
        assert!(write(2) && !write(3), "the rest is written once");
        assert_eq!(lost.unverified(next, 9), [0, 1, 2]);
        assert!(lost.was_verified(0, extent(0), &[]));
        assert!(lost.was_verified(1, extent(1), &[]) && lost.unknown_in(extent(1)) == [extent(1)]);
        assert_eq!(lost.unverified(next, 9), [2]);
        lost.verify_anew();
        assert_eq!(lost.unverified(next, 9), [0, 1, 2]);
        lost.end();
        assert!(lost.is_nothing_known());
    }
}
