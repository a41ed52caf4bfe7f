//! What happens to a write that finds no room.
//!
//! Blocks that were freed come back with a checkpoint; that is tried first. Overwrites of a volume's own blocks, trims
//! and removals never come here.
//!
//! Invariants:
//! - POOLFULL1. A write that waits here holds neither an epoch guard nor a place inside a gate, so that checkpoints, clones and
//!   removals go on.
//! - POOLFULL2. Room that came after an attempt began is never slept through (WAITERS1 of `space_waiters.rs`).
//! - POOLFULL4. A waiting write is woken by every event that makes room, or that lets a checkpoint make some: blocks that were
//!   freed, taken in vain, or passed down, the end of a check or of a reader, a larger pool, another policy.
//! - POOLFULL5. An event that made no room wakes no write, and no checkpoint is asked for that would not make enough: writes that
//!   wait do not keep each other, or the disk, busy.
//! - POOLFULL3. No write fails for what a check or a walk keeps in place: before it is refused it asks for that, and waits.

use super::Pool;
use super::space::{Attempt, CHECKPOINTS_MAX, PoolEvent, WhenFull};
use std::rc::Rc;
use varve_block::IoError;

impl Pool {
    /// Declares what becomes of writes that find no room. Those that wait try again, and then meet it.
    pub fn set_when_full(&self, policy: WhenFull) {
        self.waiters.queue.set_policy(policy);
    }

    /// Whether a write waits for room.
    pub fn is_paused(&self) -> bool {
        self.waiters.queue.is_paused()
    }

    /// Whether a write failed for want of room, and none has come since.
    pub fn is_refusing(&self) -> bool {
        self.waiters.queue.is_refusing()
    }

    /// Completes with an event for the owner; events that are not asked for are kept, up to a bound.
    pub async fn next_event(&self) -> PoolEvent {
        self.waiters.queue.next_event().await
    }

    /// How much of what data may take is taken, in percent. What comes back with a checkpoint is not.
    pub fn percent(&self) -> u64 {
        let (free, floor) = (self.map.pages().free_blocks_after_commit(), self.floor_blocks());
        let room = self.end_block.get().number().saturating_sub(floor).max(1);
        (room - free.min(room)) * 100 / room
    }

    /// Completes when the pool is at least so full, in percent: the moment to make it larger, before a write waits.
    pub async fn filled(&self, percent: u64) {
        self.waiters.watch.filled(percent, || self.percent()).await;
    }

    /// POOLFULL4: blocks for which a reader was waited for are free with the next checkpoint.
    pub(super) fn listen_to_readers(self: &Rc<Self>) {
        let pool = Rc::downgrade(self);
        let wake = move || pool.upgrade().into_iter().for_each(|pool| pool.waiters.notify_if_waiting());
        self.map.pages().when_readers_end(Rc::new(wake));
    }

    /// Space was taken: tasks that wait until so much of it is are woken.
    pub(super) fn notify_space(&self) {
        self.waiters.watch.notify(|| self.percent());
    }

    /// An attempt begins (POOLFULL2).
    pub(super) fn begin_try(&self, attempt: &mut Attempt) {
        self.waiters.queue.begin(&mut attempt.wait);
    }

    /// An attempt found no room: another one is worth while if this succeeds.
    pub(super) async fn make_room(&self, attempt: &mut Attempt) -> Result<(), IoError> {
        self.is_sound()?;
        if self.pending_free.borrow().is_some() {
            self.free_pending().await;
            return Ok(());
        }
        if self.readers_have_ended(attempt.needed) {
            return Ok(());
        }
        if attempt.checkpoints < CHECKPOINTS_MAX && self.comes_back(attempt.needed) {
            attempt.checkpoints += 1;
            assert!(attempt.checkpoints <= CHECKPOINTS_MAX, "POOLFULL5: a write in vain asks for few");
            self.join_commit(true).await?;
            self.free_pending().await;
            return Ok(());
        }
        match self.waiters.queue.policy() {
            WhenFull::Error if self.waiters.checks.get() > 0 && !attempt.outlasted_check => {
                (attempt.checkpoints, attempt.outlasted_check) = (0, true);
                let keeps_some = || self.map.pages().reclaimable_blocks() > 0;
                self.waiters.checks_end(&mut attempt.wait, keeps_some).await;
                Ok(())
            }
            WhenFull::Error => Err(self.waiters.queue.refuse()),
            WhenFull::Pause { timeout } => {
                attempt.checkpoints = 0;
                self.waiters.queue.wait(&self.clock, &mut attempt.wait, timeout).await
            }
        }
    }

    /// Whether there is room for `needed` blocks without a checkpoint, now that some readers of freed blocks have ended.
    fn readers_have_ended(&self, needed: u64) -> bool {
        let mut pages = self.map.pages();
        let before = pages.free_blocks();
        pages.reclaim();
        let after = pages.free_blocks();
        assert!(after >= before, "POOLFULL4: what comes back is free");
        after > before && after >= needed
    }

    /// POOLFULL5: whether a checkpoint brings back what data may take, and enough for `needed` blocks.
    fn comes_back(&self, needed: u64) -> bool {
        let pages = self.map.pages();
        let free = pages.free_blocks_with_next_commit();
        free > pages.free_blocks() && free >= needed
    }

    /// THIN8: before anything that needs nodes.
    pub(super) async fn keep_metadata_room(&self) -> Result<(), IoError> {
        if self.is_metadata_tight() && self.last_failure().is_none() {
            self.join_commit(true).await?;
            self.free_pending().await;
        } else if self.is_memory_short() {
            self.join_commit(false).await?;
        }
        Ok(())
    }
}
