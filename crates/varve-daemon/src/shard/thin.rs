//! Thin volumes and their snapshots on the shard of their pool: the same questions and changes as for other volumes, put
//! to the pool.
//!
//! Invariants:
//! - N1. A snapshot of volume N is called `N@NAME` in the pool; a volume's name has no `@`.
//! - N2. The identity of a volume of a pool is the pool's plus the volume's number.
//! - N3. Every volume of a pool in use has a family, even if what it lies over is not there: it is adrift then. Its pool
//!   tells what there is of it all the same, and removes it and its snapshots; requests to it fail.

use super::ShardContext;
use super::background::let_others_go_on;
use super::family::{Family, Recipe, device_of};
use super::health::Health;
use super::open_pool::{OpenPool, PoolFacts};
use super::origins::{self, Below};
use super::reconcile::{Gate, Lies};
use super::states::{SnapshotFacts, Target};
use super::turns::Turns;
use crate::failures;
use crate::fault;
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Device, Extent, IoError};
use varve_target::ErrorTarget;
use varve_target::snapshot::StoreError;
use varve_target::thin::{Holding, NewVolume, Origin, Pool, PoolError, PoolFormat, VolumeFlags, VolumeInfo};
use varve_vg::StoreKind;
use varve_vg::table::Table;

/// Snapshots that are listed before others go on.
const COUNTED_AT_ONCE: usize = 16;
/// The shape of what stands in the place of a volume that is adrift.
const UNIT: u64 = 4096;
const BLOCK_SIZE: u32 = 4096;

/// N2.
pub(crate) fn volume_id(pool: Uuid, number: u64) -> Uuid {
    Uuid::from_u128(pool.as_u128().wrapping_add(u128::from(number)))
}

/// A volume of a pool, as the control knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThinVolume {
    pub(crate) id: Uuid,
    pub(crate) pool: Uuid,
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) created: u64,
    /// What shows where it holds nothing.
    pub(crate) origin: Option<Origin>,
    /// Whether it can be used; if not, its origin is not there (N3).
    pub(crate) is_served: bool,
}

/// Where a thin volume is.
pub(super) struct Thin {
    pub(super) open: Rc<OpenPool>,
    pub(super) number: u64,
    /// Whether what it lies over is not there (N3).
    is_adrift: Cell<bool>,
}

/// What a thin volume holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThinFacts {
    pub(crate) mapped: u64,
    pub(crate) exclusive: u64,
    pub(crate) shared: u64,
}

/// Makes a pool where `table` says, in which nothing is.
pub(crate) async fn format(
    context: &ShardContext,
    table: &Table,
    disks: &super::family::Disks,
    id: Uuid,
    block_size: u64,
) -> Result<(), Failure> {
    let device = device_of(context, table, disks)?;
    let format = PoolFormat { block_size, ..PoolFormat::new(id) };
    Pool::format(&device, &context.arena(), format).await.map_err(|error| failures::pool("the pool", &error))
}

/// Takes a pool and its volumes into use on this shard.
pub(super) async fn activate(
    context: &ShardContext,
    recipe: &Recipe,
    health: &Health,
) -> Result<(), Failure> {
    let gate = Gate::default();
    let device = gate.guard(device_of(context, &recipe.table, &recipe.disks)?);
    let device = fault::with_injected_bug(device, &recipe.name);
    let opened = Pool::open(device, context.arena(), context.clock(), recipe.share.pool_options()).await;
    let pool = opened.map_err(|error| failures::pool("the pool", &error))?;
    if pool.id() != recipe.id {
        let message = "another pool lies where this one should be";
        return Err(Failure::new(Code::VolumeUnusable, message).help("varve vg history VG"));
    }
    let place = (gate, Lies::at(&recipe.table, &recipe.disks));
    let open = OpenPool::new(recipe, pool, place, context, health);
    context.state().pools.borrow_mut().insert(recipe.id, Rc::clone(&open));
    // Some are adrift until what they lie over is there (N3).
    for volume in open.pool.list().iter().filter(|volume| is_volume(volume)) {
        enter(&open, context, volume.id).await?;
    }
    Ok(())
}

/// Serves one volume of a pool from now on, or knows it at least (N3).
async fn enter(open: &Rc<OpenPool>, context: &ShardContext, number: u64) -> Result<(), Failure> {
    let (base, is_adrift) = match open.pool.volume(number) {
        Ok(base) => (base, false),
        Err(PoolError::OriginMissing) => (nowhere(), true),
        Err(error) => return Err(failures::pool("the volume", &error)),
    };
    let base = fault::with_injected_bug(base, &open.full_name(number));
    let thin = Thin { open: Rc::clone(open), number, is_adrift: Cell::new(is_adrift) };
    let family = Family::thin(volume_id(open.id, number), thin, base, context);
    family.turn_top().await?;
    let replaced = context.state().families.borrow_mut().insert(volume_id(open.id, number), family);
    assert!(replaced.is_none(), "N2: a volume is served once");
    Ok(())
}

