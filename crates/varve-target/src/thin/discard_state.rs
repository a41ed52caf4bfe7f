//! What becomes of blocks that are not needed any more, and which of them the disk is being told of.

use std::cell::Cell;
use std::time::Duration;
use varve_block::{Moment, RangeLock};
use varve_format::text::Discards;

/// Requests at a time.
pub(super) const AT_ONCE: usize = 32;
/// So long blocks that were freed may wait until the disks are told of them.
pub(super) const PASS_INTERVAL: Duration = Duration::from_secs(2);

/// What there is to know about them.
#[derive(Default)]
pub(super) struct Passing {
    pub(super) policy: Cell<Discards>,
    /// Held by whoever tells the disks.
    pub(super) turn: RangeLock,
    /// How much data had been freed when the disks were told last, and when that was.
    pub(super) told: Cell<u64>,
    pub(super) told_at: Cell<Option<Moment>>,
}
