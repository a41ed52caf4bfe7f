//! What the control knows of schedules beside what the texts say: which run now, and which failed.
//!
//! Invariant KNOWNSCHEDULE1: one run of a schedule is under way at a time.

use super::due::again_after;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::Moment;

/// So often what excludes something else may fail in succession before that is a problem: it goes by.
const BUSY_MAX: u32 = 2;

/// Schedules that run, and those that failed, by their identities.
#[derive(Default)]
pub(crate) struct KnownSchedules {
    under_way: RefCell<BTreeSet<Uuid>>,
    failed: RefCell<BTreeMap<Uuid, Failed>>,
}

/// A schedule that could not run.
#[derive(Clone)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    /// So many times in succession.
    pub(crate) times: u32,
    /// It is tried again then.
    again: Moment,
}

impl Failed {
    /// Whether it needs a person.
    fn is_problem(&self) -> bool {
        let is_busy = matches!(self.failure.code, Code::VolumeBusy | Code::SnapshotMergesNow);
        !is_busy || self.times > BUSY_MAX
    }
}

impl KnownSchedules {
    /// A run begins; whether none is under way (KNOWNSCHEDULE1).
    pub(crate) fn begin(&self, schedule: Uuid) -> bool {
        self.under_way.borrow_mut().insert(schedule)
    }

    /// It has ended; `outcome` is none if there was nothing to do.
    pub(crate) fn end(&self, schedule: Uuid, outcome: Option<Result<(), Failure>>, now: Moment) {
        self.under_way.borrow_mut().remove(&schedule);
        match outcome {
            None => {}
            Some(Ok(())) => drop(self.failed.borrow_mut().remove(&schedule)),
            Some(Err(failure)) => {
                let mut failed = self.failed.borrow_mut();
                let times = failed.get(&schedule).map_or(0, |failed| failed.times) + 1;
                failed.insert(schedule, Failed { failure, times, again: now.after(again_after(times)) });
            }
        }
    }

    /// Whether a schedule that failed is tried again now; none if it did not fail.
    pub(crate) fn is_tried_again(&self, schedule: Uuid, now: Moment) -> Option<bool> {
        self.failed.borrow().get(&schedule).map(|failed| failed.again <= now)
    }

    /// Why a schedule needs a person, if it does.
    pub(crate) fn failed(&self, schedule: Uuid) -> Option<Failed> {
        self.failed.borrow().get(&schedule).filter(|failed| failed.is_problem()).cloned()
    }

    /// Schedules that are no more, or have changed, did not fail.
    pub(crate) fn retain_failed(&self, is_there: impl Fn(Uuid) -> bool) {
        self.failed.borrow_mut().retain(|schedule, _| is_there(*schedule));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_problem_until_the_next_success_and_what_is_busy_only_if_it_stays_so() {
        let (known, schedule) = (KnownSchedules::default(), Uuid::from_u128(1));
        let fail = |code| {
            assert!(known.begin(schedule) && !known.begin(schedule), "KNOWNSCHEDULE1");
            known.end(schedule, Some(Err(Failure::new(code, "no"))), Moment(0));
        };
        fail(Code::SnapshotsFull);
        assert_eq!(known.failed(schedule).map(|failed| failed.times), Some(1));
        let (early, late) = (Moment(9_000_000_000), Moment(10_000_000_000));
        assert_eq!(known.is_tried_again(schedule, early), Some(false));
        assert_eq!(known.is_tried_again(schedule, late), Some(true));
        known.end(schedule, None, Moment(0));
        assert!(known.failed(schedule).is_some(), "there was nothing to do");
        known.end(schedule, Some(Ok(())), Moment(0));
        assert!(known.failed(schedule).is_none() && known.is_tried_again(schedule, late).is_none());
        let is_problem = |_| {
            fail(Code::VolumeBusy);
            known.failed(schedule).is_some()
        };
        assert_eq!([1, 2, 3].map(is_problem), [false, false, true]);
        known.retain_failed(|_| false);
        assert!(known.failed(schedule).is_none());
    }
}
