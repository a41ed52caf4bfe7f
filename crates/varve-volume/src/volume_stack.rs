//! A volume on its shard: its table as a device, its snapshots and their store, and the switch at the top.
//!
//! ```text
//! doors ──► switch ──► counted ──► unaligned adapter ──► origin of the stores ──► base (the table)
//!                                             (or base itself, while there is no store)
//! ```
//!
//! Invariants:
//! - STACK1. All doors of a volume or snapshot go through one unaligned-I/O adapter, so that ragged edges exclude each other.
//! - STACK2. While there is a store, only the stores touch the base.
//! - STACK3. At most one store is that of the dependent snapshots.
//! - STACK4. What a volume shows is exchanged only while its switch is suspended, or, by the beginning of a rollback,
//!   while the adapter merges nothing.
//!
//! What is done with snapshots is in `snapshots.rs`, what a store does by itself in `open_store.rs`.

use super::content::thin::{Thin, ThinFacts};
use super::copies::movable::Moves;
use super::doors::top::Top;
use super::doors::traffic::{Counters, counted};
use super::host::Host;
use super::lifecycle::health::Health;
use super::lifecycle::placement::Placement;
use super::opened::children::Opened;
use super::opened::mappers::MapperFacts;
use super::opened::open_store::{OpenStore, StoreFacts};
use super::opened::quota::CacheQuota;
use super::spec::{ActivationSpec, Disks};
use crate::failures;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure, Traffic};
use varve_block::{Device, IoError, Shown, Suspended, accept_unaligned, accept_unaligned_shown};
use varve_target::array::ArrayStatus;
use varve_target::snapshot::{SnapshotStore, StoreOptions, side_by_side};
use varve_target::thin::PoolError;
use varve_vg::StoreKind;
use varve_vg::model::StorePolicy;
use varve_vg::table::Table;
use varve_vg::tree::StoreNode;

/// How often it is asked whether requests that are waited for wait for space.
const PAUSE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A volume in use.
pub struct VolumeStack {
    id: Uuid,
    /// What it has open; of a thin volume that of its pool.
    opened: Rc<Opened>,
    counters: Counters,
    policy: Cell<StorePolicy>,
    /// How its stores keep their metadata.
    pub(super) quota: Cell<CacheQuota>,
    /// Where its doors lead.
    top: Top,
    /// Held alone while a rollback begins (STACK4).
    pub(super) shown: Shown,
    /// Where its base is, unless it is a thin volume.
    pub(super) placement: RefCell<Option<Placement>>,
    base: RefCell<Device>,
    pub(super) stores: RefCell<Vec<Rc<OpenStore>>>,
    /// Where it is in its pool, if it is a thin volume.
    pub(super) thin: Option<Thin>,
}

/// What a volume is like now.
#[derive(Default)]
pub struct VolumeFacts {
    /// What was done through it.
    pub traffic: Traffic,
    /// Snapshots that there are.
    pub snapshots: u32,
    /// Its snapshot stores.
    pub stores: Vec<StoreFacts>,
    /// If it is thin: what it has in its pool.
    pub thin: Option<ThinFacts>,
    /// How its array does, if it is one.
    pub array: Option<ArrayStatus>,
    /// How its mapper does, if a program maps it.
    pub mapper: Option<MapperFacts>,
    /// Why it takes no changes any more, if so.
    pub failure: Option<IoError>,
}

impl VolumeStack {
    /// A volume whose bytes lie at `base`, where `spec` says; without its stores as yet.
    pub(super) fn thick(spec: &ActivationSpec, base: Device, top: Top, opened: &Rc<Opened>) -> Rc<Self> {
        Rc::new(Self {
            policy: Cell::new(spec.policy),
            quota: Cell::new(spec.quota),
            placement: RefCell::new(Some(Placement::at(&spec.node.table, &spec.disks))),
            ..Self::new(spec.node.id, base, top, opened)
        })
    }

    /// A thin volume, served through `base`.
    pub(super) fn thin(id: Uuid, thin: Thin, base: Device, top: Top) -> Rc<Self> {
        let opened = Rc::clone(&thin.open.opened);
        Rc::new(Self { thin: Some(thin), ..Self::new(id, base, top, &opened) })
    }

