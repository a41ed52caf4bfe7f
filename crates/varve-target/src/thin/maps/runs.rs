//! The entries of one leaf of a volume's map as runs of parts: looked up, cut, replaced and joined. Nothing is awaited.
//!
//! Invariants:
//! - RUNS1. Runs do not overlap, and none reaches into the next leaf.
//! - RUNS2. Runs are joined only if they follow each other in the volume and in the pool and are both older than the
//!   last clone or both younger; the older birth stays.
//! - RUNS3. A walk believes a leaf as a whole or not at all ([`of_leaf`]): a disk may hold an older version of a block,
//!   or another. A request believes each run that it meets, or fails ([`Runs`]): it ends before the next begins, is no
//!   younger than its leaf, and is where data can.

use super::bounds::{Bounds, PARTS_MAX};
use crate::pdata::{Span, Splice, Stop};
use varve_format::pdata::node::{Key, Value};
use varve_format::pdata::{Block, BlockError, BlockRun};
use varve_format::thin::Mapping;

/// What some parts of a volume are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::thin) struct Segment {
    /// First part.
    pub(in crate::thin) start: u64,
    /// Number of parts.
    pub(in crate::thin) count: u64,
    /// The run that says so, cut to these parts; none for a hole.
    pub(in crate::thin) mapping: Option<Mapping>,
}

/// Where some parts of a volume are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::thin) enum Content {
    /// Nothing is mapped.
    Hole,
    /// They are zeros that were written.
    Zeros,
    /// They lie in the pool from this block on.
    Data(Block),
}

impl Content {
    pub(in crate::thin) fn of(mapping: Option<Mapping>) -> Self {
        mapping.map_or(Content::Hole, |mapping| mapping.place.map_or(Content::Zeros, Content::Data))
    }
}

impl Segment {
    /// The hole in two, where part `at` divides it.
    pub(in crate::thin) fn cut(self, at: u64) -> impl Iterator<Item = Segment> {
        assert!(self.count > 0, "a segment has parts");
        let end = self.start + self.count;
        let middle = if self.mapping.is_none() { at.clamp(self.start, end) } else { end };
        let piece =
            move |(start, end): (u64, u64)| Segment { start, count: end - start, mapping: self.mapping };
        let pieces = [(self.start, middle), (middle, end)];
        pieces.into_iter().filter(|(start, end)| start < end).map(piece)
    }
}

/// RUNS3: the runs of a leaf of this generation, if all of them can be; else what is wrong with it.
pub(in crate::thin) fn of_leaf(
    entries: &[(Key, Value)],
    generation: u64,
) -> Result<Vec<Mapping>, &'static str> {
    let (mut runs, mut end) = (Vec::with_capacity(entries.len()), 0);
    for (key, value) in entries {
        let run = Mapping::decode(*key, value).map_err(|_| "says of a run what cannot be")?;
        if run.start < end || run.birth > generation || run.end() > PARTS_MAX {
            return Err("has runs that overlap (RUNS1), are too young (POOLCHECK1) or lie too far");
        }
        end = run.end();
        runs.push(run);
    }
    assert_eq!(runs.len(), entries.len(), "RUNS3: all or nothing");
    Ok(runs)
}

/// The entries of a leaf, each believed when it is looked at (RUNS3).
#[derive(Clone, Copy)]
pub(in crate::thin) struct Runs<'a> {
    entries: &'a [(Key, Value)],
    /// The first part that the next leaf may hold.
    end: u64,
    /// The block of the leaf, and the transaction that made it.
    leaf: (Block, u64),
    bounds: Bounds,
}

impl<'a> Runs<'a> {
    pub(in crate::thin) fn of(span: &'a Span, bounds: Bounds) -> Self {
        Self { entries: span.entries(), end: leaf_end(span.end), leaf: span.leaf(), bounds }
    }

    /// The run that entry `index` says (RUNS3).
    pub(in crate::thin) fn at(&self, index: usize) -> Result<Mapping, Stop> {
        let (key, value) = &self.entries[index];
        let next = self.entries.get(index + 1).map_or(Key::from(self.end), |next| next.0);
        let can_be = |run: &Mapping| {
            let is_apart = Key::from(run.end()) <= next && run.end() <= PARTS_MAX;
            let is_placed = run.blocks().is_none_or(|blocks| self.bounds.may_hold_data(blocks));
            is_apart && is_placed && run.birth <= self.leaf.1
        };
        let run = Mapping::decode(*key, value).ok().filter(can_be);
        run.ok_or(Stop::Damaged(self.leaf.0, BlockError::Invalid("RUNS3: a run that cannot be")))
    }

