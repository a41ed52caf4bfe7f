//! Stores that are full: they grow, changes wait for room or snapshots go, as it was declared.

use super::cases::{bytes, make, named, write};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Device, Extent, IoError, KIB, MIB, ZeroOptions};
use varve_sim::{SimDisk, World};
use varve_target::Linear;
use varve_target::snapshot::{
    FormatOptions, FullPolicy, NewSnapshot, SnapshotStore, StoreEvent, StoreOptions, Uuid, side_by_side,
};

/// A store for `origin` that does `full` when it is full.
async fn make_with(world: &World, origin: Device, store: Device, full: FullPolicy) -> Rc<SnapshotStore> {
    let arena = world.arena();
    SnapshotStore::format(&store, &arena, FormatOptions::new(Uuid::from_u128(1)))
        .await
        .expect("large enough");
    let options = StoreOptions { full, ..StoreOptions::default() };
    SnapshotStore::open(origin, store, arena, world.clock(), options).await.expect("just formatted")
}

#[test]
fn a_change_that_finds_no_room_waits_for_it_and_not_for_ever() {
    let world = World::new(9);
    let (origin, disk) = (SimDisk::new(MIB), SimDisk::new(4 * MIB));
    world.run(async {
        let sized = |size| Device::new(Linear::new(vec![(size, disk.device(&world), 0)]));
        let limit = Duration::from_secs(10);
        let full = FullPolicy::Pause { timeout: limit };
        let store = make_with(&world, origin.device(&world), sized(256 * KIB), full).await;
        let front = store.origin();
        let first = store.create(&named("first")).await.expect("space");
        let before = world.clock().now();
        let mut done = 0;
        while write(&front, &world, done * 4096, 4096, 2).await.is_ok() {
            done += 1;
        }
        let waited = world.clock().now().since(before);
        assert!(done > 30 && waited >= limit && waited < 2 * limit, "one waited: {waited:?}");
        let events = [store.next_event().await, store.next_event().await, store.next_event().await];
        assert_eq!(events, [StoreEvent::Paused, StoreEvent::TimedOut, StoreEvent::Resumed]);

        // One has waited in vain: none waits before there is room (WAITERS3).
        let before = world.clock().now();
        assert_eq!(write(&front, &world, done * 4096, 4096, 3).await, Err(IoError::NoSpace));
        assert!(world.clock().now().since(before) < Duration::from_secs(1), "WAITERS3: it fails at once");
        store.grown(sized(272 * KIB)).expect("it grows a little");

        // Several wait; what needs no copy goes on, snapshots come and go (STOREFULL1), and growth lets them all go on.
        let waiting = (done..done + 8).map(|part| write(&front, &world, part * 4096, 4096, 3));
        let waiting = futures_util::future::join_all(waiting);
        let meanwhile = async {
            world.clock().sleep(Duration::from_secs(1)).await;
            assert_eq!(store.next_event().await, StoreEvent::Paused);
            write(&front, &world, 0, 4096, 4).await.expect("needs no copy");
            let second = store.create(&named("second")).await.expect("the reserve is for this");
            store.remove(second).await.expect("removals work in a full store");
            world.clock().sleep(Duration::from_secs(1)).await;
            store.grown(sized(512 * KIB)).expect("it grows");
            world.clock().now()
        };
        let (outcomes, grown) = futures_util::join!(waiting, meanwhile);
        assert!(outcomes.into_iter().all(|outcome| outcome.is_ok()), "STOREFULL2: there is room for all");
        assert!(world.clock().now().since(grown) < Duration::from_secs(1), "and none sleeps on");
        while write(&front, &world, done * 4096, 4096, 5).await.is_ok() && done < 255 {
            done += 1;
        }
        let content = bytes(&store.snapshot(first).expect("there"), &world).await;
        assert!(content.iter().all(|byte| *byte == 0), "the first is what it was");

        // A removal makes room as well. Another policy lets writes wait again (WAITERS3).
        store.set_full_policy(FullPolicy::Pause { timeout: 2 * limit });
        let second = store.create(&named("second")).await.expect("the reserve is for this");
        let waiting = write(&front, &world, 0, 4096, 6);
        let meanwhile = async {
            world.clock().sleep(Duration::from_secs(1)).await;
            store.begin_removal(first).await
        };
        let (outcome, removed) = futures_util::join!(waiting, meanwhile);
        assert_eq!((outcome, removed), (Ok(()), Ok(())));
        assert_eq!(bytes(&store.snapshot(second).expect("there"), &world).await[0], 4);
        store.verify().await.expect("readable");
    });
}

