//! A thin volume and its snapshots: the questions and changes that other volumes put to their stores, put to its pool.
//!
//! Invariant THINVOL1: the identity of a volume of a pool is the pool's plus the volume's number.

use super::barrier::Barrier;
use super::pool_error::store_error;
use super::snapshot_facts::{SnapshotFacts, Target};
use crate::opened::open_pool::OpenPool;
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;
use varve_block::{Device, yield_now};
use varve_target::snapshot::StoreError;
use varve_target::thin::{Origin, Pool, PoolError, Trashed, VolumeFlags, VolumeInfo, VolumeSpace};
use varve_vg::StoreKind;

/// Snapshots that are listed before other tasks go on.
const COUNTED_AT_ONCE: usize = 16;

/// The identity of a pool's volume (THINVOL1).
pub fn volume_id(pool: Uuid, number: u64) -> Uuid {
    Uuid::from_u128(pool.as_u128().wrapping_add(u128::from(number)))
}

/// The number that a volume of a pool would have if this is its identity (THINVOL1).
pub fn volume_number(pool: Uuid, id: Uuid) -> Option<u64> {
    u64::try_from(id.as_u128().wrapping_sub(pool.as_u128())).ok()
}

/// A volume of a pool, as the control knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinVolume {
    /// Its identity.
    pub id: Uuid,
    /// The pool.
    pub pool: Uuid,
    /// Its number in the pool.
    pub number: u64,
    /// Its name, without the group.
    pub name: String,
    /// Bytes that it shows.
    pub bytes: u64,
    /// Seconds since 1970.
    pub created: u64,
    /// What shows where it holds nothing.
    pub origin: Option<Origin>,
    /// How it is in the trash, if it is.
    pub trash: Option<InTrash>,
    /// Whether it can be used; if not, its origin is not there (POOLSERVE1), or it is in the trash.
    pub is_served: bool,
}

/// A volume of a pool in the trash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTrash {
    /// Since when and until when.
    pub time: Trashed,
    /// Number of its snapshots.
    pub snapshots: usize,
    /// Bytes that it has in the pool, shared or not.
    pub mapped: u64,
    /// Bytes that it and its snapshots show.
    pub promised: u64,
}

/// Where a thin volume is.
pub(crate) struct Thin {
    pub(crate) open: Rc<OpenPool>,
    pub(crate) number: u64,
    /// Whether its origin is not there (POOLSERVE1).
    pub(crate) lacks_origin: Cell<bool>,
}

/// What a thin volume holds.
#[derive(Clone, Copy, Debug)]
pub struct ThinFacts {
    /// Bytes that it has in the pool.
    pub mapped: u64,
    /// Bytes of these that nothing else has.
    pub exclusive: u64,
    /// Bytes of these that others have, too.
    pub shared: u64,
}

impl Thin {
    fn pool(&self) -> &Rc<Pool> {
        &self.open.pool
    }

    /// The volume as it is now.
    pub(crate) fn device(&self) -> Result<Device, PoolError> {
        self.pool().volume(self.number)
    }

    /// The device of a snapshot.
    pub(crate) fn view(&self, number: u64) -> Result<Device, StoreError> {
        self.pool().volume(number).map_err(store_error)
    }

    pub(crate) fn find(&self, name: &str) -> Result<u64, StoreError> {
        self.known(name).map(|volume| volume.id)
    }

    fn known(&self, name: &str) -> Result<VolumeInfo, StoreError> {
        self.pool().snapshot_named(self.number, name).ok_or(StoreError::NotFound)
    }

    /// All snapshots, the oldest first.
    pub(crate) fn snapshots(&self) -> Vec<SnapshotFacts> {
        self.pool().snapshots_of(self.number).into_iter().map(|volume| self.snapshot(volume)).collect()
    }

    /// The same, and how much they use; requests go on meanwhile. One that is removed meanwhile is left out.
    pub(crate) async fn snapshots_counted(&self) -> Vec<SnapshotFacts> {
        let numbers = self.pool().snapshot_numbers(self.number);
        let mut all = Vec::with_capacity(numbers.len());
        for some in numbers.chunks(COUNTED_AT_ONCE) {
            for number in some {
                let used = self.volume_space(*number).await.exclusive;
                let volume = self.pool().info(*number);
                let facts = volume.filter(is_alive).map(|volume| self.snapshot(volume));
                all.extend(facts.map(|facts| SnapshotFacts { used, ..facts }));
            }
            yield_now().await;
        }
        all
    }

    /// Number of snapshots.
    pub(crate) fn snapshot_count(&self) -> usize {
        self.pool().count_snapshots(self.number)
    }

    /// Those of `names` that there are.
    pub(crate) fn snapshots_called(&self, names: &[String]) -> Vec<SnapshotFacts> {
        names.iter().filter_map(|name| self.known(name).ok()).map(|volume| self.snapshot(volume)).collect()
    }