    /// All runs.
    pub(in crate::thin) fn all(&self) -> Result<Vec<Mapping>, Stop> {
        (0..self.entries.len()).map(|index| self.at(index)).collect()
    }

    /// Number of runs.
    pub(in crate::thin) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The index of the first entry that begins at `part` or behind it.
    fn first_from(&self, part: u64) -> usize {
        self.entries.partition_point(|entry| entry.0 < Key::from(part))
    }
}

/// The first part that the next leaf may hold.
pub(in crate::thin) fn leaf_end(end: Option<Key>) -> u64 {
    end.and_then(|end| u64::try_from(end).ok()).unwrap_or(u64::MAX)
}

/// The part of `mapping` from `from` to `to`, if there is any.
pub(in crate::thin) fn clip(mapping: Mapping, from: u64, to: u64) -> Option<Mapping> {
    assert!(from <= to && mapping.count > 0, "RUNS1: {mapping:?} from {from} to {to}");
    let (start, end) = (mapping.start.max(from), mapping.end().min(to));
    if start >= end {
        return None;
    }
    Some(Mapping { count: end - start, ..mapping.behind(start - mapping.start) })
}

/// The runs that have parts from `from` to `to`, cut to them.
pub(in crate::thin) fn within(
    runs: Runs<'_>,
    from: u64,
    to: u64,
) -> impl Iterator<Item = Result<Mapping, Stop>> {
    let first = runs.entries.partition_point(|entry| entry.0 <= Key::from(from)).saturating_sub(1);
    let last = runs.first_from(to).max(first);
    (first..last).filter_map(move |index| runs.at(index).map(|run| clip(run, from, to)).transpose())
}

/// What the parts from `from` to `to` are, in order and without a gap.
pub(in crate::thin) fn segments(
    runs: Runs<'_>,
    from: u64,
    to: u64,
    found: &mut Vec<Segment>,
) -> Result<(), Stop> {
    assert!(from < to, "something is asked");
    let mut at = from;
    for mapping in within(runs, from, to) {
        let mapping = mapping?;
        if at < mapping.start {
            found.push(Segment { start: at, count: mapping.start - at, mapping: None });
        }
        found.push(Segment { start: mapping.start, count: mapping.count, mapping: Some(mapping) });
        at = mapping.end();
    }
    if at < to {
        found.push(Segment { start: at, count: to - at, mapping: None });
    }
    Ok(())
}

/// The run that ends at or before `start` and is nearest to it.
pub(in crate::thin) fn before(runs: Runs<'_>, start: u64) -> Result<Option<Mapping>, Stop> {
    runs.first_from(start).checked_sub(1).map(|index| runs.at(index)).transpose()
}

/// RUNS2: both as one run.
fn joined(one: Mapping, two: Mapping, last_clone: u64) -> Option<Mapping> {
    assert!(one.end() <= two.start, "RUNS1: {one:?} before {two:?}");
    let follows = one.blocks().map(BlockRun::end) == two.place;
    let alike = (one.birth > last_clone) == (two.birth > last_clone);
    let fits = one.count + two.count <= Mapping::COUNT_MAX;
    let birth = one.birth.min(two.birth);
    (one.end() == two.start && follows && alike && fits).then_some(Mapping {
        count: one.count + two.count,
        birth,
        ..one
    })
}

