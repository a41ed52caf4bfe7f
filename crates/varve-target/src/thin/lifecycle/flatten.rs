//! Detaching a volume from its external origin: what shows through is copied, a little at a time.
//!
//! A batch is copied while the volume takes no changes, so that nothing that a client writes is overwritten. What was
//! copied is mapped like anything else, so that a job that a crash cuts short finds less to copy. Holes of the origin are
//! not copied: a volume without an origin reads as zeros there too.
//!
//! Invariants:
//! - FLATTEN1. How far a volume is flattened is known to itself alone, and forgotten when it becomes what another one is.
//! - FLATTEN2. A volume is detached only after all data that showed through is mapped; that is over only after every read of the
//!   origin has ended that began before.
//! - FLATTEN3. No task holds an epoch guard of the pool while it waits for an origin: one that hangs stops no checkpoint.

use super::super::{Pool, PoolError, index};
use super::volume::Volume;
use crate::pdata::{Pages, of_device};
use varve_block::{Allocation, Device, Durability, Extent, MIB, align_down};
use varve_format::thin::{Change, Mapping, PART_SIZE, VolumeFlags};

/// The most that one batch looks at.
const WINDOW_BYTES: u64 = 64 * MIB;

/// How far a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flattening {
    /// Bytes from the volume's start on that show nothing of the origin any more.
    pub done: u64,
    /// Bytes of the origin that showed at first.
    pub total: u64,
}

impl Pool {
    /// Copies a little of what shows through from the origin. Returns how far it is, or nothing when the volume needs its
    /// origin no more. Snapshots of the volume keep theirs. Where there is no room it fails, whatever is done about writes.
    pub async fn flatten_some(&self, id: u64) -> Result<Option<Flattening>, PoolError> {
        self.is_sound()?;
        self.keep_metadata_room().await?;
        let outcome = self.flatten_batch(id).await;
        let comes_back = self.map.pages().reclaimable_blocks() > 0;
        if outcome != Err(PoolError::NoSpace) || !comes_back {
            return outcome;
        }
        self.join_commit(true).await?;
        self.free_pending().await;
        self.flatten_batch(id).await
    }

    async fn flatten_batch(&self, id: u64) -> Result<Option<Flattening>, PoolError> {
        let managing = self.volumes.manage(id).await;
        let volume = self.volumes.find(id)?;
        let closed = volume.gate.close();
        volume.gate.drained().await;
        let missing = |_| PoolError::OriginMissing;
        let Some((origin, total)) = volume.shown().map_err(missing)? else { return Ok(None) };
        if volume.flattened.get() >= total {
            let flags = volume.flags.get().with(VolumeFlags::ORIGIN, false).0;
            self.make(Change::SetFlags { volume: id, flags })?;
            drop((closed, managing));
            self.commit().await?;
            volume.readers.ended(volume.readers.mark()).await; // FLATTEN2
            return Ok(None);
        }
        // FLATTEN3: only blocks are touched that nothing leads to yet.
        let done = self.copy_some(&volume, &origin, total).await?;
        assert!(done > volume.flattened.get(), "FLATTEN1: a batch gets on");
        volume.flattened.set(done);
        Ok(Some(Flattening { done, total }))
    }

    /// Copies what shows behind the part that is flattened; how far that is now.
    async fn copy_some(&self, volume: &Volume, origin: &Device, total: u64) -> Result<u64, PoolError> {
        let from = volume.flattened.get();
        let window = Extent::between(from, total.min(from + WINDOW_BYTES));
        let (first, last) = (window.offset / PART_SIZE, window.end() / PART_SIZE);
        let resolve = |pages: &mut Pages| self.try_resolve_some(pages, volume, first, last);
        let segments = self.map.run(resolve).await?;
        let (mut left, mut seen) = (self.options.flatten_bytes, from);
        for segment in segments {
            seen = (segment.start + segment.count) * PART_SIZE;
            if segment.mapping.is_some() {
                continue;
            }
            let mut at = segment.start * PART_SIZE;
            while at < seen {
                let (mut length, is_data) = first_run(origin, Extent::between(at, seen)).await;
                if is_data {
                    length = length.min(left);
                    if length == 0 {
                        return Ok(at);
                    }
                    self.copy(volume, origin, Extent::new(at, length)).await?;
                    left -= length;
                }
                at += length;
            }
        }
        Ok(seen)
    }

    /// Copies an extent in which nothing is mapped.
    async fn copy(&self, volume: &Volume, origin: &Device, extent: Extent) -> Result<(), PoolError> {
        assert!(extent.is_aligned(PART_SIZE) && !extent.is_empty(), "MAPPING1: {extent:?}");
        let (mut start, mut count) = (extent.offset / PART_SIZE, extent.length / PART_SIZE);
        let unit = self.unit();
        let mut hint = None;
        while count > 0 {
            let take = |pages: &mut Pages| pages.take_unpublished_near(hint, unit, start % unit, count);
            let taken = self.map.run(take).await?;
            let place = taken.extent();
            let buffer = self.arena.take(index(place.length));
            let copied = match origin.read(start * PART_SIZE, buffer).await {
                Ok(buffer) => self.device().write(place.offset, buffer.freeze(), Durability::Volatile).await,
                Err(error) => Err(error),
            };
            if let Err(error) = copied {
                self.map.pages().return_unpublished(taken);
                return Err(of_device(error).into());
            }
            if let Err((error, rest)) = self.map(volume, Mapping::of(start, taken)).await {
                let left = rest.blocks().expect("MAPPING2: only zeros lie nowhere");
                self.map.pages().return_unpublished(left);
                return Err(error.into());
            }
            (start, count, hint) = (start + taken.count, count - taken.count, Some(taken.end()));
        }
        self.notify_space();
        Ok(())
    }
}

/// The first run of `extent`, in whole parts, and whether it is to be copied.
async fn first_run(origin: &Device, extent: Extent) -> (u64, bool) {
    assert!(extent.is_aligned(PART_SIZE) && !extent.is_empty(), "MAPPING1: {extent:?}");
    match origin.status(extent).await.as_deref() {
        Ok([run, ..]) if run.allocation != Allocation::Data && run.length >= PART_SIZE => {
            (align_down(run.length, PART_SIZE).min(extent.length), false)
        }
        Ok([run, ..]) => (run.length.next_multiple_of(PART_SIZE).min(extent.length), true),
        _ => (extent.length, true),
    }
}
