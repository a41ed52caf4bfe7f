//! Pages are evicted and read again, with unchanged content.

use super::super::{InUse, Side};
use super::*;
use crate::pdata::tests::memory;
use crate::pdata::{CachePolicy, Map, MapError, MapOptions, Tree};
use futures_executor::block_on;
use std::collections::BTreeSet;
use varve_block::{Arena, Device};
use varve_format::pdata::space_page::Place;
use varve_format::pdata::{Block, BlockRun};

const GROUPS: u64 = 7;
const BASE: Block = Block::new(2);
const BLOCKS: u64 = GROUPS * GROUP_BLOCKS - 1000;
const END: Block = Block::new(2 + BLOCKS);

/// The first block of a group.
fn first_of(group: u64) -> Block {
    BASE + group * GROUP_BLOCKS
}

/// A space map with next to no memory, and what it should say.
struct Store {
    device: Device,
    map: Map,
    held: Vec<BlockRun>,
    unpublished: Vec<BlockRun>,
    readers: Vec<InUse>,
    noise: u64,
    /// Whether a page was not in memory when it was wanted.
    was_read: bool,
}

impl Store {
    fn new(seed: u64) -> Self {
        let device = memory(END.number());
        let map = open(&device, 0, MapOptions::fresh(9, BASE, END).free_blocks, Vec::new());
        let (held, unpublished, readers) = (Vec::new(), Vec::new(), Vec::new());
        Self { device, map, held, unpublished, readers, noise: seed, was_read: false }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.noise =
            self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.noise >> 33) % limit
    }

    fn any(&mut self, from: fn(&mut Self) -> &mut Vec<BlockRun>) -> Option<BlockRun> {
        let length = from(self).len() as u64;
        let chosen = if length == 0 { return None } else { self.below(length) };
        Some(from(self).swap_remove(usize::try_from(chosen).expect("small")))
    }

    fn step(&mut self) {
        let (kind, count, near) = (self.below(10), 1 + self.below(40), BASE + self.below(BLOCKS));
        match kind {
            0 | 1 => {
                self.map.pages().go_on_at(near);
                let run = block_on(self.map.run(|pages| pages.take_on(Side::Near, count)));
                self.held.push(run.expect("there is room"));
            }
            2 | 3 => {
                let run = self.map.run(|pages| pages.take_unpublished_near(Some(near), 16, 0, count));
                self.unpublished.push(block_on(run).expect("there is room"));
            }
            4 => self.any(|store| &mut store.unpublished).into_iter().for_each(|run| {
                self.map.pages().publish(run);
                self.held.push(run);
            }),
            5 => {
                self.any(|store| &mut store.unpublished)
                    .into_iter()
                    .for_each(|run| self.map.pages().return_unpublished(run));
            }
            6 => self.any(|store| &mut store.held).into_iter().for_each(|run| self.map.pages().free_run(run)),
            7 => {
                let run = self.any(|store| &mut store.held);
                run.into_iter().for_each(|run| self.map.pages().free_unread(run));
            }
            8 if self.readers.len() < 3 => self.readers.push(self.map.pages().in_use()),
            _ => self.readers.clear(),
        }
    }

    /// Ends a transaction, and compares with what a crash would leave.
    fn commit(&mut self) {
        let (commit, ()) = block_on(self.map.freeze(|_| Ok(()))).expect("pages can be read");
        block_on(self.map.write(&commit)).expect("memory does not fail");
        let (generation, free, places) =
            (commit.generation(), commit.free_blocks(), commit.places().to_vec());
        self.map.committed(commit);
        let held: BTreeSet<Block> = self.held.iter().flat_map(|run| run.blocks()).collect();
        let crashed = open(&self.device, generation, free, places);
        assert_eq!(free, MapOptions::fresh(9, BASE, END).free_blocks - held.len() as u64);
        for _ in 0..40 {
            let block = BASE + self.below(BLOCKS);
            let used = block_on(crashed.run(|pages| pages.is_used(block))).expect("readable");
            let places = (block - BASE) % GROUP_BLOCKS < 2;
            assert_eq!(used, places || held.contains(&block), "{block:?} after a crash");
        }
        for run in self.held.iter().chain(&self.unpublished) {
            let loaded = self.map.pages().require(*run).is_ok();
            self.was_read |= !loaded;
            let used = block_on(self.map.run(|pages| pages.is_used(run.first))).expect("readable");
            assert!(used, "{:?} is used in memory", run.first);
        }
    }
}

fn open(device: &Device, generation: u64, free_blocks: u64, places: Vec<Place>) -> Map {
    let fresh = MapOptions::fresh(9, BASE, END);
    let options = MapOptions { generation, free_blocks, places, cache_bytes: 0, floor_blocks: 0, ..fresh };
    Map::open(device.clone(), Arena::heap(1 << 20), &options)
}

