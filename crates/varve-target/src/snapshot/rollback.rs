//! Rolling the origin back to a snapshot, while newer and older snapshots stay what they are.
//!
//! The log says that it begins and that it has ended; between the two, every run in which the snapshot differs from
//! the origin is preserved for the newest snapshot, as any change is, and then overwritten.
//!
//! Invariants:
//! - K1. What the snapshot shows does not change while the origin is rolled back to it: what is preserved meanwhile
//!   is preserved for the newest, and the snapshot found its content before that; its own writes wait.
//! - K2. Hence a rollback that was interrupted is begun again from the start, and ends the same.

use super::map::{Run, Source};
use super::{SnapshotStore, StoreError, index};
use futures_util::stream::{self, StreamExt};
use std::cell::Cell;
use varve_block::{Durability, Extent, IoError, MIB};
use varve_format::store::Entry;

/// How much is copied as one.
const STEP_BYTES: u64 = MIB;
/// How much of a snapshot is looked at as one.
const WINDOW_BYTES: u64 = 1 << 30;
/// How many steps are under way at the same time.
const STEPS: usize = 4;

/// How far a rollback is, in bytes.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes done.
    pub done: Cell<u64>,
    /// Bytes to do in all.
    pub total: Cell<u64>,
}

impl SnapshotStore {
    /// Makes the origin what snapshot `id` shows now. Requests to the origin wait until it is done.
    pub async fn rollback(&self, id: u64, progress: &Progress) -> Result<(), StoreError> {
        if self.has_siblings.get() {
            return Err(StoreError::Misfit("the origin has independent snapshots, which would not be asked")); // V3
        }
        if self.rolling_back.replace(true) {
            return Err(StoreError::Busy);
        }
        let _rolling_back = Reset(&self.rolling_back);
        let _managing = self.managing.lock(Extent::new(0, 1), varve_block::LockMode::Exclusive).await;
        let view = self.view_state(id).ok_or(StoreError::NotFound)?;
        if self.contents.borrow().rollback.is_some_and(|begun| begun != id) {
            return Err(StoreError::Busy);
        }
        let (_changes, _reads) = (self.changes.close(), self.reads.close());
        self.changes.drained().await;
        let _view = view.gate.close(); // K1
        view.gate.drained().await;
        self.flush_written().await?; // K1: a crash must not take back what the snapshot shows now.
        self.has_room_for_rollback(id).await?;
        let begun = self.log_entry(Entry::RollbackBegun(id)).await;
        let outcome = match begun {
            Ok(()) => self.roll_back(id, progress).await.map_err(|error| {
                tracing::error!(store = %self.id, snapshot = id, %error, "the rollback stopped half way");
                StoreError::HalfRolledBack
            }),
            Err(error) => Err(error.into()),
        };
        self.state.borrow_mut().held_back = 0;
        // If the log had no room nothing was written; after any other error it may say that the rollback has begun.
        self.half_rolled_back.set(outcome.is_err() && begun != Err(IoError::NoSpace));
        outcome
    }

    /// Finishes a rollback that a crash interrupted, before anybody is served.
    pub(super) async fn finish_rollback_of_before(&self) -> Result<(), StoreError> {
        let Some(id) = self.contents.borrow().rollback else { return Ok(()) };
        self.rolling_back.set(true);
        let _rolling_back = Reset(&self.rolling_back);
        self.roll_back(id, &Progress::default()).await // K2
    }

    /// The runs in which snapshot `id` differs from the origin.
    async fn differing(&self, id: u64) -> Result<Vec<Run>, StoreError> {
        let size = self.contents.borrow().snapshots.get(&id).ok_or(StoreError::NotFound)?.size;
        let mut runs = Vec::new();
        for (_, window) in Extent::new(0, size).pieces(WINDOW_BYTES) {
            runs.extend(self.map.differing(id, window).await?);
        }
        Ok(runs)
    }

    /// Refuses a rollback for which the copies would not fit into the store; else keeps the space for them.
    async fn has_room_for_rollback(&self, id: u64) -> Result<(), StoreError> {
        let (mut copies, mut bytes) = (0, 0);
        for run in self.differing(id).await? {
            let missing = self.missing(run.extent).await?;
            missing.into_iter().flat_map(|(_, runs)| runs).for_each(|run| {
                copies += 1;
                bytes += run.length;
            });
        }
        // One block for each record, were every copy alone; and nodes, which each record is promised again.
        let blocks = copies as u64 + self.blocks_for_nodes(copies, bytes);
        let needed = bytes + blocks * varve_format::store::PART_SIZE;
        if bytes > 0 && needed > self.available(copies, bytes) {
            return Err(StoreError::NoSpace);
        }
        self.state.borrow_mut().held_back = needed;
        Ok(())
    }

    async fn roll_back(&self, id: u64, progress: &Progress) -> Result<(), StoreError> {
        // No place that the snapshot shows can be freed meanwhile (K1), so nothing has to be kept in use.
        let runs = self.differing(id).await?;
        progress.total.set(runs.iter().map(|run| run.extent.length).sum());
        let steps = runs.into_iter().flat_map(|run| {
            let pieces: Vec<_> = run.extent.pieces(STEP_BYTES).collect();
            pieces.into_iter().filter_map(move |(_, piece)| run.clip(piece))
        });
        let mut copies = stream::iter(steps.map(|step| self.roll_back_step(step))).buffer_unordered(STEPS);
        let mut outcome = Ok(());
        while let Some(step) = copies.next().await {
            match step {
                Ok(bytes) => progress.done.set(progress.done.get() + bytes),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome?;
        assert_eq!(progress.done.get(), progress.total.get(), "all of it was rolled back");
        self.origin_device().flush().await?;
        self.log_entry(Entry::RollbackEnded(id)).await?;
        Ok(())
    }

    async fn roll_back_step(&self, step: Run) -> Result<u64, IoError> {
        let Run { extent, source } = step;
        assert!(self.rolling_back.get() && self.changes.is_empty(), "nobody else changes the origin");
        self.preserve(extent).await?;
        let content = match source {
            Source::Store(place) => {
                self.store_device().read(place, self.arena.take(index(extent.length))).await?
            }
            Source::Zeros | Source::Below => self.arena.take_zeroed(index(extent.length)),
        };
        self.origin_device().write(extent.offset, content.freeze(), Durability::Volatile).await?;
        Ok(extent.length)
    }
}

/// Sets a flag back on drop.
struct Reset<'a>(&'a Cell<bool>);

impl Drop for Reset<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
