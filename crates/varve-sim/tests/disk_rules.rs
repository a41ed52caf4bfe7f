//! The simulated disk keeps its rule, and is as cruel as the rule allows.

use std::collections::BTreeSet;
use varve_block::{Allocation, Device, Durability, Extent, IoError, KIB, MIB, StatusRun, ZeroOptions};
use varve_sim::{
    CrashAt, CrashKind, DiskOptions, FaultBudget, FaultPlan, Random, SimDisk, Stamp, World,
    for_each_crash_state, patterned,
};

const SIZE: u64 = MIB;

async fn write(world_arena: &varve_block::Arena, device: &Device, offset: u64, fill: u8, sectors: usize) {
    let data = world_arena.copy(&vec![fill; sectors * 512]);
    device.write(offset, data, Durability::Volatile).await.expect("no faults");
}

/// The first byte of each of the first `count` sectors.
fn firsts(disk: &SimDisk, count: u64) -> Vec<u8> {
    disk.peek(Extent::new(0, count * 512)).chunks(512).map(|sector| sector[0]).collect()
}

/// What the first two sectors may hold after the power fails when `work` is done.
fn outcomes(
    seeds: u64,
    kind: CrashKind,
    work: impl AsyncFn(Device, varve_block::Arena),
) -> BTreeSet<Vec<u8>> {
    let mut seen = BTreeSet::new();
    for seed in 0..seeds {
        let world = World::new(seed);
        let disk = SimDisk::new(SIZE);
        world.run(work(disk.device(&world), world.arena()));
        world.crash(kind);
        let kept = firsts(&disk, 2);
        world.crash(kind);
        assert_eq!(firsts(&disk, 2), kept, "MEDIUM3: what a crash left survives the next one");
        seen.insert(kept);
    }
    seen
}

fn set(all: &[[u8; 2]]) -> BTreeSet<Vec<u8>> {
    all.iter().map(|pair| pair.to_vec()).collect()
}

#[test]
fn what_was_not_flushed_is_lost_or_torn() {
    let seen = outcomes(200, CrashKind::Power, async |device, arena| {
        write(&arena, &device, 0, 1, 2).await;
    });
    assert_eq!(seen, set(&[[0, 0], [0, 1], [1, 0], [1, 1]]));
}

#[test]
fn writes_are_reordered_and_old_versions_come_back() {
    let seen = outcomes(1000, CrashKind::Power, async |device, arena| {
        write(&arena, &device, 0, 1, 1).await;
        write(&arena, &device, 512, 1, 1).await;
        write(&arena, &device, 0, 2, 2).await;
    });
    let all: Vec<[u8; 2]> = (0..3).flat_map(|first| (0..3).map(move |second| [first, second])).collect();
    assert_eq!(seen, set(&all), "every sector keeps any of its versions, whatever its neighbour keeps");
}

#[test]
fn a_flush_covers_what_was_acknowledged_before_it_and_no_more() {
    let seen = outcomes(300, CrashKind::Power, async |device, arena| {
        write(&arena, &device, 0, 1, 1).await;
        write(&arena, &device, 0, 2, 1).await;
        device.flush().await.expect("no faults");
        write(&arena, &device, 512, 3, 1).await;
    });
    assert_eq!(seen, set(&[[2, 0], [2, 3]]), "SIMDISK2");
    let seen = outcomes(300, CrashKind::Power, async |device, arena| {
        let (write, flush) = (write(&arena, &device, 0, 1, 1), device.flush());
        futures_util::join!(write, flush).1.expect("no faults");
    });
    assert_eq!(
        seen,
        set(&[[0, 0], [1, 0]]),
        "SIMDISK2: a write under way when the flush comes is not covered"
    );
}

#[test]
fn a_durable_write_survives_alone() {
    let seen = outcomes(300, CrashKind::Power, async |device, arena| {
        write(&arena, &device, 0, 1, 1).await;
        let data = arena.copy(&[2; 512]);
        device.write(512, data, Durability::Durable).await.expect("no faults");
    });
    assert_eq!(seen, set(&[[0, 2], [1, 2]]), "SIMDISK3");
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let seen = outcomes(100, CrashKind::Process, async |device, arena| {
        write(&arena, &device, 0, 1, 2).await;
    });
    assert_eq!(seen, set(&[[1, 1]]));
}

