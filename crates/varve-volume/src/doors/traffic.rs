//! A device that counts what goes through it, and keeps a panic below it from the doors above.

use crate::host::Host;
use crate::lifecycle::health::{Contained, Health};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use varve_api::{RequestLatencies, RequestLatency, Traffic};
use varve_block::{
    BlockDevice, Checked, Clock, Completion, Device, Extent, Io, IoError, Latencies, Latency, MapAnswer,
    MapFuture, MapIntent, Moment, Outcome, Shape, Timed,
};

/// The counts; plain cells, because a volume lives on one thread. Cloning shares them.
#[derive(Clone, Default)]
pub struct Counters {
    inner: Rc<Inner>,
    /// Requests of all volumes of the shard.
    requests: Rc<Cell<u64>>,
    /// Without it no latency is counted.
    clock: Option<Clock>,
}

#[derive(Default)]
struct Inner {
    reads: Cell<u64>,
    read_bytes: Cell<u64>,
    writes: Cell<u64>,
    write_bytes: Cell<u64>,
    flushes: Cell<u64>,
    discards: Cell<u64>,
    errors: Cell<u64>,
    in_flight: Cell<u64>,
    latencies: RefCell<Latencies>,
}

fn add(cell: &Cell<u64>, amount: u64) {
    cell.set(cell.get().wrapping_add(amount));
}

impl Counters {
    /// Counts of a volume of this shard.
    pub(crate) fn new(host: &Host) -> Self {
        Self { inner: Rc::default(), requests: Rc::clone(&host.requests), clock: Some(host.clock()) }
    }

    /// The counts as they are now.
    pub fn now(&self) -> Traffic {
        let inner = &self.inner;
        Traffic {
            reads: inner.reads.get(),
            read_bytes: inner.read_bytes.get(),
            writes: inner.writes.get(),
            write_bytes: inner.write_bytes.get(),
            flushes: inner.flushes.get(),
            discards: inner.discards.get(),
            errors: inner.errors.get(),
            in_flight: inner.in_flight.get(),
            latency: shown_latencies(&inner.latencies.borrow()),
        }
    }

    /// When a request begins.
    fn begin(&self) -> Moment {
        add(&self.inner.in_flight, 1);
        self.clock.as_ref().map(Clock::recent).unwrap_or_default()
    }

    /// It is under way no more, also if its caller has dropped it.
    fn leave(&self) {
        self.inner.in_flight.set(self.inner.in_flight.get() - 1);
    }

    /// It began at `begun` and has ended with `outcome`.
    fn end(&self, timed: Option<Timed>, begun: Moment, outcome: &Outcome) {
        if outcome.is_err() {
            add(&self.inner.errors, 1);
        }
        if let Some((clock, timed)) = self.clock.as_ref().zip(timed) {
            self.inner.latencies.borrow_mut().record(timed, begun, clock.now());
        }
    }

    fn count(&self, io: &Io) {
        let (inner, bytes) = (&self.inner, io.extent().length);
        add(&self.requests, 1);
        match io {
            Io::Read { .. } => {
                add(&inner.reads, 1);
                add(&inner.read_bytes, bytes);
            }
            Io::Write { .. } | Io::Zero { .. } => {
                add(&inner.writes, 1);
                add(&inner.write_bytes, bytes);
            }
            Io::Discard { .. } => add(&inner.discards, 1),
            Io::Flush => add(&inner.flushes, 1),
        }
    }
}

/// `latencies`, as they are shown; those of no request are empty.
pub fn shown_latencies(latencies: &Latencies) -> RequestLatencies {
    let shown = |latency: &Latency| match latency.count() {
        0 => RequestLatency::default(),
        _ => RequestLatency { counts: latency.counts.to_vec(), nanoseconds: latency.nanoseconds },
    };
    let Latencies { reads, writes, flushes } = latencies;
    RequestLatencies { reads: shown(reads), writes: shown(writes), flushes: shown(flushes) }
}

/// `device`, counted in `counters`. If it panics its volume fails, and every request ends with [`IoError::Medium`].
pub fn counted(device: Device, counters: Counters, health: Health) -> Device {
    let shape = device.shape();
    Device::new(Counted { device, counters, health, shape })
}

struct Counted {
    device: Device,
    counters: Counters,
    health: Health,
    shape: Shape,
}

/// A request under way.
struct Request<'a> {
    io: Contained<'a, Outcome>,
    counters: &'a Counters,
    timed: Option<Timed>,
    begun: Moment,
}

impl Future for Request<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = ready!(Pin::new(&mut self.io).poll(context)).unwrap_or(Err(IoError::Medium));
        self.counters.end(self.timed, self.begun, &outcome);
        Poll::Ready(outcome)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.counters.leave();
    }
}

impl BlockDevice for Counted {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        self.counters.count(io.io());
        let (timed, begun) = (Timed::of(io.io()), self.counters.begin());
        let completion = self.health.guard(|| self.device.submit(io.into_io()));
        match completion.unwrap_or_else(|_| Completion::failed(IoError::Medium)) {
            Completion::Ready(outcome) => {
                outcome.iter().for_each(|outcome| self.counters.end(timed, begun, outcome));
                self.counters.leave();
                Completion::Ready(outcome)
            }
            under_way => {
                let io = self.health.contain(under_way.boxed());
                Completion::pending(Request { io, counters: &self.counters, timed, begun })
            }
        }
    }

    /// What the volume holds, found where a panic is the volume's. A caller that moved the bytes itself would not be counted.
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        if intent != MapIntent::Inspect {
            return MapAnswer::sent(extent.length).ready();
        }
        let status = self.health.contain(Box::pin(self.device.status(extent)));
        Box::pin(async move {
            let runs = status.await.unwrap_or(Err(IoError::Medium))?;
            Ok(MapAnswer::of_status(&runs))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use varve_block::{Arena, Durability, IoError};

    struct Failing;
    impl BlockDevice for Failing {
        fn shape(&self) -> Shape {
            Shape::new(1 << 20, 512)
        }
        fn submit(&self, io: Checked) -> Completion<'_> {
            match io.into_io() {
                Io::Read { buffer, .. } => Completion::ready(Ok(buffer)),
                Io::Flush => Completion::pending(std::future::ready(Err(IoError::Medium))),
                Io::Discard { .. } => Completion::pending(std::future::pending()),
                _ => Completion::failed(IoError::NoSpace),
            }
        }
    }

    #[test]
    fn requests_bytes_and_errors_are_counted() {
        let counters = Counters::default();
        let device = counted(Device::new(Failing), counters.clone(), Health::new(|_| {}));
        let arena = Arena::heap(1 << 20);
        assert!(device.read(0, arena.take(4096)).now_or_never().is_some_and(|outcome| outcome.is_ok()));
        let write = device.write(0, arena.copy(&[1; 512]), Durability::Volatile);
        assert_eq!(write.now_or_never().map(|outcome| outcome.map(|_| ())), Some(Err(IoError::NoSpace)));
        assert!(device.flush().now_or_never().is_some_and(|outcome| outcome.is_err()));
        let now = counters.now();
        assert_eq!((now.reads, now.read_bytes, now.writes, now.write_bytes), (1, 4096, 1, 512));
        assert_eq!((now.flushes, now.errors, now.in_flight), (1, 2, 0));
        let discard = device.discard(Extent::new(0, 512));
        assert_eq!(counters.now().in_flight, 1);
        drop(discard);
        assert_eq!(counters.now().in_flight, 0, "nobody waits for it any more");
    }
}
