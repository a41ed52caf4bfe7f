//! The map against a model in memory, through small caches, commits and reopening.

use super::*;
use futures_executor::block_on;
use futures_util::FutureExt;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use varve_block::{Arena, BlockDevice, Buffer, Checked, Completion, Device, Io, IoError, Shape};
use varve_format::pdata::Block;
use varve_format::pdata::node::Value;
use varve_format::pdata::space_page::Place;

/// A disk of plain memory.
struct Memory {
    content: RefCell<Vec<u8>>,
}

impl BlockDevice for Memory {
    fn shape(&self) -> Shape {
        Shape::new(self.content.borrow().len() as u64, 4096)
    }
    fn submit(&self, io: Checked) -> Completion<'_> {
        let range = io.extent().offset as usize..io.extent().end() as usize;
        match io.into_io() {
            Io::Read { mut buffer, .. } => {
                buffer.copy_from_slice(&self.content.borrow()[range]);
                return Completion::ready(Ok(buffer));
            }
            Io::Write { data, .. } => self.content.borrow_mut()[range].copy_from_slice(&data),
            _ => {}
        }
        Completion::ready(Ok(Buffer::empty()))
    }
}

const BLOCKS: u64 = 3000;
const BASE: Block = Block::new(2);
const END: Block = Block::new(BLOCKS);

/// So many blocks of memory as a device.
pub(crate) fn memory(blocks: u64) -> Device {
    let length = usize::try_from(blocks * 4096).expect("small");
    Device::new(Memory { content: RefCell::new(vec![0; length]) })
}

#[derive(Clone)]
struct Committed {
    tree: Tree,
    generation: u64,
    free_blocks: u64,
    nodes: u64,
    places: Vec<Place>,
}

struct Store {
    device: Device,
    arena: Arena,
    map: Map,
    tree: Tree,
    /// What the superblock would say.
    committed: Committed,
}

fn options(committed: &Committed, policy: CachePolicy, cache_bytes: u64) -> MapOptions {
    let Committed { generation, free_blocks, nodes, places, .. } = committed.clone();
    MapOptions {
        generation,
        free_blocks,
        nodes,
        places,
        policy,
        cache_bytes,
        ..MapOptions::fresh(9, BASE, END)
    }
}

impl Store {
    fn new(policy: CachePolicy, cache_bytes: u64) -> Self {
        let memory = Memory { content: RefCell::new(vec![0; BLOCKS as usize * 4096]) };
        let (device, arena) = (Device::from_rc(Rc::new(memory)), Arena::heap(1 << 20));
        let free_blocks = MapOptions::fresh(9, BASE, END).free_blocks;
        let committed =
            Committed { tree: Tree::EMPTY, generation: 0, free_blocks, nodes: 0, places: Vec::new() };
        let map = Map::open(device.clone(), arena.clone(), &options(&committed, policy, cache_bytes));
        Self { device, arena, map, tree: Tree::EMPTY, committed }
    }

    fn insert(&mut self, key: u128, value: Value) -> Option<Value> {
        let mut tree = self.tree;
        let old = block_on(self.map.run(|pages| {
            tree = self.tree;
            tree.insert(pages, key, value)
        }));
        self.tree = tree;
        self.relieve();
        old.expect("there is room")
    }

    fn remove(&mut self, key: u128) -> Option<Value> {
        let mut tree = self.tree;
        let old = block_on(self.map.run(|pages| {
            tree = self.tree;
            tree.remove(pages, key)
        }));
        self.tree = tree;
        self.relieve();
        old.expect("there is room")
    }

    fn relieve(&self) {
        while self.map.pages().wants_commit() {
            block_on(self.map.write_back(Pace::Prompt)).expect("memory does not fail");
        }
    }

    fn commit(&mut self) {
        let (commit, tree) = block_on(self.map.freeze(|_| Ok(self.tree))).expect("pages can be read");
        block_on(self.map.write(&commit)).expect("memory does not fail");
        let (generation, free_blocks) = (commit.generation(), commit.free_blocks());
        self.committed = Committed {
            tree,
            generation,
            free_blocks,
            nodes: commit.nodes(),
            places: commit.places().to_vec(),
        };
        self.map.committed(commit);
    }

