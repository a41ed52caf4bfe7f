//! Finds a client that has begun a message, its own or the reading of ours, and does not go on.

use std::task::Context;
use std::time::Duration;
use varve_block::{Clock, LocalFuture, Moment};

/// Watches one connection. Time is looked at only when the connection begins to wait for its client amid a message.
#[derive(Default)]
pub(super) struct Stall {
    /// When the present wait began, and how much had been moved by then.
    since: Option<(Moment, u64)>,
    /// How long it may take.
    limit: Duration,
    /// Wakes the connection; may be early.
    timer: Option<LocalFuture<'static, ()>>,
}

impl Stall {
    /// The connection waits for its client amid a message, after `progress` transfers. Whether it has waited for
    /// `limit`, or for a tenth of it if it `is_wanted`; else its task is woken when that may be so. Another limit than
    /// before is a wait that begins now.
    pub(super) fn is_over(
        &mut self,
        progress: u64,
        limit: Duration,
        is_wanted: bool,
        clock: &Clock,
        context: &mut Context<'_>,
    ) -> bool {
        if std::mem::replace(&mut self.limit, limit) != limit {
            (self.since, self.timer) = (None, None);
        }
        let since = match self.since {
            Some((since, before)) if before == progress => since,
            _ => {
                let now = clock.now();
                self.since = Some((now, progress));
                now
            }
        };
        loop {
            let timer = self.timer.get_or_insert_with(|| clock.sleep(limit / 10));
            if timer.as_mut().poll(context).is_pending() {
                return false;
            }
            self.timer = None;
            let waited = clock.now().since(since);
            if waited >= limit || (is_wanted && waited >= limit / 10) {
                return true;
            }
        }
    }

    /// The connection does not wait for its client.
    pub(super) fn end(&mut self) {
        self.since = None;
    }
}
