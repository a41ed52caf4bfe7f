//! The snapshot stores of a group, as users name them.

use super::arrays::{incomplete, look};
use varve_api::{Code, Failure};
use varve_block::Device;
use varve_os::ShardContext;
use varve_vg::model::{LogicalVolume, Store};
use varve_vg::table::store_table;
use varve_vg::{Group, OpenGroup, Survey};

/// `VG/LV` of the store of the dependent snapshots, `VG/LV#N` of the store of the Nth independent one.
pub(super) fn store_name(group: &Group, volume: &LogicalVolume, store: &Store) -> String {
    let name = format!("{}/{}", group.name(), volume.name);
    match volume.independent_stores.iter().position(|other| other.id == store.id) {
        None => name,
        Some(index) => format!("{name}#{}", index + 1),
    }
}

/// All stores of a group with their volumes.
pub(super) fn all_stores(group: &Group) -> impl Iterator<Item = (&LogicalVolume, &Store)> {
    group.logical_volumes().iter().flat_map(|volume| volume.stores().map(move |store| (volume, store)))
}

/// The place in `survey.groups`, the volume and the store that `name` names.
pub(super) fn find_store(survey: &Survey, name: &str) -> Result<(usize, LogicalVolume, Store), Failure> {
    for (index, open) in survey.groups.iter().enumerate() {
        for (volume, store) in all_stores(open.group()) {
            if store_name(open.group(), volume, store) == name {
                return Ok((index, volume.clone(), store.clone()));
            }
        }
    }
    let stores = survey.groups.iter().flat_map(|open| {
        all_stores(open.group()).map(|(volume, store)| store_name(open.group(), volume, store))
    });
    let pools = survey.groups.iter().flat_map(|open| {
        let pools = open.group().logical_volumes().iter().filter(|volume| volume.is_pool());
        pools.map(|pool| format!("{}/{}", open.group().name(), pool.name))
    });
    let stores: Vec<String> = stores.chain(pools).collect();
    let known = if stores.is_empty() { "none".to_owned() } else { stores.join(", ") };
    let message = format!("there is no snapshot store and no pool {name} on these disks; there are: {known}");
    Err(Failure::new(Code::VolumeNotFound, message).help("name all disks of the group"))
}

/// The device of a store, to be read.
pub(super) async fn store_device(
    context: &ShardContext,
    open: &OpenGroup,
    volume: &LogicalVolume,
    store: &Store,
) -> Result<Device, Failure> {
    let table = store_table(open.group(), volume, store).map_err(|error| incomplete(&error))?;
    let name = format!("{}/{}", open.group().name(), volume.name);
    let opened = look(context, &table, open).await.map_err(|failure| failure.about(&name, None))?;
    Ok(opened.device)
}
