//! Where the parts of a volume lie: what its reads and its map are led by, and where it may be overwritten.
//!
//! A caller that reads where an answer says holds what a read holds: an epoch of the pool's readers (THIN5), or of the
//! origin's readers (FLATTEN2). A caller that overwrites there holds what a write holds: a place inside the volume's gate
//! (THIN7), and an epoch (THIN4).

use super::super::Pool;
use super::super::lifecycle::volume::Volume;
use super::mapping::Target;
use super::runs::Segment;
use crate::pdata::{MapError, Pages, Stop};
use crate::reader_epochs::EpochGuard;
use varve_block::{
    Allocation, Device, Extent, IoError, Location, MIB, MapAnswer, MapGuard, MapIntent, MapPiece,
};
use varve_format::thin::{Mapping, PART_SIZE, VolumeFlags};

/// The most that one answer to a writer is about. One to a reader is about one leaf of the map.
const OVERWRITE_BYTES: u64 = 4 * MIB;

/// Where some parts are read, and what keeps those in the pool there.
pub(in crate::thin) struct Found {
    /// In order; none wants a request.
    pub(in crate::thin) pieces: Vec<MapPiece>,
    pub(in crate::thin) guard: EpochGuard,
    pool: Device,
}

impl Found {
    /// Whether a piece is below the volume.
    pub(in crate::thin) fn is_below(&self, piece: &MapPiece) -> bool {
        matches!(&piece.location, Location::On { device, .. } if !device.is_same(&self.pool))
    }
}

/// The parts of a volume, to be asked where they lie.
#[derive(Clone, Copy)]
pub(in crate::thin) struct Places<'a> {
    pub(in crate::thin) pool: &'a Pool,
    pub(in crate::thin) volume: &'a Volume,
}

/// The first part of an extent, and the first behind it.
pub(in crate::thin) fn parts(extent: Extent) -> (u64, u64) {
    assert!(extent.is_aligned(PART_SIZE), "DEVICE2: {extent:?}");
    (extent.offset / PART_SIZE, extent.end() / PART_SIZE)
}

impl Places<'_> {
    fn told(self, error: MapError) -> IoError {
        self.pool.told(self.volume, error)
    }

    fn is_gone(self) -> bool {
        self.volume.has(VolumeFlags::REMOVING)
    }

    /// Where the parts from `from` to `to` are read.
    pub(in crate::thin) async fn find(self, (from, to): (u64, u64)) -> Result<Found, IoError> {
        self.find_by(|pages| self.pool.try_resolve(pages, self.volume, from, to)).await
    }

    async fn find_by(
        self,
        resolve: impl FnMut(&mut Pages) -> Result<Vec<Segment>, Stop>,
    ) -> Result<Found, IoError> {
        if self.is_gone() {
            return Err(IoError::Gone);
        }
        let guard = self.pool.readers.enter();
        let segments = self.pool.map.run(resolve).await.map_err(|error| self.told(error))?;
        let (pool, origin) = (self.pool.device(), self.volume.shown()?);
        let shown = self.volume.origin_parts();
        let mut pieces = Vec::with_capacity(segments.len());
        for segment in segments.into_iter().flat_map(|segment| segment.cut(shown)) {
            pieces.push(piece_of(segment, &pool, origin.as_ref().map(|(device, _)| device), shown));
        }
        assert!(!pieces.is_empty(), "MAP1: every part is somewhere");
        Ok(Found { pieces, guard, pool })
    }

    /// Where a write to the parts from `from` to `to` goes.
    pub(in crate::thin) async fn plan(
        self,
        (from, to): (u64, u64),
    ) -> Result<Vec<(u64, u64, Target)>, IoError> {
        let plan = |pages: &mut Pages| self.pool.try_plan(pages, self.volume, from, to);
        self.pool.map.run(plan).await.map_err(|error| self.told(error))
    }

    /// The answer to a question where bytes lie.
    pub(in crate::thin) async fn lead(self, extent: Extent, intent: MapIntent) -> Result<MapAnswer, IoError> {
        let first = Extent::new(extent.offset, extent.length.min(OVERWRITE_BYTES));
        match intent {
            MapIntent::Inspect | MapIntent::Read => self.lead_reader(parts(extent)).await,
            MapIntent::Overwrite => self.lead_writer(parts(first)).await,
        }
    }

    /// Pieces in the pool, or pieces below it: no read of an origin holds an epoch of the pool (FLATTEN3).
    async fn lead_reader(self, (from, to): (u64, u64)) -> Result<MapAnswer, IoError> {
        let found = self.find_by(|pages| self.pool.try_resolve_some(pages, self.volume, from, to)).await?;
        let is_below = |piece: &MapPiece| found.is_below(piece);
        let first = is_below(&found.pieces[0]);
        let alike = found.pieces.iter().take_while(|piece| is_below(piece) == first).cloned();
        let mut answer = MapAnswer::default();
        alike.for_each(|piece| {
            answer.push(MapPiece { holds: piece.holds.or(Some(Allocation::Data)), ..piece });
        });
        let guard = match first {
            true => MapGuard::holding(self.volume.readers.enter()),
            false => MapGuard::holding(found.guard),
        };
        Ok(answer.keeping(guard))
    }

    /// THIN4: what is the volume's own is overwritten in place. For the rest there are fresh blocks to be taken.
    async fn lead_writer(self, asked: (u64, u64)) -> Result<MapAnswer, IoError> {
        self.pool.is_sound()?;
        let inside = self.volume.gate.enter().await;
        if self.is_gone() {
            return Err(IoError::Gone);
        }
        let guard = self.pool.readers.enter();
        let pool = self.pool.device();
        let mut answer = MapAnswer::default();
        for (_, count, target) in self.plan(asked).await? {
            answer.push(match target {
                Target::Own(place) => MapPiece::on(&pool, place.offset(), count * PART_SIZE),
                Target::Fresh(_) => MapPiece::sent(count * PART_SIZE),
            });
        }
        Ok(answer.keeping(MapGuard::holding((inside, guard))))
    }
}

/// THIN6: where a segment is read, of which no part is on both sides of what the origin shows.
fn piece_of(segment: Segment, pool: &Device, origin: Option<&Device>, shown: u64) -> MapPiece {
    let length = segment.count * PART_SIZE;
    match (segment.mapping, origin) {
        (Some(Mapping { place: Some(place), .. }), _) => MapPiece::on(pool, place.offset(), length),
        (None, Some(origin)) if segment.start < shown => {
            assert!(segment.start + segment.count <= shown, "THIN6: {segment:?} shows the origin as a whole");
            MapPiece::on(origin, segment.start * PART_SIZE, length)
        }
        _ => MapPiece::hole(length),
    }
}
