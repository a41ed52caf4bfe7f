//! What is known of the content of snapshots, piece by piece, and where nothing is.

use super::Readable;
use crate::ranges::Ranges;
use crate::snapshot::contents::Contents;
use crate::snapshot::map::NextOlder;
use crate::snapshot::rollback::Rollback;
use std::collections::BTreeMap;
use varve_block::Extent;
use varve_format::pdata::exception::exception_key;
use varve_format::pdata::node::Key;
use varve_format::store::{Entry, Mapping, PART_SIZE, ZEROS};

/// Content of one snapshot, nothing twice.
#[derive(Default)]
struct Pieces {
    covered: Ranges,
    /// By their first bytes.
    mappings: BTreeMap<u64, Mapping>,
}

impl Pieces {
    /// Puts what is not there yet.
    fn fill(&mut self, mapping: Mapping) {
        for gap in self.covered.gaps(mapping.extent) {
            self.covered.insert(gap);
            let twice = self.mappings.insert(gap.offset, clip(mapping, gap));
            assert!(twice.is_none() && !gap.is_empty(), "nothing twice");
        }
    }

    /// Takes out what is in `extent`.
    fn take_out(&mut self, extent: Extent) {
        self.covered.remove(extent);
        while let Some(one) = self.mappings.range(..extent.end()).next_back().map(|(_, one)| *one)
            && one.extent.end() > extent.offset
        {
            self.mappings.remove(&one.extent.offset);
            let left = one.extent.without(&[extent]).into_iter();
            let (before, behind): (Vec<Extent>, Vec<Extent>) =
                left.partition(|left| left.offset < extent.offset);
            for left in before.iter().chain(&behind) {
                self.mappings.insert(left.offset, clip(one, *left));
            }
            if !before.is_empty() {
                break;
            }
        }
        debug_assert!(self.mappings.values().all(|one| one.extent.intersect(extent).is_none()), "it is out");
    }
}

/// The map whose entries are lost.
#[derive(Clone, Copy)]
enum Of {
    Preserved,
    Written,
}

/// What is known, and what is not.
pub(super) struct Saved {
    chunk_size: u64,
    /// The sizes of the snapshots that existed before the log, and of those that it has created.
    sizes: BTreeMap<u64, u64>,
    /// Those of the snapshots that were removed before it and still had entries.
    deleting: BTreeMap<u64, u64>,
    preserved: BTreeMap<u64, Pieces>,
    written: BTreeMap<u64, Pieces>,
    /// Places that content has (SALVAGE3).
    places: Ranges,
    /// Bytes of snapshots of which it is not known where they were preserved.
    lost_preserved: BTreeMap<u64, Ranges>,
    /// Bytes of snapshots of which it is not known whether they were written, or what.
    lost_written: BTreeMap<u64, Ranges>,
}

impl Saved {
    /// Nothing is known yet of the snapshots that `contents` has, which is what the table says.
    pub(super) fn new(chunk_size: u64, contents: &Contents) -> Self {
        let deleting = contents.deleting.values().map(|deleting| &deleting.descriptor);
        Self {
            chunk_size,
            sizes: contents.snapshots.values().map(|one| (one.id, one.size)).collect(),
            deleting: deleting.map(|one| (one.id, one.size)).collect(),
            preserved: BTreeMap::new(),
            written: BTreeMap::new(),
            places: Ranges::default(),
            lost_preserved: BTreeMap::new(),
            lost_written: BTreeMap::new(),
        }
    }

    /// Whether a map may say this. What is about a snapshot that is gone for good comes from an older version of a node,
    /// and what has been in its place since is not known.
    fn is_possible(&self, mapping: Mapping) -> bool {
        let size = self.sizes.get(&mapping.snapshot).or_else(|| self.deleting.get(&mapping.snapshot));
        size.is_some_and(|size| mapping.extent.end() <= *size)
    }

    /// Takes the place of a mapping; returns whether no other content has it (SALVAGE3).
    fn claim(&mut self, mapping: Mapping) -> bool {
        assert!(mapping.extent.is_aligned(PART_SIZE), "STOREMAP1: whole parts have places");
        let Some(place) = mapping.stored() else { return true };
        let alone = self.places.gaps(place) == [place];
        if alone {
            self.places.insert(place);
            assert!(self.places.gaps(place).is_empty(), "SALVAGE3: nobody else gets this place");
        }
        alone
    }

