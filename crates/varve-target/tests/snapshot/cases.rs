//! Snapshots in situations that have a name: several origins at once, failing devices, damaged stores; full ones are in `full.rs`.

use std::rc::Rc;
use std::time::Duration;
use varve_block::{Allocation, Device, Durability, Extent, IoError, KIB, MIB, Switch, ZeroOptions};
use varve_sim::{CrashKind, SimDisk, World, run_seeds, test_name};
use varve_target::snapshot::{
    FormatOptions, NewSnapshot, Pending, Progress, SnapshotStore, StoreError, StoreOptions, Uuid, dump_store,
    restore_store, side_by_side,
};
use varve_target::{ErrorTarget, Linear};

pub(super) fn named(name: &str) -> NewSnapshot {
    NewSnapshot { name: name.into(), read_only: false, held: false }
}

pub(super) async fn make(world: &World, origin: Device, store: Device, id: u128) -> Rc<SnapshotStore> {
    let arena = world.arena();
    SnapshotStore::format(&store, &arena, FormatOptions::new(Uuid::from_u128(id)))
        .await
        .expect("large enough");
    open(world, origin, store).await.expect("just formatted")
}

async fn open(world: &World, origin: Device, store: Device) -> Result<Rc<SnapshotStore>, StoreError> {
    SnapshotStore::open(origin, store, world.arena(), world.clock(), StoreOptions::default()).await
}

pub(super) async fn write(
    device: &Device,
    world: &World,
    offset: u64,
    length: usize,
    byte: u8,
) -> Result<(), IoError> {
    let data = world.arena().copy(&vec![byte; length]);
    device.write(offset, data, Durability::Volatile).await.map(drop)
}

/// The byte that fills each 4 KiB part.
pub(super) async fn bytes(device: &Device, world: &World) -> Vec<u8> {
    let length = usize::try_from(device.shape().size).expect("small");
    let content = device.read(0, world.arena().take(length)).await.expect("readable");
    let byte = |part: &[u8]| {
        assert!(part.iter().all(|byte| *byte == part[0]), "a part is torn");
        part[0]
    };
    content.chunks(4096).map(byte).collect()
}

#[test]
fn a_full_store_loses_nothing_and_frees_itself_by_removals() {
    let world = World::new(1);
    let (origin, store) = (SimDisk::new(MIB), SimDisk::new(256 * KIB));
    world.run(async {
        let store = make(&world, origin.device(&world), store.device(&world), 1).await;
        let front = store.origin();
        write(&front, &world, 0, 1 << 20, 1).await.expect("no snapshot, no copy");
        let first = store.create(&named("first")).await.expect("space");
        let mut done = 0;
        while write(&front, &world, done * 4096, 4096, 2).await.is_ok() {
            done += 1;
        }
        assert!(done > 30, "most of the store holds data: {done}");
        assert_eq!(write(&front, &world, done * 4096, 4096, 2).await, Err(IoError::NoSpace));
        for part in 0..done {
            write(&front, &world, part * 4096, 4096, 3).await.expect("what is preserved can be written");
        }
        let second = store.create(&named("second")).await.expect("creating takes next to nothing");
        let old = bytes(&store.snapshot(first).expect("there"), &world).await;
        assert!(old.iter().all(|byte| *byte == 1), "the snapshot is what it was");
        let now = bytes(&front, &world).await;
        assert_eq!(now[usize::try_from(done).expect("small") - 1], 3, "what was written last");
        let gone = store.snapshot(first).expect("there");
        store.remove(first).await.expect("removals work in a full store");
        assert_eq!(gone.flush().await.err(), Some(IoError::Gone));
        for part in 0..done {
            write(&front, &world, part * 4096, 4096, 4).await.expect("its space is free again");
        }
        let then = bytes(&store.snapshot(second).expect("there"), &world).await;
        assert_eq!(then, now);
        store.verify().await.expect("readable");
    });
}

