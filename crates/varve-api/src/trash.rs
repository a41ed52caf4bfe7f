//! The trash of groups: what is in it, and what can be asked of it.

use crate::requests::{DryRun, requests};
use serde::{Deserialize, Serialize};

/// What the trash of a group holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupTrash {
    /// Volumes and pools.
    pub count: u64,
    /// Bytes of extents that come back to the group when it is emptied, which it is before anything fails for want of space.
    pub bytes: u64,
    /// Seconds for which what is removed stays there; 0 if it goes at once.
    pub keep: u64,
}

/// What became of a volume or pool that was removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Removed {
    /// Seconds since 1970 until which it can be brought back, unless its space is needed; none if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// A volume or pool in the trash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrashItem {
    /// What it was called: `VG/LV`.
    pub name: String,
    /// Its identity, by which it can be named, too.
    pub id: String,
    /// The group that it belongs to.
    pub group: String,
    /// Whether it is a pool.
    pub is_pool: bool,
    /// The pool of a thin volume: `VG/POOL`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pool: Option<String>,
    /// Whether it has snapshots, or space for them.
    pub has_snapshots: bool,
    /// Bytes that it shows.
    pub size: u64,
    /// Bytes that come back to the group when it is given up; of a thin volume those that come back to its pool, at most.
    pub gives_back: u64,
    /// Seconds since 1970 when it was removed.
    pub removed: u64,
    /// Seconds since 1970 when it is given up, if nothing needs its space before.
    pub until: u64,
    /// Seconds until then.
    pub left: u64,
}

/// What was brought back from the trash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrashRestored {
    /// What it is called now: `VG/LV`.
    pub name: String,
    /// Its identity.
    pub id: String,
}

requests! {
    /// Removes a volume or a pool.
    struct VolumeRemove {
        /// Whether it goes at once, not to the trash. A volume has no snapshots then.
        now: bool,
    }

    /// Brings a volume or pool back from the trash.
    struct TrashRestore {
        /// What it is called from then on; as it was if not given.
        name: Option<String>,
    }

    /// Gives up what is in the trash.
    struct TrashEmpty {}
}

impl VolumeRemove {
    /// Past the trash.
    pub fn at_once() -> Self {
        Self { now: true, dry_run: false }
    }
}
