//! Rolling a volume back: one entry of the log, whatever the sizes of the volume and of what it becomes.
//!
//! Invariants:
//! - REVERT1. Content and size of the volume change in one entry of the log, so that no crash leaves one without the other.
//! - REVERT2. The same entry gives the volume a mark that it never had before, which shows for ever whether a
//!   rollback has happened.
//! - REVERT3. A copy that is brought to size first is being removed from the entry that makes it on: only the rollback that
//!   needs it delays its removal, and after a crash nothing does.

use super::super::arguments::check_size;
use super::super::{Pool, PoolError};
use super::volume::Volume;
use std::rc::Rc;
use varve_format::thin::{Change, VolumeFlags};

impl Pool {
    /// `volume` becomes what `source` holds, with its size; every other volume stays as it is. What it held is removed in
    /// the background.
    pub async fn roll_back(&self, volume: u64, source: u64) -> Result<(), PoolError> {
        {
            if volume == source {
                return Err(PoolError::Misfit("a volume is what it is already"));
            }
            let _first = self.volumes.manage(volume.min(source)).await;
            let _second = self.volumes.manage(volume.max(source)).await;
            let (target, other) = (self.volumes.find(volume)?, self.volumes.find(source)?);
            self.become_what(&target, &other).await?;
        }
        self.commit().await
    }

    /// As [`Pool::roll_back`], but the volume has `bytes` bytes afterwards: what `source` has behind them it gets not,
    /// and what `source` has not is zeros.
    pub async fn roll_back_in_size(&self, volume: u64, source: u64, bytes: u64) -> Result<(), PoolError> {
        check_size(bytes)?;
        if volume == source || self.volumes.find(source)?.bytes.get() == bytes {
            return self.roll_back(volume, source).await;
        }
        {
            let copy = self.copy_in_size(source, bytes).await?;
            let _managing = self.volumes.manage(volume).await;
            let target = self.volumes.find(volume)?;
            self.become_what(&target, &copy.volume).await?;
        }
        self.commit().await
    }

    /// A number that the volume gets with a rollback, and never had before (REVERT2).
    pub fn rollback_mark(&self, volume: u64) -> Result<u64, PoolError> {
        Ok(self.volumes.find(volume)?.source.get())
    }

    /// REVERT1: `target` becomes what `source` is, at one instant, as soon as no change to either is under way.
    async fn become_what(&self, target: &Volume, source: &Volume) -> Result<(), PoolError> {
        assert_ne!(target.id, source.id, "a volume is what it is already");
        // A volume in use never becomes one that cannot be used.
        source.shown().map_err(|_| PoolError::OriginMissing)?;
        let _closed = (target.gate.close(), source.gate.close());
        target.gate.drained().await;
        source.gate.drained().await;
        self.make(Change::RollBack { volume: target.id, source: source.id, rest: self.volumes.next_id() })
    }

    /// A copy of `source` of another size, which is gone as soon as it is dropped (REVERT3).
    async fn copy_in_size(&self, source: u64, bytes: u64) -> Result<Copy<'_>, PoolError> {
        let copy = {
            let frozen = self.freeze(source).await?;
            let copy = Copy::of(self, frozen.source())?;
            drop(frozen);
            copy
        };
        self.set_size(&copy.volume, bytes).await?;
        assert_eq!(copy.volume.bytes.get(), bytes, "REVERT1: the copy has the size that is wanted");
        Ok(copy)
    }
}

/// A volume that is there only for the rollback that has made it.
struct Copy<'a> {
    pool: &'a Pool,
    volume: Rc<Volume>,
}

impl<'a> Copy<'a> {
    /// Of `source`, to which no change is under way.
    fn of(pool: &'a Pool, source: &Volume) -> Result<Self, PoolError> {
        let (volume, flags) = (pool.volumes.next_id(), VolumeFlags::REMOVING);
        let (created, name) = (source.created, String::new());
        pool.make(Change::Clone { volume, source: source.id, created, flags, name })?;
        pool.volumes.begin_making(volume);
        Ok(Self { pool, volume: pool.volumes.known(volume)? })
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        self.pool.volumes.end_making(self.volume.id); // REVERT3
    }
}
