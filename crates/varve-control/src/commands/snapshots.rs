//! Snapshots: made, listed, held, written or not. How they are made at one instant is in `instant.rs`; their jobs are in `removal.rs`.
//!
//! Invariants:
//! - SNAPCHANGE1. The access of a snapshot changes only while no export shows it: each export keeps the access that it began with.
//! - SNAPCHANGE2. A snapshot that is held, or that others are backed by, stays read-only.
//! - SNAPCHANGE3. A snapshot is not renamed while an export shows it, or compares another one with it: clients, and exports that are
//!   opened anew, find it by its name.

use crate::Control;
use crate::failures;
use crate::find::LocatedVolume;
use crate::group::change::shown;
use crate::schedules::own_run::Run;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Failure, Plan, Snapshot, SnapshotChange, SnapshotCreate, SnapshotHold, SnapshotMode,
    SnapshotRename, SnapshotState,
};
use varve_block::{KIB, MIB, yield_now};
use varve_target::snapshot::StoreError;
use varve_vg::names::VolumeName;
use varve_vg::size::parse_size;
use varve_vg::{Group, StoreKind};
use varve_volume::content::snapshot_facts::SnapshotFacts;

/// Snapshots that are put into words before others go on.
const SHOWN_AT_ONCE: usize = 16;

/// The snapshots of a command that belong to one volume.
pub(crate) struct Batch {
    pub(crate) located: LocatedVolume,
    pub(crate) volume: VolumeName,
    pub(crate) names: Vec<String>,
    /// The stores of the snapshots, one each, if they are independent.
    pub(crate) stores: Vec<Uuid>,
    /// The snapshot of which they are, if not of the volume itself.
    pub(crate) of: Option<String>,
}

impl Batch {
    /// `VG/LV@SNAP`.
    pub(crate) fn full(&self, name: &str) -> String {
        format!("{}@{name}", self.volume)
    }
}

impl Control {
    /// All snapshots, or those of one volume, the oldest first.
    pub async fn list_snapshots(&self, volume: Option<&str>) -> Result<Vec<Snapshot>, Failure> {
        let names = match volume {
            Some(text) => vec![crate::find::volume_name(text)?],
            None => self.all_volumes(),
        };
        let mut snapshots = Vec::new();
        for name in names {
            let located = match self.find_any_volume(&name) {
                Ok(located) => located,
                Err(failure) if volume.is_some() => return Err(failure),
                Err(_) => continue,
            };
            self.show_snapshots(&name, &located, &mut snapshots).await;
        }
        Ok(snapshots)
    }

    /// Keeps the present state of volumes.
    pub async fn create_snapshots(&self, request: SnapshotCreate) -> Result<Changed<Vec<Snapshot>>, Failure> {
        let _lock = self.lock_all_of(request.names.iter().map(String::as_str)).await?;
        self.create_locked(request, None).await
    }

