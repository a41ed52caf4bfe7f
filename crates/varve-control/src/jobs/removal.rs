//! The jobs that remove snapshots: invisible at once, their space given back bit by bit.
//!
//! Invariants:
//! - REMOVAL1. A removal is taken up again after a restart: what stands of it in the text are numbers that no other snapshot ever
//!   has, and what was begun already is not begun again.
//! - REMOVAL2. A removal that was begun is finished even if it stands in no text: its store knows.
//! - REMOVAL3. A job ends well only when all of its snapshots have gone, or their whole volume: never because a volume could
//!   not be asked, or because what they leave behind cannot be given back. One whose volume cannot be used, or whose
//!   disk fails, waits for that.
//! - REMOVAL4. Once the job of several snapshots stands in the text, only that job ends their removal: a command whose disk fails between two
//!   of them leaves the rest to it.

use super::records::RecordedJob;
use super::registry::{REMOVE, Started, subject_of};
use super::runner::{Stop, Work};
use crate::Control;
use crate::commands::snapshots::{Batch, snapshot_name};
use crate::failures;
use crate::find::LocatedVolume;
use crate::group::known_group::KnownGroup;
use crate::group::locks::Held;
use futures_channel::oneshot;
use futures_util::future::select;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, Job, Plan, SnapshotRemove};
use varve_target::snapshot::StoreError;
use varve_vg::model::{JobWork, RemovedSnapshots};
use varve_vg::names::{SnapshotRange, VolumeName};
use varve_vg::size::format_size;
use varve_volume::content::snapshot_facts::{SnapshotFacts, Target};
use varve_volume::copies::progress::Progress as JobProgress;
use varve_volume::{NoAnswer, ShardHandle};

/// The most bytes that the text of a group can tell of.
const BYTES_MAX: u64 = i64::MAX.unsigned_abs();
/// How long a command goes on beginning removals before it leaves the rest to its job.
const BEGIN_MAX: Duration = Duration::from_millis(4);
/// How long it then waits for the job of one snapshot to stand in the text: its store knows what is to go (REMOVAL2).
const RECORD_MAX: Duration = Duration::from_secs(2);
/// How long it then waits for a job that is short.
const SHORT: Duration = Duration::from_millis(2);

/// Snapshots of one volume that are to go.
struct Going {
    group: Uuid,
    home: ShardHandle,
    volume: Uuid,
    targets: Vec<(Target, u64)>,
}

/// The work of a job: what is to go; what was left out is said in the end.
struct Removal {
    going: Vec<Going>,
    left: Option<Failure>,
}

impl Work for Removal {
    async fn run(&mut self, control: &Control, job: &Started) -> Result<(), Stop> {
        let removed = control.remove_all(&self.going, &job.progress).await;
        removed.and(self.left.clone().map_or(Ok(()), Err)).map_err(|failure| match failure.code {
            Code::VolumeUnusable | Code::MediumFailed => Stop::PutOff(failure), // REMOVAL3
            _ => Stop::End(failure),
        })
    }
}

impl Control {
    /// Removes snapshots; the answer is a job.
    pub async fn remove_snapshots(&self, request: SnapshotRemove) -> Result<Changed<Job>, Failure> {
        let lock = self.lock_all_of(request.names.iter().map(String::as_str)).await?;
        self.remove_locked(request, lock).await
    }

