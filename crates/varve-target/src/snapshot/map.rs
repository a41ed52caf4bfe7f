//! The map of an exception store: which bytes of which snapshot lie where in the store.
//!
//! Two key spaces. What was *preserved* for snapshots is found by (chunk, snapshot), so that the content of snapshot
//! S is the first entry at or after (chunk, S) that covers a part. What was *written* to a snapshot is found by
//! (snapshot, chunk) and seen by nobody else. This first form keeps everything in memory; what it offers (look up,
//! insert, remove a snapshot) is what a tree on disk will offer in its place.
//!
//! Invariants:
//! - P1. The pieces of an entry are sorted, do not overlap, lie in the entry's chunk and consist of whole parts.
//! - P2. No byte of the store belongs to two pieces.
//! - P3. An entry has at least one piece.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use varve_block::Extent;
use varve_format::store::{Mapping, PART_SIZE, ZEROS};

/// Where a run of a snapshot's bytes is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// In the store, from this byte on.
    Store(u64),
    /// Nowhere: they are zeros.
    Zeros,
    /// Not in this map: in the origin.
    Below,
}

/// A run of a snapshot's bytes with one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub extent: Extent,
    pub source: Source,
}

impl Run {
    /// The part of the run that lies in `extent`, if any.
    pub(super) fn clip(self, extent: Extent) -> Option<Run> {
        let part = self.extent.intersect(extent)?;
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
fn push_run(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.precedes(run) => last.extent.length += run.extent.length,
        _ => runs.push(run),
    }
}

/// A run of bytes and their place in the store, or [`ZEROS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    extent: Extent,
    place: u64,
}

impl Piece {
    fn cut(self, extent: Extent) -> Option<Piece> {
        let part = self.extent.intersect(extent)?;
        let place = if self.place == ZEROS { ZEROS } else { self.place + (part.offset - self.extent.offset) };
        Some(Piece { extent: part, place })
    }

    fn run(self) -> Run {
        let source = if self.place == ZEROS { Source::Zeros } else { Source::Store(self.place) };
        Run { extent: self.extent, source }
    }

    fn stored(self) -> Option<Extent> {
        (self.place != ZEROS).then(|| Extent::new(self.place, self.extent.length))
    }
}

/// The pieces of one entry.
#[derive(Clone, Debug, Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    /// The parts of `holes` that no piece covers; what covers the others is given to `found`.
    fn fill(&self, holes: &[Extent], mut found: impl FnMut(Piece)) -> Vec<Extent> {
        let mut left = Vec::new();
        for hole in holes {
            let mut at = hole.offset;
            for piece in self.0.iter().filter_map(|piece| piece.cut(*hole)) {
                if at < piece.extent.offset {
                    left.push(Extent::between(at, piece.extent.offset));
                }
                found(piece);
                at = piece.extent.end();
            }
            if at < hole.end() {
                left.push(Extent::between(at, hole.end()));
            }
        }
        left
    }

    /// Takes out what lies in `extent`.
    fn take(&mut self, extent: Extent) -> Vec<Piece> {
        let mut taken = Vec::new();
        let mut kept = Vec::with_capacity(self.0.len() + 1);
        for piece in self.0.drain(..) {
            taken.extend(piece.cut(extent));
            let before = Extent::new(0, extent.offset);
            let after = Extent::between(extent.end(), u64::MAX);
            kept.extend([before, after].into_iter().filter_map(|side| piece.cut(side)));
        }
        self.0 = kept;
        taken
    }

    /// Inserts a piece where there is none.
    fn put(&mut self, piece: Piece) {
        let index = self.0.partition_point(|other| other.extent.offset < piece.extent.offset);
        let before_ends = index == 0 || self.0[index - 1].extent.end() <= piece.extent.offset;
        let after_begins = self.0.get(index).is_none_or(|next| piece.extent.end() <= next.extent.offset);
        assert!(before_ends && after_begins, "P1: {piece:?} overlaps");
        self.0.insert(index, piece);
        // Join with the neighbours where data goes on too.
        for left in [index, index.wrapping_sub(1)] {
            let (Some(one), Some(two)) =
                (self.0.get(left).copied(), self.0.get(left.wrapping_add(1)).copied())
            else {
                continue;
            };
            if one.run().precedes(two.run()) {
                self.0[left].extent.length += two.extent.length;
                self.0.remove(left + 1);
            }
        }
    }
}

