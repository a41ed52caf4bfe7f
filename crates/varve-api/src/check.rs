//! What an offline check found.

use crate::nouns::ByteExtent;
use serde::{Deserialize, Serialize};

/// Something that a check found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// Whether it is damage; else it is only worth knowing.
    pub damage: bool,
    /// The structure.
    pub structure: String,
    /// What is wrong with it.
    pub message: String,
    /// The volume that is concerned: `VG/LV`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The snapshot that is concerned: `VG/LV@SNAP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The bytes of it that are concerned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extents: Vec<ByteExtent>,
}

/// A disk that was checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckedDisk {
    /// Where it is.
    pub path: String,
    /// Its identity, if the label could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The group it belongs to, if that could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// The result of an offline check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    /// Whether nothing is damaged.
    pub clean: bool,
    /// The disks.
    pub disks: Vec<CheckedDisk>,
    /// What was found about groups and volumes, beyond single disks.
    pub findings: Vec<Finding>,
}
