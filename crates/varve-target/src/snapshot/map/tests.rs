//! The map against a plain model: an array of parts for every snapshot.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

const CHUNK: u64 = 4 * PART_SIZE;
const PARTS: u64 = 12;

fn parts(first: u64, count: u64) -> Extent {
    Extent::new(first * PART_SIZE, count * PART_SIZE)
}

#[derive(Clone, Debug)]
enum Step {
    Create,
    /// Preserve the missing of these parts for the newest snapshot, as a write to the origin does.
    Change(u64, u64),
    Write(usize, u64, u64, bool),
    Remove(usize),
    /// Look at so many entries of a snapshot that is leaving.
    Reclaim(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..PARTS, 1..PARTS);
    let step = prop_oneof![
        2 => Just(Step::Create),
        6 => range.clone().prop_map(|(first, count)| Step::Change(first, count)),
        3 => (any::<usize>(), range, any::<bool>())
            .prop_map(|(which, (first, count), zeros)| Step::Write(which, first, count, zeros)),
        1 => any::<usize>().prop_map(Step::Remove),
        2 => (1..4_usize).prop_map(Step::Reclaim),
    ];
    prop::collection::vec(step, 1..40)
}

/// What every part of the origin and of each snapshot holds, and what the store holds at each place.
#[derive(Default)]
struct Model {
    origin: Vec<u64>,
    snapshots: BTreeMap<u64, Vec<u64>>,
    /// Snapshots that were removed, and where their entries are looked at next.
    leaving: BTreeMap<u64, (u64, u64)>,
    store: HashMap<u64, u64>,
    next_place: u64,
    next_value: u64,
    next_snapshot: u64,
}

impl Model {
    fn allocate(&mut self, values: &[u64]) -> u64 {
        let place = self.next_place;
        for value in values {
            self.store.insert(self.next_place, *value);
            self.next_place += PART_SIZE;
        }
        self.next_place += PART_SIZE;
        place
    }

