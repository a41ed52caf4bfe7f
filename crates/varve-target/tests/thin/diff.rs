//! What it costs to compare two volumes of a pool: in proportion to what differs, whichever they are.

use std::rc::Rc;
use varve_block::{Device, Durability, Extent, KIB, MIB};
use varve_sim::{SimDisk, World};
use varve_target::thin::{NewVolume, Pool, PoolFormat, PoolOptions, Uuid};

const PART: u64 = 4 * KIB;
const SIZE: u64 = 512 * MIB;
/// Parts with a run of their own in each of the volumes that are filled.
const RUNS: u64 = 16_000;

struct Bed {
    world: World,
    disk: SimDisk,
}

impl Bed {
    async fn open(&self) -> Rc<Pool> {
        let (device, arena, clock) = (self.disk.device(&self.world), self.world.arena(), self.world.clock());
        Pool::open(device, arena, clock, PoolOptions::default()).await.expect("sound")
    }

    async fn write(&self, device: &Device, part: u64) {
        let data = self.world.arena().copy(&[7; PART as usize]);
        device.write(part * PART, data, Durability::Volatile).await.expect("there is space");
    }

    async fn volume(&self, pool: &Rc<Pool>, name: &str) -> (u64, Device) {
        let new = NewVolume { name: name.into(), bytes: 3 * RUNS * PART, origin: None };
        let id = pool.create(&new).await.expect("space");
        (id, pool.volume(id).expect("just created"))
    }

    /// Reads that a comparison takes, with nothing in memory but what opening the pool needs; and what it says.
    fn compare(&self, one: &str, two: &str) -> (u64, Vec<Extent>) {
        self.world.run(async {
            let pool = self.open().await;
            let id =
                |name: &str| pool.list().iter().find(|volume| volume.name == name).expect("it is there").id;
            let before = self.disk.counters();
            let found = pool.diff(id(one), id(two)).await.expect("no faults");
            (self.disk.counters().since(&before).reads, found)
        })
    }
}

#[test]
fn a_comparison_reads_what_differs_and_no_more() {
    let bed = Bed { world: World::new(1), disk: SimDisk::new(SIZE) };
    let nodes = bed.world.run(async {
        let (device, arena) = (bed.disk.device(&bed.world), bed.world.arena());
        Pool::format(&device, &arena, PoolFormat::new(Uuid::from_u128(7 << 64))).await.expect("large enough");
        let pool = bed.open().await;
        let (id, device) = bed.volume(&pool, "a").await;
        let (_, other) = bed.volume(&pool, "b").await;
        for run in 0..RUNS {
            bed.write(&device, run * 2).await;
            bed.write(&other, run * 2).await;
        }
        // A volume that came from a snapshot of a snapshot, and was written in four places.
        let first = pool.snapshot(id, "first", true).await.expect("space");
        let second = pool.snapshot(first, "second", false).await.expect("space");
        let c = pool.snapshot(second, "c", false).await.expect("space");
        let device = pool.volume(c).expect("just created");
        for place in 0..4 {
            bed.write(&device, place * RUNS / 2 + 1).await;
        }
        pool.checkpoint().await.expect("no faults");
        pool.check().await.expect("no faults").nodes
    });
    assert!(nodes > 250, "{nodes} nodes of two full trees");
    let (reads, found) = bed.compare("a", "c");
    let expected = |place: u64| Extent::new((place * RUNS / 2 + 1) * PART, PART);
    assert_eq!(found, (0..4).map(expected).collect::<Vec<_>>());
    assert!(
        reads <= 2 * (4 * 2 + 1),
        "{reads} reads for four paths of two nodes below a root, on both sides"
    );
    let (reads, found) = bed.compare("second", "a");
    assert_eq!(found, [], "they hold the same");
    assert!(reads <= 2, "{reads} reads");
    // Comparing volumes that have nothing in common costs all of both.
    let (reads, found) = bed.compare("a", "b");
    assert_eq!(found.len() as u64, RUNS, "they were written apart");
    assert!(reads >= 250, "{reads} reads");
}
