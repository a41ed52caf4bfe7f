//! Which of several operations that make pages durable receives the report of lost pages.
//!
//! The kernel reports a lost page once a descriptor: to whichever flush or durable write asks first, and the others
//! succeed, also the one that wrote that page.
//!
//! Invariant SYNC1: a flush or durable write of a buffered disk is acknowledged only after the answers of all that were
//! under way beside it are known; the one with the report has taken the disk out of use by then (DISKFILE2 of `disk_file.rs`).

use futures_channel::oneshot::{Receiver, Sender, channel};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The operations under way on one disk.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    under_way: BTreeSet<u64>,
    /// Each waits for all operations with smaller numbers.
    waiting: Vec<(u64, Sender<()>)>,
}

impl Syncs {
    /// An operation begins; its number.
    pub(crate) fn enter(&self) -> u64 {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.under_way.insert(number);
        number
    }

    /// An operation has ended; if badly, its disk is out of use already.
    pub(crate) fn leave(&self, number: u64) {
        let mut state = self.state();
        assert!(state.under_way.remove(&number), "SYNC1: an operation ends once");
        let first = state.under_way.first().copied().unwrap_or(state.next);
        let (over, waiting) =
            std::mem::take(&mut state.waiting).into_iter().partition(|(end, _)| *end <= first);
        state.waiting = waiting;
        drop(state);
        let over: Vec<(u64, Sender<()>)> = over;
        for (_, waiter) in over {
            let _ = waiter.send(());
        }
    }

    /// Where to wait for the operations under way; `None` if there are none.
    pub(crate) fn others(&self) -> Option<Receiver<()>> {
        let mut state = self.state();
        if state.under_way.is_empty() {
            return None;
        }
        let (sender, receiver) = channel();
        let end = state.next;
        state.waiting.push((end, sender));
        Some(receiver)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn one_that_ended_waits_for_those_beside_it_and_not_for_later_ones() {
        let syncs = Syncs::default();
        let [one, two, three] = [(); 3].map(|()| syncs.enter());
        syncs.leave(two);
        let mut beside = syncs.others().expect("SYNC1: two are under way");
        let late = syncs.enter();
        syncs.leave(three);
        assert!((&mut beside).now_or_never().is_none(), "SYNC1: the first has not ended");
        syncs.leave(one);
        assert!(beside.now_or_never().is_some(), "a later one is not waited for");
        syncs.leave(late);
        assert!(syncs.others().is_none());
    }
}
