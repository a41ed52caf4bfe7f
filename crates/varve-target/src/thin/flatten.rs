//! Detaching a volume from the origin that it lies over: what shows through is copied, a little at a time.
//!
//! A dose is copied while the volume takes no changes, so that nothing that a client writes is overwritten. What was
//! copied is mapped like anything else, so a job that a crash cuts short goes on behind it.

use super::{Pool, PoolError, index};
use crate::pdata::Pages;
use varve_block::{Durability, Extent};
use varve_format::thin::{Change, Mapping, PART_SIZE, VolumeFlags};

/// The most that one dose copies.
const DOSE_BYTES: u64 = 1 << 20;

impl Pool {
    /// Copies a little of what shows through from the origin, at `from` or behind it. Returns where to go on, or nothing
    /// when the volume needs its origin no more. Snapshots of the volume keep theirs.
    pub async fn flatten_some(&self, id: u64, from: u64) -> Result<Option<u64>, PoolError> {
        self.keep_metadata_room().await?;
        let volume = self.find(id)?;
        if !volume.has(VolumeFlags::ORIGIN) {
            return Ok(None);
        }
        let origin = volume.origin.borrow().clone();
        let origin = origin.ok_or(PoolError::Misfit("the volume's origin is not there"))?;
        let end = volume.bytes.get().min(origin.shape().size / PART_SIZE * PART_SIZE);
        if from >= end {
            let flags = volume.flags.get().with(VolumeFlags::ORIGIN, false).0;
            self.make(Change::SetFlags { volume: id, flags })?;
            self.commit().await?;
            *volume.origin.borrow_mut() = None;
            return Ok(None);
        }
        let closed = volume.gate.close();
        volume.gate.drained().await;
        let ticket = self.tickets.take();
        let dose = Extent::new(from, (end - from).min(DOSE_BYTES));
        let (first, last) = (dose.offset / PART_SIZE, dose.end() / PART_SIZE);
        let resolve = |pages: &mut Pages| self.attempt_resolve(pages, &volume, first, last);
        for segment in self.map.run(resolve).await?.into_iter().filter(|segment| segment.mapping.is_none()) {
            let (mut start, mut count) = (segment.start, segment.count);
            while count > 0 {
                let unit = self.unit();
                let take = |pages: &mut Pages| pages.take_loose_near(None, unit, start % unit, count);
                let (place, taken) = self.map.run(take).await?;
                let buffer = self.arena.take(index(taken * PART_SIZE));
                let copied = match origin.read(start * PART_SIZE, buffer).await {
                    Ok(buffer) => {
                        self.device().write(place * PART_SIZE, buffer.freeze(), Durability::Volatile).await
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = copied {
                    self.map.pages().untake_loose((place, taken));
                    return Err(error.into());
                }
                let new = Mapping { start, count: taken, place, birth: 0 };
                if let Err((error, rest)) = self.map(&volume, new).await {
                    self.map.pages().untake_loose((rest.place, rest.count));
                    return Err(error.into());
                }
                (start, count) = (start + taken, count - taken);
            }
        }
        drop((ticket, closed));
        Ok(Some(dose.end()))
    }
}
