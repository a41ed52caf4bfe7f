//! Pools and their volumes, taken into use on their shard and out of use.
//!
//! Invariant POOLSERVE1: every volume of a pool in use has a stack, but for those in the trash, even if its external origin is missing. Its pool tells what
//! there is of it all the same, and removes it and its snapshots; requests to it fail.

use super::children::Opened;
use super::open_array::make;
use super::open_pool::OpenPool;
use crate::ShardContext;
use crate::content::thin::{Thin, is_in_use, volume_id};
use crate::failures;
use crate::fault;
use crate::host::Host;
use crate::served::Served;
use crate::spec::{ActivationSpec, Disks};
use crate::volume_stack::VolumeStack;
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Device, IoError};
use varve_target::ErrorTarget;
use varve_target::thin::{Pool, PoolError, PoolFormat};
use varve_vg::table::Table;

/// The shape of what stands in the place of a volume whose origin is missing.
const UNIT: u64 = 4096;
const BLOCK_SIZE: u32 = 4096;

/// Makes a pool where `table` says, in which nothing is.
pub async fn format(
    host: &Host,
    table: &Table,
    disks: &Disks,
    id: Uuid,
    block_size: u64,
) -> Result<(), Failure> {
    let format = PoolFormat { block_size, ..PoolFormat::new(id) };
    make(host, table, disks, async |device| {
        let made = Pool::format(device, &host.arena(), format).await;
        made.map_err(|error| failures::pool("the pool", &error))
    })
    .await
}

/// Takes a pool and its volumes into use on this shard.
pub(crate) async fn activate(
    context: &ShardContext,
    spec: &ActivationSpec,
    opened: &Rc<Opened>,
) -> Result<(), Failure> {
    let device = opened.device_of(spec.node.id, &spec.node.table, &spec.disks).await?;
    let device = fault::with_injected_bug(device, &spec.name);
    let pool = Pool::open(device, context.arena(), context.clock(), spec.quota.pool_options()).await;
    let pool = pool.map_err(|error| unreadable(opened, spec, &error))?;
    if pool.id() != spec.node.id {
        let message = "another pool lies where this one should be";
        return Err(Failure::new(Code::VolumeUnusable, message).help("varve vg history VG"));
    }
    let open = OpenPool::new(spec, pool, opened);
    context.state().serve(spec.node.id, Served::Pool(Rc::clone(&open)));
    // The origins of some are missing until they are attached (POOLSERVE1).
    for volume in open.pool.list().iter().filter(|volume| is_in_use(volume)) {
        enter(&open, context, volume.id).await?;
    }
    Ok(())
}

/// Why a pool cannot be opened: what it holds itself may lie in regions of its array that wait for a member.
fn unreadable(opened: &Opened, spec: &ActivationSpec, error: &PoolError) -> Failure {
    let status = spec.node.table.array().and_then(|array| opened.arrays.status(array.id));
    let lost = status.map_or(0, |status| status.lost_regions.len());
    if lost == 0 || *error != PoolError::Io(IoError::Corrupt) {
        return failures::pool("the pool", error);
    }
    let message = format!(
        "the pool's metadata cannot be read: {lost} regions of its array wait for a member that is missing"
    );
    Failure::new(Code::VolumeUnusable, message).help(format!(
        "bring its disk back, then varve pv scan; or give up what was being written there: varve array rebuild {} \
         --accept-stale all",
        spec.name
    ))
}

/// Serves one volume of a pool from now on, or knows it at least (POOLSERVE1).
pub(crate) async fn enter(open: &Rc<OpenPool>, context: &ShardContext, number: u64) -> Result<(), Failure> {
    let (base, lacks_origin) = match open.pool.volume(number) {
        Ok(base) => (base, false),
        Err(PoolError::OriginMissing) => (nowhere(), true),
        Err(error) => return Err(failures::pool("the volume", &error)),
    };
    let base = fault::with_injected_bug(base, &open.full_name(number));
    let thin = Thin { open: Rc::clone(open), number, lacks_origin: Cell::new(lacks_origin) };
    let id = volume_id(open.id, number);
    let top = context.state().top(id, &base);
    let stack = VolumeStack::thin(id, thin, base, top);
    stack.turn_top().await?;
    stack.turn_views().await;
    context.state().serve(id, Served::Stack(stack));
    Ok(())
}

/// Stands in for a volume whose origin is missing (POOLSERVE1): it cannot be opened, and every request to it fails.
fn nowhere() -> Device {
    Device::new(ErrorTarget::new(UNIT, BLOCK_SIZE, IoError::Gone))
}

/// Serves a volume of a pool if it can be used now: one that is new, or whose origin was missing (POOLSERVE1).
pub(crate) async fn serve(open: &Rc<OpenPool>, context: &ShardContext, number: u64) -> Result<(), Failure> {
    let Some(stack) = context.stack(volume_id(open.id, number)) else {
        return enter(open, context, number).await;
    };
    match (open.pool.volume(number), &stack.thin) {
        (Ok(base), Some(thin)) if thin.lacks_origin.get() => {
            stack.lead_to(base).await?;
            thin.lacks_origin.set(false);
        }
        _ => {}
    }
    stack.turn_lost_views().await; // A snapshot may have an origin though the volume has none any more.
    Ok(())
}

/// A pool on this shard.
pub(crate) fn pool(context: &ShardContext, id: Uuid) -> Result<Rc<OpenPool>, Failure> {
    let found = context.pool(id);
    found.ok_or_else(|| Failure::new(Code::VolumeUnusable, "the pool is not active").help("varve pool list"))
}
