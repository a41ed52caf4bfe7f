//! The job that makes a volume's content that of a snapshot.
//!
//! Invariants:
//! - J1. It can be taken up again after a restart; what was done already is not an error then.
//! - J2. A rollback that was begun is finished even if nothing is remembered of it: its store knows.
//! - J3. An error does not end the job of a rollback that was begun: it rests, says so, and tries again.

use super::find::Located;
use super::jobs::Started;
use super::snapshots::snapshot_name;
use super::{Control, current};
use crate::failures;
use crate::jobs::Progress as JobProgress;
use crate::shard::here;
use crate::state::RememberedJob;
use futures_util::future::{Either, select};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, Job, JobState, Plan, SnapshotRollback};
use varve_os::ShardContext;
use varve_target::snapshot::Progress;
use varve_vg::names::VolumeName;

/// The kind of a job that rolls a volume back.
const ROLLBACK: &str = "rollback";
/// How often progress is told.
const TICK: Duration = Duration::from_millis(2);
/// How long a rollback rests after an error: at first, and at most.
const REST: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// How long the command waits for a rollback that may be short.
const SHORT: Duration = Duration::from_millis(500);

impl Control {
    /// Makes a volume's content that of a snapshot; the answer is a job. When it returns, requests to the volume are
    /// answered from that snapshot; the job copies what is not yet on the volume's own place.
    pub(crate) async fn rollback_snapshot(&self, request: SnapshotRollback) -> Result<Changed<Job>, Failure> {
        let turn = self.turn().await?;
        let name = snapshot_name(&request.name)?;
        let located = self.find_volume(&name)?;
        self.refuse_if_busy(located.volume.id)?;
        self.check_snapshot(&located, &name).await?;
        self.refuse_siblings(&located, &name)?;
        if request.dry_run {
            let origin = name.origin();
            let mut steps =
                vec![format!("would make {origin} what {name} shows; what was written since is lost")];
            steps.extend(self.clients_of(&name));
            return Ok(Changed::Planned(Plan::of_steps(steps)));
        }
        let started = self.start_job(ROLLBACK, &request.name, "bytes", &[located.volume.id]).await?;
        let (id, progress) = (started.id, Arc::clone(&started.progress));
        self.event(&request.name, "rollback begins");
        self.spawn_rollback(name.snapshot, &located, &started);
        drop(turn);
        self.until_begun(id, &progress).await;
        self.job_soon(id, SHORT).await.map(Changed::Done)
    }

    /// A volume with several stores cannot be rolled back in place: no store would know what the others need.
    fn refuse_siblings(&self, located: &Located, name: &VolumeName) -> Result<(), Failure> {
        if self.refreshed(located)?.stores().count() <= 1 {
            return Ok(());
        }
        let origin = name.origin();
        let message = format!("{origin} has independent snapshots, and cannot be rolled back beside them");
        let help = format!("varve snap list {origin} shows them; remove all but {name}, or copy {name} back");
        Err(Failure::new(Code::RollbackBesideIndependent, message).help(help))
    }

    /// Rolls back to `snapshot`, or finishes the rollback that is under way.
    fn spawn_rollback(&self, snapshot: Option<String>, located: &Located, started: &Started) {
        let (home, volume, id) = (located.home.clone(), located.volume.id, started.id);
        let progress = Arc::clone(&started.progress);
        self.context.spawner().spawn(async move {
            let (mut snapshot, mut rest) = (snapshot, REST[0]);
            loop {
                let (name, progress) = (snapshot.take(), Arc::clone(&progress));
                let work = home.run(async move |context: ShardContext| {
                    roll_back(&context, volume, name.as_deref(), &progress).await
                });
                let result = work.await.map_err(failures::gone).and_then(|done| done);
                let Some(control) = current() else { return };
                match result {
                    Err(failure) if control.may_go_on(volume, &failure).await => {
                        control.rest(id, volume, failure, rest).await;
                    }
                    result => return control.finish_job(id, result).await,
                }
                rest = (2 * rest).min(REST[1]);
            }
        });
    }

