//! What a figure has to keep, and whether it does.

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
    /// Whether `value`, to three decimals, keeps it.
    pub(crate) fn holds(self, value: f64) -> bool {
        let value = (value * 1000.0).round() / 1000.0;
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

    /// `holds`, or by how much of the goal it is missed.
    pub(crate) fn judged(self, value: f64) -> String {
        let goal = self.limit();
        match (value.is_finite(), self.holds(value)) {
            (false, _) => crate::report::table::dash(),
            (_, true) => "holds".to_owned(),
            (_, false) => {
                format!(
                    "**missed by {} %**",
                    crate::report::table::short((value - goal).abs() / goal * 100.0)
                )
            }
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
