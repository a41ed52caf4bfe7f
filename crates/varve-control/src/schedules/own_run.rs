//! A run of a schedule as the text is to have it: which snapshots are its own.

use super::due::recorded;
use crate::Control;
use crate::find::LocatedVolume;
use crate::injected_bug::{self, InjectedBug};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::UnixTime;
use varve_vg::model::{MadeSnapshots, Schedule};
use varve_vg::plan::ScheduleRun;
use varve_volume::content::snapshot_facts::{SnapshotFacts, Target};

/// A run that makes snapshots.
pub(crate) struct Run {
    schedule: Schedule,
    /// When it began, in seconds since 1970.
    at: u64,
}

impl Run {
    /// A run of `schedule` that begins at `at`, in seconds since 1970.
    pub(crate) const fn new(schedule: Schedule, at: u64) -> Self {
        Self { schedule, at }
    }

    /// What the text is to say when the snapshots of `batches` are valid (SCHEDULERUN1): they are there, and nothing changes them meanwhile.
    pub(crate) async fn outcome(
        &self,
        control: &Control,
        batches: &[(&LocatedVolume, &[String])],
    ) -> Result<ScheduleRun, Failure> {
        let mut made = Vec::with_capacity(batches.len());
        for (located, names) in batches {
            let volume = located.volume.id;
            let facts = control.facts(located).await;
            let is_there = |name: &String| facts.iter().any(|facts| facts.name == *name);
            if !names.iter().all(is_there) {
                let message = format!("{} does not say which snapshots it has", located.volume.name);
                return Err(Failure::new(Code::VolumeUnusable, message).help("varve lv list"));
            }
            let own = own_targets(&self.schedule, volume);
            let prefix = format!("{}-", self.schedule.name);
            let by_name = injected_bug::has(InjectedBug::OwnByName);
            let is_own = |facts: &&SnapshotFacts| {
                own.contains(&facts.target)
                    || names.contains(&facts.name)
                    || by_name && facts.name.starts_with(&prefix)
            };
            made.push((volume, by_store(facts.iter().filter(is_own).map(|facts| facts.target))));
        }
        let Schedule { id, every_s, last_run, .. } = &self.schedule;
        let at = UnixTime(recorded(*every_s, last_run.map(|last| last.0), self.at));
        Ok(ScheduleRun { schedule: *id, at, made })
    }
}

/// The snapshots of `volume` that the schedule made.
pub(crate) fn own_targets(schedule: &Schedule, volume: Uuid) -> BTreeSet<Target> {
    let of_volume = schedule.made().filter(|(of, ..)| *of == volume);
    of_volume.map(|(_, store, number)| Target { store, number }).collect()
}

fn by_store(targets: impl Iterator<Item = Target>) -> Vec<MadeSnapshots> {
    let mut stores: BTreeMap<Uuid, Vec<u64>> = BTreeMap::new();
    targets.for_each(|target| stores.entry(target.store).or_default().push(target.number));
    stores.into_iter().map(|(store, numbers)| MadeSnapshots { store, numbers }).collect()
}
