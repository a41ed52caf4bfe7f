//! Which bytes of an exception store are free.
//!
//! Invariants:
//! - F1. What is freed becomes free only once a checkpoint that no longer refers to it is durable: until then the
//!   last checkpoint and the log behind it lead to it, and a crash would bring it back.
//! - F2. And only once no request that was submitted before that checkpoint can still touch it.
//! - F3. Free runs do not touch or overlap each other.

use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use varve_block::{Extent, is_aligned};
use varve_format::store::PART_SIZE;

/// How many free runs a search for a long one looks at.
const SEARCH_RUNS: usize = 64;
/// A run in which the log can go on for a while.
const LONG_RUN: u64 = 8 << 20;

/// The free space.
pub(super) struct Space {
    /// Offset and length of each free run.
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
    /// Freed since the last checkpoint began.
    freed: Vec<Extent>,
    /// Freed before a durable checkpoint, but not before all requests of that time had ended.
    waiting: Vec<(Weak<()>, Vec<Extent>)>,
    /// Held by every request that touches places of the map.
    users: Rc<()>,
    /// Free at once, against F1; for the tests of the oracle only.
    pub reuse_at_once: bool,
}

/// Keeps the places that the map shows now from being used for something else.
pub(super) struct InUse {
    _token: Rc<()>,
}

impl Space {
    pub(super) fn new() -> Self {
        Self {
            free: BTreeMap::new(),
            free_bytes: 0,
            freed: Vec::new(),
            waiting: Vec::new(),
            users: Rc::new(()),
            reuse_at_once: false,
        }
    }

    /// Bytes that can be taken now.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Bytes that the next checkpoint, or the end of a request, will set free.
    pub(super) fn pending_bytes(&self) -> u64 {
        let waiting = self.waiting.iter().flat_map(|(_, extents)| extents);
        self.freed.iter().chain(waiting).map(|extent| extent.length).sum()
    }

    /// All that is free or will be.
    pub(super) fn all(&self) -> Vec<Extent> {
        let free = self.free.iter().map(|(offset, length)| Extent::new(*offset, *length));
        let waiting = self.waiting.iter().flat_map(|(_, extents)| extents).copied();
        free.chain(self.freed.iter().copied()).chain(waiting).collect()
    }

    /// Makes bytes free that belonged to nobody.
    pub(super) fn add(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        assert!(extent.is_aligned(PART_SIZE), "space is counted in blocks: {extent:?}");
        self.free_bytes += extent.length;
        let mut extent = extent;
        if let Some((&offset, &length)) = self.free.range(..extent.offset).next_back() {
            assert!(offset + length <= extent.offset, "F3: {extent:?} is free already");
            if offset + length == extent.offset {
                self.free.remove(&offset);
                extent = Extent::new(offset, length + extent.length);
            }
        }
        if let Some((&offset, &length)) = self.free.range(extent.offset..).next() {
            assert!(extent.end() <= offset, "F3: {extent:?} is free already");
            if extent.end() == offset {
                self.free.remove(&offset);
                extent.length += length;
            }
        }
        self.free.insert(extent.offset, extent.length);
    }

    /// Takes the first `length` bytes, or as many as there are, of the free run that begins at `offset`.
    pub(super) fn take_at(&mut self, offset: u64, length: u64) -> Extent {
        let available = self.free.get(&offset).copied().unwrap_or(0).min(length);
        self.take(Extent::new(offset, available))
    }

    /// Takes up to `length` bytes in one run, from the front: all of them if some run near the front is that long.
    pub(super) fn take_front(&mut self, length: u64) -> Option<Extent> {
        let near = || self.free.iter().take(SEARCH_RUNS);
        let fits = near().find(|(_, run)| **run >= length).or_else(|| near().max_by_key(|(_, run)| **run));
        let (&offset, &run) = fits?;
        Some(self.take(Extent::new(offset, run.min(length))))
    }

    /// Takes one block where the log can go on.
    pub(super) fn take_log_block(&mut self) -> Option<u64> {
        let near = || self.free.iter().take(SEARCH_RUNS);
        let fits = near().find(|(_, run)| **run >= LONG_RUN).or_else(|| near().max_by_key(|(_, run)| **run));
        let (&offset, _) = fits?;
        Some(self.take(Extent::new(offset, PART_SIZE)).offset)
    }

    /// Takes up to `length` bytes in one run, from the back: all of them if some run near the back is that long.
    pub(super) fn take_back(&mut self, length: u64) -> Option<Extent> {
        let near = || self.free.iter().rev().take(SEARCH_RUNS);
        let fits = near().find(|(_, run)| **run >= length).or_else(|| near().max_by_key(|(_, run)| **run));
        let (&offset, &run) = fits?;
        let length = run.min(length);
        Some(self.take(Extent::new(offset + run - length, length)))
    }

