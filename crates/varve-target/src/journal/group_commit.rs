//! Group commit: requests that need the log at the same time share one commit, which one of them leads.
//!
//! There is no timer and no task of its own. Commits are numbered in the order in which they begin. A request waits for
//! the number that it needs; when no commit is led and that number is the next, the request leads. While it does others
//! come, and one of them leads the next commit for all of them.
//!
//! Invariants:
//! - LEADER1. One request leads at a time, and one commit is under way at a time: what is written belongs to the leader.
//! - LEADER2. A commit carries what was there when it began: a request that came later needs a higher number.
//! - LEADER3. When a leader ends, the waiters of the next commit are woken: one of them leads.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// The commits of one journal.
#[derive(Default)]
pub(crate) struct GroupCommit {
    /// The number of the last commit that has begun, and of the last that has ended.
    begun: Cell<u64>,
    ended: Cell<u64>,
    is_led: Cell<bool>,
    /// Waiters by the commit that they need.
    waiting: RefCell<BTreeMap<u64, Vec<Waker>>>,
}

/// What a request does next.
pub(crate) enum Turn<'a> {
    /// The commit that it needs has ended.
    Ended,
    /// It leads that commit.
    Lead(Lead<'a>),
}

/// The right to commit; a waiter gets it on drop.
pub(crate) struct Lead<'a>(&'a GroupCommit);

impl GroupCommit {
    /// The number of the next commit to begin: what a request needs that has just changed something (LEADER2).
    pub(crate) fn next(&self) -> u64 {
        self.begun.get() + 1
    }

    /// How many commits have begun; none while one is led.
    pub(crate) fn at_rest(&self) -> Option<u64> {
        (!self.is_led.get()).then(|| self.begun.get())
    }

    /// Whether a commit has begun and not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        self.begun.get() != self.ended.get()
    }

    /// Waits until commit `number` has ended, or until the request is to lead it.
    pub(crate) async fn turn(&self, number: u64) -> Turn<'_> {
        poll_fn(|context| {
            if self.ended.get() >= number {
                return Poll::Ready(Turn::Ended);
            }
            if !self.is_led.get() && number == self.next() {
                self.is_led.set(true);
                return Poll::Ready(Turn::Lead(Lead(self)));
            }
            let mut waiting = self.waiting.borrow_mut();
            let waiting = waiting.entry(number).or_default();
            // One task may poll many requests.
            if !waiting.last().is_some_and(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// A commit begins with all that is there at this instant. Called by a leader, or before any request is served.
    pub(crate) fn begin(&self) -> u64 {
        assert!(!self.is_under_way(), "LEADER1: one commit at a time");
        self.begun.set(self.begun.get() + 1);
        self.assert_consistent();
        self.begun.get()
    }

    /// The commit that has begun is over, whether it succeeded or not.
    pub(crate) fn end(&self) {
        assert!(self.is_under_way(), "LEADER1: what ends has begun");
        self.ended.set(self.begun.get());
        self.wake(self.ended.get());
        self.assert_consistent();
    }

    /// At most one commit is under way, and no request waits for one that has ended.
    fn assert_consistent(&self) {
        let (begun, ended) = (self.begun.get(), self.ended.get());
        assert!(ended == begun || ended + 1 == begun, "LEADER1: {begun} have begun, {ended} have ended");
        let waiting = self.waiting.borrow();
        let first = waiting.first_key_value().map(|(number, _)| *number);
        assert!(first.is_none_or(|first| first > ended), "LEADER3: who waits for {first:?} was woken");
    }

    /// Wakes the waiters of commits up to `number`.
    fn wake(&self, number: u64) {
        let mut waiting = self.waiting.borrow_mut();
        let later = waiting.split_off(&(number + 1));
        let due = std::mem::replace(&mut *waiting, later);
        drop(waiting);
        due.into_values().flatten().for_each(Waker::wake);
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        assert!(self.0.is_led.replace(false), "LEADER1: one leader at a time");
        self.0.wake(self.0.next()); // LEADER3
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::LocalPool;
    use futures_util::FutureExt;
    use futures_util::task::LocalSpawnExt;
    use std::pin::pin;
    use std::rc::Rc;

    fn lead<'a>(turn: Option<Turn<'a>>) -> Lead<'a> {
        match turn {
            Some(Turn::Lead(lead)) => lead,
            Some(Turn::Ended) => panic!("nothing has ended"),
            None => panic!("nobody leads"),
        }
    }

    #[test]
    fn a_request_that_came_when_a_commit_had_begun_waits_for_the_next() {
        let group = GroupCommit::default();
        let first = lead(group.turn(group.next()).now_or_never());
        let before = group.next();
        assert_eq!((group.begin(), group.is_under_way(), group.at_rest()), (before, true, None));
        let behind = group.next();
        let (mut shares, mut waits) = (pin!(group.turn(before)), pin!(group.turn(behind)));
        assert!((&mut shares).now_or_never().is_none() && (&mut waits).now_or_never().is_none());
        group.end();
        assert!(matches!(shares.now_or_never(), Some(Turn::Ended)), "LEADER2");
        assert!((&mut waits).now_or_never().is_none(), "LEADER1: the leader has not ended");
        drop(first);
        drop(lead(waits.now_or_never()));
        assert_eq!(group.at_rest(), Some(before));
    }

    #[test]
    fn a_leader_that_begins_nothing_leaves_the_commit_to_the_next_request() {
        let group = GroupCommit::default();
        let number = group.next();
        let first = lead(group.turn(number).now_or_never());
        let mut second = pin!(group.turn(number));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        let _second = lead(second.now_or_never());
    }

    #[test]
    fn of_many_waiting_requests_one_leads_for_all() {
        let group = Rc::new(GroupCommit::default());
        let (commits, mut tasks) = (Rc::new(Cell::new(0)), LocalPool::new());
        let first = lead(group.turn(group.next()).now_or_never());
        let mut requests = Vec::new();
        for _ in 0..100 {
            let (group, commits) = (Rc::clone(&group), Rc::clone(&commits));
            let number = group.next();
            let request = async move {
                if let Turn::Lead(_lead) = group.turn(number).await {
                    group.begin();
                    commits.set(commits.get() + 1);
                    group.end();
                }
            };
            requests.push(tasks.spawner().spawn_local_with_handle(request).expect("the pool is there"));
        }
        tasks.run_until_stalled();
        assert_eq!(commits.get(), 0, "LEADER1");
        drop(first);
        // Only tasks that were woken are polled.
        tasks.run_until_stalled();
        assert_eq!(commits.get(), 1, "LEADER2, LEADER3");
        assert!(requests.into_iter().all(|request| request.now_or_never().is_some()), "LEADER3");
    }
}
