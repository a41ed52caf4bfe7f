//! What is told of a store that contradicts itself, and what becomes of it.
//!
//! What was read of a store is never asserted: its checksum says that it was written so, not that it is true. Where a
//! contradiction is met before anything is changed, the request fails and the store goes on. Where something was changed
//! in the belief that it holds, nobody knows what follows, and nothing is written to the log any more.

use super::SnapshotStore;
use crate::pdata::MapError;
use varve_block::{Extent, IoError};
use varve_format::store::{StoreFormatError, Uuid};

/// What a request is told of an error of the maps of `store`; a person finds the block in the trace.
pub(super) fn report(store: Uuid, error: MapError) -> IoError {
    match error {
        MapError::Io(error) => error,
        MapError::Full => IoError::NoSpace,
        MapError::Damaged { block, error } => {
            tracing::error!(%store, block, %error, "a block of the exception store's maps is damaged");
            IoError::Corrupt
        }
    }
}

/// Tells of a block of the store, at byte `address`, that is not what leads there expects.
pub(super) fn tell_of_block(store: Uuid, address: u64, expected: &str, found: &StoreFormatError) {
    tracing::error!(%store, address, expected, %found, "a block of the exception store is damaged");
}

impl SnapshotStore {
    /// What was `expected` of `extent` of snapshot `snapshot` is not so, though it was just made so: the maps contradict
    /// each other. Nothing is written to the log any more.
    pub(super) fn contradicts(
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