    fn snapshot(&self, volume: VolumeInfo) -> SnapshotFacts {
        SnapshotFacts {
            name: volume.name,
            created: volume.created,
            size: volume.bytes,
            used: 0,
            read_only: volume.flags.has(VolumeFlags::READ_ONLY),
            held: volume.flags.has(VolumeFlags::HELD),
            is_base: volume.flags.has(VolumeFlags::BASE),
            is_merging: false,
            kind: StoreKind::Dependent,
            is_thin: true,
            missing_origin: volume.origin.filter(|_| self.view(volume.id).is_err()),
            target: Target { store: self.open.id, number: volume.id },
        }
    }

    /// What a volume or snapshot of the pool holds; nothing if that cannot be found out now.
    pub(crate) async fn volume_space(&self, number: u64) -> VolumeSpace {
        self.pool().volume_space(number).await.unwrap_or_default()
    }

    /// What the volume holds.
    pub(crate) async fn facts(&self) -> ThinFacts {
        let space = self.volume_space(self.number).await;
        let VolumeSpace { exclusive, shared } = space;
        ThinFacts { mapped: exclusive + shared, exclusive, shared }
    }

    pub(crate) async fn set_flags(
        &self,
        name: &str,
        read_only: Option<bool>,
        held: Option<bool>,
    ) -> Result<(), StoreError> {
        let known = self.known(name)?;
        let read_only = read_only.unwrap_or_else(|| known.flags.has(VolumeFlags::READ_ONLY));
        let held = held.unwrap_or_else(|| known.flags.has(VolumeFlags::HELD));
        self.pool().set_flags(known.id, read_only, held).await.map_err(store_error)
    }

    pub(crate) async fn rename_snapshot(&self, name: &str, to: &str) -> Result<(), StoreError> {
        self.pool().rename(self.known(name)?.id, to).await.map_err(store_error)
    }

    /// A number that the volume gets with a rollback, and never had before.
    pub(crate) fn rollback_mark(&self) -> Result<u64, StoreError> {
        self.pool().rollback_mark(self.number).map_err(store_error)
    }

    /// The volume becomes what a snapshot shows, in its own size, by one commit.
    pub(crate) async fn roll_back(&self, snapshot: u64, bytes: u64) -> Result<(), PoolError> {
        let rolled_back = self.pool().roll_back_in_size(self.number, snapshot, bytes).await;
        self.open.reclaim(); // Whether it succeeded or not: there may be a copy that is not needed.
        rolled_back
    }

    /// Whether writes wait for space in the pool.
    pub(crate) fn is_paused(&self) -> bool {
        self.pool().is_paused()
    }

    pub(crate) async fn resize(&self, bytes: u64) -> Result<(), PoolError> {
        self.pool().resize(self.number, bytes).await
    }

    pub(crate) async fn remove_snapshot(&self, number: u64) -> Result<(), StoreError> {
        self.pool().remove(number).await.map_err(store_error)?;
        self.open.reclaim();
        Ok(())
    }

    /// How far the removal of a snapshot is, in bytes of `size`; none when it is over.
    pub(crate) fn removed(&self, number: u64, size: u64) -> Option<u64> {
        self.pool().removed_bytes(number).map(|bytes| bytes.min(size))
    }

    /// Makes snapshots of the volume, or of its snapshot `of`, when all volumes of the command are frozen: all or none.
    pub(crate) async fn make_snapshots(
        &self,
        names: &[String],
        of: Option<&str>,
        read_only: bool,
        mut barrier: Barrier,
    ) -> Result<(), StoreError> {
        let source = of.map_or(Ok(self.number), |of| self.find(of))?;
        let claimed = self.pool().claim(source).await.map_err(store_error)?;
        barrier.all_are_here().await?;
        let frozen = claimed.freeze().await;
        barrier.all_are_here().await?;
        let (mut made, mut refused) = (Vec::new(), None);
        for name in names {
            match frozen.snapshot(name, read_only) {
                Ok(number) => made.push(number),
                Err(error) => refused = refused.or(Some(store_error(error))),
            }
        }
        drop(frozen);
        let committed = self.pool().commit().await.map_err(store_error);
        let Some(error) = refused.or(committed.err()) else { return Ok(()) };
        for number in made {
            let _ = self.remove_snapshot(number).await; // INSTANT2 of `instant.rs`
        }
        Err(error)
    }
}

/// Whether it is a volume, and no snapshot, that is to be served: it is neither in the trash nor being removed.
pub(crate) fn is_in_use(volume: &VolumeInfo) -> bool {
    is_volume(volume) && volume.trashed.is_none()
}

/// Whether it is a volume, and no snapshot, that is not being removed.
pub(crate) fn is_volume(volume: &VolumeInfo) -> bool {
    is_alive(volume) && volume.snapshot_of.is_none()
}

/// Whether it is not being removed.
pub(crate) fn is_alive(volume: &VolumeInfo) -> bool {
    !volume.flags.has(VolumeFlags::REMOVING)
}
