//! The answers of a mapper that are kept: those for reads and those for writes apart.
//!
//! Invariants:
//! - REMAP1. An answer is found until it is replaced, invalidated, expired or evicted, and never afterwards.
//! - REMAP2. An answer to a write that the mapper has not made durable is pinned: it is neither evicted nor replaced by one that is not,
//!   so it can be sent again to a mapper that reconnects, also when no request uses it any more.
//! - REMAP3. When a question is sent there are at most `entries_max` ranges, but for those of REMAP2; so an answer is there when the
//!   request that asked looks. What was not asked for is dropped if there is no room.

use super::range_map::{Entry, Place, RangeMap, Target};
use std::rc::Rc;
use varve_block::{Clock, Extent};
use varve_mapper::wire::{Access, Intent};

/// The answers.
pub(super) struct RemapCache {
    reads: RangeMap,
    writes: RangeMap,
    /// Answers of REMAP2 in ranges that are being trimmed: used by no request.
    trimming: RangeMap,
    /// Answers of REMAP2 that no request uses any more: those for one request alone that were used, and those of ranges that could
    /// not be trimmed.
    spent: RangeMap,
    entries_max: usize,
    clock: Clock,
    /// Where eviction goes on: writes after reads.
    hand: (Intent, u64),
}

/// Where the first bytes of a range lie.
pub(super) struct Found {
    pub(super) place: Place,
    /// How many they are.
    pub(super) run: u64,
    /// Whether that is for one request alone.
    pub(super) is_once: bool,
}

impl RemapCache {
    pub(super) fn new(entries_max: usize, clock: Clock) -> Self {
        let (reads, writes) = (RangeMap::default(), RangeMap::default());
        let (trimming, spent) = (RangeMap::default(), RangeMap::default());
        Self { reads, writes, trimming, spent, entries_max, clock, hand: (Intent::Read, 0) }
    }

    pub(super) fn len(&self) -> usize {
        self.reads.len() + self.writes.len() + self.spent.len()
    }

    pub(super) fn unflushed(&self) -> usize {
        let pinned = |map: &RangeMap| map.iter().filter(|(_, entry)| entry.unflushed.is_some()).count();
        pinned(&self.reads) + pinned(&self.writes) + self.spent.len()
    }

    fn map(&self, intent: Intent) -> &RangeMap {
        match intent {
            Intent::Read => &self.reads,
            Intent::Write => &self.writes,
        }
    }

    fn map_mut(&mut self, intent: Intent) -> &mut RangeMap {
        match intent {
            Intent::Read => &mut self.reads,
            Intent::Write => &mut self.writes,
        }
    }

    fn live(&self, intent: Intent, at: u64) -> Option<(Extent, &Entry)> {
        let (extent, entry) = self.map(intent).get(at)?;
        let expired = entry.expires.is_some_and(|end| self.clock.now() >= end);
        (!expired).then_some((extent, entry)) // REMAP1
    }

    /// The device on which all of `extent` is, and where there, if that is known and needs nothing more.
    pub(super) fn whole(&self, intent: Intent, extent: Extent) -> Option<(&Rc<Target>, u64)> {
        let (range, entry) = self.live(intent, extent.offset)?;
        let Place::Data { target, offset } = &entry.place else { return None };
        if extent.end() > range.end() || entry.once {
            return None;
        }
        entry.was_used.set(true);
        Some((target, offset + (extent.offset - range.offset)))
    }

    /// Where the first bytes of `extent` lie, for a request, which uses up an answer for one request alone.
    pub(super) fn take(&mut self, intent: Intent, extent: Extent) -> Option<Found> {
        let (range, entry) = self.live(intent, extent.offset)?;
        entry.was_used.set(true);
        let once = entry.once.then(|| entry.clone());
        let found = self.look(intent, extent);
        if let Some(entry) = once {
            self.map_mut(intent).remove(range);
            self.spend(range, entry);
        }
        found
    }

