//! The daemon itself: what happened, and what is not as it should be, as data for `varve status`, events and metrics alike.

use crate::words::{Health, ProblemKind, Severity};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Its kind.
    pub kind: ProblemKind,
    /// How much it matters.
    pub severity: Severity,
    /// The noun of what it is about, as on the command line: `pv`, `vg`, `lv`, `pool`, `snap`, `schedule`, `export`, `daemon`.
    pub noun: String,
    /// The name of what it is about.
    pub name: String,
    /// The group of that, if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What is wrong, as the rest of a sentence that begins with noun and name.
    pub message: String,
    /// The command that mends it, or what is to be done before that.
    pub help: String,
    /// Seconds since 1970 when the daemon noticed it.
    pub since: u64,
}

/// Something that happened, for logs and listeners.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Counts what has happened since the daemon began to serve, from 1 on.
    pub number: u64,
    /// Seconds since 1970.
    pub time: u64,
    /// The group, volume, snapshot, export or disk.
    pub subject: String,
    /// What happened.
    pub message: String,
}

/// The daemon itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DaemonStatus {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since 1970 when it began to serve.
    pub started: u64,
    /// Threads that serve volumes.
    pub shards: u32,
    /// `ring` or `pool`.
    pub io: String,
    /// Where it keeps what it remembers.
    pub state_dir: String,
    /// Bytes of extents that the trash of all groups holds.
    #[serde(default)]
    pub trash: u64,
    /// Whether anything needs a person.
    pub health: Health,
    /// What is not as it should be, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// The same as data, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attention: Vec<Problem>,
    /// The last things that happened, the newest last.
    pub events: Vec<Event>,
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.noun, self.name, self.message)
    }
}

impl ProblemKind {
    /// How much a problem of this kind matters.
    pub fn severity(self) -> Severity {
        match self {
            Self::DiskMissing
            | Self::DiskStale
            | Self::DiskDamaged
            | Self::DiskDuplicate
            | Self::DiskErrors
            | Self::DiskNotReplaced
            | Self::GroupIncomplete
            | Self::GroupUndecided
            | Self::ArrayDegraded
            | Self::ArrayMismatch
            | Self::PoolFull
            | Self::ScheduleFailed
            | Self::ImageMoved
            | Self::ExportCredentials
            | Self::StateUnwritable => Severity::Warning,
            Self::DiskFailed
            | Self::DiskStalled
            | Self::DiskUnlinked
            | Self::HostFull
            | Self::GroupDamaged
            | Self::VolumeFailing
            | Self::VolumeFailed
            | Self::VolumeUnusable
            | Self::MapperAway
            | Self::MapperSilent
            | Self::SpaceWaited
            | Self::SpaceRefused
            | Self::SnapshotDropped
            | Self::ImageCutOff
            | Self::ImageDeleted
            | Self::ExportDown => Severity::Critical,
        }
    }
}

impl Problem {
    /// Whether both are the same problem of the same thing, whatever is said of it now.
    pub fn is(&self, other: &Self) -> bool {
        (self.kind, &self.noun, &self.name) == (other.kind, &other.noun, &other.name)
    }
}
