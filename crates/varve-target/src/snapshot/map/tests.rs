//! The maps against a plain model: an array of parts for every snapshot; through a cache that holds next to nothing.

use super::*;
use crate::pdata::MapOptions;
use crate::pdata::tests::memory;
use futures_executor::block_on;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use varve_block::Arena;
use varve_format::pdata::exception::Exception;
use varve_format::pdata::node::Key;
use varve_format::pdata::{Block, BlockRun};
use varve_format::store::ZEROS;

const CHUNK: u64 = 4 * PART_SIZE;
/// Parts of an origin whose map is one leaf, and of one whose map has many.
const FEW_PARTS: u64 = 24;
const MANY_PARTS: u64 = 2400;
const BLOCKS: u64 = 40_000;

fn parts(first: u64, count: u64) -> Extent {
    Extent::new(first * PART_SIZE, count * PART_SIZE)
}

fn new_map(cache_bytes: u64) -> Map {
    let options = MapOptions {
        cache_bytes,
        floor_blocks: 0,
        ..MapOptions::fresh(9, Block::new(2), Block::new(BLOCKS))
    };
    let blocks = pdata::Map::open(memory(BLOCKS), Arena::heap(1 << 20), &options);
    Map::new(Uuid::from_u128(1), Rc::new(blocks), Roots::default(), CHUNK)
}

fn all(map: &Map, written: bool) -> Vec<Mapping> {
    let (mut all, mut from): (Vec<Mapping>, Option<Key>) = (Vec::new(), Some(0));
    while let Some(key) = from {
        let some = if written { block_on(map.written_from(key)) } else { block_on(map.preserved_from(key)) };
        let (mappings, next) = some.expect("memory does not fail");
        all.extend(mappings);
        from = next;
    }
    all
}

#[derive(Clone, Debug)]
enum Step {
    Create,
    /// Preserve the missing of these parts for the newest snapshot, as a write to the origin does; at places that go
    /// on from the last ones, or elsewhere.
    Change(u64, u64, bool),
    /// The same for so many single parts, from the first on, at this distance from each other.
    Scatter(u64, u64, u64),
    Write(usize, u64, u64, bool),
    Remove(usize),
    /// Look at so many entries of a snapshot that is being deleted.
    Reclaim(usize),
    /// End the transaction, so that nodes are copied from now on and clean ones evicted.
    Commit,
}

fn step(parts: u64) -> impl Strategy<Value = Step> {
    let range = (0..parts, 1..parts);
    prop_oneof![
        4 => Just(Step::Create),
        3 => (0..parts, 1..12_u64, 1..parts).prop_map(|(first, gap, count)| Step::Scatter(first, gap, count)),
        6 => (range.clone(), any::<bool>()).prop_map(|((first, count), near)| Step::Change(first, count, near)),
        3 => (any::<usize>(), range, any::<bool>())
            .prop_map(|(which, (first, count), zeros)| Step::Write(which, first, count, zeros)),
        2 => any::<usize>().prop_map(Step::Remove),
        2 => (1..4_usize).prop_map(Step::Reclaim),
        2 => (4..400_usize).prop_map(Step::Reclaim),
        1 => Just(Step::Commit),
    ]
}

/// What every part of the origin and of each snapshot holds, and what the store holds at each place.
#[derive(Default)]
struct Model {
    parts: u64,
    origin: Vec<u64>,
    snapshots: BTreeMap<u64, Vec<u64>>,
    /// Snapshots that were removed, and the key at which their entries are looked at next.
    deleting: BTreeMap<u64, Key>,
    store: HashMap<Block, u64>,
    next_value: u64,
    next_snapshot: u64,
}

impl Model {
    fn new(parts: u64) -> Self {
        Self { parts, origin: (1..=parts).collect(), next_value: 100_000, ..Self::default() }
    }

    /// Space for `values`; the first byte of it.
    fn allocate(&mut self, map: &Map, values: &[u64], near: bool) -> u64 {
        let gap = if near { 0 } else { 1 };
        let wanted = values.len() as u64 + gap;
        let take =
            || block_on(map.blocks.run(|pages| pages.take_on(pdata::Side::Near, wanted))).expect("room");
        let mut short = Vec::new();
        let run = loop {
            match take() {
                run if run.count == wanted => break run,
                run => short.push(run),
            }
        };
        short.into_iter().for_each(|run| map.blocks.pages().untake(run));
        if gap > 0 {
            map.blocks.pages().untake(BlockRun::one(run.first));
        }
        for (index, value) in values.iter().enumerate() {
            self.store.insert(run.first + gap + index as u64, *value);
        }
        (run.first + gap).offset()
    }

