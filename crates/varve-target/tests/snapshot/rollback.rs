//! Rollbacks across crashes: what the target shows, how far it reaches, and what came before and after.

use std::cell::Cell;
use std::rc::Rc;
use varve_block::{Allocation, Device, Durability, Extent, IoError, KIB, MIB};
use varve_sim::{CrashKind, SimDisk, World, for_each_crash_point};
use varve_target::Linear;
use varve_target::snapshot::{FormatOptions, NewSnapshot, SnapshotStore, StoreError, StoreOptions, Uuid};

const PART: u64 = 4 * KIB;

fn named(name: &str) -> NewSnapshot {
    NewSnapshot { name: name.into(), read_only: false, held: false }
}

async fn make(world: &World, origin: Device, store: Device) -> Rc<SnapshotStore> {
    let options = FormatOptions::new(Uuid::from_u128(1));
    SnapshotStore::format(&store, &world.arena(), options).await.expect("large enough");
    open(world, origin, store).await.expect("just formatted")
}

async fn open(world: &World, origin: Device, store: Device) -> Result<Rc<SnapshotStore>, StoreError> {
    SnapshotStore::open(origin, store, world.arena(), world.clock(), StoreOptions::default()).await
}

/// Writes parts of 4 KiB.
async fn write(device: &Device, world: &World, part: u64, count: u64, byte: u8) -> Result<(), IoError> {
    let data = vec![byte; usize::try_from(count * PART).expect("small")];
    device.write(part * PART, world.arena().copy(&data), Durability::Volatile).await.map(drop)
}

/// The first byte of each part.
async fn bytes(device: &Device, world: &World) -> Vec<u8> {
    let length = usize::try_from(device.shape().size).expect("small");
    let content = device.read(0, world.arena().take(length)).await.expect("readable");
    content.chunks(4096).map(|part| part[0]).collect()
}

/// The origin at the size that it had when the target was taken, and as it is now.
const OLD: u64 = 16 * PART;
const NEW: u64 = 40 * PART;

fn sized(world: &World, origin: &SimDisk, bytes: u64) -> Device {
    Device::new(Linear::new(vec![(bytes, origin.device(world), 0)]))
}

/// What an origin of `NEW` bytes shows: bytes of parts and how many.
fn shows(runs: &[(usize, u8)]) -> Vec<u8> {
    runs.iter().flat_map(|(count, byte)| std::iter::repeat_n(*byte, *count)).collect()
}

/// An origin that grew after a snapshot was taken, with another one of after that.
async fn grown(world: &World, origin: &SimDisk, disk: &SimDisk) -> Rc<SnapshotStore> {
    let store = make(world, sized(world, origin, OLD), disk.device(world)).await;
    write(&store.origin(), world, 0, 16, 1).await.expect("no copy");
    store.create(&named("target")).await.expect("space");
    store.origin_resized(sized(world, origin, NEW)).expect("larger");
    write(&store.origin(), world, 8, 32, 2).await.expect("space");
    store.create(&named("newer")).await.expect("space");
    write(&store.origin(), world, 30, 10, 3).await.expect("space");
    store.origin().flush().await.expect("no faults");
    store
}

#[test]
fn what_an_origin_grew_by_is_zeros_from_the_instant_of_a_rollback_on() {
    let before = shows(&[(8, 1), (22, 2), (10, 3)]);
    let after = shows(&[(16, 1), (24, 0)]);
    let outcomes = [Cell::new(0), Cell::new(0)];
    for_each_crash_point(4, |world| {
        let (origin, disk, begun) = (SimDisk::new(NEW), SimDisk::new(MIB), Cell::new(false));
        let crashed = world.run_until_crash(async {
            let store = grown(world, &origin, &disk).await;
            let front = store.origin();
            assert_eq!(bytes(&front, world).await, before);
            store.begin_rollback(1).await.expect("space");
            begun.set(true);
            assert_eq!(bytes(&front, world).await, after, "ROLLBACK1, ROLLBACK7: at once");
            assert_eq!(
                front.status(Extent::new(OLD, PART)).await.expect("no faults")[0].allocation,
                Allocation::Hole
            );
            let status = store.rollback_status().expect("under way");
            assert_eq!((status.done, status.total), (0, NEW));
            while store.continue_rollback(8 * PART).await.expect("space") {
                assert_eq!(bytes(&front, world).await, after, "ROLLBACK7: in between");
            }
        });
        if !crashed.crashed() || !begun.get() {
            return;
        }
        world.run(async {
            let store = open(world, sized(world, &origin, NEW), disk.device(world)).await.expect("sound");
            let is_over = store.rollback_status().is_none();
            outcomes[usize::from(is_over)].set(outcomes[usize::from(is_over)].get() + 1);
            assert_eq!(bytes(&store.origin(), world).await, after, "ROLLBACK7: behind a crash");
            let newer = store.snapshot(2).expect("there");
            assert_eq!(bytes(&newer, world).await, shows(&[(8, 1), (32, 2)]), "ROLLBACK4: it had all of it");
            while store.continue_rollback(MIB).await.expect("space") {}
            assert_eq!(bytes(&store.origin(), world).await, after, "ROLLBACK7: when all is restored");
            assert_eq!(bytes(&newer, world).await, shows(&[(8, 1), (32, 2)]), "ROLLBACK4");
            store.verify().await.expect("readable");
        });
    });
    assert!(
        outcomes.iter().all(|count| count.get() > 0),
        "crashes before the end and behind it: {outcomes:?}"
    );
}

