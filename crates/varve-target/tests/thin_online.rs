//! The last commit of a pool, checked while the pool goes on: beside writes, snapshots, removals and checkpoints.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Clock, Device, Durability, Extent, KIB, LocalFuture, MIB};
use varve_format::pdata::node::{Entries, Node};
use varve_sim::{SimDisk, World};
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
        let (device, arena, clock) = (self.disk.device(&self.world), self.world.arena(), self.world.clock());
        Pool::format(&device, &arena, PoolFormat::new(Uuid::from_u128(7 << 64))).await.expect("large enough");
        let pool = Pool::open(device, arena, clock, PoolOptions::default()).await.expect("sound");
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

/// Checks in doses of one node, with a rest after each.
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
                    names.push(pool.snapshot(id, &format!("{id}@s{rounds}"), false).await.expect("space"));
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
        let leaf = |block: &u64| {
            let node = Node::decode(&bed.disk.peek(Extent::new(block * PART, PART)), *block);
            let runs = |node: &Node| match &node.entries {
                Entries::Leaf(rows) => rows.len() > 60 && rows[0].0 < 1 << 32,
                Entries::Branch(_) => false,
            };
            node.is_ok_and(|node| runs(&node))
        };
        let leaves: Vec<u64> = (0..SIZE / PART).filter(leaf).collect();
        assert!(leaves.len() >= 5, "{leaves:?}");
        for block in leaves {
            let mut sector = bed.disk.peek(Extent::new(block * PART, 512));
            sector[200..203].copy_from_slice(b"rot");
            bed.disk.poke(block * PART, &sector);
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
