//! The memory that clients of all doors may make the daemon keep, shared by threads: what cannot be had is waited for.
//!
//! A connection or file *reserves* what it keeps for as long as it is open, and *takes* for each request what goes
//! beyond that, before a buffer is taken. Waiters of one export are served in the order in which they came, so that
//! many small requests cannot starve a large one; exports take turns, so that the clients of one do not starve another.
//!
//! Invariants:
//! - BUDGET1. `used` is the sum of all reservations and of all bytes taken and not given back.
//! - BUDGET2. `used <= capacity`, except that one request may be granted beyond it while nothing else is taken.
//! - BUDGET3. Reservations take at most three quarters of the capacity, so that requests always have the rest.
//! - BUDGET4. The next waiter is the first of another export than the last one that was served, else the first. It is granted
//!   its bytes as soon as they are free, and no other waiter before.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// Bytes that doors may keep for their clients. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Budget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    capacity: u64,
    used: AtomicU64,
    reserved: AtomicU64,
    /// Length of `waiters`; a hint that saves the lock.
    waiting: AtomicUsize,
    waiters: Mutex<Line>,
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
    bytes: u64,
    granted: AtomicBool,
    waker: Mutex<Waker>,
}

impl Budget {
    /// A budget of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        let inner = Inner {
            capacity,
            used: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            waiters: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Bytes that may be used.
    pub fn capacity(&self) -> u64 {
        self.inner.capacity
    }

    /// Bytes now reserved or taken (BUDGET1).
    pub fn used(&self) -> u64 {
        self.inner.used.load(SeqCst)
    }

    /// Sets `bytes` aside for as long as the reservation lives; `None` if they are not to be had (BUDGET3).
    pub fn reserve(&self, bytes: u64) -> Option<Reservation> {
        let inner = &self.inner;
        let _line = inner.lock();
        let reserved = inner.reserved.load(SeqCst).checked_add(bytes)?;
        if reserved > inner.capacity / 4 * 3 || !inner.try_add(bytes) {
            return None;
        }
        inner.reserved.store(reserved, SeqCst); // changed under the lock only
        Some(Reservation { budget: self.clone(), bytes })
    }

    /// Takes `bytes` if they are free and nothing waits for bytes.
    pub(crate) fn try_take(&self, bytes: u64) -> bool {
        self.inner.waiting.load(SeqCst) == 0 && self.inner.try_add(bytes)
    }

    /// Whether anything waits for bytes.
    pub(crate) fn is_short(&self) -> bool {
        self.inner.waiting.load(SeqCst) > 0
    }

    /// Gives back bytes that were taken.
    pub(crate) fn give(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let before = self.inner.used.fetch_sub(bytes, SeqCst);
        assert!(before >= bytes, "BUDGET1");
        self.inner.serve_waiters();
    }

    /// Stands in line for `bytes`, for a client of `export`; `waker` is woken when they are granted.
    pub(crate) fn wait(&self, export: usize, bytes: u64, waker: &Waker) -> Claim {
        let (granted, waker) = (AtomicBool::new(false), Mutex::new(waker.clone()));
        let waiter = Arc::new(Waiter { export, bytes, granted, waker });
        let mut line = self.inner.lock();
        line.waiters.push_back(Arc::clone(&waiter));
        self.inner.waiting.store(line.waiters.len(), SeqCst);
        drop(line);
        self.inner.serve_waiters();
        Claim { budget: self.clone(), waiter: Some(waiter) }
    }

