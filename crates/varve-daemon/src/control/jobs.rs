//! Jobs of the control: started, remembered while they run, taken up again after a restart.
//!
//! Invariant B1: a volume has at most one job; other changes to it are refused meanwhile.

use super::Control;
use super::find::Located;
use crate::jobs::{NewJob, Progress};
use crate::state::RememberedJob;
use futures_util::future::{Either, select};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure, Job};

/// How long a command waits for a job that may be short.
const SHORT: Duration = Duration::from_millis(500);

/// A job that was started, for its worker.
pub(super) struct Started {
    pub(super) id: u64,
    pub(super) progress: Arc<Progress>,
}

impl Control {
    /// Starts a job on `volumes`, remembered before this returns.
    pub(super) async fn start_job(
        &self,
        kind: &str,
        subject: &str,
        unit: &str,
        volumes: &[Uuid],
    ) -> Result<Started, Failure> {
        let id = {
            let mut remembered = self.remembered.borrow_mut();
            remembered.last_job += 1;
            remembered.last_job
        };
        let started = self.register_job(id, kind, subject, unit, volumes, self.now());
        let job =
            RememberedJob { id, kind: kind.to_owned(), subject: subject.to_owned(), started: self.now() };
        self.remembered.borrow_mut().jobs.push(job);
        self.save_or_warn().await;
        Ok(started)
    }

    /// Shows a job that runs under the number `id`.
    pub(super) fn register_job(
        &self,
        id: u64,
        kind: &str,
        subject: &str,
        unit: &str,
        volumes: &[Uuid],
        started: u64,
    ) -> Started {
        let new = NewJob { kind, subject, unit, started, cancellable: kind == super::removal::REMOVE };
        let progress = self.jobs.start(id, &new);
        self.busy.borrow_mut().extend(volumes.iter().map(|volume| (*volume, id)));
        Started { id, progress }
    }

    /// Ends a job.
    pub(super) async fn finish_job(&self, id: u64, result: Result<(), Failure>) {
        self.busy.borrow_mut().retain(|_, job| *job != id);
        if let Err(failure) = &result {
            tracing::error!(job = id, %failure, "a job failed");
        }
        self.jobs.finish(id, result, self.now());
        self.remembered.borrow_mut().jobs.retain(|job| job.id != id);
        self.save_or_warn().await;
    }

    /// B1.
    pub(super) fn refuse_if_busy(&self, volume: Uuid) -> Result<(), Failure> {
        match self.busy.borrow().get(&volume) {
            None => Ok(()),
            Some(job) => Err(Failure::new(Code::VolumeBusy, format!("job {job} is changing the volume"))
                .help(format!("varve job wait {job}"))),
        }
    }

    /// How a job stands, after a short wait for its end.
    pub(super) async fn job_soon(&self, id: u64) -> Result<Job, Failure> {
        let id = id.to_string();
        let ended = self.jobs.ended(&id)?;
        let clock = self.context.clock();
        match select(ended, clock.sleep(SHORT)).await {
            Either::Left(_) | Either::Right(_) => self.jobs.show(&id),
        }
    }

    /// Takes up the jobs that a restart interrupted.
    pub(super) fn resume_jobs(&self) {
        let interrupted = self.remembered.borrow().jobs.clone();
        for job in interrupted {
            self.resume_job(&job);
        }
    }

    /// The volumes of located ones.
    pub(super) fn ids(located: &[Located]) -> Vec<Uuid> {
        located.iter().map(|located| located.volume.id).collect()
    }
}
