//! A bell for one listener: it is never missed, however early it is rung.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Rung by anybody on the shard, heard by one task.
#[derive(Default)]
pub(super) struct Bell {
    is_rung: Cell<bool>,
    listener: RefCell<Option<Waker>>,
}

impl Bell {
    /// The listener goes on, now or when it next listens.
    pub(super) fn ring(&self) {
        self.is_rung.set(true);
        if let Some(listener) = self.listener.take() {
            listener.wake();
        }
    }

    /// Completes when the bell was rung since it was last heard.
    pub(super) async fn heard(&self) {
        poll_fn(|context| {
            if self.is_rung.take() {
                return Poll::Ready(());
            }
            self.listener.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn it_is_heard_once_for_each_time_it_was_rung_before() {
        let bell = Bell::default();
        assert!(bell.heard().now_or_never().is_none());
        bell.ring();
        bell.ring();
        assert!(bell.heard().now_or_never().is_some());
        assert!(bell.heard().now_or_never().is_none());
    }
}
