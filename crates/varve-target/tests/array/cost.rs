//! What arrays cost on the model disk, in virtual time: exact, and the same on every machine.
//!
//! Regions are warm: they were written before, and are dirty. Ratios are to one raw member.

use super::rig;
use futures_util::{StreamExt, stream};
use std::io::Write;
use std::rc::Rc;
use varve_block::{Device, Durability, Extent, KIB, MIB};
use varve_sim::{Direction, Load, Measured, ModelDisk, Order, Random, World, measure};
use varve_target::array::{Array, ArrayLayout, ArrayOptions, ArraySpec, METADATA_SIZE_MIN, ReadPolicy};

/// Bytes of the array that loads use: as many zones for each member.
const SIZE: u64 = 96 * MIB;

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A load over `SIZE` bytes.
fn load(direction: Direction, order: Order, request_bytes: u64, depth: usize) -> Load {
    let count = (SIZE / request_bytes).min(if depth == 1 { 64 } else { 4096 });
    Load { direction, order, request_bytes, depth, count }
}

fn raw(load: &Load) -> Measured {
    let (world, disk) = (World::steady(1), ModelDisk::new(SIZE));
    let device = disk.device(&world);
    let (clock, arena) = (world.clock(), world.arena());
    world.run(measure(&device, &clock, &arena, load, &mut Random::new(7))).expect("no faults")
}

/// What an array does in the same load. Its reads write nothing to the log.
fn array(layout: ArrayLayout, read_policy: ReadPolicy, checksums: bool, load: &Load) -> Measured {
    let world = World::steady(1);
    let metadata_size = METADATA_SIZE_MIN + if checksums { MIB } else { 0 };
    let spec = ArraySpec { checksums, ..rig::spec(layout, SIZE, metadata_size) };
    let disk_size = spec.metadata_size + layout.on_members(Extent::new(0, SIZE)).length;
    let disks: Vec<ModelDisk> = (0..layout.members()).map(|_| ModelDisk::new(disk_size)).collect();
    let members = rig::members(disks.iter().map(|disk| disk.device(&world)));
    let (clock, arena) = (world.clock(), world.arena());
    let options = ArrayOptions { read_policy, ..ArrayOptions::new(arena.clone(), clock.clone()) };
    world.run(async {
        Array::create(&spec, &members, &arena).await.expect("large enough");
        let array: Rc<Array> = Array::open(spec, members, options).await.expect("just made");
        let device: Device = array.device();
        for (_, piece) in Extent::new(0, SIZE).pieces(MIB) {
            device
                .write(piece.offset, arena.take_zeroed(64 * 1024).freeze(), Durability::Volatile)
                .await
                .expect("no faults");
        }
        let records = array.status().log_records;
        let measured = measure(&device, &clock, &arena, load, &mut Random::new(7)).await.expect("no faults");
        assert_eq!(array.status().log_records, records, "warm regions cost nothing, and reads never do");
        measured
    })
}

/// Asserts that the ratio of an array to a raw member is at least `least`.
fn bar(name: &str, layout: ArrayLayout, policy: ReadPolicy, load: Load, least: f64) {
    let raw = raw(&load);
    let ratio = array(layout, policy, false, &load).ratio_to(&raw);
    let checked = array(layout, policy, true, &load).ratio_to(&raw);
    say(&format!(
        "array cost, {layout:?}, {policy:?}, {name}: {ratio:.3} of a raw member, {checked:.3} with checksums"
    ));
    assert!(ratio >= least, "{name}: {ratio}, and {least} is the bar");
    assert!(checked >= 0.98 * ratio, "{name}: {checked} with checksums, {ratio} without");
}

#[test]
fn ddraid_of_order_1_writes_as_its_members_do() {
    let layout = ArrayLayout::Ddraid { order: 1, block_size: 4 * KIB };
    for kib in [4, 8, 16, 32, 64, 128, 256, 512, 1024] {
        let load = load(Direction::Write, Order::Sequential, kib * KIB, 1);
        let least = if kib <= 64 { 0.97 } else { 1.95 };
        bar(&format!("writes of {kib} KiB q1"), layout, ReadPolicy::Verify, load, least);
    }
    let random = load(Direction::Write, Order::Random { unit: 4 * KIB }, 4 * KIB, 8);
    bar("random writes of 4 KiB q8", layout, ReadPolicy::Verify, random, 0.97);
}