/// SIMDISK1.
#[test]
fn a_read_sees_what_was_acknowledged_and_no_less_than_reads_before_it() {
    let mut halves = 0;
    for seed in 0..200 {
        let world = World::new(seed);
        let disk = SimDisk::new(SIZE);
        let (device, arena) = (disk.device(&world), world.arena());
        let read = async || {
            let found = device.read(0, arena.take(8 * 512)).await.expect("no faults");
            found.chunks(512).map(|sector| sector[0]).collect::<Vec<u8>>()
        };
        let mut reads = async || {
            let mut seen = vec![0; 8];
            for _ in 0..8 {
                let found = read().await;
                assert!(found.iter().zip(&seen).all(|(now, before)| now >= before), "SIMDISK1: seed {seed}");
                halves += usize::from(found.contains(&0) && found.contains(&1));
                seen = found;
            }
        };
        world.run(async {
            futures_util::join!(reads(), write(&arena, &device, 0, 1, 8));
            assert_eq!(read().await, [1; 8], "SIMDISK1: seed {seed}");
        });
    }
    assert!(halves > 0, "SIMDISK1: some read sees half of a write");
}

#[test]
fn a_write_under_way_may_survive_the_crash() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let world = World::new(seed);
        let disk = SimDisk::new(SIZE);
        world.schedule_crash(CrashAt::Event(1));
        let (device, arena) = (disk.device(&world), world.arena());
        let ran = world.run_until_crash(write(&arena, &device, 0, 1, 2));
        assert!(ran.crashed());
        seen.insert(firsts(&disk, 2));
    }
    assert_eq!(seen, set(&[[0, 0], [0, 1], [1, 0], [1, 1]]));
}

#[test]
fn a_disk_that_lies_loses_flushed_data() {
    let mut lost = 0;
    for seed in 0..100 {
        let world = World::new(seed);
        let disk = SimDisk::with(DiskOptions { lies_about_flush: true, ..DiskOptions::sized(SIZE) });
        let (device, arena) = (disk.device(&world), world.arena());
        world.run(async {
            write(&arena, &device, 0, 1, 2).await;
            device.flush().await.expect("it says so");
        });
        world.crash(CrashKind::Power);
        lost += u32::from(firsts(&disk, 2) != [1, 1]);
    }
    assert!(lost > 30, "{lost}");
}

#[test]
fn after_a_discard_there_is_old_content_or_zeros_and_it_stays() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let world = World::new(seed);
        let disk = SimDisk::new(SIZE);
        let (device, arena) = (disk.device(&world), world.arena());
        world.run(async {
            write(&arena, &device, 0, 1, 1).await;
            device.flush().await.expect("no faults");
            write(&arena, &device, 0, 2, 1).await;
            device.discard(Extent::new(0, 1024)).await.expect("no faults");
        });
        let first = firsts(&disk, 1);
        assert_eq!(firsts(&disk, 1), first);
        seen.insert(first[0]);
    }
    assert_eq!(seen, [0, 1, 2].into());
}

#[test]
fn zeros_are_written_and_holes_are_reported() {
    let world = World::new(5);
    let disk = SimDisk::with(DiskOptions { fast_zero: false, ..DiskOptions::sized(SIZE) });
    let (device, arena) = (disk.device(&world), world.arena());
    world.run(async {
        write(&arena, &device, 0, 1, 16).await;
        device.zero(Extent::new(512, 512), ZeroOptions::default()).await.expect("no faults");
        let fast = ZeroOptions { fast: true, ..ZeroOptions::default() };
        assert_eq!(device.zero(Extent::new(0, 512), fast).await.err(), Some(IoError::Unsupported));
        let data = StatusRun { length: 8 * KIB, allocation: Allocation::Data };
        let hole = StatusRun { length: 8 * KIB, allocation: Allocation::Hole };
        let status = device.status(Extent::new(0, 16 * KIB)).await;
        assert_eq!(status, Ok(vec![data, hole]));
    });
    assert_eq!(firsts(&disk, 3), [1, 0, 1]);
}

#[test]
fn a_huge_disk_costs_what_is_written() {
    let world = World::new(1);
    let disk = SimDisk::new(1 << 50);
    let (device, arena) = (disk.device(&world), world.arena());
    world.run(async {
        write(&arena, &device, (1 << 50) - 512, 9, 1).await;
        device.zero(Extent::new(0, 1 << 49), ZeroOptions::default()).await.expect("no faults");
        device.discard(device.shape().extent()).await.expect("no faults");
        device.flush().await.expect("no faults");
    });
    assert_eq!(disk.counters().requests(), 4);
}

