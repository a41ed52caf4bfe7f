//! Ranges of a volume, and where each of them is.
//!
//! Invariants:
//! - RANGE1. Ranges do not overlap, and none is empty.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{Access, Device, Extent, Moment};

/// A device that a mapper may name.
pub(super) struct Target {
    pub(super) number: u32,
    pub(super) device: Device,
    pub(super) is_writable: bool,
    /// Whether it was ever written.
    pub(super) was_written: Cell<bool>,
}

impl Target {
    pub(super) fn may_be_written(&self) -> bool {
        self.is_writable && self.device.shape().access == Access::ReadWrite
    }
}

/// Where a range is.
#[derive(Clone)]
pub(super) enum Place {
    Data { target: Rc<Target>, offset: u64 },
    Zero,
}

impl Place {
    /// The place of what is `distance` bytes further on.
    pub(super) fn further(&self, distance: u64) -> Place {
        match self {
            Place::Data { target, offset } => {
                Place::Data { target: Rc::clone(target), offset: offset + distance }
            }
            Place::Zero => Place::Zero,
        }
    }

    fn continues(&self, length: u64, next: &Place) -> bool {
        match (self, next) {
            (Place::Zero, Place::Zero) => true,
            (Place::Data { target, offset }, Place::Data { target: next, offset: at }) => {
                Rc::ptr_eq(target, next) && offset + length == *at
            }
            _ => false,
        }
    }
}

/// What is known of a range.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) place: Place,
    /// When the answer ends to hold.
    pub(super) expires: Option<Moment>,
    /// The first request that finds it takes it away.
    pub(super) once: bool,
    /// Number of the answer, if the mapper has not made it durable since.
    pub(super) unflushed: Option<u64>,
    /// Whether it was found since eviction last passed it.
    pub(super) was_used: Cell<bool>,
}

impl Entry {
    fn joins(&self, length: u64, next: &Entry) -> bool {
        let plain = |entry: &Entry| entry.expires.is_none() && !entry.once;
        plain(self)
            && plain(next)
            && self.unflushed.is_some() == next.unflushed.is_some()
            && self.place.continues(length, &next.place)
    }
}

/// The ranges, by their first bytes, with their lengths.
#[derive(Default)]
pub(super) struct RangeMap(BTreeMap<u64, (u64, Entry)>);

impl RangeMap {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Extent, &Entry)> {
        self.0.iter().map(|(start, (length, entry))| (Extent::new(*start, *length), entry))
    }

    /// The range that has the byte at `at`.
    pub(super) fn get(&self, at: u64) -> Option<(Extent, &Entry)> {
        let (start, (length, entry)) = self.0.range(..=at).next_back()?;
        (at - start < *length).then(|| (Extent::new(*start, *length), entry))
    }

    /// What of `extent` the mapper has not made durable, in order.
    pub(super) fn pinned(&self, extent: Extent) -> Vec<Extent> {
        let first = self.get(extent.offset).map_or(extent.offset, |(range, _)| range.offset);
        let ranges = self.0.range(first..extent.end());
        let pinned = ranges.filter(|(_, (_, entry))| entry.unflushed.is_some());
        pinned.map(|(start, (length, _))| Extent::new(*start, *length)).collect()
    }

    /// The first range that begins at `at` or behind it.
    pub(super) fn after(&self, at: u64) -> Option<(Extent, &Entry)> {
        self.0.range(at..).next().map(|(start, (length, entry))| (Extent::new(*start, *length), entry))
    }

    /// The first byte behind `at` and before `end` of which something is known, or `end`.
    pub(super) fn gap_end(&self, at: u64, end: u64) -> u64 {
        self.after(at).map_or(end, |(extent, _)| extent.offset.min(end))
    }

    /// Forgets `extent`; of ranges that reach beyond it the rest stays.
    pub(super) fn remove(&mut self, extent: Extent) {
        self.split(extent.offset);
        self.split(extent.end());
        while let Some((start, _)) = self.0.range(extent.offset..extent.end()).next() {
            let start = *start;
            self.0.remove(&start);
        }
    }

    /// Has `extent` lie where `entry` says, whatever was known of it.
    pub(super) fn insert(&mut self, extent: Extent, entry: Entry) {
        assert!(!extent.is_empty(), "RANGE1");
        self.remove(extent);
        let (mut start, mut length, mut entry) = (extent.offset, extent.length, entry);
        if let Some((next_length, next)) = self.0.get(&extent.end())
            && entry.joins(length, next)
        {
            length += next_length;
            entry.unflushed = entry.unflushed.max(next.unflushed);
            self.0.remove(&extent.end());
        }
        if let Some((before, (own, previous))) = self.0.range_mut(..start).next_back()
            && *before + *own == start
            && previous.joins(*own, &entry)
        {
            start = *before;
            length += *own;
            entry = Entry { unflushed: entry.unflushed.max(previous.unflushed), ..previous.clone() };
        }
        self.0.insert(start, (length, entry));
    }

    /// Changes every entry; `keep` says whether it stays.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut Entry) -> bool) {
        self.0.retain(|_, (_, entry)| keep(entry));
    }

    /// Panics if ranges overlap or are empty (RANGE1).
    pub(super) fn assert_consistent(&self) {
        let mut end = 0;
        for (start, (length, _)) in &self.0 {
            assert!(*length > 0 && *start >= end, "RANGE1: {length} bytes at {start}");
            end = start + length;
        }
    }

    /// Cuts the range that has both the byte at `at` and the one before it.
    fn split(&mut self, at: u64) {
        let Some((extent, entry)) = self.get(at) else { return };
        if extent.offset == at {
            return;
        }
        let first = at - extent.offset;
        assert!(first < extent.length, "RANGE1");
        let rest = Entry { place: entry.place.further(first), ..entry.clone() };
        self.0.get_mut(&extent.offset).expect("just found").0 = first;
        self.0.insert(at, (extent.length - first, rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(place: Place) -> Entry {
        Entry { place, expires: None, once: false, unflushed: None, was_used: Cell::new(false) }
    }

    proptest! {
        #[test]
        fn every_byte_lies_where_it_was_last_said_to(
            changes in prop::collection::vec((0..60_u64, 1..20_u64, prop::option::of(0..3_u64)), 1..40),
        ) {
            let device = Device::new(crate::ZeroTarget::new(512, 512));
            let target = Rc::new(Target { number: 0, device, is_writable: false, was_written: Cell::new(false) });
            let (mut map, mut model) = (RangeMap::default(), [None; 80]);
            for (offset, length, shift) in changes {
                let extent = Extent::new(offset, length);
                let bytes = extent.offset as usize..extent.end() as usize;
                match shift {
                    None => map.remove(extent),
                    // Three places for each byte, so that neighbours join at times.
                    Some(shift) => {
                        let place = Place::Data { target: Rc::clone(&target), offset: offset + shift * 100 };
                        map.insert(extent, entry(place));
                    }
                }
                model[bytes].iter_mut().for_each(|byte| *byte = shift);
                for (at, expected) in model.iter().enumerate() {
                    let at = at as u64;
                    let found = map.get(at).map(|(extent, entry)| match &entry.place {
                        Place::Data { offset, .. } => offset + (at - extent.offset),
                        Place::Zero => unreachable!("none is zero"),
                    });
                    prop_assert_eq!(found, expected.map(|shift| at + shift * 100), "RANGE1");
                }
                let joined = model.iter().zip(&model[1..]).filter(|(one, next)| one != next).count();
                prop_assert!(map.len() <= joined + 1, "neighbours are one range");
            }
        }
    }
}
