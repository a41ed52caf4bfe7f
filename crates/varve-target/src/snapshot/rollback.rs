//! Rolling the origin back to a snapshot, online: it shows the old state at once, and is restored bit by bit.
//!
//! One entry of the log says to which snapshot, and is the instant: from then on the origin *shows* what that
//! snapshot, the *target*, showed at that instant. Where the two differ the origin's device still holds what it did;
//! such a part is *pending*, and is found where the target finds it. A part is *restored* once the device holds what
//! the origin shows; the log says that too. Batches of background work restore what is pending, from the front to the back; a
//! change of a part that no batch has reached restores it on its way, or replaces it whole.
//!
//! ```text
//!   the origin:   | restored by batches | changed |   pending: read from the target   | pending: zeros |
//!                 0 ───────────────────►          ▲                                   target's size
//!                      read the device         restored, ahead of the batches
//! ```
//!
//! The origin keeps its size: where it has grown since the target was taken, the target shows nothing, and the origin
//! shows zeros until that is written again. Such parts are pending too, and restored by zeroing the device.
//!
//! Snapshots older than the *boundary*, the next id at that instant, go on finding the device where nothing was
//! preserved for them; those of after it find what the origin shows.
//!
//! Invariants, cited by number where they are kept:
//! - ROLLBACK1. From the durable beginning on, the origin shows in each part that is not restored what the target showed at
//!   that instant, and in all others what its device holds.
//! - ROLLBACK2. What the target shows in parts that are not restored stays what it was at that instant: the target is not
//!   removed, and a write to it has these parts restored before. A read of them for the origin holds the
//!   target's lock, shared.
//! - ROLLBACK3. A part is restored in the log only when the device holds, durably, what the origin shows, or holds it since
//!   before the target was taken. A change of a pending part is acknowledged only when the log says that the part is
//!   restored: so a batch after a crash never undoes it.
//! - ROLLBACK4. A pending part changes on the device only after its content was preserved for the snapshots of before the
//!   boundary; and nothing is preserved of it for one of after the boundary until it is restored.
//! - ROLLBACK5. Lock order, with SNAPSHOT7: a view's own lock, the target's, `copies`, `falls`. A task that restores holds the
//!   target's lock and `copies` until the log says so: no task that finds the part restored writes before that is over.
//! - ROLLBACK6. When it is not known whether the log has an entry of a rollback, the origin is not served: old content might
//!   be taken for new after the next start, or new for old.
//! - ROLLBACK7. A part of the origin beyond the target's end is pending until the log says that it is restored, as all others
//!   are: so it shows zeros from the durable beginning on, and what was there never comes back.
//! - ROLLBACK8. What was preserved of a part is dropped by a rollback only when the device holds the same, durably; when all
//!   snapshots of before the boundary that find it, and none of them anything newer; and before the part is restored,
//!   with `copies` held: so every change of the part preserves it once more.

mod drops;
mod serve;
mod state;

pub(super) use serve::{ORIGIN, Overwriting};
pub(super) use state::Rollback;

use super::batch::{Ticket, Work};
use super::map::{Run, Source};
use super::{InjectedBug, SnapshotStore, StoreError, index, of_device};
use crate::pdata::InUse;
use futures_util::stream::{self, StreamExt};
use std::cell::Cell;
use varve_block::{Durability, Extent, GIB, IoError, LockMode, MIB, ZeroOptions, align_down};
use varve_format::store::{Entry, PART_SIZE};

/// How much is copied as one.
const PIECE_BYTES: u64 = MIB;
/// How many pieces are under way at the same time.
const PIECES: usize = 4;
/// The longest run of bytes that a batch which copies keeps others from changing.
const SPAN_BYTES: u64 = 16 * MIB;
/// How many bytes a batch looks at in search of a pending part.
const SEARCH_BYTES: u64 = GIB;
/// A batch of [`SnapshotStore::finish_rollback`] while the origin is not in use.
const BATCH_BYTES: u64 = 8 * MIB;
/// And while it is in use: its requests may have to wait for the batch.
const BATCH_BYTES_BUSY: u64 = MIB;

/// How far a rollback is, in bytes.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that are restored.
    pub done: Cell<u64>,
    /// Bytes to restore in all: those of the origin.
    pub total: Cell<u64>,
}

/// A rollback under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollbackStatus {
    /// The id of the snapshot to which the origin is being rolled back.
    pub snapshot: u64,
    /// How many bytes of the origin are restored: copied, changed since, or found to be the same.
    pub done: u64,
    /// How many it has.
    pub total: u64,
}