#[test]
fn ddraid_of_order_1_reads_from_its_data_members_or_from_all() {
    let layout = ArrayLayout::Ddraid { order: 1, block_size: 4 * KIB };
    for kib in [128, 256, 512, 1024] {
        let load = load(Direction::Read, Order::Sequential, kib * KIB, 1);
        bar(&format!("reads of {kib} KiB q1"), layout, ReadPolicy::Data, load, 1.95);
        bar(&format!("reads of {kib} KiB q1"), layout, ReadPolicy::Verify, load, 1.95);
    }
    let long = load(Direction::Read, Order::Sequential, MIB, 8);
    bar("reads of 1 MiB q8", layout, ReadPolicy::Rotate, long, 2.8);
    let random = load(Direction::Read, Order::Random { unit: 4 * KIB }, 4 * KIB, 8);
    // The layout's limit is 1.5.
    bar("random reads of 4 KiB q8", layout, ReadPolicy::Rotate, random, 1.45);
}

/// What writes to regions that are cold cost, or to an array without a data member.
#[derive(Debug, PartialEq, Eq)]
struct LogCost {
    milliseconds: u64,
    /// Pieces of a member that has the log if no other disk does, and of the log disk.
    member: u64,
    log_disk: u64,
    records: u64,
}

/// Writes 4 KiB to each of 64 regions, `depth` at once.
fn log_cost(layout: ArrayLayout, is_degraded: bool, has_log_disk: bool, depth: usize) -> LogCost {
    const WRITES: u64 = 64;
    let world = World::steady(1);
    let spec = rig::spec(layout, SIZE, METADATA_SIZE_MIN);
    let disk_size = spec.metadata_size + layout.on_members(Extent::new(0, SIZE)).length;
    let disks: Vec<ModelDisk> = (0..layout.members()).map(|_| ModelDisk::new(disk_size)).collect();
    let log = ModelDisk::new(spec.log_size());
    let members = rig::members(disks.iter().map(|disk| disk.device(&world)));
    let (clock, arena) = (world.clock(), world.arena());
    let log_disk = has_log_disk.then(|| rig::member(100, Some(log.device(&world))));
    let options = ArrayOptions { log_disk, ..ArrayOptions::new(arena.clone(), clock.clone()) };
    world.run(async {
        Array::create(&spec, &members, &arena).await.expect("large enough");
        let array: Rc<Array> = Array::open(spec, members, options).await.expect("just made");
        if is_degraded {
            array.fail_member(0).await.expect("the others have all data");
        }
        let device: Device = array.device();
        let with_log = &disks[1];
        let before = (clock.now(), with_log.pieces(), log.pieces(), array.status().log_records);
        let write =
            |region: u64| device.write(region * MIB, arena.take_zeroed(4096).freeze(), Durability::Volatile);
        let mut writes = stream::iter((0..WRITES).map(write)).buffer_unordered(depth);
        while let Some(written) = writes.next().await {
            written.expect("no faults");
        }
        LogCost {
            milliseconds: u64::try_from(clock.now().since(before.0).as_millis()).expect("short"),
            member: with_log.pieces() - before.1,
            log_disk: log.pieces() - before.2,
            records: array.status().log_records - before.3,
        }
    })
}

#[test]
fn a_log_on_its_own_disk_costs_members_nothing() {
    let ddraid = ArrayLayout::Ddraid { order: 1, block_size: 4 * KIB };
    for (layout, is_degraded) in [(ArrayLayout::Mirror { copies: 2 }, false), (ddraid, false), (ddraid, true)]
    {
        for depth in [1, 8] {
            let [members, own] = [false, true].map(|has| log_cost(layout, is_degraded, has, depth));
            say(&format!(
                "array cost, {layout:?}, degraded {is_degraded}, 64 cold regions q{depth}: log on members {members:?}, on its \
                 own disk {own:?}"
            ));
            let found = [members, own].map(|cost| (cost.milliseconds, cost.member, cost.log_disk));
            let expected = match (is_degraded, depth) {
                (false, 1) => [(256, 128, 0), (256, 64, 64)],
                (false, _) => [(160, 80, 0), (130, 64, 58)],
                (true, 1) => [(262, 131, 0), (264, 67, 65)],
                (true, _) => [(160, 80, 0), (140, 67, 57)],
            };
            assert_eq!(found, expected, "{layout:?}, {is_degraded}, {depth}");
        }
    }
}

#[test]
fn a_mirror_of_two_writes_as_one_and_reads_as_two() {
    let layout = ArrayLayout::Mirror { copies: 2 };
    for kib in [4, 64, 1024] {
        let writes = load(Direction::Write, Order::Sequential, kib * KIB, 1);
        bar(&format!("writes of {kib} KiB q1"), layout, ReadPolicy::Data, writes, 0.97);
        let reads = load(Direction::Read, Order::Random { unit: kib * KIB }, kib * KIB, 8);
        bar(&format!("random reads of {kib} KiB q8"), layout, ReadPolicy::Rotate, reads, 1.9);
    }
}
