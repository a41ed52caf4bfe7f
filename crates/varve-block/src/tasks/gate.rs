//! A barrier that requests pass and that can be closed, to wait until none is inside.

use crate::tasks::tracker::{Tracker, TrackerGuard};

/// The gate. Cloning shares it.
#[derive(Clone, Default)]
pub struct Gate {
    inside: Tracker,
    closed: Tracker,
}

impl Gate {
    /// Whether no guard of [`Gate::close`] is alive.
    pub fn is_open(&self) -> bool {
        self.closed.is_empty()
    }

    /// Goes in if the gate is open; leaves when the guard is dropped.
    pub fn try_enter(&self) -> Option<TrackerGuard> {
        self.is_open().then(|| self.inside.enter())
    }

    /// Goes in when the gate is open, in the order of arrival.
    pub async fn enter(&self) -> TrackerGuard {
        if !self.is_open() {
            self.closed.empty().await;
        }
        self.inside.enter()
    }

    /// Closes the gate until the guard is dropped. It may be closed by several.
    pub fn close(&self) -> TrackerGuard {
        self.closed.enter()
    }

    /// How many are inside.
    pub fn inside(&self) -> usize {
        self.inside.count()
    }

    /// Whether none is inside.
    pub fn is_empty(&self) -> bool {
        self.inside.is_empty()
    }

    /// Waits until none is inside.
    pub async fn drained(&self) {
        self.inside.empty().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::LocalPool;
    use futures_util::FutureExt;
    use futures_util::task::LocalSpawnExt;
    use std::pin::pin;

    #[test]
    fn a_closed_gate_keeps_newcomers_out_until_it_opens() {
        let gate = Gate::default();
        let inside = gate.try_enter().expect("open");
        let closed = gate.close();
        let mut drained = pin!(gate.drained());
        let mut newcomer = pin!(gate.enter());
        assert!(drained.as_mut().now_or_never().is_none());
        assert!(newcomer.as_mut().now_or_never().is_none());
        drop(inside);
        assert!(drained.now_or_never().is_some());
        drop(closed);
        assert!(newcomer.now_or_never().is_some());
    }

    #[test]
    fn a_gate_wakes_what_waits_when_the_last_that_closed_it_opens_it() {
        let gate = Gate::default();
        let (first, second) = (gate.close(), gate.close());
        let mut tasks = LocalPool::new();
        let newcomer = async move { gate.enter().await };
        let mut newcomer = tasks.spawner().spawn_local_with_handle(newcomer).expect("the pool is there");
        tasks.run_until_stalled();
        drop(first);
        tasks.run_until_stalled();
        assert!((&mut newcomer).now_or_never().is_none(), "it is closed still");
        drop(second);
        // Only tasks that were woken are polled.
        tasks.run_until_stalled();
        assert!(newcomer.now_or_never().is_some());
    }
}
