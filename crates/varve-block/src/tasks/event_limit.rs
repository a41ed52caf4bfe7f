//! Events that may come by the thousand: the first is reported at once, the others as a count now and then.
//!
//! Invariant EVENT1: every event is reported, alone or in the count of exactly one other; those after the last one reported are
//! left for [`EventLimit::take_rest`].

use crate::clock::Moment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Decides which events are reported. Shared by threads; an event that is not reported costs two atomic operations.
#[derive(Debug)]
pub struct EventLimit {
    interval: Duration,
    /// When the next event may be reported, in nanoseconds.
    due: AtomicU64,
    /// Events since the last one that was reported.
    untold: AtomicU64,
    total: AtomicU64,
}

impl EventLimit {
    /// Reports one event per `interval` at most.
    pub const fn new(interval: Duration) -> Self {
        Self { interval, due: AtomicU64::new(0), untold: AtomicU64::new(0), total: AtomicU64::new(0) }
    }

    /// Counts an event. If it is to be reported: the number of events before it that were not.
    pub fn note(&self, now: Moment) -> Option<u64> {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.untold.fetch_add(1, Ordering::Relaxed);
        let due = self.due.load(Ordering::Relaxed);
        let next = now.after(self.interval).0;
        let is_told = now.0 >= due
            && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // EVENT1: another thread may have counted this one with its own.
        is_told.then(|| self.untold.swap(0, Ordering::Relaxed).saturating_sub(1))
    }

    /// The number of events that were not reported; they count as reported now.
    pub fn take_rest(&self) -> u64 {
        self.untold.swap(0, Ordering::Relaxed)
    }

    /// The number of all events.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_is_told_at_once_and_the_others_are_counted() {
        let limit = EventLimit::new(Duration::from_secs(10));
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        assert_eq!(limit.note(at(5)), Some(0));
        for _ in 0..1000 {
            assert_eq!(limit.note(at(6)), None);
        }
        assert_eq!(limit.note(at(14)), None);
        assert_eq!(limit.note(at(15)), Some(1001), "EVENT1");
        assert_eq!(limit.note(at(16)), None);
        assert_eq!((limit.take_rest(), limit.take_rest()), (1, 0), "EVENT1");
        assert_eq!(limit.note(at(100)), Some(0));
        assert_eq!(limit.total(), 1005);
    }
}
