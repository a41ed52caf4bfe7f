//! Dates as users and texts write them: `2026-11-21T11:46:28Z` (RFC 3339, UTC, whole seconds).
//!
//! The calendar arithmetic follows Howard Hinnant, "chrono-compatible low-level date algorithms".

use varve_block::UnixTime;

const DAY: u64 = 86_400;
const NANOSECONDS: u64 = 1_000_000_000;
/// 9999-12-31T23:59:59Z, the last date with a year of four digits.
const LAST: u64 = 253_402_300_799;

/// The date as text; dates beyond the year 9999 become its last second.
pub fn format_date(date: UnixTime) -> String {
    let seconds = date.0.min(LAST);
    let (year, month, day) = civil(seconds / DAY);
    let rest = seconds % DAY;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date that `text` says, if it has exactly the form of [`format_date`].
pub fn parse_date(text: &str) -> Option<UnixTime> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let days = days(number(0..4)?, number(5..7)?, number(8..10)?)?;
    let date = UnixTime(days * DAY + number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?);
    (format_date(date) == text).then_some(date)
}

/// A date with nanoseconds, given in nanoseconds since 1970, as text that `touch -d` takes: `2026-11-22T01:02:03.000000004Z`.
pub fn format_exact_date(since_1970_ns: u64) -> String {
    let date = format_date(UnixTime(since_1970_ns / NANOSECONDS));
    let seconds = date.trim_end_matches('Z');
    format!("{seconds}.{:09}Z", since_1970_ns % NANOSECONDS)
}

/// The nanoseconds since 1970 that `text` says, if it has exactly the form of [`format_exact_date`].
pub fn parse_exact_date(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.strip_suffix('Z')?.split_once('.')?;
    let date = parse_date(&format!("{seconds}Z"))?;
    let nanoseconds = fraction.parse::<u64>().ok()?;
    let since_1970 = date.0.checked_mul(NANOSECONDS)?.checked_add(nanoseconds)?;
    (format_exact_date(since_1970) == text).then_some(since_1970)
}

/// The months since the year 0 that ended before `date`: a number for each month of the calendar.
pub fn month_of(date: UnixTime) -> u64 {
    let (year, month, _) = civil(date.0.min(LAST) / DAY);
    year * 12 + month - 1
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March, so that the leap day is the last of its year; 719468 days lie between 0000-03-01 and 1970.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Days since 1970-01-01 of a date, if there can be such a date and it is not earlier.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_dates() {
        assert_eq!(format_date(UnixTime(0)), "1970-01-01T00:00:00Z");
        assert_eq!(format_date(UnixTime(951_782_400)), "2000-02-29T00:00:00Z");
        assert_eq!(format_date(UnixTime(1_750_000_000)), "2025-06-15T15:06:40Z");
        assert_eq!(format_date(UnixTime(u64::MAX)), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            "2025-02-29T00:00:00Z",
            "2025-06-15 15:06:40",
            "2025-06-15T24:00:00Z",
            "1969-12-31T00:00:00Z",
        ] {
            assert_eq!(parse_date(text), None, "{text}");
        }
        assert_eq!(parse_date("+025-06-15T15:06:40Z"), None);
        assert_eq!(parse_date("2025-06-15T15:06:40Zé"), None);
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        let month = |text| month_of(parse_date(text).expect("a date"));
        assert_eq!(month("2024-02-29T23:59:59Z") + 1, month("2024-03-01T00:00:00Z"));
        assert_eq!(month("2025-12-31T23:59:59Z") + 1, month("2026-01-01T00:00:00Z"));
        assert_eq!(month("2025-01-01T00:00:00Z") + 11, month("2025-12-01T00:00:00Z"));
    }

    proptest! {
        #[test]
        fn dates_survive_the_round_trip(seconds in 0..=LAST) {
            prop_assert_eq!(parse_date(&format_date(UnixTime(seconds))), Some(UnixTime(seconds)));
        }
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = parse_date(&text);
        }
    }
}
