//! The table of operations under way on a shard, and the driver that moves them: a ring, or a pool of threads.
//!
//! The contract on memory and cancellation stands at the head of `ring.rs`; URING1 and URING2 are kept here.

use crate::disks::lane::Lane;
use crate::disks::operation::{Answer, DiskOperation, Operation};
use crate::driver::flight::{Flight, FlightState};
use crate::driver::helpers::{Finished, Helpers, Job, Place};
use crate::driver::pool::Pool;
use crate::driver::ring::{Ring, Wait};
use crate::mailbox::{Mailbox, Notify};
use rustix::io::Errno;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Once};
use std::task::{Context, Poll};
use varve_block::Arena;

/// Whether the log says that there is no ring.
static FALLBACK_SAID: Once = Once::new();

/// How a shard talks to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoChoice {
    /// A ring where the kernel lets us, else a pool.
    #[default]
    Auto,
    /// io_uring, or refuse to start.
    Ring,
    /// Blocking helper threads.
    Pool,
}

enum Driver {
    Ring(Box<Ring>),
    Pool(Pool),
}

/// All operations of a shard.
pub(crate) struct Reactor {
    flights: RefCell<Slab<Flight>>,
    driver: RefCell<Driver>,
    finished: RefCell<Vec<(usize, Answer)>>,
    helpers: Arc<Helpers>,
    /// What helpers have carried out.
    done: Arc<Mailbox<Finished>>,
    /// Operations on disks under way.
    disk_count: Cell<usize>,
    /// Operations under way, and those that wait in their lanes.
    pending: Cell<usize>,
    /// Operations on disks that have left their lanes.
    launched: Cell<usize>,
    /// Nothing new is taken in from peers.
    draining: Cell<bool>,
    is_ring: bool,
}

impl Reactor {
    pub(crate) fn new(
        choice: IoChoice,
        arena: &Arena,
        notify: &Arc<Notify>,
        helpers: Arc<Helpers>,
    ) -> std::io::Result<Self> {
        let driver = match choice {
            IoChoice::Pool => Driver::Pool(Pool::new(Arc::clone(notify))),
            IoChoice::Ring => Driver::Ring(Box::new(Ring::new(arena, notify.event().as_raw_fd())?)),
            IoChoice::Auto => match Ring::new(arena, notify.event().as_raw_fd()) {
                Ok(ring) => Driver::Ring(Box::new(ring)),
                Err(error) => {
                    // Once for all shards: what one of them lacks the others lack too.
                    FALLBACK_SAID.call_once(|| {
                        tracing::warn!(%error, "io_uring is not to be had: helper threads stand in for it");
                    });
                    Driver::Pool(Pool::new(Arc::clone(notify)))
                }
            },
        };
        let is_ring = matches!(driver, Driver::Ring(_));
        Ok(Self {
            flights: RefCell::default(),
            driver: RefCell::new(driver),
            finished: RefCell::default(),
            helpers,
            done: Mailbox::new(notify),
            disk_count: Cell::new(0),
            pending: Cell::new(0),
            launched: Cell::new(0),
            draining: Cell::new(false),
            is_ring,
        })
    }

    pub(crate) fn is_ring(&self) -> bool {
        self.is_ring
    }

    /// Operations on disks under way.
    pub(crate) fn disk_count(&self) -> usize {
        self.disk_count.get()
    }

    /// All operations under way.
    pub(crate) fn pending_count(&self) -> usize {
        self.pending.get()
    }

