//! What happens to a write that finds no room.
//!
//! Blocks that were freed come back with a checkpoint; that is tried first. Overwrites of a volume's own blocks, trims
//! and removals never come here.
//!
//! Invariants:
//! - U1. Whoever waits here holds neither a ticket nor a place inside a gate, so that checkpoints, clones and removals
//!   go on.
//! - U2. Room that came after an attempt began is never slept through (W1 of `waiting_room.rs`).
//! - U4. Whoever waits is woken by every event that makes room, or that lets a checkpoint make some: blocks that were given
//!   up, taken in vain, or passed down, the end of a check or of a reader, a larger pool, another policy.
//! - U5. An event that made no room wakes nobody, and no checkpoint is asked for that would not make enough: writes that
//!   wait do not keep each other, or the disk, busy.
//! - U3. No write fails for what a check or a walk keeps in place: before it is refused it asks for that, and waits.

use super::Pool;
use crate::journal::SpaceWatch;
use crate::waiting_room::{Event, Patience, WaitingRoom};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::IoError;

/// How often one write has freed blocks brought back before it takes the pool for full.
const CHECKPOINTS_MAX: u32 = 2;

/// What becomes of a write for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It fails with [`IoError::NoSpace`].
    Error,
    /// It waits until there is room, at most so long; then it fails.
    Pause {
        /// How long one write waits in all.
        timeout: Duration,
    },
}

/// What the owner of a pool should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolEvent {
    /// A write waits for room, the first one.
    Paused,
    /// No write waits for room any more.
    Resumed,
    /// A write waited in vain and failed.
    TimedOut,
}

impl Event for PoolEvent {
    const VESSEL: &'static str = "the pool";
    const PAUSED: Self = PoolEvent::Paused;
    const RESUMED: Self = PoolEvent::Resumed;
    const TIMED_OUT: Self = PoolEvent::TimedOut;
}

/// Who waits for room, and who for the lack of it.
pub(super) struct Room {
    waiting: WaitingRoom<WhenFull, PoolEvent>,
    watch: SpaceWatch,
    /// Checks and walks under way, which keep in place what is given up; and whether a write needs that (U3).
    checks: Cell<u64>,
    is_wanted: Cell<bool>,
}

/// What one write knows of its attempts.
#[derive(Default)]
pub(super) struct Attempt {
    patience: Patience,
    /// How many free blocks it needs.
    pub(super) needed: u64,
    checkpoints: u32,
    /// Whether it has waited for the end of a check.
    outlasted_check: bool,
}

impl Room {
    pub(super) fn new(policy: WhenFull) -> Self {
        let (checks, is_wanted) = (Cell::new(0), Cell::new(false));
        Self { waiting: WaitingRoom::new(policy), watch: SpaceWatch::default(), checks, is_wanted }
    }

    /// A check begins.
    pub(super) fn check_begins(&self) {
        self.checks.set(self.checks.get() + 1);
        assert!(self.checks.get() > 0, "U3: it is under way");
    }

    /// A check has ended, and keeps nothing any more.
    pub(super) fn check_ended(&self) {
        self.checks.set(self.checks.get().checked_sub(1).expect("U3: what ends has begun"));
        self.is_wanted.set(self.is_wanted.get() && self.checks.get() > 0);
        self.came();
    }

    /// Whether a write waits for what a check keeps.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.get()
    }

    /// U3: waits until no check is under way, or none keeps anything.
    async fn checks_end(&self, patience: &mut Patience, keeps_some: impl Fn() -> bool) {
        while self.checks.get() > 0 && keeps_some() {
            self.is_wanted.set(true);
            self.waiting.begin(patience);
            self.waiting.comes(patience).await;
        }
    }

    /// Room has come, or may be had.
    pub(super) fn came(&self) {
        self.waiting.came();
    }

    /// U4: a checkpoint may make room now.
    pub(super) fn may_come(&self) {
        if self.waiting.is_paused() {
            self.waiting.came();
        }
    }
}

