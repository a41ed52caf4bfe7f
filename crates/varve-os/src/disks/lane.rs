//! The operations of one disk on one shard: how many of them the kernel gets at a time.
//!
//! An operation that waits may hold a worker of the kernel (`io-wq`) or a helper thread. Their number is bounded, so one
//! disk that does not answer must not get them all.
//!
//! Invariants:
//! - LANE1. A disk has at most [`DIRECT_MAX`] or [`BUFFERED_MAX`] operations under way on a shard, the others wait in order; and at most
//!   [`LEAST`] more are begun while the shard has [`CROWDED`] or more under way: so there is always room for another disk.
//! - LANE2. An operation that waits is begun when one of the same disk ends; there is one, since LANE1 allows one always.
//! - LANE3. An operation of which the future is dropped is counted as abandoned until it has ended.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Operations under way on a shard from which on each disk gets only the least.
pub(crate) const CROWDED: usize = 512;
/// Operations that a disk may have under way however crowded its shard is.
pub(crate) const LEAST: usize = 4;
/// Workers that the kernel may start for one ring: some disks that take all they can get, and many with the least.
pub(crate) const WORKERS_MAX: u32 = 1024;
/// Most operations of a disk that bypasses the page cache.
pub(crate) const DIRECT_MAX: usize = 128;
/// Most operations of a disk that goes through it: what is cached was answered at once, so each of these waits.
pub(crate) const BUFFERED_MAX: usize = 32;

/// The operations of one disk on one shard.
#[derive(Debug)]
pub(crate) struct Lane {
    most: usize,
    under_way: Cell<usize>,
    /// Keys of those that wait.
    waiting: RefCell<VecDeque<usize>>,
    /// The abandoned operations of the disk, on all shards (LANE3).
    abandoned: Arc<AtomicU64>,
}

impl Lane {
    /// Of at most `most` operations; `abandoned` counts for all lanes of the disk.
    pub(crate) fn new(most: usize, abandoned: &Arc<AtomicU64>) -> Self {
        let abandoned = Arc::clone(abandoned);
        Self { most, under_way: Cell::new(0), waiting: RefCell::default(), abandoned }
    }

    /// LANE3: the answer of an operation is awaited no more.
    pub(crate) fn abandon(&self) {
        self.abandoned.fetch_add(1, Ordering::AcqRel);
    }

    /// LANE3: an abandoned operation has ended.
    pub(crate) fn end_abandoned(&self) {
        let before = self.abandoned.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "LANE3: what ends was abandoned");
    }

    /// An operation is to begin; whether it may do so now, while `all` are under way on the shard. Else it waits.
    pub(crate) fn enter(&self, key: usize, all: usize) -> bool {
        if !self.waiting.borrow().is_empty() || !self.has_room(all) {
            self.waiting.borrow_mut().push_back(key);
            return false;
        }
        self.under_way.set(self.under_way.get() + 1);
        true
    }

    /// An operation has ended.
    pub(crate) fn leave(&self) {
        let under_way = self.under_way.get().checked_sub(1);
        self.under_way.set(under_way.expect("LANE1: what leaves has entered"));
    }

    /// The next one that may begin, while `all` are under way on the shard.
    pub(crate) fn next(&self, all: usize) -> Option<usize> {
        if !self.has_room(all) {
            return None;
        }
        let key = self.waiting.borrow_mut().pop_front()?;
        self.under_way.set(self.under_way.get() + 1);
        Some(key)
    }

    fn has_room(&self, all: usize) -> bool {
        let most = if all < CROWDED { self.most } else { LEAST };
        self.under_way.get() < most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_gives_its_share_and_the_others_wait_in_order() {
        let lane = Lane::new(8, &Arc::default());
        assert!((0..8).all(|key| lane.enter(key, 0)));
        assert!(!lane.enter(8, 0) && !lane.enter(9, 0), "LANE1");
        assert_eq!(lane.next(0), None);
        lane.leave();
        assert!(!lane.enter(10, 0), "LANE1: others wait already");
        assert_eq!((lane.next(0), lane.next(0)), (Some(8), None));
        lane.leave();
        assert_eq!(lane.next(CROWDED), None, "LANE1: more than the least are under way");
        (0..7).for_each(|_| lane.leave());
        assert_eq!(
            (lane.next(CROWDED), lane.next(CROWDED), lane.next(CROWDED)),
            (Some(9), Some(10), None),
            "LANE2"
        );
    }
}