    /// The same for a caller that has the locks, which are released when the job has begun.
    pub(crate) async fn remove_locked(
        &self,
        request: SnapshotRemove,
        lock: Held,
    ) -> Result<Changed<Job>, Failure> {
        let batches = self.ranges(&request.names).await?;
        let mut removable = Vec::with_capacity(batches.len());
        for batch in &batches {
            removable.push(self.removable(batch).await?);
        }
        if request.dry_run {
            return self.plan_removals(&batches, &removable).await.map(Changed::Planned);
        }
        for (batch, snapshots) in batches.iter().zip(&removable) {
            if snapshots.iter().any(|facts| facts.is_base) {
                self.reconcile_all_origins(batch.located.group).await; // What was backed by it has just gone (BELOW2).
            }
        }
        let going = batches.iter().zip(&removable).map(|(batch, snapshots)| Going {
            group: batch.located.group,
            home: batch.located.home.clone(),
            volume: batch.located.volume.id,
            targets: snapshots.iter().map(|facts| (facts.target, facts.size)).collect(),
        });
        let going: Vec<Going> = going.collect();
        let names: Vec<String> =
            batches.iter().flat_map(|batch| batch.names.iter().map(|name| batch.full(name))).collect();
        let subject = subject_of(&names);
        let id = self.begin_removal(&going, &names, &subject).await?;
        let started = self.register_job(id, REMOVE, &subject, "bytes", None, self.now());
        self.spawn_work(started, Removal { going, left: None });
        drop(lock);
        self.job_soon(id, SHORT).await.map(Changed::Done)
    }

    /// Writes down that snapshots are to go, and begins to remove them; the number of the job.
    async fn begin_removal(&self, going: &[Going], names: &[String], subject: &str) -> Result<u64, Failure> {
        let groups: Vec<Uuid> = going.iter().map(|going| going.group).collect();
        let id = self.next_job_of(&groups);
        let mut recorded = Some(self.record_removal(id, subject, works(going)));
        // REMOVAL3, JOBRECORD1 of `records.rs`: the first is not gone before it is durable that the others are to go.
        if names.len() > 1
            && let Some(recorded) = recorded.take()
        {
            recorded.await.unwrap_or_else(|_| Err(failures::gone(NoAnswer::Gone)))?;
        }
        let begun = match self.begin(going, Some(BEGIN_MAX), &JobProgress::default()).await {
            Ok(begun) => begun,
            Err(failure) if names.len() > 1 => {
                tracing::warn!(job = id, %failure, "a removal is left to its job"); // REMOVAL4
                0
            }
            Err(failure) => {
                self.erase_job(id).await;
                return Err(failure);
            }
        };
        for name in &names[..begun] {
            self.event(name, "snapshot removed");
        }
        if let Some(recorded) = recorded {
            drop(select(recorded, self.context.clock().sleep(RECORD_MAX)).await);
        }
        Ok(id)
    }

    /// Writes down a removal while others go on; completes when it stands in the texts.
    fn record_removal(
        &self,
        id: u64,
        subject: &str,
        works: Vec<(Uuid, JobWork)>,
    ) -> oneshot::Receiver<Result<(), Failure>> {
        let (sender, recorded) = oneshot::channel();
        let (me, subject) = (self.weak(), subject.to_owned());
        self.context.spawner().spawn(async move {
            let Some(control) = me.upgrade() else { return };
            let done = control.record_job(id, &subject, works, None).await;
            if let Err(failure) = &done {
                tracing::warn!(job = id, %failure, "a removal does not stand in the text of its group");
            }
            let _ = sender.send(done);
        });
        recorded
    }

    async fn plan_removals(
        &self,
        batches: &[Batch],
        removable: &[Vec<SnapshotFacts>],
    ) -> Result<Plan, Failure> {
        let mut plan = Plan::of_steps(Vec::new());
        for (batch, snapshots) in batches.iter().zip(removable) {
            let (volume, home) = (batch.located.volume.id, &batch.located.home);
            let targets: Vec<Target> = snapshots.iter().map(|facts| facts.target).collect();
            let frees = home.volume(volume).removals_free(targets).await.map_err(failures::gone)?;
            let frees = frees.unwrap_or(Err(StoreError::NotFound));
            let frees = frees.map_err(|error| failures::store(&batch.volume.to_string(), &error))?;
            plan.steps
                .extend(snapshots.iter().map(|facts| format!("would remove {}", batch.full(&facts.name))));
            let place = if batch.located.thin.is_some() { "pool" } else { "snapshot store" };
            let size = format_size(frees);
            plan.steps.push(format!("would free {size} in the {place} of {}", batch.volume));
            plan.bytes_freed += frees;
            for store in self.emptied(&batch.located, snapshots).await? {
                plan.steps.push(format!(
                    "would give a snapshot store of {} of {} back to the group",
                    format_size(store),
                    batch.volume
                ));
            }
        }
        Ok(plan)
    }

