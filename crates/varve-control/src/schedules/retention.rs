//! Which snapshots of a schedule stay: pure, of the times at which they were made, the classes, and the clock.
//!
//! Invariants:
//! - RETAIN1. What is protected stays, and so does the newest.
//! - RETAIN2. Of a class of `n`, the newest snapshot of each of the last `n` hours, days, weeks or months stays in which there is any.
//!   These are hours of UTC; weeks begin on Mondays.
//! - RETAIN3. What stays by a class today stays by it until there are newer ones in as many hours, days, weeks or months: snapshots may be
//!   planned as often as one likes.
//! - RETAIN4. Snapshots dated after `now`, made before the clock went back, take no place of the others: they are planned by themselves.
//! - RETAIN5. The time of a plan is that of sorting: each snapshot is put into one hour, day, week and month once.

use varve_block::UnixTime;
use varve_format::month_of;
use varve_vg::model::ScheduleKeep;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// What a schedule made at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instant {
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// Its number in its store: the later of two of one second has a higher one.
    pub(crate) number: u64,
    /// Whether it is held, exported, an origin or read by a job.
    pub(crate) is_protected: bool,
}

/// What is counted in a class.
#[derive(Clone, Copy)]
enum Class {
    Last,
    Hour,
    Day,
    Week,
    Month,
}

/// The places of the instants that are not to stay, the oldest first.
pub(crate) fn surplus(instants: &[Instant], keep: ScheduleKeep, now: u64) -> Vec<usize> {
    surplus_by(instants, keep, now, bucket)
}

/// The same; `bucket` says in which hour, day, week or month an instant is.
fn surplus_by(
    instants: &[Instant],
    keep: ScheduleKeep,
    now: u64,
    mut bucket: impl FnMut(Class, Instant) -> u64,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..instants.len()).collect();
    order.sort_unstable_by_key(|place| (instants[*place].created, instants[*place].number));
    let mut stays: Vec<bool> = instants.iter().map(|instant| instant.is_protected).collect();
    let first_future = order.partition_point(|place| instants[*place].created <= now);
    let (past, future) = order.split_at(first_future); // RETAIN4
    let classes = [
        (Class::Last, keep.last),
        (Class::Hour, keep.hours),
        (Class::Day, keep.days),
        (Class::Week, keep.weeks),
        (Class::Month, keep.months),
    ];
    for part in [past, future] {
        if let Some(newest) = part.last() {
            stays[*newest] = true; // RETAIN1
        }
        for (class, count) in classes {
            let (mut left, mut before) = (count, None);
            for place in part.iter().rev() {
                let own = bucket(class, instants[*place]);
                if before == Some(own) {
                    continue;
                }
                if left == 0 {
                    break;
                }
                (left, before) = (left - 1, Some(own));
                stays[*place] = true; // RETAIN2
            }
        }
    }
    order.retain(|place| !stays[*place]);
    assert!(order.iter().all(|place| !instants[*place].is_protected), "RETAIN1");
    order
}

