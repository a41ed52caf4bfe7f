//! The persistent map under crashes: after any of them it is what some commit that was not yet superseded made it.
//!
//! The owner here is as small as can be: a superblock in two slots that names one root.

use std::cell::RefCell;
use std::collections::BTreeMap;
use varve_block::{Arena, Device, Durability};
use varve_format::pdata::space_page::{pack_places, unpack_places};
use varve_format::pdata::{self, link::Link};
use varve_sim::{CrashAt, Random, SimDisk, World, caught, run_seeds, test_name};
use varve_target::pdata::{Map, MapOptions, Tree};

const BLOCKS: u64 = 2000;
const BLOCK: usize = 4096;

type Content = BTreeMap<u128, [u8; 16]>;

/// How the owner breaks its word, for negative controls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The superblock is written without a flush before it.
    NoFlush,
    /// Both superblocks go to one slot.
    OneSlot,
    /// A commit counts as done before its superblock is written.
    NoSuperblock,
}

struct Owner {
    map: Map,
    tree: Tree,
    generation: u64,
    device: Device,
    arena: Arena,
}

/// One slot: generation, root, free blocks, places (one group) with the number of nodes above them, and their sum to
/// tell a torn one.
fn encode(arena: &Arena, fields: [u64; 4]) -> varve_block::Bytes {
    let mut block = arena.take_zeroed(BLOCK);
    let sum = fields.iter().fold(0x5eed, |sum: u64, field| sum.rotate_left(9) ^ field.wrapping_mul(31));
    // All fields lie in the first sector and the sum in the last one.
    for (slot, field) in block.chunks_exact_mut(8).zip(fields) {
        slot.copy_from_slice(&field.to_le_bytes());
    }
    block[BLOCK - 8..].copy_from_slice(&sum.to_le_bytes());
    block.freeze()
}

fn decode(block: &[u8]) -> Option<[u64; 4]> {
    let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes"));
    let fields = [number(0), number(8), number(16), number(24)];
    let sum = fields.iter().fold(0x5eed, |sum: u64, field| sum.rotate_left(9) ^ field.wrapping_mul(31));
    (sum == number(BLOCK - 8) && fields[0] > 0).then_some(fields)
}

impl Owner {
    async fn open(device: Device, arena: Arena, cache_bytes: u64) -> Owner {
        let mut newest =
            [0, 0, MapOptions::fresh(3, pdata::Block::new(2), pdata::Block::new(BLOCKS)).free_blocks, 0];
        for slot in 0..2 {
            let block = device.read(slot * BLOCK as u64, arena.take(BLOCK)).await.expect("no faults");
            newest = decode(&block).filter(|found| found[0] > newest[0]).unwrap_or(newest);
        }
        let [generation, root, free_blocks, places] = newest;
        let nodes = places >> 8;
        let places = unpack_places(&[places as u8], 1).expect("sound");
        let options = MapOptions {
            generation,
            free_blocks,
            nodes,
            places,
            cache_bytes,
            ..MapOptions::fresh(3, pdata::Block::new(2), pdata::Block::new(BLOCKS))
        };
        let map = Map::open(device.clone(), arena.clone(), &options);
        Owner { map, tree: Tree { root: Link::unpack(root) }, generation, device, arena }
    }

    async fn change(&mut self, random: &mut Random, content: &mut Content, version: u64) {
        let from = u128::from(random.below(600));
        if random.below(3) == 0 {
            let keys: Vec<_> = content.range(from..).map(|entry| *entry.0).take(60).collect();
            for key in keys {
                let mut tree = self.tree;
                let removed = self.map.run(|pages| {
                    tree = self.tree;
                    tree.remove(pages, key)
                });
                assert_eq!(removed.await.expect("sound"), content.remove(&key), "what a model holds");
                self.tree = tree;
            }
            return;
        }
        for key in from..from + u128::from(random.between(1, 80)) {
            let value = u128::from(version).to_le_bytes();
            let mut tree = self.tree;
            let inserted = self.map.run(|pages| {
                tree = self.tree;
                tree.insert(pages, key, value)
            });
            assert_eq!(inserted.await.expect("sound"), content.insert(key, value), "what a model holds");
            self.tree = tree;
        }
    }

    async fn commit(&mut self, fault: Fault) {
        let (commit, tree) = self.map.freeze(|_| Ok(self.tree)).await.expect("sound");
        self.map.write(&commit).await.expect("no faults");
        if fault != Fault::NoFlush {
            self.device.flush().await.expect("no faults");
        }
        let places = u64::from(pack_places(commit.places())[0]) | commit.nodes() << 8;
        let fields = [commit.generation(), tree.root.pack(), commit.free_blocks(), places];
        let slot = if fault == Fault::OneSlot { 0 } else { commit.generation() % 2 };
        self.generation = commit.generation();
        if fault == Fault::NoSuperblock {
            self.map.committed(commit);
            return;
        }
        let data = encode(&self.arena, fields);
        self.device.write(slot * BLOCK as u64, data, Durability::Durable).await.expect("no faults");
        self.map.committed(commit);
    }

    async fn all(&self) -> Content {
        let (mut found, mut from) = (Content::new(), Some(0));
        while let Some(key) = from {
            let leaf = self.map.run(|pages| self.tree.leaf(pages, key)).await.expect("sound after a crash");
            found.extend(leaf.entries);
            from = leaf.next;
        }
        found
    }
}

fn history(seed: u64, fault: Fault) {
    let world = World::new(seed);
    let disk = SimDisk::new(BLOCKS * BLOCK as u64);
    let mut random = world.random();
    let cache_bytes = if random.below(2) == 0 { 0 } else { 1 << 20 };
    // What each commit would make of the map, by generation; the last acknowledged one.
    let states = RefCell::new(BTreeMap::from([(0, Content::new())]));
    let acknowledged = RefCell::new(0);
    for boot in 0..4 {
        let mut owner = world.run(Owner::open(disk.device(&world), world.arena(), cache_bytes));
        let found = world.run(owner.all());
        assert!(owner.generation >= *acknowledged.borrow(), "a commit that was acknowledged is lost");
        let expected = states.borrow().get(&owner.generation).cloned();
        assert_eq!(Some(&found), expected.as_ref(), "the map is what that commit made it");
        *acknowledged.borrow_mut() = owner.generation;
        states.borrow_mut().retain(|generation, _| *generation == owner.generation);

        world.schedule_crash(CrashAt::Event(random.between(1, 60)));
        let mut model = found;
        let ran = world.run_until_crash(async {
            for step in 0..6 {
                for _ in 0..random.between(1, 4) {
                    owner.change(&mut random, &mut model, boot * 100 + step).await;
                }
                states.borrow_mut().insert(owner.generation + 1, model.clone());
                owner.commit(fault).await;
                *acknowledged.borrow_mut() = owner.generation;
            }
        });
        if !ran.crashed() {
            world.disarm();
        }
    }
}

#[test]
fn a_map_is_as_some_commit_left_it() {
    run_seeds(test_name!("a_map_is_as_some_commit_left_it"), 1500, |seed| history(seed, Fault::None));
}

#[test]
fn negative_controls_are_caught() {
    for (fault, name) in [
        (Fault::NoFlush, "no flush before the superblock"),
        (Fault::OneSlot, "one slot for both superblocks"),
        (Fault::NoSuperblock, "a commit acknowledged before its superblock"),
    ] {
        let count = caught(60, |seed| history(seed, fault));
        println!("{name}: caught with {count} of 60 seeds");
        assert!(count > 5, "{name}: only {count} of 60");
    }
}