#[test]
fn the_oldest_snapshots_go_if_that_is_what_was_declared_and_held_ones_stay() {
    the_oldest_go(false);
}

#[test]
fn the_oldest_snapshots_go_and_those_stay_over_which_others_lie() {
    the_oldest_go(true);
}

/// All but the second, which is held, or over which others lie.
fn the_oldest_go(is_base: bool) {
    let world = World::new(10);
    let (origin, disk) = (SimDisk::new(MIB), SimDisk::new(320 * KIB));
    world.run(async {
        let store =
            make_with(&world, origin.device(&world), disk.device(&world), FullPolicy::DropOldest).await;
        let front = store.origin();
        let mut ids = Vec::new();
        for (byte, held) in [(1, false), (2, true), (3, false), (4, false)] {
            write(&front, &world, 0, 32 << 10, byte).await.expect("space");
            let name = format!("s{byte}");
            let new = NewSnapshot { name, read_only: false, held: held && !is_base };
            ids.push(store.create(&new).await.expect("space"));
        }
        if is_base {
            store.set_base(ids[1], true).await.expect("the reserve is for this");
            store.set_flags(ids[1], false, false).await.expect("the reserve is for this");
        }
        let mut part = 8;
        while store.list().len() == 4 {
            let writes = (part..part + 4).map(|part| write(&front, &world, part * 4096, 4096, 9));
            let outcomes = futures_util::future::join_all(writes).await;
            assert!(outcomes.iter().all(Result::is_ok), "somebody makes room: {outcomes:?}");
            part += 4;
        }
        let left: Vec<u64> = store.list().into_iter().map(|descriptor| descriptor.id).collect();
        assert_eq!(left, ids[1..], "STOREFULL3: four found no room, and one snapshot went, the oldest");
        assert!(matches!(store.next_event().await, StoreEvent::Dropped(gone) if gone.id == ids[0]));
        let content = bytes(&store.snapshot(ids[1]).expect("held"), &world).await;
        assert!(content[..8].iter().all(|byte| *byte == 2) && content[8..].iter().all(|byte| *byte == 0));
        let failed = loop {
            if let Err(error) = write(&front, &world, part * 4096, 4096, 9).await {
                break error;
            }
            part += 1;
        };
        assert_eq!(failed, IoError::NoSpace, "a held snapshot is not removed");
        assert_eq!(store.list().iter().map(|descriptor| descriptor.id).collect::<Vec<_>>(), [ids[1]]);
        let content = bytes(&store.snapshot(ids[1]).expect("held"), &world).await;
        assert!(content[..8].iter().all(|byte| *byte == 2) && content[8..].iter().all(|byte| *byte == 0));
        store.verify().await.expect("readable");
    });
}