    fn lose(&mut self, of: Of, snapshot: u64, extent: Extent) {
        assert!(extent.is_aligned(PART_SIZE), "SALVAGE1: whole parts are lost");
        let lost = match of {
            Of::Preserved => &mut self.lost_preserved,
            Of::Written => &mut self.lost_written,
        };
        let size = self.sizes.get(&snapshot).copied().unwrap_or(0);
        if let Some(inside) = extent.intersect(Extent::new(0, size)) {
            lost.entry(snapshot).or_default().insert(inside);
        }
    }

    /// What was preserved of `extent` for snapshot `owner` is lost: also for the older ones that find nothing before.
    fn lose_of_readers(&mut self, owner: u64, extent: Extent) {
        let readers: Vec<u64> = self.sizes.range(..=owner).map(|(id, _)| *id).collect();
        for id in readers {
            let gaps = self.gaps(id, owner, extent);
            assert!(gaps.iter().all(|gap| extent.contains(*gap)), "SALVAGE1: nothing else is lost");
            gaps.into_iter().for_each(|gap| self.lose(Of::Preserved, id, gap));
        }
    }

    /// Of `extent`, what nothing is known to be preserved of for snapshot `first` or one of those up to `last`.
    fn gaps(&self, first: u64, last: u64, extent: Extent) -> Vec<Extent> {
        let mut gaps = vec![extent];
        for (_, pieces) in self.preserved.range(first..=last.max(first)) {
            gaps = gaps.into_iter().flat_map(|gap| pieces.covered.gaps(gap)).collect();
        }
        gaps
    }

    /// What the map of preserved content says, in its order.
    pub(super) fn add_preserved(&mut self, items: &[Readable]) {
        for (number, item) in items.iter().enumerate() {
            match *item {
                Readable::Found { mapping, .. } if self.is_possible(mapping) && self.claim(mapping) => {
                    self.preserved.entry(mapping.snapshot).or_default().fill(mapping);
                }
                Readable::Found { mapping, .. } => self.lose_of_readers(mapping.snapshot, mapping.extent),
                Readable::Lost(low, high) => {
                    let begin = before(items, number).map_or(low, |key| low.max(key + 1));
                    let end = behind(items, number).or(high.filter(|_| number + 1 < items.len()));
                    let ids: Vec<u64> = self.sizes.keys().copied().collect();
                    ids.into_iter().for_each(|id| self.lose_preserved(id, begin, end));
                }
            }
        }
    }

    /// SALVAGE2: keys from `begin` on, up to `end`, are lost: which bytes of snapshot `id` might they have been about?
    fn lose_preserved(&mut self, id: u64, begin: Key, end: Option<Key>) {
        let Ok(short) = u32::try_from(id) else { return };
        let chunk = |key: Key| (key >> 64) as u64;
        let first = chunk(begin);
        let whole = self.sizes.get(&id).copied().unwrap_or(0).div_ceil(self.chunk_size);
        // The last chunk of which one of its keys, from this snapshot's on, is before the end.
        let behind = match end {
            Some(end) if exception_key(chunk(end), short, 0) < end => chunk(end) + 1,
            Some(end) => chunk(end),
            None => whole,
        };
        if first >= behind.min(whole) {
            return;
        }
        let bytes = |chunk: u64| chunk.saturating_mul(self.chunk_size);
        let all = Extent::between(bytes(first), bytes(behind.min(whole)));
        // In the first chunk what this snapshot finds before the first lost key is known.
        let known: Vec<Extent> = {
            let in_first = Extent::new(bytes(first), self.chunk_size);
            let last = (begin >> 32) as u32;
            let owners = self.preserved.range(id..=u64::from(last).max(id));
            let entries =
                owners.flat_map(|(owner, pieces)| pieces.mappings.values().map(move |one| (*owner, one)));
            let before = entries.filter(|(owner, one)| {
                let part = one.extent.offset.max(in_first.offset) - in_first.offset;
                let key = exception_key(
                    first,
                    u32::try_from(*owner).unwrap_or(u32::MAX),
                    (part / PART_SIZE) as u32,
                );
                one.extent.intersect(in_first).is_some() && key < begin
            });
            before.filter_map(|(_, one)| one.extent.intersect(in_first)).collect()
        };
        let mut lost = Ranges::default();
        lost.insert(all);
        known.into_iter().for_each(|extent| lost.remove(extent));
        lost.iter().for_each(|extent| self.lose(Of::Preserved, id, extent));
    }

