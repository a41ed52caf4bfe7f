//! The world: the same seed gives the same history, time jumps, crashes leave nothing behind, deadlocks are named.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Durability, Extent, KIB, LockMode, Moment, RangeLock, timeout};
use varve_sim::{Client, CrashAt, CrashKind, Mix, Oracle, SimDisk, World};

/// A history of its own for each seed: its hash, its last moment, and what the disk holds.
fn history(seed: u64) -> (u64, Moment, Vec<u8>) {
    let world = World::new(seed);
    let disk = SimDisk::new(64 * KIB);
    let oracle = Rc::new(RefCell::new(Oracle::new(1, 64 * KIB)));
    let mut random = world.random();
    world.schedule_crash(CrashAt::Event(100));
    let client = Client::new(disk.device(&world), world.arena(), Rc::clone(&oracle));
    let ran = world.run_until_crash(client.exercise(&Mix::default(), 200, &mut random));
    assert!(ran.crashed());
    let extent = Extent::new(0, 64 * KIB);
    (world.trace_hash(), world.clock().now(), disk.peek(extent))
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let mut hashes = BTreeSet::new();
    for seed in 0..50 {
        let first = history(seed);
        assert!(first == history(seed), "WORLD1: seed {seed}");
        hashes.insert(first.0);
    }
    assert_eq!(hashes.len(), 50, "and another seed another one");
}

#[test]
fn tasks_take_turns_in_an_order_that_the_seed_decides() {
    let order = |world: World| {
        let order = Rc::new(RefCell::new(Vec::new()));
        for number in 0..4 {
            let order = Rc::clone(&order);
            world.spawner().spawn(async move { order.borrow_mut().push(number) });
        }
        world.settle(Duration::from_secs(1));
        order.take()
    };
    let orders: BTreeSet<_> = (0..1000).map(|seed| order(World::new(seed))).collect();
    assert_eq!(orders.len(), 24, "every order of four");
    assert_eq!(order(World::steady(9)), [0, 1, 2, 3]);
}

#[test]
fn time_jumps_and_a_sleep_that_is_given_up_is_forgotten() {
    let world = World::steady(1);
    let clock = world.clock();
    world.run(async {
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.now(), Moment(3_600_000_000_000));
        let done = timeout(&clock, Duration::from_secs(1_000_000), clock.sleep(Duration::from_secs(1))).await;
        assert_eq!(done, Some(()));
        let late = timeout(&clock, Duration::from_secs(1), clock.sleep(Duration::from_secs(1_000_000))).await;
        assert_eq!(late, None);
        clock.sleep(Duration::from_secs(1)).await;
    });
    assert_eq!(clock.now(), Moment(3_603_000_000_000));
    assert_eq!(clock.date().0 - World::new(1).clock().date().0, 3603);
}

#[test]
fn a_crash_drops_every_future_and_every_task() {
    struct Counted(Rc<Cell<u32>>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    for seed in 0..50 {
        let world = World::new(seed);
        let disk = SimDisk::new(64 * KIB);
        let (device, arena) = (disk.device(&world), world.arena());
        let dropped = Rc::new(Cell::new(0));
        let lock = RangeLock::new();
        for _ in 0..5 {
            let (counted, lock, clock) = (Counted(Rc::clone(&dropped)), lock.clone(), world.clock());
            world.spawner().spawn(async move {
                let _counted = counted;
                let _held = lock.lock(Extent::new(0, 1), LockMode::Exclusive).await;
                clock.sleep(Duration::from_secs(10)).await;
            });
        }
        world.schedule_crash(CrashAt::Event(9));
        let (counted, inner) = (Counted(Rc::clone(&dropped)), arena.clone());
        let ran = world.run_until_crash(async move {
            let _counted = counted;
            loop {
                let data = inner.copy(&[1; 512]);
                device.write(0, data, Durability::Volatile).await.expect("no faults");
            }
        });
        assert!(matches!(ran, varve_sim::Ran::<()>::Crashed));
        assert_eq!((dropped.get(), arena.usage().in_use), (6, 0), "WORLD4");
        assert!(lock.is_idle(), "WORLD4");
        assert_eq!(disk.counters().writes, 5, "WORLD3: nothing reaches the disk after its ninth event");
    }
}

#[test]
fn a_power_cut_takes_the_caches_of_disks_that_were_not_attached_yet() {
    let mut kept = 0;
    for seed in 0..100 {
        let world = World::new(seed);
        let (disk, other) = (SimDisk::new(64 * KIB), SimDisk::new(64 * KIB));
        let (device, arena) = (disk.device(&world), world.arena());
        world.run(async {
            device.write(0, arena.copy(&[7; 512]), Durability::Volatile).await.expect("no faults");
        });
        world.crash(CrashKind::Process);
        assert_eq!(disk.peek(Extent::new(0, 512))[0], 7, "the disk has its power still");
        let others = other.device(&world);
        world.run(async { others.flush().await.expect("no faults") });
        world.crash(CrashKind::Power);
        let found = disk.peek(Extent::new(0, 512))[0];
        kept += u32::from(found == 7);
        world.crash(CrashKind::Power);
        assert_eq!(disk.peek(Extent::new(0, 512))[0], found, "WORLD5: what is left is durable");
    }
    assert!((20..80).contains(&kept), "WORLD5: lost in some worlds and kept in others: {kept}");
}

#[test]
fn a_crash_can_come_at_a_moment() {
    let world = World::new(1);
    let clock = world.clock();
    world.schedule_crash(CrashAt::Time(Moment(5_000)));
    let ran = world.run_until_crash(clock.sleep(Duration::from_secs(1)));
    assert!(ran.crashed());
    assert_eq!(clock.now(), Moment(5_000));
    world.schedule_crash(CrashAt::Time(Moment(50_000)));
    let ran = world.run_until_crash(clock.sleep(Duration::from_nanos(10)));
    assert!(!ran.crashed());
    world.run(clock.sleep(Duration::from_secs(1)));
}

#[test]
#[should_panic(expected = "nothing is ready and no timer runs; 1 tasks wait; requests under way: none")]
fn a_deadlock_is_named() {
    let world = World::new(1);
    let lock = RangeLock::new();
    let held = lock.try_lock(Extent::new(0, 1), LockMode::Exclusive);
    let waiting = lock.clone();
    world.spawner().spawn(async move {
        waiting.lock(Extent::new(0, 1), LockMode::Exclusive).await;
    });
    world.run(lock.lock(Extent::new(0, 1), LockMode::Exclusive));
    drop(held);
}

#[test]
#[should_panic(expected = "a device of an earlier boot")]
fn a_device_does_not_outlive_its_boot() {
    let world = World::new(1);
    let device = SimDisk::new(64 * KIB).device(&world);
    world.crash(CrashKind::Power);
    world.run(async { device.flush().await.map(drop) }).expect("never reached");
}

#[test]
fn a_request_whose_future_is_dropped_happens_all_the_same() {
    let world = World::new(1);
    let disk = SimDisk::new(64 * KIB);
    let device = disk.device(&world);
    drop(device.write(0, world.arena().copy(&[5; 512]), Durability::Volatile));
    world.settle(Duration::from_secs(1));
    assert_eq!(disk.peek(Extent::new(0, 512)), [5; 512], "SIMDISK4");
}