    /// J3: whether a rollback that met an error was begun and can be tried again. One whose log failed cannot before
    /// the log is read anew.
    async fn may_go_on(&self, volume: Uuid, failure: &Failure) -> bool {
        if matches!(failure.code, Code::VolumeUnusable | Code::Stopping) {
            return false;
        }
        let Some(home) = self.home_of(volume) else { return false };
        let asked = home.run(async move |_: ShardContext| {
            here().family(volume).is_some_and(|family| family.is_rolling_back())
        });
        asked.await.unwrap_or(false)
    }

    /// Says what a rollback met, and lets time pass.
    async fn rest(&self, id: u64, volume: Uuid, failure: Failure, rest: Duration) {
        let known = self.jobs.show(&id.to_string()).is_ok_and(|job| job.error.as_ref() == Some(&failure));
        if !known {
            let message = format!("job {id}: the rollback rests and tries again: {failure}");
            self.warn(&self.subject(volume), &message);
        }
        self.jobs.say_trouble(id, Some(failure));
        self.context.clock().sleep(rest).await;
    }

    /// Takes up rollbacks that no job works on (J2).
    pub(super) async fn resume_rollbacks(&self) {
        for name in self.all_volumes() {
            let Ok(located) = self.find_volume(&name) else { continue };
            let volume = located.volume.id;
            if self.refuse_if_busy(volume).is_err() {
                continue;
            }
            let facts = self.facts(&located).await;
            let Some(target) = facts.into_iter().find(|facts| facts.is_merging) else { continue };
            let subject = VolumeName { snapshot: Some(target.name), ..name }.to_string();
            let Ok(started) = self.start_job(ROLLBACK, &subject, "bytes", &[volume]).await else { continue };
            self.event(&subject, "a rollback that had been begun goes on");
            self.spawn_rollback(None, &located, &started);
        }
    }

    /// Waits until the volume shows the old state, or the job has ended.
    async fn until_begun(&self, id: u64, progress: &JobProgress) {
        let clock = self.context.clock();
        let running = || self.jobs.show(&id.to_string()).is_ok_and(|job| job.state == JobState::Running);
        while running() && !progress.has_total() {
            clock.sleep(TICK).await;
        }
    }

    /// Takes up a job that a restart interrupted: the volume shows the old state already, the rest is copied now.
    pub(super) fn resume_rollback(&self, job: &RememberedJob) {
        let located = snapshot_name(&job.subject).and_then(|name| self.find_volume(&name));
        let volumes: Vec<Uuid> = located.iter().map(|located| located.volume.id).collect();
        let started = self.register_job(job.id, &job.kind, &job.subject, "bytes", &volumes, job.started);
        let Ok(located) = located else {
            return self.fail_later(started.id, &job.subject);
        };
        self.spawn_rollback(None, &located, &started);
    }

    /// Ends a job whose volume is not there.
    pub(super) fn fail_later(&self, id: u64, subject: &str) {
        let result =
            Err(Failure::new(Code::JobFailed, format!("{subject} cannot be used")).help("varve lv list"));
        self.context.spawner().spawn(async move {
            if let Some(control) = current() {
                control.finish_job(id, result).await;
            }
        });
    }

    /// Who would see a rollback happen.
    fn clients_of(&self, name: &VolumeName) -> Vec<String> {
        let warning = |id: String| format!("would change what the clients of export {id} see");
        self.exports_of(&name.origin()).into_iter().map(warning).collect()
    }
}

/// Rolls a volume back on its shard, or finishes that, and tells how far it is.
async fn roll_back(
    context: &ShardContext,
    volume: Uuid,
    snapshot: Option<&str>,
    progress: &JobProgress,
) -> Result<(), Failure> {
    let family = here()
        .family(volume)
        .ok_or_else(|| Failure::new(Code::VolumeUnusable, "the volume is not active"))?;
    let counted = Progress::default();
    let clock = context.clock();
    let mut work = Box::pin(family.roll_back(snapshot, &counted));
    loop {
        match select(work, clock.sleep(TICK)).await {
            Either::Left((result, _)) => {
                progress.report(counted.done.get(), counted.total.get());
                return result.map_err(|error| failures::store("the rollback", &error));
            }
            Either::Right(((), rest)) => {
                work = rest;
                progress.report(counted.done.get(), counted.total.get());
            }
        }
    }
}
