//! Runs: bytes of a snapshot with one source, and parts with one place.

use varve_block::Extent;
use varve_format::pdata::written::NO_PLACE;
use varve_format::pdata::{Block, BlockRun};
use varve_format::store::PART_SIZE;

/// Where a run of a snapshot's bytes is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::snapshot) enum Source {
    /// In the store, from this byte on.
    Store(u64),
    /// Nowhere: they are zeros.
    Zeros,
    /// Not in this map: in the origin.
    Below,
}

/// A run of a snapshot's bytes with one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::snapshot) struct Run {
    pub extent: Extent,
    pub source: Source,
}

impl Run {
    /// The part of the run that is in `extent`, if any.
    pub(in crate::snapshot) fn clip(self, extent: Extent) -> Option<Run> {
        let part = self.extent.intersect(extent)?;
        assert!(self.extent.contains(part), "STOREMAP1: {part:?} is of {:?}", self.extent);
        let source = match self.source {
            Source::Store(place) => Source::Store(place + (part.offset - self.extent.offset)),
            other => other,
        };
        Some(Run { extent: part, source })
    }

    fn precedes(self, next: Run) -> bool {
        let adjacent = match (self.source, next.source) {
            (Source::Store(place), Source::Store(follower)) => place + self.extent.length == follower,
            (mine, other) => mine == other,
        };
        adjacent && self.extent.end() == next.extent.offset
    }
}

/// Appends `run`, as a continuation of the last one if it is one.
pub(super) fn push_run(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.precedes(run) => last.extent.length += run.extent.length,
        _ => runs.push(run),
    }
}

/// Appends `extent`, as a continuation of the last one if it is one.
pub(in crate::snapshot) fn push_extent(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        _ if extent.is_empty() => {}
        Some(last) if last.end() == extent.offset => last.length += extent.length,
        _ => extents.push(extent),
    }
}

/// A run of parts, and the block where they lie, if the map that was asked knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub first: u64,
    pub count: u64,
    pub place: Option<Block>,
}

impl Found {
    pub(super) fn end(self) -> u64 {
        self.first + self.count
    }

    /// The blocks of the store that it takes; none for zeros.
    pub(super) fn blocks(self) -> Option<BlockRun> {
        let place = self.place.filter(|place| *place != NO_PLACE)?;
        Some(BlockRun::new(place, self.count))
    }

    /// What is in `first..end`, if anything.
    pub(super) fn clip(self, first: u64, end: u64) -> Option<Found> {
        let (start, end) = (self.first.max(first), self.end().min(end));
        let place = self.place.map(|place| advance(place, start.saturating_sub(self.first)));
        (start < end).then(|| Found { first: start, count: end - start, place })
    }

    /// The bytes and their source.
    pub(super) fn run(self) -> Run {
        let source = match self.place {
            Some(NO_PLACE) => Source::Zeros,
            Some(block) => Source::Store(block.offset()),
            None => Source::Below,
        };
        Run { extent: extent_of(self.first, self.count), source }
    }
}

/// The place `count` parts behind `place`; zeros have none.
pub(super) fn advance(place: Block, count: u64) -> Block {
    if place == NO_PLACE { NO_PLACE } else { place + count }
}

/// The bytes of parts.
pub(super) fn extent_of(first: u64, count: u64) -> Extent {
    Extent::new(first * PART_SIZE, count * PART_SIZE)
}

/// What of two lists, which cover the same parts in order, is at the same place, in pieces of both.
pub(super) fn same(one: &[Found], two: &[Found]) -> impl Iterator<Item = Found> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    for mine in one {
        while let Some(other) = two.get(at).filter(|other| other.first < mine.end()) {
            let pair = (mine.clip(other.first, other.end()), other.clip(mine.first, mine.end()));
            if let (Some(mine), Some(other)) = pair
                && mine.place.is_some()
                && mine == other
            {
                pieces.push(mine);
            }
            if other.end() > mine.end() {
                break;
            }
            at += 1;
        }
    }
    pieces.into_iter()
}

/// What is left to be found of a run of parts, and what was found of it.
pub(super) struct Search {
    holes: Vec<Found>,
    found: Vec<Found>,
}

impl Search {
    pub(super) fn new(first: u64, end: u64) -> Self {
        assert!(first < end, "something is looked for");
        Self { holes: vec![Found { first, count: end - first, place: None }], found: Vec::new() }
    }

    /// Whether nothing is left to be found.
    pub(super) fn is_done(&self) -> bool {
        self.holes.is_empty()
    }

    /// Takes of `offer` what is looked for.
    pub(super) fn fill(&mut self, offer: Found) {
        let mut left = Vec::new();
        for hole in &self.holes {
            let Some(part) = offer.clip(hole.first, hole.end()) else {
                left.push(*hole);
                continue;
            };
            left.extend(hole.clip(hole.first, part.first));
            left.extend(hole.clip(part.end(), hole.end()));
            self.found.push(part);
        }
        assert!(left.iter().all(|hole| hole.count > 0), "STOREMAP1: a hole has parts");
        self.holes = left;
    }

    /// Everything in order, holes too.
    pub(super) fn finish(self) -> Vec<Found> {
        let Search { holes, mut found } = self;
        found.extend(holes);
        found.sort_unstable_by_key(|part| part.first);
        assert!(
            found.windows(2).all(|pair| pair[0].end() == pair[1].first),
            "PRESERVED2: each part is found once"
        );
        found
    }
}
