//! How full a pool is, and what of it neither data nor nodes can have.

use super::Pool;
use std::collections::BTreeSet;
use varve_format::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES};
use varve_format::thin::{PART_SIZE, VolumeFlags};

/// How full a pool is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// All of it.
    pub size: u64,
    /// What data may take now.
    pub free: u64,
    /// What is pending free and comes back with the next checkpoint.
    pub returning: u64,
    /// What only metadata may take.
    pub reserve: u64,
    /// What superblocks, log and space map take.
    pub fixed: u64,
    /// The sum of the sizes of all volumes and snapshots outside of the trash.
    pub virtual_bytes: u64,
    /// Number of volumes that are no snapshots, outside of the trash.
    pub volumes: u64,
    /// Number of snapshots of volumes.
    pub snapshots: u64,
    /// Number of removed volumes and snapshots whose space has not all come back.
    pub removing: u64,
}

impl Pool {
    /// How full the pool is.
    pub fn usage(&self) -> PoolUsage {
        let volumes = self.volumes.all();
        let trash = volumes.values().filter(|volume| volume.trashed().is_some());
        let trash: BTreeSet<u64> = trash.map(|volume| volume.id).collect();
        let mut usage = PoolUsage::default();
        for volume in volumes.values() {
            if volume.has(VolumeFlags::REMOVING) {
                usage.removing += 1;
                continue;
            }
            match volume.snapshot_of {
                of if trash.contains(&of.unwrap_or(volume.id)) => continue,
                Some(_) => usage.snapshots += 1,
                None => usage.volumes += 1,
            }
            usage.virtual_bytes = usage.virtual_bytes.saturating_add(volume.bytes.get());
        }
        let pages = self.map.pages();
        PoolUsage {
            size: self.end_block.get().offset(),
            free: pages.free_blocks() * PART_SIZE,
            returning: pages.reclaimable_blocks() * PART_SIZE,
            reserve: self.floor_blocks() * PART_SIZE,
            fixed: self.fixed_blocks() * PART_SIZE,
            ..usage
        }
    }

    /// Blocks that neither data nor nodes can ever have.
    fn fixed_blocks(&self) -> u64 {
        let base = self.base_block();
        assert!(self.end_block.get() > base, "a pool has room behind its log");
        let groups = (self.end_block.get() - base).div_ceil(GROUP_BLOCKS);
        base.number() + groups * PAGE_PLACES
    }
}
