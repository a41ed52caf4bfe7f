//! What is exposed as metrics, as data.

use varve_api::{DaemonStatus, Export, Group, Job, LogicalVolume, PhysicalVolume, Pool};
use varve_block::ArenaUse;
use varve_block::host::DiskCounters;

/// All that is exposed as metrics.
pub struct Figures {
    /// The daemon itself.
    pub status: DaemonStatus,
    /// Disks.
    pub disks: Vec<DiskFigures>,
    /// Groups, with the memory of their metadata.
    pub groups: Vec<Group>,
    /// Volumes.
    pub volumes: Vec<LogicalVolume>,
    /// Thin pools.
    pub pools: Vec<Pool>,
    /// Exports.
    pub exports: Vec<Export>,
    /// How much of the memory for requests is in use.
    pub arena: ArenaUse,
    /// Jobs that run or ended lately.
    pub jobs: Vec<Job>,
}

/// A disk and what was counted of it.
pub struct DiskFigures {
    /// The disk.
    pub disk: PhysicalVolume,
    /// Since the daemon opened it; nothing of one that is not open.
    pub counters: DiskCounters,
}
