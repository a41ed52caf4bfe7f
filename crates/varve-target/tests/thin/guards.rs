//! What the guard of an answer keeps true in pools, snapshots, moves and layouts, and what waits for it.

use crate::common::{fresh, read, volume, write};
use futures_util::future::{Either, select};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;
use varve_block::{
    Arena, Device, Durability, Extent, KIB, Location, MIB, MapAnswer, MapIntent, Switch, ZeroOptions,
    accept_unaligned,
};
use varve_sim::{SimDisk, World};
use varve_target::moving::{MovableDisk, Move};
use varve_target::snapshot::{
    FormatOptions, NewSnapshot, SnapshotStore, StoreOptions, Uuid as StoreId, side_by_side,
};
use varve_target::{Linear, Striped, ZeroTarget, read_pieces};

const PART: u64 = 4 * KIB;

/// Whether `what` ends within a while.
async fn ends<T>(world: &World, what: Pin<&mut impl Future<Output = T>>) -> bool {
    let a_while = pin!(world.clock().sleep(Duration::from_secs(100)));
    matches!(select(what, a_while).await, Either::Left(_))
}

async fn asked(device: &Device, extent: Extent, intent: MapIntent) -> MapAnswer {
    device.map_to_leaves(extent, intent).await.expect("no faults")
}

/// What is where the answer says, byte by byte.
async fn moved(answer: &MapAnswer, arena: &Arena) -> Vec<u8> {
    let buffer = arena.take(usize::try_from(answer.length()).expect("small"));
    read_pieces(&answer.pieces, buffer).await.expect("no faults").to_vec()
}

/// Overwrites what the answer leads to.
async fn overwrite(answer: &MapAnswer, arena: &Arena, byte: u8) {
    for piece in &answer.pieces {
        let Location::On { device, offset } = &piece.location else { panic!("it is led on") };
        let data = arena.copy(&vec![byte; usize::try_from(piece.length).expect("small")]);
        device.write(*offset, data, Durability::Volatile).await.expect("no faults");
    }
}

fn is_in(answer: &MapAnswer, device: &Device) -> bool {
    let on = |location: &Location| matches!(location, Location::On { device: on, .. } if on.is_same(device));
    answer.pieces.iter().all(|piece| on(&piece.location))
}

#[test]
fn a_block_of_a_pool_is_not_used_again_as_long_as_somebody_may_read_it() {
    let (world, disk) = (World::new(1), SimDisk::new(8 * MIB));
    let arena = world.arena();
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (_, device) = volume(&pool, "v", MIB).await;
        let part = Extent::new(0, PART);
        write(&device, &arena, part, 1).await.expect("space");
        let answer = asked(&device, part, MapIntent::Read).await;
        let Location::On { offset: place, .. } = answer.pieces[0].location else { panic!("it is mapped") };
        device.discard(part).await.expect("no faults");
        let mut checkpoint = Box::pin(async {
            pool.checkpoint().await.expect("no faults");
            pool.checkpoint().await.expect("no faults");
        });
        ends(&world, checkpoint.as_mut()).await;
        // All that is free is taken: the block is not.
        for at in 1..MIB / PART {
            write(&device, &arena, Extent::new(at * PART, PART), 2).await.expect("space");
        }
        let all = asked(&device, Extent::new(PART, MIB - PART), MapIntent::Read).await;
        let uses = |piece: &varve_block::MapPiece| match piece.location {
            Location::On { offset, .. } => {
                Extent::new(offset, piece.length).overlaps(Extent::new(place, PART))
            }
            _ => false,
        };
        assert!(!all.pieces.iter().any(uses), "THIN5, MAP2");
        drop(all);
        assert!(moved(&answer, &arena).await.iter().all(|byte| *byte == 1), "MAP2: as it was");
        drop(answer);
        assert!(ends(&world, checkpoint.as_mut()).await);
    });
}