#[test]
fn images_bring_back_the_past_and_poke_changes_it() {
    let world = World::new(1);
    let disk = SimDisk::new(SIZE);
    disk.poke(512, &[4; 512]);
    let old = disk.image();
    let (device, arena) = (disk.device(&world), world.arena());
    world.run(write(&arena, &device, 0, 1, 2));
    assert_eq!(firsts(&disk, 2), [1, 1]);
    let twin = SimDisk::new(SIZE);
    twin.restore(&old);
    assert_eq!(firsts(&twin, 2), [0, 4]);
    disk.restore(&old);
    assert_eq!(firsts(&disk, 2), [0, 4]);
}

#[test]
fn damage_stays_until_it_is_written_over_and_lies_above_the_medium() {
    let world = World::new(1);
    let disk = SimDisk::new(SIZE);
    let (device, arena) = (disk.device(&world), world.arena());
    let read = || world.run(async { device.read(0, arena.take(1024)).await.map(|buffer| buffer.to_vec()) });
    world.run(write(&arena, &device, 0, 1, 2));
    disk.make_unreadable(Extent::new(512, 512));
    assert_eq!(read(), Err(IoError::Medium));
    assert_eq!(read(), Err(IoError::Medium));
    disk.enable_faults(false);
    assert_eq!(read(), Ok(vec![1; 1024]), "FAULT1");
    disk.enable_faults(true);
    world.run(write(&arena, &device, 512, 2, 1));
    assert!(read().is_ok(), "FAULT3");
    disk.rot(Extent::new(0, 512), &mut Random::new(1));
    let rotten = read().expect("rot is silent");
    let flipped: u32 = rotten[..512].iter().map(|byte| (byte ^ 1).count_ones()).sum();
    assert_eq!(flipped, 1);
    assert_eq!(read(), Ok(rotten), "rot stays as it is");
    disk.repair();
    assert_eq!(read().map(|bytes| bytes[0]), Ok(1));
}

#[test]
fn a_misdirected_write_is_seen_where_it_should_not_be() {
    let world = World::new(1);
    let disk = SimDisk::new(SIZE);
    let (device, arena) = (disk.device(&world), world.arena());
    let read = |offset| world.run(async { device.read(offset, arena.take(512)).await.expect("read")[0] });
    disk.misdirect_next_write(4096);
    world.run(write(&arena, &device, 0, 7, 1));
    assert_eq!((read(0), read(4096)), (0, 7));
    world.run(write(&arena, &device, 512, 8, 1));
    assert_eq!(read(512), 8, "only the next one");
    disk.enable_faults(false);
    assert_eq!((read(0), read(4096)), (7, 0), "FAULT1");
}

#[test]
fn a_disk_that_vanished_answers_gone_until_it_reappears() {
    let world = World::new(1);
    let disk = SimDisk::new(SIZE);
    let (device, arena) = (disk.device(&world), world.arena());
    disk.vanish();
    let flushed = || world.run(async { device.flush().await.map(drop) });
    assert_eq!(flushed(), Err(IoError::Gone));
    disk.reappear();
    assert_eq!(flushed(), Ok(()));
    let plan = FaultPlan { vanish: 1_000_000, ..FaultPlan::default() };
    disk.set_faults(plan, FaultBudget::new(1, 1));
    let read = world.run(async { device.read(0, arena.take(512)).await.map(drop) });
    assert_eq!(read, Err(IoError::Gone));
}

#[test]
fn faults_stay_within_their_budget() {
    let world = World::new(3);
    let budget = FaultBudget::new(10, 1);
    let plan = FaultPlan { write_error: 500_000, flush_error: 500_000, ..FaultPlan::default() };
    let disks: Vec<SimDisk> = (0..3).map(|_| SimDisk::new(SIZE)).collect();
    let mut failures = [0, 0, 0];
    for (disk, failures) in disks.iter().zip(&mut failures) {
        disk.set_faults(plan, budget.clone());
        let (device, arena) = (disk.device(&world), world.arena());
        world.run(async {
            for _ in 0..100 {
                let data = arena.copy(&[1; 512]);
                *failures += u32::from(device.write(0, data, Durability::Volatile).await.is_err());
                *failures += u32::from(device.flush().await.is_err());
            }
        });
    }
    assert_eq!(failures, [10, 0, 0], "FAULT2");
    assert_eq!(budget.faults_left(), 0);
}