    /// Whether nothing new is taken in from peers.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Starts an operation on a disk, in its lane; the future answers with the operation and its outcome.
    pub(crate) fn start_disk(self: &Rc<Self>, operation: DiskOperation, lane: &Rc<Lane>) -> OperationFuture {
        let mut flights = self.flights.borrow_mut();
        let entry = flights.vacant_entry();
        let key = entry.key();
        self.pending.set(self.pending.get() + 1);
        self.disk_count.set(self.disk_count.get() + 1);
        let operation = match lane.enter(key, self.launched.get()) {
            true => self.launch_disk(key, operation),
            false => Some(Operation::Disk(operation)),
        };
        entry.insert(Flight { operation, state: FlightState::Waiting(None), lane: Some(Rc::clone(lane)) });
        drop(flights);
        OperationFuture { reactor: Rc::clone(self), key: Some(key) }
    }

    /// Starts an operation on a socket; the future answers with the operation and its outcome.
    pub(crate) fn start(self: &Rc<Self>, operation: Operation) -> OperationFuture {
        let mut flights = self.flights.borrow_mut();
        let entry = flights.vacant_entry();
        let key = entry.key();
        if self.draining.get() && operation.waits_for_peer() {
            let state = FlightState::Finished(Err(Errno::CANCELED));
            entry.insert(Flight { operation: Some(operation), state, lane: None });
        } else {
            self.pending.set(self.pending.get() + 1);
            let operation = Some(self.drive(key, operation));
            entry.insert(Flight { operation, state: FlightState::Waiting(None), lane: None });
        }
        drop(flights);
        OperationFuture { reactor: Rc::clone(self), key: Some(key) }
    }

    /// Hands an operation on a disk to a helper or the driver; what comes back stays in the table meanwhile (URING1).
    fn launch_disk(&self, key: usize, operation: DiskOperation) -> Option<Operation> {
        self.launched.set(self.launched.get() + 1);
        if self.is_ring && !operation.needs_thread() {
            return Some(self.drive(key, Operation::Disk(operation)));
        }
        let (home, place) = (Arc::clone(&self.done), Place::of(operation.disk()));
        self.helpers.submit(place, Job::Disk { key, operation, home });
        None
    }

    /// Begins what waits in `lane` as far as there is room.
    fn launch_waiting(&self, lane: &Lane) {
        while let Some(key) = lane.next(self.launched.get()) {
            let waiting = self.flights.borrow_mut().get_mut(key).and_then(|flight| flight.operation.take());
            let Some(Operation::Disk(operation)) = waiting else {
                unreachable!("what waits in a lane is in the table");
            };
            let operation = self.launch_disk(key, operation);
            self.flights.borrow_mut()[key].operation = operation;
        }
    }

    /// Hands an operation to the driver.
    fn drive(&self, key: usize, mut operation: Operation) -> Operation {
        match &mut *self.driver.borrow_mut() {
            Driver::Ring(ring) => ring.start(key, &mut operation),
            Driver::Pool(pool) => pool.start(key),
        }
        operation
    }

    /// Submits, waits, and delivers what has come.
    pub(crate) fn enter(&self, wait: Wait) {
        // A disk takes longer than a look; a peer may be back at once.
        let look = self.disk_count.get() == 0;
        let mut finished = self.finished.take();
        match &mut *self.driver.borrow_mut() {
            Driver::Ring(ring) => {
                ring.enter(wait, look);
                ring.reap(&mut finished);
            }
            Driver::Pool(pool) => pool.enter(wait, &mut self.flights.borrow_mut(), &mut finished),
        }
        for (key, answer) in finished.drain(..) {
            self.complete(key, None, answer);
        }
        self.finished.replace(finished);
    }

    /// Takes back what helpers have carried out.
    pub(crate) fn collect(&self) {
        for finished in self.done.collect() {
            self.complete(finished.key, Some(Operation::Disk(finished.operation)), finished.answer);
        }
    }

