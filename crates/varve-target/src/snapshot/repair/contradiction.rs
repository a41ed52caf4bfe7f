//! How a store that contradicts itself is reported, and what becomes of it.
//!
//! What was read of a store is never asserted: its checksum says that it was written so, not that it is true. Where a
//! contradiction is met before anything is changed, the request fails and the store goes on. Where something was changed
//! in the belief that it holds, it is unknown what follows, and nothing is written to the log any more.

use super::super::SnapshotStore;
use varve_block::{Extent, IoError};

impl SnapshotStore {
    /// What was `expected` of `extent` of snapshot `snapshot` is not so, though it was just made so: the maps contradict
    /// each other. Nothing is written to the log any more.
    pub(in crate::snapshot) fn contradicts(
        &self,
        snapshot: u64,
        extent: Extent,
        expected: &'static str,
        found: &dyn std::fmt::Debug,
    ) -> IoError {
        tracing::error!(
            store = %self.id, snapshot, offset = extent.offset, length = extent.length, expected, ?found,
            "the exception store contradicts itself; nothing is written to it any more"
        );
        self.failed.shut(IoError::Corrupt)
    }
}
