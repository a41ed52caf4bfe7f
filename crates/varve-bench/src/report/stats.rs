//! Medians, spreads and ratios taken pair by pair, so that a slow minute of the machine hits both sides of a ratio.

/// What a row of measurements says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Summary {
    /// The middle one.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) lowest: f64,
    /// The largest.
    pub(crate) highest: f64,
}

impl Summary {
    /// Of `values`; nothing if there are none or one is not a number.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self { median: middle(&sorted), lowest: sorted[0], highest: sorted[sorted.len() - 1] })
    }
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], sorted[half]) } else { sorted[half] }
}

/// The median; not a number if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    Summary::of(values).map_or(f64::NAN, |summary| summary.median)
}

/// The value that so many of `values` do not exceed, `share` of them; not a number if there are none.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil().max(1.0);
    sorted.get(rank as usize - 1).copied().unwrap_or(f64::NAN)
}

/// Round by round, `ours` over `theirs`: measured next to each other in time.
pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}

/// The summary of [`ratios`].
pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Summary> {
    Summary::of(&ratios(ours, theirs))
}

/// What stands where there is no figure.
pub(crate) fn dash() -> String {
    "–".to_owned()
}

/// A figure with three digits that count.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => dash(),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0, 0.0].map(|share| percentile(&values, share)), [100.0, 198.0, 200.0, 1.0]);
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn a_summary_keeps_the_ends() {
        let summary = Summary::of(&[5.0, 9.0, 1.0, 7.0, 3.0]).expect("numbers");
        assert_eq!((summary.lowest, summary.median, summary.highest), (1.0, 5.0, 9.0));
    }

    #[test]
    fn a_slow_round_cancels_out_of_a_paired_ratio() {
        let ours = [200.0, 20.0, 220.0];
        let theirs = [100.0, 10.0, 110.0];
        let ratio = ratio(&ours, &theirs).expect("numbers");
        assert_eq!((ratio.lowest, ratio.median, ratio.highest), (2.0, 2.0, 2.0));
        assert!(median(&ours) / median(&[100.0, 100.0, 110.0]) > 1.9);
    }

    #[test]
    fn rounds_without_a_partner_are_left_out() {
        assert_eq!(ratios(&[4.0, 6.0, 8.0], &[2.0, 2.0]), vec![2.0, 3.0]);
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(
            [0.1234, 1.0, 9.999, 12.345, 99.96, 123.4].map(short),
            ["0.12", "1.00", "10.0", "12.3", "100", "123"]
        );
        assert_eq!(short(f64::NAN), "–");
    }
}