    fn fresh(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    fn free(&mut self, extents: Vec<Extent>) {
        for (_, part) in extents.into_iter().flat_map(|extent| extent.pieces(PART_SIZE).collect::<Vec<_>>()) {
            assert!(self.store.remove(&part.offset).is_some(), "freed twice: {part:?}");
        }
    }

    fn run(&mut self, map: &mut Map, step: &Step) {
        let chosen = |which: usize, snapshots: &BTreeMap<u64, Vec<u64>>| {
            snapshots.keys().nth(which % snapshots.len().max(1)).copied()
        };
        match *step {
            Step::Create => {
                self.next_snapshot += 1;
                self.snapshots.insert(self.next_snapshot, self.origin.clone());
            }
            Step::Change(first, count) => {
                let extent = parts(first, count.min(PARTS - first));
                if let Some(newest) = self.snapshots.keys().next_back().copied() {
                    for extent in map.missing(newest, extent) {
                        let range = (extent.offset / PART_SIZE) as usize..(extent.end() / PART_SIZE) as usize;
                        let old = self.origin[range].to_vec();
                        let place = self.allocate(&old);
                        assert!(
                            map.insert_preserved(Mapping { snapshot: newest, extent, place }, newest)
                                .is_empty()
                        );
                    }
                    assert!(map.missing(newest, extent).is_empty());
                }
                for part in extent.offset / PART_SIZE..extent.end() / PART_SIZE {
                    self.origin[part as usize] = self.fresh();
                }
            }
            Step::Write(which, first, count, zeros) => {
                let Some(snapshot) = chosen(which, &self.snapshots) else { return };
                let extent = parts(first, count.min(PARTS - first));
                let count = extent.length / PART_SIZE;
                let values: Vec<u64> = (0..count).map(|_| if zeros { 0 } else { self.fresh() }).collect();
                let place = if zeros { ZEROS } else { self.allocate(&values) };
                let freed = map.insert_written(Mapping { snapshot, extent, place });
                self.free(freed);
                let content = self.snapshots.get_mut(&snapshot).expect("chosen");
                content[first as usize..(first + count) as usize].copy_from_slice(&values);
            }
            Step::Remove(which) => {
                let Some(snapshot) = chosen(which, &self.snapshots) else { return };
                self.snapshots.remove(&snapshot);
                self.leaving.insert(snapshot, (0, 0));
            }
            Step::Reclaim(entries) => {
                // Any of them may go first (L3).
                let Some((&snapshot, &from)) = self.leaving.iter().nth(entries % self.leaving.len().max(1))
                else {
                    return;
                };
                let heir =
                    self.snapshots.range(..snapshot).next_back().map(|(id, _)| (*id, PARTS * PART_SIZE));
                let frees = map.frees(snapshot, heir);
                let (freed, next) = map.reclaim(snapshot, heir, from, entries);
                let bytes: u64 = freed.iter().map(|extent| extent.length).sum();
                assert_eq!(map.frees(snapshot, heir) + bytes, frees, "what was foretold is freed");
                self.free(freed);
                match next {
                    Some(next) => drop(self.leaving.insert(snapshot, next)),
                    None => drop(self.leaving.remove(&snapshot)),
                }
            }
        }
    }

    fn check(&self, map: &Map) {
        let mut places = BTreeSet::new();
        for (_, part) in map.places().flat_map(|extent| extent.pieces(PART_SIZE).collect::<Vec<_>>()) {
            assert!(places.insert(part.offset), "P2: {part:?}");
        }
        let stored: BTreeSet<u64> = self.store.keys().copied().collect();
        assert_eq!(places, stored, "nothing is lost, nothing is kept for nobody");
        for (snapshot, content) in &self.snapshots {
            for run in map.resolve(*snapshot, parts(0, PARTS)) {
                for (_, part) in run.extent.pieces(PART_SIZE) {
                    let index = (part.offset / PART_SIZE) as usize;
                    let value = match run.clip(part).expect("inside").source {
                        Source::Store(place) => self.store[&place],
                        Source::Zeros => 0,
                        Source::Below => self.origin[index],
                    };
                    assert_eq!(value, content[index], "snapshot {snapshot}, part {index}");
                }
            }
        }
        let entries = map.preserved.values().chain(map.written.values());
        assert!(entries.clone().all(|pieces| !pieces.0.is_empty()), "P3");
        assert_eq!(entries.map(|pieces| pieces.0.len()).sum::<usize>(), map.pieces());
    }
}

fn copy(map: &Map) -> Map {
    let mut copy = Map::new(CHUNK);
    let (preserved, written) = map.mappings();
    preserved
        .into_iter()
        .for_each(|mapping| assert!(copy.insert_preserved(mapping, mapping.snapshot).is_empty()));
    written.into_iter().for_each(|mapping| assert!(copy.insert_written(mapping).is_empty()));
    copy
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_snapshot_reads_what_it_should_and_no_space_is_lost(steps in steps()) {
        let mut model =
            Model { origin: (1..=PARTS).collect(), next_place: 1 << 20, next_value: 1000, ..Model::default() };
        let mut map = Map::new(CHUNK);
        for step in &steps {
            model.run(&mut map, step);
            model.check(&map);
        }
        model.check(&copy(&map));
        for _ in 0..10_000 {
            model.run(&mut map, &Step::Reclaim(1));
        }
        assert!(model.leaving.is_empty(), "a walk ends");
        let left = |(_, snapshot): &(u64, u64)| model.snapshots.contains_key(snapshot);
        assert!(map.preserved.keys().all(left), "L1: and nothing of the removed is left");
        model.check(&map);
    }
}

#[test]
fn neighbours_become_one_run_and_one_mapping() {
    let mut map = Map::new(CHUNK);
    for part in [1, 0, 2, 5, 4, 3] {
        let mapping = Mapping { snapshot: 1, extent: parts(part, 1), place: (100 + part) * PART_SIZE };
        assert!(map.insert_preserved(mapping, 1).is_empty());
    }
    let whole = Run { extent: parts(0, 6), source: Source::Store(100 * PART_SIZE) };
    assert_eq!(map.resolve(1, parts(0, 6)), [whole]);
    assert_eq!(map.resolve(2, parts(0, 6)), [Run { extent: parts(0, 6), source: Source::Below }]);
    assert_eq!(map.mappings().0.len(), 1);
    assert_eq!(map.pieces(), 2, "one for each chunk");
}
