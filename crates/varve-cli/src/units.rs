//! Bytes and dates as users read them.

use varve_block::UnixTime;

/// Bytes in the largest unit that leaves at least one of it: `10.0 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    varve_vg::size::format_size(bytes)
}

/// A date in UTC: `2026-11-21 11:49:14`.
pub(crate) fn date(seconds: u64) -> String {
    varve_format::format_date(UnixTime(seconds)).replace('T', " ").replace('Z', "")
}

/// A time in its largest unit of which there are at least two, rounded up: `3 min`.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        7200..172_800 => format!("{} h", seconds.div_ceil(3600)),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_times_and_sizes_are_short() {
        let told = [119, 121, 7199, 7200, 172_799, 172_801].map(duration);
        assert_eq!(told, ["119 s", "3 min", "120 min", "2 h", "48 h", "3 days"]);
        assert_eq!(date(1_795_261_754), "2026-11-21 11:49:14");
        assert_eq!(size(10 << 30), "10.0 GiB");
    }
}
