//! What happens to a change of the origin that needs a copy when the store has no room for it.
//!
//! Changes that need no copy, and removals, go on as ever: the reserve keeps blocks for the log. The origin is never
//! lost and no snapshot goes silently.
//!
//! Invariants:
//! - U1. Whoever waits for room is outside the gate for changes: snapshots are created and removed meanwhile.
//! - U2. Room that came after an attempt began is never slept through: arrivals are counted, and the count of before
//!   the attempt is compared.
//! - U3. One snapshot goes at a time, and none while room has come since the attempt that failed, or is about to: blocks
//!   that are free once somebody has read to the end are waited for, though not for ever.

use super::{SnapshotStore, StoreError};
use crate::pdata;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;
use varve_block::{Extent, IoError, LockMode, Moment, RangeLock, timeout};
use varve_format::store::{Descriptor, PART_SIZE};

/// How long somebody who reads keeps a snapshot from being given up.
const READERS_TIMEOUT: Duration = Duration::from_secs(60);
/// How many events wait for a listener; then the oldest are dropped.
const EVENTS_MAX: usize = 256;

/// What becomes of a change of the origin that needs a copy for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullPolicy {
    /// It waits until the store has grown or a snapshot was removed, at most so long; then it fails.
    Pause {
        /// How long one change waits in all.
        timeout: Duration,
    },
    /// The oldest snapshot that is not held goes, and then the next, until there is room.
    DropOldest,
    /// It fails with [`IoError::NoSpace`].
    Error,
}

impl Default for FullPolicy {
    fn default() -> Self {
        FullPolicy::Pause { timeout: Duration::from_secs(60) }
    }
}

/// What the owner of a store should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// A change of the origin waits for room, the first one.
    Paused,
    /// No change of the origin waits for room any more.
    Resumed,
    /// A change of the origin waited in vain and failed.
    TimedOut,
    /// A snapshot went to make room.
    Dropped(Descriptor),
}

/// Who waits for room, and what is to be told.
pub(super) struct Room {
    policy: Cell<FullPolicy>,
    arrivals: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
    paused: Cell<usize>,
    dropping: RangeLock,
    events: RefCell<VecDeque<StoreEvent>>,
    listening: RefCell<Vec<Waker>>,
}

/// What one change knows of its attempts.
#[derive(Default)]
pub(super) struct Attempt {
    /// How often room had come when the attempt began.
    arrivals: u64,
    /// Until when it waits, once it does.
    deadline: Option<Moment>,
}

impl Room {
    pub(super) fn new(policy: FullPolicy) -> Self {
        Self {
            policy: Cell::new(policy),
            arrivals: Cell::new(0),
            waiting: RefCell::default(),
            paused: Cell::new(0),
            dropping: RangeLock::new(),
            events: RefCell::default(),
            listening: RefCell::default(),
        }
    }

