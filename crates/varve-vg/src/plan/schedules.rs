//! Schedules of snapshots written down in the group's text.
//!
//! Invariants:
//! - PLANSCHEDULE1. A schedule goes with the last of its volumes. One whose volumes are in a pool has them as long as that is there; of those in it
//!   the pool alone knows. What is in the trash is a volume of it still, in case it comes back.
//! - PLANSCHEDULE2. Schedules are what they are now, whatever backup is written back: the snapshots that they made are those of now. Those
//!   of volumes that come back come back, too.
//! - PLANSCHEDULE3. A snapshot that was made by no schedule becomes none's: only the change that makes it valid says whose it is.

use super::{PlanError, ScheduleError, ScheduleRun, ScheduleStep};
use crate::model::{Description, Group, Schedule};
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_format::check_name;
use varve_format::text::{MADE_MAX, SCHEDULES_MAX};

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
    assert!(schedule.last_run.is_some(), "PLANSCHEDULE3");
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
            assert!(schedule.made().next().is_none(), "PLANSCHEDULE2");
            description.schedules.push(schedule);
        }
    }
}

/// PLANSCHEDULE1: what has no volume left goes; the steps, in words.
pub(super) fn drop_lost_schedules(description: &mut Description) -> Vec<String> {
    let there = description.logical_volumes.iter().map(|lv| lv.id);
    let there: BTreeSet<Uuid> = there.chain(description.trash.iter().map(|entry| entry.volume.id)).collect();
    for schedule in &mut description.schedules {
        schedule.volumes.retain(|volume| there.contains(&volume.pool.unwrap_or(volume.id)));
    }
    let group = &description.group.name;
    let is_lost = |schedule: &mut Schedule| schedule.volumes.is_empty();
    let lost = description.schedules.extract_if(.., is_lost);
    let step =
        |schedule: Schedule| format!("remove schedule {group}/{}, whose volumes are gone", schedule.name);
    let steps = lost.map(step).collect();
    assert!(description.schedules.iter().all(|schedule| !schedule.volumes.is_empty()), "PLANSCHEDULE1");
    steps
}

/// `90s`, `1h`: seconds in the largest unit of which they are a multiple.
pub fn every_text(seconds: u64) -> String {
    assert!(seconds > 0, "TEXT27");
    let units = [(7 * 86_400, "w"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let fit = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit)).unwrap_or((1, "s"));
    format!("{}{}", seconds / fit.0, fit.1)
}