#[test]
fn a_clone_waits_for_whoever_overwrites_in_place_and_shared_blocks_want_a_request() {
    let (world, disk) = (World::new(1), SimDisk::new(8 * MIB));
    let arena = world.arena();
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (id, device) = volume(&pool, "v", MIB).await;
        let all = Extent::new(0, 4 * PART);
        let nothing = device.map(all, MapIntent::Overwrite).await.expect("no faults");
        assert!(nothing.is_sent() && nothing.guard.is_none(), "there is nothing to overwrite");
        write(&device, &arena, all, 1).await.expect("space");
        let answer = asked(&device, all, MapIntent::Overwrite).await;
        assert_eq!(answer.length(), all.length);
        let mut clone = Box::pin(pool.snapshot(id, "s", false));
        assert!(!ends(&world, clone.as_mut()).await, "THIN7, MAP2");
        overwrite(&answer, &arena, 2).await;
        drop(answer);
        let snapshot = clone.await.expect("space");
        let shared = device.map(all, MapIntent::Overwrite).await.expect("no faults");
        assert!(shared.is_sent() && shared.guard.is_none(), "THIN4: both hold it");
        write(&device, &arena, Extent::new(0, PART), 3).await.expect("space");
        let own = device.map(all, MapIntent::Overwrite).await.expect("no faults");
        assert_eq!((own.is_sent(), own.length()), (false, PART), "THIN4: that part is its own again");
        drop(own);
        let content = read(&pool.volume(snapshot).expect("there"), &arena, all).await;
        assert!(content.iter().all(|byte| *byte == 2), "THIN7: all of it, or nothing");
    });
}

#[test]
fn what_shows_through_from_below_a_volume_is_an_answer_of_its_own() {
    use varve_target::thin::{Backing, NewVolume, Origin, Uuid};
    let (world, disk, below) = (World::new(1), SimDisk::new(8 * MIB), SimDisk::new(64 * KIB));
    let arena = world.arena();
    world.run(async {
        let backing = Origin {
            backing: Backing::Snapshot { store: Uuid::from_u128(9), number: 3, created: 5 },
            bytes: 64 * KIB,
        };
        let origin = below.device(&world);
        write(&origin, &arena, Extent::new(0, 64 * KIB), 5).await.expect("no faults");
        let pool = fresh(disk.device(&world), &world).await;
        let new = NewVolume { name: "v".into(), bytes: MIB, origin: Some(backing) };
        let id = pool.create(&new).await.expect("space");
        pool.attach_origin(&backing, &origin).expect("it fits");
        let device = pool.volume(id).expect("there");
        write(&device, &arena, Extent::new(8 * PART, PART), 6).await.expect("space");
        let ask = async |at: u64| {
            device.map(Extent::new(at * PART, MIB - at * PART), MapIntent::Read).await.expect("no faults")
        };
        let (first, own, second, behind) = (ask(0).await, ask(8).await, ask(9).await, ask(16).await);
        assert!(
            is_in(&first, &origin) && first.length() == 8 * PART,
            "FLATTEN3: it ends where the pool begins"
        );
        assert!(!is_in(&own, &origin) && own.length() == PART, "FLATTEN3");
        assert!(is_in(&second, &origin) && second.length() == 7 * PART, "THIN6");
        assert!(matches!(behind.pieces[0].location, Location::Zeros), "THIN6: behind what shows");
        // A reader below delays no checkpoint, but the end of a flattening.
        drop((own, behind));
        let mut checkpoint = Box::pin(pool.checkpoint());
        assert!(ends(&world, checkpoint.as_mut()).await, "FLATTEN3");
        let mut flatten = Box::pin(async { while pool.flatten_some(id).await.expect("space").is_some() {} });
        assert!(!ends(&world, flatten.as_mut()).await, "FLATTEN2, MAP2");
        assert!(moved(&first, &arena).await.iter().all(|byte| *byte == 5));
        drop((first, second));
        flatten.await;
    });
}

