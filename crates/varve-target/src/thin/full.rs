//! What happens to a write that finds no room.
//!
//! Blocks that were freed come back with a checkpoint; that is tried first. Overwrites of a volume's own blocks, trims
//! and removals never come here.
//!
//! Invariant U1: whoever waits here holds neither a ticket nor a place inside a gate, so that checkpoints, clones and
//! removals go on.

use super::Pool;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;
use varve_block::{IoError, Moment, timeout};

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

/// Who waits for room.
#[derive(Default)]
pub(super) struct Room {
    arrivals: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

/// What one write knows of its attempts.
#[derive(Default)]
pub(super) struct Attempt {
    arrivals: u64,
    checkpoints: u32,
    deadline: Option<Moment>,
}

impl Room {
    /// Room has come, or may be had.
    pub(super) fn came(&self) {
        self.arrivals.set(self.arrivals.get() + 1);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    async fn comes(&self, seen: u64) {
        poll_fn(|context| {
            if self.arrivals.get() != seen {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Pool {
    /// An attempt begins.
    pub(super) fn begin_attempt(&self, attempt: &mut Attempt) {
        attempt.arrivals = self.room.arrivals.get();
    }

    /// An attempt found no room: another one is worth while if this succeeds.
    pub(super) async fn make_room(&self, attempt: &mut Attempt) -> Result<(), IoError> {
        self.is_sound()?;
        if self.handover.borrow().is_some() {
            self.hand_over().await;
            return Ok(());
        }
        if attempt.checkpoints < CHECKPOINTS_MAX && self.map.pages().free_blocks_after_commit() > 0 {
            attempt.checkpoints += 1;
            self.join_commit(true).await?;
            self.hand_over().await;
            return Ok(());
        }
        match self.options.when_full {
            WhenFull::Error => Err(IoError::NoSpace),
            WhenFull::Pause { timeout: limit } => {
                let now = self.clock.now();
                let deadline = *attempt.deadline.get_or_insert(now.after(limit));
                let came = timeout(&self.clock, deadline.since(now), self.room.comes(attempt.arrivals)).await;
                attempt.checkpoints = 0;
                came.ok_or(IoError::NoSpace)
            }
        }
    }

    /// T8: before anything that needs nodes.
    pub(super) async fn keep_metadata_room(&self) -> Result<(), IoError> {
        if self.is_metadata_tight() && self.failed.get().is_none() {
            self.join_commit(true).await?;
            self.hand_over().await;
        }
        Ok(())
    }
}