impl SnapshotStore {
    /// Makes the origin show what snapshot `id` shows now, and zeros behind its end, durably, and lets requests go on. What
    /// is left to do is restored by [`SnapshotStore::continue_rollback`], also after a restart. Changes that are under way are waited
    /// for, and belong to what is undone. Other snapshots stay what they are.
    pub async fn begin_rollback(&self, id: u64) -> Result<(), StoreError> {
        if self.has_siblings.get() {
            return Err(StoreError::Misfit("the origin has independent snapshots, which would not be asked")); // SIBLINGS3
        }
        let _managing = self.manage().await?;
        if self.rollback_status().is_some() {
            return Err(StoreError::Busy);
        }
        if self.descriptor(id)?.size > self.origin_device().shape().size {
            return Err(StoreError::Misfit("the origin is smaller than the snapshot"));
        }
        let view = self.view_state(id).ok_or(StoreError::NotFound)?;
        // The long flush comes before the gates close, so that the one behind them is short.
        self.flush_written().await?;
        let (_changes, _view) = (self.changes.close(), view.gate.close());
        self.changes.drained().await;
        view.gate.drained().await;
        self.flush_written().await?; // ROLLBACK2: a crash must not take back what the target shows now.
        let boundary = self.contents.borrow().next_snapshot;
        match self.log_entry(Entry::RollbackBegun { snapshot: id, boundary }).await {
            Ok(()) => {}
            Err(IoError::NoSpace) => return Err(StoreError::NoSpace),
            Err(error) => {
                self.half_rolled_back.set(true); // ROLLBACK6
                return Err(error.into());
            }
        }
        assert_eq!(self.rollback_status().map(|status| status.snapshot), Some(id), "ROLLBACK1: it has begun");
        tracing::info!(store = %self.id, snapshot = id, boundary, "the origin is rolled back");
        Ok(())
    }

    /// The rollback under way, if any.
    pub fn rollback_status(&self) -> Option<RollbackStatus> {
        let contents = self.contents.borrow();
        let Rollback { snapshot, size, restored, .. } = contents.rollback.as_ref()?;
        Some(RollbackStatus { snapshot: *snapshot, done: restored.bytes_before(*size), total: *size })
    }

    /// Restores up to `bytes` bytes of what is pending; whether there is more to do. To be called now and then, by
    /// any task. After an error it can be called again: nothing is lost, and the origin shows what it
    /// should all the while.
    pub async fn continue_rollback(&self, bytes: u64) -> Result<bool, StoreError> {
        let _alone = self.restoring.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        let Some(target) = self.target() else { return Ok(false) };
        let Some(covers) = self.find_batch(bytes).await? else {
            self.end_rollback(target.0).await?;
            return Ok(false);
        };
        let view = self.view_state(target.0).ok_or(StoreError::Corrupt("ROLLBACK2: the target is there"))?;
        let _source = view.lock.lock(covers, LockMode::Shared).await; // ROLLBACK5
        let _copying = self.copies.lock(covers, LockMode::Exclusive).await;
        let (pending, _) = self.unrestored(covers).await?;
        if !pending.is_empty() {
            self.restore(&pending, Durability::Volatile).await?;
            self.origin_device().flush().await.map_err(of_device)?; // ROLLBACK3
        }
        self.mark_dropping(&pending, vec![covers]).await?;
        Ok(true)
    }

    /// Restores all that is pending. While others use the origin batches are small, and rest as long as they took.
    pub async fn finish_rollback(&self, progress: &Progress) -> Result<(), StoreError> {
        let tell = || {
            if let Some(status) = self.rollback_status() {
                progress.total.set(status.total);
                progress.done.set(status.done);
            }
        };
        tell();
        let mut seen = self.requests();
        loop {
            let (started, busy) = (self.clock.now(), self.requests() != seen);
            seen = self.requests();
            if !self.continue_rollback(if busy { BATCH_BYTES_BUSY } else { BATCH_BYTES }).await? {
                break;
            }
            tell();
            varve_block::yield_now().await;
            if busy {
                self.clock.sleep(self.clock.now().since(started)).await;
            }
        }
        progress.done.set(progress.total.get());
        Ok(())
    }

    /// Makes the origin what snapshot `id` shows now, and restores all of it; or goes on with the rollback to that
    /// snapshot that is under way. The origin shows the old state as soon as there is a total.
    pub async fn rollback(&self, id: u64, progress: &Progress) -> Result<(), StoreError> {
        if self.rollback_status().is_none_or(|status| status.snapshot != id) {
            self.begin_rollback(id).await?;
        }
        self.finish_rollback(progress).await
    }

    /// The first bytes that are not restored, as many as one batch should see to: a long stretch without a pending
    /// part, or up to `bytes` bytes of pending parts and what is between. None if all is restored.
    async fn find_batch(&self, bytes: u64) -> Result<Option<Extent>, IoError> {
        let gap = self.contents.borrow().rollback.as_ref().and_then(|rollback| {
            Some((rollback.restored.first_gap(Extent::new(0, rollback.size))?, rollback.size))
        });
        let Some((first, size)) = gap else { return Ok(None) };
        let end = size.min(first + SEARCH_BYTES);
        let mut at = first;
        while at < end {
            let window = Extent::between(at, end.min(at + SPAN_BYTES));
            let (pending, _) = self.unrestored(window).await?;
            if !pending.is_empty() && at == first {
                return Ok(Some(Extent::between(first, behind(&pending, bytes).unwrap_or(window.end()))));
            }
            if !pending.is_empty() {
                break;
            }
            at = window.end();
        }
        Ok(Some(Extent::between(first, at)))
    }

