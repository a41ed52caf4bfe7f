//! Volumes in the trash: a pool keeps them under names of their own ([`Trashed`]), with their snapshots.
//!
//! Invariants:
//! - POOLTRASH1. A volume in the trash holds what it held when it was put there. It comes back by a name that is free.
//! - POOLTRASH2. For want of space the oldest is given up, and no other one before its space has come back.

use super::super::{InjectedBug, Pool, PoolError, PoolEvent};
use super::volume::Volume;
use std::collections::BTreeSet;
use varve_format::thin::{Change, Trashed, VolumeFlags, known_name};

/// The trash of a pool.
#[derive(Clone, Copy)]
pub struct Trash<'p> {
    pub(super) pool: &'p Pool,
}

impl Trash<'_> {
    /// Puts a volume into the trash. [`Pool::rename`] brings it back.
    pub async fn put(&self, id: u64, trashed: Trashed) -> Result<(), PoolError> {
        let pool = self.pool;
        let _managing = pool.volumes.manage(id).await;
        let volume = pool.volumes.find(id)?;
        assert!(volume.snapshot_of.is_none(), "POOLTRASH1: a snapshot goes with its volume");
        let name = trashed.name(id, &volume.known_name());
        pool.make(Change::Rename { volume: id, name })?;
        assert_eq!(volume.trashed(), Some(trashed), "POOLTRASH1: its name says so");
        if pool.has_bug(InjectedBug::TrashUncommitted) { Ok(()) } else { pool.commit().await }
    }

    /// What is in the trash, the volume first that was removed first.
    pub fn list(&self) -> Vec<u64> {
        let volumes = self.pool.volumes.all();
        let mut all: Vec<_> =
            volumes.values().filter_map(|volume| Some((volume.trashed()?, volume.id))).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether room comes back when the pool is full: something is in the trash, or was removed and has space still.
    pub fn has_room(&self) -> bool {
        let volumes = &self.pool.volumes;
        volumes.count_removing() > 0 || volumes.all().values().any(|volume| volume.trashed().is_some())
    }

    /// Gives up the oldest, to make room (POOLTRASH2). Whether room comes back by that or by what was removed before.
    pub async fn drop_oldest(&self) -> Result<bool, PoolError> {
        let pool = self.pool;
        if pool.volumes.count_removing() > 0 {
            return Ok(true);
        }
        let Some(oldest) = self.list().first().and_then(|id| pool.info(*id)) else { return Ok(false) };
        self.give_up(oldest.id).await?;
        assert!(pool.volumes.find(oldest.id).is_err(), "POOLTRASH2: it is being removed, or is gone");
        pool.waiters.queue.tell(PoolEvent::Dropped(oldest));
        Ok(true)
    }

    /// Removes a volume that is in the trash, after its snapshots: if a crash comes in between it is still there.
    pub async fn give_up(&self, id: u64) -> Result<(), PoolError> {
        self.take_out(id).await?;
        self.pool.commit().await
    }

    async fn take_out(&self, id: u64) -> Result<(), PoolError> {
        let pool = self.pool;
        let mut all: BTreeSet<u64> = pool.snapshot_numbers(id).into_iter().collect();
        all.insert(id);
        let mut managing = Vec::with_capacity(all.len());
        for volume in &all {
            managing.push(pool.volumes.manage(*volume).await); // In the order of `rollback.rs`, which manages two.
        }
        if pool.volumes.find(id)?.trashed().is_none() {
            return Err(PoolError::NotFound); // It came back meanwhile.
        }
        let snapshots = pool.snapshot_numbers(id);
        let is_needed = |id: &u64| {
            let volume = pool.volumes.find(*id);
            volume.is_ok_and(|volume| volume.has(VolumeFlags::HELD) || volume.has(VolumeFlags::BASE))
        };
        if is_needed(&id) || snapshots.iter().any(is_needed) {
            return Err(PoolError::Held);
        }
        for snapshot in snapshots.into_iter().filter(|snapshot| all.contains(snapshot)) {
            pool.take_out(snapshot).await?;
        }
        pool.take_out(id).await
    }
}

impl Volume {
    /// Since when and until when it is in the trash, if it is.
    pub(in crate::thin) fn trashed(&self) -> Option<Trashed> {
        known_name(&self.name.borrow()).0
    }

    /// The name that users know.
    pub(in crate::thin) fn known_name(&self) -> String {
        known_name(&self.name.borrow()).1.to_owned()
    }
}
