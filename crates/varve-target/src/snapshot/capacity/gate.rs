//! A bound on the bytes that are being copied, for which requests wait in their order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A bound on bytes in use. First come, first served. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Budget {
    inner: Rc<BudgetInner>,
}

struct BudgetInner {
    whole: u64,
    free: Cell<u64>,
    next_turn: Cell<u64>,
    queue: RefCell<VecDeque<(u64, Option<Waker>)>>,
}

/// Bytes of a budget; given back on drop.
pub(crate) struct Spent {
    budget: Rc<BudgetInner>,
    bytes: u64,
}

/// A place in the queue; released on drop.
struct Turn {
    budget: Rc<BudgetInner>,
    number: u64,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        let inner = BudgetInner {
            whole: bytes,
            free: Cell::new(bytes),
            next_turn: Cell::new(0),
            queue: RefCell::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Waits for `bytes`, which must not be more than the whole budget.
    pub(crate) async fn spend(&self, bytes: u64) -> Spent {
        assert!(bytes <= self.inner.whole, "{bytes} bytes will never be free");
        let number = self.inner.next_turn.replace(self.inner.next_turn.get() + 1);
        self.inner.queue.borrow_mut().push_back((number, None));
        let turn = Turn { budget: Rc::clone(&self.inner), number };
        poll_fn(|context| {
            let mut queue = self.inner.queue.borrow_mut();
            let first = queue.front().is_some_and(|(first, _)| *first == turn.number);
            if first && self.inner.free.get() >= bytes {
                return Poll::Ready(());
            }
            let place = queue.iter_mut().find(|(number, _)| *number == turn.number);
            place.expect("a turn is in the queue until it is dropped").1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.inner.free.set(self.inner.free.get() - bytes);
        Spent { budget: Rc::clone(&self.inner), bytes }
    }
}

impl BudgetInner {
    fn wake_first(&self) {
        let waker = self.queue.borrow_mut().front_mut().and_then(|(_, waker)| waker.take());
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.budget.queue.borrow_mut().retain(|(number, _)| *number != self.number);
        self.budget.wake_first();
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        self.budget.free.set(self.budget.free.get() + self.bytes);
        assert!(self.budget.free.get() <= self.budget.whole, "what is given back was taken");
        self.budget.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::pin::pin;

    #[test]
    fn a_budget_serves_in_order_and_never_more_than_it_has() {
        let budget = Budget::new(10);
        let first = budget.spend(8).now_or_never().expect("enough");
        let mut second = pin!(budget.spend(5));
        let mut third = pin!(budget.spend(1));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none(), "not before the second");
        drop(first);
        let _second = second.now_or_never().expect("enough again");
        assert!(third.now_or_never().is_some());
    }
}
