//! What requests wait for: a gate that can be closed and drained, and a bound on the bytes that are being copied.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A gate that counts who is inside. Cloning shares it.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    inner: Rc<GateInner>,
}

#[derive(Default)]
struct GateInner {
    inside: Cell<usize>,
    closed: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
    draining: RefCell<Vec<Waker>>,
}

/// Somebody inside; leaves on drop.
pub(crate) struct Inside(Rc<GateInner>);

/// A closed gate; opens on drop.
pub(crate) struct Closed(Rc<GateInner>);

impl Gate {
    pub(crate) fn is_open(&self) -> bool {
        self.inner.closed.get() == 0
    }

    /// Goes in if the gate is open.
    pub(crate) fn try_enter(&self) -> Option<Inside> {
        if !self.is_open() {
            return None;
        }
        self.inner.inside.set(self.inner.inside.get() + 1);
        Some(Inside(Rc::clone(&self.inner)))
    }

    /// Goes in when the gate is open.
    pub(crate) async fn enter(&self) -> Inside {
        poll_fn(|context| match self.try_enter() {
            Some(inside) => Poll::Ready(inside),
            None => {
                self.inner.waiting.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Closes the gate at once. It may be closed by several.
    pub(crate) fn close(&self) -> Closed {
        self.inner.closed.set(self.inner.closed.get() + 1);
        Closed(Rc::clone(&self.inner))
    }

    /// Whether nobody is inside.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.inside.get() == 0
    }

    /// Waits until nobody is inside.
    pub(crate) async fn drained(&self) {
        poll_fn(|context| {
            if self.inner.inside.get() == 0 {
                return Poll::Ready(());
            }
            self.inner.draining.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        assert!(self.0.inside.get() > 0, "who leaves was inside");
        self.0.inside.set(self.0.inside.get() - 1);
        if self.0.inside.get() == 0 {
            self.0.draining.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.closed.set(self.0.closed.get() - 1);
        if self.0.closed.get() == 0 {
            self.0.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

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

/// A place in the queue; given up on drop.
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