    /// Room has come, or can be had for a checkpoint.
    pub(super) fn came(&self) {
        self.arrivals.set(self.arrivals.get() + 1);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// An attempt begins (U2).
    pub(super) fn begin(&self, attempt: &mut Attempt) {
        attempt.arrivals = self.arrivals.get();
    }

    async fn comes(&self, attempt: &Attempt) {
        poll_fn(|context| {
            if self.arrivals.get() != attempt.arrivals {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn tell(&self, event: StoreEvent) {
        tracing::warn!(?event, "the exception store is full");
        let mut events = self.events.borrow_mut();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
        drop(events);
        self.listening.take().into_iter().for_each(Waker::wake);
    }
}

/// One more that waits; tells when it is the first, and on drop when it was the last.
struct Paused<'a>(&'a Room);

impl<'a> Paused<'a> {
    fn new(room: &'a Room) -> Self {
        if room.paused.replace(room.paused.get() + 1) == 0 {
            room.tell(StoreEvent::Paused);
        }
        Paused(room)
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        assert!(self.0.paused.get() > 0, "who waits is counted");
        self.0.paused.set(self.0.paused.get() - 1);
        if self.0.paused.get() == 0 {
            self.0.tell(StoreEvent::Resumed);
        }
    }
}

impl SnapshotStore {
    /// An attempt to preserve `bytes` bytes at most found no room: does what the policy says. Another attempt is worth
    /// while if this succeeds.
    pub(super) async fn make_room(&self, attempt: &mut Attempt, bytes: u64) -> Result<(), IoError> {
        match self.room.policy.get() {
            FullPolicy::Error => Err(IoError::NoSpace),
            FullPolicy::Pause { timeout } => self.wait_for_room(attempt, timeout).await,
            FullPolicy::DropOldest => self.drop_oldest(attempt, bytes).await,
        }
    }

    /// Declares another policy. Changes that wait try again, and then meet it.
    pub fn set_full_policy(&self, policy: FullPolicy) {
        if self.room.policy.replace(policy) != policy {
            self.room.came();
        }
    }

    /// Whether a change of the origin waits for room.
    pub fn is_paused(&self) -> bool {
        self.room.paused.get() > 0
    }

    async fn wait_for_room(&self, attempt: &mut Attempt, limit: Duration) -> Result<(), IoError> {
        let _paused = Paused::new(&self.room);
        let now = self.clock.now();
        let deadline = *attempt.deadline.get_or_insert(now.after(limit));
        let came = timeout(&self.clock, deadline.since(now), self.room.comes(attempt)).await;
        if came.is_none() {
            self.room.tell(StoreEvent::TimedOut);
            return Err(IoError::NoSpace);
        }
        Ok(())
    }

    async fn drop_oldest(&self, attempt: &Attempt, bytes: u64) -> Result<(), IoError> {
        let _alone = self.room.dropping.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        if self.room.arrivals.get() != attempt.arrivals {
            return Ok(()); // U3
        }
        if self.readers_make_room(attempt, bytes).await {
            return Ok(()); // U3
        }
        let target = self.rollback_status().map(|status| status.snapshot);
        let may_go = |descriptor: &Descriptor| !descriptor.held && target != Some(descriptor.id); // K2
        let oldest = self.list().into_iter().find(may_go).ok_or(IoError::NoSpace)?;
        match self.begin_removal(oldest.id).await {
            Ok(()) => {
                assert!(self.room.arrivals.get() > attempt.arrivals, "U3: a removal counts as room");
                self.room.tell(StoreEvent::Dropped(oldest));
                Ok(())
            }
            // Somebody else has removed or held it, or rolls back to it.
            Err(StoreError::NotFound | StoreError::Held | StoreError::Busy) => Ok(()),
            Err(StoreError::Io(error)) => Err(error),
            Err(_) => Err(IoError::NoSpace),
        }
    }

    /// Waits for those who read what is free otherwise, if that is enough for `bytes` bytes; whether they have ended.
    async fn readers_make_room(&self, attempt: &Attempt, bytes: u64) -> bool {
        let enough = {
            let mut pages = self.blocks.pages();
            let held = pages.held_blocks();
            pages.reclaim();
            if pages.held_blocks() < held {
                return true;
            }
            let bytes = bytes.min(self.options.batch_bytes);
            let wanted = bytes / PART_SIZE + self.blocks_for_nodes(&pages, 1, bytes);
            held > 0 && pages.room(pdata::Room::Ordinary) + held >= wanted
        };
        if !enough {
            return false;
        }
        timeout(&self.clock, READERS_TIMEOUT, self.room.comes(attempt)).await.is_some()
    }

    /// Completes when something has happened that the owner should hear of; what nobody asks for is kept, up to a
    /// bound.
    pub async fn next_event(&self) -> StoreEvent {
        poll_fn(|context| match self.room.events.borrow_mut().pop_front() {
            Some(event) => Poll::Ready(event),
            None => {
                self.room.listening.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}