#[test]
fn a_rollback_in_a_full_store_shows_the_old_state_and_goes_on_when_there_is_space() {
    let world = World::new(1);
    let (origin, store) = (SimDisk::new(MIB), SimDisk::new(2 * MIB));
    world.run(async {
        let sized = |size| Device::new(Linear::new(vec![(size, store.device(&world), 0)]));
        let store = make(&world, origin.device(&world), sized(320 * KIB), 1).await;
        let front = store.origin();
        write(&front, &world, 0, 1 << 20, 1).await.expect("no snapshot, no copy");
        let first = store.create(&named("first")).await.expect("space");
        let mut done = 0;
        while done < 40 && write(&front, &world, done * 4096, 4096, 2).await.is_ok() {
            done += 1;
        }
        let second = store.create(&named("second")).await.expect("creating takes next to nothing");
        let failed = store.rollback(first, &Progress::default()).await;
        assert_eq!(failed, Err(StoreError::NoSpace), "a rollback needs copies for the second");
        let status = store.rollback_status().expect("it goes on");
        assert_eq!((status.snapshot, status.total), (first, MIB));
        assert!(bytes(&front, &world).await.iter().all(|byte| *byte == 1), "ROLLBACK1: at once");
        assert_eq!(store.remove(first).await, Err(StoreError::Busy), "ROLLBACK2");
        let kept = bytes(&store.snapshot(second).expect("there"), &world).await;
        assert!(kept[..40].iter().all(|it| *it == 2) && kept[40..].iter().all(|it| *it == 1), "ROLLBACK4");
        store.grown(sized(2 * MIB)).expect("it grows");
        store.finish_rollback(&Progress::default()).await.expect("space");
        assert_eq!(store.rollback_status(), None);
        assert!(bytes(&front, &world).await.iter().all(|byte| *byte == 1));
        assert_eq!(bytes(&store.snapshot(second).expect("there"), &world).await, kept, "ROLLBACK4");
        store.remove(first).await.expect("nothing holds it any more");
        assert_eq!(bytes(&store.snapshot(second).expect("there"), &world).await, kept);
        store.verify().await.expect("readable");
    });
}

/// An origin of 64 parts that are all 1, a snapshot of it, then 16 parts that are 2, a second snapshot, then eight
/// more that are 3; and in the first snapshot the last part was written, with 4.
async fn layered(world: &World, origin: Device, store: Device) -> (Rc<SnapshotStore>, u64, u64) {
    let store = make(world, origin, store, 1).await;
    let front = store.origin();
    write(&front, world, 0, 64 * 4096, 1).await.expect("no copy");
    let first = store.create(&named("first")).await.expect("space");
    write(&front, world, 0, 16 * 4096, 2).await.expect("space");
    let second = store.create(&named("second")).await.expect("space");
    write(&front, world, 8 * 4096, 16 * 4096, 3).await.expect("space");
    write(&store.snapshot(first).expect("there"), world, 63 * 4096, 4096, 4).await.expect("space");
    (store, first, second)
}

