//! Jobs: work on the volumes and disks of a group that was begun, and goes on wherever the group is used until it has ended.

use super::{ConversionEntry, MoveEntry};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use varve_block::UnixTime;

/// Most jobs of a group, beside moves, conversions and clearings: of these a disk or volume has one at most.
pub const JOBS_MAX: usize = 64;
/// Most snapshots that the jobs of a group remove, in all.
pub const REMOVED_MAX: usize = 8192;
/// Most characters of what a job works on.
pub const SUBJECT_MAX: usize = 1000;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobEntry {
    /// The number under which it is shown.
    pub id: u64,
    /// What it works on, as shown to users.
    pub subject: String,
    /// When it was begun.
    #[serde(with = "super::date_text")]
    pub started: UnixTime,
    /// The groups that have a part of it, if there are several. The first one decides: what does not stand in its description has not
    /// begun, or has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Uuid>,
    /// What is done.
    pub work: JobWork,
}

/// What a job does. The volumes, pools and stores that it names may be gone, but for moves, conversions and clearings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum JobWork {
    /// All of these snapshots go.
    RemoveSnapshots {
        /// By the store or pool that holds them.
        snapshots: Vec<RemovedSnapshots>,
    },
    /// A volume gets the content of one of its snapshots.
    Rollback {
        /// The volume.
        volume: Uuid,
        /// The store or pool.
        store: Uuid,
        /// The snapshot's number there.
        number: u64,
        /// Bytes that it shows.
        bytes: u64,
        /// Of a thin volume: what it had before. It has another one once it was rolled back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<u64>,
        /// Whether it is known to have begun.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        begun: bool,
    },
    /// A volume of a pool, or a snapshot of one, gets a copy of its origin.
    Flatten {
        /// The volume.
        volume: Uuid,
        /// The pool.
        pool: Uuid,
        /// The number of the volume or snapshot there.
        number: u64,
    },
    /// The image of a volume gets a copy of what is below it.
    FlattenImage {
        /// The volume.
        volume: Uuid,
        /// The image.
        image: String,
    },
    /// The image below that of a volume gets what that one holds.
    CommitImage {
        /// The volume.
        volume: Uuid,
        /// The volume's image.
        image: String,
    },
    /// The members of the arrays of a volume or pool are compared.
    Scrub {
        /// The volume or pool.
        volume: Uuid,
        /// Whether what differs is only counted.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        check_only: bool,
        /// Bytes in a second at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u64>,
        /// How far it is; none if it has only begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<ScrubPosition>,
    },
    /// A disk is emptied.
    Move(MoveEntry),
    /// A volume or pool gets another layout.
    Convert(ConversionEntry),
    /// What others wrote to extents of a volume is cleared; they are not served before.
    Clear {
        /// The volume or pool.
        volume: Uuid,
        /// The first of its extents that is to be cleared.
        from: u64,
    },
}

/// How far a scrub is, and what it has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubPosition {
    /// The array that it compares: that of the volume or pool, or a snapshot store. Its own comes first, then the stores by falling ids.
    pub array: Uuid,
    /// Where the rest of that begins.
    pub offset: u64,
    /// Bytes of it that were compared.
    pub compared: u64,
    /// Bytes of the arrays before it that were.
    pub before: u64,
    /// Blocks of which the members did not match, in all arrays.
    pub mismatches: u64,
    /// Blocks that were written again.
    pub healed: u64,
    /// Bytes that could not be compared.
    pub unread: u64,
}

/// Snapshots of one volume in one store or pool that go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovedSnapshots {
    /// The volume.
    pub volume: Uuid,
    /// The store or pool.
    pub store: Uuid,
    /// Their numbers there.
    pub numbers: Vec<u64>,
    /// Bytes that they show, in all.
    pub bytes: u64,
}

impl JobEntry {
    /// What it is called where something is wrong with it.
    pub(super) fn place(&self) -> String {
        format!("job {}", self.id)
    }
}

impl JobWork {
    /// Whether it owns extents, or says which ones are not served: then it ends by a step of its own work alone, which leaves the volumes
    /// sound.
    pub fn holds_extents(&self) -> bool {
        matches!(self, Self::Move(_) | Self::Convert(_) | Self::Clear { .. })
    }

    /// The snapshots that go, by the store or pool that holds them.
    pub fn removed(&self) -> &[RemovedSnapshots] {
        match self {
            Self::RemoveSnapshots { snapshots } => snapshots,
            _ => &[],
        }
    }

    /// How many snapshots go.
    pub fn removed_count(&self) -> usize {
        self.removed().iter().map(|part| part.numbers.len()).sum()
    }
}

/// Whether a move, conversion or clearing stands in a text as it did before version 5.
pub(super) fn is_work_beside(table: &toml::Table) -> bool {
    let mut volumes = table.get("logical_volume").and_then(toml::Value::as_array).into_iter().flatten();
    let is_cleared = |volume: &toml::Value| volume.get("uncleared").is_some();
    ["move", "conversion"].iter().any(|work| table.contains_key(*work)) || volumes.any(is_cleared)
}