    /// Sizes of the volume's stores that hold none but `snapshots`.
    async fn emptied(
        &self,
        located: &LocatedVolume,
        snapshots: &[SnapshotFacts],
    ) -> Result<Vec<u64>, Failure> {
        let all = self.facts(located).await;
        let gone: BTreeSet<Target> = snapshots.iter().map(|facts| facts.target).collect();
        let staying: BTreeSet<Uuid> = all
            .iter()
            .map(|facts| facts.target)
            .filter(|target| !gone.contains(target))
            .map(|it| it.store)
            .collect();
        let volume = self.refreshed(located)?;
        let emptied = volume.stores().filter(|store| !staying.contains(&store.id));
        Ok(emptied.map(|store| store.extents * located.extent_size).collect())
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
            let located = self.find_volume_for_snapshots(&volume)?;
            let known = match range.first == range.last {
                true => self.facts_called(&located, std::slice::from_ref(&range.first)).await,
                false => self.facts(&located).await,
            };
            let known: Vec<String> = known.into_iter().map(|facts| facts.name).collect();
            let names = within(&range, &known, text)?;
            match batches.iter_mut().find(|batch| batch.volume == volume) {
                Some(batch) => names.into_iter().for_each(|name| {
                    if !batch.names.contains(&name) {
                        batch.names.push(name);
                    }
                }),
                None => batches.push(Batch { located, volume, names, stores: Vec::new(), of: None }),
            }
        }
        Ok(batches)
    }

    /// The snapshots of a batch, if all of them may be removed.
    async fn removable(&self, batch: &Batch) -> Result<Vec<SnapshotFacts>, Failure> {
        let wanted = self.facts_called(&batch.located, &batch.names).await;
        for facts in &wanted {
            self.refuse_removal(batch, facts).await?;
        }
        Ok(wanted)
    }

    /// Refuses to remove a snapshot that is held, exported, an origin, or what the volume is rolled back to.
    pub(crate) async fn refuse_removal(&self, batch: &Batch, facts: &SnapshotFacts) -> Result<(), Failure> {
        let full = batch.full(&facts.name);
        self.refuse_if_needed_snapshot(batch.located.group, facts, &full).await?;
        self.refuse_if_exported(batch.located.volume.id, &snapshot_name(&full)?, false)
    }

    /// The same, but for exports.
    pub(crate) async fn refuse_if_needed_snapshot(
        &self,
        group: Uuid,
        facts: &SnapshotFacts,
        full: &str,
    ) -> Result<(), Failure> {
        if facts.held || facts.is_base {
            self.refuse_origin(group, facts.backing(), full).await?; // BELOW2 of `origins.rs`
        }
        if facts.held {
            return Err(Failure::new(Code::SnapshotHeld, format!("{full} is held"))
                .help(format!("varve snap release {full}")));
        }
        if facts.is_merging {
            let message = format!("the volume is being rolled back to {full}");
            return Err(Failure::new(Code::SnapshotMergesNow, message).help("varve job list"));
        }
        Ok(())
    }

    /// Begins removals in their order until `timeout` is over; how many were begun.
    async fn begin(
        &self,
        going: &[Going],
        timeout: Option<Duration>,
        progress: &JobProgress,
    ) -> Result<usize, Failure> {
        let clock = self.context.clock();
        let begun_at = clock.now();
        let mut begun = 0;
        for Going { home, volume, targets, .. } in going {
            for (target, _) in targets.iter().copied() {
                if timeout.is_some_and(|timeout| begun > 0 && clock.now().since(begun_at) > timeout) {
                    return Ok(begun);
                }
                if progress.is_cancelled() {
                    return Err(Failure::new(Code::JobCancelled, "cancelled before all removals had begun"));
                }
                let volume = *volume;
                let removed = home.volume(volume).remove_snapshot(target);
                match removed.await.map_err(failures::gone)? {
                    // REMOVAL1: it was begun already, or has gone in another way.
                    Some(Ok(()) | Err(StoreError::NotFound)) => begun += 1,
                    Some(Err(error)) => return Err(failures::store(&self.subject(volume), &error)),
                    None if self.is_gone(volume, target.store) => begun += 1, // REMOVAL3: with its volume
                    None => return Err(self.not_asked(volume, target.store)),
                }
            }
        }
        Ok(begun)
    }

    /// REMOVAL3: whether a volume was removed with its snapshots. Of a thin one only a pool that is served can tell.
    pub(crate) fn is_gone(&self, volume: Uuid, store: Uuid) -> bool {
        let groups = self.groups.known.borrow();
        let is_silent = groups.values().any(|known| {
            let mut own = known.group.logical_volumes().iter();
            own.any(|entry| entry.id == store && entry.is_pool()) && !known.thin.knows(store)
        });
        !is_silent && self.name_of(volume).is_none()
    }

    /// REMOVAL3: why the snapshots of a volume cannot be removed now.
    fn not_asked(&self, volume: Uuid, store: Uuid) -> Failure {
        let subject = self.subject(volume);
        let failure = self.unusable(volume).or_else(|| self.unusable(store));
        let why = failure.map(|failure| format!(": {}", failure.message)).unwrap_or_default();
        let message = format!("{subject} is not in use, and its snapshots cannot be removed{why}");
        Failure::new(Code::VolumeUnusable, message)
            .help("varve lv list; when the volume is in use, varve snap list shows what is left")
    }

    async fn remove_all(&self, going: &[Going], progress: &Arc<JobProgress>) -> Result<(), Failure> {
        let size = |going: &Going| going.targets.iter().map(|(_, size)| size).sum::<u64>();
        let total = going.iter().map(size).sum();
        progress.report(0, total);
        self.begin(going, None, progress).await?;
        progress.make_final();
        let mut before = 0;
        for part in going {
            let (volume, targets, progress) = (part.volume, part.targets.clone(), Arc::clone(progress));
            let followed = part.home.volume(volume).follow_removals(targets, before, progress);
            match (followed.await.map_err(failures::gone)?, part.targets.first()) {
                (Some(followed), _) => {
                    followed.map_err(|error| failures::store(&self.subject(part.volume), &error))?;
                }
                (None, Some((target, _))) if !self.is_gone(volume, target.store) => {
                    return Err(self.not_asked(volume, target.store)); // REMOVAL3
                }
                (None, _) => {}
            }
            before += size(part);
        }
        for part in going {
            self.drop_empty_stores(part.volume).await?;
        }
        self.reconcile_origins_of_removed(going).await;
        progress.report(total, total);
        Ok(())
    }

    /// Snapshots in pools have gone: their origins may be released now.
    async fn reconcile_origins_of_removed(&self, going: &[Going]) {
        let stores: BTreeSet<Uuid> =
            going.iter().flat_map(|part| &part.targets).map(|(target, _)| target.store).collect();
        let groups: Vec<Uuid> = {
            let groups = self.groups.known.borrow();
            let has_one = |known: &KnownGroup| stores.iter().any(|store| known.thin.knows(*store));
            groups.iter().filter(|(_, known)| has_one(known)).map(|(id, _)| *id).collect()
        };
        for group in groups {
            let _lock = self.lock_group(group).await;
            self.reconcile_origins(group).await;
        }
    }

    /// Takes up a removal that stands in texts (REMOVAL1).
    pub(crate) fn resume_removal(&self, job: &RecordedJob, started: Started) {
        let (mut going, mut left): (Vec<Going>, Option<Failure>) = (Vec::new(), None);
        let is_away = |group: &&Uuid| !self.can_be_changed(**group);
        if let Some(group) = job.groups.iter().find(is_away) {
            let is_here = self.with_group(*group, |_| ()).is_ok();
            let state = if is_here { "cannot be changed" } else { "is not here" };
            let failure = Failure::new(Code::VolumeUnusable, format!("the group {group} {state}"));
            left = Some(failure.help("varve pv scan PATH…"));
        }
        for (group, part) in &job.parts {
            for RemovedSnapshots { volume, store, numbers, bytes } in part.work.removed() {
                let each = bytes / numbers.len() as u64;
                let targets = numbers.iter().map(|number| (Target { store: *store, number: *number }, each));
                match (going.iter_mut().find(|going| going.volume == *volume), self.home_of(*volume)) {
                    (Some(going), _) => going.targets.extend(targets),
                    (None, Some(home)) => {
                        let (group, volume) = (*group, *volume);
                        going.push(Going { group, home, volume, targets: targets.collect() });
                    }
                    (None, None) if self.is_gone(*volume, *store) => {} // REMOVAL3: with its volume
                    (None, None) => left = left.or_else(|| Some(self.not_asked(*volume, *store))), // REMOVAL3
                }
            }
        }
        self.spawn_work(started, Removal { going, left });
    }

    /// Takes up removals in these volumes that stand in no text (REMOVAL2), and gives back stores that a crash left empty.
    pub(crate) async fn resume_removals(&self, begun: &[(VolumeName, LocatedVolume)]) {
        let known = self.recorded_removals();
        for (name, located) in begun {
            let (group, volume, home) = (located.group, located.volume.id, located.home.clone());
            let asked = home.volume(volume).leaving();
            let Ok(Some((leaving, is_empty))) = asked.await else { continue };
            let is_known = |target: Target| known.contains(&(target.store, target.number));
            let (mut names, mut targets) = (Vec::new(), Vec::new());
            for leaving in leaving.into_iter().filter(|leaving| !is_known(leaving.target)) {
                names.push(format!("{name}@{}", leaving.name));
                targets.push((leaving.target, leaving.size));
            }
            if targets.is_empty() && !is_empty {
                continue;
            }
            if names.is_empty() {
                names.push(name.to_string());
            }
            let going = vec![Going { group, home, volume, targets }];
            let (id, subject) = (self.next_job_of(&[group]), subject_of(&names));
            let works = works(&going);
            if !works.is_empty() {
                drop(self.record_removal(id, &subject, works)); // REMOVAL2
            }
            let started = self.register_job(id, REMOVE, &subject, "bytes", None, self.now());
            self.spawn_work(started, Removal { going, left: None });
        }
    }
}

/// What is to be done in each group.
fn works(going: &[Going]) -> Vec<(Uuid, JobWork)> {
    let mut works: Vec<(Uuid, Vec<RemovedSnapshots>)> = Vec::new();
    for Going { group, volume, targets, .. } in going {
        for (Target { store, number }, size) in targets {
            let place = works.iter().position(|(known, _)| known == group).unwrap_or_else(|| {
                works.push((*group, Vec::new()));
                works.len() - 1
            });
            let parts = &mut works[place].1;
            match parts.iter_mut().find(|part| (part.volume, part.store) == (*volume, *store)) {
                Some(part) => {
                    part.numbers.push(*number);
                    part.bytes = part.bytes.saturating_add(*size).min(BYTES_MAX);
                }
                None => {
                    let (volume, store) = (*volume, *store);
                    parts.push(RemovedSnapshots { volume, store, numbers: vec![*number], bytes: *size });
                }
            }
        }
    }
    works.into_iter().map(|(group, snapshots)| (group, JobWork::RemoveSnapshots { snapshots })).collect()
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
