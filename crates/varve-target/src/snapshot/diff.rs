//! What differs between two snapshots, or a snapshot and the origin, from metadata alone.
//!
//! Only chunks that were preserved for a snapshot from the older one on and before the newer one, or written to one
//! of the two, can differ: all others lead both to the same place. No content is read.
//!
//! Invariants:
//! - STOREDIFF1. Every byte that differs is in the answer.
//! - STOREDIFF2. A part of 4 KiB is in the answer exactly if the two find it at different places: so one that was changed and
//!   changed back, or written with what it held, is in the answer too.

use super::map::{Run, push_extent};
use super::rollback::ORIGIN;
use super::{InjectedBug, SnapshotStore, StoreError};
use varve_block::Extent;

/// How many bytes are compared as one.
const PIECE_BYTES: u64 = 1 << 30;

impl SnapshotStore {
    /// The extents, in order and as long as they can be, in which snapshot `from` differs from snapshot `to`, or from
    /// the origin if that is `None`. Exact but for content that was replaced by the same content (STOREDIFF1, STOREDIFF2). Where only
    /// the larger one has bytes they count as different.
    ///
    /// What is written while this goes on may or may not be in the answer; everything that differed before is. Takes
    /// time in proportion to what was preserved, not to the size of the origin.
    pub async fn diff(&self, from: u64, to: Option<u64>) -> Result<Vec<Extent>, StoreError> {
        if to.is_none() && self.half_rolled_back.get() {
            return Err(StoreError::HalfRolledBack);
        }
        let from_size = self.descriptor(from)?.size;
        let to_size = match to {
            Some(to) => self.descriptor(to)?.size,
            None => self.origin_device().shape().size,
        };
        let to = to.unwrap_or(ORIGIN);
        let (older, newer) = (from.min(to), from.max(to));
        let common = Extent::new(0, from_size.min(to_size));
        let written = !self.has_bug(InjectedBug::DiffWithoutWritten);
        let (mut differing, mut key, mut done) = (Vec::new(), Some(0), 0);
        let windowed = self.same_outside_windows(newer).intersect(common).unwrap_or_default();
        assert!(windowed.end() <= common.end(), "STOREDIFF1: all of what both have is compared");
        while let Some(from) = key {
            let (oldest, writers) = self.concerned_by_diff(older, newer);
            let writers = if written { writers } else { Vec::new() };
            let window = self.map.touched(oldest..newer, &writers, from).await?;
            for extent in window.touched.into_iter().filter_map(|extent| extent.intersect(windowed)) {
                for (_, piece) in
                    Extent::between(extent.offset.max(done), extent.end().max(done)).pieces(PIECE_BYTES)
                {
                    let (one, two) = self.shown_both(older, newer, piece).await?;
                    compare(&one, &two, &mut differing);
                }
                done = done.max(extent.end());
            }
            key = window.next;
        }
        for (_, piece) in Extent::between(windowed.end(), common.end()).pieces(PIECE_BYTES) {
            let (one, two) = self.shown_both(older, newer, piece).await?;
            compare(&one, &two, &mut differing);
        }
        let all = Extent::new(0, from_size.max(to_size));
        push_extent(&mut differing, Extent::between(common.end(), all.end()));
        assert!(differing.iter().all(|extent| all.contains(*extent)), "what differs is part of one of them");
        Ok(differing)
    }

    /// The bytes that `newer` finds where an older snapshot does, unless the maps have something of them: behind the target's
    /// end the origin shows zeros while it is rolled back, of which no map knows (ROLLBACK7 of `rollback.rs`).
    fn same_outside_windows(&self, newer: u64) -> Extent {
        let contents = self.contents.borrow();
        let rollback = contents.rollback.as_ref().filter(|rollback| newer >= rollback.boundary);
        Extent::new(0, rollback.map_or(u64::MAX, |rollback| rollback.target_size))
    }

    /// The oldest snapshot of which what was preserved can make `older` and `newer` differ, and those of which what
    /// was written can.
    fn concerned_by_diff(&self, older: u64, newer: u64) -> (u64, Vec<u64>) {
        let contents = self.contents.borrow();
        match contents.rollback.as_ref().filter(|rollback| newer >= rollback.boundary) {
            // The newer one finds in parts that are not restored what the target does.
            Some(rollback) => (older.min(rollback.snapshot), vec![older, newer, rollback.snapshot]),
            None => (older, vec![older, newer]),
        }
    }
}

/// Appends to `differing` where two lists of runs, which cover the same bytes, have different sources (STOREDIFF2).
fn compare(one: &[Run], two: &[Run], differing: &mut Vec<Extent>) {
    let bytes = |runs: &[Run]| runs.iter().map(|run| run.extent.length).sum::<u64>();
    assert_eq!(bytes(one), bytes(two), "STOREDIFF1: both lists cover the same bytes");
    let mut others = two.iter().peekable();
    for run in one {
        let mut at = run.extent.offset;
        while at < run.extent.end() {
            let other = others.peek().expect("STOREDIFF1: both lists cover the same bytes");
            let both = Extent::between(at, run.extent.end().min(other.extent.end()));
            let same = match (run.clip(both), other.clip(both)) {
                (Some(mine), Some(theirs)) => mine.source == theirs.source,
                _ => unreachable!("STOREDIFF1: both lists cover the same bytes"),
            };
            if !same {
                push_extent(differing, both);
            }
            at = both.end();
            if at == other.extent.end() {
                others.next();
            }
        }
    }
}
