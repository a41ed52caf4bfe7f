//! Counts what is under way, requests or tasks, so that its end can be waited for.

use crate::tasks::notify::Notify;
use std::cell::Cell;
use std::rc::Rc;

/// The count. Cloning shares it.
#[derive(Clone, Default)]
pub struct Tracker(Rc<Inner>);

#[derive(Default)]
struct Inner {
    count: Cell<usize>,
    emptied: Notify,
}

/// Counts one of a [`Tracker`] until it is dropped.
pub struct TrackerGuard(Rc<Inner>);

impl Tracker {
    /// How many are under way.
    pub fn count(&self) -> usize {
        self.0.count.get()
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Counts one more.
    pub fn enter(&self) -> TrackerGuard {
        self.0.count.set(self.0.count.get() + 1);
        TrackerGuard(Rc::clone(&self.0))
    }

    /// Waits until nothing is under way.
    pub async fn empty(&self) {
        self.0.emptied.until(|| self.is_empty()).await;
    }
}

impl Drop for TrackerGuard {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get().checked_sub(1).expect("each guard was counted"));
        if self.0.count.get() == 0 {
            self.0.emptied.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn the_last_guard_that_is_dropped_ends_the_wait() {
        let tracker = Tracker::default();
        assert!(tracker.empty().now_or_never().is_some());
        let (one, other) = (tracker.enter(), tracker.enter());
        let mut empty = Box::pin(tracker.empty());
        drop(one);
        assert!((&mut empty).now_or_never().is_none());
        assert_eq!(tracker.count(), 1);
        drop(other);
        assert!(empty.now_or_never().is_some());
    }
}
