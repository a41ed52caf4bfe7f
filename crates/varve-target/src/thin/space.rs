//! What is declared for a full pool, and the tasks that wait for space in it.

use super::info::VolumeInfo;
use crate::journal::SpaceWatch;
use crate::space_waiters::{SpaceEvent, SpaceWait, SpaceWaiters};
use std::cell::Cell;
use std::time::Duration;

/// How often one write has freed blocks brought back before it takes the pool for full.
pub(super) const CHECKPOINTS_MAX: u32 = 2;

/// What becomes of a write for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It fails with [`IoError::NoSpace`](varve_block::IoError::NoSpace).
    Error,
    /// It waits until there is room, at most so long; then it fails.
    Pause {
        /// How long one write waits in all.
        timeout: Duration,
    },
}

/// What the owner of a pool is notified of; only volumes in the trash are dropped to make room.
pub type PoolEvent = SpaceEvent<VolumeInfo>;

/// Tasks that wait for space, and tasks that wait until the pool is filled to a percentage.
pub(super) struct Waiters {
    pub(super) queue: SpaceWaiters<WhenFull, VolumeInfo>,
    pub(super) watch: SpaceWatch,
    /// Checks and walks under way, which keep in place what is freed; and whether a write needs that (POOLFULL3).
    pub(super) checks: Cell<u64>,
    pub(super) is_wanted: Cell<bool>,
}

/// What one write knows of its attempts.
#[derive(Default)]
pub(super) struct Attempt {
    pub(super) wait: SpaceWait,
    /// How many free blocks it needs.
    pub(super) needed: u64,
    pub(super) checkpoints: u32,
    /// Whether it has waited for the end of a check.
    pub(super) outlasted_check: bool,
}

impl Waiters {
    pub(super) fn new(policy: WhenFull) -> Self {
        let (checks, is_wanted) = (Cell::new(0), Cell::new(false));
        Self { queue: SpaceWaiters::new("the pool", policy), watch: SpaceWatch::default(), checks, is_wanted }
    }

    /// A check begins.
    pub(super) fn check_begins(&self) {
        self.checks.set(self.checks.get() + 1);
        assert!(self.checks.get() > 0, "POOLFULL3: it is under way");
    }

    /// A check has ended, and keeps nothing any more.
    pub(super) fn check_ended(&self) {
        self.checks.set(self.checks.get().checked_sub(1).expect("POOLFULL3: what ends has begun"));
        self.is_wanted.set(self.is_wanted.get() && self.checks.get() > 0);
        self.notify();
    }

    /// Whether a write waits for what a check keeps.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.get()
    }

    /// POOLFULL3: waits until no check is under way, or none keeps anything.
    pub(super) async fn checks_end(&self, wait: &mut SpaceWait, keeps_some: impl Fn() -> bool) {
        while self.checks.get() > 0 && keeps_some() {
            self.is_wanted.set(true);
            self.queue.begin(wait);
            self.queue.notified(wait).await;
        }
    }

    /// Space may be free.
    pub(super) fn notify(&self) {
        self.queue.notify();
    }

    /// There is more room, or another way to get it.
    pub(super) fn room_came(&self) {
        self.queue.room_came();
    }

    /// POOLFULL4: a checkpoint may make room now.
    pub(super) fn notify_if_waiting(&self) {
        if self.queue.is_paused() {
            self.queue.notify();
        }
    }
}
