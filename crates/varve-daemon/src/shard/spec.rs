//! What a volume is to be made of: from the control to the volume's shard.

use super::host::Host;
use super::quota::CacheQuota;
use crate::failures;
use crate::world::DiskRef;
use std::collections::BTreeMap;
use varve_api::{Code, Failure};
use varve_block::Device;
use varve_vg::activate::build;
use varve_vg::model::{PvName, StorePolicy};
use varve_vg::table::Table;
use varve_vg::tree::VolumeNode;

/// The disks of a group, by the names that its tables use.
pub(crate) type Disks = BTreeMap<PvName, DiskRef>;

/// All that a volume is made of; goes from the control to the volume's shard.
#[derive(Clone)]
pub(crate) struct ActivationSpec {
    /// What it is called: `VG/LV`.
    pub(crate) name: String,
    /// What it is made of.
    pub(crate) node: VolumeNode,
    /// What is done when its stores, or the pool, fill.
    pub(crate) policy: StorePolicy,
    /// How the metadata of each of its stores, or of the pool, is kept.
    pub(crate) quota: CacheQuota,
    /// The group's disks.
    pub(crate) disks: Disks,
}

/// The device of a table on this shard.
pub(crate) fn device_of(host: &Host, table: &Table, disks: &Disks) -> Result<Device, Failure> {
    if table.array().is_some() {
        let message = "mirrors and ddraid cannot be taken into use: not built yet";
        return Err(Failure::new(Code::NotBuilt, message));
    }
    let devices = disks.iter().map(|(name, file)| (*name, host.disk(file))).collect();
    build(table, &devices, &BTreeMap::new()).map_err(|error| failures::io("the volume's disks", error))
}
