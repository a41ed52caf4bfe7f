//! Jobs written down in the group's text: what goes on wherever the group is used.
//!
//! Invariants:
//! - PLANJOB1. A number that a job of the group has had is given to no other one, so `last_job` never falls.
//! - PLANJOB2. Jobs are what they are now, whatever backup is written back: what they did since cannot be undone by that.

use super::{JobStep, Numbered, Plan, PlanError};
use crate::model::{Description, Group, Job, JobWork};
use varve_format::text::{JOBS_MAX, REMOVED_MAX};

impl Plan {
    /// The same; what it begins is done by job `id`. The number is higher than that of any job of the group before.
    pub fn with_job(mut self, begun: Numbered, id: u64) -> Result<Plan, PlanError> {
        let mut description = self.after.description().clone();
        assert!(id > description.last_job, "PLANJOB1");
        let job = match begun {
            Numbered::Move(from) => {
                let entry = description.moves.iter_mut().find(|entry| entry.from == from);
                &mut entry.expect("the plan begins this move").job
            }
            Numbered::Conversion(volume) => {
                let entry = description.conversions.iter_mut().find(|entry| entry.volume == volume);
                &mut entry.expect("the plan begins this conversion").job
            }
        };
        *job = Some(id);
        description.last_job = id;
        self.after = Group::new(description).map_err(PlanError::Invalid)?;
        Ok(self)
    }
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
                description.jobs.retain(|job| !ids.contains(&job.id));
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
    if jobs.len() >= JOBS_MAX || removed > REMOVED_MAX {
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