    /// All is restored: says so.
    async fn end_rollback(&self, target: u64) -> Result<(), IoError> {
        let status = self.rollback_status();
        assert!(status.is_none_or(|status| status.done == status.total), "ROLLBACK1: all of it is restored");
        self.log_entry(Entry::RollbackEnded(target)).await?;
        tracing::info!(store = %self.id, snapshot = target, "the rollback is done");
        Ok(())
    }

    /// Copies what the target shows to the device, in `pending` parts, after what must be preserved of them is. The
    /// caller holds the target's lock and `copies`.
    async fn restore(&self, pending: &[Extent], durability: Durability) -> Result<(), IoError> {
        self.preserve_pending(pending).await?;
        let (mut runs, mut in_use): (Vec<Run>, Vec<InUse>) = (Vec::new(), Vec::new());
        for extent in pending {
            let (found, guard) = self.target_shows(*extent).await?;
            runs.extend(found);
            in_use.push(guard);
        }
        let pieces = runs.into_iter().flat_map(|run| {
            let pieces: Vec<_> = run.extent.pieces(PIECE_BYTES).collect();
            pieces.into_iter().filter_map(move |(_, piece)| run.clip(piece))
        });
        let copies = stream::iter(pieces.map(|piece| self.restore_piece(piece, durability)));
        let outcomes: Vec<Result<(), IoError>> = copies.buffer_unordered(PIECES).collect().await;
        outcomes.into_iter().collect()
    }

    async fn restore_piece(&self, piece: Run, durability: Durability) -> Result<(), IoError> {
        let Run { extent, source } = piece;
        let has_bug = self.has_bug(InjectedBug::RestoreUnpreserved);
        if !has_bug && let Some((snapshot, found)) = self.missing_before_boundary(extent).await? {
            return Err(self.contradicts(snapshot, extent, "ROLLBACK4: all of it is preserved", &found));
        }
        let device = self.origin_device();
        match source {
            Source::Store(place) => {
                let buffer = self.arena.take(index(extent.length));
                let content = self.store_device().read(place, buffer).await.map_err(of_device)?;
                device.write(extent.offset, content.freeze(), durability).await.map_err(of_device)?;
            }
            Source::Zeros => {
                let options = ZeroOptions { durability, unmap: false, fast: false };
                device.zero(extent, options).await.map_err(of_device)?;
            }
            Source::Below => {} // Not pending: the device holds it.
        }
        Ok(())
    }

    /// Says in the log that `extents` are restored (ROLLBACK3).
    async fn mark(&self, extents: Vec<Extent>) -> Result<(), IoError> {
        let tickets = self.join_marks(extents);
        self.await_commits(tickets).await
    }

    /// As [`SnapshotStore::mark`], and that what is redundant now of `restored`, which was copied back, is dropped (ROLLBACK8).
    async fn mark_dropping(&self, restored: &[Extent], extents: Vec<Extent>) -> Result<(), IoError> {
        let drops = self.join_drops(restored).await?;
        let marks = self.join_marks(extents);
        let (dropped, marked) = (self.await_drops(drops).await, self.await_commits(marks).await);
        dropped.and(marked)
    }

    /// Has the log say that `extents` are restored, once the commits of the tickets have ended.
    fn join_marks(&self, extents: Vec<Extent>) -> Vec<Ticket> {
        let Some((snapshot, _)) = self.target() else { return Vec::new() };
        if self.has_bug(InjectedBug::SkipRestoredMark) {
            if let Some(rollback) = &mut self.contents.borrow_mut().rollback {
                extents.into_iter().for_each(|extent| rollback.restore(extent));
            }
            return Vec::new();
        }
        let join = |extent| {
            assert!(extent != Extent::default(), "something is restored");
            self.pipeline.join(Work::Entry(Entry::Restored { snapshot, extent }))
        };
        extents.into_iter().map(join).collect()
    }

    async fn await_commits(&self, tickets: Vec<Ticket>) -> Result<(), IoError> {
        let mut outcome = Ok(());
        for ticket in tickets {
            outcome = outcome.and(self.await_commit(ticket).await);
        }
        outcome
    }

    fn requests(&self) -> u64 {
        self.contents.borrow().rollback.as_ref().map_or(0, |rollback| rollback.requests.get())
    }

    /// The target and the boundary.
    fn target(&self) -> Option<(u64, u64)> {
        self.contents.borrow().rollback.as_ref().map(|rollback| (rollback.snapshot, rollback.boundary))
    }
}

/// Where the first `bytes` bytes of `pending`, whole parts and at least one, end; none if there are not more.
fn behind(pending: &[Extent], bytes: u64) -> Option<u64> {
    let mut left = align_down(bytes, PART_SIZE).max(PART_SIZE);
    for extent in pending {
        if left <= extent.length {
            return Some(extent.offset + left);
        }
        left -= extent.length;
    }
    None
}