#[test]
fn a_rollback_is_seen_at_once_and_restored_in_batches_across_a_crash_while_all_is_in_use() {
    let world = World::new(12);
    let (origin, disk) = (SimDisk::new(256 * KIB), SimDisk::new(4 * MIB));
    let expected = |runs: &[(usize, u8)]| -> Vec<u8> {
        runs.iter().flat_map(|(count, byte)| std::iter::repeat_n(*byte, *count)).collect()
    };
    let second_shows = expected(&[(16, 2), (48, 1)]);
    let third = world.run(async {
        let (store, first, second) = layered(&world, origin.device(&world), disk.device(&world)).await;
        let front = store.origin();
        let before = origin.counters().writes;
        store.begin_rollback(first).await.expect("space");
        assert_eq!(origin.counters().writes, before, "nothing is copied before it returns");
        assert_eq!(bytes(&front, &world).await, expected(&[(63, 1), (1, 4)]), "ROLLBACK1: and what it has");
        assert_eq!(store.begin_rollback(second).await, Err(StoreError::Busy));
        assert_eq!(store.diff(first, None).await, Ok(vec![]), "both are found at the same places");
        // A change of a pending part, one of half a part, one of the target, and a snapshot in between.
        write(&front, &world, 4096, 4096, 5).await.expect("space");
        write(&front, &world, 3 * 4096, 512, 1).await.expect("space");
        write(&store.snapshot(first).expect("there"), &world, 10 * 4096, 4096, 6).await.expect("space");
        let third = store.create(&named("third")).await.expect("space");
        write(&front, &world, 12 * 4096, 4096, 7).await.expect("space");
        front.flush().await.expect("no faults");
        store.snapshot(first).expect("there").flush().await.expect("no faults");
        assert_eq!(store.continue_rollback(4096).await, Ok(true));
        let status = store.rollback_status().expect("under way");
        assert!(status.done > 0 && status.done < status.total, "{status:?}");
        third
    });
    world.crash(CrashKind::Power);
    let check = async |store: &Rc<SnapshotStore>| {
        let show = async |id| bytes(&store.snapshot(id).expect("there"), &world).await;
        let origin = expected(&[(1, 1), (1, 5), (10, 1), (1, 7), (50, 1), (1, 4)]);
        assert_eq!(bytes(&store.origin(), &world).await, origin, "ROLLBACK1, ROLLBACK3");
        assert_eq!(show(2).await, second_shows, "ROLLBACK4: newer than the target");
        assert_eq!(show(1).await, expected(&[(10, 1), (1, 6), (52, 1), (1, 4)]), "ROLLBACK2");
        assert_eq!(show(third).await, expected(&[(1, 1), (1, 5), (61, 1), (1, 4)]), "ROLLBACK4");
    };
    world.run(async {
        let store = open(&world, origin.device(&world), disk.device(&world)).await.expect("sound");
        assert!(store.rollback_status().is_some(), "a restart does not forget it, nor wait for it");
        check(&store).await;
        let text = dump_store(&disk.device(&world), &world.arena()).await.expect("sound");
        assert!(text.contains("\nrollback 1 3\nrestored 1 0 "), "{text}");
        while store.continue_rollback(4096).await.expect("space") {
            check(&store).await;
        }
        check(&store).await;
        assert_eq!(store.rollback_status(), None);
        store.verify().await.expect("readable");
        store.begin_rollback(third).await.expect("the next one");
        let (of_third, of_origin) = (store.snapshot(third).expect("there"), store.origin());
        assert_eq!(bytes(&of_origin, &world).await, bytes(&of_third, &world).await);
        restore_text(&world, &disk).await;
    });
}

/// Writes a store's metadata as text, and restores that in its place: the text does not change.
async fn restore_text(world: &World, disk: &SimDisk) {
    let device = disk.device(world);
    let text = dump_store(&device, &world.arena()).await.expect("sound");
    restore_store(&device, &world.arena(), &text).await.expect("there is space");
    let body = |text: &str| text.split_once(" next ").expect("a head").1.to_owned();
    let again = dump_store(&device, &world.arena()).await.expect("sound");
    assert_eq!(body(&again), body(&text), "STORETEXT1");
}

#[test]
fn while_the_origin_is_rolled_back_holes_are_said_where_the_target_has_them() {
    let world = World::new(13);
    let (origin, disk) = (SimDisk::new(256 * KIB), SimDisk::new(4 * MIB));
    world.run(async {
        let (store, first, _) = layered(&world, origin.device(&world), disk.device(&world)).await;
        let view = store.snapshot(first).expect("there");
        view.zero(Extent::new(40 * 4096, 8 * 4096), ZeroOptions::default()).await.expect("space");
        store.begin_rollback(first).await.expect("space");
        let holes = async |device: &Device| {
            let mut holes = 0;
            let mut at = 0;
            while at < device.shape().size {
                let rest = Extent::between(at, device.shape().size);
                for run in device.status(rest).await.expect("no faults") {
                    at += run.length;
                    holes += if run.allocation == Allocation::Data { 0 } else { run.length };
                }
            }
            holes
        };
        assert_eq!(holes(&store.origin()).await, 8 * 4096);
        assert_eq!(holes(&store.origin()).await, holes(&view).await);
        let fast = ZeroOptions { fast: true, ..ZeroOptions::default() };
        let refused = store.origin().zero(Extent::new(0, 4096), fast).await.err();
        assert_eq!(refused, Some(IoError::Unsupported), "a pending part has to be seen to first");
        store.finish_rollback(&Progress::default()).await.expect("space");
        assert_eq!(bytes(&store.origin(), &world).await, bytes(&view, &world).await);
        store.verify().await.expect("readable");
    });
}

