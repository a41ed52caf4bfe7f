//! Counts tasks, so that somebody can wait until the last of them has ended.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The tasks; cloning shares the count.
#[derive(Clone, Default)]
pub(crate) struct Crowd {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    count: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
}

/// One task; it leaves when dropped.
pub(crate) struct Guest(Crowd);

impl Crowd {
    /// Counts one more.
    pub(crate) fn enter(&self) -> Guest {
        self.inner.count.set(self.inner.count.get() + 1);
        Guest(self.clone())
    }

    /// Completes when nobody is left.
    pub(crate) async fn empty(&self) {
        poll_fn(|context| {
            if self.inner.count.get() == 0 {
                return Poll::Ready(());
            }
            self.inner.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let inner = &self.0.inner;
        inner.count.set(inner.count.get() - 1);
        if inner.count.get() == 0 {
            inner.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn the_last_one_who_leaves_ends_the_wait() {
        let crowd = Crowd::default();
        let (one, other) = (crowd.enter(), crowd.enter());
        let mut empty = Box::pin(crowd.empty());
        drop(one);
        assert!((&mut empty).now_or_never().is_none());
        drop(other);
        assert!(empty.now_or_never().is_some());
    }
}
