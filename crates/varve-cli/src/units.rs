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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_sizes_are_short() {
        assert_eq!(date(1_795_261_754), "2026-11-21 11:49:14");
        assert_eq!(size(10 << 30), "10.0 GiB");
    }
}
