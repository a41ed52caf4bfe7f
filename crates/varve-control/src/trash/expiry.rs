//! Whether the clock can be trusted with giving up what is in the trash.
//!
//! Invariants:
//! - EXPIRY1. A clock that jumps forward gives nothing up for an hour: it may be wrong, and be set right meanwhile. A clock that goes back
//!   keeps everything longer.
//! - EXPIRY2. What could not be given up is tried again after ten seconds.

use std::cell::Cell;
use std::time::Duration;
use varve_block::Moment;

/// A clock that gains so much on the time that passes has jumped, in seconds.
const JUMP_S: u64 = 60;
/// How long nothing is given up after a jump.
const HOLD: Duration = Duration::from_secs(3600);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_secs(10);

/// What was seen of the clock, and when the trash was last emptied for its age.
#[derive(Default)]
pub(crate) struct KnownTrash {
    last: Cell<Option<(Moment, u64)>>,
    held_until: Cell<Option<Moment>>,
    next: Cell<Option<Moment>>,
}

impl KnownTrash {
    /// The clock shows `date`, in seconds since 1970.
    pub(crate) fn note(&self, now: Moment, date: u64) {
        if let Some((before, shown)) = self.last.replace(Some((now, date))) {
            let expected = shown.saturating_add(now.since(before).as_secs());
            if date > expected.saturating_add(JUMP_S) {
                tracing::warn!(
                    "the clock has jumped forward: nothing of the trash goes for its age for an hour"
                );
                self.held_until.set(Some(now.after(HOLD)));
            }
        }
    }

    /// Whether things may go for their age (EXPIRY1).
    pub(crate) fn may_expire(&self, now: Moment) -> bool {
        self.last.get().is_some() && self.held_until.get().is_none_or(|until| now >= until)
    }

    /// Whether it is time for an attempt, which begins then (EXPIRY2).
    pub(crate) fn begin(&self, now: Moment) -> bool {
        let is_time = self.next.get().is_none_or(|next| now >= next);
        if is_time {
            self.next.set(Some(now.after(AGAIN)));
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_forward_gives_nothing_up_for_an_hour() {
        let (known, begin) = (KnownTrash::default(), Moment::default());
        let at = |seconds| begin.after(Duration::from_secs(seconds));
        assert!(!known.may_expire(begin), "nothing was seen of the clock yet");
        known.note(at(0), 1_000_000);
        assert!(known.may_expire(at(0)), "EXPIRY1");
        known.note(at(10), 1_000_070);
        assert!(known.may_expire(at(10)), "a step of a minute is no jump");
        known.note(at(20), 1_000_141);
        assert!(!known.may_expire(at(20)) && !known.may_expire(at(3619)), "EXPIRY1");
        assert!(known.may_expire(at(3620)), "EXPIRY1: an hour later it is trusted");
        known.note(at(4000), 5);
        assert!(known.may_expire(at(4000)), "a clock that goes back keeps things by itself");
        known.note(at(4100), 5 + 100 + 3600 * 24);
        assert!(!known.may_expire(at(4100)), "and is set forward: a jump");
    }

    #[test]
    fn what_was_not_given_up_is_tried_again_after_ten_seconds() {
        let (known, begin) = (KnownTrash::default(), Moment::default());
        let begun: Vec<u64> =
            (0..25).filter(|seconds| known.begin(begin.after(Duration::from_secs(*seconds)))).collect();
        assert_eq!(begun, [0, 10, 20], "EXPIRY2");
    }
}
