//! What a door on threads of its own did so far, for metrics and for users.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers since the door was opened, except the last two, which say what is on its way now.
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
    /// Questions for data or holes answered.
    pub seeks: u64,
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

/// The same numbers while they are being counted.
#[derive(Default)]
pub(crate) struct Counting {
    requests: [AtomicU64; 6],
    bytes: [AtomicU64; 6],
    errors: AtomicU64,
    in_flight: AtomicU64,
}

impl Counting {
    /// A request goes on its way.
    pub(crate) fn start(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// A request over `bytes` bytes is answered.
    pub(crate) fn finish(&self, kind: Kind, bytes: u64, succeeded: bool) {
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
            seeks: requests(Kind::Seek),
            read_bytes: bytes(Kind::Read),
            write_bytes: bytes(Kind::Write),
            zero_bytes: bytes(Kind::Zero),
            errors: self.errors.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            in_flight_bytes,
        }
    }
}