/// The number of the hour, day, week or month of an instant; of the last ones each is by itself.
fn bucket(class: Class, instant: Instant) -> u64 {
    match class {
        Class::Last => instant.number,
        Class::Hour => instant.created / HOUR,
        Class::Day => instant.created / DAY,
        Class::Week => (instant.created / DAY + 3) / 7, // 1970 began on a Thursday.
        Class::Month => month_of(UnixTime(instant.created)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use varve_format::parse_date;

    fn instants(dates: &[u64]) -> Vec<Instant> {
        let instant =
            |(number, created): (u64, &u64)| Instant { created: *created, number, is_protected: false };
        (1..).zip(dates).map(instant).collect()
    }

    fn kept(dates: &[&str], keep: &str, now: &str) -> Vec<String> {
        let date = |text: &str| parse_date(&format!("{text}Z")).expect("a date").0;
        let of: Vec<u64> = dates.iter().map(|text| date(text)).collect();
        let gone = surplus(&instants(&of), keep.parse().expect("classes"), date(now));
        let there = (0..dates.len()).filter(|place| !gone.contains(place));
        there.map(|place| dates[place][5..16].to_owned()).collect()
    }

    #[test]
    fn the_newest_of_each_hour_day_week_and_month_stays() {
        let dates = [
            "2025-12-31T23:50:00", // Wednesday
            "2026-01-01T00:10:00", // Thursday, another month
            "2026-01-04T23:59:59", // Sunday
            "2026-01-05T00:00:00", // Monday, another week
            "2026-01-05T09:00:00",
            "2026-01-05T09:30:00",
            "2026-01-05T10:00:00",
        ];
        let now = "2026-01-05T10:01:00";
        assert_eq!(kept(&dates, "2h", now), ["01-05T09:30", "01-05T10:00"], "RETAIN2");
        assert_eq!(kept(&dates, "3d", now), ["01-01T00:10", "01-04T23:59", "01-05T10:00"], "RETAIN2");
        assert_eq!(kept(&dates, "9w", now), ["01-04T23:59", "01-05T10:00"], "RETAIN2");
        assert_eq!(kept(&dates, "9m", now), ["12-31T23:50", "01-05T10:00"], "RETAIN2");
        assert_eq!(kept(&dates, "3", now), ["01-05T09:00", "01-05T09:30", "01-05T10:00"]);
        assert_eq!(kept(&dates, "0h", now), ["01-05T10:00"], "RETAIN1: the newest");
    }

    #[test]
    fn what_was_made_before_the_clock_went_back_takes_no_place_of_the_others() {
        let dates =
            ["2030-05-01T00:00:00", "2030-05-02T00:00:00", "2026-01-01T01:00:00", "2026-01-01T02:00:00"];
        let now = "2026-01-01T02:30:00";
        assert_eq!(
            kept(&dates, "2h", now),
            ["05-01T00:00", "05-02T00:00", "01-01T01:00", "01-01T02:00"],
            "RETAIN4"
        );
        assert_eq!(kept(&dates, "1h", now), ["05-02T00:00", "01-01T02:00"], "RETAIN4");
    }

    #[test]
    fn ten_thousand_snapshots_are_put_into_each_class_once() {
        let dates: Vec<u64> = (0..10_000).map(|number| 1_700_000_000 + number * 61).collect();
        let keep = "10h,10000d,3w,10000m".parse().expect("classes");
        let mut looks = 0_usize;
        let gone = surplus_by(&instants(&dates), keep, u64::MAX, |class, instant| {
            looks += 1;
            bucket(class, instant)
        });
        assert!(looks <= 5 * dates.len(), "RETAIN5: {looks}");
        assert!(gone.len() > 9_900 && gone.is_sorted(), "{}", gone.len());
    }

    prop_compose! {
        fn anything()(
            given in proptest::collection::vec((0_u64..400 * DAY, proptest::bool::weighted(0.1)), 0..80),
            counts in proptest::array::uniform5(prop_oneof![2 => Just(0_u32), 1 => 1_u32..6]),
            now in 0_u64..400 * DAY,
        ) -> (Vec<Instant>, ScheduleKeep, u64) {
            let base = 1_700_000_000;
            let instant = |(number, (created, is_protected)): (u64, (u64, bool))| {
                Instant { created: base + created, number, is_protected }
            };
            let [last, hours, days, weeks, months] = counts;
            let instants = (1..).zip(given).map(instant).collect();
            (instants, ScheduleKeep { last, hours, days, weeks, months }, base + now)
        }
    }

    /// What RETAIN2 says in other words: all buckets of a class, the newest of each, the last of these.
    fn wanted(instants: &[Instant], class: Class, count: u32) -> BTreeSet<u64> {
        let mut newest: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for instant in instants {
            let key = match class {
                Class::Last => instant.created * 100 + instant.number,
                class => bucket(class, *instant),
            };
            let own = (instant.created, instant.number);
            let known = newest.entry(key).or_insert(own);
            *known = own.max(*known);
        }
        newest.values().rev().take(count as usize).map(|(_, number)| *number).collect()
    }

    proptest! {
        #[test]
        fn what_is_protected_what_is_newest_and_what_a_class_keeps_stays_and_no_more((instants, keep, now) in anything()) {
            let gone: BTreeSet<u64> =
                surplus(&instants, keep, now).into_iter().map(|place| instants[place].number).collect();
            let mut stays: BTreeSet<u64> =
                instants.iter().filter(|instant| instant.is_protected).map(|instant| instant.number).collect();
            for is_past in [true, false] {
                let part: Vec<Instant> =
                    instants.iter().copied().filter(|instant| (instant.created <= now) == is_past).collect();
                stays.extend(wanted(&part, Class::Last, keep.last.max(1)));
                stays.extend(wanted(&part, Class::Hour, keep.hours));
                stays.extend(wanted(&part, Class::Day, keep.days));
                stays.extend(wanted(&part, Class::Week, keep.weeks));
                stays.extend(wanted(&part, Class::Month, keep.months));
            }
            let all: BTreeSet<u64> = instants.iter().map(|instant| instant.number).collect();
            prop_assert_eq!(&gone, &all.difference(&stays).copied().collect::<BTreeSet<u64>>(), "RETAIN1, RETAIN2, RETAIN4");
        }

        #[test]
        fn a_plan_of_what_stays_removes_nothing_more((instants, keep, now) in anything()) {
            let gone = surplus(&instants, keep, now);
            let left: Vec<Instant> =
                (0..instants.len()).filter(|place| !gone.contains(place)).map(|place| instants[place]).collect();
            prop_assert_eq!(surplus(&left, keep, now), Vec::<usize>::new(), "RETAIN3");
        }
    }
}
