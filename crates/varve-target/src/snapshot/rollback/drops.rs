//! A rollback drops the preserved copies that it has copied back and that are not needed any more.
//!
//! The device holds the content then, so the target finds it there, as all parts that never changed; a comparison does
//! not name them, and their space is free. A copy stays where something newer was preserved for a snapshot between the
//! target and the boundary: the target would find that instead. It stays, too, where the target was written, for older
//! snapshots need what the origin held (ROLLBACK8).

use super::super::batch::Ticket;
use super::super::{InjectedBug, SnapshotStore};
use super::Rollback;
use crate::pdata::{Pages, Stop};
use crate::snapshot::batch::Work;
use varve_block::{Extent, IoError};
use varve_format::store::Entry;

impl SnapshotStore {
    /// Has the log say that what the target found of `restored` in the store is dropped, once the commits of the
    /// tickets have ended. The device holds it, durably; the caller holds `copies`, and the log does not say yet that
    /// the parts are restored (ROLLBACK8).
    pub(super) async fn join_drops(&self, restored: &[Extent]) -> Result<Vec<Ticket>, IoError> {
        let Some((snapshot, _)) = self.target() else { return Ok(Vec::new()) };
        let mut tickets = Vec::new();
        for extent in restored {
            let redundant = self.map.run(|pages| self.try_redundant(pages, *extent)).await?;
            for extent in redundant {
                assert!(!self.shows_device(extent), "ROLLBACK8: {extent:?} is not restored yet");
                tickets.push(self.pipeline.join(Work::Entry(Entry::Dropped { snapshot, extent })));
            }
        }
        Ok(tickets)
    }

    /// The parts of `extent` that the target and all snapshots of before the boundary that are not older find at one place.
    fn try_redundant(&self, pages: &mut Pages, extent: Extent) -> Result<Vec<Extent>, Stop> {
        let contents = self.contents.borrow();
        let Some(Rollback { snapshot, boundary, target_size, .. }) = &contents.rollback else {
            return Ok(Vec::new());
        };
        let Some(inside) = extent.intersect(Extent::new(0, *target_size)) else { return Ok(Vec::new()) };
        let newest =
            contents.snapshots.range(..boundary).next_back().map_or(*snapshot, |(newest, _)| *newest);
        if self.has_bug(InjectedBug::DropNeeded) {
            return Ok(vec![inside]);
        }
        self.map.try_shared(pages, (*snapshot, newest), inside)
    }

    /// Sees drops through. Without room for the nodes that they change the copies stay; nothing else depends on that.
    pub(super) async fn await_drops(&self, tickets: Vec<Ticket>) -> Result<(), IoError> {
        match self.await_commits(tickets).await {
            Err(IoError::NoSpace) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
