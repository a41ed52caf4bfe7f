//! A split virtqueue in the memory of a machine: what the guest has made available is taken, what was used is given back.
//!
//! Invariants:
//! - VRING1. At most as many requests are in flight as the queue has places, and none twice.
//! - VRING2. A chain of descriptors ends: it has at most `SEGMENTS_MAX`, and each is in the table.
//! - VRING3. All that the guest reads comes before all that it writes; what it gets back is in its memory before it is notified.

use super::memory::{Fault, Memory};
use std::fmt;
use std::sync::atomic::{Ordering, fence};

/// Places of a queue at most.
pub(super) const SIZE_MAX: u16 = 1024;
/// Descriptors of one request at most.
pub(super) const SEGMENTS_MAX: usize = 1024;
/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// In the flags of what is available: the guest wants no interrupt.
const NO_INTERRUPT: u16 = 1;
/// In the flags of what was used: the guest need not tell of requests.
const NO_NOTIFY: u16 = 1;

/// What a guest or machine has done that no driver does; its queue is served no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Broken {
    /// A part of the guest's memory that is not there.
    Memory(Fault),
    /// Its memory was taken away.
    MemoryLost,
    /// More requests are available than the queue has places.
    Index { available: u16, taken: u16 },
    /// A request that begins outside of the table, or is in flight already.
    Head(u16),
    /// A chain that loops, leaves the table, or is too long.
    Chain,
    /// What is read stands behind what is written.
    Order,
    /// No room for a header, or for the status.
    Frame,
    /// What tells of requests is no event.
    Kick,
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        Broken::Memory(fault)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Memory(Fault { at, length }) => {
                write!(f, "{length} bytes at {at:#x} are not in the memory of the machine")
            }
            Broken::MemoryLost => f.write_str("the memory of the machine was taken away"),
            Broken::Index { available, taken } => {
                write!(f, "the index of available requests jumped from {taken} to {available}")
            }
            Broken::Head(head) => {
                write!(f, "request {head} is outside of the queue, or in flight already")
            }
            Broken::Chain => f.write_str("a chain of descriptors loops, leaves its table, or is too long"),
            Broken::Order => f.write_str("a request has what is read behind what is written"),
            Broken::Frame => f.write_str("a request has no room for its header or its status"),
            Broken::Kick => f.write_str("what tells of requests is no event descriptor"),
        }
    }
}

/// A run of the guest's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) at: u64,
    pub(super) length: u32,
}

/// The memory of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Chain {
    /// What the guest has written.
    pub(super) readable: Vec<Segment>,
    /// What it waits for.
    pub(super) writable: Vec<Segment>,
}

/// Where a queue is, by the guest's addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) size: u16,
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
    /// Whether both sides state from which event on they are to be notified.
    pub(super) has_events: bool,
    /// Whether a descriptor may lead to a table of its own.
    pub(super) has_indirect: bool,
}

impl Ring {
    fn place(self, index: u16) -> u64 {
        u64::from(index % self.size)
    }

    /// The head that stands at `taken` in the ring of what is available, if the guest has come that far (VRING1).
    pub(super) fn available(self, memory: &Memory, taken: u16) -> Result<Option<u16>, Broken> {
        let available = memory.load(self.available.wrapping_add(2), Ordering::Acquire)?;
        match available.wrapping_sub(taken) {
            0 => return Ok(None),
            new if new > self.size => return Err(Broken::Index { available, taken }),
            _ => {}
        }
        let at = self.available.wrapping_add(4 + 2 * self.place(taken));
        let head = memory.load(at, Ordering::Relaxed)?;
        if head < self.size { Ok(Some(head)) } else { Err(Broken::Head(head)) }
    }