/// What stands in the place of a volume that is adrift (N3): nobody can open it, and every request to it fails.
fn nowhere() -> Device {
    Device::new(ErrorTarget::new(UNIT, BLOCK_SIZE, IoError::Gone))
}

/// Serves a volume of a pool if it can be used now: one that is new, or was adrift (N3).
pub(super) async fn serve(open: &Rc<OpenPool>, context: &ShardContext, number: u64) -> Result<(), Failure> {
    let Some(family) = context.family(volume_id(open.id, number)) else {
        return enter(open, context, number).await;
    };
    match (open.pool.volume(number), &family.thin) {
        (Ok(base), Some(thin)) if thin.is_adrift.get() => {
            family.lead_to(base).await?;
            thin.is_adrift.set(false);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Lets go of a pool whose volumes nobody uses any more; everything that was acknowledged is durable afterwards.
pub(super) async fn deactivate(context: &ShardContext, open: &Rc<OpenPool>) -> Result<(), Failure> {
    let mut outcome = Ok(());
    for family in context.state().take_families(open.id) {
        let flushed = family.flush().await.map_err(|error| failures::io("the last flush", error));
        outcome = outcome.and(flushed);
    }
    open.close().await;
    // What is in the log need not be done again at the next start; without room for that it is.
    let settled = match open.pool.checkpoint().await {
        Err(PoolError::NoSpace) => open.pool.commit().await,
        other => other,
    };
    open.pool.let_go_of_origins();
    open.gate.close();
    outcome.and(settled.map_err(|error| failures::pool("the last commit", &error)))
}

pub(super) fn is_volume(volume: &VolumeInfo) -> bool {
    !volume.flags.has(VolumeFlags::REMOVING) && !volume.name.contains('@') // N1
}

/// A pool on this shard.
pub(super) fn pool(context: &ShardContext, id: Uuid) -> Result<Rc<OpenPool>, Failure> {
    let found = context.pool(id);
    found.ok_or_else(|| Failure::new(Code::VolumeUnusable, "the pool is not active").help("varve pool list"))
}

/// What a pool is like now, and its volumes.
pub(crate) fn look(context: &ShardContext, id: Uuid) -> Result<(PoolFacts, Vec<ThinVolume>), Failure> {
    let open = pool(context, id)?;
    let volumes = open.pool.list().into_iter().filter(is_volume).map(|volume| ThinVolume {
        id: volume_id(id, volume.id),
        pool: id,
        number: volume.id,
        name: volume.name,
        bytes: volume.bytes,
        created: volume.created,
        origin: volume.origin,
        is_served: context.family(volume_id(id, volume.id)).is_some_and(|family| !family.is_adrift()),
    });
    Ok((open.facts(), volumes.collect()))
}

/// How many bytes a pool can promise, and how many it has promised.
pub(crate) fn promises(context: &ShardContext, id: Uuid) -> Result<(u64, u64), Failure> {
    let facts = pool(context, id)?.facts();
    Ok((facts.promise_max, facts.virtual_bytes))
}

/// Makes a volume in a pool, over an origin or not, and serves it.
pub(crate) async fn create(
    context: &ShardContext,
    recipe: &Recipe,
    name: &str,
    bytes: u64,
    over: Option<(Origin, Below)>,
) -> Result<(), Failure> {
    let open = pool(context, recipe.id)?;
    let over = match over {
        // Before there is a volume that needs it.
        Some((origin, below)) => Some((origin, origins::reach(context, &below, &origin).await?)),
        None => None,
    };
    let new = NewVolume { name: name.to_owned(), bytes, origin: over.as_ref().map(|(origin, _)| *origin) };
    let number = open.pool.create(&new).await.map_err(|error| failures::pool(name, &error))?;
    match over {
        Some((origin, device)) => origins::attach_device(context, recipe.id, origin, &device).await,
        None => enter(&open, context, number).await,
    }
}

/// Gives a volume of a pool another name.
pub(crate) async fn rename(context: &ShardContext, id: Uuid, number: u64, name: &str) -> Result<(), Failure> {
    pool(context, id)?.pool.rename(number, name).await.map_err(|error| failures::pool(name, &error))
}

/// Removes a volume of a pool, as far as anybody can see; its space comes back bit by bit.
pub(crate) async fn remove(context: &ShardContext, id: Uuid, number: u64) -> Result<(), Failure> {
    let open = pool(context, id)?;
    let prefix = format!("{number}@");
    if !open.pool.named_like(&prefix).is_empty() {
        return Err(
            Failure::new(Code::VolumeHasSnapshots, "the volume has snapshots").help("varve snap list")
        );
    }
    open.pool.remove(number).await.map_err(|error| failures::pool("the volume", &error))?;
    // Only now: a volume that is still there is served.
    context.state().families.borrow_mut().remove(&volume_id(id, number));
    context.state().tops.borrow_mut().remove(&volume_id(id, number));
    open.sweep();
    Ok(())
}

/// A volume of a pool by its number, or a snapshot of it by its own name.
pub(crate) type State = (u64, Option<String>);

/// In which extents two volumes or snapshots of a pool differ, and whether none of them is there without need.
pub(crate) async fn diff(
    context: &ShardContext,
    id: Uuid,
    one: State,
    two: State,
) -> Result<(Vec<Extent>, bool), StoreError> {
    let open = pool(context, id).map_err(|_| StoreError::NotFound)?;
    let find = |(number, snapshot): State| match snapshot {
        None => Ok(number),
        Some(own) => {
            let name = format!("{number}@{own}"); // N1
            open.pool.named(&name).map(|found| found.id).ok_or(StoreError::NotFound)
        }
    };
    let (one, two) = (find(one)?, find(two)?);
    if one == two {
        return Ok((Vec::new(), true));
    }
    let extents = open.pool.diff(one, two).await.map_err(store_error)?;
    Ok((extents, open.pool.have_same_origin(one, two)))
}

impl Thin {
    fn pool(&self) -> &Rc<Pool> {
        &self.open.pool
    }

    /// N1.
    fn full(&self, name: &str) -> String {
        format!("{}@{name}", self.number)
    }

    /// The volume as it is now.
    pub(super) fn device(&self) -> Result<Device, PoolError> {
        self.pool().volume(self.number)
    }

    /// The number of the snapshot called `name`, and its device.
    pub(super) fn view(&self, name: &str) -> Result<(Target, Device), StoreError> {
        let number = self.find(name)?;
        let device = self.pool().volume(number).map_err(store_error)?;
        Ok((Target { store: self.open.id, number }, device))
    }

    pub(super) fn find(&self, name: &str) -> Result<u64, StoreError> {
        self.pool().named(&self.full(name)).map(|volume| volume.id).ok_or(StoreError::NotFound)
    }

    /// All snapshots, the oldest first.
    pub(super) fn snapshots(&self) -> Vec<SnapshotFacts> {
        let prefix = self.full("");
        let found = self.pool().named_like(&prefix); // N1
        found.iter().filter_map(|volume| self.snapshot(volume, &prefix)).collect()
    }

    /// The same, and how much they use; requests go on meanwhile. One that is removed meanwhile is left out.
    pub(super) async fn snapshots_counted(&self) -> Vec<SnapshotFacts> {
        let prefix = self.full("");
        let numbers = self.pool().numbers_like(&prefix);
        let mut all = Vec::with_capacity(numbers.len());
        for some in numbers.chunks(COUNTED_AT_ONCE) {
            for number in some {
                let used = self.holding(*number).await.exclusive;
                let volume = self.pool().info(*number);
                let facts = volume.and_then(|volume| self.snapshot(&volume, &prefix));
                all.extend(facts.map(|facts| SnapshotFacts { used, ..facts }));
            }
            let_others_go_on().await;
        }
        all
    }

    /// Number of snapshots.
    pub(super) fn snapshot_count(&self) -> usize {
        self.pool().count_named(&self.full(""))
    }

    /// Those of `names` that there are.
    pub(super) fn snapshots_called(&self, names: &[String]) -> Vec<SnapshotFacts> {
        let prefix = self.full("");
        let found = names.iter().filter_map(|name| self.pool().named(&self.full(name)));
        found.filter_map(|volume| self.snapshot(&volume, &prefix)).collect()
    }

    fn snapshot(&self, volume: &VolumeInfo, prefix: &str) -> Option<SnapshotFacts> {
        Some(SnapshotFacts {
            name: volume.name.strip_prefix(prefix)?.to_owned(),
            created: volume.created,
            size: volume.bytes,
            used: 0,
            read_only: volume.flags.has(VolumeFlags::READ_ONLY),
            held: volume.flags.has(VolumeFlags::HELD),
            is_base: volume.flags.has(VolumeFlags::BASE),
            is_merging: false,
            kind: StoreKind::Dependent,
            is_thin: true,
            target: Target { store: self.open.id, number: volume.id },
        })
    }

    /// What a volume or snapshot of the pool holds; nothing if that cannot be found out now.
    pub(super) async fn holding(&self, number: u64) -> Holding {
        self.pool().holding(number).await.unwrap_or_default()
    }

    /// What the volume holds.
    pub(super) async fn facts(&self) -> ThinFacts {
        let holding = self.holding(self.number).await;
        let Holding { exclusive, shared } = holding;
        ThinFacts { mapped: exclusive + shared, exclusive, shared }
    }

    pub(super) async fn set_flags(
        &self,
        name: &str,
        read_only: Option<bool>,
        held: Option<bool>,
    ) -> Result<(), StoreError> {
        let known = self.pool().named(&self.full(name)).ok_or(StoreError::NotFound)?;
        let read_only = read_only.unwrap_or_else(|| known.flags.has(VolumeFlags::READ_ONLY));
        let held = held.unwrap_or_else(|| known.flags.has(VolumeFlags::HELD));
        self.pool().set_flags(known.id, read_only, held).await.map_err(store_error)
    }

    /// A number that the volume gets with a rollback, and never had before.
    pub(super) fn rollback_mark(&self) -> Result<u64, StoreError> {
        self.pool().rollback_mark(self.number).map_err(store_error)
    }

    /// The volume becomes what a snapshot shows, in its own size, by one commit.
    pub(super) async fn roll_back(&self, snapshot: u64, bytes: u64) -> Result<(), PoolError> {
        let rolled_back = self.pool().roll_back_in_size(self.number, snapshot, bytes).await;
        self.open.sweep(); // Whatever came of it: there may be a copy that nobody needs.
        rolled_back
    }

    /// Whether writes wait for space in the pool.
    pub(super) fn is_paused(&self) -> bool {
        self.pool().is_paused()
    }

    pub(super) async fn resize(&self, bytes: u64) -> Result<(), PoolError> {
        self.pool().resize(self.number, bytes).await
    }

    pub(super) async fn remove_snapshot(&self, number: u64) -> Result<(), StoreError> {
        self.pool().remove(number).await.map_err(store_error)?;
        self.open.sweep();
        Ok(())
    }

    /// How far the removal of a snapshot is, in bytes of `size`; none when it is over.
    pub(super) fn removed(&self, number: u64, size: u64) -> Option<u64> {
        self.pool().removed_bytes(number).map(|bytes| bytes.min(size))
    }

    /// Makes snapshots of the volume, or of its snapshot `of`, when all volumes of the command are frozen: all or none.
    async fn make_snapshots(
        &self,
        names: &[String],
        of: Option<&str>,
        read_only: bool,
        mut turns: Turns,
    ) -> Result<(), StoreError> {
        let source = of.map_or(Ok(self.number), |of| self.find(of))?;
        let claimed = self.pool().claim(source).await.map_err(store_error)?;
        turns.all_are_here().await?;
        let frozen = claimed.freeze().await;
        turns.all_are_here().await?;
        let (mut made, mut refused) = (Vec::new(), None);
        for name in names {
            match frozen.snapshot(&self.full(name), read_only) {
                Ok(number) => made.push(number),
                Err(error) => refused = refused.or(Some(store_error(error))),
            }
        }
        drop(frozen);
        let committed = self.pool().commit().await.map_err(store_error);
        let Some(error) = refused.or(committed.err()) else { return Ok(()) };
        for number in made {
            let _ = self.remove_snapshot(number).await; // S2 of `instant.rs`
        }
        Err(error)
    }
}

impl Family {
    /// Whether it is a thin volume.
    pub(crate) fn is_thin(&self) -> bool {
        self.thin.is_some()
    }

    /// Whether it is a thin volume, and what it lies over is not there (N3).
    pub(super) fn is_adrift(&self) -> bool {
        self.thin.as_ref().is_some_and(|thin| thin.is_adrift.get())
    }

    /// Makes snapshots of a thin volume, as [`Thin::make_snapshots`].
    pub(crate) async fn make_thin_snapshots(
        &self,
        names: &[String],
        of: Option<&str>,
        read_only: bool,
        turns: Turns,
    ) -> Result<(), StoreError> {
        let thin = self.thin.as_ref().ok_or(StoreError::NotFound)?;
        thin.make_snapshots(names, of, read_only, turns).await
    }
}

/// The error of a pool in the words of snapshots.
pub(super) fn store_error(error: PoolError) -> StoreError {
    match error {
        PoolError::Io(error) => StoreError::Io(error),
        PoolError::NoSpace | PoolError::TooSmall(_) => StoreError::NoSpace,
        PoolError::NotFound => StoreError::NotFound,
        PoolError::Exists => StoreError::Exists,
        PoolError::Held => StoreError::Held,
        PoolError::Name => StoreError::Name,
        PoolError::OriginMissing | PoolError::Misfit(_) | PoolError::Format(_) | PoolError::Corrupt(_) => {
            tracing::error!(%error, "a pool refuses");
            StoreError::Io(IoError::Corrupt)
        }
    }
}