/// The map.
pub(super) struct Map {
    chunk_size: u64,
    /// By (chunk, snapshot).
    preserved: BTreeMap<(u64, u64), Pieces>,
    /// By (snapshot, chunk).
    written: BTreeMap<(u64, u64), Pieces>,
    /// Number of pieces in both.
    pieces: usize,
}

/// How many bytes of the store belong to a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotBytes {
    /// What was preserved while it was the newest, and older snapshots may share.
    pub preserved: u64,
    /// What was written to it.
    pub written: u64,
}

impl Map {
    pub(super) fn new(chunk_size: u64) -> Self {
        assert!(chunk_size.is_power_of_two() && chunk_size >= PART_SIZE);
        Self { chunk_size, preserved: BTreeMap::new(), written: BTreeMap::new(), pieces: 0 }
    }

    /// An upper bound for the number of mappings that [`Map::mappings`] gives.
    pub(super) fn pieces(&self) -> usize {
        self.pieces
    }

    /// Bytes of a chunk.
    pub(super) fn chunk_size(&self) -> u64 {
        self.chunk_size
    }

    /// The parts of `extent` of which the origin's content must be preserved for `snapshot`, the newest one, before
    /// they change: those that nothing is preserved of since it was taken, be it for one that is leaving.
    pub(super) fn missing(&self, snapshot: u64, extent: Extent) -> Vec<Extent> {
        let mut missing: Vec<Extent> = Vec::new();
        let mut add = |hole: Extent| match missing.last_mut() {
            Some(last) if last.end() == hole.offset => last.length += hole.length,
            _ => missing.push(hole),
        };
        for (chunk, part) in extent.pieces(self.chunk_size) {
            let mut holes = vec![part];
            for (_, pieces) in self.preserved.range((chunk, snapshot)..=(chunk, u64::MAX)) {
                holes = pieces.fill(&holes, |_| {});
            }
            holes.into_iter().for_each(&mut add);
        }
        missing
    }

    /// Where the bytes of `extent` of `snapshot` are, in order.
    pub(super) fn resolve(&self, snapshot: u64, extent: Extent) -> Vec<Run> {
        self.resolve_with(extent, |chunk, fill| {
            if let Some(pieces) = self.written.get(&(snapshot, chunk))
                && fill(pieces).is_break()
            {
                return;
            }
            for (_, pieces) in self.preserved.range((chunk, snapshot)..=(chunk, u64::MAX)) {
                if fill(pieces).is_break() {
                    return;
                }
            }
        })
    }

    /// Where the bytes of `extent` are that were written to `snapshot`; [`Source::Below`] where it was not.
    pub(super) fn resolve_written(&self, snapshot: u64, extent: Extent) -> Vec<Run> {
        self.resolve_with(extent, |chunk, fill| {
            if let Some(pieces) = self.written.get(&(snapshot, chunk)) {
                let _ = fill(pieces);
            }
        })
    }

    /// A wrong [`Map::resolve`], for the tests of the oracle: what was written to a newer snapshot is taken for what
    /// was preserved.
    pub(super) fn resolve_confused(&self, snapshot: u64, extent: Extent) -> Vec<Run> {
        self.resolve_with(extent, |chunk, fill| {
            let own = self.written.range((snapshot, chunk)..);
            let mut pieces: Vec<_> =
                own.filter(|(key, _)| key.1 == chunk).map(|(key, pieces)| (key.0, 0, pieces)).collect();
            let preserved = self.preserved.range((chunk, snapshot)..=(chunk, u64::MAX));
            pieces.extend(preserved.map(|(key, pieces)| (key.1, 1, pieces)));
            pieces.sort_by_key(|(snapshot, rank, _)| (*snapshot, *rank));
            for (_, _, pieces) in pieces {
                if fill(pieces).is_break() {
                    return;
                }
            }
        })
    }

