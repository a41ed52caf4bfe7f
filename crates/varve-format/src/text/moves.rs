//! Jobs that empty a disk: what is on it moves to others, a run of extents at a time .

use super::{Area, PvName};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A disk that is being emptied. Nothing new is allocated on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveEntry {
    /// The disk.
    pub from: PvName,
    /// Where what is on it goes; to any other disk if none is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<PvName>,
    /// Bytes that are copied in a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// What is moved now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<MoveStep>,
}

/// A run of extents that moves. The volume or store owns one of both places: the valid one. The job owns the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveStep {
    /// The volume or exception store.
    pub of: Uuid,
    /// Where the run lay before.
    pub old: Area,
    /// Where it is afterwards.
    pub new: Area,
}
