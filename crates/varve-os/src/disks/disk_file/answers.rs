//! Whether a disk answers: how many operations it has under way, and since when none of them was answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_block::host::DiskCounters;
use varve_block::{Moment, SharedLatencies, Timed};

/// A request that is under way for so long is slow.
const SLOW: Duration = Duration::from_secs(1);

/// What is counted apart; those that move bytes first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answered {
    Read,
    Write,
    Flush,
    /// Discards, and what changes allocation.
    Discard,
}

/// Counted by all shards.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    under_way: AtomicU64,
    /// When the last one was answered, or the first one began after a rest; nanoseconds of the monotonic clock.
    last: AtomicU64,
    /// Operations that were answered, and took [`SLOW`] or longer.
    slow: AtomicU64,
    /// Those that were answered, by [`Answered`].
    answered: [AtomicU64; 4],
    /// Bytes that reads brought and writes stored.
    bytes: [AtomicU64; 2],
    latencies: SharedLatencies,
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

    /// An operation that began at `begun` was answered, and moved `bytes`.
    pub(crate) fn count(&self, kind: Answered, bytes: u64, begun: u64, now: u64) {
        self.answered[kind as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(moved) = self.bytes.get(kind as usize) {
            moved.fetch_add(bytes, Ordering::Relaxed);
        }
        let timed = match kind {
            Answered::Read => Timed::Read,
            Answered::Write => Timed::Write,
            Answered::Flush => Timed::Flush,
            Answered::Discard => return,
        };
        self.latencies.record(timed, Moment(begun), Moment(now));
    }

    /// What was counted here until now.
    pub(super) fn counters(&self) -> DiskCounters {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let [reads, writes, flushes, discards] = self.answered.each_ref().map(load);
        let [read_bytes, written_bytes] = self.bytes.each_ref().map(load);
        DiskCounters {
            slow: load(&self.slow),
            reads,
            read_bytes,
            writes,
            written_bytes,
            flushes,
            discards,
            in_flight: load(&self.under_way),
            latencies: self.latencies.now(),
            ..DiskCounters::default()
        }
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
        assert_eq!(answers.counters().slow, 0);
        answers.end(5, 5 + long);
        answers.end(7, 10 * long);
        assert_eq!(answers.counters().slow, 2);
    }

    #[test]
    fn what_was_answered_is_counted_by_kind_with_its_bytes_and_latency() {
        let answers = Answers::default();
        answers.begin(0);
        answers.count(Answered::Read, 4096, 0, 40_000);
        answers.count(Answered::Read, 0, 0, 20_000);
        answers.count(Answered::Write, 512, 0, 5);
        answers.count(Answered::Flush, 0, 0, 10);
        answers.count(Answered::Discard, 512, 0, 10);
        let counted = answers.counters();
        assert_eq!((counted.reads, counted.read_bytes), (2, 4096), "one of them has failed");
        assert_eq!((counted.writes, counted.written_bytes), (1, 512));
        assert_eq!((counted.flushes, counted.discards, counted.in_flight), (1, 1, 1));
        let latencies = counted.latencies;
        assert_eq!((latencies.reads.counts[0], latencies.reads.counts[1]), (1, 1));
        assert_eq!(latencies.reads.nanoseconds, 60_000);
        assert_eq!((latencies.writes.count(), latencies.flushes.count()), (1, 1));
    }
}