#[test]
fn snapshots_of_several_origins_share_one_instant() {
    run_seeds(test_name!("snapshots_of_several_origins_share_one_instant"), 200, |seed| {
        let world = World::new(seed);
        let disks: Vec<SimDisk> = (0..4).map(|_| SimDisk::new(256 * KIB)).collect();
        world.run(async {
            let one = make(&world, disks[0].device(&world), disks[1].device(&world), 1).await;
            let two = make(&world, disks[2].device(&world), disks[3].device(&world), 2).await;
            // A writer that writes the second only when the first is done: the second never runs ahead.
            let (first, second, arena) = (one.origin(), two.origin(), world.arena());
            world.spawner().spawn(async move {
                for number in 1..=200 {
                    for device in [&first, &second] {
                        let data = arena.copy(&[number; 512]);
                        device.write(0, data, Durability::Volatile).await.expect("space");
                    }
                }
            });
            let mut random = world.random();
            for round in 0..5 {
                world.clock().sleep(Duration::from_micros(random.below(3000))).await;
                let name = format!("group.{round}");
                let frozen = futures_util::join!(one.freeze(), two.freeze());
                let (here, there) = (frozen.0.expect("no faults"), frozen.1.expect("no faults"));
                let pending: [Pending; 2] =
                    [here.create(&named(&name)).expect("new"), there.create(&named(&name)).expect("new")];
                drop((here, there));
                let [here, there] = pending;
                let (here, there) = futures_util::join!(here.commit(), there.commit());
                let read = async |store: &Rc<SnapshotStore>, id| {
                    let view = store.snapshot(id).expect("there");
                    view.read(0, world.arena().take(512)).await.expect("readable")[0]
                };
                let numbers =
                    (read(&one, here.expect("space")).await, read(&two, there.expect("space")).await);
                assert!(numbers.0 == numbers.1 || numbers.0 == numbers.1 + 1, "one instant: {numbers:?}");
            }
        });
    });
}

#[test]
fn when_the_store_fails_the_origin_lives_on_where_no_copy_is_needed() {
    let world = World::new(4);
    let (origin, disk) = (SimDisk::new(MIB), SimDisk::new(MIB));
    world.run(async {
        let switch = Switch::new(disk.device(&world));
        let store = make(&world, origin.device(&world), switch.device(), 1).await;
        store.create(&named("first")).await.expect("space");
        let front = store.origin();
        write(&front, &world, 0, 4096, 1).await.expect("preserved");
        switch.suspend().await.replace(Device::new(ErrorTarget::new(MIB, 512, IoError::Medium)));
        assert_eq!(write(&front, &world, 4096, 4096, 1).await, Err(IoError::Medium));
        write(&front, &world, 0, 4096, 2).await.expect("needs no copy");
        assert_eq!(bytes(&front, &world).await[..2], [2, 0], "what could not be preserved was not changed");
        // The device comes back, but what it holds is not known any more: only a new start helps.
        switch.suspend().await.replace(disk.device(&world));
        assert_eq!(write(&front, &world, 4096, 4096, 1).await, Err(IoError::Medium));
        let store = open(&world, origin.device(&world), disk.device(&world)).await.expect("sound");
        write(&store.origin(), &world, 4096, 4096, 1).await.expect("preserved");
    });
}