    fn reopen(&mut self, policy: CachePolicy, cache_bytes: u64) {
        self.tree = self.committed.tree;
        let options = options(&self.committed, policy, cache_bytes);
        self.map = Map::open(self.device.clone(), self.arena.clone(), &options);
    }

    fn all(&self) -> Vec<(u128, Value)> {
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(key) = from {
            let leaf = block_on(self.map.run(|pages| self.tree.leaf(pages, key))).expect("sound");
            found.extend(leaf.entries);
            from = leaf.next;
        }
        found
    }

    /// Blocks of the tree, and of the space map's marks.
    fn used(&self) -> (u64, u64) {
        let mut count = 0;
        let mut stack = vec![self.tree.root];
        while let Some(link) = stack.pop().filter(|link| !link.is_none()) {
            count += 1;
            let node = block_on(self.map.run(|pages| pages.node(link))).expect("sound");
            if let varve_format::pdata::node::Entries::Branch(children) = &node.entries {
                stack.extend(children.iter().map(|child| child.1));
            }
        }
        let pages = self.map.pages();
        let free = pages.free_blocks() + 64 + pages.reclaimable_blocks();
        (count, MapOptions::fresh(9, BASE, END).free_blocks - free)
    }
}

fn value(number: u64) -> Value {
    u128::from(number).to_le_bytes()
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u128),
    InsertMany(u128, u64),
    RemoveMany(u128, u64),
    Floor(u128),
    Ceiling(u128),
    Commit,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || (0u128..4000).prop_map(|key| key * 7);
    prop_oneof![
        4 => key().prop_map(Step::Insert),
        4 => (key(), 1u64..400).prop_map(|(from, count)| Step::InsertMany(from, count)),
        4 => (key(), 1u64..900).prop_map(|(from, count)| Step::RemoveMany(from, count)),
        2 => key().prop_map(Step::Floor),
        2 => key().prop_map(Step::Ceiling),
        2 => Just(Step::Commit),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]
    /// The map answers as a sorted map in memory does, whatever the cache, and reopens as it was committed.
    #[test]
    fn a_map_is_a_sorted_map(steps in prop::collection::vec(step(), 1..40), policy in 0usize..4, cache in prop_oneof![Just(0u64), Just(1 << 20)]) {
        let policy = CachePolicy::ALL[policy];
        let mut store = Store::new(policy, cache);
        let (mut model, mut committed) = (BTreeMap::<u128, Value>::new(), BTreeMap::new());
        let mut counter = 0;
        for step in steps {
            counter += 1;
            match step {
                Step::Insert(key) => prop_assert_eq!(store.insert(key, value(counter)), model.insert(key, value(counter))),
                Step::InsertMany(from, count) => {
                    for key in (from..).step_by(3).take(count as usize) {
                        prop_assert_eq!(store.insert(key, value(counter)), model.insert(key, value(counter)));
                    }
                }
                Step::RemoveMany(from, count) => {
                    let keys: Vec<_> = model.range(from..).map(|entry| *entry.0).take(count as usize).collect();
                    for key in keys {
                        prop_assert_eq!(store.remove(key), model.remove(&key));
                    }
                    prop_assert_eq!(store.remove(from + 1), model.remove(&(from + 1)));
                }
                Step::Floor(key) => {
                    let found = block_on(store.map.run(|pages| store.tree.floor(pages, key))).expect("sound");
                    prop_assert_eq!(found, model.range(..=key).next_back().map(|(key, value)| (*key, *value)));
                }
                Step::Ceiling(key) => {
                    let found = block_on(store.map.run(|pages| store.tree.ceiling(pages, key))).expect("sound");
                    prop_assert_eq!(found, model.range(key..).next().map(|(key, value)| (*key, *value)));
                }
                Step::Commit => {
                    store.commit();
                    committed = model.clone();
                }
                Step::Reopen => {
                    store.reopen(policy, cache);
                    model = committed.clone();
                }
            }
        }
        prop_assert_eq!(store.all(), model.into_iter().collect::<Vec<_>>());
        let (reached, marked) = store.used();
        prop_assert!(marked >= reached, "every node is marked");
        store.commit();
        prop_assert_eq!(store.map.pages().nodes(), reached, "nodes are counted");
        store.commit();
        prop_assert_eq!(store.used(), (reached, reached), "after two commits nothing is marked that is not reached");
    }
}

