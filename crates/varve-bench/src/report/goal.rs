//! What a figure has to keep, and whether it does.

use crate::report::stats::{dash, short};
use serde::{Deserialize, Serialize};

/// What a figure has to keep.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Goal {
    /// No less than this.
    AtLeast(f64),
    /// No more than this.
    AtMost(f64),
}

impl Goal {
    /// Whether `value` keeps it, rounded to so many decimals.
    pub(crate) fn holds(self, value: f64, decimals: usize) -> bool {
        let scale = if decimals == 2 { 100.0 } else { 1000.0 };
        let value = (value * scale).round() / scale;
        match self {
            Goal::AtLeast(goal) => value >= goal,
            Goal::AtMost(goal) => value <= goal,
        }
    }

    /// The figure that it names.
    pub(crate) fn limit(self) -> f64 {
        let (Goal::AtLeast(limit) | Goal::AtMost(limit)) = self;
        limit
    }

    /// `holds`, or by how much of the goal `value`, which has so many decimals, misses it.
    pub(crate) fn judged(self, value: f64, decimals: usize) -> String {
        let goal = self.limit();
        match (value.is_finite(), self.holds(value, decimals)) {
            (false, _) => dash(),
            (_, true) => "holds".to_owned(),
            _ => format!("**missed by {} %**", short((value - goal).abs() / goal * 100.0)),
        }
    }

    /// `≥ 0.98`
    pub(crate) fn told(self) -> String {
        match self {
            Goal::AtLeast(goal) => format!("≥ {goal}"),
            Goal::AtMost(goal) => format!("≤ {goal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_says_by_how_much_it_is_missed() {
        assert_eq!(Goal::AtLeast(0.98).judged(0.9796, 3), "holds");
        assert_eq!(Goal::AtLeast(0.8).judged(0.6, 3), "**missed by 25.0 %**");
        assert_eq!(
            (Goal::AtMost(2.0).judged(2.0, 3), Goal::AtMost(2.0).told()),
            ("holds".into(), "≤ 2".into())
        );
        assert_eq!(Goal::AtMost(2.0).judged(5.0, 3), "**missed by 150 %**");
        assert_eq!(Goal::AtMost(2.0).judged(f64::NAN, 3), "–");
    }

    #[test]
    fn what_is_judged_is_what_is_printed() {
        assert_eq!([2, 3].map(|decimals| Goal::AtLeast(1.2).holds(1.199, decimals)), [true, false]);
        assert_eq!([2, 3].map(|decimals| Goal::AtMost(1.0).holds(1.004, decimals)), [true, false]);
    }
}
