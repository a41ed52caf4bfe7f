//! What can be asked of schedules of snapshots.

use crate::requests::DryRun;
use serde::{Deserialize, Serialize};

/// Has snapshots of volumes made again and again, all of one instant, and old ones of these removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleCreate {
    /// `VG/LV`.
    pub volume: String,
    /// Other volumes of the group, `VG/LV` or `LV`, of which snapshots are made at the same instant.
    pub set: Vec<String>,
    /// What the schedule is called in its group; the volume's name if not given.
    pub name: Option<String>,
    /// The time between two runs: `90s`, `15m`, `1h`, `1d`, `1w`. They are due at multiples of it since 1970 in UTC.
    pub every: String,
    /// How many of its snapshots stay: `24h,7d,4w,12m`, the newest of each of the last 24 hours, 7 days, 4 weeks and 12 months in
    /// UTC that have any; a number alone is of the newest.
    pub keep: String,
    /// Only tell what would be done.
    pub dry_run: bool,
}

impl DryRun for ScheduleCreate {
    fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    fn set_dry_run(&mut self) {
        self.dry_run = true;
    }
}

/// Changes a schedule; what is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleChange {
    /// What it is called in its group.
    pub name: Option<String>,
    /// The time between two runs.
    pub every: Option<String>,
    /// How many of its snapshots stay.
    pub keep: Option<String>,
    /// Only tell what would be done.
    pub dry_run: bool,
}

impl DryRun for ScheduleChange {
    fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    fn set_dry_run(&mut self) {
        self.dry_run = true;
    }
}

/// Runs a schedule now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleRun {
    /// Only tell what would be done.
    pub dry_run: bool,
}

impl DryRun for ScheduleRun {
    fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    fn set_dry_run(&mut self) {
        self.dry_run = true;
    }
}