    fn new(id: Uuid, base: Device, top: Top, opened: &Rc<Opened>) -> Self {
        Self {
            id,
            opened: Rc::clone(opened),
            counters: Counters::new(&opened.host),
            policy: Cell::default(),
            quota: Cell::default(),
            top,
            shown: Shown::default(),
            placement: RefCell::default(),
            base: RefCell::new(base),
            stores: RefCell::default(),
            thin: None,
        }
    }

    /// Whether it is a thin volume.
    pub fn is_thin(&self) -> bool {
        self.thin.is_some()
    }

    /// Whether it is a thin volume whose origin is not there (POOLSERVE1 of `pool_serving.rs`).
    pub(super) fn lacks_origin(&self) -> bool {
        self.thin.as_ref().is_some_and(|thin| thin.lacks_origin.get())
    }

    /// Changes a thin volume as a whole by `change`, between two requests.
    pub(super) async fn change_thin<T, E>(
        &self,
        change: impl AsyncFnOnce(&Thin) -> Result<T, E>,
        failed: impl Fn(PoolError) -> E,
    ) -> Result<T, E> {
        let thin = self.thin.as_ref().expect("only a thin volume is changed so");
        let suspended = self.suspend_unless_paused(thin).await.ok_or_else(|| failed(PoolError::NoSpace))?;
        let changed = change(thin).await;
        // Even what failed may have changed its size.
        let base = thin.device().map_err(failed)?;
        self.base.replace(base.clone());
        suspended.replace(self.contained(base));
        changed
    }

    /// Holds back requests of a thin volume when those under way have ended; not if they wait for space, perhaps for
    /// what holding them back would keep from coming.
    async fn suspend_unless_paused(&self, thin: &Thin) -> Option<Suspended> {
        let (mut suspended, clock) = (Box::pin(self.top.switch.suspend()), self.host().clock());
        loop {
            match select(suspended, clock.sleep(PAUSE_CHECK_INTERVAL)).await {
                Either::Left((suspended, _)) => return Some(suspended),
                Either::Right(((), _)) if thin.is_paused() => return None,
                Either::Right(((), still)) => suspended = still,
            }
        }
    }

    /// Gives a thin volume another size.
    pub async fn resize_thin(&self, bytes: u64) -> Result<(), Failure> {
        let failed = |error| failures::pool("the volume", &error);
        self.change_thin(async |thin: &Thin| thin.resize(bytes).await.map_err(failed), failed).await
    }

    /// What goes below the switch now.
    fn below(&self) -> Result<Device, Failure> {
        Ok(self.contained(self.inner()?))
    }

    /// The volume with its stores, below all that doors pass.
    pub(super) fn inner(&self) -> Result<Device, Failure> {
        let stores: Vec<Rc<SnapshotStore>> =
            self.stores.borrow().iter().map(|open| Rc::clone(&open.store)).collect();
        let refused = |error| failures::store("its snapshot stores", &error);
        match stores.as_slice() {
            [] => Ok(self.base.borrow().clone()),
            // One that is alone may have had siblings.
            [alone] => side_by_side(&stores).map(|_| alone.origin()).map_err(refused),
            _ => side_by_side(&stores).map_err(refused),
        }
    }

    /// What doors see of `device` (STACK1, STACK4), a part of the volume: what panics there takes the volume out of use.
    fn contained(&self, device: Device) -> Device {
        let adapter = accept_unaligned_shown(device, self.host().arena(), self.shown.clone());
        counted(adapter, self.counters.clone(), self.health().clone())
    }

    /// A snapshot of the volume, as doors see it, whose requests are not counted.
    pub(super) fn contained_view(&self, device: Device) -> Device {
        let counters = Counters::new(self.host());
        counted(accept_unaligned(device, self.host().arena()), counters, self.health().clone())
    }

    /// What it has open; of a thin volume that of its pool.
    pub(super) fn opened(&self) -> &Rc<Opened> {
        &self.opened
    }

    pub(super) fn host(&self) -> &Host {
        &self.opened.host
    }

    /// Whether something in the volume, or in its pool, has panicked.
    pub(super) fn health(&self) -> &Health {
        &self.opened.health
    }

