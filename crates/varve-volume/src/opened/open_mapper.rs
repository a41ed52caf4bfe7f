//! Takes volumes into use that programs map.

use super::mapper_link::MapperConnector;
use super::mappers::OpenMapper;
use crate::doors::gate::Gate;
use crate::host::Host;
use futures_util::future::{AbortHandle, join};
use std::time::Duration;
use uuid::Uuid;
use varve_block::{Device, LocalFuture};
use varve_target::delegate::{Delegate, DelegateOptions};
use varve_vg::table::MapperTarget;

/// Smallest unit of a request. A file that a mapper passes has no larger one.
const BLOCK_SIZE: u32 = 4096;
/// Most answers that are kept for a volume.
const ANSWERS_MAX: usize = 1 << 16;

/// The device of the volume `subject`, of `size` bytes, that the mapper of `target` maps. It need not be there. `spawn` starts what
/// keeps the connection.
pub(crate) fn open(
    host: &Host,
    (subject, gate): (Uuid, &Gate),
    target: &MapperTarget,
    size: u64,
    spawn: impl FnOnce(LocalFuture<'static, ()>) -> AbortHandle,
) -> Device {
    if let Some(device) = host.mappers.device(target.id) {
        return device;
    }
    let options = DelegateOptions {
        name: target.id.to_string(),
        size,
        block_size: BLOCK_SIZE,
        devices: host.mappers.given(target.id),
        answer_wait: Duration::from_millis(target.wait_ms),
        entries_max: ANSWERS_MAX,
    };
    let delegate = Delegate::new(options, &host.clock(), &host.arena());
    let connector = MapperConnector::new(host, subject, gate, &target.socket);
    let refusal = connector.refusals();
    let (device, kept) = (Device::new(delegate.clone()), delegate.clone());
    let task = spawn(Box::pin(async move {
        join(delegate.run(&connector), watch(&delegate, &connector)).await;
    }));
    host.mappers.insert(target.id, OpenMapper { delegate: kept, refusal, task });
    device
}

/// Tells when the mapper comes and goes; never ends.
async fn watch(delegate: &Delegate, connector: &MapperConnector) {
    loop {
        delegate.connected(true).await;
        connector.tell_connected();
        delegate.connected(false).await;
        connector.tell_away(delegate.why_away().as_deref());
    }
}
