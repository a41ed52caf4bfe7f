//! Memory for the arena: huge pages where they are to be had.
#![allow(unsafe_code)]

use crate::sys::Mapping;
use std::ptr::NonNull;
use varve_block::{Arena, HeapMemory, Memory};

/// Explicit huge pages come in this unit.
const HUGE_PAGE: usize = 2 << 20;

/// A mapping as arena memory.
struct MappedMemory(Mapping);

// SAFETY: the mapping is zeroed, page-aligned, owned alone by this value, and unmapped only on drop.
unsafe impl Memory for MappedMemory {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
    fn length(&self) -> usize {
        self.0.length()
    }
}

/// Lets the process have as many files open as its hard limit allows: disks, sockets and clients each take one.
pub fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::info!(before = current, now = maximum, "more files may be open"),
        Err(error) => tracing::warn!(limit = current, %error, "the limit of open files cannot be raised"),
    }
}

/// An arena of `length` bytes, rounded up to huge pages: explicit ones, else transparent ones, else the heap.
pub fn map_arena(length: usize) -> Arena {
    let length = length.max(1).next_multiple_of(HUGE_PAGE);
    if let Ok(mapping) = Mapping::new(length, true) {
        tracing::info!(length, "arena on explicit huge pages");
        return Arena::new(Box::new(MappedMemory(mapping)));
    }
    match Mapping::new(length, false) {
        Ok(mapping) => {
            let transparent = mapping.advise_huge();
            tracing::info!(length, transparent, "arena on ordinary memory");
            Arena::new(Box::new(MappedMemory(mapping)))
        }
        Err(error) => {
            tracing::warn!(length, %error, "arena on the heap");
            Arena::new(Box::new(HeapMemory::new(length)))
        }
    }
}

/// Allocations of the heap from this many bytes on are mappings of their own.
const MAPPED_FROM: i32 = 4 << 20;

/// Has large allocations of the heap taken from the system one by one and given back when they are freed.
///
/// glibc learns from the first large block that is freed to keep such blocks in the heaps of its threads, and clears
/// them when they are used again: 16 MiB become resident for each thread of a FUSE export, of which it needs one, and
/// stay so when it is gone.
pub fn give_back_large_allocations() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and locks the allocator.
    let done = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM) } == 1;
    #[cfg(not(target_env = "gnu"))]
    let done = MAPPED_FROM > 0;
    if !done {
        tracing::warn!("the heap keeps large blocks that are freed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arena_is_zeroed_writable_and_rounded_up() {
        let arena = map_arena(1);
        assert_eq!(arena.usage().capacity, HUGE_PAGE as u64);
        let mut buffer = arena.take(1 << 20);
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer.fill(7);
        assert!(buffer.iter().all(|byte| *byte == 7));
    }
}
