//! Snapshots go: at once as far as anybody can see, and bit by bit as far as the store is concerned.
//!
//! A removal is one entry of the log. From then on the snapshot is *leaving*: nobody sees it, but what was preserved
//! for it still serves the older ones, which find it as they always did. Doses then walk over its entries: what the
//! next older snapshot needs becomes its own, the rest is freed. A dose changes nothing that anybody reads, so it
//! needs no entry in the log: the next checkpoint makes it durable, and space that it frees is used again only then
//! (S5). A crash merely takes back what no checkpoint has seen; the snapshot is still leaving, and is begun again.
//!
//! Invariants:
//! - L1. No entry is ever added for a snapshot that is leaving.
//! - L2. A dose is a change between two awaits: every read sees all of it or nothing, and the same content.
//! - L3. What is handed over never hides what lies between: the older snapshot gets only parts that no snapshot from
//!   it up to the leaving one has.

use super::{SnapshotStore, StoreError};
use std::future::poll_fn;
use std::task::Poll;
use varve_format::store::{Descriptor, Entry};

/// How many entries [`SnapshotStore::remove`] looks at before it lets others go on.
const DOSE_ENTRIES: usize = 1024;

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
        if self.descriptor(id)?.held {
            return Err(StoreError::Held);
        }
        if self.rollback_status().is_some_and(|status| status.snapshot == id) {
            return Err(StoreError::Busy); // K2
        }
        let view = self.view_state(id).ok_or(StoreError::NotFound)?;
        let _closed = view.gate.close();
        view.gate.drained().await;
        assert!(view.gate.is_empty(), "no request is inside");
        self.log_entry(Entry::Removed(id)).await?;
        view.gone.set(true);
        self.views.borrow_mut().remove(&id);
        self.room.came();
        Ok(())
    }

    /// Looks at up to `entries` entries of the map and gives back what removed snapshots alone had. Whether there is
    /// more to do. To be called now and then, by whoever has the time; a restart continues what was removed before.
    pub fn reclaim(&self, entries: usize) -> bool {
        let mut state = self.state.borrow_mut(); // L2: nobody else has a turn before all of the dose is done.
        let freed = state.contents.reclaim(entries);
        state.space.release(freed);
        !state.contents.leaving.is_empty()
    }

    /// Gives back all that removed snapshots alone had, for want of space.
    pub(super) fn reclaim_all(&self) {
        while self.reclaim(usize::MAX) {}
    }

    /// Removes a snapshot and gives its space back, letting others go on between.
    pub async fn remove(&self, id: u64) -> Result<(), StoreError> {
        self.begin_removal(id).await?;
        while self.reclaim(DOSE_ENTRIES) {
            let_others_go_on().await;
        }
        Ok(())
    }

    /// The removals whose space has not all come back, the oldest snapshot first.
    pub fn removals(&self) -> Vec<Removal> {
        let state = self.state.borrow();
        let chunk_size = state.contents.map.chunk_size();
        let removal = |leaving: &super::contents::Leaving| Removal {
            snapshot: leaving.descriptor.clone(),
            done: leaving.next.0.saturating_mul(chunk_size).min(leaving.descriptor.size),
        };
        state.contents.leaving.values().map(removal).collect()
    }

    /// How many bytes of the store the removal of snapshot `id` would set free. Walks the map.
    pub fn removal_frees(&self, id: u64) -> Result<u64, StoreError> {
        self.removals_free(&[id])
    }

    /// How many bytes of the store the removal of all of `ids` would set free. Walks the map once for each.
    pub fn removals_free(&self, ids: &[u64]) -> Result<u64, StoreError> {
        let contents = &self.state.borrow().contents;
        let mut bytes = 0;
        for id in ids {
            let mut older = contents.snapshots.range(..*id).rev();
            let heir = older.find(|(older, _)| !ids.contains(older));
            if !contents.snapshots.contains_key(id) {
                return Err(StoreError::NotFound);
            }
            // What lies between the heir and this one is nearer to the heir, whether it goes too or not (L3).
            bytes += contents.map.frees(*id, heir.map(|(heir, descriptor)| (*heir, descriptor.size)));
        }
        Ok(bytes)
    }
}

/// Returns when everybody else who can go on has had a turn.
pub(super) async fn let_others_go_on() {
    let mut again = true;
    poll_fn(|context| {
        if !std::mem::take(&mut again) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