impl Pool {
    /// Declares what becomes of writes that find no room. Those that wait try again, and then meet it.
    pub fn set_when_full(&self, policy: WhenFull) {
        self.room.waiting.set_policy(policy);
    }

    /// Whether a write waits for room.
    pub fn is_paused(&self) -> bool {
        self.room.waiting.is_paused()
    }

    /// Completes when something has happened that the owner should hear of; what nobody asks for is kept, up to a bound.
    pub async fn next_event(&self) -> PoolEvent {
        self.room.waiting.next_event().await
    }

    /// How much of what data may take is taken, in percent. What comes back with a checkpoint is not.
    pub fn percent(&self) -> u64 {
        let (free, floor) = (self.map.pages().free_blocks_after_commit(), self.floor_blocks());
        let room = self.end_block.get().saturating_sub(floor).max(1);
        (room - free.min(room)) * 100 / room
    }

    /// Completes when the pool is at least so full, in percent: the moment to make it larger, before a write waits.
    pub async fn filled(&self, percent: u64) {
        self.room.watch.filled(percent, || self.percent()).await;
    }

    /// U4: blocks for which a reader was waited for are free with the next checkpoint.
    pub(super) fn listen_to_readers(self: &Rc<Self>) {
        let pool = Rc::downgrade(self);
        let wake = move || pool.upgrade().into_iter().for_each(|pool| pool.room.may_come());
        self.map.pages().when_readers_end(Rc::new(wake));
    }

    /// Space was taken: those are told who wait until so much of it is.
    pub(super) fn notify_space(&self) {
        self.room.watch.notify(|| self.percent());
    }

    /// An attempt begins (U2).
    pub(super) fn begin_attempt(&self, attempt: &mut Attempt) {
        self.room.waiting.begin(&mut attempt.patience);
    }

    /// An attempt found no room: another one is worth while if this succeeds.
    pub(super) async fn make_room(&self, attempt: &mut Attempt) -> Result<(), IoError> {
        self.is_sound()?;
        if self.handover.borrow().is_some() {
            self.hand_over().await;
            return Ok(());
        }
        if self.readers_have_ended(attempt.needed) {
            return Ok(());
        }
        if attempt.checkpoints < CHECKPOINTS_MAX && self.comes_back(attempt.needed) {
            attempt.checkpoints += 1;
            self.join_commit(true).await?;
            self.hand_over().await;
            return Ok(());
        }
        match self.room.waiting.policy() {
            WhenFull::Error if self.room.checks.get() > 0 && !attempt.outlasted_check => {
                (attempt.checkpoints, attempt.outlasted_check) = (0, true);
                let keeps_some = || self.map.pages().reclaimable_blocks() > 0;
                self.room.checks_end(&mut attempt.patience, keeps_some).await;
                Ok(())
            }
            WhenFull::Error => Err(IoError::NoSpace),
            WhenFull::Pause { timeout } => {
                attempt.checkpoints = 0;
                self.room.waiting.wait(&self.clock, &mut attempt.patience, timeout).await
            }
        }
    }

    /// Whether there is room for `needed` blocks without a checkpoint, now that some have ended who read what was freed.
    fn readers_have_ended(&self, needed: u64) -> bool {
        let mut pages = self.map.pages();
        let before = pages.free_blocks();
        pages.reclaim();
        let after = pages.free_blocks();
        assert!(after >= before, "U4: what comes back is free");
        after > before && after >= needed
    }

    /// U5: whether a checkpoint brings back what data may take, and enough for `needed` blocks.
    fn comes_back(&self, needed: u64) -> bool {
        let pages = self.map.pages();
        let free = pages.free_blocks_with_next_commit();
        free > pages.free_blocks() && free >= needed
    }

    /// T8: before anything that needs nodes.
    pub(super) async fn keep_metadata_room(&self) -> Result<(), IoError> {
        if self.is_metadata_tight() && self.last_failure().is_none() {
            self.join_commit(true).await?;
            self.hand_over().await;
        } else if self.is_memory_short() {
            self.join_commit(false).await?;
        }
        Ok(())
    }
}