/// A store with a snapshot of an origin that is all ones.
async fn with_snapshot(world: &World, origin: &SimDisk, store: &SimDisk) -> (Rc<SnapshotStore>, u64) {
    let (arena, below) = (world.arena(), store.device(world));
    let format = FormatOptions::new(StoreId::from_u128(1));
    SnapshotStore::format(&below, &arena, format).await.expect("large enough");
    let options = StoreOptions::default();
    let opened =
        SnapshotStore::open(origin.device(world), below, arena.clone(), world.clock(), options).await;
    let store = opened.expect("just formatted");
    let all = Extent::new(0, store.origin().shape().size);
    write(&store.origin(), &arena, all, 1).await.expect("no snapshot, no copy");
    let new = NewSnapshot { name: "one".into(), read_only: false, held: false };
    let id = store.create(&new).await.expect("space");
    (store, id)
}

#[test]
fn the_origin_waits_for_whoever_reads_it_for_a_snapshot() {
    let (world, origin, store) = (World::new(1), SimDisk::new(MIB), SimDisk::new(4 * MIB));
    let arena = world.arena();
    world.run(async {
        let (store, id) = with_snapshot(&world, &origin, &store).await;
        let (front, view) = (store.origin(), store.snapshot(id).expect("there"));
        let part = Extent::new(0, PART);
        let answer = asked(&view, part, MapIntent::Read).await;
        let mut change = Box::pin(write(&front, &arena, part, 2));
        assert!(!ends(&world, change.as_mut()).await, "SNAPSHOT2, MAP2");
        assert!(moved(&answer, &arena).await.iter().all(|byte| *byte == 1), "MAP2");
        drop(answer);
        change.await.expect("space");
        let answer = asked(&view, part, MapIntent::Read).await;
        assert!(moved(&answer, &arena).await.iter().all(|byte| *byte == 1), "SNAPSHOT1: from the store");
        let now = asked(&front, part, MapIntent::Read).await;
        assert!(moved(&now, &arena).await.iter().all(|byte| *byte == 2));
    });
}

#[test]
fn a_snapshot_waits_for_whoever_overwrites_the_origin_which_must_be_preserved_first() {
    let (world, origin, store) = (World::new(1), SimDisk::new(MIB), SimDisk::new(4 * MIB));
    let arena = world.arena();
    world.run(async {
        let (store, id) = with_snapshot(&world, &origin, &store).await;
        for alone in [true, false] {
            let front =
                if alone { store.origin() } else { side_by_side(&[Rc::clone(&store)]).expect("fits") };
            let at = if alone { 0 } else { 128 * PART };
            let part = Extent::new(at, PART);
            let wanted = front.map(part, MapIntent::Overwrite).await.expect("no faults");
            assert!(wanted.is_sent() && wanted.guard.is_none(), "SNAPSHOT1: it is to be preserved first");
            write(&front, &arena, part, 2).await.expect("space");
            let answer = asked(&front, Extent::new(at, 64 * PART), MapIntent::Overwrite).await;
            assert!(answer.length() >= PART && answer.length() < 64 * PART, "SNAPSHOT1: what is preserved");
            let mut freeze = Box::pin(store.freeze());
            assert!(!ends(&world, freeze.as_mut()).await, "MAP2");
            overwrite(&answer, &arena, 3).await;
            drop(answer);
            freeze.await.expect("nobody changes it");
        }
        let view = store.snapshot(id).expect("there");
        let own = Extent::new(8 * PART, PART);
        assert!(
            view.map(own, MapIntent::Overwrite).await.expect("no faults").is_sent(),
            "nothing is its own"
        );
        write(&view, &arena, own, 7).await.expect("space");
        let answer = asked(&view, own, MapIntent::Overwrite).await;
        let mut change = Box::pin(view.zero(own, ZeroOptions::default()));
        assert!(!ends(&world, change.as_mut()).await, "MAP2: it is held alone");
        overwrite(&answer, &arena, 8).await;
        drop(answer);
        change.await.expect("space");
        assert!(read(&view, &arena, own).await.iter().all(|byte| *byte == 0), "the zeros came later");
        assert!(read(&store.origin(), &arena, own).await.iter().all(|byte| *byte == 1), "SNAPSHOT4");
    });
}

