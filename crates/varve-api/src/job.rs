//! Jobs, as they are shown.

use crate::array::Scrub;
use crate::envelope::Failure;
use crate::words::JobState;
use serde::{Deserialize, Serialize};

/// Work that goes on after its command returned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Job {
    /// The daemon's name for it.
    pub id: String,
    /// `rollback`, `snapshot-remove`, ….
    pub kind: String,
    /// What it works on.
    pub subject: String,
    /// How it stands.
    pub state: JobState,
    /// Units done, of `total`.
    pub done: u64,
    /// Units to do; 0 while unknown.
    pub total: u64,
    /// What a unit is: `bytes`, `chunks`, ….
    pub unit: String,
    /// Units that are done in a second, while it runs and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Seconds since 1970.
    pub started: u64,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// The snapshot that keeps what the volume showed before, if it is a rollback that made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// What it has found, if it is a scrub that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Scrub>,
}
