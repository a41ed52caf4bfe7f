//! What is in flight, written where it outlives this process: memory that the virtual machine keeps and gives to the next process.
//! Its layout for split queues is that of the vhost-user specification.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | features |
//! | 8 | 2 | version, 1 |
//! | 10 | 2 | places of the queue |
//! | 12 | 2 | the head that was given back last |
//! | 14 | 2 | the index of what was used, as of that |
//! | 16 + 16 n | 1 | whether the request that begins at n is in flight |
//! | 16 + 16 n + 6 | 2 | the head that was given back before it in one go |
//! | 16 + 16 n + 8 | 8 | its number |
//!
//! Invariants:
//! - RESUBMIT1. Whenever the process ends, each request that was taken and whose answer the guest does not see is marked, and no other.
//! - RESUBMIT2. What is marked is begun again in the order in which it was begun.

use super::memory::Mapping;
use super::message::InFlightArea;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fs, io};
use vm_memory::{AtomicAccess, Bytes};

const HEAD: u64 = 16;
const PLACE: u64 = 16;
const VERSION: u16 = 1;

/// Bytes of a queue.
fn queue_bytes(queue_size: u16) -> u64 {
    (HEAD + PLACE * u64::from(queue_size)).next_multiple_of(64)
}

/// Makes the memory for queues, and says how it is to be mapped.
pub(super) fn make(queues: u16, queue_size: u16) -> io::Result<(InFlightArea, OwnedFd)> {
    let size = queue_bytes(queue_size) * u64::from(queues);
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::memfd_create("varve-in-flight", flags)?);
    file.set_len(size)?;
    Ok((InFlightArea { size, offset: 0, queues, queue_size }, file.into()))
}

/// That memory, mapped.
#[derive(Clone)]
pub(super) struct InFlightMemory {
    mapping: Arc<Mapping>,
    area: InFlightArea,
}

impl InFlightMemory {
    /// Maps it; refuses what is too small for its queues.
    pub(super) fn map(area: InFlightArea, file: OwnedFd) -> io::Result<Self> {
        let needed = queue_bytes(area.queue_size) * u64::from(area.queues);
        let end = area.offset.checked_add(area.size);
        let Some(end) = end.filter(|_| area.queue_size > 0 && area.size >= needed) else {
            return Err(io::Error::other("the memory for what is in flight is too small"));
        };
        Ok(Self { mapping: Arc::new(Mapping::new(file, end)?), area })
    }

    /// The part of one queue; none if it is not in it.
    pub(super) fn queue(&self, queue: u16, size: u16) -> Option<InFlightQueue> {
        let fits = queue < self.area.queues && size <= self.area.queue_size;
        let start = self.area.offset + queue_bytes(self.area.queue_size) * u64::from(queue);
        fits.then(|| InFlightQueue { mapping: Arc::clone(&self.mapping), start, size, number: 0 })
    }
}

/// What is in flight of one queue.
pub(super) struct InFlightQueue {
    mapping: Arc<Mapping>,
    start: u64,
    size: u16,
    /// The number of the next request.
    number: u64,
}

impl InFlightQueue {
    fn load<T: AtomicAccess + Default>(&self, at: u64) -> T {
        let slice = self.mapping.slice(self.start + at, size_of::<T>() as u64);
        slice.and_then(|slice| slice.load(0, Ordering::Acquire).ok()).unwrap_or_default()
    }

    fn store<T: AtomicAccess>(&self, at: u64, value: T) {
        if let Some(slice) = self.mapping.slice(self.start + at, size_of::<T>() as u64) {
            let _ = slice.store(value, 0, Ordering::Release); // Its place is aligned, and in the mapping.
        }
    }

    fn place(head: u16) -> u64 {
        HEAD + PLACE * u64::from(head)
    }

    /// What is in flight when the guest sees `used`, in its order (RESUBMIT2).
    pub(super) fn recover(&mut self, used: u16) -> Vec<u16> {
        self.store(8, VERSION.to_le());
        self.store(10, self.size.to_le());
        // The process ended between showing the guest an answer and noting that it was shown.
        let mut last = u16::from_le(self.load(12));
        let ended = used.wrapping_sub(u16::from_le(self.load(14)));
        for _ in 0..ended.min(self.size) {
            if last >= self.size {
                break;
            }
            self.store(Self::place(last), 0_u8);
            last = u16::from_le(self.load(Self::place(last) + 6));
        }
        self.store(14, used.to_le());
        let is_marked = |head: &u16| self.load::<u8>(Self::place(*head)) == 1;
        let number = |head: u16| (u64::from_le(self.load(Self::place(head) + 8)), head);
        let mut marked: Vec<(u64, u16)> = (0..self.size).filter(is_marked).map(number).collect();
        marked.sort_unstable();
        self.number = marked.last().map_or(0, |(number, _)| number.wrapping_add(1));
        marked.into_iter().map(|(_, head)| head).collect()
    }

    /// A request is taken (RESUBMIT1).
    pub(super) fn begin(&mut self, head: u16) {
        self.store(Self::place(head) + 8, self.number.to_le());
        self.store(Self::place(head), 1_u8);
        self.number = self.number.wrapping_add(1);
    }

    /// It is about to be shown as used.
    pub(super) fn ending(&self, head: u16) {
        self.store(12, head.to_le());
    }

    /// The guest sees it among the first `used`.
    pub(super) fn ended(&self, head: u16, used: u16) {
        self.store(Self::place(head), 0_u8);
        self.store(14, used.to_le());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> InFlightMemory {
        let (area, file) = make(2, 8).expect("memory");
        InFlightMemory::map(area, file).expect("it is large enough")
    }

    #[test]
    fn a_process_that_ends_at_any_moment_leaves_what_is_to_be_begun_again() {
        let memory = memory();
        let again = |used: u16| memory.queue(1, 8).expect("a queue").recover(used);
        let mut queue = memory.queue(1, 8).expect("a queue");
        assert_eq!(queue.recover(0), [0; 0]);
        for head in [5, 0, 3] {
            queue.begin(head);
        }
        assert_eq!(again(0), [5, 0, 3], "RESUBMIT1, RESUBMIT2");
        queue.ending(0);
        assert_eq!(again(0), [5, 0, 3], "RESUBMIT1: the guest does not see it");
        assert_eq!(again(1), [5, 3], "RESUBMIT1: the guest sees it, and it was not noted");
        queue.ended(0, 1);
        assert_eq!(again(1), [5, 3], "RESUBMIT1");
        queue.begin(0);
        assert_eq!(again(1), [5, 3, 0], "RESUBMIT2: the same place, later");
        assert_eq!(memory.queue(0, 8).expect("a queue").recover(0), [0; 0], "queues are apart");
    }

    #[test]
    fn memory_that_contradicts_itself_is_no_panic() {
        let (mut area, file) = make(1, 8).expect("memory");
        let mapped = InFlightMemory::map(area, file.try_clone().expect("a descriptor")).expect("mapped");
        assert!(mapped.queue(1, 8).is_none() && mapped.queue(0, 16).is_none(), "outside");
        let queue = mapped.queue(0, 8).expect("a queue");
        queue.store(12, 0xffff_u16);
        queue.store(14, 0x1234_u16);
        let mut queue = queue;
        assert_eq!(queue.recover(0), [0; 0]);
        area.size = 8;
        assert!(InFlightMemory::map(area, file).is_err());
    }
}