    /// What the map of written content says, in its order.
    pub(super) fn add_written(&mut self, items: &[Readable]) {
        for (number, item) in items.iter().enumerate() {
            match *item {
                Readable::Found { mapping, .. } if self.is_possible(mapping) && self.claim(mapping) => {
                    self.written.entry(mapping.snapshot).or_default().fill(mapping);
                }
                Readable::Found { mapping, .. } => {
                    self.lose(Of::Written, mapping.snapshot, mapping.extent);
                }
                Readable::Lost(low, high) => {
                    let begin = before(items, number).map_or(low, |key| low.max(key + 1));
                    let end = behind(items, number).or(high.filter(|_| number + 1 < items.len()));
                    let part = |key: Key| (key as u64).min(u64::MAX / PART_SIZE) * PART_SIZE;
                    let at = |key: Key| ((key >> 64) as u64, part(key));
                    let (first, from) = at(begin);
                    let (last, until) = end.map_or((u64::MAX, 0), at);
                    let concerned: Vec<(u64, u64)> =
                        self.sizes.range(first..=last.max(first)).map(|(id, size)| (*id, *size)).collect();
                    for (id, size) in concerned {
                        let start = if id == first { from } else { 0 };
                        let stop = if id == last { until } else { size };
                        self.lose(Of::Written, id, Extent::between(start, stop.max(start)));
                    }
                }
            }
        }
    }

    /// A record of the log has created snapshot `id`, of so many bytes.
    pub(super) fn log_created(&mut self, id: u64, size: u64) {
        assert!(size.is_multiple_of(PART_SIZE), "ENTRY6: a snapshot has whole parts");
        self.sizes.insert(id, size);
    }

    /// What a record of the log has preserved, for `next_older`, the newest snapshot that was there.
    pub(super) fn log_preserved(&mut self, mapping: Mapping, next_older: NextOlder) {
        let Some((next_older, size)) = next_older else { return };
        let Some(inside) = mapping.extent.intersect(Extent::new(0, size)) else { return };
        let needed = clip(mapping, inside);
        for gap in self.gaps(next_older, mapping.snapshot, inside) {
            let piece = Mapping { snapshot: next_older, ..clip(needed, gap) };
            if !self.claim(piece) {
                self.lose_of_readers(next_older, gap);
                continue;
            }
            self.preserved.entry(next_older).or_default().fill(piece);
            if next_older == mapping.snapshot
                && let Some(lost) = self.lost_preserved.get_mut(&next_older)
            {
                lost.remove(gap); // It was found to be missing: nothing that is lost was preserved of it.
            }
        }
    }

    /// A record of the log says that what was preserved of `extent` is dropped for snapshot `target`, which had not been
    /// written there, and newer ones (ROLLBACK8): all of it, known or not. The device holds what they show.
    pub(super) fn log_dropped(&mut self, target: u64, extent: Extent) {
        self.preserved.range_mut(target..).for_each(|(_, pieces)| pieces.take_out(extent));
        self.lost_preserved.range_mut(target..).for_each(|(_, lost)| lost.remove(extent));
        self.lost_written.get_mut(&target).into_iter().for_each(|lost| lost.remove(extent));
        assert_eq!(self.gaps(target, u64::MAX, extent), [extent], "ROLLBACK8: nothing is left of it");
    }

