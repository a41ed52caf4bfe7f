//! Where the bytes of a volume lie.

use crate::words::MapKind;
use serde::{Deserialize, Serialize};

/// Where a part of a volume or snapshot is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VolumeMap {
    /// `VG/LV` or `VG/LV@SNAP`.
    pub name: String,
    /// Bytes of the volume.
    pub size: u64,
    /// The end of the part that was asked for.
    pub until: u64,
    /// The end of the extents that are listed here; they may be too many for one answer.
    pub end: u64,
    /// In order, without gaps.
    pub extents: Vec<MapExtent>,
}

/// A run of bytes and where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MapExtent {
    /// The first byte in the volume.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What there is to say of it.
    pub kind: MapKind,
    /// The disk on which it is, by its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The first byte on that disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_offset: Option<u64>,
    /// Whether somebody else holds it too, such as a snapshot: a write there goes elsewhere, or copies it first. Not known of what
    /// may not be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
}
