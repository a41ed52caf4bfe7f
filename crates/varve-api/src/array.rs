//! Arrays, as they are shown: how they are laid out, and their members.

use crate::words::{Layout, ReadPolicy};
use serde::{Deserialize, Serialize};

/// The members of a mirror or of ddraid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Array {
    /// Mirror, or ddraid.
    pub layout: Layout,
    /// 2^order members of ddraid hold data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<u32>,
    /// Bytes in a block of ddraid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u64>,
    /// From which members data is read.
    pub read_policy: ReadPolicy,
    /// Its members, that of ddraid's parity last.
    pub members: Vec<ArrayMember>,
}

/// A member of an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArrayMember {
    /// Its identity.
    pub id: String,
    /// The disks on which it lies; no other member lies there.
    pub disks: Vec<String>,
    /// Whether one of them is missing.
    pub missing: bool,
}
