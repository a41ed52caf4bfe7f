//! What dependent snapshots cost on the model disk, in virtual time: exact, and the same on every machine.

use std::io::Write;
use std::rc::Rc;
use varve_block::{BlockDevice, Checked, Completion, Device, Durability, Io, KIB, MIB, Shape};
use varve_sim::{Amplification, CostMeter, Direction, Load, Measured, ModelDisk, Order, World, measure};
use varve_target::Linear;
use varve_target::snapshot::{
    FormatOptions, NewSnapshot, Progress, SnapshotStore, StoreOptions, Uuid, side_by_side,
};

const ORIGIN_SIZE: u64 = 256 * MIB;
const STORE_SIZE: u64 = 512 * MIB;
const CHUNK: u64 = 64 * KIB;

/// A disk without forced unit access: a durable write is a write and a flush.
struct WithoutForcedAccess(Device);

impl BlockDevice for WithoutForcedAccess {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Write { offset, data, durability: Durability::Durable } => Completion::pending(async move {
                self.0.write(offset, data, Durability::Volatile).await?;
                self.0.flush().await
            }),
            io => self.0.submit(io),
        }
    }
}

/// A volume on the model disk, and its exception store on the same disk.
struct Bench {
    world: World,
    disk: ModelDisk,
    origin: Device,
    store: Option<Rc<SnapshotStore>>,
}

impl Bench {
    fn new(snapshots: usize, forced_access: bool) -> Bench {
        let world = World::steady(1);
        let disk = ModelDisk::new(ORIGIN_SIZE + STORE_SIZE);
        let device = disk.device(&world);
        let device = if forced_access { device } else { Device::new(WithoutForcedAccess(device)) };
        let part = |offset, size| Device::new(Linear::new(vec![(size, device.clone(), offset)]));
        let (origin, device) = (part(0, ORIGIN_SIZE), part(ORIGIN_SIZE, STORE_SIZE));
        if snapshots == 0 {
            return Bench { world, disk, origin, store: None };
        }
        let arena = world.arena();
        let store = world.run(async {
            let format = FormatOptions { chunk_size: CHUNK, ..FormatOptions::new(Uuid::from_u128(1)) };
            SnapshotStore::format(&device, &arena, format).await.expect("large enough");
            let options = StoreOptions::default();
            let opened = SnapshotStore::open(origin, device, arena.clone(), world.clock(), options).await;
            let store = opened.expect("just formatted");
            for number in 0..snapshots {
                let name = format!("s{number}");
                let new = NewSnapshot { name, read_only: false, held: false };
                store.create(&new).await.expect("there is space");
            }
            store
        });
        Bench { origin: store.origin(), store: Some(store), world, disk }
    }

