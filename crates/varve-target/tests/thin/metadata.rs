//! What the metadata of a pool takes: memory under a budget while it is written, read and trimmed.

use std::io::Write;
use std::rc::Rc;
use varve_block::{Device, Durability, Extent, KIB, MIB, ZeroOptions};
use varve_sim::{ModelDisk, World};
use varve_target::pdata::{CachePolicy, MetadataOrder};
use varve_target::thin::{NewVolume, Pool, PoolFormat, PoolOptions, Uuid};

const POOL_SIZE: u64 = 400 * MIB;
const PART: u64 = 4 * KIB;
const CHANGES: u64 = 6000;
/// Blocks in memory.
const BUDGET: u64 = 64;
/// Another, smaller budget.
const SMALL: u64 = 16;
/// What the requests under way may add.
const SLACK: u64 = 16;

async fn pool(world: &World, disk: &ModelDisk, options: PoolOptions) -> Rc<Pool> {
    let (device, arena) = (disk.device(world), world.arena());
    let format = PoolFormat { block_size: PART, ..PoolFormat::new(Uuid::from_u128(1 << 64)) };
    Pool::format(&device, &arena, format).await.expect("large enough");
    Pool::open(device, arena, world.clock(), options).await.expect("just formatted")
}

async fn volume(pool: &Rc<Pool>) -> Device {
    let new = NewVolume { name: "v".into(), bytes: 4 * CHANGES * PART, origin: None };
    let id = pool.create(&new).await.expect("there is space");
    pool.volume(id).expect("just created")
}

/// Every other part, in an order that jumps about: no two entries become one.
fn places() -> impl Iterator<Item = u64> {
    (0..CHANGES).map(|change| change * 7919 % CHANGES * 2 * PART)
}

#[test]
fn memory_stays_within_its_budget_whatever_is_done() {
    for policy in CachePolicy::ALL {
        let (world, disk) = (World::steady(1), ModelDisk::new(POOL_SIZE));
        world.run(async {
            let options = PoolOptions { cache_bytes: BUDGET * PART, policy, ..PoolOptions::default() };
            let pool = pool(&world, &disk, options).await;
            let (device, arena) = (volume(&pool).await, world.arena());
            let mut most = 0;
            let mut look = || {
                let usage = pool.cache_use();
                most = most.max(usage.nodes + usage.pages);
            };
            for place in places() {
                let data = arena.copy(&[(place / PART % 200) as u8 + 1; PART as usize]);
                device.write(place, data, Durability::Volatile).await.expect("there is space");
                look();
            }
            for place in places() {
                let found = device.read(place, arena.take(PART as usize)).await.expect("readable");
                assert!(found.iter().all(|byte| *byte == (place / PART % 200) as u8 + 1), "at {place}");
                look();
            }
            for place in places().step_by(3) {
                device.zero(Extent::new(place, PART), ZeroOptions::default()).await.expect("there is space");
                look();
            }
            let usage = pool.cache_use();
            let _ =
                writeln!(std::io::stderr(), "{}: at most {most} blocks in memory, {usage:?}", policy.word());
            assert!(most <= BUDGET + SLACK, "{}: {most} nodes and pages in memory", policy.word());
            assert!(usage.evictions > CHANGES / 10, "nodes were evicted: {usage:?}");
            let report = pool.check().await.expect("readable");
            assert!(report.errors.is_empty(), "{:#?}", report.errors);
        });
    }
}

#[test]
fn another_budget_counts_at_once_and_write_through_leaves_nothing_to_replay() {
    let (world, disk) = (World::steady(1), ModelDisk::new(POOL_SIZE));
    world.run(async {
        let pool = pool(&world, &disk, PoolOptions::default()).await;
        let (device, arena) = (volume(&pool).await, world.arena());
        for place in places() {
            device.write(place, arena.copy(&[7; PART as usize]), Durability::Volatile).await.expect("space");
        }
        assert!(pool.cache_use().nodes > 2 * (SMALL + SLACK), "{:?}", pool.cache_use());
        pool.set_cache(SMALL * PART, CachePolicy::Lru);
        // What is not written yet goes with the next commit, which every write is ready to make.
        device.write(0, arena.copy(&[8; PART as usize]), Durability::Durable).await.expect("space");
        let usage = pool.cache_use();
        assert!(usage.nodes + usage.pages <= SMALL + SLACK, "{usage:?}");
        let cost = async |order, at: u64| {
            pool.set_metadata_order(order);
            pool.checkpoint().await.expect("there is space");
            let before = disk.counters();
            for part in 0..20 {
                let place = (at + 2 * part) * PART;
                device
                    .write(place, arena.copy(&[9; PART as usize]), Durability::Durable)
                    .await
                    .expect("space");
            }
            disk.counters().since(&before).bytes_written
        };
        let logged = cost(MetadataOrder::Logged, 2 * CHANGES).await;
        let through = cost(MetadataOrder::WriteThrough, 3 * CHANGES).await;
        assert!(through > 2 * logged, "{through} and {logged} bytes");
        let before = disk.counters();
        device.flush().await.expect("no faults");
        assert_eq!(disk.counters().since(&before).bytes_written, 0, "a flush of nothing writes nothing");
    });
}