#[test]
fn zeros_in_a_snapshot_take_no_space_and_survive() {
    let world = World::new(5);
    let (origin, disk) = (SimDisk::new(MIB), SimDisk::new(MIB));
    world.run(async {
        let store = make(&world, origin.device(&world), disk.device(&world), 1).await;
        write(&store.origin(), &world, 0, 1 << 20, 1).await.expect("no copy");
        let id = store.create(&named("first")).await.expect("space");
        let view = store.snapshot(id).expect("there");
        write(&view, &world, 8192, 8192, 2).await.expect("space");
        let used = store.snapshot_bytes()[&id].written;
        view.zero(Extent::new(0, 512 * KIB), ZeroOptions::default()).await.expect("next to no space");
        assert_eq!((used, store.snapshot_bytes()[&id].written), (8192, 0));
        view.flush().await.expect("no faults");
    });
    world.crash(CrashKind::Power);
    world.run(async {
        let store = open(&world, origin.device(&world), disk.device(&world)).await.expect("sound");
        let view = store.snapshot(1).expect("there");
        let content = bytes(&view, &world).await;
        assert!(content[..128].iter().all(|byte| *byte == 0) && content[128..].iter().all(|byte| *byte == 1));
    });
}

#[test]
fn a_diff_names_exactly_the_parts_that_were_changed_between() {
    let world = World::new(7);
    let (origin, disk) = (SimDisk::new(2 * MIB), SimDisk::new(4 * MIB));
    world.run(async {
        let parts = |first: u64, count: u64| Extent::new(first * 4096, count * 4096);
        let half = Device::new(Linear::new(vec![(MIB, origin.device(&world), 0)]));
        let store = make(&world, half, disk.device(&world), 1).await;
        write(&store.origin(), &world, 0, 1 << 20, 1).await.expect("no copy");
        let one = store.create(&named("one")).await.expect("space");
        write(&store.origin(), &world, 15 * 4096, 3 * 4096, 2).await.expect("space");
        let two = store.create(&named("two")).await.expect("space");
        write(&store.origin(), &world, 100 * 4096 + 512, 512, 3).await.expect("space");
        let three = store.create(&named("three")).await.expect("space");
        write(&store.origin(), &world, 16 * 4096, 4096, 4).await.expect("space");
        let view = store.snapshot(two).expect("there");
        write(&view, &world, 200 * 4096, 4096, 5).await.expect("space");

        assert_eq!(store.diff(one, Some(one)).await, Ok(vec![]));
        assert_eq!(store.diff(one, Some(two)).await, Ok(vec![parts(15, 3), parts(200, 1)]), "STOREDIFF2");
        assert_eq!(store.diff(two, Some(one)).await, store.diff(one, Some(two)).await);
        assert_eq!(store.diff(two, Some(three)).await, Ok(vec![parts(100, 1), parts(200, 1)]));
        assert_eq!(store.diff(one, Some(three)).await, Ok(vec![parts(15, 3), parts(100, 1)]));
        assert_eq!(store.diff(three, None).await, Ok(vec![parts(16, 1)]));
        store.origin_resized(origin.device(&world)).expect("it grows");
        assert_eq!(store.diff(three, None).await, Ok(vec![parts(16, 1), parts(256, 256)]), "and what is new");
        // What came between is found although the snapshot that kept it is gone.
        store.remove(two).await.expect("not held");
        assert_eq!(store.diff(one, Some(three)).await, Ok(vec![parts(15, 3), parts(100, 1)]));
        assert_eq!(store.diff(one, Some(two)).await, Err(StoreError::NotFound));
    });
}