    /// Takes `bytes`, and lets this thread wait for them. They are given back with [`Budget::give`].
    pub(crate) fn take_blocking(&self, export: usize, bytes: u64) {
        if self.try_take(bytes) {
            return;
        }
        let signal = Arc::new(Signal::default());
        let mut claim = self.wait(export, bytes, &Waker::from(Arc::clone(&signal)));
        while !claim.take() {
            signal.wait();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` if they are free, or if nothing else is taken (BUDGET2).
    fn try_add(&self, bytes: u64) -> bool {
        let added = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.capacity);
        self.used.fetch_update(SeqCst, SeqCst, added).is_ok()
    }

    /// BUDGET2: a request alone is granted whatever its size.
    fn try_add_alone(&self, bytes: u64) -> bool {
        let reserved = self.reserved.load(SeqCst);
        self.used.compare_exchange(reserved, reserved.saturating_add(bytes), SeqCst, SeqCst).is_ok()
    }

    /// Grants bytes to waiters, to one export after the other (BUDGET4).
    fn serve_waiters(&self) {
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        let mut granted = Vec::new();
        let mut line = self.lock();
        while let Some(next) = line.next() {
            let waiter = Arc::clone(&line.waiters[next]);
            if !self.try_add(waiter.bytes) && !self.try_add_alone(waiter.bytes) {
                break;
            }
            waiter.granted.store(true, SeqCst);
            line.last = waiter.export;
            granted.extend(line.waiters.remove(next));
        }
        self.waiting.store(line.waiters.len(), SeqCst);
        drop(line);
        granted.iter().for_each(|waiter| waiter.wake());
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

impl Reservation {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let inner = &self.budget.inner;
        let line = inner.lock();
        inner.reserved.fetch_sub(self.bytes, SeqCst);
        inner.used.fetch_sub(self.bytes, SeqCst);
        drop(line);
        inner.serve_waiters();
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

    /// Bytes that are waited for.
    pub(crate) fn bytes(&self) -> u64 {
        self.waiter.as_ref().map_or(0, |waiter| waiter.bytes)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let inner = &self.budget.inner;
        let mut line = inner.lock();
        line.waiters.retain(|other| !Arc::ptr_eq(other, &waiter));
        inner.waiting.store(line.waiters.len(), SeqCst);
        drop(line);
        // Whether it was granted is known for good once it is not in the line.
        if waiter.granted.load(SeqCst) {
            self.budget.give(waiter.bytes);
        } else {
            inner.serve_waiters();
        }
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
mod tests {
    use super::*;

    fn wait(budget: &Budget, bytes: u64) -> Claim {
        budget.wait(1, bytes, Waker::noop())
    }

    #[test]
    fn waiters_are_served_in_order_and_nobody_overtakes_them() {
        let budget = Budget::new(100);
        assert!(budget.try_take(90));
        let (mut large, mut small) = (wait(&budget, 60), wait(&budget, 5));
        assert!(!large.take() && !small.take() && !budget.try_take(1), "BUDGET4");
        budget.give(30);
        assert!(!large.take() && !small.take(), "BUDGET4: the first in line is short of bytes");
        budget.give(20);
        assert!(large.take() && !small.take(), "BUDGET2");
        budget.give(60);
        assert!(small.take());
        budget.give(45);
        assert_eq!(budget.used(), 0, "BUDGET1");
    }

    #[test]
    fn exports_take_turns() {
        let budget = Budget::new(100);
        assert!(budget.try_take(100));
        let mut many: Vec<_> = (0..3).map(|_| wait(&budget, 100)).collect();
        let mut other = budget.wait(2, 100, Waker::noop());
        budget.give(100);
        assert!(many[0].take() && !other.take(), "BUDGET4: nobody was served before");
        budget.give(100);
        assert!(other.take() && !many[1].take(), "BUDGET4: it is the other export's turn");
        budget.give(100);
        assert!(many[1].take(), "BUDGET4");
        drop(many);
        budget.give(100);
        assert_eq!(budget.used(), 0, "BUDGET1");
    }

    #[test]
    fn who_leaves_the_line_makes_room_and_gives_back_what_was_granted() {
        let budget = Budget::new(100);
        assert!(budget.try_take(90));
        let (large, mut small) = (wait(&budget, 60), wait(&budget, 5));
        drop(large);
        assert!(small.take(), "BUDGET4");
        let granted = wait(&budget, 5);
        drop(granted);
        budget.give(95);
        assert_eq!(budget.used(), 0, "BUDGET1");
    }

    #[test]
    fn a_giant_is_granted_once_it_is_alone() {
        let budget = Budget::new(100);
        let _kept = budget.reserve(30).expect("free");
        assert!(budget.try_take(1));
        let mut giant = wait(&budget, 1000);
        assert!(!giant.take(), "BUDGET2");
        budget.give(1);
        assert!(giant.take(), "BUDGET2");
        let mut next = wait(&budget, 1);
        assert!(!next.take(), "BUDGET2");
        budget.give(1000);
        assert!(next.take());
    }

    #[test]
    fn reservations_leave_a_quarter_to_requests() {
        let budget = Budget::new(100);
        let first = budget.reserve(50).expect("free");
        assert!(budget.reserve(26).is_none(), "BUDGET3");
        let second = budget.reserve(25).expect("BUDGET3");
        drop(first);
        assert_eq!(budget.used(), 25, "BUDGET1");
        assert!(budget.try_take(75));
        assert!(budget.reserve(25).is_none(), "BUDGET2: what requests have taken is not to be had");
        drop(second);
        assert_eq!(budget.used(), 75, "BUDGET1");
    }

    #[test]
    fn threads_wait_until_there_is_room() {
        let budget = Budget::new(100);
        budget.take_blocking(1, 60);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        budget.take_blocking(1, 60);
                        assert!(budget.used() <= 100, "BUDGET2");
                        budget.give(60);
                    }
                });
            }
            budget.give(60);
        });
        assert_eq!(budget.used(), 0, "BUDGET1");
    }
}