    /// The disks below it, and the runs that move between them.
    pub(super) fn moves(&self) -> Rc<Moves> {
        Rc::clone(&self.host().moves)
    }

    /// Where the doors of the volume, and of its snapshots, lead.
    pub(super) fn top(&self) -> &Top {
        &self.top
    }

    /// A thin volume is at `base` from now on.
    pub(super) async fn lead_to(&self, base: Device) -> Result<(), Failure> {
        self.base.replace(base);
        self.turn_top().await
    }

    /// Holds back requests of all doors of the volume and of its snapshots, when those under way have ended (VIEWS1 of `views.rs`).
    pub(super) async fn suspend_doors(&self) -> Vec<Suspended> {
        let mut suspended = vec![self.top.switch.suspend().await];
        for view in self.top.views.all() {
            suspended.push(view.suspend().await);
        }
        suspended
    }

    /// Writes that were not flushed may be lost (LOSSES1 of `losses.rs`).
    pub(super) fn note_loss(&self) {
        self.top.losses.add();
    }

    /// Leads the switch to what is below it now, between two requests.
    pub(super) async fn turn_top(&self) -> Result<(), Failure> {
        let suspended = self.top.switch.suspend().await;
        suspended.replace(self.below()?);
        Ok(())
    }

    pub(super) async fn open_store(
        &self,
        spec: &StoreNode,
        disks: &Disks,
        options: StoreOptions,
    ) -> Result<(), Failure> {
        let dependent = self.stores.borrow().iter().any(|open| open.kind == StoreKind::Dependent);
        assert!(!dependent || spec.kind == StoreKind::Independent, "STACK3");
        let device = self.opened.device_of(spec.id, &spec.table, disks).await?;
        let (arena, clock) = (self.host().arena(), self.host().clock());
        let base = self.base.borrow().clone();
        let opened = SnapshotStore::open(base, device, arena, clock, options).await;
        let store = opened.map_err(|error| failures::store("its snapshot store", &error))?;
        // It may have become another one meanwhile.
        let mut given = None;
        while given != Some(self.quota.get()) {
            let quota = self.quota.get();
            quota.give(&store).await;
            given = Some(quota);
        }
        let placement = Placement::at(&spec.table, disks);
        let what = (spec.id, spec.kind, placement);
        let open = OpenStore::new(what, store, &self.opened, self.policy.get());
        let mut stores = self.stores.borrow_mut();
        match spec.kind {
            StoreKind::Dependent => stores.insert(0, open),
            StoreKind::Independent => stores.push(open),
        }
        Ok(())
    }

    /// Lets all requests of a volume without stores fail from now on.
    #[cfg(any(test, feature = "injected-bugs"))]
    pub async fn fail(&self) {
        let broken = varve_target::ErrorTarget::new(self.size(), 4096, IoError::Medium);
        self.base.replace(Device::new(broken));
        self.turn_top().await.expect("there are no stores");
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        self.base.borrow().shape().size
    }

    /// Ends what works in the background, and closes what is open below. What a thin volume is on is its pool's.
    pub(super) async fn close(&self) {
        if self.is_thin() {
            return;
        }
        for open in self.stores.take() {
            open.close().await;
            if !self.opened.gate.is_closed() {
                open.settle().await;
            }
        }
        let _closed = self.opened.close().await; // What was acknowledged is durable, whatever an array says.
    }

    /// The volume.
    pub(super) fn id(&self) -> Uuid {
        self.id
    }

    /// Puts the store that was made just now, where the spec says, between the volume and its doors.
    pub async fn add_store(&self, spec: &StoreNode, disks: &Disks) -> Result<(), Failure> {
        // STACK2: nothing may reach the base from the moment at which the store looks at it.
        let suspended = self.top.switch.suspend().await;
        let options = StoreOptions { is_new: true, ..self.quota.get().store_options() };
        self.open_store(spec, disks, options).await?;
        suspended.replace(self.below()?);
        Ok(())
    }

