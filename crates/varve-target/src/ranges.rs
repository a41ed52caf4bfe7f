//! A set of bytes, as the ranges that it consists of.
//!
//! Invariant RANGES1: ranges are not empty, do not touch each other, and stand in order.

use std::collections::BTreeMap;
use varve_block::Extent;

/// A set of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// The end of each range, by its beginning.
    ends: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ranges {
    /// How many ranges there are.
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// How many bytes are in the set.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes before `end` are in the set.
    pub(crate) fn bytes_before(&self, end: u64) -> u64 {
        let behind = self.ends.iter().rev().take_while(|(_, last)| **last > end);
        let beyond: u64 = behind.map(|(first, last)| last - end.max(*first)).sum();
        assert!(beyond <= self.bytes, "RANGES1: what lies behind {end} is in the set");
        self.bytes - beyond
    }

    /// The ranges, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> {
        self.ends.iter().map(|(start, end)| Extent::between(*start, *end))
    }

    /// Puts `extent` into the set.
    pub(crate) fn insert(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        let (mut start, mut end) = (extent.offset, extent.end());
        // Whatever overlaps or touches it becomes one range with it (RANGES1).
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back()
            && other_end >= start
        {
            self.ends.remove(&other);
            self.bytes -= other_end - other;
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.ends.insert(start, end);
        self.bytes += end - start;
        assert!(self.bytes >= extent.length, "RANGES1: {extent:?} is in the set");
    }

    /// Takes `extent` out of the set.
    pub(crate) fn remove(&mut self, extent: Extent) {
        while let Some((&start, &end)) = self.ends.range(..extent.end()).next_back()
            && end > extent.offset
            && !extent.is_empty()
        {
            self.ends.remove(&start);
            self.bytes -= end - start;
            for side in [(start, extent.offset.max(start)), (extent.end().min(end), end)] {
                if side.0 < side.1 {
                    self.ends.insert(side.0, side.1);
                    self.bytes += side.1 - side.0;
                }
            }
        }
        assert!(extent.is_empty() || self.gaps(extent) == [extent], "RANGES1: nothing of {extent:?} is left");
    }

    /// What of `extent` is not in the set, in order.
    pub(crate) fn gaps(&self, extent: Extent) -> Vec<Extent> {
        let before = self.ends.range(..=extent.offset).next_back();
        let mut at = before.map_or(extent.offset, |(_, end)| extent.offset.max(*end));
        let mut gaps = Vec::new();
        for (&start, &end) in self.ends.range(extent.offset..extent.end()) {
            if at < start {
                gaps.push(Extent::between(at, start));
            }
            at = at.max(end);
        }
        if at < extent.end() {
            gaps.push(Extent::between(at, extent.end()));
        }
        gaps
    }

    /// The first byte of `extent` that is not in the set.
    pub(crate) fn first_gap(&self, extent: Extent) -> Option<u64> {
        let before = self.ends.range(..=extent.offset).next_back();
        let at = before.map_or(extent.offset, |(_, end)| extent.offset.max(*end));
        (at < extent.end()).then_some(at) // RANGES1: no range begins where one ends.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u64, u64)]) -> Ranges {
        let mut set = Ranges::default();
        ranges.iter().for_each(|(start, end)| set.insert(Extent::between(*start, *end)));
        set
    }

    #[test]
    fn what_overlaps_or_touches_becomes_one_range() {
        let joined = set(&[(10, 20), (30, 40), (50, 60), (20, 30), (55, 58)]);
        assert_eq!(joined, set(&[(10, 40), (50, 60)]), "RANGES1");
        assert_eq!((joined.count(), joined.bytes()), (2, 40));
        assert_eq!(set(&[(10, 20), (30, 40), (5, 50)]), set(&[(5, 50)]));
        assert_eq!(set(&[(10, 40), (20, 30)]), set(&[(10, 40)]));
    }

    #[test]
    fn what_is_taken_out_leaves_what_lies_on_both_sides() {
        let mut ranges = set(&[(10, 20), (30, 40), (50, 60)]);
        ranges.remove(Extent::between(15, 52));
        assert_eq!(ranges, set(&[(10, 15), (52, 60)]), "RANGES1");
        ranges.remove(Extent::between(54, 56));
        assert_eq!(ranges, set(&[(10, 15), (52, 54), (56, 60)]));
        ranges.remove(Extent::between(15, 52));
        assert_eq!((ranges.count(), ranges.bytes()), (3, 11));
        ranges.remove(Extent::between(0, 100));
        assert_eq!(ranges, Ranges::default());
    }

    #[test]
    fn gaps_are_what_is_missing() {
        let set = set(&[(10, 20), (30, 40)]);
        let gaps = |start, end| {
            let gaps = set.gaps(Extent::between(start, end));
            gaps.into_iter().map(|gap| (gap.offset, gap.end())).collect::<Vec<_>>()
        };
        assert_eq!(gaps(0, 50), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(gaps(15, 35), [(20, 30)]);
        assert_eq!(gaps(30, 40), []);
        assert_eq!(gaps(20, 30), [(20, 30)]);
        assert_eq!(set.first_gap(Extent::between(10, 50)), Some(20));
        assert_eq!(set.first_gap(Extent::between(31, 40)), None);
        assert_eq!(set.first_gap(Extent::between(0, 5)), Some(0));
        assert_eq!([5, 10, 15, 20, 30, 31, 50].map(|end| set.bytes_before(end)), [0, 0, 5, 10, 10, 11, 20]);
    }
}
