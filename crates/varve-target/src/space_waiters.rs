//! Waiters for space in a store or pool that is full, the policy for that, and the events for the owner.
//!
//! Invariants:
//! - WAITERS1. Room that came after an attempt began is never slept through: arrivals are counted, and the count of before
//!   the attempt is compared.
//! - WAITERS2. The owner is notified when the first waiter begins to wait, and when the last waits no more, however that ends.
//! - WAITERS3. After one request has waited in vain none waits until there is room: a client that goes on after an error is not
//!   kept for as long by each of its requests.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;
use varve_block::{Clock, IoError, Moment, Notify, timeout};

/// How many events wait for a listener; then the oldest are dropped.
const EVENTS_MAX: usize = 256;

/// An event for the owner of a store or pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceEvent<D> {
    /// A write waits for room, the first one.
    Paused,
    /// No write waits for room any more.
    Resumed,
    /// A write waited in vain and failed.
    TimedOut,
    /// This was dropped to make room.
    Dropped(D),
}

/// Waiters for space, with a policy `P`, where `D` is dropped to make some.
pub(crate) struct SpaceWaiters<P, D> {
    /// What is full.
    vessel: &'static str,
    policy: Cell<P>,
    arrivals: Cell<u64>,
    /// A request failed for want of space, and no room was found since; with the arrivals of then (WAITERS3).
    refused: Cell<Option<u64>>,
    waiting: Notify,
    paused: Cell<usize>,
    events: RefCell<VecDeque<SpaceEvent<D>>>,
    listening: Notify,
}

/// How long one request has waited for space.
#[derive(Default)]
pub(crate) struct SpaceWait {
    /// How often space had come when the attempt began.
    arrivals: u64,
    /// Until when it waits, once it does.
    deadline: Option<Moment>,
}

impl<P: Copy + PartialEq, D: Debug> SpaceWaiters<P, D> {
    pub(crate) fn new(vessel: &'static str, policy: P) -> Self {
        Self {
            vessel,
            policy: Cell::new(policy),
            arrivals: Cell::new(0),
            refused: Cell::new(None),
            waiting: Notify::default(),
            paused: Cell::new(0),
            events: RefCell::default(),
            listening: Notify::default(),
        }
    }

    pub(crate) fn policy(&self) -> P {
        self.policy.get()
    }

    /// Declares another policy. The waiters try again, and then meet it.
    pub(crate) fn set_policy(&self, policy: P) {
        if self.policy.replace(policy) != policy {
            self.room_came();
        }
    }

    /// Whether there are waiters.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.get() > 0
    }

    /// Whether a request failed for want of space, and nothing that may be room has come since.
    pub(crate) fn is_refusing(&self) -> bool {
        self.refused.get() == Some(self.arrivals.get())
    }

    /// A request fails for want of space.
    pub(crate) fn refuse(&self) -> IoError {
        self.refused.set(Some(self.arrivals.get()));
        self.waiting.notify_all(); // WAITERS3
        IoError::NoSpace
    }

    /// A request that needs room has found it.
    pub(crate) fn found_room(&self) {
        self.refused.set(None);
    }

    /// There is more room, or another way to get it.
    pub(crate) fn room_came(&self) {
        self.found_room();
        self.notify();
    }

    /// Space may be free.
    pub(crate) fn notify(&self) {
        self.arrivals.set(self.arrivals.get() + 1);
        self.waiting.notify_all();
    }

    /// An attempt begins (WAITERS1).
    pub(crate) fn begin(&self, state: &mut SpaceWait) {
        state.arrivals = self.arrivals.get();
    }

    /// Whether room has come since the attempt began.
    pub(crate) fn was_notified(&self, state: &SpaceWait) -> bool {
        self.arrivals.get() != state.arrivals
    }

    /// Waits until room comes; at most `limit` in all for a waiter that waits again and again, and not at all after another one has
    /// waited in vain (WAITERS3).
    pub(crate) async fn wait(
        &self,
        clock: &Clock,
        state: &mut SpaceWait,
        limit: Duration,
    ) -> Result<(), IoError> {
        if self.refused.get().is_some() && !self.was_notified(state) {
            return Err(self.refuse());
        }
        let _paused = Paused::new(self);
        let now = clock.now();
        let deadline = *state.deadline.get_or_insert(now.after(limit));
        let ended = self.waiting.until(|| self.was_notified(state) || self.refused.get().is_some());
        let _in_time = timeout(clock, deadline.since(now), ended).await;
        if self.was_notified(state) {
            return Ok(()); // WAITERS1
        }
        let error = self.refuse();
        self.tell(SpaceEvent::TimedOut);
        Err(error)
    }

    /// Waits until room comes, or has come since the attempt began.
    pub(crate) async fn notified(&self, state: &SpaceWait) {
        assert!(state.arrivals <= self.arrivals.get(), "WAITERS1: the attempt began before");
        self.waiting.until(|| self.was_notified(state)).await;
    }

    /// Notifies the owner of an event.
    pub(crate) fn tell(&self, event: SpaceEvent<D>) {
        match event {
            SpaceEvent::Resumed => tracing::info!("{} has room again", self.vessel),
            _ => tracing::warn!(?event, "{} is full", self.vessel),
        }
        let mut events = self.events.borrow_mut();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
        drop(events);
        self.assert_consistent();
        self.listening.notify_all();
    }

    /// Events are bounded.
    fn assert_consistent(&self) {
        assert!(self.events.borrow().len() <= EVENTS_MAX, "WAITERS2: what nobody asks for is bounded");
    }

    /// Completes when something has happened; events that are not asked for are kept, up to a bound.
    pub(crate) async fn next_event(&self) -> SpaceEvent<D> {
        self.listening.next(|| self.events.borrow_mut().pop_front()).await
    }
}

