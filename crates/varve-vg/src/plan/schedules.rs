//! Schedules of snapshots written down in the group's text.
//!
//! Invariants:
//! - PLANSCHEDULE1. A schedule goes with the last of its volumes. One whose volumes are in a pool has them as long as that is there; of those in it
//!   the pool alone knows.
//! - PLANSCHEDULE2. Schedules are what they are now, whatever backup is written back: the snapshots that they made are those of now. Those
//!   of volumes that come back come back, too.
//! - PLANSCHEDULE3. A snapshot that was made by no schedule becomes none's: only the change that makes it valid says whose it is.

use super::error::ErrorKind;
use super::{Draft, PlanError};
use crate::model::{Description, Group, MadeSnapshots, Schedule, ScheduleKeep};
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_block::UnixTime;
use varve_format::check_name;
use varve_format::text::{MADE_MAX, SCHEDULES_MAX};

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

impl ScheduleError {
    /// What kind of error it is.
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Exists { .. } => ErrorKind::Exists,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Full { .. } => ErrorKind::NoSpace,
        }
    }

    /// The remedy.
    pub(super) fn help(&self) -> String {
        match self {
            Self::Exists { group, name } => {
                format!("choose another name with --name, or `varve schedule remove {group}/{name}`")
            }
            Self::NotFound { group } => format!("`varve schedule list {group}` shows them"),
            Self::Full { group } => {
                format!("let schedules keep fewer: `varve schedule list {group}`, `varve schedule change`")
            }
        }
    }
}

impl ScheduleStep {
    /// Changes what the description says of schedules; what is done, in words.
    pub(super) fn apply(self, description: &mut Description) -> Result<String, PlanError> {
        let group = description.group.name.clone();
        let full = |name: &str| format!("{group}/{name}");
        Ok(match self {
            Self::Create(schedule) => {
                check_new(description, &schedule.name, None)?;
                assert!(schedule.made().next().is_none(), "PLANSCHEDULE3");
                let (every, keep) = (every_text(schedule.every_s), schedule.keep);
                let done = format!(
                    "create schedule {}: a snapshot every {every}; keeps {keep}",
                    full(&schedule.name)
                );
                description.schedules.push(*schedule);
                done
            }
            Self::Change { id, name, every_s, keep } => {
                if let Some(name) = &name {
                    check_new(description, name, Some(id))?;
                }
                let schedule = find(description, id)?;
                let before = full(&schedule.name);
                let mut done = Vec::new();
                if let Some(name) = name {
                    done.push(format!("rename schedule {before} to {}", full(&name)));
                    schedule.name = name;
                }
                if let Some(every_s) = every_s {
                    schedule.every_s = every_s;
                    done.push(format!("run schedule {before} every {}", every_text(every_s)));
                }
                if let Some(keep) = keep {
                    schedule.keep = keep;
                    done.push(format!("let schedule {before} keep {keep}"));
                }
                done.join("; ")
            }
            Self::Remove { id } => {
                let schedule = find(description, id)?.clone();
                description.schedules.retain(|known| known.id != id);
                let count = schedule.made().count();
                format!("remove schedule {}; the {count} snapshots that it made stay", full(&schedule.name))
            }
            Self::VolumeGone { volume } => {
                for schedule in &mut description.schedules {
                    schedule.volumes.retain(|known| known.id != volume);
                }
                "forget a volume that is gone in schedules".to_owned()
            }
            Self::Ran(run) => ran(description, run)?,
        })
    }
}

/// A schedule has run: what it made is its own (PLANSCHEDULE3).
fn ran(description: &mut Description, run: ScheduleRun) -> Result<String, PlanError> {
    let group = description.group.name.clone();
    let schedule = find(description, run.schedule)?;
    schedule.last_run = Some(run.at);
    for (id, made) in run.made {
        if let Some(volume) = schedule.volumes.iter_mut().find(|volume| volume.id == id) {
            volume.made = made;
        }
    }
    let done = format!("write down that schedule {group}/{} has run", schedule.name);
    match description.schedules.iter().map(|schedule| schedule.made().count()).sum::<usize>() > MADE_MAX {
        true => Err(ScheduleError::Full { group }.into()),
        false => Ok(done),
    }
}

/// Refuses a name that another schedule has, and one schedule too many.
fn check_new(description: &Description, name: &str, own: Option<Uuid>) -> Result<(), PlanError> {
    let group = || description.group.name.clone();
    check_name(name).map_err(|error| PlanError::Name { name: name.to_owned(), error })?;
    let mut others = description.schedules.iter().filter(|known| Some(known.id) != own);
    if others.any(|known| known.name == name) {
        return Err(ScheduleError::Exists { group: group(), name: name.to_owned() }.into());
    }
    match own.is_none() && description.schedules.len() >= SCHEDULES_MAX {
        true => Err(ScheduleError::Full { group: group() }.into()),
        false => Ok(()),
    }
}

fn find(description: &mut Description, id: Uuid) -> Result<&mut Schedule, PlanError> {
    let missing = ScheduleError::NotFound { group: description.group.name.clone() };
    description.schedules.iter_mut().find(|schedule| schedule.id == id).ok_or(missing.into())
}

/// Schedules of volumes that come back with a backup (PLANSCHEDULE2). What they had made is no longer theirs: another one may have it.
pub(super) fn bring_back(description: &mut Description, before: &Group, backup: &Group) {
    let is_new = |id: Uuid| !before.logical_volumes().iter().any(|lv| lv.id == id);
    for schedule in backup.schedules() {
        let is_free =
            !description.schedules.iter().any(|now| now.id == schedule.id || now.name == schedule.name);
        let is_back = schedule.volumes.iter().any(|volume| is_new(volume.pool.unwrap_or(volume.id)));
        if is_free && is_back && description.schedules.len() < SCHEDULES_MAX {
            let mut schedule = schedule.clone();
            schedule.volumes.iter_mut().for_each(|volume| volume.made.clear());
            description.schedules.push(schedule);
        }
    }
}

impl Draft<'_> {
    /// PLANSCHEDULE1: what has no volume left goes.
    pub(super) fn drop_lost_schedules(&mut self) {
        let there: BTreeSet<Uuid> = self.description.logical_volumes.iter().map(|lv| lv.id).collect();
        for schedule in &mut self.description.schedules {
            schedule.volumes.retain(|volume| there.contains(&volume.pool.unwrap_or(volume.id)));
        }
        let mut schedules = std::mem::take(&mut self.description.schedules);
        let lost: Vec<Schedule> = schedules.extract_if(.., |schedule| schedule.volumes.is_empty()).collect();
        self.description.schedules = schedules;
        for schedule in lost {
            let full = self.full(&schedule.name);
            self.step(format!("remove schedule {full}, whose volumes are gone"));
        }
        assert!(
            self.description.schedules.iter().all(|schedule| !schedule.volumes.is_empty()),
            "PLANSCHEDULE1"
        );
    }
}

/// `90s`, `1h`: seconds in the largest unit of which they are a multiple.
pub fn every_text(seconds: u64) -> String {
    let units = [(7 * 86_400, "w"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let fit = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit)).unwrap_or((1, "s"));
    format!("{}{}", seconds / fit.0, fit.1)
}
