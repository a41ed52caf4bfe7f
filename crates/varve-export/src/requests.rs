//! What doors on threads of their own ask of a volume: each request becomes one [`Io`] for the volume's shard, and is answered
//! from the shard's callback.
//!
//! Invariants:
//! - ASK1. Each request is answered exactly once, also when the shard is gone.
//! - ASK2. Once they are shut, no request reaches the volume.

use crate::budget::Budget;
use crate::counters::{Counting, DoorCounters, Kind};
use crate::in_flight::{InFlight, Permit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use varve_block::{Arena, Buffer, Io, IoError, Portal, Rejected, Shape};

/// The way of one door's requests.
pub(crate) struct Requests {
    portal: RwLock<Portal>,
    arena: Arena,
    in_flight: Arc<InFlight>,
    counting: Counting,
    is_shut: AtomicBool,
}

/// Why a request was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The door is closed.
    Shut,
    /// It does not fit the device.
    Rejected(Rejected),
    /// The device failed.
    Failed(IoError),
}

impl Requests {
    /// Requests for what `portal` leads to, of at most `bytes_in_flight_max` bytes at a time.
    pub(crate) fn new(portal: Portal, arena: Arena, bytes_in_flight_max: u64, budget: &Budget) -> Arc<Self> {
        Arc::new(Self {
            portal: RwLock::new(portal),
            arena,
            in_flight: InFlight::new(bytes_in_flight_max, budget),
            counting: Counting::default(),
            is_shut: AtomicBool::new(false),
        })
    }

    /// The numbers now.
    pub(crate) fn counters(&self) -> DoorCounters {
        self.counting.read(self.in_flight.used())
    }

    /// Their counters.
    pub(crate) fn counting(&self) -> &Counting {
        &self.counting
    }

    /// Memory for their data, once there is a permit.
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The right to have `bytes` in flight; waits until there is room.
    pub(crate) fn permit(&self, bytes: u64) -> Permit {
        self.in_flight.take(bytes)
    }

    /// Leads to another device.
    pub(crate) fn replace(&self, portal: Portal) {
        *self.portal.write().unwrap_or_else(PoisonError::into_inner) = portal;
    }

    /// Lets no request through from now on (ASK2).
    pub(crate) fn shut(&self) {
        self.is_shut.store(true, Ordering::Release);
    }

    /// Whether no request gets through.
    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Acquire)
    }

    /// Where they lead.
    pub(crate) fn portal(&self) -> Portal {
        self.portal.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the device is like.
    pub(crate) fn shape(&self) -> Shape {
        self.portal.read().unwrap_or_else(PoisonError::into_inner).shape()
    }

    /// Sends one request to the shard; `finish` is called once with its answer, and the right that it had (ASK1).
    pub(crate) fn submit(
        self: &Arc<Self>,
        kind: Kind,
        permit: Permit,
        io: Io,
        finish: impl FnOnce(Result<Buffer, Refusal>, Permit) + Send + 'static,
    ) {
        let portal = self.portal();
        if self.is_shut() {
            return finish(Err(Refusal::Shut), permit); // ASK2
        }
        if let Err(rejected) = portal.shape().check(&io) {
            return finish(Err(Refusal::Rejected(rejected)), permit);
        }
        let bytes = io.extent().length;
        let requests = Arc::clone(self);
        let begun = self.counting.start();
        portal.submit(io, move |outcome| {
            requests.counting.finish((kind, begun), bytes, outcome.is_ok());
            finish(outcome.map_err(Refusal::Failed), permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use varve_block::{Done, Extent, Outcome, StatusRun, Submit};

    /// A device that fails, with the number of its requests.
    #[derive(Default)]
    struct Failing(Mutex<u32>);

    impl Submit for Failing {
        fn submit(&self, _: Io, done: Done<Outcome>) {
            *self.0.lock().expect("no panic") += 1;
            done(Err(IoError::Medium));
        }

        fn status(&self, _: Extent, done: Done<Result<Vec<StatusRun>, IoError>>) {
            done(Err(IoError::Medium));
        }
    }

    #[test]
    fn each_request_is_answered_once_and_none_gets_through_once_they_are_shut() {
        let device = Arc::new(Failing::default());
        let portal = Portal::new(Shape::new(4096, 1), Arc::clone(&device) as Arc<dyn Submit>);
        let requests = Requests::new(portal, Arena::heap(1 << 20), 1 << 20, &Budget::new(1 << 20));
        let answers = Arc::new(Mutex::new(Vec::new()));
        let ask = |offset: u64| {
            let (io, answers) =
                (Io::Read { offset, buffer: requests.arena().take(512) }, Arc::clone(&answers));
            let answer = move |done: Result<Buffer, Refusal>, _: Permit| {
                answers.lock().expect("no panic").push(done.expect_err("the device fails"));
            };
            requests.submit(Kind::Read, requests.permit(512), io, answer);
        };
        ask(0);
        ask(4096);
        requests.shut();
        ask(0);
        let wanted =
            [Refusal::Failed(IoError::Medium), Refusal::Rejected(Rejected::OutOfBounds), Refusal::Shut];
        assert_eq!(*answers.lock().expect("no panic"), wanted, "ASK1");
        assert_eq!(*device.0.lock().expect("no panic"), 1, "ASK2");
        let counters = requests.counters();
        assert_eq!((counters.errors, counters.in_flight, counters.in_flight_bytes), (1, 0, 0));
        assert_eq!((counters.latencies.reads.count(), counters.latencies.writes.count()), (1, 0));
    }
}
