//! Memory of another process that goes away: reading it ends no process, it reads as zeros from then on, and is known to be lost.
//!
//! Who shares memory may cut its file short at any moment, and the kernel then sends SIGBUS to whoever reads it. The handler here puts
//! empty memory in the place of a range that is watched, once, and marks the range. Any other SIGBUS goes to the handler before. The
//! handler takes no lock and allocates nothing.
//!
//! Invariant LOSTPAGES1: a range is watched only while it is mapped.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Ranges that can be watched at a time.
const RANGES: usize = 4096;

/// A range of addresses.
struct Range {
    is_taken: AtomicBool,
    /// Zero if nothing is watched.
    start: AtomicUsize,
    length: AtomicUsize,
    is_lost: AtomicBool,
}

static WATCHED: [Range; RANGES] = [const {
    Range {
        is_taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        is_lost: AtomicBool::new(false),
    }
}; RANGES];

/// What handled SIGBUS before; none if it cannot be handled here.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// A range that is watched until this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    index: usize,
}

impl Watch {
    /// Watches `length` bytes from `start` on, which are mapped, readable and writable, and stay so until this is dropped (LOSTPAGES1).
    /// None if too much is watched already.
    pub(super) fn new(start: usize, length: usize) -> Option<Self> {
        (*BEFORE.get_or_init(install)).as_ref()?;
        let take = |range: &Range| {
            range.is_taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let index = WATCHED.iter().position(take)?;
        let range = &WATCHED[index];
        range.is_lost.store(false, Ordering::Relaxed);
        range.length.store(length, Ordering::Relaxed);
        range.start.store(start, Ordering::Release);
        Some(Self { index })
    }

    /// Whether what was there is gone.
    pub(super) fn is_lost(&self) -> bool {
        WATCHED[self.index].is_lost.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let range = &WATCHED[self.index];
        range.start.store(0, Ordering::Release);
        range.is_taken.store(false, Ordering::Release);
    }
}

/// Has SIGBUS handled here; what handled it before.
fn install() -> Option<libc::sigaction> {
    // SAFETY: all bytes zero are a `sigaction`: no handler, an empty set of signals, no flags.
    let (mut new, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
    new.sa_sigaction = handler as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both point to structures of this function; the handler takes no lock and allocates nothing.
    let result = unsafe { libc::sigaction(libc::SIGBUS, &raw const new, &raw mut before) };
    (result == 0).then_some(before)
}

extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a structure whose address field is valid for SIGBUS.
    let at = unsafe { (*info).si_addr() } as usize;
    let is_replaced = WATCHED.iter().any(|range| replace(range, at));
    if !is_replaced && let Some(Some(before)) = BEFORE.get() {
        // SAFETY: `before` is what the kernel gave; the access is tried again, and that handler called.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
}

/// Puts empty memory in the place of a range, if `at` is in it.
fn replace(range: &Range, at: usize) -> bool {
    let start = range.start.load(Ordering::Acquire);
    let length = range.length.load(Ordering::Relaxed);
    if start == 0 || at < start || at - start >= length {
        return false;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the range is mapped by its owner (LOSTPAGES1), who reads and writes it as memory that others change at any time;
    // what replaces it has the same size and rights.
    let mapped = unsafe { libc::mmap(start as *mut c_void, length, protection, flags, -1, 0) };
    range.is_lost.store(true, Ordering::Release);
    mapped != libc::MAP_FAILED
}
