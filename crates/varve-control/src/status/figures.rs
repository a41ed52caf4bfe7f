//! What is exposed as metrics, as data.

use varve_api::{DaemonStatus, Export, Group, LogicalVolume, Pool};
use varve_block::ArenaUse;

/// All that is exposed as metrics.
pub struct Figures {
    /// The daemon itself.
    pub status: DaemonStatus,
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
    /// Jobs at work.
    pub jobs_running: u64,
}
