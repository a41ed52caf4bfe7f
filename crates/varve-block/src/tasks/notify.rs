//! Tasks of one thread that wait for a condition, woken by the code that makes it true.
//!
//! Invariants:
//! - NOTIFY1. A condition that was true when [`Notify::notify_all`] was called is seen by every task that waits for it: it is
//!   looked at before a task waits and each time that it is woken.
//! - NOTIFY2. Tasks are woken in the order in which they began to wait; a wait that is dropped leaves nothing behind.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// The waiting tasks.
#[derive(Default)]
pub struct Notify {
    waiting: RefCell<BTreeMap<u64, Waker>>,
    last: Cell<u64>,
}

impl Notify {
    /// Has every waiting task look at its condition again.
    pub fn notify_all(&self) {
        self.waiting.take().into_values().for_each(Waker::wake);
    }

    /// Waits until `condition` is true.
    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        self.next(|| condition().then_some(())).await;
    }

    /// Waits until there is a `value`.
    pub async fn next<T>(&self, mut value: impl FnMut() -> Option<T>) -> T {
        let mut place = None;
        poll_fn(|context| {
            if let Some(value) = value() {
                return Poll::Ready(value); // NOTIFY1
            }
            let place = place.get_or_insert_with(|| Place::last(self));
            self.waiting.borrow_mut().insert(place.number, context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// The place of a task in the order of waking (NOTIFY2).
struct Place<'a> {
    notify: &'a Notify,
    number: u64,
}

impl<'a> Place<'a> {
    fn last(notify: &'a Notify) -> Self {
        let number = notify.last.get() + 1;
        notify.last.set(number);
        Self { notify, number }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.notify.waiting.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::LocalPool;
    use futures_util::FutureExt;
    use futures_util::task::LocalSpawnExt;
    use std::rc::Rc;

    #[test]
    fn tasks_go_on_in_their_order_once_their_condition_is_true() {
        let (notify, level, order) = (Rc::new(Notify::default()), Rc::new(Cell::new(0)), Rc::default());
        let mut tasks = LocalPool::new();
        for (task, needed) in [(0, 2), (1, 1), (2, 2)] {
            let (notify, level, order) = (Rc::clone(&notify), Rc::clone(&level), Rc::clone(&order));
            let order: Rc<RefCell<Vec<u32>>> = order;
            let wait = async move {
                notify.until(|| level.get() >= needed).await;
                order.borrow_mut().push(task);
            };
            tasks.spawner().spawn_local(wait).expect("the pool is there");
        }
        for (now, ended) in [(0, vec![]), (1, vec![1]), (2, vec![1, 0, 2])] {
            level.set(now);
            notify.notify_all();
            tasks.run_until_stalled();
            assert_eq!(*order.borrow(), ended, "NOTIFY1, NOTIFY2");
        }
    }

    #[test]
    fn a_condition_that_is_true_is_not_waited_for_and_a_dropped_wait_is_forgotten() {
        let notify = Notify::default();
        assert_eq!(notify.next(|| Some(7)).now_or_never(), Some(7), "NOTIFY1");
        let mut wait = Box::pin(notify.until(|| false));
        assert!((&mut wait).now_or_never().is_none() && (&mut wait).now_or_never().is_none());
        assert_eq!(notify.waiting.borrow().len(), 1, "NOTIFY2: one place for each");
        drop(wait);
        assert!(notify.waiting.borrow().is_empty(), "NOTIFY2");
    }
}
