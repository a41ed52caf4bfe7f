//! What becomes of writes for which a store has no room, and the requests that wait for room.

use crate::journal::SpaceWatch;
use crate::space_waiters::{SpaceEvent, SpaceWait, SpaceWaiters};
use std::time::Duration;
use varve_block::RangeLock;
use varve_format::store::Descriptor;

/// How long reads under way keep a snapshot from being removed for want of space.
pub(in crate::snapshot) const READERS_TIMEOUT: Duration = Duration::from_secs(60);

/// What becomes of a change of the origin that needs a copy for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullPolicy {
    /// It waits until the store has grown or a snapshot was removed, at most so long; then it fails.
    Pause {
        /// How long one change waits in all.
        timeout: Duration,
    },
    /// The oldest snapshot that is not held and backs nothing is removed, then the next, until there is room.
    DropOldest,
    /// It fails with [`IoError::NoSpace`](varve_block::IoError::NoSpace).
    Error,
}

impl Default for FullPolicy {
    fn default() -> Self {
        FullPolicy::Pause { timeout: Duration::from_secs(60) }
    }
}

/// An event for the owner of a store; what is dropped to make room is a snapshot.
pub type StoreEvent = SpaceEvent<Descriptor>;

/// Waiters for space, and the lock held to drop a snapshot.
pub(in crate::snapshot) struct Waiters {
    pub(in crate::snapshot) queue: SpaceWaiters<FullPolicy, Descriptor>,
    pub(in crate::snapshot) watch: SpaceWatch,
    pub(in crate::snapshot) dropping: RangeLock,
}

impl Waiters {
    pub(in crate::snapshot) fn new(policy: FullPolicy) -> Self {
        Self {
            queue: SpaceWaiters::new("the exception store", policy),
            watch: SpaceWatch::default(),
            dropping: RangeLock::new(),
        }
    }

    /// Space has come, or can be had for a checkpoint.
    pub(in crate::snapshot) fn notify(&self) {
        self.queue.room_came();
    }

    /// An attempt begins (STOREFULL2).
    pub(in crate::snapshot) fn begin(&self, wait: &mut SpaceWait) {
        self.queue.begin(wait);
    }
}
