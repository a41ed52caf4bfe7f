//! One flush of a disk at a time: those that come meanwhile share the next one.
//!
//! Invariants:
//! - FLUSH1. At most one flush is under way, so that the one to which a lost write is reported has poisoned the disk before
//!   another can succeed (DISKFILE2 of `disk_file.rs`). Only a leader whose future is dropped breaks this, when its shard ends
//!   or its volume panics; on a buffered disk SYNC1 of `syncs.rs` still holds.
//! - FLUSH2. A flush that is answered was covered by one that began after it was asked for.

use futures_channel::oneshot::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a waiting flush is notified of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Carry out the next flush, for the others too.
    Lead,
    /// It was done for you.
    Covered,
}

/// The flush under way on a disk, and the flushes that wait.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    under_way: bool,
    /// Covered by the flush under way.
    followers: Vec<Sender<Turn>>,
    /// Came after it had begun.
    waiting: Vec<Sender<Turn>>,
}

impl Flushes {
    /// Asks for a flush: `None` if the caller shall carry it out at once, else where to wait for the turn.
    pub(crate) fn enter(&self) -> Option<Receiver<Turn>> {
        let mut state = self.state();
        if !state.under_way {
            state.under_way = true;
            return None;
        }
        let (sender, receiver) = channel();
        state.waiting.push(sender);
        Some(receiver)
    }

    /// The leader's flush has ended, well or not: its followers are answered, and one of the waiting flushes leads.
    fn finish(&self) {
        let mut state = self.state();
        let followers = std::mem::take(&mut state.followers);
        state.hand_on();
        drop(state);
        for follower in followers {
            let _ = follower.send(Turn::Covered);
        }
    }

    /// The leader left without a flush: its followers still need one.
    fn abandon(&self) {
        let mut state = self.state();
        let mut needy = std::mem::take(&mut state.followers);
        needy.append(&mut state.waiting);
        state.waiting = needy;
        state.hand_on();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Makes the first flush that still waits the leader, and the others its followers.
    fn hand_on(&mut self) {
        self.under_way = false;
        let mut waiting = std::mem::take(&mut self.waiting).into_iter();
        for next in waiting.by_ref() {
            if next.send(Turn::Lead).is_ok() {
                self.under_way = true;
                break;
            }
        }
        self.followers = waiting.collect();
    }
}

/// The duty of a leader.
pub(crate) struct Lead<'a> {
    flushes: &'a Flushes,
    finished: bool,
}

impl<'a> Lead<'a> {
    pub(crate) fn new(flushes: &'a Flushes) -> Self {
        Self { flushes, finished: false }
    }

    /// The flush has ended, well or not.
    pub(crate) fn finish(mut self) {
        self.finished = true;
        self.flushes.finish();
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.flushes.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn turn(receiver: &mut Receiver<Turn>) -> Option<Turn> {
        receiver.now_or_never().map(|turn| turn.expect("the sender is kept"))
    }

    #[test]
    fn those_who_come_during_a_flush_share_the_next() {
        let flushes = Flushes::default();
        assert!(flushes.enter().is_none());
        let first = Lead::new(&flushes);
        let [mut one, mut two, mut three] = [(); 3].map(|()| flushes.enter().expect("FLUSH1"));
        assert_eq!(turn(&mut two), None, "FLUSH2");
        first.finish();
        assert_eq!((turn(&mut one), turn(&mut two)), (Some(Turn::Lead), None));
        let second = Lead::new(&flushes);
        let mut late = flushes.enter().expect("FLUSH1");
        second.finish();
        assert_eq!((turn(&mut two), turn(&mut three)), (Some(Turn::Covered), Some(Turn::Covered)));
        assert_eq!(turn(&mut late), Some(Turn::Lead), "FLUSH2: it came too late for the second");
        Lead::new(&flushes).finish();
        assert!(flushes.enter().is_none());
    }

    #[test]
    fn a_leader_that_leaves_is_replaced_and_one_that_is_gone_is_passed_over() {
        let flushes = Flushes::default();
        assert!(flushes.enter().is_none());
        let first = Lead::new(&flushes);
        let gone = flushes.enter();
        let [mut one, mut two] = [(); 2].map(|()| flushes.enter().expect("FLUSH1"));
        drop(gone);
        first.finish();
        assert_eq!(turn(&mut one), Some(Turn::Lead));
        drop(Lead::new(&flushes));
        assert_eq!(turn(&mut two), Some(Turn::Lead), "FLUSH2: nothing was flushed for it yet");
    }
}