    /// What records of the log say was written, in their order.
    pub(super) fn log_written(&mut self, mappings: &[Mapping]) {
        let mut latest: BTreeMap<u64, Pieces> = BTreeMap::new();
        for mapping in mappings.iter().rev() {
            latest.entry(mapping.snapshot).or_default().fill(*mapping);
        }
        for (id, latest) in latest {
            let older = self.written.remove(&id).unwrap_or_default();
            for stored in older.mappings.values().filter_map(Mapping::stored) {
                self.places.remove(stored);
            }
            let (mut pieces, mut taken) = (Pieces::default(), Vec::new());
            // SALVAGE3: what the log says has its place before what it replaces.
            for mapping in latest.mappings.into_values().chain(older.mappings.into_values()) {
                for gap in pieces.covered.gaps(mapping.extent) {
                    pieces.fill(clip(mapping, gap));
                    if !self.claim(clip(mapping, gap)) {
                        taken.push(gap);
                    }
                }
            }
            for extent in taken {
                pieces.take_out(extent);
                self.lose(Of::Written, id, extent);
            }
            self.written.insert(id, pieces);
        }
    }

    /// What is lost of each snapshot, as far as it is not longer than `size_of` says.
    pub(super) fn lost(&self, size_of: impl Fn(u64) -> u64) -> BTreeMap<u64, Ranges> {
        let mut all = self.lost_preserved.clone();
        for (id, lost) in &self.lost_written {
            lost.iter().for_each(|extent| all.entry(*id).or_default().insert(extent));
        }
        for (id, lost) in &mut all {
            let written = self.written.get(id);
            written.iter().for_each(|pieces| pieces.covered.iter().for_each(|extent| lost.remove(extent)));
            lost.remove(Extent::between(size_of(*id), u64::MAX));
        }
        all.retain(|_, lost| lost.bytes() > 0);
        assert!(all.keys().all(|id| self.sizes.contains_key(id)), "SALVAGE1: who loses something was there");
        all
    }

    /// SALVAGE5: which bytes of the volume are lost, in order: what of those of the target it would find there. Adds to what is
    /// `lost` what the snapshots `since` the beginning of the rollback, by id and size, find there, too.
    pub(super) fn lose_rolled_back(
        &self,
        rollback: &Rollback,
        since: impl Iterator<Item = (u64, u64)>,
        lost: &mut BTreeMap<u64, Ranges>,
    ) -> Vec<Extent> {
        let of_target = lost.get(&rollback.snapshot).cloned().unwrap_or_default();
        let of_volume: Vec<Extent> =
            of_target.iter().flat_map(|extent| rollback.unrestored(extent)).collect();
        for (id, size) in since {
            assert!(
                id >= rollback.boundary,
                "ROLLBACK4: the others find the device where nothing was preserved"
            );
            let inside = of_volume.iter().filter_map(|extent| extent.intersect(Extent::new(0, size)));
            let found = inside.flat_map(|extent| self.gaps(id, u64::MAX, extent));
            let written = self.written.get(&id).map(|pieces| &pieces.covered);
            let found = found.flat_map(|gap| written.map_or(vec![gap], |written| written.gaps(gap)));
            found.for_each(|gap| lost.entry(id).or_default().insert(gap));
        }
        of_volume
    }

    /// Everything that is known, and zeros for what is not (SALVAGE1).
    pub(super) fn mappings(&self, lost: &BTreeMap<u64, Ranges>) -> Vec<Entry> {
        let preserved = self.preserved.values().flat_map(|pieces| pieces.mappings.values());
        let preserved = preserved.map(|mapping| Entry::Preserved { mapping: *mapping, checksum: 0 });
        let written =
            self.written.values().flat_map(|pieces| pieces.mappings.values()).map(|one| Entry::Written(*one));
        let zeros = lost.iter().flat_map(|(id, lost)| {
            lost.iter().map(|extent| Entry::Written(Mapping { snapshot: *id, extent, place: ZEROS }))
        });
        preserved.chain(written).chain(zeros).collect()
    }
}

/// The part of `mapping` that is `extent`.
fn clip(mapping: Mapping, extent: Extent) -> Mapping {
    assert!(mapping.extent.contains(extent), "a part of it");
    let inside = extent.offset - mapping.extent.offset;
    let place = if mapping.place == ZEROS { ZEROS } else { mapping.place + inside };
    Mapping { extent, place, ..mapping }
}

/// The last key that the last entry before `number` stands for.
fn before(items: &[Readable], number: usize) -> Option<Key> {
    items[..number].iter().rev().find_map(|item| match item {
        Readable::Found { last_key, .. } => Some(*last_key),
        Readable::Lost(..) => None,
    })
}