#[test]
fn changes_beyond_the_end_of_the_target_are_what_was_written_and_zeros_around_it() {
    let world = World::new(2);
    let (origin, disk) = (SimDisk::new(2 * NEW), SimDisk::new(MIB));
    let shown = shows(&[(16, 1), (4, 0), (2, 4), (13, 0), (1, 5), (4, 0)]);
    world.run(async {
        let store = grown(&world, &origin, &disk).await;
        let front = store.origin();
        store.begin_rollback(1).await.expect("space");
        write(&front, &world, 20, 2, 4).await.expect("space");
        // Half a part: the rest of it is zeros.
        front.write(35 * PART, world.arena().copy(&[5; 512]), Durability::Durable).await.expect("space");
        let third = store.create(&named("third")).await.expect("space");
        assert_eq!(store.diff(third, None).await, Ok(vec![]), "both show zeros there");
        let differs = store.diff(2, None).await.expect("readable");
        assert!(differs.contains(&Extent::new(8 * PART, 32 * PART)), "STOREDIFF1: {differs:?}");
        write(&front, &world, 25, 1, 6).await.expect("space");
        assert_eq!(
            bytes(&store.snapshot(third).expect("there"), &world).await,
            shown,
            "ROLLBACK4: taken meanwhile"
        );
        write(&front, &world, 25, 1, 0).await.expect("space");
        front.flush().await.expect("no faults");
        let half = front.read(35 * PART, world.arena().take(4096)).await.expect("no faults");
        assert!(half[..512] == [5; 512] && half[512..].iter().all(|byte| *byte == 0), "ROLLBACK7: around it");
    });
    world.crash(CrashKind::Power);
    world.run(async {
        let store = open(&world, sized(&world, &origin, NEW), disk.device(&world)).await.expect("sound");
        assert_eq!(bytes(&store.origin(), &world).await, shown, "ROLLBACK3, ROLLBACK7");
        // It grows once more: that part is new, and zeros as well.
        write(&origin.device(&world), &world, 40, 40, 9).await.expect("no faults");
        store.origin_resized(sized(&world, &origin, 2 * NEW)).expect("larger");
        let larger = shows(&[(16, 1), (4, 0), (2, 4), (13, 0), (1, 5), (44, 0)]);
        assert_eq!(bytes(&store.origin(), &world).await, larger);
        assert_eq!(store.rollback_status().expect("under way").total, 2 * NEW);
        while store.continue_rollback(MIB).await.expect("space") {}
        assert_eq!(bytes(&store.origin(), &world).await, larger);
        let third = store.snapshot(3).expect("there");
        assert_eq!(bytes(&third, &world).await, shown, "it is as large as the origin was");
        store.verify().await.expect("readable");
    });
}

#[test]
fn what_is_written_to_the_target_while_a_rollback_begins_is_durable_with_it() {
    for seed in 1..60 {
        let world = World::new(seed);
        let (origin, disk) = (SimDisk::new(64 * PART), SimDisk::new(MIB));
        world.run(async {
            let store = make(&world, origin.device(&world), disk.device(&world)).await;
            let front = store.origin();
            write(&front, &world, 0, 64, 1).await.expect("no snapshot");
            let first = store.create(&named("first")).await.expect("space");
            write(&front, &world, 0, 16, 2).await.expect("space");
            front.flush().await.expect("no faults");
            let view = store.snapshot(first).expect("there");
            let (begun, written) =
                futures_util::join!(store.begin_rollback(first), write(&view, &world, 2, 1, 9));
            begun.expect("space");
            written.expect("space");
            assert_eq!(bytes(&front, &world).await[2], 9, "ROLLBACK1: the write came first, or waited");
        });
        world.crash(CrashKind::Power);
        world.run(async {
            let store = open(&world, origin.device(&world), disk.device(&world)).await.expect("sound");
            assert!(store.rollback_status().is_some(), "it was acknowledged");
            assert_eq!(bytes(&store.origin(), &world).await[2], 9, "ROLLBACK2: seed {seed}");
        });
    }
}