#[test]
fn those_who_wait_meet_a_policy_that_is_declared_meanwhile_beside_a_sibling_too() {
    let world = World::new(11);
    let (origin, small, large) = (SimDisk::new(MIB), SimDisk::new(256 * KIB), SimDisk::new(4 * MIB));
    world.run(async {
        let base = origin.device(&world);
        let full = FullPolicy::Pause { timeout: Duration::from_secs(3600) };
        let store = make_with(&world, base.clone(), small.device(&world), full).await;
        let sibling = make(&world, base, large.device(&world), 2).await;
        let front = side_by_side(&[Rc::clone(&store), Rc::clone(&sibling)]).expect("one origin");
        store.create(&named("first")).await.expect("space");
        let spared = sibling.create(&named("spared")).await.expect("space");
        let fill = async {
            for part in 0..256 {
                write(&front, &world, part * 4096, 4096, 2).await?;
            }
            Ok::<(), IoError>(())
        };
        let meanwhile = async {
            assert!(store.filled(80).await.percent() >= 80);
            assert_eq!(store.next_event().await, StoreEvent::Paused);
            assert!(store.is_paused() && !sibling.is_paused());
            world.clock().sleep(Duration::from_secs(1)).await;
            store.set_full_policy(FullPolicy::DropOldest);
        };
        let (filled, ()) = futures_util::join!(fill, meanwhile);
        assert_eq!(filled, Ok(()), "they drop the oldest instead of waiting an hour");
        assert!(store.list().is_empty() && !store.is_paused());
        let content = bytes(&sibling.snapshot(spared).expect("there"), &world).await;
        assert!(content.iter().all(|byte| *byte == 0), "SIBLINGS1: the sibling has all of it");
        store.verify().await.expect("readable");
        sibling.verify().await.expect("readable");
    });
}

#[test]
fn the_owner_is_told_before_the_store_is_full_and_can_grow_it() {
    let world = World::new(2);
    let (origin, disk) = (SimDisk::new(MIB), SimDisk::new(4 * MIB));
    world.run(async {
        let sized = |size| Device::new(Linear::new(vec![(size, disk.device(&world), 0)]));
        let store = make(&world, origin.device(&world), sized(256 * KIB), 1).await;
        store.create(&named("first")).await.expect("space");
        let grown = Rc::new(Cell::new(0));
        let counter = Rc::clone(&grown);
        let (watched, device) = (Rc::clone(&store), disk.device(&world));
        world.spawner().spawn(async move {
            loop {
                let usage = watched.low_space().await;
                assert!(usage.percent() >= 80 && usage.size < 4 * MIB);
                let larger = vec![(usage.size + 256 * KIB, device.clone(), 0)];
                watched.grown(Device::new(Linear::new(larger))).expect("it grows");
                counter.set(counter.get() + 1);
            }
        });
        for part in 0..256 {
            write(&store.origin(), &world, part * 4096, 4096, 2).await.expect("it grows in time");
        }
        assert!(grown.get() >= 3, "{}", grown.get());
    });
}

/// Zeros need no copy, and so no batch takes in what the store has grown by (SNAPSHOT10).
#[test]
fn zeros_and_discards_of_a_snapshot_find_the_room_that_its_full_store_has_grown_by() {
    let world = World::new(3);
    let (origin, disk) = (SimDisk::new(MIB), SimDisk::new(4 * MIB));
    world.run(async {
        let sized = |size| Device::new(Linear::new(vec![(size, disk.device(&world), 0)]));
        let full = FullPolicy::Error;
        let store = make_with(&world, origin.device(&world), sized(256 * KIB), full).await;
        let first = store.create(&named("first")).await.expect("space");
        let view = store.snapshot(first).expect("there");
        let mut done = 0;
        while write(&view, &world, done * 8192, 4096, 2).await.is_ok() {
            done += 1;
        }
        view.flush().await.expect("no faults");
        let zero = async |at| view.zero(Extent::new(at, 4096), ZeroOptions::default()).await.map(drop);
        let mut at = 4096;
        while zero(at).await.is_ok() {
            at += 8192;
        }
        assert!(at < MIB, "it is full");
        store.grown(sized(MIB)).expect("it grows");
        assert_eq!(zero(at).await, Ok(()), "there is room now");
        view.flush().await.expect("no faults");
        assert_eq!(store.usage().size, MIB);
        let byte = bytes(&view, &world).await[0];
        assert_eq!(byte, 2, "it is what was written");
    });
}
