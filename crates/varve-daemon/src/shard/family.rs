//! A volume on its shard: its table as a device, its snapshots and their store, and the switch at the top.
//!
//! ```text
//! doors ──► switch ──► counted ──► widened ──► patient ──► origin of the store ──► base (the table)
//!                                       (or base itself, while there is no store)
//! ```
//!
//! Invariants:
//! - F1. All doors of a volume or snapshot go through one widened device, so that ragged edges exclude each other.
//! - F2. While there is a store, nobody but the store touches the base.

use super::grower::Grower;
use super::here;
use super::patient::patient;
use super::traffic::{Counters, counted};
use crate::failures;
use futures_channel::oneshot;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Code, Failure, Traffic};
use varve_block::{
    Access, BlockDevice, Checked, Completion, Device, Extent, GIB, IoError, MIB, Shape, StatusFuture, Switch,
    ZeroOptions, widen,
};
use varve_os::{DiskFile, ShardContext, ShardHandle};
use varve_target::snapshot::{FormatOptions, NewSnapshot, SnapshotStore, StoreError, StoreOptions};
use varve_vg::activate::build;
use varve_vg::model::PvName;
use varve_vg::table::Table;

/// The disks of a group, by the names that its tables use.
pub(crate) type Disks = BTreeMap<PvName, Arc<DiskFile>>;

/// All that a volume is made of; goes from the control to the volume's shard.
#[derive(Clone)]
pub(crate) struct Recipe {
    /// The volume.
    pub(crate) id: Uuid,
    /// Where its bytes lie.
    pub(crate) table: Table,
    /// Where its snapshot store lies, if it has one.
    pub(crate) store: Option<Table>,
    /// The group's disks.
    pub(crate) disks: Disks,
    /// Where the control lives.
    pub(crate) control: ShardHandle,
}

/// A volume in use.
pub(crate) struct Family {
    context: ShardContext,
    counters: Counters,
    grower: Grower,
    top: Switch,
    base: RefCell<Device>,
    store: RefCell<Option<OpenStore>>,
    /// Devices of snapshots in use, by the snapshots' numbers (F1).
    views: RefCell<BTreeMap<u64, Device>>,
}

struct OpenStore {
    store: Rc<SnapshotStore>,
    /// Ends the watch over free space when dropped.
    _watch: oneshot::Sender<()>,
}

/// What a snapshot is like, as its store says.
pub(crate) struct SnapshotFacts {
    pub(crate) name: String,
    pub(crate) created: u64,
    pub(crate) size: u64,
    pub(crate) used: u64,
    pub(crate) read_only: bool,
    pub(crate) held: bool,
}

/// What a volume is like now.
#[derive(Default)]
pub(crate) struct FamilyFacts {
    pub(crate) traffic: Traffic,
    pub(crate) snapshots: u32,
    /// Bytes of the store, bytes used, bytes in a chunk.
    pub(crate) store: Option<(u64, u64, u64)>,
}

/// Takes a volume into use on this shard.
pub(crate) async fn activate(context: &ShardContext, recipe: &Recipe) -> Result<(), Failure> {
    let base = device_of(context, &recipe.table, &recipe.disks)?;
    let family = Rc::new(Family {
        context: context.clone(),
        counters: Counters::default(),
        grower: Grower::new(recipe.id, recipe.control.clone()),
        top: Switch::new(base.clone()),
        base: RefCell::new(base),
        store: RefCell::default(),
        views: RefCell::default(),
    });
    if let Some(table) = &recipe.store {
        let device = device_of(context, table, &recipe.disks)?;
        family.open_store(device).await?;
    }
    family.turn_top().await;
    let replaced = here().families.borrow_mut().insert(recipe.id, family);
    assert!(replaced.is_none(), "a volume is activated once");
    Ok(())
}

/// Lets go of a volume; everything that was acknowledged is durable afterwards.
pub(crate) async fn deactivate(volume: Uuid) -> Result<(), Failure> {
    let family = here().families.borrow_mut().remove(&volume);
    match family {
        Some(family) => family.flush().await.map_err(|error| failures::io("the last flush", error)),
        None => Ok(()),
    }
}

/// The device of a table on this shard.
fn device_of(context: &ShardContext, table: &Table, disks: &Disks) -> Result<Device, Failure> {
    let devices = disks.iter().map(|(name, file)| (*name, context.disk(file))).collect();
    build(table, &devices).map_err(|error| failures::io("the volume's disks", error))
}

/// A device onto a volume or one of its snapshots that lives on this shard; any byte can be addressed.
pub(crate) fn device(volume: Uuid, snapshot: Option<&str>) -> Option<Device> {
    let family = here().family(volume)?;
    match snapshot {
        None => Some(family.top.device()),
        Some(name) => family.view(name).ok(),
    }
}

/// `device`, without the right to write.
pub(crate) fn read_only(device: Device) -> Device {
    Device::new(ReadOnly { device })
}

