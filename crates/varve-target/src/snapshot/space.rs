//! What becomes of writes for which a store has no room, and who waits for room.

use crate::journal::SpaceWatch;
use crate::waiting_room::{Event, Patience, WaitingRoom};
use std::time::Duration;
use varve_block::RangeLock;
use varve_format::store::Descriptor;

/// How long somebody who reads keeps a snapshot from being given up.
pub(super) const READERS_TIMEOUT: Duration = Duration::from_secs(60);

/// What becomes of a change of the origin that needs a copy for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullPolicy {
    /// It waits until the store has grown or a snapshot was removed, at most so long; then it fails.
    Pause {
        /// How long one change waits in all.
        timeout: Duration,
    },
    /// The oldest snapshot that is not held, and over which nothing lies, goes, and then the next, until there is room.
    DropOldest,
    /// It fails with [`IoError::NoSpace`](varve_block::IoError::NoSpace).
    Error,
}

impl Default for FullPolicy {
    fn default() -> Self {
        FullPolicy::Pause { timeout: Duration::from_secs(60) }
    }
}

/// What the owner of a store should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// A change of the origin waits for room, the first one.
    Paused,
    /// No change of the origin waits for room any more.
    Resumed,
    /// A change of the origin waited in vain and failed.
    TimedOut,
    /// A snapshot went to make room.
    Dropped(Descriptor),
}

impl Event for StoreEvent {
    const VESSEL: &'static str = "the exception store";
    const PAUSED: Self = StoreEvent::Paused;
    const RESUMED: Self = StoreEvent::Resumed;
    const TIMED_OUT: Self = StoreEvent::TimedOut;
}

/// Who waits for room, and who makes some by letting a snapshot go.
pub(super) struct Room {
    pub(super) waiting: WaitingRoom<FullPolicy, StoreEvent>,
    pub(super) watch: SpaceWatch,
    pub(super) dropping: RangeLock,
}

impl Room {
    pub(super) fn new(policy: FullPolicy) -> Self {
        Self { waiting: WaitingRoom::new(policy), watch: SpaceWatch::default(), dropping: RangeLock::new() }
    }

    /// Room has come, or can be had for a checkpoint.
    pub(super) fn came(&self) {
        self.waiting.came();
    }

    /// An attempt begins (U2).
    pub(super) fn begin(&self, patience: &mut Patience) {
        self.waiting.begin(patience);
    }
}