/// The key of the first entry behind `number`.
fn behind(items: &[Readable], number: usize) -> Option<Key> {
    items[number + 1..].iter().find_map(|item| match item {
        Readable::Found { key, .. } => Some(*key),
        Readable::Lost(..) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::UnixTime;
    use varve_format::store::Descriptor;

    fn parts(first: u64, count: u64) -> Extent {
        Extent::new(first * PART_SIZE, count * PART_SIZE)
    }

    /// Of a table with these snapshots, of 100 parts each.
    fn saved(ids: &[u64]) -> Saved {
        let mut contents = Contents::new(1);
        for id in ids {
            let (name, created, size) = (format!("s{id}"), UnixTime(0), 100 * PART_SIZE);
            let descriptor =
                Descriptor { id: *id, name, created, size, read_only: false, held: false, base: false };
            contents.apply(&Entry::Created(descriptor)).expect("a new one");
        }
        Saved::new(PART_SIZE, &contents)
    }

    fn mapping(snapshot: u64, extent: Extent, block: u64) -> Mapping {
        Mapping { snapshot, extent, place: block * PART_SIZE }
    }

    fn found(mapping: Mapping) -> Readable {
        let key = exception_key(mapping.extent.offset / PART_SIZE, mapping.snapshot as u32, 0);
        Readable::Found { mapping, key, last_key: key }
    }

    #[test]
    fn what_a_map_says_of_a_snapshot_that_is_gone_is_not_believed() {
        let mut saved = saved(&[1, 3, 5, 9]);
        let sound = [mapping(3, parts(0, 1), 50), mapping(3, parts(1, 1), 51)];
        saved.add_preserved(&[found(sound[0]), found(sound[1]), found(mapping(7, parts(1, 2), 60))]);
        saved.add_written(&[found(mapping(3, parts(99, 2), 80)), found(mapping(7, parts(5, 1), 70))]);
        let lost = saved.lost(|_| 100 * PART_SIZE);
        let all: Vec<(u64, Extent)> =
            lost.iter().flat_map(|(id, lost)| lost.iter().map(|extent| (*id, extent))).collect();
        let expected = [(1, parts(2, 1)), (3, parts(2, 1)), (3, parts(99, 1)), (5, parts(1, 2))];
        assert_eq!(all, expected, "SALVAGE1: who found it there, and nothing before");
        let known = saved.mappings(&BTreeMap::new());
        let preserved = sound.map(|mapping| Entry::Preserved { mapping, checksum: 0 });
        assert_eq!(known, preserved);
    }

    #[test]
    fn zeros_have_no_place_and_free_none() {
        let mut saved = saved(&[1, 2]);
        saved.add_preserved(&[found(mapping(2, parts(0, 1), 5))]);
        saved.add_written(&[found(Mapping { snapshot: 1, extent: parts(0, 50), place: ZEROS })]);
        saved.log_written(&[mapping(1, parts(3, 1), 60), mapping(2, parts(7, 1), 5)]);
        let lost = saved.lost(|_| 100 * PART_SIZE);
        assert_eq!(lost.keys().collect::<Vec<_>>(), [&2], "SALVAGE3: the place of what was preserved");
        assert_eq!(lost[&2].iter().collect::<Vec<_>>(), [parts(7, 1)]);
    }

    /// What each snapshot loses, in order.
    fn losses(saved: &Saved) -> Vec<(u64, Extent)> {
        let lost = saved.lost(|_| 100 * PART_SIZE);
        lost.iter().flat_map(|(id, lost)| lost.iter().map(|extent| (*id, extent))).collect()
    }

    fn next_older(id: u64) -> NextOlder {
        Some((id, 100 * PART_SIZE))
    }

    #[test]
    fn what_a_record_preserved_in_a_place_that_is_taken_all_lose_that_find_it_there() {
        let mut saved = saved(&[1, 2, 3, 4]);
        saved.add_preserved(&[found(mapping(2, parts(4, 1), 50)), found(mapping(4, parts(9, 1), 60))]);
        saved.log_preserved(mapping(4, parts(3, 2), 59), next_older(4));
        let expected = [(1, parts(3, 1)), (2, parts(3, 1)), (3, parts(3, 2)), (4, parts(3, 2))];
        assert_eq!(losses(&saved), expected, "SALVAGE3: who found it there, and nothing before");
    }

    #[test]
    fn snapshots_of_which_only_the_log_tells_lose_what_it_says_of_them() {
        let mut saved = saved(&[1]);
        saved.add_preserved(&[found(mapping(1, parts(0, 1), 5))]);
        saved.log_created(2, 100 * PART_SIZE);
        saved.log_preserved(mapping(2, parts(3, 1), 5), next_older(2));
        saved.log_written(&[mapping(2, parts(7, 1), 5)]);
        let expected = [(1, parts(3, 1)), (2, parts(3, 1)), (2, parts(7, 1))];
        assert_eq!(losses(&saved), expected, "SALVAGE3: of two that claim a place the second is lost");
    }

    #[test]
    fn a_record_that_preserves_tells_nothing_of_what_was_written() {
        let mut without_written = saved(&[1]);
        without_written.add_preserved(&[Readable::Lost(0, None)]);
        without_written.add_written(&[Readable::Lost(0, None)]);
        without_written.log_preserved(mapping(1, parts(3, 1), 60), next_older(1));
        assert_eq!(losses(&without_written), [(1, parts(0, 100))], "SALVAGE1: it may have been written");
        let mut without_preserved = saved(&[1]);
        without_preserved.add_preserved(&[Readable::Lost(0, None)]);
        without_preserved.log_preserved(mapping(1, parts(3, 1), 60), next_older(1));
        let expected = [(1, parts(0, 3)), (1, parts(4, 96))];
        assert_eq!(losses(&without_preserved), expected, "SALVAGE1: it was not preserved before");
    }

    #[test]
    fn a_volume_loses_what_its_rollback_has_not_restored_and_so_do_snapshots_of_after_it() {
        let mut saved = saved(&[1, 2, 3, 4]);
        saved.add_preserved(&[found(mapping(4, parts(60, 1), 5))]);
        saved.add_written(&[found(mapping(2, parts(5, 10), 5)), found(mapping(4, parts(12, 1), 30))]);
        let mut rollback = Rollback::new(2, 4, 100 * PART_SIZE, 0);
        rollback.restore(parts(0, 10));
        let mut lost = saved.lost(|_| 100 * PART_SIZE);
        let of_volume = saved.lose_rolled_back(&rollback, [(4, 14 * PART_SIZE)].into_iter(), &mut lost);
        assert_eq!(of_volume, [parts(10, 5)], "SALVAGE5: what it does not have yet");
        assert_eq!(lost.keys().collect::<Vec<_>>(), [&2, &4], "SALVAGE5: none of before the beginning");
        let since: Vec<Extent> = lost[&4].iter().collect();
        assert_eq!(since, [parts(10, 2), parts(13, 1)], "SALVAGE5: what it finds there, and has not written");
    }

    #[test]
    fn what_a_rollback_has_dropped_is_found_on_the_device() {
        let mut saved = saved(&[1, 2, 3]);
        saved.add_preserved(&[Readable::Lost(0, None), found(mapping(3, parts(50, 2), 70))]);
        let taken = [1, 2, 3].map(|id| found(mapping(id, parts(10, 1), 70)));
        saved.add_written(&taken);
        saved.log_dropped(2, parts(10, 2));
        saved.log_dropped(2, parts(51, 1));
        let expected =
            [(1, parts(0, 51)), (2, parts(0, 10)), (2, parts(12, 39)), (3, parts(0, 11)), (3, parts(12, 38))];
        assert_eq!(losses(&saved), expected, "SALVAGE1: what the target and newer ones find is known");
        saved.log_preserved(mapping(3, parts(51, 1), 90), next_older(3));
        let left = [mapping(3, parts(50, 1), 70), mapping(3, parts(51, 1), 90)];
        let left = left.map(|mapping| Entry::Preserved { mapping, checksum: 0 });
        assert_eq!(saved.mappings(&BTreeMap::new()), left, "SALVAGE3: it is preserved once more");
    }
}