/// Makes a part of a volume that does not count yet read as zeros, where that costs nothing; else only its ends, so
/// that nothing that lay there before is taken for a file system.
pub(crate) async fn clear(
    context: &ShardContext,
    table: &Table,
    disks: &Disks,
    extent: Extent,
) -> Result<(), Failure> {
    let device = device_of(context, table, disks)?;
    let failed = |error| failures::io("clearing the new extents", error);
    let fast = ZeroOptions { fast: true, ..ZeroOptions::default() };
    for (_, piece) in extent.pieces(GIB) {
        match device.zero(piece, fast).await {
            Ok(_) => {}
            Err(IoError::Unsupported) => {
                clear_ends(&device, extent).await.map_err(failed)?;
                break;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    device.flush().await.map(drop).map_err(failed)
}

async fn clear_ends(device: &Device, extent: Extent) -> Result<(), IoError> {
    let slow = ZeroOptions { unmap: false, ..ZeroOptions::default() };
    let length = extent.length.min(MIB);
    for offset in [extent.offset, extent.end() - length] {
        device.zero(Extent::new(offset, length), slow).await?;
    }
    Ok(())
}

/// Makes an empty store where `table` says, which nobody uses yet.
pub(crate) async fn format_store(
    context: &ShardContext,
    table: &Table,
    disks: &Disks,
    id: Uuid,
    chunk_size: u64,
) -> Result<(), Failure> {
    let device = device_of(context, table, disks)?;
    let options = FormatOptions { chunk_size, ..FormatOptions::new(id) };
    SnapshotStore::format(&device, &context.arena(), options)
        .await
        .map_err(|error| failures::store("", &error))
}

impl Family {
    /// What goes below the switch now.
    fn below(&self) -> Device {
        let inner = match &*self.store.borrow() {
            Some(open) => patient(open.store.origin(), &open.store, &self.grower),
            None => self.base.borrow().clone(),
        };
        counted(widen(inner, self.context.arena()), self.counters.clone())
    }

    /// Leads the switch to what is below it now, between two requests.
    async fn turn_top(&self) {
        let suspended = self.top.suspend().await;
        suspended.replace(self.below());
    }

    async fn open_store(&self, device: Device) -> Result<(), Failure> {
        let (arena, clock) = (self.context.arena(), self.context.clock());
        let base = self.base.borrow().clone();
        let opened = SnapshotStore::open(base, device, arena, clock, StoreOptions::default()).await;
        let store = opened.map_err(|error| failures::store("its snapshot store", &error))?;
        let (watch, end) = oneshot::channel();
        let watching = self.grower.clone().watch(Rc::clone(&store), self.context.clone(), end);
        self.context.spawner().spawn(watching);
        self.store.replace(Some(OpenStore { store, _watch: watch }));
        Ok(())
    }

    /// Puts the store that was made where `table` says between the volume and its doors.
    pub(crate) async fn add_store(&self, table: &Table, disks: &Disks) -> Result<(), Failure> {
        let device = device_of(&self.context, table, disks)?;
        // F2: nothing may reach the base from the moment at which the store looks at it.
        let suspended = self.top.suspend().await;
        self.open_store(device).await?;
        suspended.replace(self.below());
        Ok(())
    }

    /// Takes the store, which holds no snapshot any more, out of the way.
    pub(crate) async fn remove_store(&self) -> Result<(), Failure> {
        if self.snapshot_count() > 0 {
            return Err(Failure::new(Code::VolumeHasSnapshots, "the volume has snapshots"));
        }
        let suspended = self.top.suspend().await;
        self.views.borrow_mut().clear();
        self.store.replace(None);
        suspended.replace(self.below());
        Ok(())
    }

    /// The store lies where `table` says now, which is more than before. Nothing happens if there is no store.
    pub(crate) fn grow_store(&self, table: &Table, disks: &Disks) -> Result<(), Failure> {
        let Some(store) = self.store() else { return Ok(()) };
        let device = device_of(&self.context, table, disks)?;
        store.grown(device).map_err(|error| failures::store("", &error))
    }

    /// The volume lies where `table` says now.
    pub(crate) async fn resize(&self, table: &Table, disks: &Disks) -> Result<(), Failure> {
        let base = device_of(&self.context, table, disks)?;
        let suspended = self.top.suspend().await;
        if let Some(store) = self.store() {
            store.origin_resized(base.clone()).map_err(|error| failures::store("", &error))?;
        }
        self.base.replace(base);
        suspended.replace(self.below());
        Ok(())
    }

    /// The store, if there is one.
    pub(crate) fn store(&self) -> Option<Rc<SnapshotStore>> {
        self.store.borrow().as_ref().map(|open| Rc::clone(&open.store))
    }

    /// The store, or the error that there is no snapshot at all.
    fn any_store(&self) -> Result<Rc<SnapshotStore>, StoreError> {
        self.store().ok_or(StoreError::NotFound)
    }

    /// The number of the snapshot called `name`.
    pub(crate) fn number(&self, name: &str) -> Result<u64, StoreError> {
        let list = self.any_store()?.list();
        let found = list.into_iter().find(|descriptor| descriptor.name == name);
        found.map(|descriptor| descriptor.id).ok_or(StoreError::NotFound)
    }

    /// Whether there is a snapshot called `name`.
    pub(crate) fn has_snapshot(&self, name: &str) -> bool {
        self.number(name).is_ok()
    }

    /// How many snapshots there are.
    pub(crate) fn snapshot_count(&self) -> usize {
        self.store().map_or(0, |store| store.list().len())
    }

    /// The device of a snapshot.
    fn view(&self, name: &str) -> Result<Device, StoreError> {
        let store = self.any_store()?;
        let number = self.number(name)?;
        if let Some(device) = self.views.borrow().get(&number) {
            return Ok(device.clone());
        }
        let device = patient(store.snapshot(number)?, &store, &self.grower);
        let device = widen(device, self.context.arena());
        self.views.borrow_mut().insert(number, device.clone());
        Ok(device)
    }

    /// Removes a snapshot.
    pub(crate) async fn remove_snapshot(&self, name: &str) -> Result<(), StoreError> {
        let (store, number) = (self.any_store()?, self.number(name)?);
        loop {
            let seen = store.usage().size;
            match store.remove(number).await {
                Err(StoreError::NoSpace) if self.grower.grow(&store, seen).await => {}
                result => {
                    result?;
                    self.views.borrow_mut().remove(&number);
                    return Ok(());
                }
            }
        }
    }

    /// Protects a snapshot against removal, or ends that.
    pub(crate) async fn hold_snapshot(&self, name: &str, held: bool) -> Result<(), StoreError> {
        let (store, number) = (self.any_store()?, self.number(name)?);
        let read_only = store.descriptor(number)?.read_only;
        loop {
            let seen = store.usage().size;
            match store.set_flags(number, read_only, held).await {
                Err(StoreError::NoSpace) if self.grower.grow(&store, seen).await => {}
                result => return result,
            }
        }
    }

    /// Makes the volume what a snapshot shows; or, without a name, finishes the rollback that is under way, if any.
    pub(crate) async fn roll_back(
        &self,
        name: Option<&str>,
        progress: &varve_target::snapshot::Progress,
    ) -> Result<(), StoreError> {
        let (store, number) = (self.any_store()?, name.map(|name| self.number(name)).transpose()?);
        loop {
            let seen = store.usage().size;
            let outcome = match number {
                Some(number) => store.rollback(number, progress).await,
                None => store.finish_rollback(progress).await,
            };
            match outcome {
                Err(StoreError::NoSpace) if self.grower.grow(&store, seen).await => {}
                result => return result,
            }
        }
    }

    /// Has the store grown beyond `seen` bytes; whether it did.
    pub(crate) async fn grow_beyond(&self, seen: u64) -> bool {
        match self.store() {
            Some(store) => self.grower.grow(&store, seen).await,
            None => false,
        }
    }

    /// All snapshots, the oldest first.
    pub(crate) fn snapshots(&self) -> Vec<SnapshotFacts> {
        let Some(store) = self.store() else { return Vec::new() };
        let bytes = store.snapshot_bytes();
        let facts = |descriptor: varve_target::snapshot::Descriptor| {
            let used = bytes.get(&descriptor.id).copied().unwrap_or_default();
            SnapshotFacts {
                name: descriptor.name,
                created: descriptor.created.0,
                size: descriptor.size,
                used: used.preserved + used.written,
                read_only: descriptor.read_only,
                held: descriptor.held,
            }
        };
        store.list().into_iter().map(facts).collect()
    }

    /// What the volume is like now.
    pub(crate) fn facts(&self) -> FamilyFacts {
        let store = self.store().map(|store| {
            let usage = store.usage();
            (usage.size, usage.size - usage.free - usage.pending, store.chunk_size())
        });
        let snapshots = u32::try_from(self.snapshot_count()).unwrap_or(u32::MAX);
        FamilyFacts { traffic: self.counters.now(), snapshots, store }
    }

    /// Makes everything that was acknowledged durable.
    pub(crate) async fn flush(&self) -> Result<(), IoError> {
        let views: Vec<Device> = self.views.borrow().values().cloned().collect();
        for view in views {
            match view.flush().await {
                Err(IoError::Gone) | Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        self.top.device().flush().await.map(drop)
    }
}

/// What a new snapshot is called and is to be.
pub(crate) fn new_snapshot(name: &str, read_only: bool) -> NewSnapshot {
    NewSnapshot { name: name.to_owned(), read_only, held: false }
}

struct ReadOnly {
    device: Device,
}

impl BlockDevice for ReadOnly {
    fn shape(&self) -> Shape {
        Shape { access: Access::ReadOnly, ..self.device.shape() }
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        self.device.submit(io.into_io())
    }

    fn status(&self, extent: Extent) -> StatusFuture<'_> {
        self.device.status(extent)
    }
}