#[test]
fn a_removal_returns_at_once_and_gives_space_back_in_batches_across_a_restart() {
    let world = World::new(8);
    let (origin, disk) = (SimDisk::new(MIB), SimDisk::new(4 * MIB));
    let (first, second) = world.run(async {
        let store = make(&world, origin.device(&world), disk.device(&world), 1).await;
        write(&store.origin(), &world, 0, 1 << 20, 1).await.expect("no copy");
        let first = store.create(&named("first")).await.expect("space");
        let second = store.create(&named("second")).await.expect("space");
        for part in 0..256 {
            write(&store.origin(), &world, part * 4096, 4096, 2).await.expect("space");
        }
        let view = store.snapshot(second).expect("there");
        write(&view, &world, 0, 64 << 10, 3).await.expect("space");
        view.flush().await.expect("no faults");
        assert_eq!(
            store.removals_free(&[second]).await,
            Ok(64 << 10),
            "the first needs all that was preserved"
        );
        assert_eq!(store.removals_free(&[first]).await, Ok(0));
        let all = (64 << 10) + MIB;
        assert_eq!(store.removals_free(&[first, second]).await, Ok(all), "nobody is left who needs it");
        assert_eq!(store.removals_free(&[first, 99]).await, Err(StoreError::NotFound));
        store.begin_removal(second).await.expect("not held");
        assert_eq!(view.flush().await.err(), Some(IoError::Gone));
        assert_eq!((store.list().len(), store.removals().len()), (1, 1));
        // Its name is free at once.
        let third = store.create(&named("second")).await.expect("space");
        write(&store.origin(), &world, 0, 64 << 10, 4).await.expect("space");
        let mut seen = 0;
        while seen < MIB / 2 {
            assert_eq!(store.reclaim(1).await, Ok(true), "there is more to do");
            assert!(store.removals()[0].done >= seen, "progress goes one way");
            seen = store.removals()[0].done;
            let content = bytes(&store.snapshot(first).expect("there"), &world).await;
            assert!(content.iter().all(|byte| *byte == 1), "SNAPREMOVE2");
        }
        (first, third)
    });
    world.crash(CrashKind::Power);
    world.run(async {
        let store = open(&world, origin.device(&world), disk.device(&world)).await.expect("sound");
        assert_eq!(store.removals().len(), 1, "a restart does not forget it");
        let used =
            |store: &SnapshotStore| store.snapshot_bytes().values().map(|bytes| bytes.written).sum::<u64>();
        assert_eq!(used(&store), 64 << 10);
        while store.reclaim(2).await.expect("no faults") {}
        assert_eq!((store.removals().len(), used(&store)), (0, 0));
        let content = bytes(&store.snapshot(first).expect("there"), &world).await;
        assert!(content.iter().all(|byte| *byte == 1));
        let content = bytes(&store.snapshot(second).expect("there"), &world).await;
        assert!(content.iter().all(|byte| *byte == 2));
        store.remove(first).await.expect("not held");
        assert_eq!(
            store.snapshot_bytes()[&second].preserved,
            64 << 10,
            "what only the first had is given back"
        );
        assert_eq!(store.snapshot_bytes().len(), 1);
        store.verify().await.expect("readable");
    });
}

