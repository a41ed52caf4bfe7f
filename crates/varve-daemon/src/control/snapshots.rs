//! Snapshots: made, listed, held. How they are made at one instant is in `instant.rs`; their jobs are in `removal.rs`.

use super::Control;
use super::change::joined;
use super::exports::no_space_plan;
use super::find::Located;
use super::removal::REMOVE;
use crate::failures;
use crate::shard::family::SnapshotFacts;
use crate::shard::here;
use varve_api::{
    Changed, Code, Failure, Job, Snapshot, SnapshotCreate, SnapshotHold, SnapshotMode, SnapshotState,
};
use varve_block::{KIB, MIB};
use varve_os::ShardContext;
use varve_target::snapshot::StoreError;
use varve_vg::names::VolumeName;
use varve_vg::size::parse_size;

/// The snapshots of a command that belong to one volume.
pub(super) struct Batch {
    pub(super) located: Located,
    pub(super) volume: VolumeName,
    pub(super) names: Vec<String>,
}

impl Batch {
    /// `VG/LV@SNAP`.
    pub(super) fn full(&self, name: &str) -> String {
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

    /// What the volume's store says of its snapshots, the oldest first.
    pub(super) async fn facts(&self, located: &Located) -> Vec<SnapshotFacts> {
        let volume = located.volume.id;
        let facts = located.home.run(async move |_: ShardContext| {
            here().family(volume).map(|family| family.snapshots()).unwrap_or_default()
        });
        facts.await.unwrap_or_default()
    }

    pub(super) async fn shown_snapshots(&self, volume: &VolumeName, located: &Located) -> Vec<Snapshot> {
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

/// `VG/LV@SNAP`.
pub(super) fn snapshot_name(text: &str) -> Result<VolumeName, Failure> {
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