    /// Takes in nothing new from peers from now on: receives and accepts end with `Errno::CANCELED`.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        let flights = self.flights.borrow();
        let waiting = flights.iter().filter(|(_, flight)| {
            !matches!(flight.state, FlightState::Finished(_))
                && flight.operation.as_ref().is_some_and(Operation::waits_for_peer)
        });
        let keys: Vec<_> = waiting.map(|(key, _)| key).collect();
        drop(flights);
        keys.into_iter().for_each(|key| self.cancel(key));
    }

    /// Ends an operation early that is under way: it answers with what it has done, or with `Errno::CANCELED` if it has done nothing.
    pub(crate) fn interrupt(&self, key: usize) {
        let is_under_way = self
            .flights
            .borrow()
            .get(key)
            .is_some_and(|flight| matches!(flight.state, FlightState::Waiting(_)));
        if is_under_way {
            self.cancel(key);
        }
    }

    fn cancel(&self, key: usize) {
        let is_complete = match &mut *self.driver.borrow_mut() {
            Driver::Ring(ring) => {
                ring.cancel(key);
                false
            }
            Driver::Pool(pool) => {
                pool.cancel(key);
                true
            }
        };
        if is_complete {
            self.complete(key, None, Err(Errno::CANCELED));
        }
    }

    fn complete(&self, key: usize, operation: Option<Operation>, answer: Answer) {
        let mut flights = self.flights.borrow_mut();
        let flight = flights.get_mut(key).expect("URING3: a completion belongs to a flight");
        if let Some(operation) = operation {
            flight.operation = Some(operation);
        }
        self.pending.set(self.pending.get() - 1);
        if let Some(Operation::Disk(operation)) = &mut flight.operation {
            self.disk_count.set(self.disk_count.get() - 1);
            self.launched.set(self.launched.get() - 1);
            operation.complete(answer);
        }
        let lane = flight.lane.take();
        match std::mem::replace(&mut flight.state, FlightState::Finished(answer)) {
            FlightState::Waiting(waker) => {
                drop(flights);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            FlightState::Orphan => {
                let flight = flights.remove(key);
                drop(flights);
                drop(flight);
                if let Some(lane) = &lane {
                    lane.end_abandoned();
                }
            }
            FlightState::Finished(_) => unreachable!("URING3: one terminal completion a flight"),
        }
        if let Some(lane) = lane {
            lane.leave();
            self.launch_waiting(&lane);
        }
    }
}

/// Waits for an operation. Dropped early it abandons the answer: a disk operation still runs to its end, one on a
/// socket is cancelled (and may have moved bytes, so that the connection is of no use any more).
pub(crate) struct OperationFuture {
    reactor: Rc<Reactor>,
    key: Option<usize>,
}

impl OperationFuture {
    /// Its number among those under way; it means another one once this has answered or was dropped.
    pub(crate) fn key(&self) -> Option<usize> {
        self.key
    }
}

impl Future for OperationFuture {
    type Output = (Operation, Answer);
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let key = self.key.expect("an operation is awaited once");
        let mut flights = self.reactor.flights.borrow_mut();
        let state = &mut flights[key].state;
        match state {
            FlightState::Finished(answer) => {
                let answer = *answer;
                let flight = flights.remove(key);
                drop(flights);
                self.key = None;
                let operation = flight.operation.expect("URING1: a finished operation has come back");
                Poll::Ready((operation, answer))
            }
            FlightState::Waiting(Some(waker)) if waker.will_wake(context.waker()) => Poll::Pending,
            FlightState::Waiting(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            FlightState::Orphan => unreachable!("URING2: the future of an orphan is gone"),
        }
    }
}

impl Drop for OperationFuture {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut flights = self.reactor.flights.borrow_mut();
        let flight = &mut flights[key];
        let is_socket = matches!(flight.operation, Some(Operation::Socket(..)));
        match std::mem::replace(&mut flight.state, FlightState::Orphan) {
            FlightState::Finished(_) => {
                let flight = flights.remove(key);
                drop(flights);
                drop(flight);
            }
            _ => {
                if let Some(lane) = &flight.lane {
                    lane.abandon();
                }
                drop(flights);
                if is_socket {
                    self.reactor.cancel(key);
                }
            }
        }
    }
}
