//! Arrays, as they are shown: how they are laid out, and their members.

use crate::words::{Layout, MemberState, ReadPolicy};
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
    /// Bytes in which members may differ if the power fails now.
    #[serde(default)]
    pub dirty: u64,
    /// Bytes in which members may differ since a crash or a failed write, and are being made equal.
    #[serde(default)]
    pub unsynced: u64,
    /// Bytes that cannot be read because a data member of ddraid is missing, and the power failed while they were written.
    #[serde(default)]
    pub lost: u64,
    /// Reads and scrubbed blocks in which the parity did not fit the data, or copies differed, since the volume was taken into use.
    #[serde(default)]
    pub mismatches: u64,
    /// Bytes a second in which members are made equal and caught up, while they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Seconds until members are in sync at this rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// What its last scrub has found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Scrub>,
}

/// What a scrub of an array has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Scrub {
    /// When it ended; seconds since 1970.
    pub ended: u64,
    /// Whether it has compared everything.
    pub complete: bool,
    /// Whether it has only counted, and written nothing.
    pub check_only: bool,
    /// Bytes of the array that were compared.
    pub verified: u64,
    /// Blocks of which the members did not fit each other. They do now, unless it has only counted.
    pub mismatches: u64,
    /// Blocks that a member could not read, and that were written again.
    pub healed: u64,
    /// Bytes that could not be compared because too many members cannot read them; any, if it has only counted.
    pub unread: u64,
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
    /// What its content is worth.
    pub state: MemberState,
    /// Bytes that it lacks.
    #[serde(default)]
    pub behind: u64,
    /// Requests that it failed since the volume was taken into use.
    #[serde(default)]
    pub errors: u64,
    /// Of those, sectors that were read from the others and written again.
    #[serde(default)]
    pub healed: u64,
}

/// An array of a volume or pool: its own, or that of a snapshot store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VolumeArray {
    /// The volume or pool, `VG/LV`.
    pub volume: String,
    /// Whether it keeps snapshots of the volume, not its bytes.
    pub is_store: bool,
    /// How it is laid out, and its members.
    pub array: Array,
}
