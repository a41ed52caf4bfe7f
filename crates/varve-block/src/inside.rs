//! How many requests are under way inside something that can be waited for until it is empty.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The count. Cloning shares it.
#[derive(Clone, Default)]
pub(crate) struct RequestCount(Rc<Inner>);

#[derive(Default)]
struct Inner {
    requests: Cell<usize>,
    emptied: RefCell<Vec<Waker>>,
}

impl RequestCount {
    /// Number of requests under way.
    pub(crate) fn get(&self) -> usize {
        self.0.requests.get()
    }

    /// Counts a request until what is returned is dropped.
    pub(crate) fn enter(&self) -> Inside {
        self.0.requests.set(self.0.requests.get() + 1);
        Inside(Rc::clone(&self.0))
    }

    /// Waits until no request is under way.
    pub(crate) async fn empty(&self) {
        poll_fn(|context| {
            if self.0.requests.get() == 0 {
                return Poll::Ready(());
            }
            self.0.emptied.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Counts a request while it is under way.
pub(crate) struct Inside(Rc<Inner>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
        if self.0.requests.get() == 0 {
            self.0.emptied.take().into_iter().for_each(Waker::wake);
        }
    }
}