#[test]
fn a_snapshot_made_during_a_rollback_is_of_after_it_though_one_was_refused_before() {
    let world = World::new(1);
    let (origin, disk) = (SimDisk::new(MIB), SimDisk::new(192 * KIB));
    let name = |number: usize| format!("{number:a>0$}", 100);
    let made = world.run(async {
        let store = make(&world, origin.device(&world), disk.device(&world)).await;
        let front = store.origin();
        write(&front, &world, 0, 256, 1).await.expect("no snapshot");
        let first = store.create(&named("first")).await.expect("space");
        write(&front, &world, 0, 8, 2).await.expect("space");
        let mut made = Vec::new();
        let refused = loop {
            match store.create(&named(&name(made.len()))).await {
                Ok(id) => made.push(id),
                Err(error) => break error,
            }
            assert!(made.len() < 9000, "the store is full some time");
        };
        assert!(matches!(refused, StoreError::NoSpace | StoreError::Io(IoError::NoSpace)), "{refused:?}");
        store.begin_rollback(first).await.expect("space");
        made
    });
    world.crash(CrashKind::Process);
    world.run(async {
        let store = open(&world, origin.device(&world), disk.device(&world)).await.expect("sound");
        assert!(store.rollback_status().is_some(), "a restart does not forget it");
        for id in made.iter().take(made.len() / 2) {
            store.remove(*id).await.expect("there");
        }
        let late = store.create(&named("late")).await.expect("space");
        let (shown, kept) = (
            bytes(&store.origin(), &world).await,
            bytes(&store.snapshot(late).expect("there"), &world).await,
        );
        assert!(shown == kept, "CONTENTS2, ROLLBACK1: it shows what the origin showed");
    });
}

/// Whole parts.
fn parts(first: u64, count: u64) -> Extent {
    Extent::new(first * PART, count * PART)
}

/// Restores all that is left to do, so many parts at a time.
async fn finish(store: &SnapshotStore, batch: u64) {
    while store.continue_rollback(batch * PART).await.expect("space") {}
}

#[test]
fn after_a_rollback_only_what_differs_is_named_and_the_rest_is_free_again() {
    for batch in [1, 3, 1000] {
        let world = World::new(batch);
        let (origin, disk) = (SimDisk::new(NEW), SimDisk::new(4 * MIB));
        world.run(async {
            let store = make(&world, sized(&world, &origin, OLD), disk.device(&world)).await;
            let front = store.origin();
            write(&front, &world, 0, 16, 1).await.expect("no copy");
            let older = store.create(&named("older")).await.expect("space");
            write(&front, &world, 2, 1, 2).await.expect("space");
            let target = store.create(&named("target")).await.expect("space");
            write(&front, &world, 0, 9, 3).await.expect("space");
            write(&front, &world, 11, 2, 3).await.expect("space");
            store.origin_resized(sized(&world, &origin, NEW)).expect("larger");
            let front = store.origin();
            write(&front, &world, 14, 20, 4).await.expect("space");
            store.begin_rollback(target).await.expect("space");
            write(&front, &world, 5, 1, 5).await.expect("space");
            finish(&store, batch).await;
            // The target keeps part 5, which was written since, and the older one part 2.
            assert_eq!(store.diff(target, None).await, Ok(vec![parts(5, 1), parts(16, 24)]), "ROLLBACK8");
            assert_eq!(store.diff(older, Some(target)).await, Ok(vec![parts(2, 1)]), "ROLLBACK8");
            assert_eq!(
                store.diff(older, None).await,
                Ok(vec![parts(2, 1), parts(5, 1), parts(16, 24)]),
                "ROLLBACK8"
            );
            let kept = store.snapshot_bytes();
            assert_eq!((kept[&older].preserved, kept[&target].preserved), (PART, PART), "STOREMAP3");
            // What is changed once more is preserved once more, for both.
            write(&store.origin(), &world, 2, 7, 6).await.expect("space");
            assert_eq!(store.diff(target, None).await, Ok(vec![parts(2, 7), parts(16, 24)]), "SNAPSHOT1");
            store.verify().await.expect("readable");
        });
        world.crash(CrashKind::Power);
        world.run(async {
            let store = open(&world, sized(&world, &origin, NEW), disk.device(&world)).await.expect("sound");
            store.verify().await.expect("readable");
            assert_eq!(
                store.diff(2, None).await,
                Ok(vec![parts(2, 7), parts(16, 24)]),
                "the log says so too"
            );
            let view = async |id| bytes(&store.snapshot(id).expect("there"), &world).await;
            assert_eq!(view(1).await, shows(&[(16, 1)]));
            assert_eq!(view(2).await, shows(&[(2, 1), (1, 2), (13, 1)]));
        });
    }
}

