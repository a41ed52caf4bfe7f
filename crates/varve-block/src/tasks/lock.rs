//! A lock on ranges of bytes, for the few places where atomicity must span an await.
//!
//! Invariants:
//! - LOCK1. Two granted ranges that overlap are both shared.
//! - LOCK2. Requests that overlap are granted in the order in which they came.

use crate::units::Extent;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Whether a range may be held by others at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// With other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// The lock; cloning shares it.
#[derive(Clone, Default)]
pub struct RangeLock {
    table: Rc<RefCell<Table>>,
}

#[derive(Default)]
struct Table {
    /// In order of arrival.
    entries: Vec<Entry>,
    next_id: u64,
}

struct Entry {
    id: u64,
    extent: Extent,
    mode: LockMode,
    granted: bool,
    waker: Option<Waker>,
}

impl Entry {
    fn conflicts(&self, other: &Entry) -> bool {
        self.extent.overlaps(other.extent)
            && (self.mode == LockMode::Exclusive || other.mode == LockMode::Exclusive)
    }
}

impl RangeLock {
    /// A lock of which nothing is held.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for `extent`. Dropping the future abandons its place in the queue.
    pub fn lock(&self, extent: Extent, mode: LockMode) -> RangeWait {
        RangeWait { guard: Some(self.enqueue(extent, mode)) }
    }

    /// Takes `extent` if it is free now.
    pub fn try_lock(&self, extent: Extent, mode: LockMode) -> Option<RangeGuard> {
        let guard = self.enqueue(extent, mode);
        let granted = self.table.borrow().granted(guard.id);
        granted.then_some(guard)
    }

    /// Whether nothing is held or waited for.
    pub fn is_idle(&self) -> bool {
        self.table.borrow().entries.is_empty()
    }

    fn enqueue(&self, extent: Extent, mode: LockMode) -> RangeGuard {
        let mut table = self.table.borrow_mut();
        let id = table.next_id;
        table.next_id += 1;
        let mut entry = Entry { id, extent, mode, granted: false, waker: None };
        entry.granted = !table.entries.iter().any(|earlier| earlier.conflicts(&entry));
        table.entries.push(entry);
        RangeGuard { table: Rc::clone(&self.table), id }
    }
}

impl Table {
    fn granted(&self, id: u64) -> bool {
        self.entries.iter().any(|entry| entry.id == id && entry.granted)
    }

    /// Removes an entry and grants what it kept waiting.
    fn release(&mut self, id: u64) -> Vec<Waker> {
        self.entries.retain(|entry| entry.id != id);
        let mut wakers = Vec::new();
        for index in 0..self.entries.len() {
            if self.entries[index].granted {
                continue;
            }
            let (earlier, rest) = self.entries.split_at_mut(index);
            let entry = &mut rest[0];
            if !earlier.iter().any(|other| other.conflicts(entry)) {
                entry.granted = true;
                wakers.extend(entry.waker.take());
            }
        }
        wakers
    }
}

/// A held range; released on drop.
pub struct RangeGuard {
    table: Rc<RefCell<Table>>,
    id: u64,
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        let wakers = self.table.borrow_mut().release(self.id);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Waits for a range.
pub struct RangeWait {
    guard: Option<RangeGuard>,
}

impl Future for RangeWait {
    type Output = RangeGuard;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RangeGuard> {
        let guard = self.guard.take().expect("a lock is awaited once");
        let granted = {
            let mut table = guard.table.borrow_mut();
            let entry = table.entries.iter_mut().find(|entry| entry.id == guard.id);
            let entry = entry.expect("an entry lives as long as its guard");
            if !entry.granted {
                entry.waker = Some(context.waker().clone());
            }
            entry.granted
        };
        if granted {
            return Poll::Ready(guard);
        }
        self.guard = Some(guard);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::LocalPool;
    use futures_util::FutureExt;
    use futures_util::task::LocalSpawnExt;

    fn range(offset: u64, length: u64) -> Extent {
        Extent::new(offset, length)
    }

    #[test]
    fn overlapping_exclusive_locks_take_turns_in_order() {
        let lock = RangeLock::new();
        let first = lock.try_lock(range(0, 10), LockMode::Exclusive).expect("free");
        let mut second = lock.lock(range(5, 10), LockMode::Exclusive);
        let mut third = lock.lock(range(12, 10), LockMode::Shared);
        assert!((&mut second).now_or_never().is_none(), "LOCK1");
        assert!((&mut third).now_or_never().is_none(), "LOCK2: waits behind the second");
        drop(first);
        let held = (&mut second).now_or_never().expect("granted");
        drop(held);
        assert!(third.now_or_never().is_some());
        assert!(lock.is_idle());
    }

    #[test]
    fn shared_locks_live_together_and_keep_writers_out() {
        let lock = RangeLock::new();
        let one = lock.try_lock(range(0, 10), LockMode::Shared).expect("free");
        let two = lock.try_lock(range(5, 10), LockMode::Shared).expect("shared");
        assert!(lock.try_lock(range(9, 1), LockMode::Exclusive).is_none());
        assert!(lock.try_lock(range(20, 1), LockMode::Exclusive).is_some());
        drop((one, two));
        assert!(lock.is_idle(), "a failed attempt leaves nothing behind");
    }

    #[test]
    fn a_release_elsewhere_grants_nothing_past_one_that_waits() {
        let lock = RangeLock::new();
        let one = lock.try_lock(range(0, 5), LockMode::Exclusive).expect("free");
        let two = lock.try_lock(range(20, 5), LockMode::Exclusive).expect("free");
        let mut whole = lock.lock(range(0, 25), LockMode::Exclusive);
        let mut late = lock.lock(range(6, 4), LockMode::Exclusive);
        assert!((&mut whole).now_or_never().is_none() && (&mut late).now_or_never().is_none());
        drop(one);
        assert!((&mut late).now_or_never().is_none(), "LOCK2: it came after the whole range");
        drop(two);
        assert!((&mut whole).now_or_never().is_some(), "LOCK1");
    }

    #[test]
    fn a_release_wakes_the_task_that_waits_for_the_range() {
        let lock = RangeLock::new();
        let held = lock.try_lock(range(0, 10), LockMode::Exclusive).expect("free");
        let wait = lock.lock(range(5, 10), LockMode::Exclusive);
        let mut tasks = LocalPool::new();
        let waiter = tasks.spawner().spawn_local_with_handle(wait).expect("the pool is there");
        tasks.run_until_stalled();
        drop(held);
        // Only tasks that were woken are polled.
        tasks.run_until_stalled();
        assert!(waiter.now_or_never().is_some(), "LOCK1: granted, and told so");
    }

    #[test]
    fn giving_up_a_wait_lets_the_next_one_in() {
        let lock = RangeLock::new();
        let held = lock.try_lock(range(0, 10), LockMode::Shared).expect("free");
        let writer = lock.lock(range(0, 10), LockMode::Exclusive);
        let reader = lock.lock(range(0, 10), LockMode::Shared);
        drop(writer);
        assert!(reader.now_or_never().is_some());
        drop(held);
    }
}
