//! What is known of the health of an open disk.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use varve_block::EventLimit;

/// How often failing requests of one disk are told of.
const FAILURES_INTERVAL: Duration = Duration::from_secs(10);

/// What was counted of a disk since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskCounters {
    /// Requests that failed.
    pub errors: u64,
    /// Requests that took a second or longer.
    pub slow: u64,
}

/// Whether a disk is in use, or why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskState {
    /// It is.
    #[default]
    InUse,
    /// A flush or a durable write failed: what was acknowledged before may be lost (DISKFILE2).
    WritesLost,
    /// It became shorter: what lay beyond the new end is lost.
    Shrunk {
        /// Its length before, in bytes.
        expected: u64,
        /// Its length when that was found out, in bytes.
        found: u64,
    },
}

impl std::fmt::Display for DiskState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DiskState::InUse => f.write_str("it is in use"),
            DiskState::WritesLost => {
                f.write_str("a flush or a durable write failed: acknowledged writes may be lost")
            }
            DiskState::Shrunk { expected, found } => {
                write!(f, "it had {expected} bytes and has {found} now: the rest is lost")
            }
        }
    }
}

/// What is known of a disk's health.
#[derive(Debug)]
pub(crate) struct Health {
    /// Set once (HEALTH1 of `state.rs`).
    pub(super) out_of_use: OnceLock<DiskState>,
    /// The tick at which the length was looked at (HEALTH2 of `state.rs`).
    pub(super) checked: AtomicU64,
    pub(super) failures: EventLimit,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            out_of_use: OnceLock::new(),
            checked: AtomicU64::new(0),
            failures: EventLimit::new(FAILURES_INTERVAL),
        }
    }
}
