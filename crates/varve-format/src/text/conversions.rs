//! Jobs that convert a volume: its bytes are copied to extents of another layout, which take their place.

use super::{Layout, Segment, Space};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A volume or pool that is being converted, its exception stores included. It owns the extents that count, and the job the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversionEntry {
    /// What it is.
    pub id: Uuid,
    /// The volume or pool.
    pub volume: Uuid,
    /// Bytes that are copied in a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Whether the new layout is valid: the job owns the old one, which is to be freed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub switched: bool,
    /// The volume, and those of its stores that get another layout.
    #[serde(rename = "part")]
    pub parts: Vec<ConvertedPart>,
}

/// The extents of one volume or exception store that the job of a conversion owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvertedPart {
    /// The volume or store.
    pub of: Uuid,
    /// How the extents become its bytes.
    pub layout: Layout,
    /// Where they lie, in order.
    pub segments: Vec<Segment>,
}

impl ConversionEntry {
    /// Under what the array of a part is in use before the part is valid: the old one may have the id of the volume or store.
    pub fn array_key(&self, part: &ConvertedPart) -> Uuid {
        Uuid::new_v5(&self.id, part.of.as_bytes())
    }
}

impl ConvertedPart {
    /// Where the bytes lie.
    pub fn space(&self) -> Space<'_> {
        Space { layout: &self.layout, segments: &self.segments }
    }
}
