//! What happens to a change of the origin that needs a copy when the store has no room for it.
//!
//! Changes that need no copy, and removals, go on as ever: the reserve keeps blocks for the log. The origin is never
//! lost and no snapshot goes silently.
//!
//! Invariants:
//! - STOREFULL1. A change that waits for room is outside the gate for changes: snapshots are created and removed meanwhile.
//! - STOREFULL2. Room that came after an attempt began is never slept through (WAITERS1 of `space_waiters.rs`).
//! - STOREFULL3. One snapshot goes at a time, and none while room has come since the attempt that failed, or is about to: blocks
//!   that are free once reads under way have ended are waited for, though not for ever.

use super::super::{SnapshotStore, StoreError};
use super::space::{FullPolicy, READERS_TIMEOUT, StoreEvent};
use crate::pdata;
use crate::space_waiters::SpaceWait;
use varve_block::{Extent, IoError, LockMode, timeout};
use varve_format::store::{Descriptor, PART_SIZE};

impl SnapshotStore {
    /// An attempt to preserve `bytes` bytes at most found no room: does what the policy says. Another attempt is worth
    /// while if this succeeds.
    pub(in crate::snapshot) async fn make_room(
        &self,
        wait: &mut SpaceWait,
        bytes: u64,
    ) -> Result<(), IoError> {
        let queue = &self.waiters.queue;
        match queue.policy() {
            FullPolicy::Error => Err(queue.refuse()),
            FullPolicy::Pause { timeout } => queue.wait(&self.clock, wait, timeout).await,
            FullPolicy::DropOldest => self.drop_oldest(wait, bytes).await,
        }
    }

    /// Declares another policy. Changes that wait try again, and then meet it.
    pub fn set_full_policy(&self, policy: FullPolicy) {
        self.waiters.queue.set_policy(policy);
    }

    /// Whether a change of the origin waits for room.
    pub fn is_paused(&self) -> bool {
        self.waiters.queue.is_paused()
    }

    /// Whether a change failed for want of room, and none has come since.
    pub fn is_refusing(&self) -> bool {
        self.waiters.queue.is_refusing()
    }

    /// A change of the origin or of a snapshot fails for want of room.
    pub fn refuse_for_space(&self) -> IoError {
        self.waiters.queue.refuse()
    }

    async fn drop_oldest(&self, wait: &SpaceWait, bytes: u64) -> Result<(), IoError> {
        let _alone = self.waiters.dropping.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        if self.waiters.queue.was_notified(wait) {
            return Ok(()); // STOREFULL3
        }
        if self.readers_make_room(wait, bytes).await {
            return Ok(()); // STOREFULL3
        }
        let target = self.rollback_status().map(|status| status.snapshot);
        let may_go = |descriptor: &Descriptor| {
            !descriptor.held && !descriptor.base && target != Some(descriptor.id) // ROLLBACK2
        };
        let oldest = self.list().into_iter().find(may_go).ok_or_else(|| self.refuse_for_space())?;
        match self.begin_removal(oldest.id).await {
            Ok(()) => {
                assert!(self.waiters.queue.was_notified(wait), "STOREFULL3: a removal counts as room");
                self.waiters.queue.tell(StoreEvent::Dropped(oldest));
                Ok(())
            }
            // Another task has removed or held it, or rolls back to it.
            Err(StoreError::NotFound | StoreError::Held | StoreError::Busy) => Ok(()),
            Err(StoreError::Io(error)) => Err(error),
            Err(_) => Err(IoError::NoSpace),
        }
    }

    /// Waits for reads of blocks that are free otherwise, if these are enough for `bytes` bytes; whether the reads have ended.
    async fn readers_make_room(&self, wait: &SpaceWait, bytes: u64) -> bool {
        let enough = {
            let mut pages = self.blocks.pages();
            let held = pages.held_blocks();
            pages.reclaim();
            if pages.held_blocks() < held {
                return true;
            }
            let bytes = bytes.min(self.options.batch_bytes);
            let wanted = bytes / PART_SIZE + self.blocks_for_nodes(&pages, 1, bytes);
            held > 0 && pages.available(pdata::AllocClass::Normal) + held >= wanted
        };
        if !enough {
            return false;
        }
        timeout(&self.clock, READERS_TIMEOUT, self.waiters.queue.notified(wait)).await.is_some()
    }

    /// Completes with the next event for the owner; events that are not fetched are kept, up to a bound.
    pub async fn next_event(&self) -> StoreEvent {
        self.waiters.queue.next_event().await
    }
}
