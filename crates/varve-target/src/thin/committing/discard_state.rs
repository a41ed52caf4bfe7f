//! The policy for discards of blocks that are not needed any more, and when they were last sent to the disks.

use std::cell::Cell;
use std::time::Duration;
use varve_block::{Moment, RangeLock};
use varve_format::text::Discards;

/// Requests at a time.
pub(in crate::thin) const AT_ONCE: usize = 32;
/// The least time between two rounds of discards of a pool in use.
pub(in crate::thin) const PASS_INTERVAL: Duration = Duration::from_secs(2);

/// What there is to know about them.
#[derive(Default)]
pub(in crate::thin) struct Passing {
    pub(in crate::thin) policy: Cell<Discards>,
    /// Held while discards are sent to the disks.
    pub(in crate::thin) turn: RangeLock,
    /// How much data had been freed when discards were last sent to the disks, and when that was.
    pub(in crate::thin) told: Cell<u64>,
    pub(in crate::thin) told_at: Cell<Option<Moment>>,
}
