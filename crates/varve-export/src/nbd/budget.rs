//! How much connections may keep in memory, each and all together.

use super::wakers::{Ticket, Wakers};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// What one connection may keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Requests that the device has not answered.
    pub requests_max: usize,
    /// Bytes of data of requests whose reply was not sent. One request may always be larger.
    pub bytes_max: u64,
    /// Size of the buffer into which requests are received, in bytes; at least 64 KiB is used.
    pub receive_bytes: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long a client may take to fetch its last replies once the door is shut.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_max: 256,
            bytes_max: 64 << 20,
            receive_bytes: 256 << 10,
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(5),
        }
    }
}

/// Bytes of data that all connections of a shard may have in flight. Cloning shares it.
#[derive(Clone)]
pub struct Budget {
    capacity: u64,
    used: Rc<Cell<u64>>,
    wakers: Wakers,
}

impl Budget {
    /// A budget of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, used: Rc::default(), wakers: Wakers::default() }
    }

    /// Bytes now in flight; above the capacity if single requests had to be let in (E2).
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.used.get().saturating_add(bytes) <= self.capacity
    }

    pub(super) fn share(&self) -> Share {
        Share { budget: self.clone(), held: 0, ticket: self.wakers.ticket() }
    }
}

/// What one connection holds of a budget; given back on drop.
pub(super) struct Share {
    budget: Budget,
    held: u64,
    ticket: Ticket,
}

impl Share {
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.budget.fits(bytes)
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.held += bytes;
        self.budget.used.set(self.budget.used.get() + bytes);
    }

    pub(super) fn give(&mut self, bytes: u64) {
        assert!(bytes <= self.held, "E2: more given back than taken");
        if bytes > 0 {
            self.held -= bytes;
            self.budget.used.set(self.budget.used.get() - bytes);
            self.budget.wakers.wake();
        }
    }

    /// Has the task woken when bytes are given back.
    pub(super) fn watch(&mut self, waker: &std::task::Waker) {
        self.ticket.register(waker);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give(self.held);
    }
}