    /// Resolves chunk by chunk: `search` offers the entries of a chunk, most important first, until nothing is left.
    fn resolve_with(
        &self,
        extent: Extent,
        search: impl Fn(u64, &mut dyn FnMut(&Pieces) -> ControlFlow<()>),
    ) -> Vec<Run> {
        let mut runs = Vec::new();
        for (chunk, part) in extent.pieces(self.chunk_size) {
            let mut holes = vec![part];
            let mut found = Vec::new();
            search(chunk, &mut |pieces| {
                holes = pieces.fill(&holes, |piece| found.push(piece.run()));
                if holes.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            found.extend(holes.into_iter().map(|extent| Run { extent, source: Source::Below }));
            found.sort_by_key(|run| run.extent.offset);
            let covered: u64 = found.iter().map(|run| run.extent.length).sum();
            assert_eq!(covered, part.length, "P1: every byte has one source");
            found.into_iter().for_each(|run| push_run(&mut runs, run));
        }
        runs
    }

    /// Notes that the origin's content of `mapping`, which was preserved for `owner` or for its snapshot itself, the
    /// same or an older one, is that snapshot's own. Parts that a snapshot from the one to the other has already stay
    /// as they are (L3). Returns the bytes of the store that were not needed.
    pub(super) fn insert_preserved(&mut self, mapping: Mapping, owner: u64) -> Vec<Extent> {
        assert_ne!(mapping.place, ZEROS, "preserved content has a place");
        assert!(mapping.extent.is_aligned(PART_SIZE) && mapping.snapshot <= owner, "P1: {mapping:?}");
        let whole = Piece { extent: mapping.extent, place: mapping.place };
        let mut unused = Vec::new();
        for (chunk, part) in mapping.extent.pieces(self.chunk_size) {
            let (mut holes, mut covered) = (vec![part], Vec::new());
            for (_, pieces) in self.preserved.range((chunk, mapping.snapshot)..=(chunk, owner)) {
                holes = pieces.fill(&holes, |piece| covered.push(piece.extent));
            }
            unused.extend(covered.into_iter().filter_map(|extent| whole.cut(extent)?.stored()));
            if holes.is_empty() {
                continue; // P3
            }
            let pieces = self.preserved.entry((chunk, mapping.snapshot)).or_default();
            self.pieces -= pieces.0.len();
            holes.into_iter().filter_map(|hole| whole.cut(hole)).for_each(|piece| pieces.put(piece));
            self.pieces += pieces.0.len();
        }
        unused
    }

    /// Notes that `mapping`'s snapshot was written. Returns the bytes of the store that are no longer needed.
    pub(super) fn insert_written(&mut self, mapping: Mapping) -> Vec<Extent> {
        assert!(mapping.extent.is_aligned(PART_SIZE), "P1: {mapping:?}");
        let whole = Piece { extent: mapping.extent, place: mapping.place };
        let mut freed = Vec::new();
        for (chunk, part) in mapping.extent.pieces(self.chunk_size) {
            let pieces = self.written.entry((mapping.snapshot, chunk)).or_default();
            self.pieces -= pieces.0.len();
            freed.extend(pieces.take(part).into_iter().filter_map(Piece::stored));
            whole.cut(part).into_iter().for_each(|piece| pieces.put(piece));
            self.pieces += pieces.0.len();
        }
        freed
    }

    /// Looks at up to `entries` entries, from `from` on, of `snapshot`, which is leaving. What was preserved for it
    /// and `heir`, the next older snapshot and its size, still needs is handed over. Returns the bytes of the store
    /// that are no longer needed, and where to go on, unless all is done.
    pub(super) fn reclaim(
        &mut self,
        snapshot: u64,
        heir: Option<(u64, u64)>,
        from: (u64, u64),
        entries: usize,
    ) -> (Vec<Extent>, Option<(u64, u64)>) {
        assert!(entries > 0 && heir.is_none_or(|(heir, _)| heir < snapshot), "a dose leads on");
        let mut freed = Vec::new();
        let own = self.written.range((snapshot, 0)..=(snapshot, u64::MAX)).take(entries);
        let own: Vec<(u64, u64)> = own.map(|(key, _)| *key).collect();
        for key in &own {
            let pieces = self.written.remove(key).unwrap_or_default();
            self.pieces -= pieces.0.len();
            freed.extend(pieces.0.into_iter().filter_map(Piece::stored));
        }
        if !own.is_empty() {
            return (freed, Some(from));
        }
        let keys: Vec<(u64, u64)> = self.preserved.range(from..).take(entries).map(|(key, _)| *key).collect();
        let next = keys.last().map(|last| (last.0, last.1.saturating_add(1)));
        for key in keys.into_iter().filter(|key| key.1 == snapshot) {
            let pieces = self.preserved.remove(&key).unwrap_or_default();
            self.pieces -= pieces.0.len();
            for Piece { extent, place } in pieces.0 {
                freed.extend(self.hand_over(Mapping { snapshot, extent, place }, heir));
            }
        }
        (freed, next)
    }

    /// Gives `heir`, a snapshot and its size, what it needs of the content that was preserved by `mapping`. Returns
    /// the bytes of the store that it does not need.
    pub(super) fn hand_over(&mut self, mapping: Mapping, heir: Option<(u64, u64)>) -> Vec<Extent> {
        let piece = Piece { extent: mapping.extent, place: mapping.place };
        let Some((heir, size)) = heir else {
            return piece.stored().into_iter().collect();
        };
        let inside = piece.cut(Extent::new(0, size));
        let beyond = piece.cut(Extent::between(size, u64::MAX));
        let mut freed: Vec<Extent> = beyond.and_then(Piece::stored).into_iter().collect();
        if let Some(Piece { extent, place }) = inside {
            freed.extend(self.insert_preserved(Mapping { snapshot: heir, extent, place }, mapping.snapshot));
        }
        freed
    }

    /// How many bytes of the store [`Map::reclaim`] would find to be no longer needed.
    pub(super) fn frees(&self, snapshot: u64, heir: Option<(u64, u64)>) -> u64 {
        let stored = |pieces: &Pieces| {
            pieces.0.iter().filter_map(|piece| piece.stored()).map(|stored| stored.length).sum::<u64>()
        };
        let written =
            self.written.range((snapshot, 0)..=(snapshot, u64::MAX)).map(|(_, pieces)| stored(pieces));
        let mut bytes: u64 = written.sum();
        for (key, pieces) in self.preserved.iter().filter(|(key, _)| key.1 == snapshot) {
            let needed = heir.map_or(0, |(heir, size)| {
                let inside = Extent::new(0, size);
                let mut holes: Vec<Extent> =
                    pieces.0.iter().filter_map(|piece| piece.extent.intersect(inside)).collect();
                for (_, older) in self.preserved.range((key.0, heir)..(key.0, snapshot)) {
                    holes = older.fill(&holes, |_| {});
                }
                holes.iter().map(|hole| hole.length).sum()
            });
            bytes += stored(pieces) - needed;
        }
        bytes
    }

    /// The chunks in which snapshots `older` and `newer` can differ: those preserved from the older one on and before
    /// the newer one and, if `written`, those written to either.
    pub(super) fn touched(&self, older: u64, newer: u64, written: bool) -> BTreeSet<u64> {
        assert!(older <= newer, "snapshots are ordered by age");
        let between = self.preserved.keys().filter(|key| (older..newer).contains(&key.1));
        let mut chunks: BTreeSet<u64> = between.map(|key| key.0).collect();
        for snapshot in [older, newer].into_iter().filter(|_| written) {
            chunks.extend(self.written.range((snapshot, 0)..=(snapshot, u64::MAX)).map(|(key, _)| key.1));
        }
        chunks
    }

    /// Everything in the map: what was preserved, then what was written, neighbours joined.
    pub(super) fn mappings(&self) -> (Vec<Mapping>, Vec<Mapping>) {
        let mut preserved: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
        for ((_, snapshot), pieces) in &self.preserved {
            let runs = preserved.entry(*snapshot).or_default();
            pieces.0.iter().for_each(|piece| push_run(runs, piece.run()));
        }
        let mut written: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
        for ((snapshot, _), pieces) in &self.written {
            let runs = written.entry(*snapshot).or_default();
            pieces.0.iter().for_each(|piece| push_run(runs, piece.run()));
        }
        (to_mappings(preserved), to_mappings(written))
    }

    /// The bytes of the store that pieces take.
    pub(super) fn places(&self) -> impl Iterator<Item = Extent> {
        let all = self.preserved.values().chain(self.written.values());
        all.flat_map(|pieces| pieces.0.iter().filter_map(|piece| piece.stored()))
    }

    /// The bytes of the store that belong to each snapshot.
    pub(super) fn bytes(&self) -> BTreeMap<u64, SnapshotBytes> {
        let mut bytes: BTreeMap<u64, SnapshotBytes> = BTreeMap::new();
        let length = |pieces: &Pieces| {
            pieces.0.iter().filter_map(|piece| piece.stored()).map(|stored| stored.length).sum::<u64>()
        };
        for ((_, snapshot), pieces) in &self.preserved {
            bytes.entry(*snapshot).or_default().preserved += length(pieces);
        }
        for ((snapshot, _), pieces) in &self.written {
            bytes.entry(*snapshot).or_default().written += length(pieces);
        }
        bytes
    }
}

fn to_mappings(runs: BTreeMap<u64, Vec<Run>>) -> Vec<Mapping> {
    let mapping = |snapshot, run: Run| {
        let place = match run.source {
            Source::Store(place) => place,
            Source::Zeros | Source::Below => ZEROS,
        };
        Mapping { snapshot, extent: run.extent, place }
    };
    runs.into_iter()
        .flat_map(|(snapshot, runs)| runs.into_iter().map(move |run| mapping(snapshot, run)))
        .collect()
}

#[cfg(test)]
mod tests;
