//! How many bytes of one door's requests may be on their way, and their part of what all doors share: a request for more waits
//! here.
//!
//! Invariants:
//! - INFLIGHT1. `used` is the sum of the permits that exist.
//! - INFLIGHT2. `used <= limit`; a request larger than the limit is charged the limit, and so goes alone.

use crate::budget::{Budget as Common, Memory};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Memory comes in pages.
const PAGE: u64 = 4096;

/// A bound on bytes, shared by threads.
pub(crate) struct InFlight {
    limit: u64,
    used: Mutex<u64>,
    freed: Condvar,
    /// What all doors share.
    common: Common,
}

/// Bytes taken; given back on drop.
pub(crate) struct Permit {
    budget: Arc<InFlight>,
    bytes: u64,
    /// Of what all doors share.
    memory: Memory,
}

impl InFlight {
    /// A budget of `limit` bytes, at least one.
    pub(crate) fn new(limit: u64, common: &Common) -> Arc<Self> {
        let common = common.clone();
        Arc::new(Self { limit: limit.max(1), used: Mutex::new(0), freed: Condvar::new(), common })
    }

    /// Takes `bytes`, waiting until they are free.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Permit {
        let memory = Memory::of(if bytes == 0 { 0 } else { bytes.next_power_of_two().max(PAGE) });
        let bytes = bytes.min(self.limit);
        let mut used = self.lock();
        while *used + bytes > self.limit {
            used = self.freed.wait(used).unwrap_or_else(PoisonError::into_inner);
        }
        *used += bytes;
        drop(used);
        self.common.take_blocking(Arc::as_ptr(self).addr(), memory);
        Permit { budget: Arc::clone(self), bytes, memory }
    }

    /// Bytes taken now.
    pub(crate) fn used(&self) -> u64 {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut used = self.budget.lock();
        assert!(*used >= self.bytes, "INFLIGHT1");
        *used -= self.bytes;
        drop(used);
        self.budget.common.give(self.memory);
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_until_there_is_room() {
        let budget = InFlight::new(100, &Common::new(1 << 50));
        let first = budget.take(60);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let permit = budget.take(60);
                assert!(budget.used() <= 100, "INFLIGHT2");
                drop(permit);
            });
            let small = budget.take(40);
            assert_eq!(budget.used(), 100);
            drop(small);
            drop(first);
            waiting.join().expect("no panic");
        });
        assert_eq!(budget.used(), 0, "INFLIGHT1");
    }

    #[test]
    fn memory_counts_in_what_all_doors_share() {
        let common = Common::new(1 << 20);
        let (one, other) = (InFlight::new(1 << 30, &common), InFlight::new(1 << 30, &common));
        let permits = [one.take(0), one.take(1), other.take(5000)];
        assert_eq!(common.used(), 4096 + 8192);
        drop(permits);
        assert_eq!(common.used(), 0);
    }

    #[test]
    fn a_giant_goes_alone() {
        let budget = InFlight::new(100, &Common::new(1 << 50));
        let giant = budget.take(1 << 40);
        assert_eq!(budget.used(), 100, "INFLIGHT2");
        drop(giant);
        assert_eq!(budget.used(), 0, "INFLIGHT1");
    }
}
