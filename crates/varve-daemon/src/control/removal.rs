//! The jobs of snapshots: removal, and rollback of a volume to one.
//!
//! Invariant J1: both can be taken up again after a restart; what was done already is not an error then.

use super::exports::no_space_plan;
use super::find::Located;
use super::jobs::Started;
use super::snapshots::{Batch, snapshot_name};
use super::{Control, current};
use crate::failures;
use crate::jobs::Progress as JobProgress;
use crate::shard::here;
use crate::state::RememberedJob;
use futures_util::future::{Either, select};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, Job, JobState, Snapshot, SnapshotRemove, SnapshotRollback};
use varve_os::ShardContext;
use varve_target::snapshot::{Progress, StoreError};
use varve_vg::names::{SnapshotRange, VolumeName};
use varve_vg::size::format_size;

/// The kind of a job that removes snapshots.
pub(super) const REMOVE: &str = "snapshot-remove";
/// The kind of a job that rolls a volume back.
const ROLLBACK: &str = "rollback";
/// How often progress is told.
const TICK: Duration = Duration::from_millis(2);

impl Control {
    /// Removes snapshots; the answer is a job.
    pub(crate) async fn remove_snapshots(&self, request: SnapshotRemove) -> Result<Changed<Job>, Failure> {
        let turn = self.turn().await?;
        let batches = self.ranges(&request.names).await?;
        let mut steps = Vec::new();
        let mut freed = 0;
        for batch in &batches {
            self.refuse_if_busy(batch.located.volume.id)?;
            for snapshot in self.removable(batch).await? {
                steps.push(format!("would remove {}", snapshot.name));
                freed += snapshot.used;
            }
        }
        if request.dry_run {
            let mut plan = no_space_plan(String::new());
            plan.steps = steps;
            plan.steps.push(format!("would give back up to {} in the snapshot stores", format_size(freed)));
            return Ok(Changed::Planned(plan));
        }
        let names: Vec<String> =
            batches.iter().flat_map(|batch| batch.names.iter().map(|name| batch.full(name))).collect();
        let volumes: Vec<Uuid> = batches.iter().map(|batch| batch.located.volume.id).collect();
        let started = self.start_job(REMOVE, &names.join(" "), "snapshots", &volumes).await?;
        let id = started.id;
        self.spawn_removal(names, started);
        drop(turn);
        self.job_soon(id).await.map(Changed::Done)
    }

    /// Makes a volume's content that of a snapshot; the answer is a job. When it returns, requests to the volume are
    /// answered from that snapshot; the job copies what is not yet on the volume's own place.
    pub(crate) async fn rollback_snapshot(&self, request: SnapshotRollback) -> Result<Changed<Job>, Failure> {
        let turn = self.turn().await?;
        let name = snapshot_name(&request.name)?;
        let located = self.find_volume(&name)?;
        self.refuse_if_busy(located.volume.id)?;
        self.check_snapshot(&located, &name).await?;
        if request.dry_run {
            let origin = format!("{}/{}", name.group, name.volume);
            let mut plan = no_space_plan(format!(
                "would make {origin} what {name} shows; what was written since is lost"
            ));
            plan.steps.extend(self.clients_of(&name));
            return Ok(Changed::Planned(plan));
        }
        let started = self.start_job(ROLLBACK, &request.name, "bytes", &[located.volume.id]).await?;
        let (id, progress) = (started.id, Arc::clone(&started.progress));
        self.event(&request.name, "rollback begins");
        self.spawn_rollback(name.snapshot, &located, &started);
        drop(turn);
        self.until_begun(id, &progress).await;
        self.job_soon(id).await.map(Changed::Done)
    }

    /// The names and ranges of a command, by volume, each snapshot once.
    async fn ranges(&self, texts: &[String]) -> Result<Vec<Batch>, Failure> {
        if texts.is_empty() {
            return Err(Failure::new(Code::Usage, "no snapshot is named"));
        }
        let mut batches: Vec<Batch> = Vec::new();
        for text in texts {
            let range: SnapshotRange = text.parse().map_err(|error| failures::bad_name(&error))?;
            let volume =
                VolumeName { group: range.group.clone(), volume: range.volume.clone(), snapshot: None };
            let located = self.find_volume(&volume)?;
            let known: Vec<String> = self.facts(&located).await.into_iter().map(|facts| facts.name).collect();
            let names = within(&range, &known, text)?;
            match batches.iter_mut().find(|batch| batch.volume == volume) {
                Some(batch) => names.into_iter().for_each(|name| {
                    if !batch.names.contains(&name) {
                        batch.names.push(name);
                    }
                }),
                None => batches.push(Batch { located, volume, names }),
            }
        }
        Ok(batches)
    }

    /// The snapshots of a batch, if all of them may be removed.
    async fn removable(&self, batch: &Batch) -> Result<Vec<Snapshot>, Failure> {
        let all = self.shown_snapshots(&batch.volume, &batch.located).await;
        let wanted: Vec<Snapshot> = all
            .into_iter()
            .filter(|snapshot| batch.names.iter().any(|name| batch.full(name) == snapshot.name))
            .collect();
        for snapshot in &wanted {
            if snapshot.held {
                return Err(Failure::new(Code::SnapshotHeld, format!("{} is held", snapshot.name))
                    .help(format!("varve snap release {}", snapshot.name)));
            }
            self.refuse_if_exported(&snapshot_name(&snapshot.name)?, false)?;
        }
        Ok(wanted)
    }

    fn spawn_removal(&self, names: Vec<String>, started: Started) {
        self.context.spawner().spawn(async move {
            let Some(control) = current() else { return };
            let result = control.remove_all(&names, &started.progress).await;
            control.finish_job(started.id, result).await;
        });
    }

