//! What tests of arrays share: how an array is described, and opened as its users open it.

use std::rc::Rc;
use varve_block::Device;
use varve_sim::World;
use varve_target::array::{Array, ArrayError, ArrayLayout, ArrayOptions, ArraySpec, Member, Uuid};

/// Layouts that differ in who decides, and in who has the log.
pub(crate) const LAYOUTS: [ArrayLayout; 3] = [
    ArrayLayout::Mirror { copies: 2 },
    ArrayLayout::Mirror { copies: 3 },
    ArrayLayout::Ddraid { order: 1, block_size: 4096 },
];

/// An array of `size` bytes without checksums.
pub(crate) fn spec(layout: ArrayLayout, size: u64, metadata_size: u64) -> ArraySpec {
    ArraySpec { id: Uuid::from_u128(7 << 64), layout, size, metadata_size, checksums: false }
}

/// The member in `place`, which is there if it has a device.
pub(crate) fn member(place: usize, device: Option<Device>) -> Member {
    Member { id: Uuid::from_u128(100 + place as u128), device }
}

/// All members, in the order of their places.
pub(crate) fn members(devices: impl IntoIterator<Item = Device>) -> Vec<Member> {
    devices.into_iter().enumerate().map(|(place, device)| member(place, Some(device))).collect()
}

/// Opens an array that works in the background until it is closed or the world ends.
pub(crate) async fn open(
    world: &World,
    spec: ArraySpec,
    members: Vec<Member>,
    options: ArrayOptions,
) -> Result<Rc<Array>, ArrayError> {
    let array = Array::open(spec, members, options).await?;
    let worker = Rc::clone(&array);
    world.spawner().spawn(async move { worker.background().await });
    Ok(array)
}