#[test]
fn a_copy_that_something_newer_hides_stays() {
    let world = World::new(3);
    let (origin, disk) = (SimDisk::new(OLD), SimDisk::new(4 * MIB));
    world.run(async {
        let store = make(&world, sized(&world, &origin, OLD), disk.device(&world)).await;
        let front = store.origin();
        write(&front, &world, 0, 16, 1).await.expect("no copy");
        let target = store.create(&named("target")).await.expect("space");
        write(&front, &world, 0, 4, 2).await.expect("space");
        let newer = store.create(&named("newer")).await.expect("space");
        write(&front, &world, 2, 6, 3).await.expect("space");
        let view = store.snapshot(target).expect("there");
        write(&view, &world, 12, 1, 7).await.expect("space");
        store.rollback(target, &Default::default()).await.expect("space");
        // Parts 0 to 3 are preserved for both, 4 to 7 were for both and are on the device again, 12 was written to the target.
        let (hidden, written) = (parts(0, 4), parts(12, 1));
        assert_eq!(store.diff(target, None).await, Ok(vec![hidden, written]), "ROLLBACK8");
        assert_eq!(store.diff(newer, None).await, Ok(vec![hidden, written]), "ROLLBACK8");
        let shown = shows(&[(12, 1), (1, 7), (3, 1)]);
        assert_eq!(bytes(&store.origin(), &world).await, shown);
        assert_eq!(bytes(&view, &world).await, shown);
        let newer = store.snapshot(newer).expect("there");
        assert_eq!(bytes(&newer, &world).await, shows(&[(4, 2), (12, 1)]));
        store.verify().await.expect("readable");
        // A dropped copy is gone for those that are removed meanwhile too.
        store.remove(2).await.expect("not held");
        assert_eq!(bytes(&view, &world).await, shown);
        write(&store.origin(), &world, 0, 16, 8).await.expect("space");
        assert_eq!(bytes(&view, &world).await, shown);
        store.verify().await.expect("readable");
    });
}

#[test]
fn what_a_rollback_drops_is_preserved_again_behind_every_crash() {
    let over = Cell::new(0);
    for_each_crash_point(4, |world| {
        let (origin, disk) = (SimDisk::new(OLD), SimDisk::new(4 * MIB));
        let (begun, written) = (Cell::new(false), Cell::new(false));
        let ran = world.run_until_crash(async {
            let options = FormatOptions::new(Uuid::from_u128(1));
            let device = disk.device(world);
            SnapshotStore::format(&device, &world.arena(), options).await.expect("large enough");
            let often = StoreOptions { log_records: 3, ..StoreOptions::default() };
            let opened =
                SnapshotStore::open(origin.device(world), device, world.arena(), world.clock(), often);
            let store = opened.await.expect("just formatted");
            let front = store.origin();
            write(&front, world, 0, 16, 1).await.expect("no copy");
            store.create(&named("older")).await.expect("space");
            write(&front, world, 9, 1, 2).await.expect("space");
            store.create(&named("target")).await.expect("space");
            write(&front, world, 1, 3, 3).await.expect("space");
            write(&front, world, 6, 6, 3).await.expect("space");
            front.flush().await.expect("no faults");
            store.begin_rollback(2).await.expect("space");
            begun.set(true);
            finish(&store, 2).await;
            written.set(true);
            write(&front, world, 0, 8, 4).await.expect("space");
            front.flush().await.expect("no faults");
        });
        if !ran.crashed() || !begun.get() {
            return;
        }
        world.run(async {
            let store = open(world, origin.device(world), disk.device(world)).await.expect("sound");
            finish(&store, 5).await;
            store.verify().await.expect("readable");
            let target = shows(&[(9, 1), (1, 2), (6, 1)]);
            let view = async |id| bytes(&store.snapshot(id).expect("there"), world).await;
            assert_eq!((view(1).await, view(2).await), (shows(&[(16, 1)]), target.clone()), "ROLLBACK8");
            if !written.get() {
                over.set(over.get() + 1);
                assert_eq!(bytes(&store.origin(), world).await, target, "ROLLBACK1");
                assert_eq!(store.diff(2, None).await, Ok(vec![]), "ROLLBACK8: nothing differs");
            }
            write(&store.origin(), world, 0, 16, 5).await.expect("space");
            assert_eq!((view(1).await, view(2).await), (shows(&[(16, 1)]), target), "SNAPSHOT1");
        });
    });
    assert!(over.get() > 0, "crashes while nothing had been written since");
}
