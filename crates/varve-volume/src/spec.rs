//! What a volume is to be made of: from the control to the volume's shard.

use super::layers::Image;
use super::opened::quota::CacheQuota;
use crate::world::DiskRef;
use std::collections::BTreeMap;
use varve_block::Portal;
use varve_vg::model::{PvName, StorePolicy};
use varve_vg::tree::VolumeNode;

/// The disks of a group, by the names that its tables use.
pub type Disks = BTreeMap<PvName, DiskRef>;

/// All that a volume is made of; goes from the control to the volume's shard.
#[derive(Clone)]
pub struct ActivationSpec {
    /// What it is called: `VG/LV`.
    pub name: String,
    /// What it is made of.
    pub node: VolumeNode,
    /// What is done when its stores, or the pool, fill.
    pub policy: StorePolicy,
    /// How the metadata of each of its stores, or of the pool, is kept.
    pub quota: CacheQuota,
    /// The group's disks.
    pub disks: Disks,
    /// The image in which it is, if it is in one, open to be written.
    pub image: Option<Image>,
    /// The volumes that its mapper may name.
    pub devices: Vec<MapperDevice>,
    /// What a person has accepted of its arrays.
    pub accepts: Accepts,
}

/// What a version of a group says of a volume or pool.
#[derive(Clone)]
pub struct Wanted {
    /// What it is made of.
    pub node: VolumeNode,
    /// The group's disks.
    pub disks: Disks,
}

/// A volume of the group that a mapper may name.
#[derive(Clone)]
pub struct MapperDevice {
    /// The identity that is passed to the mapper.
    pub name: String,
    /// The way to it.
    pub portal: Portal,
}

/// What a person has accepted of arrays that are taken into use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accepts {
    /// That members are missing that may know better: they do not.
    pub missing: bool,
    /// That regions are lost whose content is unknown without a member that is missing.
    pub stale: bool,
}