    fn run(&self, load: &Load) -> (Measured, Amplification) {
        let mut random = varve_sim::Random::new(7);
        let meter = CostMeter::start(&self.disk);
        let (clock, arena) = (self.world.clock(), self.world.arena());
        let measured = self.world.run(measure(&self.origin, &clock, &arena, load, &mut random));
        let measured = measured.expect("no faults");
        (measured, meter.cost(&self.disk, &measured))
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn loads() -> [(&'static str, Load); 3] {
    let sequential = Load {
        direction: Direction::Write,
        order: Order::Sequential,
        request_bytes: MIB,
        depth: 8,
        count: 192,
    };
    [
        ("sequential 1 MiB q8", sequential),
        ("random 64 KiB q8", Load::random_64k(CHUNK, 2048)),
        ("random 4 KiB q8", Load::random_4k(CHUNK, 2048)),
    ]
}

#[test]
fn first_touches_cost_the_same_with_a_thousand_snapshots_as_with_one() {
    let least = [0.32, 0.30, 0.42];
    for ((name, load), least) in loads().into_iter().zip(least) {
        let (none, _) = Bench::new(0, true).run(&load);
        let mut with_one = None;
        let cases = [1, 4, 8, 16, 64, 256, 1024].map(|snapshots| (snapshots, true));
        for (snapshots, forced_access) in cases.into_iter().chain([(16, false)]) {
            let (measured, cost) = Bench::new(snapshots, forced_access).run(&load);
            let ratio = measured.ratio_to(&none);
            let disk = if forced_access { "" } else { " without forced unit access" };
            say(&format!(
                "first touches, {name}, {snapshots:4} snapshots{disk}: {ratio:.4} of none; each request: {:.3} \
                 requests, {:.3} pieces, {:.3} flushes; each byte: {:.3} read, {:.3} written",
                cost.requests, cost.pieces, cost.flushes, cost.bytes_read, cost.bytes_written
            ));
            assert!(ratio >= least, "{name}: {ratio}");
            if forced_access {
                let one = with_one.get_or_insert(measured);
                let to_one = measured.ratio_to(one);
                assert!(to_one >= 0.98, "{snapshots} snapshots cost what one costs: {name}: {to_one}");
            }
        }
    }
}

/// An origin on the model disk with so many independent snapshots, each with a store of its own.
fn independent(snapshots: u64) -> Bench {
    let world = World::steady(1);
    let disk = ModelDisk::new(ORIGIN_SIZE + STORE_SIZE * snapshots);
    let device = disk.device(&world);
    let part = |offset, size| Device::new(Linear::new(vec![(size, device.clone(), offset)]));
    let arena = world.arena();
    let origin = world.run(async {
        let mut stores = Vec::new();
        for number in 0..snapshots {
            let device = part(ORIGIN_SIZE + STORE_SIZE * number, STORE_SIZE);
            let format = FormatOptions {
                chunk_size: CHUNK,
                ..FormatOptions::new(Uuid::from_u128(1 + u128::from(number)))
            };
            SnapshotStore::format(&device, &arena, format).await.expect("large enough");
            let (origin, options) = (part(0, ORIGIN_SIZE), StoreOptions::default());
            let opened = SnapshotStore::open(origin, device, arena.clone(), world.clock(), options).await;
            let store = opened.expect("just formatted");
            let new = NewSnapshot { name: "one".into(), read_only: false, held: false };
            store.create(&new).await.expect("there is space");
            stores.push(store);
        }
        side_by_side(&stores).expect("one origin")
    });
    Bench { origin, store: None, world, disk }
}

#[test]
fn independent_snapshots_cost_a_copy_each() {
    for (name, load) in loads() {
        let load = Load { count: load.count / 2, ..load };
        let (none, _) = Bench::new(0, true).run(&load);
        let mut ratios = Vec::new();
        for snapshots in [1, 4, 8, 16] {
            let (measured, cost) = independent(snapshots).run(&load);
            let ratio = measured.ratio_to(&none);
            say(&format!(
                "first touches, {name}, {snapshots:2} independent snapshots: {ratio:.4} of none; each byte: {:.3} \
                 read, {:.3} written",
                cost.bytes_read, cost.bytes_written
            ));
            ratios.push(ratio);
        }
        let (shared, _) = Bench::new(16, true).run(&load);
        assert!(ratios.is_sorted_by(|one, two| one > two), "each costs more: {name}");
        assert!(shared.ratio_to(&none) > ratios[3] * 4.0, "one store for all is the better one: {name}");
    }
}

#[test]
fn sequential_changes_leave_little_metadata_behind() {
    let [(_, load), ..] = loads();
    let bench = Bench::new(1, true);
    let (_, cost) = bench.run(&load);
    let changed = MIB * 192;
    let chunks = (changed / CHUNK) as f64;
    let log = (cost.bytes_written - 2.0) * CHUNK as f64;
    // Opening writes the map as a checkpoint.
    drop(bench.store);
    let before = bench.disk.counters();
    let device = bench.disk.device(&bench.world);
    let part = |offset, size| Device::new(Linear::new(vec![(size, device.clone(), offset)]));
    let (origin, store) = (part(0, ORIGIN_SIZE), part(ORIGIN_SIZE, STORE_SIZE));
    let options = StoreOptions::default();
    let (arena, clock) = (bench.world.arena(), bench.world.clock());
    let opened = bench.world.run(SnapshotStore::open(origin, store, arena, clock, options));
    let store = opened.expect("sound");
    assert_eq!(store.snapshot_bytes()[&1].preserved, changed, "all of it was preserved");
    let map = bench.disk.counters().since(&before).bytes_written as f64 / chunks;
    say(&format!(
        "sequential 1 MiB q8: for each 64 KiB changed {map:.2} bytes of the map, {log:.2} of the log"
    ));
    assert!(map <= 10.0, "{map} bytes");
}

#[test]
fn rewrites_of_preserved_chunks_cost_nothing() {
    for (name, load) in loads() {
        let (none, _) = Bench::new(0, true).run(&load);
        let bench = Bench::new(16, true);
        bench.run(&load);
        let (again, _) = bench.run(&load);
        let ratio = again.ratio_to(&none);
        say(&format!("rewrites, {name}: {ratio:.4} of none"));
        assert!(ratio >= 0.99, "{name}: {ratio}");
    }
}

#[test]
fn creating_a_snapshot_costs_the_same_with_many_as_with_none() {
    let cost = |snapshots| {
        let bench = Bench::new(snapshots, true);
        let before = bench.disk.counters();
        let store = bench.store.as_ref().expect("there are snapshots");
        let new = NewSnapshot { name: "one.more".into(), read_only: false, held: false };
        bench.world.run(store.create(&new)).expect("there is space");
        bench.disk.counters().since(&before)
    };
    let (few, many) = (cost(1), cost(1024));
    say(&format!("one more snapshot: {} requests, {} bytes written", many.requests(), many.bytes_written));
    assert_eq!(few, many);
    assert!(many.requests() <= 3 && many.bytes_written == 4096);
}

#[test]
fn a_rollback_is_seen_after_one_record_however_much_there_is_to_restore() {
    let [(_, changes), (_, random), (_, small)] = loads();
    let mut begun = Vec::new();
    for (snapshots, load) in [(1, None), (1024, None), (1024, Some(random)), (1024, Some(small))] {
        let bench = Bench::new(snapshots, true);
        bench.run(&changes);
        let (store, clock, arena) =
            (bench.store.as_ref().expect("there"), bench.world.clock(), bench.world.arena());
        let (before, start) = (bench.disk.counters(), clock.now());
        bench.world.run(store.begin_rollback(1)).expect("there is space");
        begun.push((bench.disk.counters().since(&before), clock.now().since(start)));
        let progress = Progress::default();
        let start = clock.now();
        let work = async {
            store.finish_rollback(&progress).await.expect("there is space");
            clock.now().since(start)
        };
        let Some(load) = load else {
            let took = bench.world.run(work);
            say(&format!(
                "a rollback of 192 MiB with {snapshots} snapshots takes {} ms alone",
                took.as_millis()
            ));
            continue;
        };
        let (none, _) = Bench::new(0, true).run(&load);
        let mut choices = varve_sim::Random::new(9);
        let user = measure(&bench.origin, &clock, &arena, &load, &mut choices);
        let (measured, took) = bench.world.run(async { futures_util::join!(user, work) });
        let ratio = measured.expect("no faults").ratio_to(&none);
        say(&format!(
            "random {} KiB q8 during a rollback of 192 MiB: {ratio:.4} of none; it takes {} ms",
            load.request_bytes / KIB,
            took.as_millis()
        ));
    }
    let (cost, took) = begun[1];
    say(&format!("a rollback begins with {} requests, {} us", cost.requests(), took.as_micros()));
    assert!(begun.iter().all(|(other, _)| *other == begun[0].0), "whatever there is to restore");
    assert!(cost.requests() <= 4 && cost.bytes_written == 4096 && took.as_millis() <= 6);
}