    /// Takes a store that holds no snapshot any more out of the way. Nothing happens if there is no such store.
    pub async fn remove_store(&self, id: Uuid) -> Result<(), Failure> {
        let Some(open) = self.open(id) else { return Ok(()) };
        let suspended = self.top.switch.suspend().await;
        if !open.store.list().is_empty() {
            return Err(Failure::new(Code::VolumeHasSnapshots, "the volume has snapshots"));
        }
        self.top.views.forget_store(id);
        // First, so that no task begins to work on it while those that do are waited for.
        self.stores.borrow_mut().retain(|open| open.id != id);
        open.close().await;
        let closed = self.opened.arrays.close_one(id).await;
        suspended.replace(self.below()?);
        closed.map_err(|error| failures::io("the last flush", error))
    }

    /// A store is where `table` says now, which is more than before. Nothing happens if there is no such store.
    pub async fn grow_store(&self, id: Uuid, table: &Table, disks: &Disks) -> Result<(), Failure> {
        let Some(open) = self.open(id) else { return Ok(()) };
        let device = self.opened.device_of(id, table, disks).await?;
        open.store.grown(device).map_err(|error| failures::store("its snapshot store", &error))?;
        open.placement.replace(Placement::at(table, disks));
        open.group_has_space();
        Ok(())
    }

    /// The volume is where `table` says now.
    pub async fn resize(&self, table: &Table, disks: &Disks) -> Result<(), Failure> {
        let (base, suspended) = if table.mapper().is_some() {
            // A mapper has one connection, with one size: what it knows is durable before it receives another one.
            let suspended = self.top.switch.suspend().await;
            let base = self.base.borrow().clone();
            base.flush().await.map_err(|error| failures::io("its mapper", error))?;
            self.opened.mapper.disconnect();
            (self.opened.device_of(self.id, table, disks).await?, suspended)
        } else {
            (self.opened.device_of(self.id, table, disks).await?, self.top.switch.suspend().await)
        };
        for open in self.stores.borrow().iter() {
            open.store
                .origin_resized(base.clone())
                .map_err(|error| failures::store("its snapshot store", &error))?;
        }
        self.base.replace(base);
        self.placement.replace(Some(Placement::at(table, disks)));
        suspended.replace(self.below()?);
        Ok(())
    }

    /// The volume declares what is done when its stores fill.
    pub fn set_policy(&self, policy: StorePolicy) {
        self.policy.set(policy);
        self.stores.borrow().iter().for_each(|open| open.set_policy(policy));
    }

    /// The group has more free space than before.
    pub fn group_has_space(&self) {
        self.stores.borrow().iter().for_each(|open| open.group_has_space());
    }

    /// The store with this id.
    pub fn open(&self, id: Uuid) -> Option<Rc<OpenStore>> {
        self.stores.borrow().iter().find(|open| open.id == id).cloned()
    }

    /// The store of the dependent snapshots, if there is one.
    pub fn dependent(&self) -> Option<Rc<OpenStore>> {
        self.stores.borrow().iter().find(|open| open.kind == StoreKind::Dependent).cloned()
    }

    /// Whether writes of the volume wait for space.
    pub fn is_paused(&self) -> bool {
        self.stores.borrow().iter().any(|open| open.store.is_paused())
    }

    /// The stores that hold no snapshot.
    pub fn empty_stores(&self) -> Vec<Uuid> {
        let stores = self.stores.borrow();
        stores.iter().filter(|open| open.store.list().is_empty()).map(|open| open.id).collect()
    }

    /// What the volume is like now.
    pub async fn facts(&self) -> VolumeFacts {
        let thin = match &self.thin {
            Some(thin) => Some(thin.facts().await),
            None => None,
        };
        let stores = self.stores.borrow();
        VolumeFacts {
            traffic: self.counters.now(),
            snapshots: u32::try_from(self.snapshot_count()).unwrap_or(u32::MAX),
            stores: stores.iter().map(|open| open.facts()).collect(),
            thin,
            array: self.opened.arrays.status(self.id),
            mapper: self.opened.mapper.facts(),
            failure: self.failure(),
        }
    }

    /// Makes everything that was acknowledged durable.
    pub async fn flush(&self) -> Result<(), IoError> {
        if self.lacks_origin() {
            return Ok(()); // It could not be written to.
        }
        for view in self.top.views.all() {
            match view.device().flush().await {
                Err(IoError::Gone) | Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        self.top.switch.device().flush().await.map(drop)
    }
}