#[test]
fn independent_snapshots_keep_their_own_copies_across_a_crash_and_the_damage_of_others() {
    run_seeds(
        test_name!("independent_snapshots_keep_their_own_copies_across_a_crash_and_the_damage_of_others"),
        200,
        |seed| {
            let world = World::new(seed);
            let origin = SimDisk::new(256 * KIB);
            let disks: Vec<SimDisk> = (0..3).map(|_| SimDisk::new(MIB)).collect();
            let mut random = world.random();
            let mut taken: Vec<Vec<u8>> = Vec::new();
            world.schedule(varve_sim::CrashAt::Event(random.between(150, 900)), CrashKind::Power);
            let mut choices = random.fork();
            let ran = world.run_until_crash(async {
                let mut stores: Vec<Rc<SnapshotStore>> = Vec::new();
                for (number, disk) in disks.iter().enumerate() {
                    stores.push(
                        make(&world, origin.device(&world), disk.device(&world), number as u128 + 1).await,
                    );
                }
                let front = side_by_side(&stores).expect("one origin");
                for (number, store) in stores.iter().enumerate() {
                    for _ in 0..8 {
                        let byte = u8::try_from(choices.between(1, 250)).expect("small");
                        write(&front, &world, choices.below(60) * 4096, 16 << 10, byte).await.expect("space");
                    }
                    taken.push(bytes(&front, &world).await);
                    let id = store.create(&named(&format!("s{number}"))).await.expect("space");
                    let refused = store.rollback(id, &Progress::default()).await;
                    assert!(matches!(refused, Err(StoreError::Misfit(_))), "SIBLINGS3");
                }
                loop {
                    let byte = u8::try_from(choices.between(1, 250)).expect("small");
                    let writes = (0..4).map(|_| choices.below(60) * 4096).collect::<Vec<_>>();
                    let writes = writes.into_iter().map(|at| write(&front, &world, at, 16 << 10, byte));
                    let frozen = async {
                        if byte < 20 {
                            let both = futures_util::join!(stores[0].freeze(), stores[2].freeze());
                            assert!(both.0.is_ok() && both.1.is_ok(), "SIBLINGS2: both gates close");
                        }
                    };
                    futures_util::join!(futures_util::future::join_all(writes), frozen);
                    world.clock().sleep(Duration::from_micros(10)).await;
                }
            });
            assert!(ran.crashed());
            world.run(async {
                let damaged = random.below(3);
                for (number, disk) in disks.iter().enumerate() {
                    let device = disk.device(&world);
                    if number as u64 == damaged {
                        write(&device, &world, 0, 1 << 20, 0x55).await.expect("no faults");
                        continue;
                    }
                    let opened = open(&world, origin.device(&world), device).await;
                    if number >= taken.len() {
                        continue; // The crash may have come before there was anything.
                    }
                    let store = opened.expect("the damage of others does not matter");
                    for descriptor in store.list() {
                        let content = bytes(&store.snapshot(descriptor.id).expect("listed"), &world).await;
                        assert_eq!(content, taken[number], "SIBLINGS1: store {number}");
                    }
                }
            });
        },
    );
}

