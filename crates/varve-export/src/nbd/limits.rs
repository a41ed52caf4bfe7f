//! How much connections may keep in memory, and how many there may be, each and all together.
//!
//! A [`Share`] takes from the budget what the requests of its connection need; a little of it is kept for the next ones while the connection
//! has work and nothing waits for bytes, so that a request rarely touches what threads share. One that rests without requests has nothing.
//!
//! Invariant SHARE1: a connection that waits for bytes has only those of requests under way, which come back by themselves.

use crate::budget::{Budget, Claim, Memory};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::Waker;
use std::time::Duration;

/// What a connection with requests keeps of the budget for its next ones while others do not wait for it.
const SLACK: u64 = 256 << 10;

/// What one connection may keep, and how long it may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Requests that the device has not answered.
    pub requests_max: usize,
    /// Bytes of memory for requests whose reply was not sent, at most a quarter of the budget. One request may always
    /// be larger.
    pub bytes_max: u64,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long a client may take over the next 256 KiB of a message that was begun, or over the rest of it if that
    /// is less; a tenth of it when others wait for the memory that the message keeps. A client that has nothing to say
    /// or to hear may be silent for ever.
    pub progress: Duration,
    /// How long a client may take to fetch its last replies once the door is shut, or its connection is to be detached.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_max: 256,
            bytes_max: 64 << 20,
            handshake: Duration::from_secs(10),
            progress: Duration::from_secs(30),
            drain: Duration::from_secs(5),
        }
    }
}

/// Why a connection is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Too many clients are in their handshake.
    Handshakes(usize),
    /// There are as many connections as there may be.
    Connections(usize),
    /// The export has as many connections as one export may have.
    ExportConnections(usize),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Handshakes(max) => write!(f, "{max} clients are in their handshake already"),
            Refusal::Connections(max) => {
                write!(f, "there are {max} connections already; see varve daemon --connections")
            }
            Refusal::ExportConnections(max) => write!(
                f,
                "the export has {max} connections already, half of what all exports may have; see varve daemon \
                 --connections"
            ),
        }
    }
}

/// Counts the connections of all doors, on all threads. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Admission {
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    connections_max: usize,
    handshakes_max: usize,
    connections: AtomicUsize,
    handshakes: AtomicUsize,
    refused: AtomicU64,
}

impl Admission {
    /// Clients that may be in their handshake at a time.
    pub const HANDSHAKES_MAX: usize = 128;

    /// Lets `connections_max` connections in at a time, half of that to one export.
    pub fn new(connections_max: usize) -> Self {
        let counts = Counts {
            connections_max,
            handshakes_max: Self::HANDSHAKES_MAX,
            connections: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        };
        Self { counts: Arc::new(counts) }
    }

    /// Connections that are served now.
    pub fn connections(&self) -> usize {
        self.counts.connections.load(SeqCst)
    }

    /// Connections that were refused so far.
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(SeqCst)
    }

    /// Counts a client that begins its handshake.
    pub(super) fn begin(&self) -> Result<Counted, Refusal> {
        let max = self.counts.handshakes_max;
        self.count(|counts| &counts.handshakes, max).ok_or(Refusal::Handshakes(max))
    }

    /// Lets a client in to an export that has `open` connections.
    pub(super) fn admit(&self, open: u64) -> Result<Counted, Refusal> {
        let max = self.counts.connections_max;
        let export_max = (max / 2).max(1);
        if open >= export_max as u64 {
            return Err(Refusal::ExportConnections(export_max));
        }
        self.count(|counts| &counts.connections, max).ok_or(Refusal::Connections(max))
    }

    /// Counts a client that an earlier process has let in, however many there are.
    pub(super) fn adopt(&self) -> Counted {
        self.count(|counts| &counts.connections, usize::MAX)
            .expect("there are fewer connections than numbers")
    }

    /// Notes a refusal; the number of refusals whenever it is worth a line in the log.
    pub(super) fn note_refused(&self) -> Option<u64> {
        let refused = self.counts.refused.fetch_add(1, SeqCst) + 1;
        refused.is_power_of_two().then_some(refused)
    }

    fn count(&self, which: fn(&Counts) -> &AtomicUsize, max: usize) -> Option<Counted> {
        let more = |count: usize| (count < max).then_some(count + 1);
        which(&self.counts).fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Counted { counts: Arc::clone(&self.counts), which })
    }
}

/// Counts a client as long as it lives.
pub(super) struct Counted {
    counts: Arc<Counts>,
    which: fn(&Counts) -> &AtomicUsize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.which)(&self.counts).fetch_sub(1, SeqCst);
    }
}

/// What one connection holds of the budget for its requests; given back on drop.
pub(super) struct Share<'a> {
    budget: &'a Budget,
    /// For whom it waits.
    export: usize,
    /// What requests keep; at most `had`.
    held: Memory,
    /// What was taken of the budget.
    had: Memory,
    claim: Option<Claim>,
}

impl<'a> Share<'a> {
    pub(super) fn new(budget: &'a Budget, export: usize) -> Self {
        Self { budget, export, held: Memory::NONE, had: Memory::NONE, claim: None }
    }

    /// Bytes that requests keep.
    pub(super) fn held(&self) -> u64 {
        self.held.total()
    }

    /// Whether others wait for what this connection holds.
    pub(super) fn is_wanted(&self) -> bool {
        self.had != Memory::NONE && self.budget.is_short()
    }

    /// Makes sure that what a request needs can be held; if not, has `waker` woken when that is so.
    pub(super) fn make_room(&mut self, needed: Memory, waker: &Waker) -> bool {
        if let Some(claim) = &mut self.claim {
            let claimed = claim.memory();
            if claim.take() {
                self.had += claimed;
                self.claim = None;
            }
        }
        let missing = Memory {
            small: (self.held.small + needed.small).saturating_sub(self.had.small),
            large: (self.held.large + needed.large).saturating_sub(self.had.large),
        };
        if missing == Memory::NONE {
            self.claim = None;
            return true;
        }
        if self.claim.is_none() && self.budget.try_take(missing) {
            self.had += missing;
            return true;
        }
        match &self.claim {
            Some(claim) => claim.register(waker),
            None => {
                self.give_back(0);
                assert_eq!(self.had, self.held, "SHARE1");
                self.claim = Some(self.budget.wait(self.export, needed, waker));
                return self.make_room(needed, waker);
            }
        }
        false
    }

    /// Asks for no more.
    pub(super) fn leave_line(&mut self) {
        self.claim = None;
    }

    /// Holds memory for which there is room.
    pub(super) fn hold(&mut self, memory: Memory) {
        self.held += memory;
        let is_had = self.held.small <= self.had.small && self.held.large <= self.had.large;
        assert!(is_had, "NBD2: bytes are had before they are held");
    }

    /// Holds `memory` less.
    pub(super) fn give(&mut self, memory: Memory) {
        self.held -= memory;
        self.give_back(if self.budget.is_short() { 0 } else { SLACK });
    }

    /// Gives back to the budget what is not needed soon, at the end of a turn. A connection that holds nothing keeps nothing.
    pub(super) fn trim(&mut self) {
        self.give_back(if self.held == Memory::NONE || self.budget.is_short() { 0 } else { SLACK });
    }

    fn give_back(&mut self, slack: u64) {
        let small = self.had.small.saturating_sub(self.held.small + slack);
        let unneeded = Memory { small, large: self.had.large - self.held.large };
        self.had -= unneeded;
        self.budget.give(unneeded);
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.give(self.had);
    }
}
