//! What can be asked of schedules of snapshots.

use crate::requests::{DryRun, requests};
use serde::{Deserialize, Serialize};

requests! {
    /// Has snapshots of volumes made again and again, all of one instant, and old ones of these removed.
    struct ScheduleCreate {
        /// `VG/LV`.
        volume: String,
        /// Other volumes of the group, `VG/LV` or `LV`, of which snapshots are made at the same instant.
        set: Vec<String>,
        /// What the schedule is called in its group; the volume's name if not given.
        name: Option<String>,
        /// The time between two runs: `90s`, `15m`, `1h`, `1d`, `1w`. They are due at multiples of it since 1970 in UTC.
        every: String,
        /// How many of its snapshots stay: `24h,7d,4w,12m`, the newest of each of the last 24 hours, 7 days, 4 weeks and 12 months in
        /// UTC that have any; a number alone is of the newest.
        keep: String,
    }

    /// Changes a schedule; what is not given stays.
    struct ScheduleChange {
        /// What it is called in its group.
        name: Option<String>,
        /// The time between two runs.
        every: Option<String>,
        /// How many of its snapshots stay.
        keep: Option<String>,
    }

    /// Runs a schedule now.
    struct ScheduleRun {
    }
}