#[test]
fn pages_go_and_come_back_and_say_the_same() {
    let mut most = 0;
    for seed in 0..30 {
        let mut store = Store::new(seed);
        for _ in 0..20 {
            (0..12).for_each(|_| store.step());
            store.commit();
        }
        assert!(store.was_read, "RESIDENT1: pages were evicted");
        // When nothing is under way any more, memory is what it should be.
        store.readers.clear();
        while let Some(run) = store.unpublished.pop() {
            store.map.pages().return_unpublished(run);
        }
        store.commit();
        store.map.pages().reclaim();
        store.commit();
        most = most.max(store.map.pages().cache_use().pages);
    }
    assert!(most <= PAGES_MIN as u64 + 1, "{most} pages stay");
}

#[test]
fn a_full_group_is_not_read_again() {
    let device = memory(END.number());
    let map = open(&device, 0, MapOptions::fresh(9, BASE, END).free_blocks, Vec::new());
    for _ in 0..4 {
        map.pages().go_on_at(BASE);
        block_on(map.run(|pages| pages.take_on(Side::Near, GROUP_BLOCKS))).expect("there is room");
    }
    let (commit, ()) = block_on(map.freeze(|_| Ok(()))).expect("pages can be read");
    block_on(map.write(&commit)).expect("memory does not fail");
    map.committed(commit);
    assert!(map.pages().cache_use().pages <= PAGES_MIN as u64, "full pages went");
    map.pages().go_on_at(BASE);
    let run = block_on(map.run(|pages| pages.take_on(Side::Near, 8))).expect("there is room");
    assert!(run.first >= first_of(4), "{run:?}");
    assert!(map.pages().cache_use().pages <= PAGES_MIN as u64 + 1, "nor were they read to find that");
    map.pages().go_on_at(BASE);
    let run = block_on(map.run(|pages| pages.take_unpublished_near(None, 16, 0, 8))).expect("there is room");
    assert!(run.first >= first_of(4), "a whole unit: {run:?}");
    assert!(map.pages().cache_use().pages <= PAGES_MIN as u64 + 1, "nor to find a whole unit");
}

#[test]
fn a_log_may_claim_all_that_is_free_and_no_more() {
    let end = Block::new(500);
    let options = MapOptions { floor_blocks: 0, ..MapOptions::fresh(9, BASE, end) };
    for (blocks, expected) in [(options.free_blocks, true), (options.free_blocks + 1, false)] {
        let map = Map::open(memory(end.number()), Arena::heap(1 << 20), &options);
        let claimed =
            block_on(map.run(|pages| pages.claim(BlockRun::new(end - blocks, blocks)))).expect("readable");
        assert_eq!(claimed, expected, "{blocks} blocks");
    }
}

#[test]
fn what_is_given_back_after_its_page_went_is_counted() {
    let device = memory(END.number());
    let map = open(&device, 0, MapOptions::fresh(9, BASE, END).free_blocks, Vec::new());
    let commit = |map: &Map| {
        let (commit, ()) = block_on(map.freeze(|_| Ok(()))).expect("pages can be read");
        block_on(map.write(&commit)).expect("memory does not fail");
        map.committed(commit);
    };
    let counts = |map: &Map| {
        let pages = map.pages();
        (pages.reclaimable_blocks(), pages.free_blocks())
    };
    let (_, free) = counts(&map);
    let run = block_on(map.run(|pages| pages.take_on(Side::Near, 5))).expect("there is room");
    commit(&map);
    for group in 1..GROUPS {
        block_on(map.run(|pages| pages.is_used(first_of(group)))).expect("readable");
    }
    assert!(map.pages().require(run).is_err(), "the page went");
    map.pages().untake(run);
    assert_eq!(counts(&map), (5, free - 5), "SPACE1, PDATA2");
    commit(&map);
    assert_eq!(counts(&map), (0, free));
}

#[test]
fn a_smaller_budget_takes_pages_before_nodes() {
    let device = memory(END.number());
    let options = MapOptions { cache_bytes: 28 * 4096, floor_blocks: 0, ..MapOptions::fresh(9, BASE, END) };
    let map = Map::open(device, Arena::heap(1 << 20), &options);
    let mut tree = Tree::EMPTY;
    for key in 0..2500 {
        let old = block_on(map.run(|pages| {
            let (mut now, value) = (tree, [0; 16]);
            let old = now.insert(pages, key, value)?;
            Ok((old, now))
        }));
        tree = old.expect("there is room").1;
    }
    let (commit, ()) = block_on(map.freeze(|_| Ok(()))).expect("pages can be read");
    block_on(map.write(&commit)).expect("memory does not fail");
    map.committed(commit);
    for group in 0..GROUPS {
        block_on(map.run(|pages| pages.is_used(first_of(group)))).expect("readable");
    }
    let before = map.pages().cache_use();
    assert_eq!((before.pages, before.nodes), (GROUPS, 21), "20 leaves and a root, all clean");
    map.pages().set_cache(16 * 4096, CachePolicy::default());
    let after = map.pages().cache_use();
    assert_eq!((after.pages, after.nodes), (4, 12), "NODECACHE2: what the pages leave");
}

