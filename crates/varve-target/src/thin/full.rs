//! What happens to a write that finds no room.
//!
//! Blocks that were freed come back with a checkpoint; that is tried first. Overwrites of a volume's own blocks, trims
//! and removals never come here.
//!
//! Invariants:
//! - U1. Whoever waits here holds neither a ticket nor a place inside a gate, so that checkpoints, clones and removals
//!   go on.
//! - U2. Room that came after an attempt began is never slept through: arrivals are counted, and the count of before
//!   the attempt is compared.

use super::Pool;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;
use varve_block::{IoError, Moment, timeout};

/// How often one write has freed blocks brought back before it takes the pool for full.
const CHECKPOINTS_MAX: u32 = 2;
/// How many events wait for a listener; then the oldest are dropped.
const EVENTS_MAX: usize = 256;

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

/// Who waits for room, and what is to be told.
pub(super) struct Room {
    policy: Cell<WhenFull>,
    arrivals: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
    paused: Cell<usize>,
    events: RefCell<VecDeque<PoolEvent>>,
    listening: RefCell<Vec<Waker>>,
    /// Who waits until the pool is so full, in percent.
    filling: RefCell<Vec<(u64, Waker)>>,
}

/// What one write knows of its attempts.
#[derive(Default)]
pub(super) struct Attempt {
    arrivals: u64,
    checkpoints: u32,
    deadline: Option<Moment>,
}

impl Room {
    pub(super) fn new(policy: WhenFull) -> Self {
        Self {
            policy: Cell::new(policy),
            arrivals: Cell::new(0),
            waiting: RefCell::default(),
            paused: Cell::new(0),
            events: RefCell::default(),
            listening: RefCell::default(),
            filling: RefCell::default(),
        }
    }

    fn tell(&self, event: PoolEvent) {
        tracing::warn!(?event, "the pool is full");
        let mut events = self.events.borrow_mut();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
        drop(events);
        self.listening.take().into_iter().for_each(Waker::wake);
    }

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

/// One more that waits; tells when it is the first, and on drop when it was the last.
struct Paused<'a>(&'a Room);

impl<'a> Paused<'a> {
    fn new(room: &'a Room) -> Self {
        if room.paused.replace(room.paused.get() + 1) == 0 {
            room.tell(PoolEvent::Paused);
        }
        Paused(room)
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        assert!(self.0.paused.get() > 0, "who waits is counted");
        self.0.paused.set(self.0.paused.get() - 1);
        if self.0.paused.get() == 0 {
            self.0.tell(PoolEvent::Resumed);
        }
    }
}

impl Pool {
    /// Declares what becomes of writes that find no room. Those that wait try again, and then meet it.
    pub fn set_when_full(&self, policy: WhenFull) {
        if self.room.policy.replace(policy) != policy {
            self.room.came();
        }
    }

    /// Whether a write waits for room.
    pub fn is_paused(&self) -> bool {
        self.room.paused.get() > 0
    }

    /// Completes when something has happened that the owner should hear of; what nobody asks for is kept, up to a bound.
    pub async fn next_event(&self) -> PoolEvent {
        poll_fn(|context| match self.room.events.borrow_mut().pop_front() {
            Some(event) => Poll::Ready(event),
            None => {
                self.room.listening.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// How much of what data may take is taken, in percent. What comes back with a checkpoint is not.
    pub fn percent(&self) -> u64 {
        let (free, floor) = (self.map.pages().free_blocks_after_commit(), self.floor_blocks());
        let room = self.end_block.get().saturating_sub(floor).max(1);
        (room - free.min(room)) * 100 / room
    }

    /// Completes when the pool is at least so full, in percent: the moment to make it larger, before a write waits.
    pub async fn filled(&self, percent: u64) {
        poll_fn(|context| {
            if self.percent() >= percent {
                return Poll::Ready(());
            }
            let mut filling = self.room.filling.borrow_mut();
            if !filling.iter().any(|known| known.0 == percent && known.1.will_wake(context.waker())) {
                filling.push((percent, context.waker().clone()));
            }
            Poll::Pending
        })
        .await;
    }

    /// Space was taken: those are told who wait until so much of it is.
    pub(super) fn notify_space(&self) {
        let mut filling = self.room.filling.borrow_mut();
        if filling.is_empty() {
            return;
        }
        let percent = self.percent();
        let due: Vec<(u64, Waker)> = filling.extract_if(.., |known| known.0 <= percent).collect();
        drop(filling);
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// An attempt begins (U2).
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
        match self.room.policy.get() {
            WhenFull::Error => Err(IoError::NoSpace),
            WhenFull::Pause { timeout: limit } => {
                let _paused = Paused::new(&self.room);
                let now = self.clock.now();
                let deadline = *attempt.deadline.get_or_insert(now.after(limit));
                let came = timeout(&self.clock, deadline.since(now), self.room.comes(attempt.arrivals)).await;
                attempt.checkpoints = 0;
                if came.is_none() {
                    self.room.tell(PoolEvent::TimedOut);
                }
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
