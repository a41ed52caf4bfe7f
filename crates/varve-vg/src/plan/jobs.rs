//! Jobs written down in the group's text: what goes on wherever the group is used.
//!
//! Invariants:
//! - PLANJOB1. A number that a job of the group has had is given to no other one, so `last_job` never falls.
//! - PLANJOB2. Jobs are what they are now, whatever backup is written back: what they did since cannot be undone by that.
//! - PLANJOB3. A job that holds extents ends by a step of its own work alone, or with its volume or disk.

use super::{JobStep, Plan, PlanError};
use crate::model::{Description, Group, Job, JobWork};
use uuid::Uuid;
use varve_block::UnixTime;
use varve_format::text::{JOBS_MAX, REMOVED_MAX};

impl Plan {
    /// The same, but the extents of a volume from `from` on are still to be cleared when this counts: by the job that clears it already, or
    /// else by one with the number `id`.
    pub fn with_clearing(mut self, volume: Uuid, from: u64, id: u64) -> Result<Plan, PlanError> {
        let mut description = self.after.description().clone();
        match clearing(&mut description, volume) {
            Some(before) => *before = from.min(*before),
            None => {
                let lv = self.after.logical_volumes().iter().find(|lv| lv.id == volume);
                let lv = lv.expect("the plan gives this volume its extents");
                assert!(from < lv.extents, "TEXT26: {from} is an extent of {}", lv.name);
                let (subject, started) =
                    (format!("{}/{}", self.after.name(), lv.name), self.after.entry().changed);
                let work = JobWork::Clear { volume, from };
                begin(&mut description, Job { id, subject, started, groups: Vec::new(), work })?;
            }
        }
        self.after = Group::new(description).map_err(PlanError::Invalid)?;
        Ok(self)
    }
}

/// Writes down a job that holds extents.
pub(super) fn begin_holding(
    description: &mut Description,
    (id, started): (u64, UnixTime),
    subject: String,
    work: JobWork,
) -> Result<(), PlanError> {
    assert!(work.holds_extents(), "PLANJOB3");
    begin(description, Job { id, subject, started, groups: Vec::new(), work })?;
    description.check().map_err(PlanError::Invalid) // Its number: what follows is planned in a sound group (PLAN1).
}

/// Where the clearing of a volume is, if there is one.
pub(super) fn clearing(description: &mut Description, id: Uuid) -> Option<&mut u64> {
    description.jobs.iter_mut().find_map(|job| match &mut job.work {
        JobWork::Clear { volume, from } if *volume == id => Some(from),
        _ => None,
    })
}

impl JobStep {
    /// Changes what the description says of jobs; what is done, in words.
    pub(super) fn apply(self, description: &mut Description) -> Result<String, PlanError> {
        let last = description.last_job;
        let done = match self {
            Self::Begin(job) => begin(description, job)?,
            Self::RolledBack { id } => {
                let job = find(description, id)?;
                if let JobWork::Rollback { begun, .. } = &mut job.work {
                    *begun = true;
                }
                format!("write down that the rollback to {} has begun", job.subject)
            }
            Self::Scrubbed { id, position } => {
                let job = find(description, id)?;
                if let JobWork::Scrub { position: known, .. } = &mut job.work {
                    *known = Some(position);
                }
                format!("write down how far the scrub of {} is", job.subject)
            }
            Self::Renumber { from, to } => {
                find(description, from)?.id = to;
                description.last_job = last.max(to); // Another job may have begun since the number was given.
                format!("call job {from} {to} from now on")
            }
            Self::End { ids } => {
                let ends = |job: &Job| ids.contains(&job.id);
                assert!(
                    !description.jobs.iter().any(|job| ends(job) && job.work.holds_extents()),
                    "PLANJOB3"
                );
                description.jobs.retain(|job| !ends(job));
                let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
                format!("forget what has ended: job {}", ids.join(", "))
            }
        };
        assert!(description.last_job >= last, "PLANJOB1");
        Ok(done)
    }
}

fn begin(description: &mut Description, job: Job) -> Result<String, PlanError> {
    let done = format!("write down job {}: {}", job.id, job.subject);
    let jobs = &mut description.jobs;
    let removed: usize = jobs.iter().chain([&job]).map(|job| job.work.removed_count()).sum();
    let count = jobs.iter().chain([&job]).filter(|job| !job.work.holds_extents()).count();
    if count > JOBS_MAX || removed > REMOVED_MAX {
        return Err(PlanError::JobsFull { group: description.group.name.clone() }); // TEXT25
    }
    description.last_job = description.last_job.max(job.id);
    jobs.push(job);
    Ok(done)
}

fn find(description: &mut Description, id: u64) -> Result<&mut Job, PlanError> {
    let missing = PlanError::JobNotFound { group: description.group.name.clone(), id };
    description.jobs.iter_mut().find(|job| job.id == id).ok_or(missing)
}
