//! The memory that clients of all doors may make the daemon keep, shared by threads: what cannot be had is waited for.
//!
//! Memory belongs to requests: a request *takes* what it needs before a buffer is taken, and gives it back when it is answered. What
//! serves several requests is *reserved*, for as long as it is needed. Small requests and large ones stand in lines of their own, and small
//! ones have a part of the memory that no large one gets: a client that announces much and sends it slowly, or fetches it slowly, keeps large
//! requests waiting, and these alone. Waiters of one export are served in the order in which they came; exports take turns, so that the
//! clients of one do not starve another.
//!
//! Whatever is taken comes back in bounded time: a request that has its memory waits for nothing but its device and its client, and a
//! client that does not go on is left. What is reserved beside requests never takes the part of the small ones, so no reservation can
//! keep a request from its turn.
//!
//! Invariants:
//! - BUDGET1. `used` is the sum of all reservations and of all bytes taken and not given back.
//! - BUDGET2. `used <= capacity`, except that one request may be granted beyond it while no other of its size class has anything.
//! - BUDGET3. Reservations and large requests take at most three quarters of the capacity together, but for a large request that is alone.
//! - BUDGET4. Of the waiters of a size class the next one is the first of another export than the last one that was served, else the
//!   first. It is granted its bytes as soon as they are free, and no other of its class before.
//! - BUDGET5. While a large request waits, small ones take no more than a quarter: what others give back reaches it.

use std::collections::VecDeque;
use std::ops::{AddAssign, SubAssign};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// A request that needs more is large.
pub(crate) const SMALL_BYTES_MAX: u64 = 256 << 10;

/// Bytes of memory, by the size class of the requests that have them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Memory {
    pub(crate) small: u64,
    pub(crate) large: u64,
}

impl Memory {
    /// No bytes.
    pub(crate) const NONE: Memory = Memory { small: 0, large: 0 };

    /// What one request of `bytes` needs.
    pub(crate) fn of(bytes: u64) -> Self {
        if bytes > SMALL_BYTES_MAX {
            Self { small: 0, large: bytes }
        } else {
            Self { small: bytes, large: 0 }
        }
    }

    pub(crate) fn total(self) -> u64 {
        self.small.saturating_add(self.large)
    }
}

impl AddAssign for Memory {
    fn add_assign(&mut self, other: Self) {
        self.small += other.small;
        self.large += other.large;
    }
}

impl SubAssign for Memory {
    fn sub_assign(&mut self, other: Self) {
        let (small, large) = (self.small.checked_sub(other.small), self.large.checked_sub(other.large));
        const TAKEN: &str = "BUDGET1: what is given back was taken";
        *self = Self { small: small.expect(TAKEN), large: large.expect(TAKEN) };
    }
}

/// Bytes that doors may keep for their clients. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Budget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    capacity: u64,
    /// Requests that wait; a hint that saves the lock.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    reserved: u64,
    taken: Memory,
    small: Line,
    large: Line,
}

#[derive(Default, Debug)]
struct Line {
    waiters: VecDeque<Arc<Waiter>>,
    /// The export that was served last.
    last: usize,
}

#[derive(Debug)]
struct Waiter {
    export: usize,
    memory: Memory,
    granted: AtomicBool,
    waker: Mutex<Waker>,
}