    /// Where the first bytes of `extent` lie.
    pub(super) fn look(&self, intent: Intent, extent: Extent) -> Option<Found> {
        let (range, entry) = self.live(intent, extent.offset)?;
        let inside = extent.offset - range.offset;
        assert!(inside < range.length, "REMAP1");
        let run = extent.length.min(range.length - inside);
        Some(Found { place: entry.place.further(inside), run, is_once: entry.once })
    }

    /// Whether it is known where the byte at `at` is.
    pub(super) fn knows(&self, intent: Intent, at: u64) -> bool {
        self.live(intent, at).is_some()
    }

    /// Bytes at the start of `extent` of which nothing is known.
    pub(super) fn gap(&self, intent: Intent, extent: Extent) -> Extent {
        let end = self.map(intent).gap_end(extent.offset + 1, extent.end());
        Extent::new(extent.offset, end - extent.offset)
    }

    /// Keeps an answer, for `access`.
    pub(super) fn insert(&mut self, extent: Extent, access: Access, entry: &Entry) {
        assert!(!access.write || matches!(entry.place, Place::Data { .. }), "REMAP1: a write has a place");
        let is_pinned = entry.unflushed.is_some();
        if access.write {
            put(&mut self.writes, extent, entry, is_pinned);
            if is_pinned {
                self.spent.remove(extent);
            }
        }
        if access.read {
            // One for writes too is sent again from `writes`.
            let unflushed = entry.unflushed.filter(|_| !access.write);
            put(&mut self.reads, extent, &Entry { unflushed, ..entry.clone() }, is_pinned);
        }
    }

    /// An answer for one request alone was used by it without being kept: nothing else is known of the range, for `access`.
    pub(super) fn use_up(&mut self, extent: Extent, access: Access, entry: Entry) {
        assert!(entry.once && access.write, "REMAP2: a copy is for a write");
        self.remove(extent, access);
        self.spend(extent, entry);
    }

    /// No request uses an answer any more. One that the mapper has not made durable is sent again (REMAP2).
    fn spend(&mut self, extent: Extent, entry: Entry) {
        if entry.unflushed.is_some() {
            self.spent.insert(extent, Entry { expires: None, once: false, ..entry });
        }
    }

    /// Forgets answers (REMAP1).
    pub(super) fn remove(&mut self, extent: Extent, access: Access) {
        if access.read {
            self.reads.remove(extent);
        }
        if access.write {
            self.writes.remove(extent);
        }
        forget(&mut self.trimming, extent, access);
        forget(&mut self.spent, extent, access);
    }

    /// Forgets answers for a range that is being trimmed, but keeps those of REMAP2 to be sent again until it was.
    pub(super) fn set_aside(&mut self, extent: Extent) {
        assert!(self.trimming.pinned(extent).is_empty(), "DELEGATE5: one trim of a range at a time");
        let maps = [&self.reads, &self.spent, &self.writes];
        let pinned: Vec<_> = maps.into_iter().flat_map(|map| pinned_parts(map, extent)).collect();
        self.remove(extent, Access::BOTH);
        pinned.into_iter().for_each(|(part, entry)| self.trimming.insert(part, entry));
    }

    /// A range was trimmed, or may be.
    pub(super) fn trimmed(&mut self, extent: Extent) {
        self.trimming.remove(extent);
    }

    /// A range was not trimmed: requests ask where it is.
    pub(super) fn not_trimmed(&mut self, extent: Extent) {
        assert!(self.writes.pinned(extent).is_empty(), "DELEGATE5: no answer was kept meanwhile");
        pinned_parts(&self.trimming, extent).into_iter().for_each(|(part, entry)| self.spend(part, entry));
        self.trimming.remove(extent);
    }

    /// Forgets what the mapper has made durable.
    pub(super) fn clear_flushed(&mut self) {
        self.reads.retain(|entry| entry.unflushed.is_some());
        self.writes.retain(|entry| entry.unflushed.is_some());
    }