#[test]
fn metadata_written_as_text_brings_a_store_back_whose_superblocks_are_lost() {
    let world = World::new(11);
    let (origin, disk) = (SimDisk::new(MIB), SimDisk::new(2 * MIB));
    world.run(async {
        let device = disk.device(&world);
        let (store, mut ids) = (make(&world, origin.device(&world), device.clone(), 0xabc).await, Vec::new());
        for (byte, held) in [(1, false), (2, true), (3, false)] {
            write(&store.origin(), &world, 0, usize::from(byte) * 40_960, byte).await.expect("space");
            let name = format!("s{byte}");
            ids.push(store.create(&NewSnapshot { name, read_only: held, held }).await.expect("space"));
        }
        write(&store.origin(), &world, 0, 1 << 19, 4).await.expect("space");
        let view = store.snapshot(ids[0]).expect("there");
        write(&view, &world, 65_536, 8192, 5).await.expect("space");
        view.zero(Extent::new(0, 8192), ZeroOptions::default()).await.expect("space");
        view.flush().await.expect("no faults");
        store.begin_removal(ids[2]).await.expect("not held");
        store.set_base(ids[0], true).await.expect("space");
        assert_eq!(store.begin_removal(ids[0]).await, Err(StoreError::Held), "others are backed by it");
        let all = async |store: &Rc<SnapshotStore>| {
            let mut all = Vec::new();
            for descriptor in store.list() {
                all.push(bytes(&store.snapshot(descriptor.id).expect("listed"), &world).await);
            }
            (store.list(), all)
        };
        let before = all(&store).await;
        let text = dump_store(&device, &world.arena()).await.expect("sound");
        let shown =
            [" base\nsnapshot 2 s2 ", " held\nsnapshot 3 s3"].iter().all(|lines| text.contains(lines));
        assert!(shown && text.ends_with("\nremoved 3\n"), "{text}");
        write(&device, &world, 0, 8192, 0x55).await.expect("no faults");
        assert!(open(&world, origin.device(&world), device.clone()).await.is_err());
        restore_store(&device, &world.arena(), &text).await.expect("there is space");
        let body = |text: &str| text.split_once(" next ").expect("a head").1.to_owned();
        let again = dump_store(&device, &world.arena()).await.expect("sound");
        assert!(body(&again) == body(&text), "STORETEXT1");
        let store = open(&world, origin.device(&world), device.clone()).await.expect("sound");
        assert_eq!(all(&store).await, before, "STORETEXT2: every snapshot reads what it did");
        store.verify().await.expect("readable");
        let head = text.split_inclusive('\n').take(2).collect::<String>();
        let first = "snapshot 1 a created 0 size 1048576\n";
        for bad in [
            "".to_owned(),
            "varve-exception-store 2\n".to_owned(),
            head.replace(" chunk 65536", " chunk 65537"),
            format!("{head}snapshot 4 a created 0 size 1048576\n"),
            format!("{head}snapshot 1 a created 0 size 1048577\n"),
            format!("{head}snapshot 1 a/b created 0 size 1048576\n"),
            format!("{head}snapshot 1 a created 0 size 1048576 holy\n"),
            format!("{head}snapshot 1 a created 0 size 1048576 base held\n"),
            format!("{head}preserved 1 0 4096 8192\n"),
            format!("{head}{first}preserved 1 1048576 4096 8192\n"),
            format!("{head}{first}preserved 1 0 4096 4096\n"),
            format!("{head}{first}preserved 1 0 4096 0\n"),
            format!("{head}{first}preserved 1 0 4096 2097152\n"),
            format!("{head}{first}preserved 1 0 4096 8192\npreserved 1 0 4096 12288\n"),
            format!("{head}{first}preserved 1 0 4096 8192\nwritten 1 0 4096 8192\n"),
            format!("{head}{first}rollback 2 3\n"),
            format!("{head}{first}rollback 1 1\n"),
            format!("{head}{first}rollback 1 2\nremoved 1\n"),
            format!("{head}{first}rollback 1 99\n"),
            format!("{head}{first}rollback 1 2\nrestored 1 0 100\n"),
        ] {
            assert!(restore_store(&device, &world.arena(), &bad).await.is_err(), "STORETEXT1: {bad}");
        }
        let kept = open(&world, origin.device(&world), device).await;
        assert_eq!(all(&kept.expect("what is refused changes nothing")).await, before);
    });
}

#[test]
fn damage_anywhere_is_an_error_or_harmless_and_never_a_panic() {
    run_seeds(test_name!("damage_anywhere_is_an_error_or_harmless_and_never_a_panic"), 500, |seed| {
        let world = World::new(seed);
        let mut random = world.random();
        let (origin, disk) = (SimDisk::new(256 * KIB), SimDisk::new(256 * KIB));
        world.run(async {
            let mut store = make(&world, origin.device(&world), disk.device(&world), 1).await;
            for step in 0..12 {
                if step == 6 {
                    store = open(&world, origin.device(&world), disk.device(&world)).await.expect("sound");
                }
                if random.chance(1, 3) {
                    store.create(&named(&format!("s{step}"))).await.expect("space");
                }
                let _ = write(&store.origin(), &world, random.below(60) * 4096, 8192, 7).await;
            }
            let device = disk.device(&world);
            for _ in 0..random.between(1, 4) {
                let sectors = if random.chance(1, 2) { 16 } else { 500 };
                let offset = random.below(sectors) * 512;
                let mut sector = world.arena().take(512);
                random.fill(&mut sector);
                device.write(offset, sector.freeze(), Durability::Durable).await.expect("no faults");
            }
            if let Ok(store) = open(&world, origin.device(&world), device).await {
                for descriptor in store.list() {
                    let view = store.snapshot(descriptor.id).expect("listed");
                    let read = view.read(0, world.arena().take(256 << 10)).await;
                    assert!(matches!(read, Ok(_) | Err(IoError::Corrupt)), "every place is inside: {read:?}");
                }
                assert!(matches!(store.verify().await, Ok(()) | Err(IoError::Corrupt)));
            }
        });
    });
}