    /// Takes `extent`, which lies in one free run.
    pub(super) fn take(&mut self, extent: Extent) -> Extent {
        if extent.is_empty() {
            return extent;
        }
        assert!(is_aligned(extent.offset | extent.length, PART_SIZE), "space is counted in blocks");
        let run = self.free.range(..=extent.offset).next_back().map(|(offset, length)| (*offset, *length));
        let (offset, length) = run.expect("what is taken lies in a free run");
        let whole = Extent::new(offset, length);
        assert!(whole.contains(extent), "F3: {extent:?} is not free");
        self.free.remove(&offset);
        for rest in [Extent::between(offset, extent.offset), Extent::between(extent.end(), whole.end())] {
            if !rest.is_empty() {
                self.free.insert(rest.offset, rest.length);
            }
        }
        self.free_bytes -= extent.length;
        extent
    }

    /// Sets bytes free that the map no longer shows, or blocks of the log or a checkpoint that no longer count.
    pub(super) fn release(&mut self, extents: impl IntoIterator<Item = Extent>) {
        for extent in extents {
            assert!(extent.is_aligned(PART_SIZE) && !extent.is_empty(), "whole blocks are freed: {extent:?}");
            if self.reuse_at_once {
                self.add(extent);
            } else {
                self.freed.push(extent); // F1
            }
        }
    }

    /// What was freed up to now, for a checkpoint that begins now.
    pub(super) fn begin_checkpoint(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.freed)
    }

    /// The checkpoint that began with `freed` is durable.
    pub(super) fn end_checkpoint(&mut self, freed: Vec<Extent>) {
        let users = std::mem::replace(&mut self.users, Rc::new(()));
        self.waiting.push((Rc::downgrade(&users), freed));
        drop(users);
        self.reclaim();
    }

    /// Makes free what no request can touch any more (F2).
    pub(super) fn reclaim(&mut self) {
        let (ended, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(users, _)| users.strong_count() == 0);
        self.waiting = waiting;
        let ended: Vec<(Weak<()>, Vec<Extent>)> = ended;
        ended.into_iter().flat_map(|(_, extents)| extents).for_each(|extent| self.add(extent));
    }

    /// To be held by a request that touches places which the map shows now.
    pub(super) fn in_use(&self) -> InUse {
        InUse { _token: Rc::clone(&self.users) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = PART_SIZE;

    fn space(blocks: &[(u64, u64)]) -> Space {
        let mut space = Space::new();
        blocks.iter().for_each(|(first, count)| space.add(Extent::new(first * BLOCK, count * BLOCK)));
        space
    }

    #[test]
    fn runs_join_and_are_cut_at_both_ends() {
        let mut space = space(&[(0, 2), (4, 2), (2, 2)]);
        assert_eq!(space.free.len(), 1, "F3");
        assert_eq!(space.take_front(BLOCK), Some(Extent::new(0, BLOCK)));
        assert_eq!(space.take_back(BLOCK), Some(Extent::new(5 * BLOCK, BLOCK)));
        assert_eq!(space.take_at(BLOCK, 9 * BLOCK), Extent::new(BLOCK, 4 * BLOCK));
        assert_eq!((space.free_bytes(), space.take_front(BLOCK)), (0, None));
    }

    #[test]
    fn a_long_run_is_preferred_to_a_near_one_that_is_too_short() {
        let mut space = space(&[(0, 1), (10, 5)]);
        assert_eq!(space.take_front(3 * BLOCK), Some(Extent::new(10 * BLOCK, 3 * BLOCK)));
        assert_eq!(
            space.take_front(3 * BLOCK),
            Some(Extent::new(13 * BLOCK, 2 * BLOCK)),
            "as much as there is"
        );
    }

    #[test]
    fn freed_space_waits_for_the_checkpoint_and_for_older_requests() {
        let mut space = space(&[(0, 4)]);
        let taken = space.take_front(4 * BLOCK).expect("free");
        let (one, two) = taken.split_at(2 * BLOCK);
        let reader = space.in_use();
        space.release([one]);
        assert_eq!((space.free_bytes(), space.pending_bytes()), (0, 2 * BLOCK), "F1");
        let freed = space.begin_checkpoint();
        space.release([two]);
        space.end_checkpoint(freed);
        assert_eq!(space.free_bytes(), 0, "F2: a request of before is still under way");
        let later = space.in_use();
        drop(reader);
        space.reclaim();
        assert_eq!(
            space.free_bytes(),
            2 * BLOCK,
            "F1: what was freed after the beginning waits for the next"
        );
        drop(later);
    }

    #[test]
    #[should_panic(expected = "F3")]
    fn freeing_twice_is_found() {
        space(&[(0, 4), (3, 1)]);
    }
}
