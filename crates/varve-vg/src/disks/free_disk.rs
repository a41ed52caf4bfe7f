//! A physical volume that belongs to no group.

use crate::disks::disk::Disk;
use crate::plan::NewDisk;
use varve_format::Label;

/// A physical volume that belongs to no group.
#[derive(Clone)]
pub struct FreeDisk {
    /// The disk.
    pub disk: Disk,
    /// Its label.
    pub label: Label,
}

impl FreeDisk {
    /// The disk, for a plan that takes it into a group.
    pub fn as_new_disk(&self) -> NewDisk {
        let Label { pv: id, size, data_offset, .. } = self.label;
        NewDisk { id, size, data_offset, path: self.disk.path.clone() }
    }
}
