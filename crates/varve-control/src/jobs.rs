//! Jobs of the control: started, remembered while they run, taken up again after a restart.
//!
//! Invariant JOBS1: a volume is rolled back by at most one job. Meanwhile snapshots of it are made, held and removed as
//! ever, except the one that it is rolled back to; other changes to it are refused. Removals keep nobody from anything.

use super::Control;
use crate::injected_bug::{InjectedBug, has};
use crate::job_list::NewJob;
use crate::remembered::{RememberedJob, RememberedRollback, RememberedTarget};
use futures_util::future::{Either, select};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure, Job};
use varve_volume::progress::Progress;

/// The kinds of jobs.
pub(super) const CHECK: &str = "pool-check";
pub(super) const CLEAR: &str = "clear";
pub(super) const CONVERT: &str = "convert";
pub(super) const FLATTEN: &str = "flatten";
pub(super) const IMAGE_COMMIT: &str = "image-commit";
pub(super) const IMAGE_FLATTEN: &str = "image-flatten";
pub(super) const MOVE: &str = "move";
pub(super) const REMOVE: &str = "snapshot-remove";
pub(super) const SCRUB: &str = "array-scrub";
pub(super) const ROLLBACK: &str = "rollback";

/// How long a command waits for its job, which may be short.
pub(super) const SHORT: Duration = Duration::from_millis(500);

/// What is remembered of jobs of some kinds.
#[derive(Clone, Default)]
pub(super) struct Details {
    /// What a rollback is to do.
    pub(super) rollback: Option<RememberedRollback>,
    /// The image that is worked on.
    pub(super) image: Option<String>,
}

/// A job that was started, for its worker.
pub(super) struct Started {
    pub(super) id: u64,
    pub(super) progress: Arc<Progress>,
}

impl Control {
    /// Starts a job on `volumes`, counted in bytes, remembered before this returns with the snapshots that it concerns and with
    /// `details`.
    pub(super) async fn start_job(
        &self,
        kind: &str,
        subject: &str,
        volumes: &[Uuid],
        targets: Vec<RememberedTarget>,
        details: Details,
    ) -> Started {
        let id = self.next_job();
        let started = self.register_job(id, kind, subject, "bytes", volumes, self.now());
        self.remember_job(id, kind, subject, targets, details);
        self.save_or_warn().await;
        started
    }

    /// Remembers that `targets` are being removed; the number of the job. It is not durable yet.
    pub(super) fn remember_removal(&self, subject: &str, targets: Vec<RememberedTarget>) -> u64 {
        let id = self.next_job();
        self.remember_job(id, REMOVE, subject, targets, Details::default());
        id
    }

    /// There is no such job after all.
    pub(super) fn forget_job(&self, id: u64) {
        self.remembered.borrow_mut().jobs.retain(|job| job.id != id);
        drop(self.save_soon());
    }

    pub(super) fn next_job(&self) -> u64 {
        let mut remembered = self.remembered.borrow_mut();
        remembered.last_job += 1;
        remembered.last_job
    }

    fn remember_job(
        &self,
        id: u64,
        kind: &str,
        subject: &str,
        targets: Vec<RememberedTarget>,
        details: Details,
    ) {
        if has(InjectedBug::ForgetJob) {
            return;
        }
        let (kind, subject, started) = (kind.to_owned(), subject.to_owned(), self.now());
        let Details { rollback, image } = details;
        let job = RememberedJob { id, kind, subject, started, targets, rollback, image };
        self.remembered.borrow_mut().jobs.push(job);
    }

    /// Remembers what a rollback is to do, and whether it has begun.
    pub(super) async fn remember_rollback(&self, id: u64, rollback: RememberedRollback) {
        if let Some(job) = self.remembered.borrow_mut().jobs.iter_mut().find(|job| job.id == id) {
            job.rollback = Some(rollback);
        }
        self.save_or_warn().await;
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
        let may_end = [REMOVE, FLATTEN, IMAGE_COMMIT, IMAGE_FLATTEN, CHECK, CLEAR, CONVERT, MOVE, SCRUB];
        let cancellable = may_end.contains(&kind);
        let new = NewJob { kind, subject, unit, started, cancellable };
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

    /// Ends a job for now: it is still remembered, for somebody to take it up again.
    pub(super) fn suspend_job(&self, id: u64, failure: Failure) {
        self.busy.borrow_mut().retain(|_, job| *job != id);
        tracing::warn!(job = id, %failure, "a job is put off");
        self.jobs.finish(id, Err(failure), self.now());
    }

    /// JOBS1.
    pub(super) fn refuse_if_busy(&self, volume: Uuid) -> Result<(), Failure> {
        match self.busy.borrow().get(&volume) {
            None => Ok(()),
            Some(job) => Err(Failure::new(Code::VolumeBusy, format!("job {job} is changing the volume"))
                .help(format!("varve job wait {job}"))),
        }
    }

    /// How a job stands, after a wait for its end of at most `patience`.
    pub(super) async fn job_soon(&self, id: u64, patience: Duration) -> Result<Job, Failure> {
        let id = id.to_string();
        let ended = self.jobs.ended(&id)?;
        let clock = self.context.clock();
        match select(ended, clock.sleep(patience)).await {
            Either::Left(_) | Either::Right(_) => self.jobs.show(&id),
        }
    }

    /// Takes up the jobs that a restart interrupted.
    pub(super) fn resume_jobs(&self) {
        let interrupted = self.remembered.borrow().jobs.clone();
        for job in interrupted {
            match job.kind.as_str() {
                REMOVE => self.resume_removal(job),
                FLATTEN => self.resume_flattening(&job),
                IMAGE_COMMIT | IMAGE_FLATTEN => self.resume_image_job(&job),
                _ => self.resume_rollback(&job),
            }
        }
    }
}
