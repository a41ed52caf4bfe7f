//! What went through a volume or an export: requests, bytes, and how long they took.

use serde::{Deserialize, Serialize};

/// How long requests of one kind took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestLatency {
    /// Requests that took at most 32 µs; those that took longer and at most 64 µs; and so on, always twice as long. The last are
    /// those that took longer still. Empty if there was none.
    pub counts: Vec<u64>,
    /// Nanoseconds that all took together.
    pub nanoseconds: u64,
}

/// How long requests took, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestLatencies {
    /// Reads.
    #[serde(default, skip_serializing_if = "RequestLatency::is_empty")]
    pub reads: RequestLatency,
    /// Writes, zeroes included.
    #[serde(default, skip_serializing_if = "RequestLatency::is_empty")]
    pub writes: RequestLatency,
    /// Flushes.
    #[serde(default, skip_serializing_if = "RequestLatency::is_empty")]
    pub flushes: RequestLatency,
}

/// What went through a volume or an export since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Traffic {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests, zeroes included.
    pub writes: u64,
    /// Bytes written, zeroes included.
    pub write_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests under way now.
    #[serde(default)]
    pub in_flight: u64,
    /// How long those took that have ended.
    #[serde(default)]
    pub latency: RequestLatencies,
}

impl RequestLatency {
    /// Whether there was no request.
    fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

impl RequestLatency {
    /// Adds what `other` has.
    fn add(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.nanoseconds = self.nanoseconds.wrapping_add(other.nanoseconds);
    }

    /// What has come since `earlier`.
    fn since(&self, earlier: &Self) -> Self {
        let before = |bucket: usize| earlier.counts.get(bucket).copied().unwrap_or(0);
        let since = |(bucket, count): (usize, &u64)| count.saturating_sub(before(bucket));
        Self {
            counts: self.counts.iter().enumerate().map(since).collect(),
            nanoseconds: self.nanoseconds.wrapping_sub(earlier.nanoseconds),
        }
    }
}

impl Traffic {
    /// All requests that have begun.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }

    /// Adds what `other` has.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts_mut().into_iter().zip(other.clone().counts_mut()) {
            *sum = sum.wrapping_add(*count);
        }
        self.latency.reads.add(&other.latency.reads);
        self.latency.writes.add(&other.latency.writes);
        self.latency.flushes.add(&other.latency.flushes);
    }

    /// What has come since `earlier`. If anything is less than it was, all was counted anew from zero, as for a volume that was opened
    /// again.
    pub fn since(&self, earlier: &Self) -> Self {
        let (mut now, mut before) = (self.clone(), earlier.clone());
        let is_anew = self.requests() < earlier.requests() || self.errors < earlier.errors;
        if is_anew {
            return now;
        }
        for (count, before) in now.counts_mut().into_iter().zip(before.counts_mut()) {
            *count = count.saturating_sub(*before);
        }
        now.in_flight = self.in_flight;
        now.latency = RequestLatencies {
            reads: self.latency.reads.since(&earlier.latency.reads),
            writes: self.latency.writes.since(&earlier.latency.writes),
            flushes: self.latency.flushes.since(&earlier.latency.flushes),
        };
        now
    }

    fn counts_mut(&mut self) -> [&mut u64; 8] {
        [
            &mut self.reads,
            &mut self.read_bytes,
            &mut self.writes,
            &mut self.write_bytes,
            &mut self.flushes,
            &mut self.discards,
            &mut self.errors,
            &mut self.in_flight,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(reads: u64, errors: u64, counts: &[u64]) -> Traffic {
        let latency = RequestLatency { counts: counts.to_vec(), nanoseconds: 10 * reads };
        let latency = RequestLatencies { reads: latency, ..RequestLatencies::default() };
        Traffic { reads, read_bytes: 512 * reads, errors, in_flight: 2, latency, ..Traffic::default() }
    }

    #[test]
    fn what_has_come_since_is_what_was_not_there_before() {
        let since = traffic(7, 1, &[3, 4]).since(&traffic(5, 1, &[3, 2]));
        assert_eq!((since.reads, since.read_bytes, since.errors, since.in_flight), (2, 1024, 0, 2));
        assert_eq!(since.latency.reads, RequestLatency { counts: vec![0, 2], nanoseconds: 20 });
        let first = traffic(7, 1, &[3, 4]).since(&Traffic::default());
        assert_eq!(first, traffic(7, 1, &[3, 4]));
    }

    #[test]
    fn what_is_counted_anew_has_all_come_since() {
        let anew = traffic(3, 0, &[3]);
        assert_eq!(anew.since(&traffic(5, 0, &[5])), anew, "fewer requests");
        assert_eq!(anew.since(&traffic(3, 2, &[3])), anew, "fewer errors");
    }

    #[test]
    fn sums_have_the_longer_list_of_buckets() {
        let mut sum = Traffic::default();
        sum.add(&traffic(1, 0, &[1]));
        sum.add(&traffic(4, 1, &[1, 3]));
        assert_eq!((sum.reads, sum.errors, sum.in_flight), (5, 1, 4));
        assert_eq!(sum.latency.reads, RequestLatency { counts: vec![2, 3], nanoseconds: 50 });
    }
}