#[test]
fn keys_in_order_leave_full_leaves() {
    let mut store = Store::new(CachePolicy::Sieve, 1 << 20);
    (0..12_600u64).for_each(|key| assert_eq!(store.insert(u128::from(key), value(key)), None));
    let (nodes, _) = store.used();
    assert!(nodes <= 100 + 2, "{nodes} nodes for 100 leaves' worth of entries");
}

#[test]
fn a_small_cache_stays_small() {
    let mut store = Store::new(CachePolicy::Lru, 16 * 4096);
    (0..20_000u64)
        .for_each(|key| assert_eq!(store.insert(u128::from(key * 7919 % 20_000), value(key)), None));
    store.commit();
    assert_eq!(store.all().len(), 20_000);
    let usage = store.map.pages().cache_use();
    assert!(usage.nodes <= 17, "NODECACHE2: {usage:?}");
    assert!(usage.loads > 100, "{usage:?}");
}

#[test]
fn a_full_store_refuses_and_keeps_what_it_has() {
    let mut store = Store::new(CachePolicy::Sieve, 64 << 20);
    let taken: u64 = std::iter::from_fn(|| block_on(store.map.run(|pages| pages.take(1000))).ok())
        .map(|run| run.count)
        .sum();
    assert!(taken > BLOCKS - 100 && store.map.pages().free_blocks() == 0);
    assert_eq!(block_on(store.map.run(|pages| pages.take(1))), Err(MapError::Full));
    assert_eq!(store.insert(1, value(1)), None, "the floor is for the map itself");
    store.commit();
    assert_eq!(store.all().len(), 1);
}

#[test]
fn damage_is_named_by_block() {
    let mut store = Store::new(CachePolicy::Sieve, 1 << 20);
    store.insert(1, value(1));
    store.commit();
    let root = store.tree.root.block();
    let garbage = store.arena.take_zeroed(4096).freeze();
    block_on(store.device.write(root.offset(), garbage, varve_block::Durability::Volatile)).expect("memory");
    store.reopen(CachePolicy::Sieve, 1 << 20);
    let found = block_on(store.map.run(|pages| store.tree.get(pages, 1)));
    assert!(matches!(found, Err(MapError::Damaged { block, .. }) if block == root), "{found:?}");
}

/// Memory whose reads take a while, and may fail.
struct Slow {
    memory: Device,
    reads: Rc<Cell<u32>>,
    fails: Rc<Cell<bool>>,
}

impl BlockDevice for Slow {
    fn shape(&self) -> Shape {
        self.memory.shape()
    }
    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        if !matches!(io, Io::Read { .. }) {
            return self.memory.submit(io);
        }
        self.reads.set(self.reads.get() + 1);
        Completion::pending(async move {
            let mut turns = 3;
            poll_fn(|context| {
                turns -= 1;
                context.waker().wake_by_ref();
                if turns == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            if self.fails.get() { Err(IoError::Medium) } else { self.memory.submit(io).await }
        })
    }
}

#[test]
fn what_many_want_is_read_once_and_fails_for_each_alone() {
    let mut store = Store::new(CachePolicy::Sieve, 1 << 20);
    (0..300u64).for_each(|key| assert_eq!(store.insert(u128::from(key), value(key)), None));
    store.commit();
    let (reads, fails) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(true)));
    let memory = store.device.clone();
    store.device = Device::new(Slow { memory, reads: Rc::clone(&reads), fails: Rc::clone(&fails) });
    store.reopen(CachePolicy::Sieve, 1 << 20);
    let ask = || {
        let get = |_| store.map.run(|pages| store.tree.get(pages, 7));
        block_on(futures_util::future::join_all((0..5).map(get)))
    };
    assert!(ask().into_iter().all(|found| found == Err(MapError::Io(IoError::Medium))));
    assert_eq!(reads.replace(0), 5, "PDATA7: each had its turn");
    fails.set(false);
    assert!(ask().into_iter().all(|found| found == Ok(Some(value(7)))));
    assert_eq!(reads.get(), 2, "PDATA7: the root and a leaf");
}