    async fn remove_all(&self, names: &[String], progress: &JobProgress) -> Result<(), Failure> {
        let total = names.len() as u64;
        for (done, text) in (0..).zip(names) {
            progress.report(done, total);
            if progress.is_cancelled() {
                return Err(Failure::new(Code::JobCancelled, format!("cancelled before {text} was removed")));
            }
            let name = snapshot_name(text)?;
            let located = self.find_volume(&name)?;
            let (volume, snapshot) = (located.volume.id, name.snapshot.clone().unwrap_or_default());
            let removed = located.home.run(async move |_: ShardContext| {
                let family = here().family(volume).ok_or(StoreError::NotFound)?;
                family.remove_snapshot(&snapshot).await
            });
            match removed.await.map_err(failures::gone)? {
                // J1: taken up again after a restart, it was removed already.
                Ok(()) | Err(StoreError::NotFound) => {}
                Err(error) => return Err(failures::store(text, &error)),
            }
            self.event(text, "snapshot removed");
        }
        progress.report(total, total);
        self.drop_empty_stores(names).await
    }

    /// Gives back the stores of volumes that have lost their last snapshot.
    async fn drop_empty_stores(&self, names: &[String]) -> Result<(), Failure> {
        let _changes = self.changes.lock().await;
        for text in names {
            let located = self.find_volume(&snapshot_name(text)?)?;
            if self.facts(&located).await.is_empty() {
                self.drop_store(&located).await?;
            }
        }
        Ok(())
    }

    /// Rolls back to `snapshot`, or finishes the rollback that is under way.
    fn spawn_rollback(&self, snapshot: Option<String>, located: &Located, started: &Started) {
        let spawner = self.context.spawner();
        let (volume, id, progress) = (located.volume.id, started.id, Arc::clone(&started.progress));
        let work = located.home.run(async move |context: ShardContext| {
            roll_back(&context, volume, snapshot.as_deref(), &progress).await
        });
        spawner.spawn(async move {
            let result = work.await.map_err(failures::gone).and_then(|done| done);
            if let Some(control) = current() {
                control.finish_job(id, result).await;
            }
        });
    }

    /// Waits until the volume shows the old state, or the job has ended.
    async fn until_begun(&self, id: u64, progress: &JobProgress) {
        let clock = self.context.clock();
        let running = || self.jobs.show(&id.to_string()).is_ok_and(|job| job.state == JobState::Running);
        while running() && !progress.has_total() {
            clock.sleep(TICK).await;
        }
    }

    /// Takes up a job that a restart interrupted.
    pub(super) fn resume_job(&self, job: &RememberedJob) {
        let names: Vec<String> = job.subject.split(' ').map(str::to_owned).collect();
        let located: Vec<Located> = names
            .iter()
            .filter_map(|text| snapshot_name(text).ok().and_then(|name| self.find_volume(&name).ok()))
            .collect();
        let unit = if job.kind == ROLLBACK { "bytes" } else { "snapshots" };
        let started =
            self.register_job(job.id, &job.kind, &job.subject, unit, &Self::ids(&located), job.started);
        if job.kind == REMOVE && located.len() == names.len() {
            self.spawn_removal(names, started);
            return;
        }
        if let ([one], true) = (&located[..], job.kind == ROLLBACK) {
            self.spawn_rollback(None, one, &started);
            return;
        }
        let result = match located.len() == names.len() {
            true => Ok(()),
            false => Err(Failure::new(Code::JobFailed, format!("{} cannot be used", job.subject))
                .help("varve lv list")),
        };
        self.context.spawner().spawn(async move {
            if let Some(control) = current() {
                control.finish_job(started.id, result).await;
            }
        });
    }

    /// Who would see a rollback happen.
    fn clients_of(&self, name: &VolumeName) -> Vec<String> {
        let origin = VolumeName { snapshot: None, ..name.clone() };
        let warning = |id: String| format!("would change what the clients of export {id} see");
        self.exports_of(&origin).into_iter().map(warning).collect()
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

/// The names of `known`, the oldest first, that lie in `range`.
fn within(range: &SnapshotRange, known: &[String], text: &str) -> Result<Vec<String>, Failure> {
    let place = |name: &str| known.iter().position(|known| known == name);
    let missing = |name: &str| {
        let (group, volume) = (&range.group, &range.volume);
        Failure::new(Code::SnapshotNotFound, format!("there is no snapshot {group}/{volume}@{name}"))
            .help(format!("varve snap list {group}/{volume}"))
    };
    let first = place(&range.first).ok_or_else(|| missing(&range.first))?;
    let last = place(&range.last).ok_or_else(|| missing(&range.last))?;
    if first > last {
        let message = format!("{text}: {} is newer than {}", range.first, range.last);
        let (group, volume) = (&range.group, &range.volume);
        return Err(Failure::new(Code::BadSnapshotRange, message)
            .help(format!("write the older one first: {group}/{volume}@{}..@{}", range.last, range.first)));
    }
    Ok(known[first..=last].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Result<Vec<String>, Code> {
        let known: Vec<String> = ["mon", "tue", "wed"].map(str::to_owned).to_vec();
        within(&text.parse().expect("a range"), &known, text).map_err(|failure| failure.code)
    }

    #[test]
    fn ranges_go_from_the_older_to_the_newer_and_include_both() {
        assert_eq!(range("a/b@mon..@tue"), Ok(vec!["mon".to_owned(), "tue".to_owned()]));
        assert_eq!(range("a/b@wed"), Ok(vec!["wed".to_owned()]));
        assert_eq!(range("a/b@wed..@mon"), Err(Code::BadSnapshotRange));
        assert_eq!(range("a/b@mon..@sun"), Err(Code::SnapshotNotFound));
    }
}
