//! Places in the file for a caller that moves the data itself, such as a mapper: taken first, led to once the data is there.
//!
//! Invariants:
//! - QPLACE1. A place that was taken is led to by nothing until [`Image::lead_to`], so a commit in between makes it a leak at worst.
//! - QPLACE2. It is led to only after all that its clusters hold was written: the caller flushes what it wrote, or commits.

use super::Image;
use super::tables::mapping::Mapping;
use varve_block::{Extent, IoError, LockMode};

impl Image {
    /// Takes up to `count` clusters that follow each other and that nothing refers to (QPLACE1). Their content is undefined.
    pub async fn take_places(&self, count: u64) -> Result<Extent, IoError> {
        let taken = self.allocate(count).await?;
        let size = self.header.cluster_size();
        assert!(taken.count > 0 && taken.count <= count, "QPLACE1: as many as were asked for, at most");
        Ok(Extent::new(taken.offset, taken.count * size))
    }

    /// Takes the cluster at `place`, which was taken before the image was last opened.
    pub async fn take_place_again(&self, place: u64) -> Result<(), IoError> {
        let size = self.header.cluster_size();
        if !place.is_multiple_of(size) || place.saturating_add(size) > self.file.size() {
            return Err(IoError::Corrupt);
        }
        self.count_once(place / size).await
    }

    /// Gives back places that were taken and that nothing leads to.
    pub async fn give_back_places(&self, places: Extent) -> Result<(), IoError> {
        self.give_back(places).await
    }

    /// From now on the clusters from that of `at` on lie at `places`, whole (QPLACE2). What was there before is free after the next
    /// commit.
    pub async fn lead_to(&self, at: u64, places: Extent) -> Result<(), IoError> {
        let size = self.header.cluster_size();
        assert!(at.is_multiple_of(size) && places.is_aligned(size), "QPLACE2: whole clusters are led to");
        for (_, piece) in Extent::new(at, places.length).pieces(self.step_length_max()) {
            if self.cache.is_over_budget() {
                self.commit().await?;
            }
            let _alone = self.ranges.lock(piece, LockMode::Exclusive).await;
            let (slice, first, entries) = self.entries(piece.offset, piece.length / size).await?;
            let host = places.offset + (piece.offset - at);
            self.point(slice, first, &entries, host, Extent::new(0, piece.length)).await?;
        }
        Ok(())
    }

    /// Where the cluster of `at` is, if it has a place of its own that may be overwritten.
    pub async fn own_place(&self, at: u64) -> Result<Option<u64>, IoError> {
        let size = self.header.cluster_size();
        let start = at / size * size;
        let mut place = None;
        let mut at = start;
        while at < (start + size).min(self.size()) && place.is_none() {
            let here = self.lookup(at, start + size - at).await?;
            if let Mapping::Data { offset, copied: true } = here.mapping {
                place = Some(offset - (at - start));
            }
            at += here.length;
        }
        if let Some(place) = place {
            self.refuse_metadata(Extent::new(place, size)).await?;
        }
        Ok(place)
    }

    /// Makes durable all places that were led to, and the data there.
    pub async fn make_durable(&self) -> Result<(), IoError> {
        self.commit().await
    }
}
