//! The answer to a request, on its way from the disk to the task that waits for it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use varve_block::Outcome;

#[derive(Default)]
struct Slot {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// The disk's end. If it is dropped unused, in a crash, the request is never answered.
pub(crate) struct Reply(Rc<RefCell<Slot>>);

/// The waiting end.
pub(crate) struct Answer(Rc<RefCell<Slot>>);

/// Both ends.
pub(crate) fn channel() -> (Reply, Answer) {
    let slot = Rc::<RefCell<Slot>>::default();
    (Reply(Rc::clone(&slot)), Answer(slot))
}

impl Reply {
    /// Answers.
    pub(crate) fn send(self, outcome: Outcome) {
        let waker = {
            let mut slot = self.0.borrow_mut();
            slot.outcome = Some(outcome);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Answer {
    /// The answer, if it is there.
    pub(crate) fn take(&self) -> Option<Outcome> {
        self.0.borrow_mut().outcome.take()
    }
}

impl Future for Answer {
    type Output = Outcome;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        if let Some(outcome) = self.take() {
            return Poll::Ready(outcome);
        }
        self.0.borrow_mut().waker = Some(context.waker().clone());
        Poll::Pending
    }
}
