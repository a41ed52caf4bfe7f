//! When a schedule runs: pure, of the time between two runs, the last one, and the clock.
//!
//! Invariants:
//! - DUE1. Runs are due at multiples of the interval since 1970 in UTC. However many were missed, one run makes up for them.
//! - DUE2. A clock that goes back by less than an interval causes no run; after a longer way back a schedule does not wait until the clock
//!   is again where it was.

use crate::injected_bug::{self, InjectedBug};
use std::time::Duration;
use varve_block::UnixTime;
use varve_format::format_date;

/// How long a schedule that failed waits first, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));
/// So much of a schedule's name is in the names of its snapshots, which have a date and perhaps a number behind it.
const NAME_MAX: usize = 100;

/// Whether a schedule that runs every `every` seconds, and ran at `last`, is to run at `now`, in seconds since 1970.
pub(crate) fn is_due(every: u64, last: Option<u64>, now: u64) -> bool {
    match last {
        None => true,
        Some(last) if now < last => last - now > every, // DUE2
        Some(last) => now / every > last / every,       // DUE1
    }
}

/// When it is to run next, in seconds since 1970.
pub(crate) fn next_run(every: u64, last: Option<u64>, now: u64) -> u64 {
    match last {
        Some(last) if !is_due(every, Some(last), now) => (last / every + 1) * every,
        Some(last) if now >= last => (last / every + 1) * every, // It is late.
        _ => now,
    }
}

/// What is recorded as the last run: the time at which it began.
pub(crate) fn recorded(every: u64, last: Option<u64>, now: u64) -> u64 {
    match last {
        Some(last) if injected_bug::has(InjectedBug::CatchUpAll) && now > last => now.min(last + every),
        _ => now,
    }
}

/// How long a schedule waits that has failed so many times in succession.
pub(crate) fn again_after(failures: u32) -> Duration {
    let (first, most) = AGAIN;
    first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most)
}

/// What a snapshot is called that the schedule `name` makes at `now`: the first name that is free.
pub(crate) fn snapshot_name(name: &str, now: u64, is_free: impl Fn(&str) -> bool) -> String {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let date = format_date(UnixTime(now));
    let (day, time) = date.split_once('T').expect("the form of dates has a T");
    let first = format!("{}-{}-{}", &name[..name.len().min(NAME_MAX)], digits(day), digits(time));
    if is_free(&first) {
        return first;
    }
    let numbered = (2..).map(|number: u64| format!("{first}-{number}"));
    numbered.into_iter().find(|name| is_free(name)).expect("there are more numbers than names")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_are_due_at_multiples_of_the_interval_and_missed_ones_once() {
        let hour = 3600;
        assert!(is_due(hour, None, 5), "the first run is at once");
        assert!(!is_due(hour, Some(3601), 7199));
        assert!(is_due(hour, Some(3601), 7200), "DUE1: at the full hour");
        assert_eq!((next_run(hour, Some(3601), 5000), next_run(hour, None, 5000)), (7200, 5000));
        assert_eq!(next_run(hour, Some(3601), 90_000), 7200, "it is late");
        assert!(is_due(hour, Some(3601), 90_000) && !is_due(hour, Some(90_000), 90_001), "DUE1: once");
    }

    #[test]
    fn a_clock_that_goes_back_neither_doubles_runs_nor_stops_them() {
        let hour = 3600;
        assert!(!is_due(hour, Some(7200), 7199), "DUE2: a second back over the full hour");
        assert!(is_due(hour, Some(1_000_000), 7200), "DUE2: from a wrong year");
        assert_eq!(next_run(hour, Some(1_000_000), 7200), 7200);
    }

    #[test]
    fn what_fails_is_tried_again_later_and_later_up_to_an_hour() {
        let waits: Vec<u64> = [1, 2, 3, 9, 10, 1000].map(|count| again_after(count).as_secs()).to_vec();
        assert_eq!(waits, [10, 20, 40, 2560, 3600, 3600]);
    }

    #[test]
    fn names_say_schedule_and_date_and_are_free() {
        let name = snapshot_name("home", 1_750_000_000, |_| true);
        assert_eq!(name, "home-20250615-150640");
        let taken = ["home-20250615-150640", "home-20250615-150640-2"];
        assert_eq!(
            snapshot_name("home", 1_750_000_000, |name| !taken.contains(&name)),
            "home-20250615-150640-3"
        );
        let long = snapshot_name(&"x".repeat(128), u64::MAX, |_| true);
        assert_eq!(varve_format::check_name(&long), Ok(()), "{long}");
    }

    proptest! {
        /// DUE1: with a clock that is looked at at any times there is at most one run in each interval, and none is missed for good.
        #[test]
        fn one_run_in_each_interval_in_which_the_clock_was_looked_at(
            every in 1_u64..100_000,
            steps in proptest::collection::vec(0_u64..200_000, 1..60),
        ) {
            let (mut now, mut last, mut runs) = (1_700_000_000_u64, None, Vec::new());
            let mut intervals = std::collections::BTreeSet::new();
            for step in steps {
                now += step;
                intervals.insert(now / every);
                if is_due(every, last, now) {
                    prop_assert!(next_run(every, last, now) <= now);
                    (last, _) = (Some(now), runs.push(now / every));
                } else {
                    prop_assert!(next_run(every, last, now) > now);
                }
            }
            prop_assert_eq!(runs, intervals.into_iter().collect::<Vec<_>>());
        }
    }
}