    /// The chain that begins at `head` (VRING2, VRING3).
    pub(super) fn chain(self, memory: &Memory, head: u16) -> Result<Chain, Broken> {
        let mut chain = Chain::default();
        let (mut table, mut places, mut index) = (self.descriptors, u64::from(self.size), head);
        let mut left = SEGMENTS_MAX;
        loop {
            left = left.checked_sub(1).ok_or(Broken::Chain)?;
            let (segment, flags, next) = descriptor(memory, table, places, index)?;
            if flags & INDIRECT != 0 {
                let is_plain = self.has_indirect && table == self.descriptors && flags & NEXT == 0;
                let count = u64::from(segment.length) / DESCRIPTOR;
                if !is_plain || count == 0 || !u64::from(segment.length).is_multiple_of(DESCRIPTOR) {
                    return Err(Broken::Chain);
                }
                (table, places, index) = (segment.at, count, 0);
                continue;
            }
            match flags & WRITE != 0 {
                true => chain.writable.push(segment),
                false if chain.writable.is_empty() => chain.readable.push(segment),
                false => return Err(Broken::Order),
            }
            if flags & NEXT == 0 {
                return Ok(chain);
            }
            index = next;
        }
    }

    /// Asks to be notified of the next request, if `enable`; whether there is one beyond `taken` already.
    pub(super) fn notify(self, memory: &Memory, taken: u16, enable: bool) -> Result<bool, Broken> {
        if !self.has_events {
            memory.store(self.used, if enable { 0 } else { NO_NOTIFY }, Ordering::Relaxed)?;
        } else if enable {
            let at = self.used.wrapping_add(4 + 8 * u64::from(self.size));
            memory.store(at, taken, Ordering::Relaxed)?;
        }
        if !enable {
            return Ok(false);
        }
        fence(Ordering::SeqCst);
        Ok(memory.load(self.available.wrapping_add(2), Ordering::Acquire)? != taken)
    }

    /// How many requests were given back, as the guest sees it.
    pub(super) fn used(self, memory: &Memory) -> Result<u16, Broken> {
        Ok(memory.load(self.used.wrapping_add(2), Ordering::Acquire)?)
    }

    /// Writes down that a request was used, in the place of `used`. The guest does not see it until the index is there.
    pub(super) fn put(self, memory: &Memory, used: u16, head: u16, written: u32) -> Result<(), Broken> {
        let element = [u32::from(head), written].map(u32::to_le_bytes).concat();
        Ok(memory.write(self.used.wrapping_add(4 + 8 * self.place(used)), &element)?)
    }

    /// Shows the guest all requests up to `used` (VRING3).
    pub(super) fn publish(self, memory: &Memory, used: u16) -> Result<(), Broken> {
        Ok(memory.store(self.used.wrapping_add(2), used, Ordering::Release)?)
    }

    /// Whether the guest is to be notified that the index went from `before` to `used`.
    pub(super) fn wants_call(self, memory: &Memory, before: u16, used: u16) -> Result<bool, Broken> {
        fence(Ordering::SeqCst);
        if !self.has_events {
            return Ok(memory.load(self.available, Ordering::Relaxed)? & NO_INTERRUPT == 0);
        }
        let at = self.available.wrapping_add(4 + 2 * u64::from(self.size));
        let event = memory.load(at, Ordering::Relaxed)?;
        Ok(used.wrapping_sub(event).wrapping_sub(1) < used.wrapping_sub(before))
    }
}

/// A descriptor of a table: what it describes, its flags, and the next one.
fn descriptor(memory: &Memory, table: u64, places: u64, index: u16) -> Result<(Segment, u16, u16), Broken> {
    if u64::from(index) >= places {
        return Err(Broken::Chain);
    }
    let mut bytes = [0; 16];
    memory.read(table.wrapping_add(DESCRIPTOR * u64::from(index)), &mut bytes)?;
    let [a, b, c, d, e, f, g, h, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
    let at = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let segment = Segment { at, length: u32::from_le_bytes([l0, l1, l2, l3]) };
    Ok((segment, u16::from_le_bytes([f0, f1]), u16::from_le_bytes([n0, n1])))
}
