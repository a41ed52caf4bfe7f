//! Ends one poll of a task that waits for nothing, so that the other tasks of its thread run.

use std::future::poll_fn;
use std::task::Poll;

/// Returns when every task of this thread that could run has been polled once.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::LocalPool;
    use futures_util::task::LocalSpawnExt;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn tasks_that_yield_take_turns() {
        let (mut tasks, order) = (LocalPool::new(), Rc::new(RefCell::new(Vec::new())));
        for task in ['a', 'b'] {
            let order = Rc::clone(&order);
            let steps = async move {
                for step in 0..3 {
                    order.borrow_mut().push((step, task));
                    yield_now().await;
                }
            };
            tasks.spawner().spawn_local(steps).expect("the pool is there");
        }
        tasks.run();
        assert!(order.borrow().is_sorted_by_key(|(step, _)| *step), "{order:?}");
    }
}
