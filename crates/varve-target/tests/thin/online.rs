//! The last commit of a pool, checked while the pool goes on: beside writes, snapshots, removals and checkpoints.

use crate::common::newest_superblock;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Clock, Device, Durability, Extent, GIB, KIB, LocalFuture, MIB};
use varve_format::pdata::Block;
use varve_format::pdata::node::{Entries, Node};
use varve_format::pdata::space_page::{Place, SpacePage};
use varve_sim::{ModelDisk, SimDisk, World};
use varve_target::thin::{NewVolume, Pool, PoolError, PoolFormat, PoolOptions, PoolReport, Uuid};

const PART: u64 = 4 * KIB;
const SIZE: u64 = 64 * MIB;

struct Bed {
    world: World,
    disk: SimDisk,
}

impl Bed {
    fn new(seed: u64) -> Bed {
        Bed { world: World::new(seed), disk: SimDisk::new(SIZE) }
    }

    async fn pool(&self) -> (Rc<Pool>, u64, Device) {
        self.pool_with(PoolOptions::default()).await
    }

    async fn pool_with(&self, options: PoolOptions) -> (Rc<Pool>, u64, Device) {
        let (device, arena, clock) = (self.disk.device(&self.world), self.world.arena(), self.world.clock());
        Pool::format(&device, &arena, PoolFormat::new(Uuid::from_u128(7 << 64))).await.expect("large enough");
        let pool = Pool::open(device, arena, clock, options).await.expect("sound");
        let new = NewVolume { name: "one".into(), bytes: 16 * MIB, origin: None };
        let id = pool.create(&new).await.expect("space");
        let device = pool.volume(id).expect("just created");
        for part in 0..1300 {
            self.write(&device, part * 3, 1).await;
        }
        (pool, id, device)
    }

    async fn write(&self, device: &Device, part: u64, byte: u8) {
        let data = self.world.arena().copy(&[byte; PART as usize]);
        device.write(part * PART, data, Durability::Volatile).await.expect("there is space");
    }
}

/// Checks in batches of one node, with a rest after each.
async fn check(pool: &Pool, clock: &Clock, looked_at: &Cell<u64>) -> Result<PoolReport, PoolError> {
    check_with(pool, clock, looked_at, Duration::from_millis(4)).await
}

async fn check_with(
    pool: &Pool,
    clock: &Clock,
    looked_at: &Cell<u64>,
    rest: Duration,
) -> Result<PoolReport, PoolError> {
    let pace = |done: u64, total: u64| -> LocalFuture<'_, Result<(), PoolError>> {
        assert!(done <= total);
        looked_at.set(done);
        Box::pin(async move {
            clock.sleep(rest).await;
            Ok(())
        })
    };
    pool.check_last_commit(&pace).await
}

#[test]
fn the_last_commit_stays_in_place_while_it_is_checked() {
    for seed in 0..10 {
        let bed = Bed::new(seed);
        bed.world.run(async {
            let (pool, id, device) = bed.pool().await;
            let (clock, looked_at, is_over) = (bed.world.clock(), Cell::new(0), Cell::new(false));
            let mut random = bed.world.random();
            let others = async {
                let (mut rounds, mut names) = (0_u64, Vec::new());
                while !is_over.get() {
                    rounds += 1;
                    for _ in 0..20 {
                        bed.write(&device, random.below(2000), 2).await;
                    }
                    device.discard(Extent::new(random.below(200) * 64 * KIB, 32 * KIB)).await.expect("space");
                    names.push(pool.snapshot(id, &format!("s{rounds}"), false).await.expect("space"));
                    if names.len() > 3 {
                        pool.remove(names.remove(0)).await.expect("it is there");
                    }
                    pool.remove_some(20).await.expect("no faults");
                    pool.checkpoint().await.expect("no faults");
                    clock.sleep(Duration::from_millis(3)).await;
                }
                rounds
            };
            let checking = async {
                let report = check(&pool, &clock, &looked_at).await;
                is_over.set(true);
                report
            };
            let (report, rounds) = futures_util::join!(checking, others);
            let report = report.expect("there is room");
            assert!(report.is_sound(), "seed {seed}: {report:#?}");
            assert!(rounds > 3 && looked_at.get() > 20, "{rounds} rounds beside {} nodes", looked_at.get());
            while pool.remove_some(100).await.expect("no faults").volumes > 0 {}
            let report = pool.check().await.expect("no faults");
            assert!(report.is_sound(), "and nothing is lost by it: {report:#?}");
        });
    }
}

