//! Waiting until an engine is filled to a given percentage: the moment to make it larger, before a write waits.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Waiters, each with the percentage that it waits for.
#[derive(Default)]
pub(crate) struct SpaceWatch {
    waiting: RefCell<Vec<(u64, Waker)>>,
}

impl SpaceWatch {
    /// Completes when `taken` says at least `percent`; it is asked again at each [`SpaceWatch::notify`] that may matter.
    pub(crate) async fn filled(&self, percent: u64, taken: impl Fn() -> u64) {
        poll_fn(|context| {
            if taken() >= percent {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|known| known.0 == percent && known.1.will_wake(context.waker())) {
                waiting.push((percent, context.waker().clone()));
            }
            Poll::Pending
        })
        .await;
    }

    /// Space was taken: `taken` says how much in percent, and is asked only if there is a waiter.
    pub(crate) fn notify(&self, taken: impl FnOnce() -> u64) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        let percent = taken();
        let due: Vec<_> = self.waiting.borrow_mut().extract_if(.., |known| known.0 <= percent).collect();
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::LocalPool;
    use futures_util::FutureExt;
    use futures_util::task::LocalSpawnExt;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn only_waiters_whose_percentage_is_reached_are_woken() {
        let (watch, taken) = (Rc::new(SpaceWatch::default()), Rc::new(Cell::new(10)));
        let mut tasks = LocalPool::new();
        let wait = |percent| {
            let (watch, taken) = (Rc::clone(&watch), Rc::clone(&taken));
            let waits = async move { watch.filled(percent, || taken.get()).await };
            tasks.spawner().spawn_local_with_handle(waits).expect("the pool is there")
        };
        let (mut half, mut most) = (wait(50), wait(90));
        tasks.run_until_stalled();
        taken.set(60);
        watch.notify(|| taken.get());
        tasks.run_until_stalled();
        assert!((&mut half).now_or_never().is_some() && (&mut most).now_or_never().is_none());
        taken.set(95);
        watch.notify(|| taken.get());
        watch.notify(|| panic!("nobody waits"));
        tasks.run_until_stalled();
        assert!(most.now_or_never().is_some());
    }
}
