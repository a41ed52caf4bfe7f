//! What thin volumes cost on the model disk, in virtual time: exact, and the same on every machine.

use std::io::Write;
use std::rc::Rc;
use varve_block::{Device, KIB, MIB};
use varve_sim::{Amplification, CostMeter, Load, Measured, ModelDisk, World, measure};
use varve_target::Linear;
use varve_target::thin::{NewVolume, Pool, PoolFormat, PoolOptions, Uuid};

const VOLUME_SIZE: u64 = 256 * MIB;
const POOL_SIZE: u64 = 1024 * MIB;
const BLOCK: u64 = 64 * KIB;

/// A device on the model disk: a linear volume, or a thin one in some state.
struct Bench {
    world: World,
    disk: ModelDisk,
    device: Device,
    pool: Option<(Rc<Pool>, u64)>,
}

impl Bench {
    fn linear() -> Bench {
        let world = World::steady(1);
        let disk = ModelDisk::new(POOL_SIZE);
        let device = Device::new(Linear::new(vec![(VOLUME_SIZE, disk.device(&world), 0)]));
        Bench { world, disk, device, pool: None }
    }

    fn thin() -> Bench {
        Bench::with_log(None)
    }

    /// A thin volume in a pool with a log of so many bytes.
    fn with_log(log_bytes: Option<u64>) -> Bench {
        let world = World::steady(1);
        let disk = ModelDisk::new(POOL_SIZE);
        let (below, arena, clock) = (disk.device(&world), world.arena(), world.clock());
        let (pool, id) = world.run(async {
            let format = PoolFormat { log_bytes, ..PoolFormat::new(Uuid::from_u128(1 << 64)) };
            Pool::format(&below, &arena, format).await.expect("large enough");
            let opened = Pool::open(below, arena, clock, PoolOptions::default()).await;
            let pool = opened.expect("just formatted");
            let new = NewVolume { name: "thin".into(), bytes: VOLUME_SIZE, origin: None };
            let id = pool.create(&new).await.expect("there is space");
            (pool, id)
        });
        let device = pool.volume(id).expect("just created");
        Bench { world, disk, device, pool: Some((pool, id)) }
    }

    /// A snapshot of a snapshot of a snapshot, so deep, of a volume that was written in sequence.
    fn nested(depth: u64) -> Bench {
        let mut bench = Bench::filled(0);
        let (pool, mut id) = bench.pool.clone().expect("thin");
        for number in 0..depth {
            let made = bench.world.run(pool.snapshot(id, &format!("n{number}"), false));
            id = made.expect("there is space");
            let device = pool.volume(id).expect("just created");
            let data = bench.world.arena().copy(&[1; 4096]);
            let offset = number * 61 % 4096 * BLOCK;
            let written = bench
                .world
                .run(async { device.write(offset, data, varve_block::Durability::Volatile).await });
            written.expect("there is space");
        }
        bench.device = pool.volume(id).expect("just created");
        bench.pool = Some((pool, id));
        bench
    }

    fn run(&self, load: &Load) -> (Measured, Amplification) {
        let mut random = varve_sim::Random::new(7);
        let meter = CostMeter::start(&self.disk);
        let (clock, arena) = (self.world.clock(), self.world.arena());
        let measured = self.world.run(measure(&self.device, &clock, &arena, load, &mut random));
        let measured = measured.expect("no faults");
        (measured, meter.cost(&self.disk, &measured))
    }

