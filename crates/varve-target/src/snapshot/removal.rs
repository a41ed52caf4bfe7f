//! Removal of snapshots: at once for clients, step by step in the store.
//!
//! A removal is one entry of the log. From then on the snapshot is *being deleted*: it is not visible, but what was
//! preserved for it still serves the older ones, which find it as they always did. Reclaim batches then walk over its
//! entries: what the next older snapshot needs becomes its own, the rest is freed. A batch changes nothing that a request reads,
//! so it needs no entry in the log: the next checkpoint makes it durable, and space that it frees is used again only then
//! (SNAPSHOT5). A crash merely takes back what no checkpoint has seen; the snapshot is still being deleted, and is
//! begun again. So that this is not done at every start, a checkpoint follows when all has come back
//! ([`SnapshotStore::settle`]).
//!
//! Invariants:
//! - SNAPREMOVE1. No entry is ever added for a snapshot that is being deleted.
//! - SNAPREMOVE2. A reclaim batch consists of steps; a step is a change between two awaits: every read sees all of it or
//!   nothing, and the same content.
//! - SNAPREMOVE3. What is merged into it never hides what is between: the older snapshot gets only parts that no
//!   snapshot from it up to the deleted one has.

use super::batch::Work;
use super::contents::Deleting;
use super::{SnapshotStore, StoreError};
use crate::pdata::{MapError, Pace};
use std::collections::BTreeSet;
use varve_block::IoError;
use varve_block::yield_now;
use varve_format::store::{Descriptor, Entry};

/// How many entries [`SnapshotStore::remove`] looks at before it yields to other tasks.
pub(super) const RECLAIM_ENTRIES: usize = 1024;

/// A removal that has not given everything back yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The snapshot that was removed.
    pub snapshot: Descriptor,
    /// How many of its bytes were walked over, of its size.
    pub done: u64,
}

impl SnapshotStore {
    /// Removes a snapshot: requests to it that are under way are answered first; later ones are answered `Gone`.
    /// Durable when it returns, however large the snapshot is; its space comes back by [`SnapshotStore::reclaim`].
    pub async fn begin_removal(&self, id: u64) -> Result<(), StoreError> {
        let _managing = self.manage().await?;
        let descriptor = self.descriptor(id)?;
        if descriptor.held || descriptor.base {
            return Err(StoreError::Held);
        }
        if self.rollback_status().is_some_and(|status| status.snapshot == id) {
            return Err(StoreError::Busy); // ROLLBACK2
        }
        let view = self.view_state(id).ok_or(StoreError::NotFound)?;
        let _closed = view.gate.close();
        view.gate.drained().await;
        assert!(view.gate.is_empty(), "no request is inside");
        self.log_entry(Entry::Removed(id)).await?;
        view.gone.set(true);
        self.views.borrow_mut().remove(&id);
        self.assert_consistent();
        self.waiters.notify();
        Ok(())
    }

    /// Looks at up to `entries` entries of the map and gives back what removed snapshots alone had. Whether there is
    /// more to do. To be called now and then, by any task; a restart continues what was removed before.
    pub async fn reclaim(&self, entries: usize) -> Result<bool, StoreError> {
        let mut left = entries;
        // The last quarter is left to the next batch: of a leaf it would be the beginning, and that leaf looked at twice.
        while left > entries / 4 {
            self.failed.check()?;
            if self.freed_many() {
                let ticket = self.pipeline.join(Work::Checkpoint);
                self.await_commit(ticket).await?;
            }
            match self.reclaim_step(left).await {
                Ok(None) => return Ok(false),
                Ok(Some(looked)) => left = left.saturating_sub(looked),
                Err(MapError::Full) => {
                    // Nodes that are changed lie at new places until the next checkpoint.
                    let ticket = self.pipeline.join(Work::Checkpoint);
                    self.await_commit(ticket).await?;
                    let again = self.reclaim_step(left).await.map_err(|error| self.map.report(error))?;
                    left = left.saturating_sub(again.unwrap_or(0));
                }
                Err(error) => return Err(self.map.report(error).into()),
            }
            self.relieve(Pace::Gentle).await;
            yield_now().await; // A batch has several steps: requests need not wait for all of them.
        }
        Ok(!self.contents.borrow().deleting.is_empty())
    }

    /// Whether removals are over of which a crash would take something back.
    pub fn has_unsettled(&self) -> bool {
        self.state.borrow().has_unsettled
    }

    /// Makes durable that removals are over. To be called when there is nothing else to do, and before the store is closed.
    pub async fn settle(&self) -> Result<(), StoreError> {
        if !self.has_unsettled() {
            return Ok(());
        }
        let ticket = self.pipeline.join(Work::Checkpoint);
        Ok(self.await_commit(ticket).await?)
    }

