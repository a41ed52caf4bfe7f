//! Schedules: when snapshots of volumes are made, which of them stay, and which were made so.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;
use varve_block::UnixTime;

/// Most schedules of a group.
pub const SCHEDULES_MAX: usize = 256;
/// Most volumes of a schedule.
pub const SCHEDULED_MAX: usize = 64;
/// Most snapshots that the schedules of a group have made and not removed, in all.
pub const MADE_MAX: usize = 16_384;
/// The longest time between two runs, in seconds: 366 days.
pub const EVERY_S_MAX: u64 = 366 * 86_400;
/// Most snapshots of a class that are kept.
const KEPT_MAX: u32 = 10_000;

/// When snapshots of volumes are made, and how many of them stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleEntry {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub id: Uuid,
    /// When it was made.
    #[serde(with = "super::date_text")]
    pub created: UnixTime,
    /// Seconds between two runs, which are due at multiples of that since 1970-01-01 UTC.
    pub every_s: u64,
    /// How many of its snapshots stay.
    pub keep: Keep,
    /// When it ran last.
    #[serde(default, with = "super::date_text::if_known", skip_serializing_if = "Option::is_none")]
    pub last_run: Option<UnixTime>,
    /// The volumes of which it makes snapshots, all at one instant.
    #[serde(rename = "volume")]
    pub volumes: Vec<ScheduledVolume>,
}

/// A volume of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduledVolume {
    /// The volume.
    pub id: Uuid,
    /// Its pool, if it is thin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Uuid>,
    /// Its snapshots that the schedule made, as far as they were there when it ran last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<MadeSnapshots>,
}

/// Snapshots in one store or pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeSnapshots {
    /// The store or pool.
    pub store: Uuid,
    /// Their numbers there, which no other snapshots ever have.
    pub numbers: Vec<u64>,
}

/// How many snapshots stay: of each class, in so many hours, days, weeks or months in which there is one, the newest of each; and the newest
/// in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Keep {
    /// So many, whenever they were made.
    pub last: u32,
    /// Hours.
    pub hours: u32,
    /// Days.
    pub days: u32,
    /// Weeks, which begin on Mondays.
    pub weeks: u32,
    /// Months.
    pub months: u32,
}

/// Why a text does not say how many snapshots stay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not say how many snapshots stay: write numbers up to {KEPT_MAX} with h, d, w or m, each once, as in 24h,7d,4w,12m; a number alone is of the newest"
)]
pub struct KeepError(pub String);

impl FromStr for Keep {
    type Err = KeepError;
    fn from_str(text: &str) -> Result<Self, KeepError> {
        let refused = || KeepError(text.to_owned());
        let mut keep = Self::default();
        let mut seen = HashSet::new();
        for part in text.split(',') {
            let digits = part.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
            let class = match &part[digits.len()..] {
                "" => &mut keep.last,
                "h" => &mut keep.hours,
                "d" => &mut keep.days,
                "w" => &mut keep.weeks,
                "m" => &mut keep.months,
                _ => return Err(refused()),
            };
            let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
            let count = digits.parse().ok().filter(|count| is_number && *count <= KEPT_MAX);
            *class = count.ok_or_else(refused)?;
            if !seen.insert(&part[digits.len()..]) {
                return Err(refused());
            }
        }
        Ok(keep)
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes =
            [(self.last, ""), (self.hours, "h"), (self.days, "d"), (self.weeks, "w"), (self.months, "m")];
        let given = classes.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = given.map(|(count, class)| format!("{count}{class}")).collect();
        f.pad(if parts.is_empty() { "0".to_owned() } else { parts.join(",") }.as_str())
    }
}

impl TryFrom<String> for Keep {
    type Error = KeepError;
    fn try_from(text: String) -> Result<Self, KeepError> {
        text.parse()
    }
}

impl From<Keep> for String {
    fn from(keep: Keep) -> String {
        keep.to_string()
    }
}

impl ScheduleEntry {
    /// The snapshots that it made: volume, store or pool, number.
    pub fn made(&self) -> impl Iterator<Item = (Uuid, Uuid, u64)> {
        self.volumes.iter().flat_map(|volume| {
            let of_store = move |made: &'_ MadeSnapshots| {
                let (id, store) = (volume.id, made.store);
                made.numbers.clone().into_iter().map(move |number| (id, store, number))
            };
            volume.made.iter().flat_map(of_store)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_stays_is_written_as_users_write_it() {
        let keep: Keep = "24h,7d,4w,12m".parse().expect("the contract");
        assert_eq!(keep, Keep { last: 0, hours: 24, days: 7, weeks: 4, months: 12 });
        assert_eq!("3".parse(), Ok(Keep { last: 3, ..Keep::default() }));
        assert_eq!("0h,0d".parse(), Ok(Keep::default()));
        assert_eq!((Keep::default().to_string().as_str(), "0".parse()), ("0", Ok(Keep::default())));
        for text in
            ["", "h", "24h,", "1h,2h", "7x", "-1d", "+1d", "1.5h", "10001h", "1hh", "24 h", "99999999999d"]
        {
            assert_eq!(text.parse::<Keep>(), Err(KeepError(text.to_owned())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_stays_survives_the_round_trip(counts in proptest::array::uniform5(0..=KEPT_MAX)) {
            let [last, hours, days, weeks, months] = counts;
            let keep = Keep { last, hours, days, weeks, months };
            prop_assert_eq!(keep.to_string().parse(), Ok(keep));
        }
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = text.parse::<Keep>();
        }
    }
}
