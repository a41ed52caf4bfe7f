//! The signal to end connections gracefully.

use super::wakers::{Ticket, Wakers};
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Once pulled, connections take no more requests, answer those in flight, and close. Cloning shares it.
#[derive(Clone, Default)]
pub struct Shutdown {
    pulled: Rc<Cell<bool>>,
    wakers: Wakers,
}

impl Shutdown {
    /// A signal that is not pulled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Pulls it, for good.
    pub fn pull(&self) {
        self.pulled.set(true);
        self.wakers.wake();
    }

    /// Takes it back, of a signal that allows for that: tasks that have not acted on it go on.
    pub(super) fn release(&self) {
        self.pulled.set(false);
        self.wakers.wake();
    }

    /// Whether it was pulled.
    pub fn is_pulled(&self) -> bool {
        self.pulled.get()
    }

    /// Completes when it is pulled.
    pub async fn wait(&self) {
        let mut watch = self.watch();
        poll_fn(|context| watch.poll(context)).await;
    }

    pub(super) fn watch(&self) -> Watch {
        Watch { shutdown: self.clone(), ticket: self.wakers.ticket() }
    }
}

/// One task that waits for a [`Shutdown`].
pub(super) struct Watch {
    shutdown: Shutdown,
    ticket: Ticket,
}

impl Watch {
    pub(super) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        // Also when it is pulled: it may be taken back.
        self.ticket.register(context.waker());
        if self.shutdown.is_pulled() { Poll::Ready(()) } else { Poll::Pending }
    }
}
