//! Snapshots: made at one instant, listed, removed, held, rolled back to.
//!
//! Invariants:
//! - S1. The snapshots of one command show one instant: every volume is frozen before the first is made.
//! - S2. If one of them cannot be made, none is left.

use super::change::joined;
use super::exports::no_space_plan;
use super::find::Located;
use super::jobs::Started;
use super::{Control, current};
use crate::failures;
use crate::jobs::Progress as JobProgress;
use crate::shard::family::{SnapshotFacts, new_snapshot};
use crate::shard::here;
use crate::state::RememberedJob;
use futures_channel::oneshot;
use futures_util::future::{Either, join_all, select};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Failure, Job, JobState, Snapshot, SnapshotCreate, SnapshotHold, SnapshotMode,
    SnapshotRemove, SnapshotRollback, SnapshotState,
};
use varve_block::{KIB, MIB};
use varve_os::ShardContext;
use varve_target::snapshot::{Progress, StoreError};
use varve_vg::names::{SnapshotRange, VolumeName};
use varve_vg::size::parse_size;

/// The kind of a job that removes snapshots.
pub(super) const REMOVE: &str = "snapshot-remove";
/// The kind of a job that rolls a volume back.
const ROLLBACK: &str = "rollback";
/// How often progress is told.
const TICK: Duration = Duration::from_millis(20);
/// How often a set of snapshots is tried again after a store has grown.
const ATTEMPTS_MAX: usize = 8;

/// The snapshots of a command that belong to one volume.
struct Batch {
    located: Located,
    volume: VolumeName,
    names: Vec<String>,
}

impl Batch {
    fn full(&self, name: &str) -> String {
        format!("{}@{name}", self.volume)
    }
}

impl Control {
    /// All snapshots, or those of one volume, the oldest first.
    pub(crate) async fn list_snapshots(&self, volume: Option<&str>) -> Result<Vec<Snapshot>, Failure> {
        let names = match volume {
            Some(text) => vec![super::volumes::volume_name(text)?],
            None => self.all_volumes(),
        };
        let mut snapshots = Vec::new();
        for name in names {
            let located = match self.find_any_volume(&name) {
                Ok(located) => located,
                Err(failure) if volume.is_some() => return Err(failure),
                Err(_) => continue,
            };
            snapshots.extend(self.shown_snapshots(&name, &located).await);
        }
        Ok(snapshots)
    }

