//! Takes volumes into use on their shard, and out of use.

use super::health::Health;
use super::losses::DoorOf;
use super::reconcile;
use crate::ShardContext;
use crate::doors::gate::Gate;
use crate::failures;
use crate::fault;
use crate::host::Host;
use crate::opened::open_array::{Owner, device_of, make};
use crate::opened::{images, pool_serving};
use crate::spec::{ActivationSpec, Disks, MapperDevice};
use crate::volume_stack::VolumeStack;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Device, IoError};
use varve_target::snapshot::{FormatOptions, SnapshotStore};
use varve_vg::table::Table;

/// Takes a volume or pool into use on this shard. If that fails nothing of it is in use.
pub(crate) async fn open(
    context: &ShardContext,
    spec: &ActivationSpec,
    health: &Health,
) -> Result<(), Failure> {
    fault::panic_at(&spec.name, "open");
    let id = spec.node.id;
    reconcile::retire(context, id).await; // What is there cannot be used.
    let opened = match spec.node.is_pool() {
        true => pool_serving::activate(context, spec, health).await,
        false => open_thick(context, spec, health).await,
    };
    if opened.is_err() {
        reconcile::retire(context, id).await;
        let _closed = context.arrays.close(id).await; // Why it cannot be used is reported already.
        let _closed = images::close(context, id).await;
        context.mappers.close(id);
    }
    opened
}

async fn open_thick(context: &ShardContext, spec: &ActivationSpec, health: &Health) -> Result<(), Failure> {
    let gate = Gate::default();
    let accepts = spec.accepts;
    let owner = Owner { subject: spec.node.id, gate: &gate, health, accepts };
    if let Some(image) = &spec.image {
        images::open(context, spec.node.id, image).await?;
    }
    let imported = |device: &MapperDevice| (device.name.clone(), context.host().world.import(&device.portal));
    context.mappers.give(spec.node.id, spec.devices.iter().map(imported).collect());
    let base = device_of(context, owner, spec.node.id, &spec.node.table, &spec.disks).await?;
    let base = fault::with_injected_bug(base, &spec.name);
    let top = context.state().top(spec.node.id, &base);
    let stack = VolumeStack::thick(spec, (gate, base), top, context, health);
    for store in &spec.node.stores {
        let options = stack.quota.get().store_options();
        if let Err(failure) = stack.open_store(store, &spec.disks, options).await {
            stack.close().await;
            return Err(failure);
        }
    }
    stack.turn_top().await?;
    stack.turn_views().await;
    let replaced = context.state().stacks.borrow_mut().insert(spec.node.id, stack);
    assert!(replaced.is_none(), "a volume is activated once");
    Ok(())
}

/// Closes a volume; everything that was acknowledged is durable afterwards, and nothing of it is written any more.
pub(crate) async fn close(context: &ShardContext, volume: Uuid) -> Result<(), Failure> {
    context.moves.stop_copying(volume);
    let closed = write_last(context, volume).await;
    context.moves.forget(volume);
    closed
}

async fn write_last(context: &ShardContext, volume: Uuid) -> Result<(), Failure> {
    let pool = context.state().pools.borrow_mut().remove(&volume);
    if let Some(pool) = pool {
        return pool_serving::deactivate(context, &pool).await;
    }
    let stack = context.state().stacks.borrow_mut().remove(&volume);
    match stack {
        Some(stack) => {
            context.mappers.let_fail(volume, false); // The last flush waits for a mapper as long as any request may.
            let flushed = stack.flush().await.map_err(|error| last_flush(context, volume, error));
            stack.close().await;
            stack.gate.close();
            flushed
        }
        None => Ok(()),
    }
}

/// The error of a last flush: of the disks, or of a mapper that did not come back for it.
fn last_flush(context: &ShardContext, volume: Uuid, error: IoError) -> Failure {
    let trouble = match context.mappers.facts(volume) {
        Some(facts) if !facts.status.is_connected => {
            format!("its mapper is away: {}", facts.why_away.unwrap_or_default())
        }
        Some(facts) if facts.status.has_failed => "its mapper does not answer".to_owned(),
        _ => return failures::io("the last flush", error),
    };
    Failure::new(Code::MediumFailed, format!("the last flush: {trouble}"))
        .help("what was written since the flush before it is lost")
}

/// A device for a client's door onto a volume or one of its snapshots that lives on this shard; any byte can be addressed.
pub fn device(context: &ShardContext, volume: Uuid, snapshot: Option<&str>) -> Option<Device> {
    door(context, volume, snapshot, DoorOf::Client)
}

/// The same for any door.
pub fn door(context: &ShardContext, volume: Uuid, snapshot: Option<&str>, of: DoorOf) -> Option<Device> {
    let stack = context.stack(volume)?;
    let below = match snapshot {
        None => stack.top().switch.device(),
        Some(name) => stack.view(name).ok()?.device(),
    };
    Some(stack.top().losses.door(below, of))
}

/// Makes an empty store where `table` says; it is not in use yet.
pub async fn format_store(
    host: &Host,
    table: &Table,
    disks: &Disks,
    id: Uuid,
    chunk_size: u64,
) -> Result<(), Failure> {
    let options = FormatOptions { chunk_size, ..FormatOptions::new(id) };
    make(host, table, disks, async |device| {
        let made = SnapshotStore::format(device, &host.arena(), options).await;
        made.map_err(|error| failures::store("the snapshot store", &error))
    })
    .await
}
