//! Whether a disk answers: how many operations it has under way, and since when none of them was answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A request that is under way for so long is slow.
const SLOW: Duration = Duration::from_secs(1);

/// Counted by all shards.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    under_way: AtomicU64,
    /// The tick of the coarse clock at which the last one was answered, or at which the first one began after a rest.
    last: AtomicU64,
    /// Operations that were answered, and took [`SLOW`] or longer.
    slow: AtomicU64,
    /// Operations under way whose answer no task awaits (LANE3 of `lane.rs`).
    pub(crate) abandoned: Arc<AtomicU64>,
}

impl Answers {
    /// An operation begins.
    pub(crate) fn begin(&self, tick: u64) {
        // The tick first: a disk that rested has not been silent.
        if self.under_way.load(Ordering::Acquire) == 0 {
            self.last.store(tick, Ordering::Release);
        }
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    /// One that began at `begun` was answered.
    pub(crate) fn end(&self, begun: u64, tick: u64) {
        if u128::from(tick.saturating_sub(begun)) >= SLOW.as_nanos() {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        if self.last.load(Ordering::Relaxed) != tick {
            self.last.store(tick, Ordering::Release);
        }
        let before = self.under_way.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "what is answered was begun");
    }

    /// How many were slow.
    pub(super) fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    /// For how long operations are under way and none was answered.
    pub(super) fn silence(&self, tick: u64) -> Duration {
        if self.under_way.load(Ordering::Acquire) == 0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(tick.saturating_sub(self.last.load(Ordering::Acquire)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_silent_while_operations_wait_and_none_is_answered() {
        let answers = Answers::default();
        assert_eq!(answers.silence(100), Duration::ZERO, "nothing is under way");
        answers.begin(100);
        answers.begin(150);
        assert_eq!(answers.silence(160), Duration::from_nanos(60));
        answers.end(100, 170);
        assert_eq!(
            answers.silence(180),
            Duration::from_nanos(10),
            "the other one waits since the last answer"
        );
        answers.end(150, 190);
        assert_eq!(answers.silence(900), Duration::ZERO);
        answers.begin(900);
        assert_eq!(answers.silence(901), Duration::from_nanos(1), "a rest is no silence");
    }

    #[test]
    fn an_operation_that_took_long_is_counted_when_it_is_answered() {
        let answers = Answers::default();
        let long = u64::try_from(SLOW.as_nanos()).expect("a second");
        [5, 6, 7].into_iter().for_each(|tick| answers.begin(tick));
        answers.end(6, 6 + long - 1);
        assert_eq!(answers.slow(), 0);
        answers.end(5, 5 + long);
        answers.end(7, 10 * long);
        assert_eq!(answers.slow(), 2);
    }
}