#[test]
fn damage_on_the_disk_is_found_though_the_node_is_in_memory() {
    let bed = Bed::new(1);
    bed.world.run(async {
        let (pool, _, _) = bed.pool().await;
        pool.checkpoint().await.expect("no faults");
        let (clock, looked_at) = (bed.world.clock(), Cell::new(0));
        assert!(check(&pool, &clock, &looked_at).await.expect("no faults").is_sound());
        let leaf = |block: &Block| {
            let node = Node::decode(&bed.disk.peek(block.extent()), *block);
            let runs = |node: &Node| match &node.entries {
                Entries::Leaf(rows) => rows.len() > 60 && rows[0].0 < 1 << 32,
                Entries::Branch(_) => false,
            };
            node.is_ok_and(|node| runs(&node))
        };
        let leaves: Vec<Block> = (0..SIZE / PART).map(Block::new).filter(leaf).collect();
        assert!(leaves.len() >= 5, "{leaves:?}");
        for block in leaves {
            let mut sector = bed.disk.peek(Extent::new(block.offset(), 512));
            sector[200..203].copy_from_slice(b"rot");
            bed.disk.poke(block.offset(), &sector);
        }
        let report = check(&pool, &clock, &looked_at).await.expect("no faults");
        assert_eq!(report.damage.len(), 1, "{report:#?}");
        assert_eq!(report.damage[0].name, "one");
        assert!(report.errors.len() >= 5, "{report:#?}");
        assert!(pool.check().await.expect("no faults").is_sound(), "in memory everything is whole");
    });
}

#[test]
fn a_check_gives_way_when_the_room_that_it_keeps_is_needed() {
    let bed = Bed::new(2);
    bed.world.run(async {
        let (pool, _, device) = bed.pool().await;
        for part in (0..16 * MIB / PART).step_by(16) {
            let data = bed.world.arena().copy(&[3; 64 << 10]);
            device.write(part * PART, data, Durability::Volatile).await.expect("there is space");
        }
        let new = NewVolume { name: "two".into(), bytes: 64 * MIB, origin: None };
        let id = pool.create(&new).await.expect("space");
        let other = pool.volume(id).expect("just created");
        let (clock, looked_at) = (bed.world.clock(), Cell::new(0));
        let others = async {
            clock.sleep(Duration::from_millis(2)).await;
            device.discard(Extent::new(0, 16 * MIB)).await.expect("no faults");
            pool.checkpoint().await.expect("no faults");
            let mut written = 0;
            for part in (0..40 * MIB / PART).step_by(16) {
                let data = bed.world.arena().copy(&[3; 64 << 10]);
                match other.write(part * PART, data, Durability::Volatile).await {
                    Ok(_) => written += 64 * KIB,
                    Err(error) => panic!("{error} after {written} bytes"),
                }
                clock.sleep(Duration::from_millis(1)).await;
            }
            pool.checkpoint().await.expect("no faults");
        };
        let (report, ()) =
            futures_util::join!(check_with(&pool, &clock, &looked_at, Duration::from_millis(200)), others);
        assert_eq!(report, Err(PoolError::NoSpace));
        assert!(pool.check().await.expect("no faults").is_sound());
    });
}

#[test]
fn a_large_pool_with_few_nodes_is_compared_in_batches_too() {
    let (world, disk) = (World::steady(1), ModelDisk::new(4 * GIB));
    world.run(async {
        let (device, arena) = (disk.device(&world), world.arena());
        Pool::format(&device, &arena, PoolFormat::new(Uuid::from_u128(7 << 64))).await.expect("large enough");
        let pool = Pool::open(device, arena, world.clock(), PoolOptions::default()).await.expect("sound");
        pool.create(&NewVolume { name: "one".into(), bytes: MIB, origin: None }).await.expect("space");
        let (clock, looked_at) = (world.clock(), Cell::new(0));
        let report = check(&pool, &clock, &looked_at).await.expect("no faults");
        assert!(report.is_sound() && report.nodes < 5, "{report:#?}");
        let groups = 4 * GIB / (126 * MIB);
        assert!(looked_at.get() >= groups, "{} rests for {groups} groups of blocks", looked_at.get());
    });
}