    /// Answers up to number `last` are durable.
    pub(super) fn flushed(&mut self, last: u64) {
        let flushed = |entry: &mut Entry| {
            entry.unflushed = entry.unflushed.filter(|number| *number > last);
            true
        };
        self.reads.retain(flushed);
        self.writes.retain(flushed);
        for map in [&mut self.trimming, &mut self.spent] {
            map.retain(|entry| flushed(entry) && entry.unflushed.is_some());
        }
        self.assert_consistent();
    }

    /// Ranges of each map follow each other; what no request uses is there only to be sent again.
    fn assert_consistent(&self) {
        for map in [&self.reads, &self.writes, &self.trimming, &self.spent] {
            map.assert_consistent();
        }
        let mut unused = self.trimming.iter().chain(self.spent.iter());
        assert!(unused.all(|(_, entry)| entry.unflushed.is_some()), "REMAP2: it is told again");
    }

    /// What is to be sent to a mapper that reconnects.
    pub(super) fn held(&self) -> Vec<(Extent, Access, Place)> {
        let of = |map: &RangeMap, access: Access| -> Vec<_> {
            let held = map.iter().filter(|(_, entry)| entry.unflushed.is_some());
            held.map(|(extent, entry)| (extent, access, entry.place.clone())).collect()
        };
        let unused = |map: &RangeMap| -> Vec<_> {
            map.iter().map(|(extent, entry)| (extent, access_of(&entry.place), entry.place.clone())).collect()
        };
        let (reads, writes) = (of(&self.reads, Access::READ), of(&self.writes, Access::WRITE));
        [reads, unused(&self.spent), writes, unused(&self.trimming)].concat()
    }

    /// Whether there is room for what was not asked for (REMAP3).
    pub(super) fn has_room(&self) -> bool {
        self.len() < self.entries_max
    }

    /// REMAP3: what was neither found nor inserted since the hand last passed goes.
    pub(super) fn evict(&mut self) {
        let mut passed = 0;
        while self.len() > self.entries_max && passed <= 2 * self.len() {
            passed += 1;
            let (intent, at) = self.hand;
            let Some((extent, entry)) = self.map(intent).after(at) else {
                let other = if intent == Intent::Read { Intent::Write } else { Intent::Read };
                self.hand = (other, 0);
                continue;
            };
            // REMAP2: what the mapper has not made durable stays.
            let keep = entry.was_used.replace(false) || entry.unflushed.is_some();
            self.hand = (intent, extent.end());
            if !keep {
                self.map_mut(intent).remove(extent);
            }
        }
    }
}

/// What of `extent` the mapper has not made durable, and where it is.
fn pinned_parts(map: &RangeMap, extent: Extent) -> Vec<(Extent, Entry)> {
    let pinned = map.iter().filter(|(_, entry)| entry.unflushed.is_some());
    let cut = pinned.filter_map(|(range, entry)| {
        let part = range.intersect(extent)?;
        let place = entry.place.further(part.offset - range.offset);
        Some((part, Entry { place, ..entry.clone() }))
    });
    cut.collect()
}

/// For what an answer that no request uses was kept: one to a write has a place, and what was trimmed is for reads.
fn access_of(place: &Place) -> Access {
    if matches!(place, Place::Zero) { Access::READ } else { Access::WRITE }
}

/// Forgets of answers that no request uses those for `access`.
fn forget(map: &mut RangeMap, extent: Extent, access: Access) {
    for range in map.pinned(extent) {
        let (Some(part), Some((_, entry))) = (range.intersect(extent), map.get(range.offset)) else {
            continue;
        };
        let was_for = access_of(&entry.place);
        if was_for.read && access.read || was_for.write && access.write {
            map.remove(part);
        }
    }
}

/// Lets `extent` lie where `entry` says. One that is not pinned leaves those that are in their places (REMAP2).
fn put(map: &mut RangeMap, extent: Extent, entry: &Entry, is_pinned: bool) {
    let pinned = if is_pinned { Vec::new() } else { map.pinned(extent) };
    for part in extent.without(&pinned) {
        let place = entry.place.further(part.offset - extent.offset);
        map.insert(part, Entry { place, ..entry.clone() });
    }
}