impl Budget {
    /// A budget of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        let (waiting, state) = (AtomicUsize::new(0), Mutex::default());
        Self { inner: Arc::new(Inner { capacity, waiting, state }) }
    }

    /// Bytes that may be used.
    pub fn capacity(&self) -> u64 {
        self.inner.capacity
    }

    /// Bytes now reserved or taken (BUDGET1).
    pub fn used(&self) -> u64 {
        self.inner.lock().used()
    }

    /// Sets `bytes` aside for as long as the reservation lives; `None` if they are not to be had (BUDGET3).
    pub fn reserve(&self, bytes: u64) -> Option<Reservation> {
        self.reserve_within(bytes, self.inner.guarded())
    }

    /// Sets `bytes` aside that only make requests faster: `None`, too, while a request waits, or if they were more than half of
    /// the capacity with all other reservations.
    pub(crate) fn reserve_spare(&self, bytes: u64) -> Option<Reservation> {
        if self.is_short() { None } else { self.reserve_within(bytes, self.inner.capacity / 2) }
    }

    fn reserve_within(&self, bytes: u64, reserved_max: u64) -> Option<Reservation> {
        let inner = &self.inner;
        let mut state = inner.lock();
        let reserved = state.reserved.checked_add(bytes)?;
        let is_there = reserved <= reserved_max
            && reserved.saturating_add(state.taken.large) <= inner.guarded()
            && state.used().saturating_add(bytes) <= inner.capacity;
        state.reserved = if is_there { reserved } else { return None };
        Some(Reservation { budget: self.clone(), bytes })
    }

    /// Takes `memory`, of one size class, if it is free and nothing of that class waits.
    pub(crate) fn try_take(&self, memory: Memory) -> bool {
        let mut state = self.inner.lock();
        let is_free = state.line(memory).waiters.is_empty() && state.fits(memory, self.inner.capacity);
        if is_free {
            state.taken += memory;
        }
        is_free
    }

    /// Whether anything waits for bytes.
    pub(crate) fn is_short(&self) -> bool {
        self.inner.waiting.load(SeqCst) > 0
    }

    /// Gives back what was taken.
    pub(crate) fn give(&self, memory: Memory) {
        if memory == Memory::NONE {
            return;
        }
        let mut state = self.inner.lock();
        state.taken -= memory;
        self.inner.serve_waiters(state);
    }

    /// Stands in line for `memory`, of one size class, for a client of `export`; `waker` is woken when it is granted.
    pub(crate) fn wait(&self, export: usize, memory: Memory, waker: &Waker) -> Claim {
        let (granted, waker) = (AtomicBool::new(false), Mutex::new(waker.clone()));
        let waiter = Arc::new(Waiter { export, memory, granted, waker });
        let mut state = self.inner.lock();
        state.line(memory).waiters.push_back(Arc::clone(&waiter));
        self.inner.serve_waiters(state);
        Claim { budget: self.clone(), waiter: Some(waiter) }
    }

    /// Takes `memory`, and lets this thread wait for it. It is given back with [`Budget::give`].
    pub(crate) fn take_blocking(&self, export: usize, memory: Memory) {
        if self.try_take(memory) {
            return;
        }
        let signal = Arc::new(Signal::default());
        let mut claim = self.wait(export, memory, &Waker::from(Arc::clone(&signal)));
        while !claim.take() {
            signal.wait();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What reservations and large requests may have (BUDGET3).
    fn guarded(&self) -> u64 {
        self.capacity - self.capacity / 4
    }

    /// Grants bytes to waiters, to one export after the other (BUDGET4), and lets them know.
    fn serve_waiters(&self, mut state: MutexGuard<'_, State>) {
        let mut granted = Vec::new();
        state.serve(true, self.capacity, &mut granted);
        state.serve(false, self.capacity, &mut granted);
        self.waiting.store(state.small.waiters.len() + state.large.waiters.len(), SeqCst);
        drop(state);
        granted.iter().for_each(|waiter| waiter.wake());
    }
}

impl State {
    fn used(&self) -> u64 {
        self.reserved.saturating_add(self.taken.total())
    }

    fn line(&mut self, memory: Memory) -> &mut Line {
        if memory.large > 0 { &mut self.large } else { &mut self.small }
    }

    /// Whether one request's `memory` is free for it.
    fn fits(&self, memory: Memory, capacity: u64) -> bool {
        let quarter = capacity / 4;
        let is_there = self.used().saturating_add(memory.total()) <= capacity; // BUDGET2
        if memory.large == 0 {
            let small = self.taken.small + memory.small;
            let is_own = small <= quarter || self.taken.small == 0;
            return is_own || (is_there && self.large.waiters.is_empty()); // BUDGET5
        }
        let guarded = self.reserved.saturating_add(self.taken.large).saturating_add(memory.large);
        let is_alone = self.taken.large == 0 && self.taken.small <= quarter;
        is_alone || (is_there && guarded <= capacity - quarter) // BUDGET3
    }

    fn serve(&mut self, large: bool, capacity: u64, granted: &mut Vec<Arc<Waiter>>) {
        loop {
            let line = if large { &self.large } else { &self.small };
            let Some(next) = line.next() else { return };
            let waiter = Arc::clone(&line.waiters[next]);
            if !self.fits(waiter.memory, capacity) {
                return;
            }
            self.taken += waiter.memory;
            waiter.granted.store(true, SeqCst);
            let line = self.line(waiter.memory);
            line.last = waiter.export;
            granted.extend(line.waiters.remove(next));
        }
    }
}

impl Line {
    /// The place of the waiter that is served next (BUDGET4).
    fn next(&self) -> Option<usize> {
        let other = self.waiters.iter().position(|waiter| waiter.export != self.last);
        other.or_else(|| (!self.waiters.is_empty()).then_some(0))
    }
}

impl Waiter {
    fn wake(&self) {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
}

/// Bytes set aside; given back on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.budget.inner.lock();
        state.reserved -= self.bytes;
        self.budget.inner.serve_waiters(state);
    }
}

/// A place in the line for bytes; left on drop, with what was granted and not taken.
#[derive(Debug)]
pub(crate) struct Claim {
    budget: Budget,
    /// `None` once the bytes were taken.
    waiter: Option<Arc<Waiter>>,
}

impl Claim {
    /// Whether the bytes were granted; they belong to the caller from then on.
    pub(crate) fn take(&mut self) -> bool {
        let granted = self.waiter.as_ref().is_none_or(|waiter| waiter.granted.load(SeqCst));
        if granted {
            self.waiter = None;
        }
        granted
    }

    /// Has `waker` woken instead of the one before.
    pub(crate) fn register(&self, waker: &Waker) {
        if let Some(waiter) = &self.waiter {
            let mut held = waiter.waker.lock().unwrap_or_else(PoisonError::into_inner);
            held.clone_from(waker);
        }
        // What was granted before the waker was there to be woken.
        if self.waiter.as_ref().is_some_and(|waiter| waiter.granted.load(SeqCst)) {
            waker.wake_by_ref();
        }
    }

    /// What is waited for.
    pub(crate) fn memory(&self) -> Memory {
        self.waiter.as_ref().map_or(Memory::NONE, |waiter| waiter.memory)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let mut state = self.budget.inner.lock();
        if waiter.granted.load(SeqCst) {
            state.taken -= waiter.memory;
        }
        state.line(waiter.memory).waiters.retain(|other| !Arc::ptr_eq(other, &waiter));
        self.budget.inner.serve_waiters(state);
    }
}

/// Wakes a thread.
#[derive(Default)]
struct Signal {
    is_set: Mutex<bool>,
    set: Condvar,
}

impl Signal {
    fn wait(&self) {
        let mut is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        while !std::mem::take(&mut *is_set) {
            is_set = self.set.wait(is_set).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.set.notify_one();
    }
}

#[cfg(test)]
mod tests;
