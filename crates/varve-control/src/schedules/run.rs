//! A run of a schedule: its snapshots are made, and those of its own that are not to stay are removed.
//!
//! Invariants:
//! - SCHEDULERUN1. A snapshot is a schedule's own only if the text of the group says so. That is written by the very change that makes the snapshot
//!   valid (SETS2 of `snapshot_sets.rs`), so after a crash a run has made all of its snapshots, which are its own, or none.
//! - SCHEDULERUN2. A schedule removes its own snapshots alone, by what identifies them for good, with the lock of the group held from the look at
//!   them on: whatever they, or others, are called.
//! - SCHEDULERUN3. What is held, exported, an origin, or read by a job is not removed.
//!
//! A run that can make no snapshot removes what is not to stay all the same: that may be why there is no room.

use super::Schedules;
use super::due::snapshot_name;
use super::own_run::{Run, own_targets};
use super::retention::{Instant, surplus};
use crate::commands::snapshots::Batch;
use crate::failures;
use crate::group::locks::Held;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, ScheduleRan, Snapshot, SnapshotCreate, SnapshotRemove};
use varve_block::yield_now;
use varve_vg::model::{JobWork, Schedule};
use varve_vg::names::VolumeName;
use varve_volume::content::snapshot_facts::Target;

/// Most snapshots that one run removes: the next ones remove the rest.
const REMOVED_MAX: usize = 1000;
/// Snapshots that are looked at before others go on.
const AT_ONCE: usize = 64;