/// SPACE3: a reader of before two commits may be reading what only the second of them frees.
#[test]
fn who_reads_keeps_what_any_later_commit_frees() {
    let mut store = Store::new(CachePolicy::default(), 1 << 20);
    let run = block_on(store.map.run(|pages| pages.take(1))).expect("there is room");
    store.commit();
    let reader = store.map.pages().in_use();
    store.commit();
    store.map.pages().free_run(run);
    store.commit();
    store.map.pages().reclaim();
    assert_eq!(store.map.pages().reclaimable_blocks(), 1, "the reader of before is still there");
    drop(reader);
    store.map.pages().reclaim();
    assert_eq!(store.map.pages().reclaimable_blocks(), 0);
}

#[test]
fn a_node_that_is_being_read_keeps_what_commits_free() {
    let mut store = Store::new(CachePolicy::default(), 1 << 20);
    assert_eq!(store.insert(1, value(1)), None);
    let run = block_on(store.map.run(|pages| pages.take(1))).expect("there is room");
    store.commit();
    let (holder, slow) = varve_sim::Holder::new(store.device.clone());
    let (at, tree) = (&store.committed, store.tree);
    let map = Map::open(slow, store.arena.clone(), &options(at, CachePolicy::default(), 1 << 20));
    block_on(map.run(|pages| pages.require(run))).expect("readable");
    holder.hold_next(1, varve_sim::Holds::Reads);
    let mut reads = Box::pin(map.run(|pages| pages.node(tree.root).map(drop)));
    assert!((&mut reads).now_or_never().is_none() && holder.held() == 1, "it is under way");
    map.pages().free_run(run);
    let (commit, ()) = block_on(map.freeze(|_| Ok(()))).expect("pages are in memory");
    block_on(map.write(&commit)).expect("memory does not fail");
    map.committed(commit);
    map.pages().reclaim();
    assert_eq!(map.pages().reclaimable_blocks(), 1, "PDATA5");
    holder.release();
    block_on(reads).expect("memory does not fail");
    map.pages().reclaim();
    assert_eq!(map.pages().reclaimable_blocks(), 0);
}

#[test]
fn what_was_reserved_is_there_for_nobody_else() {
    let store = Store::new(CachePolicy::default(), 1 << 20);
    let all = store.map.pages().available(AllocClass::Reserve);
    store.map.pages().keep_for_commit(2);
    store.map.pages().set_reservation(all - 3);
    assert_eq!(store.map.pages().available(AllocClass::Normal), 1);
    let change = |class: AllocClass, keys: u64| {
        let mut tree = store.tree;
        let puts: Vec<_> = (0..keys).map(|key| (u128::from(key), value(key))).collect();
        block_on(store.map.run(|pages| tree.patch(pages, &[], &puts, class)))
    };
    store.map.pages().set_reservation(all - 2);
    assert_eq!(change(AllocClass::Normal, 1), Err(MapError::Full), "it is reserved, or is kept for a commit");
    assert_eq!(change(AllocClass::Reserve, 1), Ok(()));
}

/// NODE4: keys that come before the first one of a tree that was made with several leaves.
#[test]
fn smaller_keys_than_the_first_ones_are_in_order_too() {
    let map = Map::open(memory(BLOCKS), Arena::heap(1 << 20), &MapOptions::fresh(9, BASE, END));
    let mut tree = Tree::EMPTY;
    let entries =
        |keys: std::ops::Range<u64>| keys.map(|key| (u128::from(key), value(key))).collect::<Vec<_>>();
    block_on(map.run(|pages| tree.edit(pages, &Alone, 5000, entries(5000..5300), AllocClass::Reserve)))
        .expect("there is room");
    for first in (0..5000).rev().step_by(100) {
        let start = first - 99;
        block_on(map.run(|pages| {
            let mut all = tree.span(pages, start.into())?.entries().to_vec();
            all.splice(0..0, entries(start..first + 1));
            tree.edit(pages, &Alone, start.into(), all, AllocClass::Reserve)
        }))
        .expect("there is room");
    }
    let (commit, ()) = block_on(map.freeze(|_| Ok(()))).expect("pages can be read");
    block_on(map.write(&commit)).expect("NODE2: memory does not fail");
    for key in 0..5300 {
        assert_eq!(block_on(map.run(|pages| tree.get(pages, key.into()))), Ok(Some(value(key))), "{key}");
    }
}

