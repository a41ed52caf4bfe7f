//! Arrays, as they are shown: how they are laid out, and their members.

use crate::words::{Layout, MemberState, ReadPolicy};
use serde::{Deserialize, Serialize};
use std::fmt;

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
    /// How long a request on a member may take, in milliseconds.
    pub slow_after_ms: u64,
    /// Bytes of the array that are made equal or caught up in a second while clients are served, at least.
    pub resync_rate_min: u64,
    /// Bytes in a second at most, always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_rate_max: Option<u64>,
    /// How long a region is idle before it is no longer dirty, in milliseconds.
    #[serde(default)]
    pub release_after_ms: u64,
    /// Whether what members return is checked by checksums.
    #[serde(default)]
    pub checksums: bool,
    /// Its members, that of ddraid's parity last.
    pub members: Vec<ArrayMember>,
    /// The disk that has its log; none if its members do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<ArrayLog>,
    /// Bytes in which members may differ if the power fails now.
    #[serde(default)]
    pub dirty: u64,
    /// Bytes in which members may differ since a crash or a failed write, and are being made equal.
    #[serde(default)]
    pub unsynced: u64,
    /// Bytes that cannot be read because a data member of ddraid is missing, and the power failed while they were written.
    #[serde(default)]
    pub lost: u64,
    /// Regions of it that wait for the member, or until their loss is accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_regions: Vec<RegionRun>,
    /// Bytes of a region; 0 while it is not in use.
    #[serde(default)]
    pub region_size: u64,
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

/// Regions of an array that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegionRun {
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
}

impl RegionRun {
    /// `regions`, which rise, as runs.
    pub fn runs(regions: &[u64]) -> Vec<RegionRun> {
        let mut runs: Vec<RegionRun> = Vec::new();
        for region in regions {
            match runs.last_mut() {
                Some(run) if run.last + 1 == *region => run.last = *region,
                _ => runs.push(RegionRun { first: *region, last: *region }),
            }
        }
        runs
    }
}

impl fmt::Display for RegionRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
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
    /// Blocks that a member could not read, or held wrong by their checksums, and that were written again.
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
    /// The disks on which it is; no other member is there.
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
    /// Blocks that it could not read, or held wrong, and that were read from the others and written again.
    #[serde(default)]
    pub healed: u64,
    /// Blocks of which it held something else than what was written to it, by their checksums.
    #[serde(default)]
    pub wrong: u64,
}

/// The disk that has the log of an array instead of its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArrayLog {
    /// Its identity.
    pub id: String,
    /// The disk; no member is there.
    pub disk: String,
    /// Whether it is missing.
    pub missing: bool,
    /// Whether the log is there now; else members have it, until the disk is back.
    pub in_use: bool,
    /// How often it has failed since the volume was taken into use.
    pub errors: u64,
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
    /// The job that fills members of the volume's or pool's arrays, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}
