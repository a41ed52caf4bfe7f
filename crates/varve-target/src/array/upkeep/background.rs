//! What an array does beside its requests: makes members equal, catches them up, and lets regions become clean.

use super::super::slow::TICKS;
use super::super::{Array, InjectedBug};
use super::resync::Step;
use futures_util::future::{Either, join, join_all, pending, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::pin::pin;
use std::time::Duration;
use varve_block::{Extent, IoError, LocalFuture, LockMode, Moment};
use varve_format::array::{MemberState, STAMP_ENTRIES_MAX};

/// How long work rests that could not be done.
const REST: Duration = Duration::from_secs(2);
/// The least time between two looks at regions that are still written.
const LOOK_MIN: Duration = Duration::from_millis(1);
/// How much is caught up between two superblocks that remember it.
const CAUGHT_UP_MAX: usize = 256;
/// Regions that are made equal or caught up at the same time, a chunk of each: while some are read, others are written.
const REGIONS_AT_ONCE: usize = 4;

/// What is left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Resync(u64),
    CatchUp(usize, u64),
    FinishCatchingUp(usize),
    VerifyLost,
}

impl Array {
    /// Does the array's work until it is closed, and nothing is under way any more on members that were too slow; to be run by
    /// its owner.
    pub async fn background(&self) {
        join(self.work(), self.watch_members()).await;
    }

    async fn work(&self) {
        let (mut from, mut caught_up) = (0, 0);
        while !self.is_closed.get() {
            let changes = self.changes.get();
            match self.next_work(from) {
                Some(work) => {
                    let works = self.run_of_work(work);
                    let outcomes = join_all(works.iter().map(|work| self.carry_out(*work))).await;
                    let is_done = |outcome: &Result<Step, IoError>| *outcome == Ok(Step::Done);
                    let stuck = works.iter().zip(&outcomes).filter(|(_, outcome)| !is_done(outcome));
                    from = stuck.map(|(work, _)| work.after()).next_back().unwrap_or(from);
                    if matches!(work, Work::CatchUp(..)) {
                        caught_up += outcomes.iter().filter(|outcome| is_done(outcome)).count();
                    }
                    let is_equal = matches!(work, Work::Resync(_)) && self.regions.unsynced().is_empty();
                    if caught_up >= CAUGHT_UP_MAX || is_equal {
                        caught_up = 0;
                        self.wants_superblock.set(true);
                        let _told = self.reconfigure().await; // The next request gets the error, too.
                    }
                }
                None => {
                    let due = self.retire().await;
                    let rests = from > 0;
                    from = 0;
                    self.wait(changes, due, rests).await;
                }
            }
        }
    }

    /// Abandons members on which requests take too long, and sees what was asked of them to its end (SLOW1).
    async fn watch_members(&self) {
        let (watch, clock) = (self.members.watch(), &self.options.clock);
        let mut under_way: FuturesUnordered<LocalFuture<'_, ()>> = FuturesUnordered::new();
        let mut due: Option<Moment> = None; // The next tick, while requests are under way.
        let next_tick = || clock.now().after(self.slow_after.get() / TICKS);
        loop {
            under_way.extend(watch.take_late().into_iter().map(|late| late.map(drop).boxed_local()));
            let is_idle = under_way.is_empty();
            if is_idle && watch.is_over() {
                return;
            }
            if watch.take_retimed() {
                due = due.map(|_| next_tick());
            }
            due = due.or_else(|| watch.take_begun().then(next_tick));
            let tick = async {
                match due {
                    Some(due) => clock.sleep_until(due).await,
                    None => pending().await,
                }
            };
            let ended = async {
                if is_idle {
                    pending::<()>().await;
                }
                under_way.next().await
            };
            let changed = watch.changed(due.is_none(), is_idle);
            select(pin!(ended), select(pin!(tick), pin!(changed))).await;
            if due.is_some_and(|due| due <= clock.now()) {
                watch.tick();
                due = (watch.take_begun() || self.is_waited_for()).then(next_tick);
                if self.abandon_slow() {
                    under_way.push(Box::pin(self.reconfigure().map(drop))); // The next request gets the error, too.
                }
            }
        }
    }

    /// Whether a caller waits for a member, or for the log disk.
    fn is_waited_for(&self) -> bool {
        self.members.is_waited_for() || self.log_disk.is_waited_for()
    }

    /// Abandons members that are too slow, if the others go on without them. A log disk is never needed. Returns whether there
    /// are any.
    fn abandon_slow(&self) -> bool {
        let is_slow = |place: &usize| self.members.is_slow(*place);
        let in_sync = self.members.in_state(MemberState::InSync);
        let leaving = self.members.leaving();
        let lost: Vec<usize> =
            in_sync.iter().copied().filter(|place| is_slow(place) || leaving.contains(place)).collect();
        let mut slow = self.members.in_state(MemberState::CatchingUp);
        if self.members.may_lose(self.spec.layout, &lost) {
            slow.extend(in_sync);
        }
        slow.retain(is_slow);
        slow.retain(|place| self.members.abandon(*place));
        let is_log_slow = self.log_disk.abandon_if_slow(&self.members);
        if is_log_slow {
            tracing::warn!(array = %self.spec.id, "a request on the log disk takes too long");
        }
        for place in &slow {
            tracing::warn!(array = %self.spec.id, member = place, "a request on a member takes too long");
        }
        !slow.is_empty() || is_log_slow
    }

