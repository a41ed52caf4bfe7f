//! What is served of a volume on its shard, compared with what the versions of its group say that may count.
//!
//! Invariants:
//! - Q1. Below all that is served of a volume, its stores included, stands the volume's gate. Behind a closed gate
//!   nothing of it reaches a disk any more, whoever asks.
//! - Q2. A gate that was closed stays closed: a volume that is used again is opened anew, behind another gate.

use super::ShardContext;
use super::family::{Disks, Family, StoreRecipe};
use super::health::Health;
use crate::fault;
use crate::world::{DiskRef, is_same_disk};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;
use varve_block::{BlockDevice, Checked, Completion, Device, Extent, IoError, Shape, StatusFuture};
use varve_target::snapshot::FullPolicy;
use varve_target::thin::WhenFull;
use varve_vg::table::Table;

/// Whether requests of a volume reach its disks. Cloning shares it.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    is_closed: Rc<Cell<bool>>,
}

impl Gate {
    /// `device`, behind this gate (Q1).
    pub(super) fn guard(&self, device: Device) -> Device {
        Device::new(Guarded { device, gate: self.clone() })
    }

    /// Lets nothing through from now on (Q2).
    pub(super) fn close(&self) {
        self.is_closed.set(true);
    }

    /// Whether nothing gets through.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }
}

struct Guarded {
    device: Device,
    gate: Gate,
}

impl BlockDevice for Guarded {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        if self.gate.is_closed() {
            return Completion::failed(IoError::Gone);
        }
        self.device.submit(io.into_io())
    }

    fn status(&self, extent: Extent) -> StatusFuture<'_> {
        if self.gate.is_closed() {
            return Box::pin(std::future::ready(Err(IoError::Gone)));
        }
        self.device.status(extent)
    }
}

/// Where something that is served lies.
#[derive(Clone)]
pub(super) struct Lies {
    table: Table,
    /// The disks of the table.
    disks: Disks,
}

impl Lies {
    /// In the places of `table`, on those of `disks` that it names.
    pub(super) fn at(table: &Table, disks: &Disks) -> Self {
        let own = table.disks();
        let disks = disks.iter().filter(|(name, _)| own.contains(name));
        Self { table: table.clone(), disks: disks.map(|(name, file)| (*name, Arc::clone(file))).collect() }
    }

    /// How `table`, on `disks`, differs from it.
    fn compared(&self, table: &Table, disks: &Disks) -> Standing {
        let is_same = |(name, file)| disks.get(name).is_some_and(|now: &DiskRef| is_same_disk(now, file));
        if !table.begins_with(&self.table) || !self.disks.iter().all(is_same) {
            return Standing::Fenced;
        }
        if *table == self.table { Standing::Same } else { Standing::Grown }
    }
}

/// How what is served of a volume stands to what its group says; the worse is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It is what its group says; or nothing is served of it.
    Same,
    /// Its group gives it more than is served.
    Grown,
    /// It is something else, and out of use.
    Fenced,
}

/// What a version of a group says of a volume or pool.
#[derive(Clone)]
pub(crate) struct Wanted {
    /// Where it lies.
    pub(crate) table: Table,
    /// Its snapshot stores.
    pub(crate) stores: Vec<StoreRecipe>,
    /// The group's disks.
    pub(crate) disks: Disks,
}

/// Compares what is served of a volume or pool with all that may count; `None` among these is a version that has no such
/// volume, or has it on missing disks. If it differs from one of them its gate is closed. Waits for nothing.
pub(crate) fn fence(context: &ShardContext, volume: Uuid, versions: &[Option<Wanted>]) -> Standing {
    let standing = |health: &Health, compared: &dyn Fn(&Wanted) -> Standing| {
        let each = versions.iter().map(|wanted| wanted.as_ref().map_or(Standing::Fenced, compared));
        health.guard(|| {
            fault::panic_at(&volume.to_string(), "fence");
            each.max().unwrap_or(Standing::Fenced)
        })
    };
    let (standing, gate) = if let Some(open) = context.pool(volume) {
        let compared = |wanted: &Wanted| open.lies.borrow().compared(&wanted.table, &wanted.disks);
        (standing(&open.health, &compared), open.gate.clone())
    } else if let Some(family) = context.family(volume) {
        (standing(family.health(), &|wanted| family.compared(wanted)), family.gate.clone())
    } else {
        return Standing::Same;
    };
    context.done_with_all(); // Others are compared by the same work.
    let Ok(standing) = standing else {
        gate.close();
        return Standing::Same; // It has failed: nothing is served of it any more.
    };
    if gate.is_closed() {
        return Standing::Fenced;
    }
    if standing == Standing::Fenced {
        gate.close();
    }
    standing
}

/// Lets what is served of a volume or pool be as large as its group says, which is more than before.
pub(crate) async fn grow(
    context: &ShardContext,
    volume: Uuid,
    wanted: &Wanted,
) -> Result<(), varve_api::Failure> {
    if let Some(open) = context.pool(volume) {
        return open.grown(&wanted.table, &wanted.disks);
    }
    let Some(family) = context.family(volume) else { return Ok(()) };
    family.resize(&wanted.table, &wanted.disks).await?;
    for store in &wanted.stores {
        family.grow_store(store.id, &store.table, &wanted.disks)?;
    }
    Ok(())
}

/// Takes a volume or pool out of use whose gate is closed, or that is not to be written any more: requests under way end
/// first, later ones are answered `Gone`, until the volume is used again. Nothing happens if it is not in use.
pub(crate) async fn retire(context: &ShardContext, volume: Uuid) {
    let pool = context.state().pools.borrow_mut().remove(&volume);
    let families = context.state().take_families(volume);
    if let Some(open) = &pool {
        context.using(&open.health); // K1 of `handle.rs`: a panic is this pool's.
        open.gate.close();
        open.pool.set_when_full(WhenFull::Error);
    }
    for family in families {
        context.using(family.health());
        fault::panic_at(&volume.to_string(), "retire");
        family.gate.close();
        family.shut().await;
    }
    if let Some(open) = pool {
        open.close().await;
        open.pool.let_go_of_origins();
    }
}

impl Family {
    /// The stores are compared by what they are and where they lie.
    fn compared(&self, wanted: &Wanted) -> Standing {
        let Some(main) = self.lies.borrow().as_ref().map(|lies| lies.compared(&wanted.table, &wanted.disks))
        else {
            return Standing::Same; // Its pool is compared.
        };
        let stores = self.stores.borrow();
        if stores.len() != wanted.stores.len() {
            return Standing::Fenced;
        }
        let store = |known: &StoreRecipe| {
            let open = stores.iter().find(|open| open.id == known.id && open.kind == known.kind);
            open.map_or(Standing::Fenced, |open| open.lies.borrow().compared(&known.table, &wanted.disks))
        };
        wanted.stores.iter().map(store).max().map_or(main, |worst| worst.max(main))
    }

    /// Answers `Gone` from now on; its top is kept for when the volume is used again.
    async fn shut(&self) {
        for open in self.stores.borrow().iter() {
            open.store.set_full_policy(FullPolicy::Error); // Nobody waits for space any more.
        }
        let suspended = self.top.suspend().await;
        self.lead_to_error(&suspended, IoError::Gone);
        self.note_loss();
        self.close().await;
    }
}
