//! Takes volumes into use that programs map.

use super::children::Opened;
use super::mapper_link::MapperConnector;
use super::mappers::OpenMapper;
use futures_util::future::join;
use std::time::Duration;
use varve_block::Device;
use varve_target::delegate::{Delegate, DelegateOptions};
use varve_vg::table::MapperTarget;

/// Smallest unit of a request. A file that a mapper passes has no larger one.
const BLOCK_SIZE: u32 = 4096;
/// Most answers that are kept for a volume.
const ANSWERS_MAX: usize = 1 << 16;

/// The device of a volume of `size` bytes that the mapper of `target` maps. It need not be there.
pub(crate) fn open(opened: &Opened, target: &MapperTarget, size: u64) -> Device {
    let (host, mapper) = (&opened.host, &opened.mapper);
    if let Some(device) = mapper.device() {
        return device;
    }
    let options = DelegateOptions {
        name: target.id.to_string(),
        size,
        block_size: BLOCK_SIZE,
        devices: mapper.devices(),
        answer_wait: Duration::from_millis(target.wait_ms),
        entries_max: ANSWERS_MAX,
    };
    let delegate = Delegate::new(options, &host.clock(), &host.arena());
    let connector = MapperConnector::new(host, opened.id, &opened.gate, &target.socket);
    let refusal = connector.refusals();
    let (device, kept) = (Device::new(delegate.clone()), delegate.clone());
    let task = opened.spawn(async move {
        join(delegate.run(&connector), watch(&delegate, &connector)).await;
    });
    mapper.insert(OpenMapper { delegate: kept, refusal, task });
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