/// The change of a leaf that puts `new` in place of what it says of the parts from `from` to `to`, and what that was.
pub(in crate::thin) fn replace(
    leaf: Runs<'_>,
    (from, to): (u64, u64),
    new: Option<Mapping>,
    last_clone: u64,
) -> Result<(Splice, Vec<Mapping>), Stop> {
    assert!(new.is_none_or(|new| new.start >= from && new.end() <= to), "RUNS1: {new:?} in {from}..{to}");
    let removed: Vec<_> = within(leaf, from, to).collect::<Result<_, _>>()?;
    let (first, end) = (leaf.first_from(from), leaf.first_from(to));
    let left = before(leaf, from)?;
    // The run that reaches over `to` began before it: it is the last one before `end`.
    let over = before(leaf, to)?.filter(|run| run.end() > to);
    let right = over.and_then(|run| clip(run, to, run.end()));
    let next = (end < leaf.len()).then(|| leaf.at(end)).transpose()?;
    let mut runs: Vec<Mapping> = Vec::with_capacity(4);
    for run in [left.and_then(|run| clip(run, 0, from)), new, right, next].into_iter().flatten() {
        match runs.last().and_then(|last| joined(*last, run, last_clone)) {
            Some(joined) => *runs.last_mut().expect("one was joined") = joined,
            None => runs.push(run),
        }
    }
    // The neighbours were looked at to be joined: most often they stay as they are.
    let mut range = first.saturating_sub(1)..(end + 1).min(leaf.len());
    if next.is_some() && runs.last() == next.as_ref() {
        runs.pop();
        range.end -= 1;
    }
    let keeps_left = left.is_some() && runs.first() == left.as_ref();
    range.start += usize::from(keeps_left);
    let kept = &runs[usize::from(keeps_left)..];
    let entries = kept.iter().map(|run| (run.key(), run.value())).collect();
    Ok((Splice { range, entries }, removed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const BOUNDS: Bounds = Bounds { base: Block::new(2), end: Block::new(20_000) };

    fn leaf(entries: &[(Key, Value)]) -> Runs<'_> {
        Runs { entries, end: u64::MAX, leaf: (Block::new(1), 1000), bounds: BOUNDS }
    }

    #[test]
    fn a_run_that_cannot_be_is_not_believed() {
        let at = |number: u64| Some(Block::new(number));
        let sound = Mapping { start: 10, count: 5, place: at(100), birth: 7 };
        let next = Mapping { start: 20, count: 1, place: None, birth: 7 };
        let entries = |run: Mapping| vec![(run.key(), run.value()), (next.key(), next.value())];
        let look = |run: Mapping, end: u64, generation: u64| {
            let entries = entries(run);
            let runs = Runs { end, leaf: (Block::new(1), generation), ..leaf(&entries) };
            runs.all()
        };
        assert_eq!(look(sound, 21, 7), Ok(vec![sound, next]));
        for wrong in [
            Mapping { count: 11, ..sound },
            Mapping { place: at(1), ..sound },
            Mapping { place: at(3), count: 5, start: 10, birth: 8 },
            Mapping { place: at(20_000 - 4), ..sound },
            Mapping { place: at(2), ..sound },
        ] {
            assert!(
                matches!(look(wrong, 21, 7), Err(Stop::Damaged(block, _)) if block == Block::new(1)),
                "RUNS3: {wrong:?}"
            );
        }
        assert!(look(sound, 20, 7).is_err(), "RUNS1: the last one reaches into the next leaf");
        assert!(look(sound, 21, 6).is_err(), "RUNS3: it is younger than its leaf");
    }

    proptest! {
        #[test]
        fn runs_say_what_an_array_says(changes in prop::collection::vec((0_u64..60, 1_u64..20, 0_u64..4), 1..40)) {
            let mut entries = Vec::new();
            let mut model: BTreeMap<u64, Option<Block>> = BTreeMap::new();
            for (number, (start, count, kind)) in changes.into_iter().enumerate() {
                let place = if kind == 3 { 500 + start } else { 300 * number as u64 + 7 };
                let place = (kind != 1).then(|| Block::new(place));
                let new = (kind > 0).then_some(Mapping { start, count, place, birth: number as u64 });
                let (change, removed) =
                    replace(leaf(&entries), (start, start + count), new, 20).expect("they are sound");
                let mut now = entries.clone();
                now.splice(change.range, change.entries);
                let expected: Vec<_> = model.range(start..start + count).map(|(at, place)| (*at, *place)).collect();
                let flat = |run: &Mapping| {
                    let run = *run;
                    (0..run.count).map(move |at| (run.start + at, run.place.map(|place| place + at))).collect::<Vec<_>>()
                };
                prop_assert_eq!(removed.iter().flat_map(flat).collect::<Vec<_>>(), expected);
                for at in start..start + count {
                    model.remove(&at);
                }
                model.extend(new.iter().flat_map(flat));
                let all = leaf(&now).all().expect("they are sound");
                prop_assert_eq!(all.iter().flat_map(flat).collect::<BTreeMap<_, _>>(), model.clone());
                prop_assert!(all.windows(2).all(|pair| pair[0].end() <= pair[1].start), "RUNS1");
                prop_assert!(all.windows(2).all(|pair| joined(pair[0], pair[1], 20).is_none()), "RUNS2");
                let mut found = Vec::new();
                segments(leaf(&now), 0, 100, &mut found).expect("they are sound");
                prop_assert_eq!(found.iter().map(|segment| segment.count).sum::<u64>(), 100);
                entries = now;
            }
        }
    }
}
