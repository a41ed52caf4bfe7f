//! Long work that waits for nothing lets others go on between its steps.

use std::future::poll_fn;
use std::task::Poll;

/// Returns when everybody else who can go on has had a turn.
pub(crate) async fn yield_now() {
    let mut again = true;
    poll_fn(|context| {
        if !std::mem::take(&mut again) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