    /// Work on the first region from `from` on.
    fn next_work(&self, from: u64) -> Option<Work> {
        if self.latch.failure().is_some() {
            return None;
        }
        if !self.lacks_data_member()
            && let Some(region) = self.regions.unsynced().next(from)
        {
            return Some(Work::Resync(region));
        }
        if from == 0 && self.has_unverified() {
            return Some(Work::VerifyLost);
        }
        let catching_up = self.members.in_state(MemberState::CatchingUp);
        catching_up.into_iter().find_map(|place| match self.members.next_lacked(place, from) {
            Some(region) => Some(Work::CatchUp(place, region)),
            None if self.members.lacks(place).is_empty() => Some(Work::FinishCatchingUp(place)),
            None => None,
        })
    }

    /// `work`, and what of the same kind follows it: regions that are worked on at the same time.
    fn run_of_work(&self, work: Work) -> Vec<Work> {
        let next = |work: &Work| match *work {
            Work::Resync(region) => self.regions.unsynced().next(region + 1).map(Work::Resync),
            Work::CatchUp(place, region) => {
                self.members.next_lacked(place, region + 1).map(|region| Work::CatchUp(place, region))
            }
            Work::FinishCatchingUp(_) | Work::VerifyLost => None,
        };
        std::iter::successors(Some(work), next).take(REGIONS_AT_ONCE).collect()
    }

    async fn carry_out(&self, work: Work) -> Result<Step, IoError> {
        match work {
            Work::Resync(region) => self.resync(region).await,
            Work::CatchUp(place, region) => self.catch_up(place, region).await,
            Work::FinishCatchingUp(place) => self.finish_catching_up(place).await.map(|()| Step::Done),
            Work::VerifyLost => self.verify_lost().await.map(|()| Step::Done),
        }
    }

    /// Lets regions become clean that are idle. Returns when there is something to do again.
    async fn retire(&self) -> Option<Moment> {
        if self.latch.failure().is_some() {
            return None;
        }
        self.write_idle_pages().await;
        let delay = self.release_delay.get();
        let skips_flush = self.has_bug(InjectedBug::ClearBeforeFlush);
        let lacks_flush = self.regions.retire(self.options.clock.now(), delay, skips_flush);
        if lacks_flush && self.flush().await.is_ok() {
            self.regions.retire(self.options.clock.now(), delay, skips_flush);
        }
        self.stamp_clean().await;
        let next = self.regions.next_retirement(self.options.clock.now(), delay);
        if next.is_none() && self.regions.has_clean() {
            // There are no writes any more: no mark is coming that this could ride with.
            let inside = self.gate.enter().await;
            let committed = self.join_commit().await;
            drop(inside);
            if committed.is_err() {
                let _told = self.reconfigure().await; // The next request gets the error, too.
            }
        }
        next.map(|next| next.max(self.options.clock.now().after(delay / 4 + LOOK_MIN)))
    }

    /// Tells members what is about to become clean in the log of a log disk (STAMP1).
    async fn stamp_clean(&self) {
        while self.log.is_on_log_disk() {
            let inside = self.gate.enter().await;
            let clean = self.regions.unstamped(STAMP_ENTRIES_MAX);
            if clean.is_empty() || self.is_leaving() {
                return;
            }
            let failed = self.log.stamp(&self.members, &self.regions, &clean).await;
            if !failed.is_empty() {
                self.members.leave(failed);
                drop(inside);
                let _told = self.reconfigure().await; // The next request gets the error, too.
                return;
            }
            self.log.stamps().end();
            self.regions.stamped(&clean);
        }
    }

    /// Waits until something has changed since `changes`, or until `due`, or for a rest.
    async fn wait(&self, changes: u64, due: Option<Moment>, rests: bool) {
        let rest = rests.then(|| self.options.clock.now().after(REST));
        let changed = pin!(self.changed.until(|| self.changes.get() != changes || self.is_closed.get()));
        match due.into_iter().chain(rest).min() {
            None => changed.await,
            Some(moment) => match select(changed, self.options.clock.sleep_until(moment)).await {
                Either::Left(_) | Either::Right(_) => {}
            },
        }
    }

    /// Ends the background work, makes everything durable, leaves no region dirty that need not be, and waits for what is under way
    /// on members that were too slow. Requests have ended.
    pub async fn close(&self) -> Result<(), IoError> {
        self.is_closed.set(true);
        self.tell();
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        let outcome = self.publish(|| {}).await;
        self.latch.shut(IoError::Gone); // A request that comes too late gets this error.
        self.members.await_departed().await; // They may change members that could be used again.
        self.members.watch().end();
        outcome
    }
}

impl Work {
    /// Where work goes on that is not possible here.
    fn after(self) -> u64 {
        match self {
            Work::Resync(region) | Work::CatchUp(_, region) => region + 1,
            Work::FinishCatchingUp(_) | Work::VerifyLost => u64::MAX,
        }
    }
}