#[test]
fn a_page_stays_while_a_commit_writes_it() {
    let mut store = Store::new(1);
    for group in 0..5 {
        store.map.pages().go_on_at(first_of(group) + 10);
        let run = block_on(store.map.run(|pages| pages.take_on(Side::Near, 8)));
        store.held.push(run.expect("there is room"));
    }
    let (commit, ()) = block_on(store.map.freeze(|_| Ok(()))).expect("pages can be read");
    store.map.pages().set_cache(0, CachePolicy::default());
    for run in store.held.clone() {
        let marks = block_on(store.map.run(|pages| pages.marks(run))).expect("RESIDENT1: it is in memory");
        assert!(marks.iter().all(|is_used| *is_used), "RESIDENT1: {run:?}");
    }
    block_on(store.map.write(&commit)).expect("memory does not fail");
    store.map.committed(commit);
}

#[test]
fn the_last_group_is_looked_at_again_when_it_has_grown() {
    let device = memory(END.number());
    let end = first_of(3) + 5000;
    let fresh = MapOptions::fresh(9, BASE, end);
    let options = MapOptions { cache_bytes: 0, floor_blocks: 0, ..fresh };
    let map = Map::open(device.clone(), Arena::heap(1 << 20), &options);
    while block_on(map.run(|pages| pages.take_on(Side::Near, GROUP_BLOCKS))).is_ok() {}
    let (commit, ()) = block_on(map.freeze(|_| Ok(()))).expect("pages can be read");
    block_on(map.write(&commit)).expect("memory does not fail");
    map.committed(commit);
    // Two pages stay however small the budget is: those of the first groups take the place of the last one's.
    for group in [0, 1, 2, 0, 1] {
        block_on(map.run(|pages| pages.is_used(first_of(group)))).expect("readable");
    }
    assert!(map.pages().require(BlockRun::one(end - 1)).is_err(), "it went");
    map.grow(device, first_of(4));
    let run = block_on(map.run(|pages| pages.take_on(Side::Near, GROUP_BLOCKS)));
    assert_eq!(run, Ok(BlockRun::new(end, GROUP_BLOCKS - 5000)), "all that has come");
}

/// SPACE6.
#[test]
fn what_is_free_and_freed_all_the_same_is_found_before_a_commit() {
    let free_twice = |map: &Map, run: BlockRun| {
        map.pages().free_run(run);
        map.pages().free_run(run);
    };
    type Wrong<'a> = &'a dyn Fn(&Map, BlockRun);
    let wrong: [Wrong<'_>; 5] = [
        &free_twice,
        &|map, run| map.pages().free_run(BlockRun::one(run.first + 1000)),
        &|map, _| map.pages().free_run(BlockRun::one(Block::new(3))),
        &|map, _| map.pages().free_run(BlockRun::new(END - 1, 2)),
        &|map, run| {
            map.pages().untake(run);
            map.pages().free_run(run);
        },
    ];
    for (number, wrong) in wrong.into_iter().enumerate() {
        let map = open(&memory(END.number()), 0, MapOptions::fresh(9, BASE, END).free_blocks, Vec::new());
        let run = block_on(map.run(|pages| pages.take_on(Side::Near, 5))).expect("there is room");
        wrong(&map, run);
        let refused = block_on(map.freeze(|_| Ok(()))).err();
        assert!(matches!(refused, Some(MapError::Damaged { .. })), "SPACE6: {number}: {refused:?}");
    }
}

#[test]
fn the_last_blocks_of_a_group_are_freed_like_others() {
    let map = open(&memory(END.number()), 0, MapOptions::fresh(9, BASE, END).free_blocks, Vec::new());
    map.pages().go_on_at(first_of(1) - 5);
    let run = block_on(map.run(|pages| pages.take_on(Side::Near, 5))).expect("there is room");
    assert_eq!(run, BlockRun::new(first_of(1) - 5, 5));
    map.pages().free_run(run);
    assert!(block_on(map.freeze(|_| Ok(()))).is_ok(), "SPACE6");
}