#[test]
fn a_write_back_that_nobody_waits_for_is_short() {
    let mut store = Store::new(CachePolicy::default(), 64 << 20);
    (0..12_600u64).for_each(|key| assert_eq!(store.insert(u128::from(key), value(key)), None));
    let dirty = |store: &Store| store.map.pages().cache_use().dirty;
    let before = dirty(&store);
    block_on(store.map.write_back(Pace::Gentle)).expect("memory does not fail");
    assert!(before > 90 && (1..=16).contains(&(before - dirty(&store))), "whoever commits waits for it");
    block_on(store.map.write_back(Pace::Prompt)).expect("memory does not fail");
    assert_eq!(dirty(&store), 0);
}

/// DESCENT1: an older version of a node, with a sound checksum.
#[test]
fn a_node_that_belongs_elsewhere_is_damage_and_no_way_leads_round_in_circles() {
    for stale in 0..3 {
        let mut store = Store::new(CachePolicy::Sieve, 0);
        (0..2000u64).for_each(|key| assert_eq!(store.insert(u128::from(key), value(key)), None));
        store.commit();
        let root = block_on(store.map.run(|pages| pages.node(store.tree.root))).expect("sound");
        let varve_format::pdata::node::Entries::Branch(children) = &root.entries else {
            panic!("it has leaves")
        };
        let (first, second) = (children[3].1, children[4].1);
        // Where the first leaf is: the second one, the root, an older root that leads to the first leaf.
        let source = if stale == 0 { second } else { store.tree.root };
        let mut node = (*block_on(store.map.run(|pages| pages.node(source))).expect("sound")).clone();
        node.address = first.block();
        if stale == 2 {
            node.entries = varve_format::pdata::node::Entries::Branch(vec![(0, first)]);
        }
        let mut block = store.arena.take(4096);
        node.encode(&mut block);
        let written =
            store.device.write(first.block().offset(), block.freeze(), varve_block::Durability::Volatile);
        block_on(written).expect("memory");
        store.reopen(CachePolicy::Sieve, 0);
        let key = children[3].0 + 1;
        let found = block_on(store.map.run(|pages| store.tree.get(pages, key)));
        assert!(matches!(found, Err(MapError::Damaged { block, .. }) if block == first.block()), "{found:?}");
        let found = block_on(store.map.run(|pages| store.tree.leaf(pages, key)));
        assert!(matches!(found, Err(MapError::Damaged { block, .. }) if block == first.block()), "{found:?}");
        let mut tree = store.tree;
        let changed = block_on(store.map.run(|pages| {
            tree = store.tree;
            tree.patch(pages, &[key], &[], AllocClass::Normal)
        }));
        assert!(
            matches!(changed, Err(MapError::Damaged { block, .. }) if block == first.block()),
            "{changed:?}"
        );
    }
}

/// DESCENT1: what is refused where it is found is not merged with what is beside it, though it is in memory.
#[test]
fn a_node_that_belongs_elsewhere_is_no_neighbour() {
    for stale in 0..3 {
        let mut store = Store::new(CachePolicy::Sieve, 64 << 20);
        (0..2000u64).for_each(|key| assert_eq!(store.insert(u128::from(key), value(key)), None));
        store.commit();
        let read = |store: &Store, link| {
            (*block_on(store.map.run(|pages| pages.node(link))).expect("sound")).clone()
        };
        let root = read(&store, store.tree.root);
        let varve_format::pdata::node::Entries::Branch(children) = &root.entries else {
            panic!("it has leaves")
        };
        let mut node = match stale {
            0 => varve_format::pdata::node::Node {
                address: children[4].1.block(),
                ..read(&store, children[9].1)
            },
            1 => varve_format::pdata::node::Node { address: children[4].1.block(), ..root.clone() },
            _ => root.clone(),
        };
        if let (2, varve_format::pdata::node::Entries::Branch(twice)) = (stale, &mut node.entries) {
            twice[4].1 = children[9].1;
        }
        let mut block = store.arena.take(4096);
        node.encode(&mut block);
        let written =
            store.device.write(node.address.offset(), block.freeze(), varve_block::Durability::Volatile);
        block_on(written).expect("memory");
        store.reopen(CachePolicy::Sieve, 64 << 20);
        let get = |store: &Store, key| block_on(store.map.run(|pages| store.tree.get(pages, key)));
        assert!(matches!(get(&store, children[4].0), Err(MapError::Damaged { .. })));
        assert!(get(&store, children[9].0).is_ok_and(|found| found.is_some()));
        for key in children[3].0..children[4].0 {
            assert!(store.remove(key).is_some(), "its leaf is sound");
        }
        store.commit();
        for key in (0..children[3].0).chain(children[5].0..2000) {
            assert_eq!(get(&store, key), Ok(Some(value(key as u64))), "case {stale}");
        }
    }
}