/// One more waiter; notifies the owner when it is the first, and on drop when it was the last (WAITERS2).
struct Paused<'a, P: Copy + PartialEq, D: Debug>(&'a SpaceWaiters<P, D>);

impl<'a, P: Copy + PartialEq, D: Debug> Paused<'a, P, D> {
    fn new(waiters: &'a SpaceWaiters<P, D>) -> Self {
        if waiters.paused.replace(waiters.paused.get() + 1) == 0 {
            waiters.tell(SpaceEvent::Paused);
        }
        Paused(waiters)
    }
}

impl<P: Copy + PartialEq, D: Debug> Drop for Paused<'_, P, D> {
    fn drop(&mut self) {
        assert!(self.0.paused.get() > 0, "WAITERS2: who waits is counted");
        self.0.paused.set(self.0.paused.get() - 1);
        if self.0.paused.get() == 0 {
            self.0.tell(SpaceEvent::Resumed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::pin::pin;
    use varve_sim::World;

    #[test]
    fn room_that_came_during_an_attempt_is_not_slept_through_and_every_end_is_told() {
        let world = World::new(1);
        let (waiters, clock) = (SpaceWaiters::<u8, ()>::new("a thing", 0), world.clock());
        let limit = Duration::from_secs(1);
        world.run(async {
            let mut state = SpaceWait::default();
            waiters.begin(&mut state);
            waiters.notify();
            assert_eq!(waiters.wait(&clock, &mut state, limit).await, Ok(()), "WAITERS1");
            waiters.begin(&mut state);
            {
                let mut wait = pin!(waiters.wait(&clock, &mut state, limit));
                assert!((&mut wait).now_or_never().is_none() && waiters.is_paused());
                waiters.set_policy(1);
                assert_eq!(wait.await, Ok(()), "another policy is met");
            }
            waiters.begin(&mut state);
            assert_eq!(waiters.wait(&clock, &mut state, limit).await, Err(IoError::NoSpace));
            let mut state = SpaceWait::default();
            waiters.begin(&mut state);
            waiters.room_came();
            waiters.begin(&mut state);
            let _cancelled = waiters.wait(&clock, &mut state, limit).boxed_local().now_or_never();
            assert!(!waiters.is_paused(), "WAITERS2: one whose wait was cancelled");
            use SpaceEvent::{Paused, Resumed, TimedOut};
            for told in [Paused, Resumed, Paused, Resumed, Paused, TimedOut, Resumed, Paused, Resumed] {
                assert_eq!(waiters.next_event().now_or_never(), Some(told), "WAITERS2");
            }
        });
    }

    #[test]
    fn after_one_request_has_waited_in_vain_none_waits_until_room_comes() {
        let world = World::new(1);
        let (waiters, clock) = (SpaceWaiters::<u8, ()>::new("a thing", 0), world.clock());
        let limit = Duration::from_secs(20);
        let wait = async || {
            let (mut state, begun) = (SpaceWait::default(), clock.now());
            waiters.begin(&mut state);
            let ended = waiters.wait(&clock, &mut state, limit).await;
            (ended, clock.now().since(begun))
        };
        world.run(async {
            let later = async {
                clock.sleep(limit / 2).await;
                wait().await
            };
            let (first, second) = futures_util::future::join(wait(), later).await;
            assert_eq!((first, waiters.is_refusing()), ((Err(IoError::NoSpace), limit), true));
            assert_eq!(
                second,
                (Err(IoError::NoSpace), limit / 2),
                "WAITERS3: it waits no longer than the first"
            );
            for _ in 0..100 {
                assert_eq!(wait().await, (Err(IoError::NoSpace), Duration::ZERO), "WAITERS3");
            }
            waiters.notify();
            assert!(!waiters.is_refusing(), "there may be room");
            assert_eq!(wait().await, (Err(IoError::NoSpace), Duration::ZERO), "WAITERS3: there was none");
            waiters.room_came();
            assert_eq!(wait().await, (Err(IoError::NoSpace), limit), "there was room");
            waiters.found_room();
            assert_eq!(wait().await, (Err(IoError::NoSpace), limit), "there was room");
            while waiters.next_event().now_or_never().is_some() {}
        });
    }
}