#[test]
fn a_damaged_map_of_volumes_is_told_like_any_other_damage() {
    let bed = Bed::new(3);
    bed.world.run(async {
        let (pool, _, device) = bed.pool_with(PoolOptions { cache_bytes: 0, ..PoolOptions::default() }).await;
        pool.checkpoint().await.expect("no faults");
        let newest = newest_superblock(&bed.disk);
        // What is read now pushes it out of memory.
        let content = device.read(0, bed.world.arena().take(16 << 20)).await.expect("no faults");
        assert_eq!(content[0], 1);
        let mut sector = bed.disk.peek(Extent::new(newest.volumes.block().offset(), 512));
        sector[200..203].copy_from_slice(b"rot");
        bed.disk.poke(newest.volumes.block().offset(), &sector);
        let (clock, looked_at) = (bed.world.clock(), Cell::new(0));
        let report = check(&pool, &clock, &looked_at).await.expect("it is no end of the check");
        assert!(report.errors[0].contains("volumes are lost"), "{report:#?}");
    });
}

#[test]
fn a_write_does_not_fail_for_the_room_that_a_check_keeps() {
    let bed = Bed::new(4);
    bed.world.run(async {
        let (pool, _, device) = bed.pool().await;
        let new = NewVolume { name: "two".into(), bytes: 64 * MIB, origin: None };
        let other = pool.volume(pool.create(&new).await.expect("space")).expect("just created");
        let write = async |part: u64| {
            let data = bed.world.arena().copy(&[3; 64 << 10]);
            other.write(part * PART, data, Durability::Volatile).await
        };
        for part in (0..12 * MIB / PART).step_by(16) {
            write(part).await.expect("there is space");
        }
        let (clock, looked_at) = (bed.world.clock(), Cell::new(0));
        let others = async {
            while looked_at.get() == 0 {
                clock.sleep(Duration::from_millis(1)).await;
            }
            // The check rests for a minute; what it keeps then is all that the last of these writes could take.
            other.discard(Extent::new(0, 12 * MIB)).await.expect("no faults");
            let (begun, mut part) = (clock.now(), 16 * MIB / PART);
            while pool.usage().free >= 64 * KIB {
                write(part).await.expect("there is space");
                part += 16;
            }
            assert!(clock.now().since(begun) < Duration::from_secs(30), "nobody was in the way so far");
            for _ in 0..20 {
                write(part).await.expect("POOLFULL3: there is space as soon as the check gives way");
                part += 16;
            }
            drop(device);
        };
        let rest = Duration::from_secs(60);
        let (report, ()) = futures_util::join!(check_with(&pool, &clock, &looked_at, rest), others);
        assert_eq!(report, Err(PoolError::NoSpace));
        assert!(pool.check().await.expect("no faults").is_sound());
    });
}

#[test]
fn a_block_that_nobody_holds_is_found_where_no_later_commit_has_written() {
    let bed = Bed::new(5);
    bed.world.run(async {
        let (pool, _, device) = bed.pool().await;
        for _ in 0..3 {
            pool.checkpoint().await.expect("no faults");
        }
        let newest = newest_superblock(&bed.disk);
        let address = newest.base_block() + u64::from(newest.places[0] == Place::Second);
        let mut page = SpacePage::decode(&bed.disk.peek(address.extent()), address).expect("sound");
        let last = Block::at(SIZE) - newest.base_block() - 1;
        assert!(!page.is_used(last));
        page.set(last, true);
        let mut bytes = vec![0; PART as usize];
        page.encode(&mut bytes, address);
        bed.disk.poke(address.offset(), &bytes);
        let (clock, looked_at) = (bed.world.clock(), Cell::new(0));
        let report = check(&pool, &clock, &looked_at).await.expect("no faults");
        assert!(
            report.errors.iter().any(|error| error.contains("held by nobody")),
            "CHECKPAGE1: {report:#?}"
        );
        assert!(report.errors.iter().any(|error| error.contains("blocks are free, not")), "{report:#?}");
        // Two more commits of this group, and what lay in memory is on the disk.
        for byte in 0..2 {
            bed.write(&device, 2999, byte).await;
            bed.write(&device, 3333 + u64::from(byte) * 2, byte).await;
            pool.checkpoint().await.expect("no faults");
        }
        let report = check(&pool, &clock, &looked_at).await.expect("no faults");
        assert!(report.is_sound(), "CHECKPAGE1: {report:#?}");
    });
}
