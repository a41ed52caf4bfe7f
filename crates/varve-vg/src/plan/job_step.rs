//! What a change says of jobs, of schedules and of the trash, and why that of the last two is not possible.

use crate::model::{Job, MadeSnapshots, Schedule, ScheduleKeep, ScrubPosition};
use uuid::Uuid;
use varve_block::UnixTime;
use varve_format::text::{MADE_MAX, SCHEDULES_MAX};

/// What is written down of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobStep {
    /// A job begins, under a number that no job of the group has had.
    Begin(Job),
    /// A rollback has begun.
    RolledBack {
        /// The job's number.
        id: u64,
    },
    /// A scrub is so far.
    Scrubbed {
        /// The job's number.
        id: u64,
        /// Where the rest begins, and what was found.
        position: ScrubPosition,
    },
    /// A job has another number from now on, which no job of the group has had.
    Renumber {
        /// The number that it has.
        from: u64,
        /// Its new number.
        to: u64,
    },
    /// Jobs have ended.
    End {
        /// Their numbers.
        ids: Vec<u64>,
    },
}

/// What is written down of schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleStep {
    /// There is a new one, which has made nothing.
    Create(Box<Schedule>),
    /// What is given is another from now on.
    Change {
        /// Which.
        id: Uuid,
        /// What it is called.
        name: Option<String>,
        /// Seconds between two runs.
        every_s: Option<u64>,
        /// How many of its snapshots stay.
        keep: Option<ScheduleKeep>,
    },
    /// It goes; what it made stays.
    Remove {
        /// Which.
        id: Uuid,
    },
    /// A volume that was in a pool is gone.
    VolumeGone {
        /// The volume.
        volume: Uuid,
    },
    /// It has run.
    Ran(ScheduleRun),
}

/// What a run of a schedule has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRun {
    /// Which schedule.
    pub schedule: Uuid,
    /// When it ran.
    pub at: UnixTime,
    /// All its snapshots that are there, by volume; of volumes that are not named those that were there before stay.
    pub made: Vec<(Uuid, Vec<MadeSnapshots>)>,
}

/// Why a change of a schedule is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The name is taken.
    #[error("there is a schedule {group}/{name} already")]
    Exists {
        /// The group.
        group: String,
        /// The name.
        name: String,
    },
    /// There is none.
    #[error("{group} has no such schedule")]
    NotFound {
        /// The group.
        group: String,
    },
    /// As many schedules, or snapshots that they made, as the description may name.
    #[error(
        "{group} has as many schedules as it can have, or snapshots made by them: {SCHEDULES_MAX}, and {MADE_MAX} snapshots"
    )]
    Full {
        /// The group.
        group: String,
    },
}

/// What is done with the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrashStep {
    /// A volume or pool is removed, and can be brought back until its time is over.
    Put {
        /// What it is called.
        name: String,
    },
    /// It comes back.
    Restore {
        /// Which.
        id: Uuid,
        /// What it is called from then on.
        name: String,
    },
    /// These are given up.
    Empty {
        /// Which.
        ids: Vec<Uuid>,
    },
    /// What is removed from now on stays for so long.
    Keep {
        /// Seconds; 0 if there is no trash.
        seconds: u64,
    },
}

/// Why a change of the trash is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrashError {
    /// It is not there.
    #[error("{what} is not in the trash of {group}")]
    NotFound {
        /// The group.
        group: String,
        /// Its name or id.
        what: String,
    },
    /// What others wrote to its extents has not been cleared yet: brought back, it would show that.
    #[error("{group}/{volume} is being cleared")]
    Uncleared {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
    },
    /// It has no extents that could be kept.
    #[error("{group}/{volume} takes no space of its group, and has nothing to keep")]
    NoSpace {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
    },
    /// No group keeps what is removed for so long.
    #[error("what is removed stays in the trash for 366 days at most")]
    Keep,
}

impl TrashError {
    /// What to do about it.
    pub(super) fn help(&self) -> String {
        match self {
            Self::NotFound { group, .. } => format!("`varve trash list {group}` shows what is there"),
            Self::Uncleared { .. } => "wait for its job (`varve job list`), or --now".to_owned(),
            Self::NoSpace { .. } => "--now".to_owned(),
            Self::Keep => "--trash 24h, 7d or 0".to_owned(),
        }
    }
}