    /// Keeps the present state of volumes.
    pub(crate) async fn create_snapshots(
        &self,
        request: SnapshotCreate,
    ) -> Result<Changed<Vec<Snapshot>>, Failure> {
        let _turn = self.turn().await?;
        if request.mode == Some(SnapshotMode::Independent) {
            return Err(Failure::new(Code::NotBuilt, "independent snapshots: not built yet")
                .help("leave --mode out for dependent ones"));
        }
        let chunk_size = request.chunk_size.as_deref().map(chunk_size).transpose()?;
        let batches = self.batches(&request.names)?;
        for batch in &batches {
            self.refuse_if_busy(batch.located.volume.id)?;
            self.check_new(batch, chunk_size).await?;
        }
        let chunk_size = chunk_size.unwrap_or(64 * KIB);
        if request.dry_run {
            return self.plan_snapshots(&batches, chunk_size).await.map(Changed::Planned);
        }
        for batch in batches.iter().filter(|batch| batch.located.volume.store.is_none()) {
            self.make_store(&batch.located, chunk_size).await?;
        }
        self.make_snapshots(&batches, request.read_only).await?;
        let mut made = Vec::with_capacity(request.names.len());
        for batch in &batches {
            let shown = self.shown_snapshots(&batch.volume, &batch.located).await;
            for name in &batch.names {
                self.event(&batch.full(name), "snapshot made");
            }
            made.extend(shown.into_iter().filter(|snapshot| request.names.contains(&snapshot.name)));
        }
        Ok(Changed::Done(made))
    }

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
            plan.steps.push(format!(
                "would give back up to {} in the snapshot stores",
                varve_vg::size::format_size(freed)
            ));
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
    /// answered from that snapshot, or wait until they can be.
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
        self.spawn_rollback(name.snapshot.unwrap_or_default(), &located, &started);
        drop(turn);
        self.until_begun(id, &progress).await;
        self.job_soon(id).await.map(Changed::Done)
    }

    /// Protects snapshots against removal, or ends that.
    pub(crate) async fn hold_snapshots(
        &self,
        request: SnapshotHold,
        held: bool,
    ) -> Result<Changed<Vec<Snapshot>>, Failure> {
        let _turn = self.turn().await?;
        let batches = self.batches(&request.names)?;
        for batch in &batches {
            self.refuse_if_busy(batch.located.volume.id)?;
            for name in &batch.names {
                let full = VolumeName { snapshot: Some(name.clone()), ..batch.volume.clone() };
                self.check_snapshot(&batch.located, &full).await?;
            }
        }
        if request.dry_run {
            let verb = if held { "hold" } else { "release" };
            let mut plan = no_space_plan(String::new());
            plan.steps = request.names.iter().map(|name| format!("would {verb} {name}")).collect();
            return Ok(Changed::Planned(plan));
        }
        let mut shown = Vec::new();
        for batch in &batches {
            let (volume, names) = (batch.located.volume.id, batch.names.clone());
            let done = batch.located.home.run(async move |_: ShardContext| {
                let family = here().family(volume).ok_or(StoreError::NotFound)?;
                for name in names {
                    family.hold_snapshot(&name, held).await?;
                }
                Ok(())
            });
            let done = done.await.map_err(failures::gone)?;
            done.map_err(|error| failures::store(&batch.volume.to_string(), &error))?;
            let all = self.shown_snapshots(&batch.volume, &batch.located).await;
            shown.extend(all.into_iter().filter(|snapshot| request.names.contains(&snapshot.name)));
        }
        Ok(Changed::Done(shown))
    }

    /// The names of a command, by volume.
    fn batches(&self, names: &[String]) -> Result<Vec<Batch>, Failure> {
        if names.is_empty() {
            return Err(Failure::new(Code::Usage, "no snapshot is named"));
        }
        let mut batches: Vec<Batch> = Vec::new();
        for text in names {
            let mut volume = snapshot_name(text)?;
            let snapshot = volume.snapshot.take().unwrap_or_default();
            match batches.iter_mut().find(|batch| batch.volume == volume) {
                Some(batch) if batch.names.contains(&snapshot) => {
                    return Err(Failure::new(Code::Usage, format!("{text} is named twice")));
                }
                Some(batch) => batch.names.push(snapshot),
                None => {
                    let located = self.find_volume(&volume)?;
                    batches.push(Batch { located, volume, names: vec![snapshot] });
                }
            }
        }
        Ok(batches)
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

    /// Refuses names that are taken, and a chunk size that the volume's store has not.
    async fn check_new(&self, batch: &Batch, wanted: Option<u64>) -> Result<(), Failure> {
        let facts = self.facts(&batch.located).await;
        if let Some(name) = batch.names.iter().find(|name| facts.iter().any(|known| known.name == **name)) {
            let full = batch.full(name);
            return Err(Failure::new(Code::SnapshotExists, format!("there is a snapshot {full} already"))
                .help(format!("choose another name, or varve snap remove {full}")));
        }
        let present = batch.located.volume.store.as_ref().map(|store| store.chunk_size);
        match (wanted, present) {
            (Some(wanted), Some(present)) if wanted != present => {
                let message = format!("the snapshots of {} have chunks of {present} bytes", batch.volume);
                Err(Failure::new(Code::BadChunkSize, message).help("leave --chunk-size out"))
            }
            _ => Ok(()),
        }
    }

    async fn plan_snapshots(&self, batches: &[Batch], chunk_size: u64) -> Result<varve_api::Plan, Failure> {
        let mut plan = no_space_plan(String::new());
        plan.steps.clear();
        for batch in batches {
            if batch.located.volume.store.is_none() {
                plan = joined(plan, self.shown_store(&batch.located, chunk_size).await?);
            }
            plan.steps.extend(
                batch.names.iter().map(|name| format!("would make the snapshot {}", batch.full(name))),
            );
        }
        Ok(plan)
    }

    /// S1, S2; stores that are too small grow, and it is tried again.
    async fn make_snapshots(&self, batches: &[Batch], read_only: bool) -> Result<(), Failure> {
        for _ in 0..ATTEMPTS_MAX {
            let outcomes = self.make_at_once(batches, read_only).await?;
            if outcomes.iter().all(Result::is_ok) {
                return Ok(());
            }
            for (batch, _) in batches.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()) {
                self.take_back(batch).await;
            }
            for (batch, outcome) in batches.iter().zip(outcomes) {
                match outcome {
                    Ok(()) => {}
                    Err((StoreError::NoSpace, seen)) => self.grow(batch, seen).await?,
                    Err((error, _)) => return Err(failures::store(&batch.volume.to_string(), &error)),
                }
            }
        }
        Err(Failure::new(Code::SnapshotsFull, "the snapshot stores fill faster than they grow")
            .help("varve vg extend VG PATH…"))
    }

    /// Freezes all volumes, then makes their snapshots. A batch fails as a whole; the size of its store comes with
    /// the error.
    async fn make_at_once(
        &self,
        batches: &[Batch],
        read_only: bool,
    ) -> Result<Vec<Result<(), (StoreError, u64)>>, Failure> {
        let (mut frozen, mut going, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        for batch in batches {
            let (ready, is_ready) = oneshot::channel();
            let (go, may_go) = oneshot::channel();
            let (volume, names) = (batch.located.volume.id, batch.names.clone());
            outcomes.push(batch.located.home.run(async move |_: ShardContext| {
                make_of_one(volume, &names, read_only, ready, may_go).await
            }));
            frozen.push(is_ready);
            going.push(go);
        }
        let all_frozen = join_all(frozen).await.into_iter().all(|ready| ready == Ok(true));
        for go in going {
            let _ = go.send(all_frozen);
        }
        let outcomes = join_all(outcomes).await;
        outcomes.into_iter().map(|outcome| outcome.map_err(failures::gone)).collect()
    }

    /// Removes what was made of a set that cannot be made as a whole.
    async fn take_back(&self, batch: &Batch) {
        let (volume, names) = (batch.located.volume.id, batch.names.clone());
        let removed = batch.located.home.run(async move |_: ShardContext| {
            let Some(family) = here().family(volume) else { return };
            for name in names {
                let _ = family.remove_snapshot(&name).await;
            }
        });
        let _ = removed.await;
    }

    async fn grow(&self, batch: &Batch, seen: u64) -> Result<(), Failure> {
        let volume = batch.located.volume.id;
        let grown = batch.located.home.run(async move |_: ShardContext| match here().family(volume) {
            Some(family) => family.grow_beyond(seen).await,
            None => false,
        });
        if grown.await.map_err(failures::gone)? {
            return Ok(());
        }
        let message = format!("the snapshot store of {} is full and cannot grow", batch.volume);
        Err(Failure::new(Code::SnapshotsFull, message)
            .help(format!("varve vg extend {} PATH…", batch.volume.group)))
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
                // Taken up again after a restart: it was removed already.
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

    fn spawn_rollback(&self, snapshot: String, located: &Located, started: &Started) {
        let spawner = self.context.spawner();
        let (volume, id, progress) = (located.volume.id, started.id, Arc::clone(&started.progress));
        let work = located
            .home
            .run(async move |context: ShardContext| roll_back(&context, volume, &snapshot, &progress).await);
        spawner.spawn(async move {
            let result = work.await.map_err(failures::gone).and_then(|done| done);
            if let Some(control) = current() {
                control.finish_job(id, result).await;
            }
        });
    }

    /// Waits until a rollback has closed the volume to requests, or has ended.
    async fn until_begun(&self, id: u64, progress: &JobProgress) {
        let clock = self.context.clock();
        let running = || self.jobs.show(&id.to_string()).is_ok_and(|job| job.state == JobState::Running);
        while running() && !progress.has_total() {
            clock.sleep(TICK / 10).await;
        }
    }

    /// Takes up a job that a restart interrupted. A rollback was finished when its volume was activated.
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

    /// What the volume's store says of its snapshots, the oldest first.
    async fn facts(&self, located: &Located) -> Vec<SnapshotFacts> {
        let volume = located.volume.id;
        let facts = located.home.run(async move |_: ShardContext| {
            here().family(volume).map(|family| family.snapshots()).unwrap_or_default()
        });
        facts.await.unwrap_or_default()
    }

    async fn shown_snapshots(&self, volume: &VolumeName, located: &Located) -> Vec<Snapshot> {
        let job = self.busy.borrow().get(&located.volume.id).copied();
        let job = job.and_then(|job| self.jobs.show(&job.to_string()).ok());
        let facts = self.facts(located).await;
        facts.into_iter().map(|facts| self.shown_snapshot(volume, facts, job.as_ref())).collect()
    }

    fn shown_snapshot(&self, volume: &VolumeName, facts: SnapshotFacts, job: Option<&Job>) -> Snapshot {
        let name = VolumeName { snapshot: Some(facts.name), ..volume.clone() };
        let text = name.to_string();
        let concerned = job.filter(|job| job.subject.split(' ').any(|subject| subject == text));
        let state = match concerned {
            Some(job) if job.kind == REMOVE => SnapshotState::Removing,
            Some(_) => SnapshotState::Merging,
            None => SnapshotState::Active,
        };
        Snapshot {
            volume: volume.to_string(),
            size: facts.size,
            used: facts.used,
            created: facts.created,
            mode: SnapshotMode::Dependent,
            read_only: facts.read_only,
            held: facts.held,
            state,
            exports: self.exports_of(&name),
            name: text,
        }
    }

    /// Who would see a rollback happen.
    fn clients_of(&self, name: &VolumeName) -> Vec<String> {
        let origin = VolumeName { snapshot: None, ..name.clone() };
        let warning = |id: String| format!("would change what the clients of export {id} see");
        self.exports_of(&origin).into_iter().map(warning).collect()
    }

    fn all_volumes(&self) -> Vec<VolumeName> {
        let groups = self.groups.borrow();
        let mut names: Vec<VolumeName> = groups
            .values()
            .flat_map(|known| {
                let group = known.group.name();
                known.group.logical_volumes().iter().map(move |volume| VolumeName {
                    group: group.to_owned(),
                    volume: volume.name.clone(),
                    snapshot: None,
                })
            })
            .collect();
        names.sort();
        names
    }
}

/// Freezes one volume, says so, and makes its snapshots when all volumes are frozen.
async fn make_of_one(
    volume: Uuid,
    names: &[String],
    read_only: bool,
    ready: oneshot::Sender<bool>,
    may_go: oneshot::Receiver<bool>,
) -> Result<(), (StoreError, u64)> {
    let store = here().family(volume).and_then(|family| family.store()).ok_or((StoreError::NotFound, 0))?;
    let seen = store.usage().size;
    let failed = |error| (error, seen);
    let frozen = store.freeze().await.map_err(failed)?;
    let _ = ready.send(true);
    if may_go.await != Ok(true) {
        return Err((StoreError::Busy, seen));
    }
    let mut pending = Vec::with_capacity(names.len());
    let mut refused = None;
    for name in names {
        match frozen.create(&new_snapshot(name, read_only)) {
            Ok(created) => pending.push(created),
            Err(error) => refused = Some(error),
        }
    }
    drop(frozen);
    let committed = join_all(pending.into_iter().map(varve_target::snapshot::Pending::commit)).await;
    let numbers: Vec<u64> = committed.iter().filter_map(|outcome| outcome.ok()).collect();
    let error = refused.or_else(|| committed.iter().find_map(|outcome| outcome.err()));
    let Some(error) = error else { return Ok(()) };
    for number in numbers {
        let _ = store.remove(number).await; // S2
    }
    Err(failed(error))
}

/// Rolls a volume back on its shard, and tells how far it is.
async fn roll_back(
    context: &ShardContext,
    volume: Uuid,
    snapshot: &str,
    progress: &JobProgress,
) -> Result<(), Failure> {
    let family = here()
        .family(volume)
        .ok_or_else(|| Failure::new(Code::VolumeUnusable, "the volume is not active"))?;
    let counted = Progress::default();
    let clock = context.clock();
    let mut work = Box::pin(family.roll_back(snapshot, &counted));
    loop {
        match select(work, clock.sleep(TICK / 10)).await {
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

/// `VG/LV@SNAP`.
fn snapshot_name(text: &str) -> Result<VolumeName, Failure> {
    let name: VolumeName = text.parse().map_err(|error| failures::bad_name(&error))?;
    match name.snapshot {
        Some(_) => Ok(name),
        None => Err(Failure::new(
            Code::BadName,
            format!("{text:?} is not the name of a snapshot: write VG/LV@SNAP"),
        )
        .help("varve snap list")),
    }
}

fn chunk_size(text: &str) -> Result<u64, Failure> {
    let size = parse_size(text).map_err(|error| failures::bad_size(&error))?;
    if size.is_power_of_two() && (4 * KIB..=MIB).contains(&size) {
        return Ok(size);
    }
    Err(Failure::new(Code::BadChunkSize, format!("{text} is no chunk size: a power of two from 4K to 1M"))
        .help("leave --chunk-size out for 64K"))
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
