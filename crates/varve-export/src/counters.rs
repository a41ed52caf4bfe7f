//! What a door on threads of its own did so far, for metrics and for users.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use varve_block::{Latencies, Moment, SharedLatencies, Timed};

/// Numbers since the door was opened, except those in flight, which say what is on its way now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DoorCounters {
    /// Reads answered.
    pub reads: u64,
    /// Writes answered.
    pub writes: u64,
    /// Requests to zero or to punch a hole answered.
    pub zeros: u64,
    /// Discards answered.
    pub discards: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Bytes zeroed.
    pub zero_bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests on their way.
    pub in_flight: u64,
    /// Bytes of requests on their way.
    pub in_flight_bytes: u64,
    /// How long requests took, from the door's thread until they were answered.
    pub latencies: Latencies,
}

/// What kind of request is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    Zero,
    Discard,
    Flush,
    Seek,
}

impl Kind {
    /// What its latency is counted as, if it is.
    fn timed(self) -> Option<Timed> {
        match self {
            Self::Read => Some(Timed::Read),
            Self::Write | Self::Zero => Some(Timed::Write),
            Self::Flush => Some(Timed::Flush),
            Self::Discard | Self::Seek => None,
        }
    }
}

/// Monotonic time. The callers of these doors are threads of the kernel and of other programs, which no simulated world has.
fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    Moment(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// The same numbers while they are being counted.
#[derive(Default)]
pub(crate) struct Counting {
    requests: [AtomicU64; 6],
    bytes: [AtomicU64; 6],
    errors: AtomicU64,
    in_flight: AtomicU64,
    latencies: SharedLatencies,
}

impl Counting {
    /// A request goes on its way now.
    pub(crate) fn start(&self) -> Moment {
        self.in_flight.fetch_add(1, Relaxed);
        now()
    }

    /// A request over `bytes` bytes, which began at `begun`, is answered.
    pub(crate) fn finish(&self, (kind, begun): (Kind, Moment), bytes: u64, succeeded: bool) {
        if let Some(timed) = kind.timed() {
            self.latencies.record(timed, begun, now());
        }
        self.in_flight.fetch_sub(1, Relaxed);
        self.requests[kind as usize].fetch_add(1, Relaxed);
        if succeeded {
            self.bytes[kind as usize].fetch_add(bytes, Relaxed);
        } else {
            self.errors.fetch_add(1, Relaxed);
        }
    }

    /// The numbers now.
    pub(crate) fn read(&self, in_flight_bytes: u64) -> DoorCounters {
        let requests = |kind: Kind| self.requests[kind as usize].load(Relaxed);
        let bytes = |kind: Kind| self.bytes[kind as usize].load(Relaxed);
        DoorCounters {
            reads: requests(Kind::Read),
            writes: requests(Kind::Write),
            zeros: requests(Kind::Zero),
            discards: requests(Kind::Discard),
            flushes: requests(Kind::Flush),
            read_bytes: bytes(Kind::Read),
            write_bytes: bytes(Kind::Write),
            zero_bytes: bytes(Kind::Zero),
            errors: self.errors.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            in_flight_bytes,
            latencies: self.latencies.now(),
        }
    }
}