#[test]
fn a_failed_flush_makes_nothing_durable_and_a_stall_only_takes_time() {
    let world = World::steady(1);
    let disk = SimDisk::new(SIZE);
    let (device, arena) = (disk.device(&world), world.arena());
    world.run(write(&arena, &device, 0, 1, 1));
    let failing = FaultPlan { flush_error: 1_000_000, ..FaultPlan::default() };
    disk.set_faults(failing, FaultBudget::new(1, 1));
    assert_eq!(world.run(async { device.flush().await.map(drop) }), Err(IoError::Medium));
    let stalling = FaultPlan { stall: 1_000_000, ..FaultPlan::default() };
    disk.set_faults(stalling, FaultBudget::new(1, 1));
    let (clock, before) = (world.clock(), world.clock().now());
    assert_eq!(world.run(async { device.flush().await.map(drop) }), Ok(()));
    assert!(clock.now().since(before) >= FaultPlan::STALL);
}

#[test]
fn all_states_of_three_sectors_are_visited_once() {
    let mut seen = Vec::new();
    let states = for_each_crash_state(1, 100, |world| {
        let disk = SimDisk::new(SIZE);
        let (device, arena) = (disk.device(world), world.arena());
        let ran = world.run_until_crash(write(&arena, &device, 0, 1, 3));
        if ran.crashed() && world.events() == 2 {
            seen.push(firsts(&disk, 3));
        }
    });
    assert_eq!((states.points, states.states), (2, 16));
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 8);
    assert_eq!(seen.len(), 8);
}

#[test]
fn a_flush_that_loses_something_is_followed_by_no_success_until_the_next_boot() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..100 {
        let world = World::new(seed);
        let disk = SimDisk::new(64 * KIB);
        let plan = FaultPlan { flush_loss: 1_000_000, ..FaultPlan::default() };
        disk.set_faults(plan, FaultBudget::new(1, 1));
        let (device, arena) = (disk.device(&world), world.arena());
        world.run(async {
            device.write(0, arena.copy(&[7; 512]), Durability::Volatile).await.expect("it is only cached");
            assert_eq!(device.flush().await.map(drop), Err(IoError::Medium));
            assert_eq!(device.read(0, arena.take(512)).await.expect("reads go on")[0], 7);
            assert_eq!(
                device.flush().await.map(drop),
                Err(IoError::Medium),
                "it never says that all is well"
            );
            let written = device.write(512, arena.copy(&[8; 512]), Durability::Durable).await;
            assert_eq!(written.map(drop), Err(IoError::Medium));
        });
        assert!(disk.take_lost_flush() && !disk.take_lost_flush());
        // Not even the end of the process alone leaves what was lost.
        world.crash(CrashKind::Process);
        match disk.peek(Extent::new(0, 512))[0] {
            0 => lost += 1,
            _ => kept += 1,
        }
        let (device, arena) = (disk.device(&world), world.arena());
        world.run(async {
            device.write(0, arena.copy(&[9; 512]), Durability::Durable).await.expect("it was opened again");
        });
        world.crash(CrashKind::Power);
        assert_eq!(disk.peek(Extent::new(0, 512))[0], 9);
    }
    assert!(lost > 20 && kept > 20, "{lost} lost, {kept} kept");
}

#[test]
fn silent_faults_that_spare_content_strike_metadata_alone() {
    let world = World::new(1);
    let disk = SimDisk::new(64 * KIB);
    let plan = FaultPlan { lost: 1_000_000, spares_content: true, ..FaultPlan::default() };
    disk.set_faults(plan, FaultBudget::unlimited());
    let (device, arena) = (disk.device(&world), world.arena());
    let pattern = patterned(&arena, Extent::new(0, 512), Stamp::new(1, 1));
    world.run(async {
        device.write(0, pattern.clone(), Durability::Volatile).await.expect("no loud faults");
        device.write(4096, arena.copy(&[3; 512]), Durability::Volatile).await.expect("no loud faults");
        let read = device.read(0, arena.take(512)).await.expect("no loud faults");
        assert_eq!(read[..], pattern[..]);
        let read = device.read(4096, arena.take(512)).await.expect("no loud faults");
        assert_eq!(read[..], [0; 512], "lost");
    });
    disk.set_faults(FaultPlan { lost: 0, rot: 1_000_000, ..plan }, FaultBudget::unlimited());
    world.run(async {
        device.write(4096, arena.copy(&[3; 512]), Durability::Volatile).await.expect("no loud faults");
        let read = device.read(0, arena.take(512)).await.expect("no loud faults");
        assert_eq!(read[..], pattern[..]);
        let read = device.read(4096, arena.take(512)).await.expect("no loud faults");
        assert_ne!(read[..], [3; 512], "rotten");
    });
}