#[test]
fn a_leaf_that_is_replaced_by_more_is_cut_where_it_has_grown() {
    for (at, lengths) in [(10, [64, 64]), (126, [126, 2])] {
        let mut store = Store::new(CachePolicy::Sieve, 1 << 20);
        (0..126u64).for_each(|key| assert_eq!(store.insert(u128::from(key) * 10, value(key)), None));
        let edited = block_on(store.map.run(|pages| {
            let mut tree = store.tree;
            let mut entries = tree.span(pages, 0)?.entries().to_vec();
            entries.splice(at..at, [1, 2].map(|more| (at as u128 * 10 - 5 + more, value(more as u64))));
            tree.edit(pages, &Alone, 0, entries, AllocClass::Reserve)?;
            Ok(tree)
        }));
        let tree = edited.expect("there is room");
        let first = block_on(store.map.run(|pages| tree.leaf(pages, 0))).expect("sound");
        let next = first.next.expect("there are two leaves");
        let second = block_on(store.map.run(|pages| tree.leaf(pages, next))).expect("sound");
        assert_eq!([first.entries.len(), second.entries.len()], lengths);
    }
}

/// Of a tree that may be cloned and was not yet.
struct MayBeCloned;

impl Sharing for MayBeCloned {
    fn last_clone(&self) -> u64 {
        0
    }
    fn others(&self, _: &mut Pages, _: Block) -> Result<u64, Stop> {
        Ok(0)
    }
    fn increment(&self, _: Block) {
        unreachable!("EDIT2")
    }
    fn decrement(&self, _: Block) {
        unreachable!("EDIT2")
    }
    fn increment_entry(&self, _: u128, _: &Value) {
        unreachable!("EDIT2")
    }
}

#[test]
fn leaves_that_edits_make_small_are_merged_unless_the_tree_may_be_cloned() {
    const LEAVES: u64 = 10;
    for (sharing, nodes) in [(&Alone as &dyn Sharing, 1), (&MayBeCloned, LEAVES + 1)] {
        let mut store = Store::new(CachePolicy::Sieve, 1 << 20);
        (0..LEAVES * 126).for_each(|key| assert_eq!(store.insert(u128::from(key), value(key)), None));
        assert_eq!(store.map.pages().nodes(), LEAVES + 1);
        let mut from = Some(0);
        while let Some(key) = from {
            let edited = block_on(store.map.run(|pages| {
                let (mut tree, span) = (store.tree, store.tree.span(pages, key)?);
                let kept: Vec<_> =
                    span.entries().iter().copied().filter(|entry| entry.0 % 126 == 0).collect();
                let next = if kept.len() == span.entries().len() { span.end } else { Some(span.first) };
                tree.edit(pages, sharing, key, kept, AllocClass::Reserve)?;
                Ok((tree, next))
            }));
            (store.tree, from) = edited.expect("there is room");
        }
        let keys: Vec<u128> = store.all().into_iter().map(|entry| entry.0).collect();
        assert_eq!(keys, (0..LEAVES).map(|leaf| u128::from(leaf) * 126).collect::<Vec<_>>());
        assert_eq!(store.map.pages().nodes(), nodes, "EDIT4");
    }
}
