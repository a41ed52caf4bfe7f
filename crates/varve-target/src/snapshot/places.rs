//! Where the bytes of a snapshot, or of an origin that is rolled back, lie: what its reads and its map are led by.
//!
//! An answer holds what a read holds: an epoch of the store's readers, what a rollback would take away (ROLLBACK5), and
//! the parts of the origin that show through, so that they do not change meanwhile (SNAPSHOT2).

use super::SnapshotStore;
use super::map::{Run, Source};
use super::rollback::ORIGIN;
use crate::pdata::InUse;
use varve_block::{
    Allocation, Extent, IoError, LockMode, MIB, MapAnswer, MapGuard, MapPiece, RangeGuard, align_down,
};
use varve_format::store::PART_SIZE;

/// The most that one answer is about: it may cover less than was asked, and takes a few thousand runs of memory and one look at
/// the maps at most.
const ANSWER_BYTES: u64 = 16 * MIB;

/// Where some bytes are read, and what keeps them there.
pub(super) struct Found {
    /// In order; none wants a request.
    pub(super) pieces: Vec<MapPiece>,
    guards: (Option<RangeGuard>, InUse, Option<RangeGuard>),
}

impl Found {
    /// As a map answer, for a caller that moves the bytes itself.
    pub(super) fn answer(self) -> MapAnswer {
        let mut answer = MapAnswer::default();
        self.pieces.into_iter().for_each(|piece| answer.push(piece));
        answer.keeping(MapGuard::holding(self.guards))
    }
}

/// As much of `extent` as one answer is about.
pub(super) fn first_of(extent: Extent) -> Extent {
    let end = align_down(extent.offset + ANSWER_BYTES, ANSWER_BYTES).min(extent.end());
    assert!(end > extent.offset || extent.is_empty(), "MAP1: a byte at least");
    Extent::between(extent.offset, end)
}

impl SnapshotStore {
    /// Where what snapshot `id` shows in `extent` is read.
    pub(super) async fn find_snapshot(&self, id: u64, extent: Extent) -> Result<Found, IoError> {
        let held = self.hold_target(id, extent).await; // ROLLBACK5: before `falls`
        let (mut runs, mut in_use) = self.shown(id, extent).await?;
        let mut shared = None;
        if runs.iter().any(|run| run.source == Source::Below) {
            // SNAPSHOT2: from now on no task takes these parts of the origin away; look again, for we may have waited.
            shared = Some(self.falls.lock(extent.align_out(PART_SIZE), LockMode::Shared).await);
            (runs, in_use) = self.shown(id, extent).await?;
        }
        Ok(self.found(runs, (held, in_use, shared)))
    }

    /// Where what the origin shows in `extent` is read.
    pub(super) async fn find_origin(&self, extent: Extent) -> Result<Found, IoError> {
        let held = self.hold_target(ORIGIN, extent).await;
        let (runs, in_use) = self.shown(ORIGIN, extent).await?;
        Ok(self.found(runs, (held, in_use, None)))
    }

    fn found(&self, runs: Vec<Run>, guards: (Option<RangeGuard>, InUse, Option<RangeGuard>)) -> Found {
        Found { pieces: runs.into_iter().map(|run| self.piece_of(run)).collect(), guards }
    }

    /// The same run as a piece.
    pub(super) fn piece_of(&self, run: Run) -> MapPiece {
        let length = run.extent.length;
        assert!(length > 0, "MAP1: {run:?}");
        match run.source {
            Source::Store(place) => {
                MapPiece::on(&self.store_device(), place, length).holding(Allocation::Data)
            }
            Source::Below => MapPiece::on(&self.origin_device(), run.extent.offset, length),
            Source::Zeros => MapPiece::hole(length),
        }
    }
}