    fn fresh(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    fn run(&mut self, map: &Map, step: &Step) {
        let chosen = |which: usize, snapshots: &BTreeMap<u64, Vec<u64>>| {
            snapshots.keys().nth(which % snapshots.len().max(1)).copied()
        };
        match *step {
            Step::Create => {
                self.next_snapshot += 1;
                self.snapshots.insert(self.next_snapshot, self.origin.clone());
            }
            Step::Change(first, count, near) => {
                self.change(map, parts(first, count.min(self.parts - first)), near);
            }
            Step::Scatter(first, gap, count) => {
                let scattered = (first..self.parts).step_by(gap as usize).take(count as usize);
                scattered.for_each(|part| self.change(map, parts(part, 1), false));
            }
            Step::Write(which, first, count, zeros) => {
                let Some(snapshot) = chosen(which, &self.snapshots) else { return };
                let extent = parts(first, count.min(self.parts - first));
                let count = extent.length / PART_SIZE;
                let values: Vec<u64> = (0..count).map(|_| if zeros { 0 } else { self.fresh() }).collect();
                let place = if zeros { ZEROS } else { self.allocate(map, &values, false) };
                let noted = Cell::new(0);
                let mut left = Mapping { snapshot, extent, place };
                let note = |mapping: Mapping| noted.set(noted.get() + mapping.extent.length);
                while !left.extent.is_empty() {
                    left = block_on(map.write_some(left, AllocClass::Normal, false, note))
                        .expect("there is room");
                }
                assert_eq!(noted.get(), extent.length, "every step is told");
                let content = self.snapshots.get_mut(&snapshot).expect("chosen");
                content[first as usize..(first + count) as usize].copy_from_slice(&values);
            }
            Step::Remove(which) => {
                let Some(snapshot) = chosen(which, &self.snapshots) else { return };
                self.snapshots.remove(&snapshot);
                self.deleting.insert(snapshot, 0);
            }
            Step::Reclaim(entries) => {
                // Any of them may go first (SNAPREMOVE3).
                let deleting = self.deleting.iter().nth(entries % self.deleting.len().max(1));
                let Some((&snapshot, &from)) = deleting else { return };
                self.reclaim(map, snapshot, from, entries);
            }
            Step::Commit => {
                let (commit, ()) = block_on(map.blocks.freeze(|_| Ok(()))).expect("memory does not fail");
                block_on(map.blocks.write(&commit)).expect("memory does not fail");
                map.blocks.committed(commit);
            }
        }
    }

    fn change(&mut self, map: &Map, extent: Extent, near: bool) {
        if let Some(newest) = self.snapshots.keys().next_back().copied() {
            for extent in block_on(map.missing(newest, extent)).expect("memory does not fail") {
                let range = (extent.offset / PART_SIZE) as usize..(extent.end() / PART_SIZE) as usize;
                let old = self.origin[range].to_vec();
                let place = self.allocate(map, &old, near);
                let mapping = Mapping { snapshot: newest, extent, place };
                let next_older = || Some((newest, self.parts * PART_SIZE));
                block_on(map.keep(mapping, AllocClass::Normal, next_older)).expect("there is room");
            }
            assert_eq!(block_on(map.missing(newest, extent)), Ok(vec![]));
        }
        for part in extent.offset / PART_SIZE..extent.end() / PART_SIZE {
            self.origin[part as usize] = self.fresh();
        }
    }

    fn reclaim(&mut self, map: &Map, snapshot: u64, from: Key, entries: usize) {
        let next_older =
            self.snapshots.range(..snapshot).next_back().map(|(id, _)| (*id, self.parts * PART_SIZE));
        let owned = || map.bytes().values().map(|bytes| bytes.preserved + bytes.written).sum::<u64>();
        let (frees, before) = (block_on(map.frees(snapshot, next_older)).expect("readable"), owned());
        let reclaimed = block_on(map.reclaim(snapshot, || next_older, from, entries));
        let (looked, next) = reclaimed.expect("there is room");
        assert!((1..=entries).contains(&looked), "a batch is bounded and leads on");
        let left = block_on(map.frees(snapshot, next_older)).expect("readable");
        assert_eq!(left + (before - owned()), frees, "what was foretold is freed");
        match next {
            Some(next) => drop(self.deleting.insert(snapshot, next)),
            None => drop(self.deleting.remove(&snapshot)),
        }
    }

    fn check(&mut self, map: &Map) {
        let mut places = BTreeSet::new();
        let block_of = |part: Extent| Block::at(part.offset);
        let mut owned: BTreeMap<u64, u64> = BTreeMap::new();
        let mut preserved = BTreeSet::new();
        for mapping in all(map, false) {
            for (_, part) in mapping.extent.pieces(PART_SIZE) {
                assert!(preserved.insert((mapping.snapshot, part.offset)), "PRESERVED2: {part:?}");
            }
        }
        for written in [false, true] {
            for mapping in all(map, written).into_iter().filter(|mapping| mapping.place != ZEROS) {
                *owned.entry(mapping.snapshot).or_default() += mapping.extent.length;
                for (_, part) in Extent::new(mapping.place, mapping.extent.length).pieces(PART_SIZE) {
                    assert!(places.insert(block_of(part)), "STOREMAP2: {part:?}");
                }
            }
        }
        let counted = map.bytes().into_iter().map(|(id, bytes)| (id, bytes.preserved + bytes.written));
        assert_eq!(counted.collect::<BTreeMap<_, _>>(), owned, "STOREMAP3");
        for place in &places {
            assert_eq!(map.blocks.pages().is_used(*place), Ok(true), "content is marked");
        }
        self.store.retain(|place, _| places.contains(place));
        assert_eq!(self.store.len(), places.len(), "nothing is kept that was not stored");
        for (snapshot, content) in &self.snapshots {
            let (runs, _) = block_on(map.resolve(*snapshot, parts(0, self.parts))).expect("readable");
            for run in runs {
                for (_, part) in run.extent.pieces(PART_SIZE) {
                    let index = (part.offset / PART_SIZE) as usize;
                    let value = match run.clip(part).expect("inside").source {
                        Source::Store(place) => self.store[&Block::at(place)],
                        Source::Zeros => 0,
                        Source::Below => self.origin[index],
                    };
                    assert_eq!(value, content[index], "snapshot {snapshot}, part {index}");
                }
            }
        }
        self.check_order(map);
    }

    /// PRESERVED1, and that space is neither lost nor used twice.
    fn check_order(&self, map: &Map) {
        let mut from = Some(0);
        let mut last: Option<Key> = None;
        while let Some(key) = from {
            let (entries, next) = block_on(map.preserved_leaf(key)).expect("readable");
            for entry in entries {
                assert!(last.is_none_or(|last| last < entry.key()), "PRESERVED1: {entry:?}");
                last = Some(entry.last_key());
            }
            from = next;
        }
        let blocks = RefCell::new(0);
        let nodes = block_on(map.visit_blocks(|run| {
            *blocks.borrow_mut() += run.count;
            true
        }));
        let pages = map.blocks.pages();
        assert_eq!(nodes.map(|visited| visited.nodes), Ok(pages.nodes()));
        let free = pages.available(AllocClass::Reserve) + pages.unreachable_blocks();
        let total = MapOptions::fresh(9, Block::new(2), Block::new(BLOCKS)).free_blocks;
        assert_eq!(total - free, blocks.into_inner(), "every block has an owner or is free, or will be");
    }
}

/// Runs `steps` and then gives everything back, comparing with the model after every `often` steps.
fn compare(parts: u64, steps: &[Step], often: usize) {
    let mut model = Model::new(parts);
    let map = new_map(0);
    for (number, step) in steps.iter().enumerate() {
        model.run(&map, step);
        if number % often == 0 {
            model.check(&map);
        }
    }
    for round in 0..100_000 {
        if model.deleting.is_empty() {
            break;
        }
        model.run(&map, &Step::Reclaim(1 + round % 300));
    }
    assert!(model.deleting.is_empty(), "a walk ends");
    let left = all(&map, false).into_iter().chain(all(&map, true));
    assert!(
        left.into_iter().all(|mapping| model.snapshots.contains_key(&mapping.snapshot)),
        "SNAPREMOVE1: nothing is left"
    );
    model.check(&map);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_snapshot_reads_what_it_should_and_no_space_is_lost(steps in prop::collection::vec(step(FEW_PARTS), 1..50)) {
        compare(FEW_PARTS, &steps, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn the_same_holds_for_maps_of_many_leaves(steps in prop::collection::vec(step(MANY_PARTS), 20..80)) {
        compare(MANY_PARTS, &steps, 5);
    }
}

fn keep(map: &Map, snapshot: u64, first: u64, count: u64, place: u64) {
    let mapping = Mapping { snapshot, extent: parts(first, count), place: place * PART_SIZE };
    let claimed = block_on(map.blocks.run(|pages| pages.claim(BlockRun::new(Block::new(place), count))));
    assert_eq!(claimed, Ok(true));
    block_on(map.keep(mapping, AllocClass::Normal, || Some((snapshot, 1 << 40)))).expect("there is room");
}

#[test]
fn sequential_changes_are_one_entry_until_another_snapshot_cuts_them() {
    let map = new_map(1 << 20);
    for step in 0..25 {
        keep(&map, 1, step * 40, 40, 500 + step * 40);
    }
    assert_eq!(all(&map, false).len(), 1, "a thousand parts, 32 bytes");
    keep(&map, 2, 401, 1, 2000);
    assert_eq!(all(&map, false).len(), 3, "PRESERVED1: the entry that came between, and a run on each side");
    let places = |snapshot| {
        let (runs, _) = block_on(map.resolve(snapshot, parts(400, 2))).expect("readable");
        runs.into_iter().map(|run| run.source).collect::<Vec<_>>()
    };
    assert_eq!(places(1), [Source::Store(900 * PART_SIZE)], "the first at or after");
    assert_eq!(places(2), [Source::Below, Source::Store(2000 * PART_SIZE)]);
}

#[test]
fn content_that_comes_late_hides_nothing_of_the_snapshots_that_were_removed_meanwhile() {
    let map = new_map(1 << 20);
    keep(&map, 2, 7, 1, 500);
    let (claimed, late) = (
        BlockRun::one(Block::new(600)),
        Mapping { snapshot: 3, extent: parts(7, 1), place: 600 * PART_SIZE },
    );
    assert_eq!(block_on(map.blocks.run(|pages| pages.claim(claimed))), Ok(true));
    // Snapshots 3 and 2 were removed while it was on its way: the first one is the next older.
    block_on(map.keep(late, AllocClass::Normal, || Some((1, 1 << 40)))).expect("there is room");
    let (runs, _) = block_on(map.resolve(1, parts(7, 1))).expect("readable");
    assert_eq!(
        runs[0].source,
        Source::Store(500 * PART_SIZE),
        "SNAPREMOVE3: what was preserved first is older"
    );
    assert_eq!(map.blocks.pages().reclaimable_blocks(), 1, "and nobody needs the other");
}

#[test]
fn small_sequential_changes_become_one_entry_too() {
    let map = new_map(1 << 20);
    (0..400).for_each(|part| keep(&map, 1, part, 1, 500 + part));
    assert_eq!(all(&map, false).len(), 1, "parts become chunks and chunks a run");
    let whole = Run { extent: parts(0, 400), source: Source::Store(500 * PART_SIZE) };
    assert_eq!(block_on(map.resolve(1, parts(0, 400))).expect("readable").0, [whole]);
    assert_eq!(block_on(map.missing(2, parts(0, 400))), Ok(vec![parts(0, 400)]));
}

#[test]
fn an_entry_that_contradicts_the_store_is_the_damage_of_its_leaf() {
    let map = new_map(1 << 20);
    (0..200).for_each(|part| keep(&map, 1, part * 2, 1, 500 + part * 2));
    let bad = Exception { chunk: 10_000, snapshot: 1, part: 0, place: Block::new(BLOCKS), run: 1, parts: 1 };
    let entered = map.blocks.run(|pages| {
        let mut preserved = map.preserved.get();
        preserved.tree.patch(pages, &[], &[(bad.key(), bad.value())], AllocClass::Normal)?;
        map.preserved.set(preserved);
        Ok(preserved.tree.leaf_block(pages, bad.key()))
    });
    let leaf = block_on(entered).expect("there is room");
    assert_ne!(leaf, map.roots().preserved.block(), "there are several leaves");
    let found = block_on(map.blocks.run(|pages| map.preserved.get().find(pages, 1..=1, 40_000, 40_001)));
    assert!(matches!(found, Err(MapError::Damaged { block, .. }) if block == leaf), "{found:?}");
}

/// How often a node is looked at, and others get their turn, while `entries` scattered parts of a snapshot are zeroed.
fn cost_of_zeroing(entries: u64) -> (u64, u64) {
    let map = new_map(64 << 20);
    for part in 0..entries {
        let place = (500 + part * 2) * PART_SIZE;
        let mapping = Mapping { snapshot: 1, extent: parts(part * 2, 1), place };
        assert_eq!(block_on(map.blocks.run(|pages| pages.claim(BlockRun::one(Block::at(place))))), Ok(true));
        block_on(map.write(mapping, AllocClass::Normal)).expect("there is room");
    }
    let before = map.blocks.pages().cache_use().hits;
    let zeros = Mapping { snapshot: 1, extent: parts(0, entries * 2), place: ZEROS };
    let (mut turns, mut zeroing) = (0, Box::pin(map.write(zeros, AllocClass::Normal)));
    let zeroed = std::future::poll_fn(|context| {
        turns += 1;
        zeroing.as_mut().poll(context)
    });
    block_on(zeroed).expect("there is room");
    assert_eq!(all(&map, true).len(), 1, "one entry says it all");
    (map.blocks.pages().cache_use().hits - before, turns)
}

#[test]
fn zeroing_costs_in_proportion_to_the_fragments_and_lets_others_go_on() {
    let (few, _) = cost_of_zeroing(1000);
    let (many, turns) = cost_of_zeroing(8000);
    assert!(many < few * 12, "{many} looks at nodes for eight times as many as {few} were for");
    assert!(turns > 8000 / 512, "{turns} turns");
}