    /// Writes everything in sequence, then takes so many snapshots, one after the other.
    fn filled(snapshots: u64) -> Bench {
        let bench = Bench::thin();
        bench.run(&Load::sequential_1m(u64::MAX));
        let (pool, id) = bench.pool.as_ref().expect("thin");
        for number in 0..snapshots {
            let made = bench.world.run(pool.snapshot(*id, &format!("s{number}"), true));
            made.expect("there is space");
        }
        bench.world.run(pool.checkpoint()).expect("no faults");
        bench
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn compare(name: &str, bench: &Bench, load: &Load, least: f64) {
    let (thick, _) = Bench::linear().run(load);
    let (thin, cost) = bench.run(load);
    let ratio = thin.ratio_to(&thick);
    say(&format!(
        "{name}: {ratio:.4} of linear; each request: {:.3} requests, {:.3} pieces, {:.3} flushes; each byte: {:.3} \
         read, {:.3} written",
        cost.requests, cost.pieces, cost.flushes, cost.bytes_read, cost.bytes_written
    ));
    assert!(ratio >= least, "{name}: {ratio} of linear, at least {least}");
    assert!(cost.bytes_read < 0.01 || name.contains("read"), "{name}: nothing is read to write");
}

/// One at a time, each with a flush.
fn synced(count: u64) -> Load {
    Load { depth: 1, ..Load::random_4k(BLOCK, count).flushing() }
}

#[test]
fn first_writes() {
    compare("first write, sequential 1 MiB", &Bench::thin(), &Load::sequential_1m(192), 0.98);
    compare("first write, random 4 KiB q8", &Bench::thin(), &Load::random_4k(BLOCK, 2048), 0.95);
    compare("first write, random 64 KiB q8", &Bench::thin(), &Load::random_64k(BLOCK, 2048), 0.95);
    compare("first write, 4 KiB each with a flush", &Bench::thin(), &synced(2048), 0.60);
    let many = Load::random_4k(BLOCK, 2048).flushing();
    compare("first write, 4 KiB each with a flush q8", &Bench::thin(), &many, 0.60);
}

#[test]
fn overwrites_and_reads() {
    let bench = Bench::filled(0);
    compare("overwrite, sequential 1 MiB", &bench, &Load::sequential_1m(192), 0.98);
    compare("overwrite, random 4 KiB q8", &bench, &Load::random_4k(BLOCK, 2048), 0.98);
    compare("overwrite, 4 KiB each with a flush", &bench, &synced(512), 0.98);
    compare("read, sequential 1 MiB", &bench, &Load::sequential_1m(192).reading(), 0.98);
    compare("read, random 4 KiB q8", &bench, &Load::random_4k(BLOCK, 2048).reading(), 0.98);
}

#[test]
fn after_snapshots() {
    for snapshots in [1, 32] {
        let name = |load: &str| format!("after {snapshots} snapshots, {load}");
        let random = Load::random_4k(BLOCK, 2048);
        compare(&name("sequential 1 MiB"), &Bench::filled(snapshots), &Load::sequential_1m(192), 0.98);
        compare(&name("random 4 KiB q8"), &Bench::filled(snapshots), &random, 0.95);
        compare(&name("random 64 KiB q8"), &Bench::filled(snapshots), &Load::random_64k(BLOCK, 2048), 0.95);
        compare(&name("4 KiB each with a flush"), &Bench::filled(snapshots), &synced(2048), 0.60);
        compare(&name("read, random 4 KiB q8"), &Bench::filled(snapshots), &random.reading(), 0.98);
    }
}

#[test]
fn a_snapshot_costs_the_same_with_many_as_with_none() {
    let cost = |snapshots| {
        let bench = Bench::filled(snapshots);
        let before = bench.disk.counters();
        let (pool, id) = bench.pool.as_ref().expect("thin");
        bench.world.run(pool.snapshot(*id, "one.more", false)).expect("there is space");
        bench.disk.counters().since(&before)
    };
    let (few, many) = (cost(1), cost(200));
    say(&format!("one more snapshot: {} requests, {} bytes written", many.requests(), many.bytes_written));
    assert_eq!(few, many);
    assert!(many.requests() == 2 && many.bytes_written == 4096, "a flush and a record");
}

#[test]
fn sequential_data_leaves_little_metadata_behind() {
    let bench = Bench::thin();
    bench.run(&Load::sequential_1m(192));
    let (pool, _) = bench.pool.as_ref().expect("thin");
    let report = bench.world.run(pool.check()).expect("no faults");
    let bytes = report.runs * 32;
    let blocks = 192 * MIB / BLOCK;
    say(&format!(
        "sequential 1 MiB: {} runs, {:.3} bytes for each 64 KiB",
        report.runs,
        bytes as f64 / blocks as f64
    ));
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert!(bytes <= 10 * blocks, "{bytes} bytes for {blocks} blocks");
}

#[test]
fn checkpoints_are_paid_for_in_the_long_run() {
    // A log so short that a checkpoint comes every 512 commits, at random places of the whole map.
    let bench = Bench::with_log(Some(4 * MIB));
    compare("first write, 4 KiB each with a flush, log of 4 MiB", &bench, &synced(4096), 0.60);
    compare("overwrite, 4 KiB each with a flush, log of 4 MiB", &bench, &synced(512), 0.98);
}

#[test]
fn depth_costs_nothing() {
    let random = Load::random_4k(BLOCK, 2048);
    let mut first = None;
    for depth in [1, 8, 32, 1000] {
        let bench = Bench::nested(depth);
        let (read, _) = bench.run(&random.reading());
        bench.run(&random);
        let (steady, _) = bench.run(&random);
        let (first_read, first_steady) = *first.get_or_insert((read, steady));
        let ratios = (read.ratio_to(&first_read), steady.ratio_to(&first_steady));
        say(&format!(
            "depth {depth}: reads {:.4}, steady writes {:.4} of those at depth 1",
            ratios.0, ratios.1
        ));
        assert!(ratios.0 >= 0.97 && ratios.1 >= 0.97, "{ratios:?}");
    }
}
