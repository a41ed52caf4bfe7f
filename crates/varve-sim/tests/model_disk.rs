//! The model disk's throughput is exact: 500 requests a second, 500 times 64 KiB a second.

use varve_block::{KIB, MIB};
use varve_sim::{CostMeter, Load, Measured, ModelDisk, Order, World, measure};

fn run(load: Load) -> (Measured, ModelDisk) {
    let world = World::steady(1);
    let disk = ModelDisk::new(64 * MIB);
    let (device, clock, arena, mut random) =
        (disk.device(&world), world.clock(), world.arena(), world.random());
    let measured = world.run(measure(&device, &clock, &arena, &load, &mut random)).expect("it never fails");
    (measured, disk)
}

#[test]
fn throughput_is_exact() {
    let (measured, disk) = run(Load::sequential_1m(64));
    assert_eq!(measured.time.as_millis(), 64 * 16 * 2, "a MiB is sixteen pieces of 2 ms");
    assert_eq!(measured.bytes_per_second(), 64.0 * 1024.0 * 500.0);
    assert_eq!((disk.counters().requests(), disk.pieces()), (64, 1024));

    let (measured, disk) = run(Load::random_4k(64 * KIB, 500));
    assert_eq!(measured.requests_per_second(), 500.0);
    assert_eq!((disk.counters().writes, disk.counters().bytes_written), (500, 500 * 4096));

    let (measured, _) = run(Load::random_64k(64 * KIB, 100).reading());
    assert_eq!(measured.requests_per_second(), 500.0, "depth does not help one arm-less server");
}

#[test]
fn a_flush_is_a_request() {
    let load = Load { depth: 1, ..Load::random_4k(4 * KIB, 100).flushing() };
    let world = World::steady(1);
    let disk = ModelDisk::new(MIB);
    let (device, clock, arena, mut random) =
        (disk.device(&world), world.clock(), world.arena(), world.random());
    let meter = CostMeter::start(&disk);
    let measured = world.run(measure(&device, &clock, &arena, &load, &mut random)).expect("it never fails");
    assert_eq!(measured.requests_per_second(), 250.0);
    let cost = meter.cost(&disk, &measured);
    assert_eq!((cost.requests, cost.pieces, cost.flushes, cost.bytes_written), (2.0, 2.0, 1.0, 1.0));
}

#[test]
fn a_load_stops_where_the_device_ends_and_touches_nothing_twice() {
    let (measured, disk) = run(Load { order: Order::Random { unit: MIB }, ..Load::random_64k(MIB, 1000) });
    assert_eq!(measured.requests, 64);
    assert_eq!(disk.counters().writes, 64);
}

#[test]
fn what_was_written_is_read() {
    let world = World::steady(1);
    let disk = ModelDisk::new(MIB);
    let (device, arena) = (disk.device(&world), world.arena());
    world.run(async {
        let data = arena.copy(&[7; 2048]);
        let across = 64 * KIB - 1024;
        device.write(across, data, varve_block::Durability::Volatile).await.expect("written");
        device.zero(varve_block::Extent::new(across, 512), Default::default()).await.expect("zeroed");
        let read = device.read(across - 512, arena.take(4096)).await.expect("read");
        assert!(read[..1024].iter().all(|byte| *byte == 0));
        assert!(read[1024..2560].iter().all(|byte| *byte == 7));
        assert!(read[2560..].iter().all(|byte| *byte == 0));
    });
}
