//! How long requests take, counted in buckets of which each reaches twice as far as the one before.

use crate::clock::Moment;
use crate::io::Io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets of a latency; the last one has no bound.
pub const LATENCY_BUCKETS: usize = 21;
/// Microseconds up to which the first bucket reaches, as a power of two.
const FIRST_BOUND_LOG2: u32 = 5;

/// How long requests of one kind took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latency {
    /// Requests by bucket; each is in one.
    pub counts: [u64; LATENCY_BUCKETS],
    /// Nanoseconds that all took together.
    pub nanoseconds: u64,
}

impl Latency {
    /// How long a request of `bucket` took at most; of the last bucket there is no bound.
    pub fn bound(bucket: usize) -> Option<Duration> {
        let is_bounded = bucket + 1 < LATENCY_BUCKETS;
        is_bounded.then(|| Duration::from_micros(1 << (bucket + FIRST_BOUND_LOG2 as usize)))
    }

    /// One more request.
    pub fn record(&mut self, took: Duration) {
        let nanoseconds = whole_nanoseconds(took);
        self.counts[bucket(nanoseconds)] += 1;
        self.nanoseconds = self.nanoseconds.wrapping_add(nanoseconds);
    }

    /// How many requests.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

fn whole_nanoseconds(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

fn bucket(nanoseconds: u64) -> usize {
    let microseconds = nanoseconds.div_ceil(1000);
    let doublings = microseconds.saturating_sub(1).checked_ilog2().unwrap_or(0);
    let bucket = (doublings + 1).saturating_sub(FIRST_BOUND_LOG2);
    (bucket as usize).min(LATENCY_BUCKETS - 1)
}

/// The requests whose latency is counted; what a discard takes says more of the device than of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timed {
    /// Reads.
    Read,
    /// Writes, zeroes included.
    Write,
    /// Flushes.
    Flush,
}

impl Timed {
    /// What `io` is counted as.
    pub fn of(io: &Io) -> Option<Self> {
        match io {
            Io::Read { .. } => Some(Self::Read),
            Io::Write { .. } | Io::Zero { .. } => Some(Self::Write),
            Io::Flush => Some(Self::Flush),
            Io::Discard { .. } => None,
        }
    }
}

/// How long requests took, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latencies {
    /// Reads.
    pub reads: Latency,
    /// Writes, zeroes included.
    pub writes: Latency,
    /// Flushes.
    pub flushes: Latency,
}

impl Latencies {
    /// One more request, from `begun` to `now`.
    pub fn record(&mut self, kind: Timed, begun: Moment, now: Moment) {
        let latency = match kind {
            Timed::Read => &mut self.reads,
            Timed::Write => &mut self.writes,
            Timed::Flush => &mut self.flushes,
        };
        latency.record(now.since(begun));
    }
}

/// The same while several threads count.
#[derive(Debug, Default)]
pub struct SharedLatencies {
    counts: [[AtomicU64; LATENCY_BUCKETS]; 3],
    nanoseconds: [AtomicU64; 3],
}

impl SharedLatencies {
    /// One more request, from `begun` to `now`.
    pub fn record(&self, kind: Timed, begun: Moment, now: Moment) {
        let nanoseconds = whole_nanoseconds(now.since(begun));
        self.counts[kind as usize][bucket(nanoseconds)].fetch_add(1, Relaxed);
        self.nanoseconds[kind as usize].fetch_add(nanoseconds, Relaxed);
    }

    /// What was counted until now.
    pub fn now(&self) -> Latencies {
        let latency = |kind: Timed| Latency {
            counts: std::array::from_fn(|bucket| self.counts[kind as usize][bucket].load(Relaxed)),
            nanoseconds: self.nanoseconds[kind as usize].load(Relaxed),
        };
        let (reads, writes, flushes) = (latency(Timed::Read), latency(Timed::Write), latency(Timed::Flush));
        Latencies { reads, writes, flushes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_in_the_first_bucket_that_reaches_as_far_as_it_took() {
        let in_bucket = |nanoseconds: u64| {
            let mut latency = Latency::default();
            latency.record(Duration::from_nanos(nanoseconds));
            assert_eq!((latency.count(), latency.nanoseconds), (1, nanoseconds));
            latency.counts.iter().position(|count| *count == 1).expect("it is in one")
        };
        for nanoseconds in [0, 1, 31_999, 32_000, 32_001, 64_000, 64_001, 1_000_000, 16_777_216_000, u64::MAX]
        {
            let took = Duration::from_nanos(nanoseconds);
            let reaches = |bucket: &usize| Latency::bound(*bucket).is_none_or(|bound| took <= bound);
            let first = (0..LATENCY_BUCKETS).find(reaches).expect("the last one has no bound");
            assert_eq!(in_bucket(nanoseconds), first, "{nanoseconds} ns");
        }
        assert_eq!(Latency::bound(0), Some(Duration::from_micros(32)));
        assert_eq!(Latency::bound(LATENCY_BUCKETS - 2), Some(Duration::from_micros(16_777_216)));
        assert_eq!(in_bucket(u64::MAX), LATENCY_BUCKETS - 1);
    }

    #[test]
    fn threads_count_what_one_alone_would_count() {
        let (shared, mut alone) = (SharedLatencies::default(), Latencies::default());
        for (kind, begun, now) in [(Timed::Read, 5, 90_000), (Timed::Write, 0, 7), (Timed::Flush, 9, 5)] {
            shared.record(kind, Moment(begun), Moment(now));
            alone.record(kind, Moment(begun), Moment(now));
        }
        assert_eq!(shared.now(), alone);
        assert_eq!(alone.flushes.nanoseconds, 0, "time does not run backwards");
        assert_eq!((alone.reads.count(), alone.writes.count(), alone.flushes.count()), (1, 1, 1));
    }
}
