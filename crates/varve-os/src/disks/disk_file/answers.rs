//! Whether a disk answers: how many operations it has under way, and since when none of them was answered.

use crate::disks::operation::{Answer, DiskAction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_block::host::DiskCounters;
use varve_block::{Moment, SharedLatencies, Timed};

/// A request that is under way for so long is slow.
const SLOW: Duration = Duration::from_secs(1);

/// Counted by all shards.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    under_way: AtomicU64,
    /// When the last one was answered, or the first one began after a rest; nanoseconds of the monotonic clock.
    last: AtomicU64,
    /// Operations that were answered, and took [`SLOW`] or longer.
    slow: AtomicU64,
    /// Those that were answered, as [`kind`] numbers them.
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

    /// What `action`, which began at `begun`, was answered.
    pub(crate) fn count(&self, action: &DiskAction, answer: Answer, begun: u64, now: u64) {
        let (kind, timed) = kind(action);
        self.answered[kind].fetch_add(1, Ordering::Relaxed);
        if let (Some(bytes), Ok(count)) = (self.bytes.get(kind), answer) {
            bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
        if let Some(timed) = timed {
            self.latencies.record(timed, Moment(begun), Moment(now));
        }
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

/// The number of a kind of action; and what its latency is counted as, if it is.
fn kind(action: &DiskAction) -> (usize, Option<Timed>) {
    match action {
        DiskAction::Read { .. } => (0, Some(Timed::Read)),
        DiskAction::Write { .. } => (1, Some(Timed::Write)),
        DiskAction::Flush => (2, Some(Timed::Flush)),
        DiskAction::Allocate { .. } | DiskAction::Discard { .. } => (3, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use varve_block::{Arena, Extent};

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
        let (answers, arena) = (Answers::default(), Arena::heap(1 << 16));
        let read = DiskAction::Read { offset: 0, buffer: arena.take(4096), done: 0 };
        let write = DiskAction::Write { offset: 0, data: arena.copy(&[1; 512]), done: 0, durable: true };
        answers.begin(0);
        answers.count(&read, Ok(4096), 0, 40_000);
        answers.count(&read, Err(Errno::IO), 0, 20_000);
        answers.count(&write, Ok(512), 0, 5);
        answers.count(&DiskAction::Flush, Ok(0), 0, 10);
        answers.count(&DiskAction::Discard { extent: Extent::new(0, 512) }, Ok(512), 0, 10);
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