    /// One step of a reclaim batch that looks at up to `entries` entries: how many it looked at; none if nothing is being
    /// deleted.
    async fn reclaim_step(&self, entries: usize) -> Result<Option<usize>, MapError> {
        let deleting =
            self.contents.borrow().deleting.first_key_value().map(|(id, deleting)| (*id, deleting.next));
        let Some((id, next)) = deleting else { return Ok(None) };
        let next_older = || {
            let contents = self.contents.borrow();
            contents.next_older(id).filter(|_| !contents.skip_merge)
        };
        let from = next;
        let (looked, next) = self.map.reclaim(id, next_older, next, entries).await?;
        assert!(next.is_none_or(|next| next >= from), "SNAPREMOVE2: a step leads on");
        let deleting = &mut self.contents.borrow_mut().deleting;
        match (deleting.get_mut(&id), next) {
            (Some(deleting), Some(next)) => deleting.next = deleting.next.max(next),
            (Some(_), None) => {
                deleting.remove(&id);
                self.map.forget_bytes(id);
                self.state.borrow_mut().has_unsettled = true;
            }
            (None, _) => {} // Another task has come to the end.
        }
        Ok(Some(looked))
    }

    /// Gives back all that removed snapshots alone had, for want of space. Called only by a leader.
    pub(super) async fn reclaim_all(&self) -> Result<(), IoError> {
        let (mut tried, mut looked_at) = (false, 0);
        loop {
            if self.freed_many() && !self.checkpoint_if_room().await? {
                return Ok(());
            }
            match self.reclaim_step(RECLAIM_ENTRIES).await {
                Ok(None) => return Ok(()),
                Ok(Some(looked)) => {
                    (tried, looked_at) = (false, looked_at + looked);
                    if looked_at >= RECLAIM_ENTRIES {
                        looked_at = 0;
                        yield_now().await;
                    }
                }
                Err(MapError::Full) if !std::mem::replace(&mut tried, true) => {
                    if !self.checkpoint_if_room().await? {
                        return Ok(());
                    }
                }
                Err(MapError::Full) => return Ok(()),
                Err(error) => return Err(self.map.report(error)),
            }
            self.relieve(Pace::Prompt).await;
        }
    }

    /// A checkpoint in a full store, by a leader: whether there was room for it.
    async fn checkpoint_if_room(&self) -> Result<bool, IoError> {
        match self.checkpoint().await {
            Ok(()) => Ok(true),
            Err(IoError::NoSpace) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether what was freed takes so much memory that a checkpoint should come.
    fn freed_many(&self) -> bool {
        self.blocks.pages().freed_runs() > self.options.freed_runs
    }

    /// Removes a snapshot and gives its space back, yielding to other tasks between.
    pub async fn remove(&self, id: u64) -> Result<(), StoreError> {
        self.begin_removal(id).await?;
        loop {
            match self.reclaim(RECLAIM_ENTRIES).await {
                Ok(true) => {}
                // It is removed; if there is no room now, the rest comes back later.
                Ok(false) | Err(StoreError::NoSpace) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The removals whose space has not all come back, the oldest snapshot first.
    pub fn removals(&self) -> Vec<Removal> {
        let chunk_size = self.map.chunk_size();
        let removal = |deleting: &Deleting| Removal {
            snapshot: deleting.descriptor.clone(),
            done: reclaimed_bytes(deleting, chunk_size),
        };
        self.contents.borrow().deleting.values().map(removal).collect()
    }

    /// How far the removal of snapshot `id` is, in bytes of it; none if it is over.
    pub fn removed_bytes(&self, id: u64) -> Option<u64> {
        let chunk_size = self.map.chunk_size();
        let contents = self.contents.borrow();
        contents.deleting.get(&id).map(|deleting| reclaimed_bytes(deleting, chunk_size))
    }

    /// How many bytes of the store the removal of all of `ids` would set free. Walks the map once for each of them.
    pub async fn removals_free(&self, ids: &[u64]) -> Result<u64, StoreError> {
        ids.iter().try_for_each(|id| self.descriptor(*id).map(drop))?;
        let going: BTreeSet<u64> = ids.iter().copied().collect();
        let mut next_older = None;
        let mut removed = Vec::with_capacity(going.len());
        for (id, descriptor) in &self.contents.borrow().snapshots {
            match going.contains(id) {
                true => removed.push((*id, next_older)),
                false => next_older = Some((*id, descriptor.size)),
            }
        }
        let mut bytes = 0;
        for (id, next_older) in removed {
            // What is between the next older snapshot and this one is nearer to the older one, whether it goes too
            // or not (SNAPREMOVE3).
            bytes += self.map.frees(id, next_older).await?;
        }
        Ok(bytes)
    }
}

/// Bytes of a removed snapshot that are reclaimed.
fn reclaimed_bytes(deleting: &Deleting, chunk_size: u64) -> u64 {
    chunk_of(deleting.next).saturating_mul(chunk_size).min(deleting.descriptor.size)
}

/// The chunk of a key of preserved content.
fn chunk_of(key: u128) -> u64 {
    (key >> 64) as u64
}