impl Schedules<'_> {
    /// Makes the snapshots of a schedule, or says what would be made. The caller has the lock of the group.
    pub(super) async fn make(
        &self,
        group: Uuid,
        schedule: &Schedule,
        dry_run: bool,
    ) -> Result<Changed<Vec<Snapshot>>, Failure> {
        let now = self.control.now();
        let volumes = self.volumes_of(group, schedule);
        let mut taken = BTreeSet::new();
        for volume in &volumes {
            let facts = self.control.facts(&self.control.find_volume(volume)?).await;
            taken.extend(facts.into_iter().map(|facts| facts.name));
        }
        let own = snapshot_name(&schedule.name, now, |name| !taken.contains(name));
        let names = volumes.iter().map(|volume| format!("{volume}@{own}")).collect();
        let request = SnapshotCreate { names, read_only: true, dry_run, ..SnapshotCreate::default() };
        let run = Run::new(schedule.clone(), now);
        self.control.create_locked(request, Some(&run)).await
    }

    /// Removes those of its own that are not to stay (SCHEDULERUN2); their names, and the job that gives their space back. The lock of the group is
    /// released when that has begun.
    pub(super) async fn prune(
        &self,
        group: Uuid,
        id: Uuid,
        lock: Held,
    ) -> Result<(Vec<String>, Option<String>), Failure> {
        let Some(schedule) = self.with_id(group, id) else { return Ok((Vec::new(), None)) };
        let names = self.surplus(group, &schedule, false).await?;
        if names.is_empty() {
            return Ok((names, None));
        }
        let request = SnapshotRemove { names: names.clone(), dry_run: false };
        match self.control.remove_locked(request, lock).await? {
            Changed::Done(job) => Ok((names, Some(job.id))),
            Changed::Planned(_) => unreachable!("it was asked to be done"),
        }
    }

    /// Makes what is to be made, and removes what is not to stay.
    pub(super) async fn make_and_prune(
        &self,
        group: Uuid,
        schedule: &Schedule,
        lock: Held,
    ) -> Result<ScheduleRan, Failure> {
        let made = self.make(group, schedule, false).await;
        let pruned = self.prune(group, schedule.id, lock).await;
        let made = match made? {
            Changed::Done(made) => made.into_iter().map(|snapshot| snapshot.name).collect(),
            Changed::Planned(_) => unreachable!("it was asked to be done"),
        };
        let (removed, job) = pruned?;
        Ok(ScheduleRan { made, removed, job })
    }

    /// The snapshots of a schedule that are not to stay, `VG/LV@SNAP`, the oldest first; also if it had made one now.
    pub(super) async fn surplus(
        &self,
        group: Uuid,
        schedule: &Schedule,
        has_run: bool,
    ) -> Result<Vec<String>, Failure> {
        let now = self.control.now();
        let mut sets = self.own_instants(group, schedule).await?;
        if has_run {
            let new = Instant { created: now, number: u64::MAX, is_protected: true };
            sets.push((new, Vec::new()));
        }
        let instants: Vec<Instant> = sets.iter().map(|(instant, _)| *instant).collect();
        let gone = surplus(&instants, schedule.keep, now);
        let names = gone.into_iter().flat_map(|place| sets[place].1.clone());
        Ok(names.take(REMOVED_MAX).collect())
    }

    /// What the schedule made and is there: by the instants at which it was made, which have one name, with the names in full.
    pub(crate) async fn own_instants(
        &self,
        group: Uuid,
        schedule: &Schedule,
    ) -> Result<Vec<(Instant, Vec<String>)>, Failure> {
        let read = self.read_by_jobs(group);
        let mut sets: BTreeMap<String, (Instant, Vec<String>)> = BTreeMap::new();
        for volume in self.volumes_of(group, schedule) {
            let located = self.control.find_volume_for_snapshots(&volume)?;
            let own = own_targets(schedule, located.volume.id);
            let batch = Batch { located, volume, names: Vec::new(), stores: Vec::new(), of: None };
            let facts = self.control.facts(&batch.located).await;
            for (index, facts) in facts.into_iter().filter(|facts| own.contains(&facts.target)).enumerate() {
                if index % AT_ONCE == AT_ONCE - 1 {
                    yield_now().await; // Requests of volumes may be served on this thread, too.
                }
                let is_free = !read.contains(&facts.target)
                    && self.control.refuse_removal(&batch, &facts).await.is_ok(); // SCHEDULERUN3
                let (created, number) = (facts.created, facts.target.number);
                let full = batch.full(&facts.name);
                let new = Instant { created, number, is_protected: false };
                let (instant, names) = sets.entry(facts.name).or_insert((new, Vec::new()));
                instant.created = instant.created.min(created);
                instant.number = instant.number.max(number);
                instant.is_protected |= !is_free;
                names.push(full);
            }
        }
        Ok(sets.into_values().collect())
    }

    /// The volumes of a schedule that are there.
    pub(super) fn volumes_of(&self, group: Uuid, schedule: &Schedule) -> Vec<VolumeName> {
        let name = |id: Uuid| {
            let (group_name, volume) = self.control.name_of(id)?;
            let is_own = self.control.find_group(&group_name).is_ok_and(|found| found == group);
            is_own.then_some(VolumeName { group: group_name, volume, snapshot: None })
        };
        schedule.volumes.iter().filter_map(|volume| name(volume.id)).collect()
    }

    /// The snapshots that jobs of a group read or are about to.
    fn read_by_jobs(&self, group: Uuid) -> BTreeSet<Target> {
        let target = |work: &JobWork| match *work {
            JobWork::Rollback { store, number, .. } => Some(Target { store, number }),
            JobWork::Flatten { pool, number, .. } => Some(Target { store: pool, number }),
            _ => None,
        };
        let read = self.control.with_group(group, |known| {
            known.group.jobs().iter().filter_map(|job| target(&job.work)).collect()
        });
        read.unwrap_or_default()
    }
}

/// A schedule that is gone.
pub(super) fn no_schedule(name: &str) -> Failure {
    let group = name.split('/').next().unwrap_or_default();
    Failure::new(Code::ScheduleNotFound, format!("there is no schedule {name}"))
        .help(failures::unquoted(&format!("varve schedule list {group}")))
}
