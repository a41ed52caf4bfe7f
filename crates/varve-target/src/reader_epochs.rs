//! Reader epochs: they distinguish present readers from later ones, so that what was freed is reused when the last of the
//! present ones has ended.
//!
//! Invariants:
//! - EPOCH1. Numbers of epochs rise; the guards of an epoch are counted, and the oldest epoch that is kept has some or is the
//!   present one.
//! - EPOCH2. A mark divides guards: those taken before it are of epochs below it, those taken later are not.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use varve_block::Notify;

/// The epochs of the readers of one thing. Cloning shares them.
#[derive(Clone, Default)]
pub(crate) struct ReaderEpochs {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    oldest: Cell<u64>,
    /// Guards of all epochs behind the oldest but for the present one, in order.
    before: RefCell<VecDeque<u64>>,
    /// Guards of the present epoch.
    present: Cell<u64>,
    ended: Notify,
    /// Called when all epochs below the mark have ended.
    listener: RefCell<Option<Rc<dyn Fn()>>>,
    awaited: Cell<Option<u64>>,
}

/// Held by a reader.
pub struct EpochGuard {
    inner: Rc<Inner>,
    epoch: u64,
}

impl ReaderEpochs {
    pub(crate) fn enter(&self) -> EpochGuard {
        self.inner.present.set(self.inner.present.get() + 1);
        EpochGuard { inner: Rc::clone(&self.inner), epoch: self.inner.epoch() }
    }

    /// Every reader that is under way now is of an epoch below this (EPOCH2).
    pub(crate) fn mark(&self) -> u64 {
        self.inner.assert_consistent();
        let present = self.inner.present.replace(0);
        if present > 0 {
            self.inner.before.borrow_mut().push_back(present);
        }
        self.inner.epoch()
    }

    pub(crate) fn have_ended(&self, mark: u64) -> bool {
        self.inner.oldest.get() >= mark
    }

    /// Waits until every reader that was under way at `mark` has ended.
    pub(crate) async fn ended(&self, mark: u64) {
        self.inner.ended.until(|| self.have_ended(mark)).await;
    }

    /// Has `listener` called whenever the awaited readers have ended.
    pub(crate) fn listen(&self, listener: Rc<dyn Fn()>) {
        self.inner.listener.replace(Some(listener));
    }

    /// The listener is to be called when the readers that were under way at `mark` have ended, and for no others.
    pub(crate) fn listen_for(&self, mark: Option<u64>) {
        self.inner.awaited.set(mark);
    }
}

impl Inner {
    /// The number of the present epoch.
    fn epoch(&self) -> u64 {
        self.oldest.get() + self.before.borrow().len() as u64
    }

    /// One guard of `epoch` is dropped; whether the oldest epoch is another one now.
    fn leave(&self, epoch: u64) -> bool {
        let (mut before, oldest) = (self.before.borrow_mut(), self.oldest.get());
        assert!(epoch >= oldest, "EPOCH1: an epoch with a guard is kept");
        let at = usize::try_from(epoch - oldest).expect("EPOCH1: epochs are in memory");
        let Some(guards) = before.get_mut(at) else {
            let present = self.present.get().checked_sub(1);
            self.present.set(present.expect("EPOCH1: a guard is counted"));
            return false;
        };
        *guards = guards.checked_sub(1).expect("EPOCH1: a guard is counted");
        while before.front() == Some(&0) {
            before.pop_front();
            self.oldest.set(self.oldest.get() + 1);
        }
        drop(before);
        self.assert_consistent();
        self.oldest.get() > oldest
    }

    /// The oldest epoch that is kept has guards, or is the present one.
    fn assert_consistent(&self) {
        assert!(self.before.borrow().front() != Some(&0), "EPOCH1: the oldest has guards");
    }
}

impl Drop for EpochGuard {
    fn drop(&mut self) {
        if !self.inner.leave(self.epoch) {
            return;
        }
        self.inner.ended.notify_all();
        if self.inner.awaited.get().is_some_and(|mark| self.inner.oldest.get() >= mark) {
            self.inner.awaited.set(None);
            let listener = self.inner.listener.borrow().clone();
            listener.into_iter().for_each(|listener| listener());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn only_those_who_began_before_are_waited_for() {
        let epochs = ReaderEpochs::default();
        let (old, older) = (epochs.enter(), epochs.enter());
        let mark = epochs.mark();
        assert_eq!(epochs.mark(), mark, "nobody has come since");
        let new = epochs.enter();
        let later = epochs.mark();
        assert!(epochs.ended(mark).now_or_never().is_none());
        drop(new);
        assert!(!epochs.have_ended(later), "EPOCH2: those of before are waited for too");
        drop(old);
        assert!(!epochs.have_ended(mark), "EPOCH1: both are counted");
        let _newest = epochs.enter();
        drop(older);
        assert!(epochs.ended(later).now_or_never().is_some(), "EPOCH1");
    }

    #[test]
    fn a_listener_hears_once_and_only_of_those_who_are_awaited() {
        let (epochs, heard) = (ReaderEpochs::default(), Rc::new(Cell::new(0)));
        let count = Rc::clone(&heard);
        epochs.listen(Rc::new(move || count.set(count.get() + 1)));
        let first = epochs.enter();
        epochs.mark();
        let second = epochs.enter();
        let mark = epochs.mark();
        epochs.listen_for(Some(mark));
        drop(first);
        assert_eq!(heard.get(), 0, "the second is awaited too");
        drop(second);
        assert_eq!(heard.get(), 1);
        let third = epochs.enter();
        epochs.mark();
        drop(third);
        assert_eq!(heard.get(), 1, "nobody is awaited");
    }
}
