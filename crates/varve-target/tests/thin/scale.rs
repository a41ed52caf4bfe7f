//! Pools that hold much more than fits into memory: what opening one reads, and how much of it stays in memory.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::rc::Rc;
use varve_block::{Device, Durability, GIB, KIB};
use varve_sim::{LeaveOutZeros, ModelDisk, Random, World};
use varve_target::thin::{NewVolume, Pool, PoolFormat, PoolOptions, Uuid};

const PART: u64 = 4 * KIB;
const CACHE_BYTES: u64 = 256 * KIB;

/// A pool on a disk in memory, and one volume.
struct Large {
    world: World,
    disk: ModelDisk,
    id: u64,
}

impl Large {
    /// With so many mappings, no two of them neighbours, all in a checkpoint.
    fn with(mappings: u64) -> Large {
        let world = World::steady(1);
        let disk = ModelDisk::new(2 * GIB);
        let (below, arena) = (disk.device(&world), world.arena());
        let format = PoolFormat::new(Uuid::from_u128(1 << 64));
        world.run(Pool::format(&below, &arena, format)).expect("large enough");
        let mut large = Large { world, disk, id: 0 };
        let pool = large.open();
        large.id = large.world.run(async {
            let new = NewVolume { name: "large".into(), bytes: GIB, origin: None };
            let id = pool.create(&new).await.expect("there is space");
            let device = pool.volume(id).expect("just created");
            let data = arena.copy(&[1; 4096]);
            for part in 0..mappings {
                let written = device.write(part * 2 * PART, data.clone(), Durability::Volatile).await;
                written.expect("there is space");
            }
            pool.checkpoint().await.expect("no faults");
            id
        });
        large
    }

    fn open(&self) -> Rc<Pool> {
        let options = PoolOptions { cache_bytes: CACHE_BYTES, ..PoolOptions::default() };
        let (arena, clock) = (self.world.arena(), self.world.clock());
        let opened = Pool::open(self.disk.device(&self.world), arena, clock, options);
        self.world.run(opened).expect("it is a pool")
    }

    fn read(&self, device: &Device, mapping: u64) {
        let buffer = self.world.arena().take(4096);
        let read = self.world.run(device.read(mapping * 2 * PART, buffer)).expect("no faults");
        assert!(read.iter().all(|byte| *byte == 1), "mapping {mapping}");
    }
}

#[test]
fn a_pool_is_opened_by_as_few_reads_whatever_it_holds() {
    let reads = |mappings: u64| {
        let large = Large::with(mappings);
        let before = large.disk.counters().reads;
        let pool = large.open();
        let opened = large.disk.counters().reads - before;
        large.read(&pool.volume(large.id).expect("it is there"), mappings - 1);
        (opened, large.disk.counters().reads - before - opened)
    };
    let (few, first) = reads(100);
    let (many, first_of_many) = reads(60_000);
    assert!(many <= few + 1, "{many}, not {few}: nothing of the maps is read before somebody asks");
    // A leaf, and above it a branch or two; and the data.
    assert!(first_of_many <= first + 2, "{first_of_many} reads for the first block, {first} in a small pool");
}

#[test]
fn the_maps_in_memory_stay_within_their_budget_however_many_are_read_changed_and_removed() {
    let mappings = 60_000;
    let large = Large::with(mappings);
    let (pool, budget) = (large.open(), CACHE_BYTES / PART);
    let device = pool.volume(large.id).expect("it is there");
    let mut random = Random::new(3);
    let within = |what: &str, allowed: u64| {
        let nodes = pool.cache_use().nodes;
        assert!(nodes <= allowed, "{what}: {nodes} nodes, {allowed} allowed");
    };
    for _ in 0..2000 {
        large.read(&device, random.below(mappings));
        within("reading", budget + 1);
    }
    assert!(pool.cache_use().loads > 4 * budget, "most of what was read was not there");
    let data = large.world.arena().copy(&[1; 4096]);
    for _ in 0..4000 {
        let part = random.below(mappings) * 2 + 1;
        let written = large.world.run(device.write(part * PART, data.clone(), Durability::Volatile));
        written.expect("there is space");
        if random.chance(1, 100) {
            large.world.run(pool.commit()).expect("no faults");
            // What is not written yet cannot be evicted: half of the budget, and what came since the last commit.
            within("writing", 2 * budget + 400);
        }
    }
    drop(device);
    large.world.run(async {
        pool.remove(large.id).await.expect("it is there");
        while pool.remove_some(16).await.expect("no faults").volumes > 0 {
            within("removing", 2 * budget);
        }
        pool.checkpoint().await.expect("no faults");
        let report = pool.check().await.expect("no faults");
        assert_eq!((report.data_blocks, report.errors), (0, Vec::<String>::new()));
    });
}

#[test]
fn who_changes_the_maps_faster_than_they_are_written_waits_for_that() {
    let (mappings, in_flight) = (60_000, 32);
    let large = Large::with(mappings);
    let (world, budget) = (&large.world, CACHE_BYTES / PART);
    let below = Device::new(LeaveOutZeros(large.disk.device(world)));
    let options = PoolOptions { cache_bytes: CACHE_BYTES, ..PoolOptions::default() };
    let opened = Pool::open(below, world.arena(), world.clock(), options);
    let pool = world.run(opened).expect("it is a pool");
    let device = pool.volume(large.id).expect("it is there");
    let (mut random, mut most) = (Random::new(5), 0);
    let zeros = world.arena().copy(&[0; 4096]);
    world.run(async {
        let mut flying = FuturesUnordered::new();
        for _ in 0..6000 {
            if flying.len() == in_flight {
                let written: Option<Result<_, _>> = flying.next().await;
                written.expect("some are in flight").expect("there is space");
                most = most.max(pool.cache_use().dirty);
            }
            let part = random.below(mappings) * 2 + 1;
            flying.push(device.write(part * PART, zeros.clone(), Durability::Volatile));
        }
        while let Some(written) = flying.next().await {
            written.expect("there is space");
        }
    });
    // Each of those in flight when the budget was reached may have changed a leaf and what is above it.
    let allowed = budget + 3 * in_flight as u64;
    assert!(most <= allowed, "{most} nodes were dirty, {budget} may stay in memory");
}
