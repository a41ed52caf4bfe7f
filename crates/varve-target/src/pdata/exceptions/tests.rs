//! Exceptions on the tree against a plain table of parts, through a cache that holds almost nothing.

use super::super::tests::memory;
use super::*;
use futures_executor::block_on;
use proptest::prelude::*;
use std::collections::BTreeMap;
use varve_block::Arena;

const PARTS: u32 = 4;
const CHUNKS: u64 = 24;

fn open() -> Exceptions {
    let blocks = 2000;
    let mut options = crate::pdata::MapOptions::fresh(9, 2, blocks);
    options.cache_bytes = 0;
    let map = Rc::new(Map::open(memory(blocks), Arena::heap(1 << 20), &options));
    Exceptions::open(map, Tree::EMPTY, PARTS)
}

/// By chunk, snapshot and part: the place.
type Model = BTreeMap<(u64, u32, u32), u64>;

fn found(exceptions: &Exceptions) -> Model {
    let mut model = Model::new();
    for chunk in 0..CHUNKS + 12 {
        let of_chunk = block_on(exceptions.of_chunk(chunk, 0, u32::MAX)).expect("no faults");
        assert!(of_chunk.windows(2).all(|pair| pair[0].key() < pair[1].key()), "in order");
        for exception in of_chunk {
            for part in 0..exception.parts {
                let key = (chunk, exception.snapshot, exception.part + part);
                let place = exception.place + u64::from(part);
                assert_eq!(model.insert(key, place), None, "R2: {key:?}");
            }
        }
    }
    model
}

fn entries(exceptions: &Exceptions) -> Vec<Exception> {
    let (mut all, mut from) = (Vec::new(), Some(0));
    while let Some(key) = from {
        let leaf = block_on(exceptions.change(|tree, pages| tree.leaf(pages, key))).expect("no faults");
        all.extend(leaf.entries.into_iter().map(|(key, value)| decode(key, value)));
        from = leaf.next;
    }
    assert!(all.windows(2).all(|pair| pair[0].last_key() < pair[1].key()), "R1: {all:?}");
    all
}

#[derive(Clone, Debug)]
enum Step {
    Insert { snapshot: u32, first: u64, count: u64, near: bool },
    Remove { snapshot: u32, chunk: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let parts = CHUNKS * u64::from(PARTS);
    let insert = (1..5_u32, 0..parts, 1..40_u64, any::<bool>())
        .prop_map(|(snapshot, first, count, near)| Step::Insert { snapshot, first, count, near });
    let remove = (1..5_u32, 0..CHUNKS).prop_map(|(snapshot, chunk)| Step::Remove { snapshot, chunk });
    prop::collection::vec(prop_oneof![3 => insert, 2 => remove], 1..60)
}

/// Enters the parts that are missing, as runs, at places that go on from each other if they are `near`.
fn insert(exceptions: &Exceptions, model: &mut Model, place: &mut u64, step: (u32, u64, u64, bool)) {
    let (snapshot, first, count, near) = step;
    let address = |part: u64| (part / u64::from(PARTS), (part % u64::from(PARTS)) as u32);
    let mut at = first;
    while at < first + count {
        let missing = |model: &Model, at: u64| {
            let (chunk, part) = address(at);
            !model.contains_key(&(chunk, snapshot, part))
        };
        let run = (at..first + count).take_while(|at| missing(model, *at)).count() as u64;
        if run > 0 {
            *place += if near { 0 } else { 5 };
            let (chunk, part) = address(at);
            block_on(exceptions.insert(snapshot, chunk, part, run, *place)).expect("there is space");
            for offset in 0..run {
                let (chunk, part) = address(at + offset);
                model.insert((chunk, snapshot, part), *place + offset);
            }
            *place += run;
        }
        at += run.max(1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_is_found_is_what_was_entered_and_not_taken_out(steps in steps()) {
        let exceptions = open();
        let (mut model, mut place) = (Model::new(), 1000);
        for step in steps {
            match step {
                Step::Insert { snapshot, first, count, near } => {
                    insert(&exceptions, &mut model, &mut place, (snapshot, first, count, near));
                }
                Step::Remove { snapshot, chunk } => {
                    let removed = block_on(exceptions.remove(snapshot, chunk)).expect("there is space");
                    let parts: u32 = removed.iter().map(|exception| exception.parts).sum();
                    let before = model.len();
                    model.retain(|key, _| (key.0, key.1) != (chunk, snapshot));
                    prop_assert_eq!(before - model.len(), parts as usize);
                }
            }
            prop_assert_eq!(&found(&exceptions), &model);
            entries(&exceptions);
        }
    }
}

#[test]
fn sequential_changes_are_one_entry_until_another_snapshot_cuts_them() {
    let exceptions = open();
    let whole = u64::from(PARTS);
    for step in 0..50_u64 {
        block_on(exceptions.insert(1, step * 20, 0, 20 * whole, 5000 + step * 20 * whole)).expect("space");
    }
    assert_eq!(entries(&exceptions).len(), 1, "a thousand chunks, 32 bytes");
    block_on(exceptions.insert(2, 500, 1, 1, 90)).expect("space");
    assert_eq!(entries(&exceptions).len(), 3, "R1: the entry that came between, and a run on each side");
    let places = |snapshot| {
        let found = block_on(exceptions.of_chunk(500, snapshot, 9)).expect("no faults");
        found.into_iter().map(|exception| (exception.snapshot, exception.place)).collect::<Vec<_>>()
    };
    assert_eq!(places(1), [(1, 5000 + 500 * whole), (2, 90)], "the first at or after");
    assert_eq!(places(2), [(2, 90)]);
    block_on(exceptions.remove(1, 700)).expect("space");
    assert_eq!(entries(&exceptions).len(), 4);
}