#[test]
fn a_disk_does_not_begin_to_move_under_whoever_holds_an_answer() {
    let (world, old, new) = (World::new(1), SimDisk::new(MIB), SimDisk::new(MIB));
    let arena = world.arena();
    world.run(async {
        let (from, to) = (old.device(&world), new.device(&world));
        let movable = MovableDisk::new(from.clone(), []);
        let device = Device::from_rc(Rc::clone(&movable) as Rc<dyn varve_block::BlockDevice>);
        let run = Extent::new(0, 16 * PART);
        write(&device, &arena, run, 1).await.expect("no faults");
        let answer = asked(&device, run, MapIntent::Overwrite).await;
        assert!(is_in(&answer, &from));
        let moved_run = Rc::new(Move::new(&from, run, &to, 32 * PART));
        let mut begin = Box::pin(movable.begin(&moved_run));
        assert!(!ends(&world, begin.as_mut()).await, "SWITCH1, MAP2");
        overwrite(&answer, &arena, 2).await;
        drop(answer);
        begin.await;
        let both = asked(&device, run, MapIntent::Overwrite).await;
        assert!(!is_in(&both, &from) && !is_in(&both, &to), "MOVE2: both places must hear of it");
        drop(both);
        let reader = asked(&device, run, MapIntent::Read).await;
        assert!(is_in(&reader, &from), "MOVE1");
        drop(reader);
        while moved_run.left() > 0 {
            moved_run.copy(&arena, 4 * PART).await.expect("no faults");
        }
        moved_run.prepare().await.expect("no faults");
        moved_run.finish();
        movable.end(&moved_run, &to).await;
        let answer = asked(&device, run, MapIntent::Read).await;
        assert!(is_in(&answer, &to), "MOVE1");
        assert!(moved(&answer, &arena).await.iter().all(|byte| *byte == 2));
    });
}

#[test]
fn layouts_say_where_each_run_lies() {
    let (world, disk) = (World::new(1), SimDisk::new(MIB));
    let arena = world.arena();
    world.run(async {
        let leaf = disk.device(&world);
        let parts = vec![(8 * PART, leaf.clone(), 64 * PART), (8 * PART, leaf.clone(), 0)];
        let linear = Device::new(Linear::new(parts));
        let answer = linear.map(Extent::new(4 * PART, 8 * PART), MapIntent::Read).await.expect("no faults");
        let places = |answer: &MapAnswer| -> Vec<(u64, u64)> {
            let place = |piece: &varve_block::MapPiece| match piece.location {
                Location::On { offset, .. } => (offset / PART, piece.length / PART),
                _ => panic!("it lies somewhere"),
            };
            answer.pieces.iter().map(place).collect()
        };
        assert_eq!(places(&answer), [(68, 4), (0, 4)], "LINEAR1");
        let members = vec![(leaf.clone(), 0), (leaf.clone(), 32 * PART)];
        let striped = Device::new(Striped::new(members, 2 * PART, 8 * PART));
        let answer = striped.map(Extent::new(PART, 6 * PART), MapIntent::Overwrite).await.expect("no faults");
        assert_eq!(places(&answer), [(1, 1), (32, 2), (2, 2), (34, 1)], "STRIPED1");
        // Through everything at once; what the answer leads to is what a read finds.
        let top = Switch::new(accept_unaligned(striped, arena.clone()));
        write(&top.device(), &arena, Extent::new(0, 16 * PART), 4).await.expect("no faults");
        write(&top.device(), &arena, Extent::new(5 * PART, PART), 9).await.expect("no faults");
        let answer = asked(&top.device(), Extent::new(4 * PART, 2 * PART), MapIntent::Read).await;
        let found = moved(&answer, &arena).await;
        assert_eq!(found, read(&top.device(), &arena, Extent::new(4 * PART, 2 * PART)).await);
        let zeros = Device::new(ZeroTarget::new(MIB, 512));
        let answer = zeros.map(Extent::new(0, MIB), MapIntent::Read).await.expect("no faults");
        assert!(matches!(answer.pieces[0].location, Location::Zeros));
        assert!(zeros.map(Extent::new(0, MIB), MapIntent::Overwrite).await.expect("no faults").is_sent());
    });
}
