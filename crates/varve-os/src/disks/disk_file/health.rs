//! What is known of the health of an open disk.

use super::blocks::Blocks;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use varve_block::EventLimit;
use varve_block::host::DiskState;

/// How often failing requests of one disk are reported.
const FAILURES_INTERVAL: Duration = Duration::from_secs(10);

/// What is known of a disk's health.
#[derive(Debug)]
pub(crate) struct Health {
    /// Set once (HEALTH1 of `state.rs`).
    pub(super) out_of_use: OnceLock<DiskState>,
    /// The tick at which the length was looked at (HEALTH2 of `state.rs`).
    pub(super) checked: AtomicU64,
    pub(super) failures: EventLimit,
    pub(super) blocks: Blocks,
    /// Of these, those for want of space.
    pub(super) no_space: AtomicU64,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            out_of_use: OnceLock::new(),
            checked: AtomicU64::new(0),
            failures: EventLimit::new(FAILURES_INTERVAL),
            blocks: Blocks::default(),
            no_space: AtomicU64::new(0),
        }
    }
}
