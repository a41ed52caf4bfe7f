//! Who is under way: requests hold a ticket while they may touch blocks that they have found in a map.
//!
//! Invariant K1: numbers rise; whoever began before a mark holds a ticket below it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use varve_block::Notify;

/// The tickets of a pool. Cloning shares them.
#[derive(Clone, Default)]
pub(super) struct Tickets {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    next: Cell<u64>,
    held: RefCell<BTreeSet<u64>>,
    ended: Notify,
}

/// Held by a request under way.
pub(super) struct Ticket {
    inner: Rc<Inner>,
    number: u64,
}

impl Tickets {
    pub(super) fn take(&self) -> Ticket {
        let number = self.inner.next.get();
        self.inner.next.set(number + 1);
        self.inner.held.borrow_mut().insert(number);
        Ticket { inner: Rc::clone(&self.inner), number }
    }

    /// Everybody who is under way now has a ticket below this.
    pub(super) fn mark(&self) -> u64 {
        self.inner.next.get()
    }

    pub(super) fn have_ended(&self, mark: u64) -> bool {
        self.inner.held.borrow().first().is_none_or(|oldest| *oldest >= mark)
    }

    /// Waits for everybody who was under way at `mark`.
    pub(super) async fn ended(&self, mark: u64) {
        self.inner.ended.until(|| self.have_ended(mark)).await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        assert!(self.inner.held.borrow_mut().remove(&self.number), "K1: a ticket is held once");
        self.inner.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn only_those_who_began_before_are_waited_for() {
        let tickets = Tickets::default();
        let old = tickets.take();
        let mark = tickets.mark();
        let _new = tickets.take();
        assert!(tickets.ended(mark).now_or_never().is_none());
        drop(old);
        assert!(tickets.ended(mark).now_or_never().is_some());
    }
}
