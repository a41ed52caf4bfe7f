//! Takes volumes into use on their shard.

use super::close::close;
use super::health::Health;
use super::losses::DoorOf;
use super::reason::Reason;
use crate::ShardContext;
use crate::events::VolumeEvent;
use crate::failures;
use crate::fault;
use crate::host::Host;
use crate::opened::children::Opened;
use crate::opened::open_array::make;
use crate::opened::pool_serving;
use crate::served::Served;
use crate::spec::{ActivationSpec, Disks};
use crate::volume_stack::VolumeStack;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::Device;
use varve_target::snapshot::{FormatOptions, SnapshotStore};
use varve_vg::table::Table;

/// The state of a volume or pool that is taken into use: when it fails it is closed, and its control notified.
fn health_of(context: &ShardContext, volume: Uuid) -> Health {
    let context = context.apart();
    Health::new(move |reason| {
        context.clone().spawner().spawn(async move {
            let _failed = close(&context, volume, Reason::Failed).await;
            context.tell(VolumeEvent::Failed { volume, reason });
        });
    })
}

/// Takes a volume or pool into use on this shard. If that fails nothing of it is in use. A panic meanwhile is an error, and takes it out
/// of use.
pub async fn activate(context: &ShardContext, spec: &ActivationSpec) -> Result<(), Failure> {
    let health = health_of(context, spec.node.id);
    let opened = health.contain(Box::pin(open(context, spec, &health))).await;
    opened.unwrap_or_else(|_| Err(failures::failed(&spec.name, spec.node.is_pool(), &health.reason())))
}

async fn open(context: &ShardContext, spec: &ActivationSpec, health: &Health) -> Result<(), Failure> {
    fault::panic_at(&spec.name, "open");
    close(context, spec.node.id, Reason::Fenced).await?; // What is there cannot be used.
    let opened = Opened::new(context, spec, health);
    context.state().opened.insert(&opened);
    let served = match spec.node.is_pool() {
        true => pool_serving::activate(context, spec, &opened).await,
        false => open_thick(context, spec, &opened).await,
    };
    opened.accepts.take();
    if served.is_err() {
        // Why it cannot be used is reported already.
        let _closed = close(context, spec.node.id, Reason::Fenced).await;
        let _closed = opened.close().await;
    }
    served
}

async fn open_thick(
    context: &ShardContext,
    spec: &ActivationSpec,
    opened: &Rc<Opened>,
) -> Result<(), Failure> {
    let id = spec.node.id;
    if let Some(image) = &spec.image {
        opened.open_image(image).await?;
    }
    let base = opened.device_of(id, &spec.node.table, &spec.disks).await?;
    let base = fault::with_injected_bug(base, &spec.name);
    let top = context.state().top(id, &base);
    let stack = VolumeStack::thick(spec, base, top, opened);
    if let Err(failure) = serve_thick(&stack, spec).await {
        stack.close().await;
        return Err(failure);
    }
    context.state().serve(id, Served::Stack(stack));
    Ok(())
}

/// Opens the stores of a volume, and leads its doors to it.
async fn serve_thick(stack: &VolumeStack, spec: &ActivationSpec) -> Result<(), Failure> {
    for store in &spec.node.stores {
        let options = stack.quota.get().store_options();
        stack.open_store(store, &spec.disks, options).await?;
    }
    stack.turn_top().await?;
    stack.turn_views().await;
    Ok(())
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
