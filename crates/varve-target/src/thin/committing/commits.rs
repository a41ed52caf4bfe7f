//! The requests that wait for a commit, and the changes that the next one will carry.

use crate::journal::{GroupCommit, Latch, Ring};
use std::cell::{Cell, RefCell};
use varve_block::Moment;
use varve_format::pdata::Block;
use varve_format::thin::{Change, Mapping, change_length};

/// More bytes of changes than these do not wait for a request for a commit.
pub(in crate::thin) const PENDING_BYTES_MAX: usize = 128 << 10;
/// With more than these, a task that would make more changes waits for the next commit.
pub(in crate::thin) const PENDING_BYTES_FULL: usize = 4 << 20;
/// So many counts of holders are not left in memory (REFCOUNT3).
pub(in crate::thin) const DIFFERENCES_MAX: usize = 16 << 10;

/// What there is to know about commits.
pub(in crate::thin) struct Commits {
    pub(in crate::thin) pending: RefCell<Pending>,
    pub(in crate::thin) ring: Ring,
    pub(in crate::thin) group: GroupCommit,
    pub(in crate::thin) latch: Latch,
    pub(in crate::thin) wants_checkpoint: Cell<bool>,
    /// The first block behind the pool by the superblock: records lead to none from there on (THIN10).
    pub(in crate::thin) described_end: Cell<Block>,
    /// How often something has changed.
    pub(in crate::thin) changes: Cell<u64>,
}

/// What has changed since the last commit.
#[derive(Default)]
pub(in crate::thin) struct Pending {
    pub(in crate::thin) changes: Vec<Change>,
    pub(in crate::thin) bytes: usize,
    /// When the first of them was made.
    pub(in crate::thin) since: Option<Moment>,
}

impl Pending {
    /// Adds a change; goes on with the last one if it can.
    pub(in crate::thin) fn push(&mut self, change: Change) {
        match (self.changes.last_mut(), &change) {
            (
                Some(Change::Map { volume, start, count, place }),
                Change::Map { volume: other, start: next, count: more, place: behind },
            ) if volume == other
                && *start + *count == *next
                && *place + *count == *behind
                && *count + *more <= Mapping::COUNT_MAX =>
            {
                *count += more;
            }
            (
                Some(Change::Unmap { volume, end, .. }),
                Change::Unmap { volume: other, start: next, end: last },
            ) if volume == other && end == next => *end = *last,
            _ => {
                self.bytes += change_length(&change);
                self.changes.push(change);
            }
        }
    }

    pub(in crate::thin) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Commits {
    pub(in crate::thin) fn new(ring: Ring, described_end: Block) -> Self {
        Self {
            pending: RefCell::default(),
            ring,
            group: GroupCommit::default(),
            latch: Latch::default(),
            wants_checkpoint: Cell::new(false),
            described_end: Cell::new(described_end),
            changes: Cell::new(0),
        }
    }

    /// Changes are pending exactly if it is known since when.
    pub(in crate::thin) fn assert_consistent(&self) {
        let pending = self.pending.borrow();
        assert_eq!(pending.is_empty(), pending.since.is_none(), "THIN2: what waits is known to wait");
        assert!(pending.bytes > 0 || pending.is_empty(), "THIN2: what waits is counted");
    }

    /// How often something has changed since the pool was opened.
    pub(in crate::thin) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// A commit begins with everything that has changed up to this instant.
    pub(in crate::thin) fn begin(&self) -> Vec<Change> {
        self.assert_consistent();
        self.group.begin();
        std::mem::take(&mut *self.pending.borrow_mut()).changes
    }

    /// Whether a change that was acknowledged may not be durable yet. After a failure that is unknown.
    pub(in crate::thin) fn is_behind(&self) -> bool {
        !self.pending.borrow().is_empty() || self.group.is_under_way() || self.latch.failure().is_some()
    }
}