    /// The same for a caller that has the locks; for a schedule, if one runs.
    pub(crate) async fn create_locked(
        &self,
        request: SnapshotCreate,
        run: Option<&Run>,
    ) -> Result<Changed<Vec<Snapshot>>, Failure> {
        let kind = match request.mode {
            Some(SnapshotMode::Independent) => StoreKind::Independent,
            Some(SnapshotMode::Dependent | SnapshotMode::Thin) | None => StoreKind::Dependent,
        };
        let chunk_size = request.chunk_size.as_deref().map(|text| unit_size(text, "chunk")).transpose()?;
        let mut batches = self.batches(&request.names, Control::find_volume)?;
        if !request.dry_run {
            let groups: Vec<Uuid> = batches.iter().map(|batch| batch.located.group).collect();
            self.resolve_sets(&groups).await;
        }
        self.set_sources(&mut batches, &request).await?;
        for batch in &batches {
            self.refuse_names_of_sets(batch)?;
            self.check_new(batch, chunk_size.filter(|_| kind == StoreKind::Dependent)).await?;
        }
        self.refuse_snapshots_beyond(&batches).await?;
        let chunk_size = chunk_size.unwrap_or(64 * KIB);
        if request.dry_run {
            return self.plan_snapshots(&batches, chunk_size, kind).map(Changed::Planned);
        }
        let made = self.make_stores(&mut batches, chunk_size, kind).await;
        let made = match made {
            Ok(()) => self.make_all_or_none(&batches, request.read_only, run).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = made {
            self.give_back_stores(&batches).await;
            return Err(failure);
        }
        let mut made = Vec::with_capacity(request.names.len());
        for batch in &batches {
            if run.is_none() {
                self.watch.forget_dropped(batch.located.volume.id);
            }
            for name in &batch.names {
                self.event(&batch.full(name), "snapshot made");
            }
            // They are new and keep nothing yet: nothing has to be counted.
            let new = self.facts_called(&batch.located, &batch.names).await.into_iter();
            made.extend(new.map(|facts| self.shown_snapshot(&batch.volume, facts)));
        }
        Ok(Changed::Done(made))
    }

    /// What only snapshots in pools know, and what only others do.
    async fn set_sources(&self, batches: &mut [Batch], request: &SnapshotCreate) -> Result<(), Failure> {
        let of = request.of.as_deref().map(snapshot_name).transpose()?;
        for batch in batches {
            let is_thin = batch.located.thin.is_some();
            if is_thin && request.chunk_size.is_some() {
                let message = format!("{} is thin: its snapshots have no chunks", batch.volume);
                return Err(Failure::new(Code::BadChunkSize, message).help("leave --chunk-size out"));
            }
            if is_thin && matches!(request.mode, Some(SnapshotMode::Independent | SnapshotMode::Dependent)) {
                let message =
                    format!("{} is thin: its snapshots share its pool's blocks with it", batch.volume);
                return Err(Failure::new(Code::Usage, message).help("leave --mode out"));
            }
            if !is_thin && (of.is_some() || request.mode == Some(SnapshotMode::Thin)) {
                let message = format!("{} is in no pool: its snapshots are of itself", batch.volume);
                return Err(Failure::new(Code::Usage, message).help("leave --of and --mode thin out"));
            }
            let Some(of) = &of else { continue };
            if (VolumeName { snapshot: None, ..of.clone() }) != batch.volume {
                let message = format!("{of} is no snapshot of {}", batch.volume);
                return Err(Failure::new(Code::Usage, message).help("varve snap list"));
            }
            self.check_snapshot(&batch.located, of).await?;
            batch.of.clone_from(&of.snapshot);
        }
        Ok(())
    }

    /// Gives every volume that needs one a store, and every independent snapshot one of its own.
    async fn make_stores(
        &self,
        batches: &mut [Batch],
        chunk_size: u64,
        kind: StoreKind,
    ) -> Result<(), Failure> {
        for batch in batches {
            match kind {
                _ if batch.located.thin.is_some() => {}
                StoreKind::Dependent if batch.located.volume.store.is_some() => {}
                StoreKind::Dependent => {
                    self.make_store(&batch.located, chunk_size, kind).await?;
                }
                StoreKind::Independent => {
                    for _ in 0..batch.names.len() {
                        batch.stores.push(self.make_store(&batch.located, chunk_size, kind).await?);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives back the stores that were made for snapshots that could not be made.
    async fn give_back_stores(&self, batches: &[Batch]) {
        for batch in batches {
            let volume = batch.located.volume.id;
            let own = |store: &Uuid| batch.stores.contains(store) || batch.located.volume.store.is_none();
            if let Err(failure) = self.drop_empty(volume, own).await {
                tracing::warn!(%volume, %failure, "a snapshot store without snapshots could not be given back");
            }
        }
    }

    /// Protects snapshots against removal, or ends that.
    pub async fn hold_snapshots(
        &self,
        request: SnapshotHold,
        held: bool,
    ) -> Result<Changed<Vec<Snapshot>>, Failure> {
        let _lock = self.lock_all_of(request.names.iter().map(String::as_str)).await?;
        let batches = self.batches(&request.names, Control::find_volume_for_snapshots)?;
        for batch in &batches {
            for name in &batch.names {
                let full = VolumeName { snapshot: Some(name.clone()), ..batch.volume.clone() };
                self.check_snapshot(&batch.located, &full).await?;
            }
            if !held {
                for facts in self.facts_called(&batch.located, &batch.names).await {
                    let full = batch.full(&facts.name);
                    // A hold on a snapshot that is an origin may be released.
                    if !(facts.held && facts.is_base) {
                        self.refuse_origin(batch.located.group, facts.backing(), &full).await?; // BELOW2 of `origins.rs`
                    }
                }
            }
        }
        if request.dry_run {
            let verb = if held { "hold" } else { "release" };
            let steps = request.names.iter().map(|name| format!("would {verb} {name}")).collect();
            return Ok(Changed::Planned(Plan::of_steps(steps)));
        }
        self.set_flags(&batches, None, Some(held)).await.map(Changed::Done)
    }

    /// Lets snapshots be written, or no more.
    pub async fn change_snapshots(&self, request: SnapshotChange) -> Result<Changed<Vec<Snapshot>>, Failure> {
        let _lock = self.lock_all_of(request.names.iter().map(String::as_str)).await?;
        let batches = self.batches(&request.names, Control::find_volume_for_snapshots)?;
        for batch in &batches {
            self.refuse_access(batch, request.read_only).await?;
        }
        let access = if request.read_only { "read-only" } else { "read-write" };
        if request.dry_run {
            let steps = request.names.iter().map(|name| format!("would make {name} {access}")).collect();
            return Ok(Changed::Planned(Plan::of_steps(steps)));
        }
        let changed = self.set_flags(&batches, Some(request.read_only), None).await?;
        for snapshot in &changed {
            self.event(&snapshot.name, &format!("{access} from now on"));
        }
        Ok(Changed::Done(changed))
    }

    /// Gives a snapshot another name.
    pub async fn rename_snapshot(&self, request: SnapshotRename) -> Result<Changed<Snapshot>, Failure> {
        let SnapshotRename { name: text, to, dry_run } = request;
        let _lock = self.lock_all_of(std::iter::once(text.as_str())).await?;
        let name = snapshot_name(&text)?;
        let full = if to.contains(['/', '@']) { to } else { format!("{}@{to}", name.origin()) };
        let to = snapshot_name(&full)?;
        if to.origin() != name.origin() {
            let message = format!("{name} stays a snapshot of {}: only its own name changes", name.origin());
            return Err(Failure::new(Code::Usage, message).help(format!("varve snap rename {name} NEW")));
        }
        let mut batches = self.batches(&[to.to_string()], Control::find_volume_for_snapshots)?;
        let batch = batches.pop().expect("a name gives a batch");
        self.check_snapshot(&batch.located, &name).await?;
        self.check_new(&batch, None).await?;
        self.refuse_names_of_sets(&batch)?;
        let own = |name: &VolumeName| name.snapshot.clone().unwrap_or_default();
        let batch = Batch { names: vec![own(&name)], ..batch };
        self.refuse_names_of_sets(&batch)?;
        self.refuse_if_exported(batch.located.volume.id, &name, false)?; // SNAPCHANGE3
        self.refuse_if_compared(batch.located.volume.id, &name)?;
        if dry_run {
            let step = format!("would rename {name} to {to}");
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        let done = batch.located.home.volume(batch.located.volume.id).rename_snapshot(own(&name), own(&to));
        let done = done.await.map_err(failures::gone)?.unwrap_or(Err(StoreError::NotFound));
        done.map_err(|error| failures::store(&name.to_string(), &error))?;
        self.event(&name.to_string(), &format!("renamed to {to}"));
        let renamed = self.show_named(&Batch { names: vec![own(&to)], ..batch }).await.pop();
        renamed.map(Changed::Done).ok_or_else(|| failures::store(&to.to_string(), &StoreError::NotFound))
    }

    /// SNAPCHANGE3: refuses what an export compares another snapshot with.
    fn refuse_if_compared(&self, volume: Uuid, name: &VolumeName) -> Result<(), Failure> {
        let exports = self.exports.known.borrow();
        let found = exports.values().find(|export| {
            let since = export.remembered.since.as_ref().map(|since| since.name.as_str());
            export.remembered.volume == volume && since.is_some() && since == name.snapshot.as_deref()
        });
        let Some(export) = found else { return Ok(()) };
        let id = &export.remembered.id;
        Err(Failure::new(Code::SnapshotExported, format!("{name} is what export {id} compares with"))
            .help(format!("varve export remove {id}")))
    }

    /// Refuses another access to snapshots in use (SNAPCHANGE1, SNAPCHANGE2).
    async fn refuse_access(&self, batch: &Batch, read_only: bool) -> Result<(), Failure> {
        for name in &batch.names {
            let full = snapshot_name(&batch.full(name))?;
            self.check_snapshot(&batch.located, &full).await?;
            self.refuse_if_exported(batch.located.volume.id, &full, false)?; // SNAPCHANGE1
        }
        if read_only {
            return Ok(());
        }
        for facts in self.facts_called(&batch.located, &batch.names).await {
            let full = batch.full(&facts.name);
            self.refuse_origin(batch.located.group, facts.backing(), &full).await?; // SNAPCHANGE2
            if facts.held {
                return Err(Failure::new(Code::SnapshotHeld, format!("{full} is held"))
                    .help(format!("varve snap release {full}")));
            }
        }
        Ok(())
    }

    /// Changes whether the snapshots of a command may not be written, and whether they are held; what is none stays.
    pub(crate) async fn set_flags(
        &self,
        batches: &[Batch],
        read_only: Option<bool>,
        held: Option<bool>,
    ) -> Result<Vec<Snapshot>, Failure> {
        let mut shown = Vec::new();
        for batch in batches {
            let (volume, names) = (batch.located.volume.id, batch.names.clone());
            let done = batch.located.home.volume(volume).set_flags(names, read_only, held);
            let done = done.await.map_err(failures::gone)?.unwrap_or(Err(StoreError::NotFound));
            done.map_err(|error| failures::store(&batch.volume.to_string(), &error))?;
            shown.extend(self.show_named(batch).await);
        }
        Ok(shown)
    }

    /// The snapshots of a batch as they are shown.
    async fn show_named(&self, batch: &Batch) -> Vec<Snapshot> {
        let mut all = Vec::new();
        self.show_snapshots(&batch.volume, &batch.located, &mut all).await;
        all.retain(|snapshot| batch.names.iter().any(|name| batch.full(name) == snapshot.name));
        all
    }

    /// The names of a command, by volume, each of which is found by `find`.
    pub(crate) fn batches(
        &self,
        names: &[String],
        find: impl Fn(&Self, &VolumeName) -> Result<LocatedVolume, Failure>,
    ) -> Result<Vec<Batch>, Failure> {
        if names.is_empty() {
            return Err(Failure::new(Code::Usage, "no snapshot is named"));
        }
        let mut batches: Vec<Batch> = Vec::new();
        for text in names {
            let mut volume = snapshot_name(text)?;
            let snapshot = volume.snapshot.take().unwrap_or_default();
            let located = find(self, &volume)?;
            let id = located.volume.id;
            match batches.iter_mut().find(|batch| batch.located.volume.id == id) {
                Some(batch) if batch.names.contains(&snapshot) => {
                    return Err(Failure::new(Code::Usage, format!("{text} is named twice")));
                }
                Some(batch) => batch.names.push(snapshot),
                None => {
                    let (names, stores) = (vec![snapshot], Vec::new());
                    batches.push(Batch { located, volume, names, stores, of: None });
                }
            }
        }
        Ok(batches)
    }

    /// Refuses names that are taken, and a chunk size that the volume's store has not.
    async fn check_new(&self, batch: &Batch, wanted: Option<u64>) -> Result<(), Failure> {
        let facts = self.facts_called(&batch.located, &batch.names).await;
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

    fn plan_snapshots(&self, batches: &[Batch], chunk_size: u64, kind: StoreKind) -> Result<Plan, Failure> {
        let mut plan = Plan::of_steps(Vec::new());
        // Each store finds what the ones before it leave.
        let mut groups: BTreeMap<Uuid, Group> = BTreeMap::new();
        for batch in batches {
            let stores = match kind {
                _ if batch.located.thin.is_some() => 0,
                StoreKind::Dependent => usize::from(batch.located.volume.store.is_none()),
                StoreKind::Independent => batch.names.len(),
            };
            for _ in 0..stores {
                let group = batch.located.group;
                let before = match groups.remove(&group) {
                    Some(before) => before,
                    None => self.with_group(group, |known| known.group.clone())?,
                };
                let (_, next) = self.plan_store_in(&before, &batch.located, chunk_size, kind)?;
                plan = plan.and(shown(&next));
                groups.insert(group, next.after);
            }
            plan.steps.extend(
                batch.names.iter().map(|name| format!("would make the snapshot {}", batch.full(name))),
            );
        }
        Ok(plan)
    }

    /// What the volume's stores say of its snapshots, the oldest first. How much they use is not counted.
    pub(crate) async fn facts(&self, located: &LocatedVolume) -> Vec<SnapshotFacts> {
        located.home.volume(located.volume.id).snapshots().await.ok().flatten().unwrap_or_default()
    }

    /// Like [`Control::facts`], of the snapshots with these names alone.
    pub(crate) async fn facts_called(&self, located: &LocatedVolume, names: &[String]) -> Vec<SnapshotFacts> {
        let facts = located.home.volume(located.volume.id).snapshots_called(names.to_vec());
        facts.await.ok().flatten().unwrap_or_default()
    }

    /// Appends the snapshots of a volume to `shown`, the oldest first. They are not collected before that: to copy a thousand
    /// of them takes longer than a request should wait.
    async fn show_snapshots(&self, volume: &VolumeName, located: &LocatedVolume, shown: &mut Vec<Snapshot>) {
        let counted = located.home.volume(located.volume.id).snapshots_counted();
        let facts = counted.await.ok().flatten().unwrap_or_default();
        shown.reserve(facts.len());
        for (index, facts) in facts.into_iter().enumerate() {
            if index % SHOWN_AT_ONCE == SHOWN_AT_ONCE - 1 {
                yield_now().await; // Requests of volumes may be served on this thread, too.
            }
            shown.push(self.shown_snapshot(volume, facts));
        }
    }

    fn shown_snapshot(&self, volume: &VolumeName, facts: SnapshotFacts) -> Snapshot {
        let name = VolumeName { snapshot: Some(facts.name), ..volume.clone() };
        let text = name.to_string();
        let state = match facts.missing_origin {
            Some(_) => SnapshotState::Unusable,
            None if facts.is_merging => SnapshotState::Merging,
            None => SnapshotState::Active,
        };
        Snapshot {
            volume: volume.to_string(),
            size: facts.size,
            used: facts.used,
            created: facts.created,
            mode: match facts.kind {
                _ if facts.is_thin => SnapshotMode::Thin,
                StoreKind::Dependent => SnapshotMode::Dependent,
                StoreKind::Independent => SnapshotMode::Independent,
            },
            read_only: facts.read_only,
            held: facts.held,
            base: facts.is_base,
            state,
            exports: self.exports_of(&name),
            name: text,
        }
    }

    pub(crate) fn all_volumes(&self) -> Vec<VolumeName> {
        let groups = self.groups.known.borrow();
        let mut names: Vec<VolumeName> = groups
            .values()
            .flat_map(|known| {
                let group = known.group.name().to_owned();
                let name = move |(_, volume)| VolumeName { group: group.clone(), volume, snapshot: None };
                known.volumes().into_iter().map(name)
            })
            .collect();
        names.sort();
        names
    }
}

/// `VG/LV@SNAP`.
pub(crate) fn snapshot_name(text: &str) -> Result<VolumeName, Failure> {
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

/// The size of a `unit`, a chunk or a block, as a request gives it.
pub(crate) fn unit_size(text: &str, unit: &str) -> Result<u64, Failure> {
    let size = parse_size(text).map_err(|error| failures::bad_size(&error))?;
    if size.is_power_of_two() && (4 * KIB..=MIB).contains(&size) {
        return Ok(size);
    }
    let message = format!("{text} is no {unit} size: a power of two from 4K to 1M");
    Err(Failure::new(Code::BadChunkSize, message).help(format!("leave --{unit}-size out for 64K")))
}
