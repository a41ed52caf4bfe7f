//! Thin pools case by case: the corruptions and complaints that others had, and what each of them must not be here.

use crate::common::{fresh, read, remove_all, sound, volume, write};
use futures_util::FutureExt;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{
    Arena, BlockDevice, Checked, Completion, Device, Durability, Extent, IoError, KIB, MIB, Shape,
    ZeroOptions,
};
use varve_sim::{CrashAt, DiskOptions, FaultBudget, FaultPlan, SimDisk, World, for_each_crash_point};
use varve_target::Linear;
use varve_target::thin::{
    Backing, Discards, InjectedBug, NewVolume, Origin, Pool, PoolError, PoolEvent, PoolOptions, Uuid,
    WhenFull,
};

const PART: u64 = 4 * KIB;

async fn open(device: Device, world: &World) -> Rc<Pool> {
    open_with(device, world, None).await
}

async fn open_with(device: Device, world: &World, injected_bug: Option<InjectedBug>) -> Rc<Pool> {
    let options = PoolOptions { injected_bug, ..PoolOptions::default() };
    let opened = Pool::open(device, world.arena(), world.clock(), options).await;
    opened.expect("a pool can always be opened")
}

#[test]
fn what_a_new_block_does_not_cover_never_shows_what_another_volume_wrote() {
    let world = World::new(1);
    let disk = SimDisk::new(4 * MIB);
    world.run(async {
        let (pool, arena) = (fresh(disk.device(&world), &world).await, world.arena());
        let (old, device) = volume(&pool, "old", 2 * MIB).await;
        for (_, piece) in Extent::new(0, 2 * MIB).pieces(64 * KIB) {
            write(&device, &arena, piece, 0xee).await.expect("there is space");
        }
        pool.remove(old).await.expect("it is there");
        remove_all(&pool).await;
        let (_, device) = volume(&pool, "new", 2 * MIB).await;
        for (_, piece) in Extent::new(0, 2 * MIB).pieces(64 * KIB) {
            write(&device, &arena, Extent::new(piece.offset + PART, PART), 1).await.expect("there is space");
        }
        let content = read(&device, &arena, Extent::new(0, 2 * MIB)).await;
        let expected = |at: usize| u8::from(at as u64 % (64 * KIB) / PART == 1);
        assert!((0..content.len()).all(|at| content[at] == expected(at)), "THIN6");
        sound(&pool).await;
    });
}

/// Kernel commit 694cfe7f31db (2019): metadata was committed whose data was still in the disk's cache.
#[test]
fn data_reaches_the_disk_before_the_metadata_that_leads_to_it() {
    let crashes = for_each_crash_point(3, |world| {
        let disk = SimDisk::new(4 * MIB);
        let (flushed, arena) = (Cell::new(false), world.arena());
        let _crashed = world.run_until_crash(async {
            let pool = fresh(disk.device(world), world).await;
            let (_, device) = volume(&pool, "v", MIB).await;
            write(&device, &arena, Extent::new(0, 64 * KIB), 7).await.expect("there is space");
            device.flush().await.expect("no faults");
            flushed.set(true);
        });
        world.run(async {
            let (device, arena) = (disk.device(world), world.arena());
            let opened = Pool::open(device, arena.clone(), world.clock(), PoolOptions::default()).await;
            let Ok(pool) = opened else { return assert!(!flushed.get(), "the pool was made") };
            let Some(info) = pool.list().pop() else { return assert!(!flushed.get(), "it was created") };
            let device = pool.volume(info.id).expect("listed");
            let content = read(&device, &arena, Extent::new(0, 64 * KIB)).await;
            let all = |byte| content.iter().all(|found| *found == byte);
            assert!(all(7) || (!flushed.get() && all(0)), "THIN1");
        });
    });
    assert!(crashes > 10, "{crashes}");
}

/// Kernel commit 4ae280b4ee (2019): a durable write of a whole new block ended before the metadata was committed.
#[test]
fn a_durable_write_of_a_new_block_survives_the_crash_after_it() {
    for_each_crash_point(5, |world| {
        let disk = SimDisk::new(4 * MIB);
        let (done, arena) = (Cell::new(0_u64), world.arena());
        let _crashed = world.run_until_crash(async {
            let pool = fresh(disk.device(world), world).await;
            let (_, device) = volume(&pool, "v", MIB).await;
            for block in 0..4 {
                let data = arena.copy(&[9; 64 << 10]);
                device.write(block * 64 * KIB, data, Durability::Durable).await.expect("no faults");
                done.set(block + 1);
            }
        });
        world.run(async {
            let (device, arena) = (disk.device(world), world.arena());
            let opened = Pool::open(device, arena.clone(), world.clock(), PoolOptions::default()).await;
            let Ok(pool) = opened else { return assert_eq!(done.get(), 0) };
            let Some(info) = pool.list().pop() else { return assert_eq!(done.get(), 0) };
            let device = pool.volume(info.id).expect("listed");
            let content = read(&device, &arena, Extent::new(0, done.get() * 64 * KIB)).await;
            assert!(content.iter().all(|byte| *byte == 9), "THIN2");
        });
    });
}

#[test]
fn a_full_pool_refuses_new_space_and_nothing_else_and_comes_back() {
    let world = World::new(2);
    let disk = SimDisk::new(4 * MIB);
    world.run(async {
        let (pool, arena) = (fresh(disk.device(&world), &world).await, world.arena());
        let (id, device) = volume(&pool, "v", 64 * MIB).await;
        let mut written = 0;
        while write(&device, &arena, Extent::new(written, 64 * KIB), 1).await.is_ok() {
            written += 64 * KIB;
        }
        assert!(written > 3 * MIB, "{written} bytes");
        let refused = write(&device, &arena, Extent::new(32 * MIB, 64 * KIB), 1).await;
        assert_eq!(refused, Err(IoError::NoSpace));
        write(&device, &arena, Extent::new(0, written), 2).await.expect("overwrites go on");
        device.flush().await.expect("commits go on");
        pool.snapshot(id, "s", false).await.expect("a snapshot needs no space");
        let refused = write(&device, &arena, Extent::new(0, 64 * KIB), 3).await;
        assert_eq!(refused, Err(IoError::NoSpace), "what a snapshot holds is not overwritten");
        let snapshot = pool.list().pop().expect("there are two").id;
        pool.remove(snapshot).await.expect("removals go on");
        remove_all(&pool).await;
        write(&device, &arena, Extent::new(0, 64 * KIB), 3).await.expect("nobody else holds it any more");
        for (_, piece) in Extent::new(0, MIB).pieces(64 * KIB) {
            device.discard(piece).await.expect("trims go on");
        }
        write(&device, &arena, Extent::new(32 * MIB, 512 * KIB), 4).await.expect("the space is back");
        let zero = ZeroOptions::default();
        device.zero(Extent::new(40 * MIB, 8 * MIB), zero).await.expect("zeros take no space");
        sound(&pool).await;
    });
}

/// Some room is left, too little for these writes, and nothing was freed.
#[test]
fn a_write_that_is_refused_in_a_pool_that_is_nearly_full_costs_nothing() {
    let world = World::new(22);
    let disk = SimDisk::new(4 * MIB);
    world.run(async {
        let (pool, arena) = (fresh(disk.device(&world), &world).await, world.arena());
        let (_, device) = volume(&pool, "v", 64 * MIB).await;
        let mut written = 0;
        while write(&device, &arena, Extent::new(written, 64 * KIB), 1).await.is_ok() {
            written += 64 * KIB;
        }
        device.discard(Extent::new(0, 8 * PART)).await.expect("space");
        pool.checkpoint().await.expect("no faults");
        pool.checkpoint().await.expect("no faults");
        let room = pool.usage();
        assert!(room.free >= 8 * PART && room.returning == 0, "{room:?}");
        let before = disk.counters();
        for number in 0..10 {
            let more = Extent::new(32 * MIB + number * MIB, room.free + PART);
            let refused = write(&device, &arena, more, 1).await;
            assert_eq!(refused, Err(IoError::NoSpace));
        }
        assert_eq!(disk.counters().since(&before).requests(), 0, "no checkpoint brings anything back");
        write(&device, &arena, Extent::new(32 * MIB, 8 * PART), 1).await.expect("there is so much room");
        sound(&pool).await;
    });
}

#[test]
fn snapshots_of_snapshots_are_alike_and_go_in_any_order() {
    let world = World::new(3);
    let disk = SimDisk::new(16 * MIB);
    world.run(async {
        let (pool, arena) = (fresh(disk.device(&world), &world).await, world.arena());
        let empty = pool.usage().free;
        let (first, _) = volume(&pool, "v0", MIB).await;
        let mut ids = vec![first];
        for depth in 0..40_u64 {
            let device = pool.volume(ids[ids.len() - 1]).expect("it is there");
            let extent = Extent::new(depth * 20 * KIB / PART * PART, 3 * PART);
            write(&device, &arena, extent, u8::try_from(depth + 1).expect("small")).await.expect("space");
            let last = *ids.last().expect("there is one");
            ids.push(pool.snapshot(last, &format!("v{}", depth + 1), false).await.expect("space"));
        }
        sound(&pool).await;
        // Each holds what was written up to it, whichever others are gone by then.
        let mut random = world.random();
        let mut order: Vec<u64> = (0..ids.len() as u64).collect();
        random.shuffle(&mut order);
        for number in order {
            let device = pool.volume(ids[usize::try_from(number).expect("small")]).expect("it is there");
            for depth in 0..40_u64 {
                let at = Extent::new(depth * 20 * KIB / PART * PART, PART);
                let expected = if depth <= number { u8::try_from(depth + 1).expect("small") } else { 0 };
                assert_eq!(read(&device, &arena, at).await[0], expected, "volume {number} at {depth}");
            }
            pool.remove(ids[usize::try_from(number).expect("small")]).await.expect("it is there");
            pool.remove_some(3).await.expect("no faults");
        }
        remove_all(&pool).await;
        sound(&pool).await;
        assert_eq!(pool.list(), [], "nothing is left");
        assert!(pool.usage().free + 4 * PART >= empty, "all space is back: {:?}", pool.usage());
    });
}

#[test]
fn a_small_write_to_a_shared_block_takes_one_part_and_what_is_exclusive_is_known() {
    let world = World::new(4);
    let disk = SimDisk::new(16 * MIB);
    world.run(async {
        let (pool, arena) = (fresh(disk.device(&world), &world).await, world.arena());
        let (id, device) = volume(&pool, "v", 4 * MIB).await;
        for (_, piece) in Extent::new(0, 4 * MIB).pieces(MIB) {
            write(&device, &arena, piece, 1).await.expect("space");
        }
        assert_eq!(pool.exclusive(id).await, Ok((4 * MIB, 0)));
        let snapshot = pool.snapshot(id, "s", true).await.expect("space");
        assert_eq!(pool.exclusive(id).await, Ok((0, 4 * MIB)));
        write(&device, &arena, Extent::new(MIB, PART), 2).await.expect("space");
        write(&device, &arena, Extent::new(3 * MIB, 2 * PART), 2).await.expect("space");
        assert_eq!(pool.exclusive(id).await, Ok((3 * PART, 4 * MIB - 3 * PART)));
        assert_eq!(pool.exclusive(snapshot).await, Ok((3 * PART, 4 * MIB - 3 * PART)));
        let differing = vec![Extent::new(MIB, PART), Extent::new(3 * MIB, 2 * PART)];
        assert_eq!(pool.diff(id, snapshot).await, Ok(differing));
        assert_eq!(pool.diff(id, id).await, Ok(Vec::new()));
        pool.roll_back(id, snapshot).await.expect("space");
        assert_eq!(pool.diff(id, snapshot).await, Ok(Vec::new()));
        assert!(read(&device, &arena, Extent::new(0, 4 * MIB)).await.iter().all(|byte| *byte == 1));
        remove_all(&pool).await;
        sound(&pool).await;
        assert_eq!(pool.exclusive(snapshot).await, Ok((0, 4 * MIB)));
    });
}

#[test]
fn a_volume_over_an_origin_shows_it_until_it_is_written_zeroed_or_discarded() {
    let world = World::new(5);
    let (disk, below) = (SimDisk::new(4 * MIB), SimDisk::new(512 * KIB));
    world.run(async {
        let (origin, arena) = (below.device(&world), world.arena());
        write(&origin, &arena, Extent::new(0, 512 * KIB), 5).await.expect("no faults");
        let pool = fresh(disk.device(&world), &world).await;
        let id = pool.create(&over_origin(512 * KIB)).await.expect("space");
        assert!(matches!(pool.volume(id), Err(PoolError::OriginMissing)), "not without its origin");
        assert_eq!(pool.missing_origins(), [ORIGIN]);
        pool.attach_origin(&ORIGIN, &origin).expect("it fits");
        let device = pool.volume(id).expect("it is there");
        write(&device, &arena, Extent::new(PART, PART), 6).await.expect("space");
        device.zero(Extent::new(2 * PART, PART), ZeroOptions::default()).await.expect("space");
        device.discard(Extent::new(4 * PART, PART)).await.expect("space");
        let snapshot = pool.snapshot(id, "s", true).await.expect("space");
        for device in [device, pool.volume(snapshot).expect("it has the same origin")] {
            let content = read(&device, &arena, Extent::new(0, MIB)).await;
            let at = |part: usize| content[part * 4096];
            assert_eq!(
                [at(0), at(1), at(2), at(3), at(4), at(5), at(127), at(128)],
                [5, 6, 0, 5, 0, 5, 5, 0]
            );
        }
        sound(&pool).await;
    });
}

/// The origin of volumes here: all of it shows.
const ORIGIN: Origin = Origin {
    backing: Backing::Snapshot { store: Uuid::from_u128(9), number: 3, created: 1_700_000_000 },
    bytes: 512 * KIB,
};

/// A volume of 1 MiB over so much of the origin.
fn over_origin(bytes: u64) -> NewVolume {
    NewVolume { name: "v".into(), bytes: MIB, origin: Some(Origin { bytes, ..ORIGIN }) }
}

/// A device that tells by its mark whether it is still there.
struct Marked {
    below: Device,
    _mark: Rc<()>,
}

impl BlockDevice for Marked {
    fn shape(&self) -> Shape {
        self.below.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        self.below.submit(io.into_io())
    }
}

#[test]
fn a_volume_that_is_being_removed_keeps_nothing_of_its_origin() {
    let world = World::new(5);
    let (disk, below, mark) = (SimDisk::new(4 * MIB), SimDisk::new(512 * KIB), Rc::new(()));
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let id = pool.create(&over_origin(512 * KIB)).await.expect("space");
        let origin = Device::new(Marked { below: below.device(&world), _mark: Rc::clone(&mark) });
        pool.attach_origin(&ORIGIN, &origin).expect("it fits");
        drop(origin);
        let device = pool.volume(id).expect("it is there");
        write(&device, &world.arena(), Extent::new(0, 64 * KIB), 6).await.expect("space");
        drop(device);
        assert_eq!(Rc::strong_count(&mark), 2, "the volume shows it");
        pool.remove(id).await.expect("it is there");
        assert_eq!(Rc::strong_count(&mark), 1, "nobody reads it any more");
        sound(&pool).await;
    });
}

/// First bytes of some parts of a volume.
async fn parts(device: &Device, arena: &Arena, numbers: &[u64]) -> Vec<u8> {
    let mut found = Vec::new();
    for number in numbers {
        found.push(read(device, arena, Extent::new(number * PART, PART)).await[0]);
    }
    found
}

#[test]
fn a_flattened_volume_holds_what_showed_and_needs_no_origin_and_its_snapshots_still_do() {
    let world = World::new(15);
    let (disk, lower) = (SimDisk::new(8 * MIB), SimDisk::new(4 * MIB));
    world.run(async {
        let arena = world.arena();
        // The origin is a volume of another pool, with a hole in it.
        let below = fresh(lower.device(&world), &world).await;
        let (_, origin) = volume(&below, "base", 512 * KIB).await;
        write(&origin, &arena, Extent::new(0, 256 * KIB), 5).await.expect("space");
        write(&origin, &arena, Extent::new(400 * KIB, 112 * KIB), 5).await.expect("space");
        let pool = fresh(disk.device(&world), &world).await;
        let id = pool.create(&over_origin(512 * KIB)).await.expect("space");
        pool.attach_origin(&ORIGIN, &origin).expect("it fits");
        let device = pool.volume(id).expect("it is there");
        write(&device, &arena, Extent::new(PART, PART), 6).await.expect("space");
        device.discard(Extent::new(2 * PART, PART)).await.expect("space");
        let snapshot = pool.snapshot(id, "s", false).await.expect("space");
        let before = read(&device, &arena, Extent::new(0, MIB)).await;
        let mut batches = 0;
        while let Some(how_far) = pool.flatten_some(id).await.expect("space") {
            assert_eq!(how_far.total, 512 * KIB);
            batches += 1;
        }
        assert!(batches > 0, "there was something to copy");
        let info = pool.list().into_iter().find(|volume| volume.id == id).expect("it is there");
        assert_eq!(info.origin, None);
        assert_eq!(info.mapped_bytes, (256 + 112) * KIB - PART, "holes are not copied");
        assert!(!pool.have_same_origin(id, snapshot));
        assert_eq!(pool.diff(id, snapshot).await, Ok(vec![Extent::new(0, 512 * KIB)]), "nobody knows better");
        sound(&pool).await;
        pool.checkpoint().await.expect("no faults");
        drop((pool, device));
        let pool = open(disk.device(&world), &world).await;
        let device = pool.volume(id).expect("without its origin");
        assert!(read(&device, &arena, Extent::new(0, MIB)).await == before, "FLATTEN2");
        assert_eq!(pool.missing_origins(), [ORIGIN], "the snapshot's");
        assert!(pool.volume(snapshot).is_err());
        assert_eq!(pool.roll_back(id, snapshot).await, Err(PoolError::OriginMissing));
        pool.attach_origin(&ORIGIN, &origin).expect("it fits");
        let other = pool.volume(snapshot).expect("it is there");
        assert!(read(&other, &arena, Extent::new(0, MIB)).await == before);
        // A rollback takes the origin along.
        write(&device, &arena, Extent::new(0, 64 * KIB), 7).await.expect("space");
        pool.roll_back(id, snapshot).await.expect("space");
        let device = pool.volume(id).expect("it is there");
        assert!(read(&device, &arena, Extent::new(0, MIB)).await == before);
        assert!(pool.have_same_origin(id, snapshot));
        sound(&pool).await;
    });
}

#[test]
fn what_is_cut_off_from_a_volume_never_shows_the_origin_again() {
    let world = World::new(16);
    let (disk, below) = (SimDisk::new(4 * MIB), SimDisk::new(512 * KIB));
    world.run(async {
        let (origin, arena) = (below.device(&world), world.arena());
        write(&origin, &arena, Extent::new(0, 512 * KIB), 5).await.expect("no faults");
        let pool = fresh(disk.device(&world), &world).await;
        let wrong = pool.create(&over_origin(2 * MIB)).await;
        assert!(matches!(wrong, Err(PoolError::Misfit(_))), "more than the volume");
        let id = pool.create(&over_origin(256 * KIB)).await.expect("space");
        pool.attach_origin(&ORIGIN, &origin).expect("it fits");
        let device = pool.volume(id).expect("it is there");
        assert_eq!(parts(&device, &arena, &[0, 63, 64, 100]).await, [5, 5, 0, 0], "so much shows");
        pool.resize(id, 128 * KIB).await.expect("it is there");
        pool.resize(id, MIB).await.expect("it is there");
        let device = pool.volume(id).expect("it is there");
        assert_eq!(parts(&device, &arena, &[0, 31, 32, 63]).await, [5, 5, 0, 0]);
        device.discard(Extent::new(0, MIB)).await.expect("space");
        assert_eq!(parts(&device, &arena, &[0, 31, 32]).await, [0, 0, 0]);
        pool.checkpoint().await.expect("no faults");
        let pool = open(disk.device(&world), &world).await;
        pool.attach_origin(&ORIGIN, &origin).expect("it fits");
        let device = pool.volume(id).expect("it is there");
        assert_eq!(parts(&device, &arena, &[0, 31, 32]).await, [0, 0, 0]);
        sound(&pool).await;
    });
}

#[test]
fn a_crash_while_a_volume_shrinks_never_shows_the_origin_where_something_else_was() {
    let crashes = for_each_crash_point(21, |world| {
        let (disk, below, ready) = (SimDisk::new(4 * MIB), SimDisk::new(512 * KIB), Cell::new(0));
        let (origin, arena) = (below.device(world), world.arena());
        let _crashed = world.run_until_crash(async {
            write(&origin, &arena, Extent::new(0, 512 * KIB), 5).await.expect("no faults");
            origin.flush().await.expect("no faults");
            let pool = fresh(disk.device(world), world).await;
            let id = pool.create(&over_origin(512 * KIB)).await.expect("space");
            pool.attach_origin(&ORIGIN, &origin).expect("it fits");
            let device = pool.volume(id).expect("it is there");
            device.discard(Extent::new(256 * KIB, 128 * KIB)).await.expect("space");
            write(&device, &arena, Extent::new(384 * KIB, 64 * KIB), 6).await.expect("space");
            device.flush().await.expect("no faults");
            ready.set(id);
            pool.resize(id, 128 * KIB).await.expect("it is there");
        });
        world.run(async {
            if ready.get() == 0 {
                return;
            }
            let pool = open(disk.device(world), world).await;
            pool.attach_origin(&ORIGIN, &below.device(world)).expect("it fits");
            let device = pool.volume(ready.get()).expect("it is there");
            if device.shape().size == MIB {
                let found = parts(&device, &world.arena(), &[0, 64, 95, 96, 111]).await;
                assert_eq!(found[..3], [5, 0, 0], "THIN6");
                assert!(found[3..].iter().all(|byte| [0, 6].contains(byte)), "THIN6: {found:?}");
            }
            sound(&pool).await;
        });
    });
    assert!(crashes > 10, "{crashes}");
}

#[test]
fn a_flattening_in_a_full_pool_fails_and_goes_on_when_there_is_room() {
    let world = World::new(17);
    let (disk, below) = (SimDisk::new(8 * MIB), SimDisk::new(512 * KIB));
    world.run(async {
        let part = |bytes| Device::new(Linear::new(vec![(bytes, disk.device(&world), 0)]));
        let (origin, arena) = (below.device(&world), world.arena());
        write(&origin, &arena, Extent::new(0, 512 * KIB), 5).await.expect("no faults");
        let pool = fresh(part(2 * MIB), &world).await;
        let id = pool.create(&over_origin(512 * KIB)).await.expect("space");
        pool.attach_origin(&ORIGIN, &origin).expect("it fits");
        let (_, other) = volume(&pool, "other", 4 * MIB).await;
        for (_, piece) in Extent::new(0, 4 * MIB).pieces(64 * KIB) {
            if write(&other, &arena, piece, 1).await.is_err() {
                break;
            }
        }
        assert_eq!(pool.flatten_some(id).await, Err(PoolError::NoSpace));
        pool.grown(part(6 * MIB)).expect("it grows");
        while pool.flatten_some(id).await.expect("space").is_some() {}
        let device = pool.volume(id).expect("it is there");
        assert_eq!(parts(&device, &arena, &[0, 127, 128]).await, [5, 5, 0]);
        sound(&pool).await;
    });
}

#[test]
fn the_disk_is_told_of_what_is_free_for_good_and_only_if_that_is_wanted() {
    let world = World::new(18);
    let disk = SimDisk::new(8 * MIB);
    world.run(async {
        let arena = world.arena();
        let pool = fresh(disk.device(&world), &world).await;
        let (id, device) = volume(&pool, "v", 4 * MIB).await;
        write(&device, &arena, Extent::new(0, 2 * MIB), 1).await.expect("space");
        pool.set_discards(Discards::Ignore);
        device.discard(Extent::new(0, MIB)).await.expect("it is a hint");
        assert_eq!(parts(&device, &arena, &[0, 255, 256]).await, [1, 1, 1], "nothing happens");
        pool.set_discards(Discards::Keep);
        device.discard(Extent::new(0, 64 * KIB)).await.expect("space");
        pool.checkpoint().await.expect("no faults");
        assert_eq!(parts(&device, &arena, &[0, 15, 16]).await, [0, 0, 1]);
        assert_eq!(disk.counters().discards, 0, "the disk hears nothing");
        pool.set_discards(Discards::PassDown);
        let snapshot = pool.snapshot(id, "s", true).await.expect("space");
        device.discard(Extent::new(0, MIB)).await.expect("space");
        pool.checkpoint().await.expect("no faults");
        let before = disk.counters().discards;
        pool.remove(snapshot).await.expect("it is there");
        while pool.remove_some(10).await.expect("no faults").volumes > 0 {}
        let room = pool.usage().free;
        // What the snapshot held alone is free now. In an idle pool the disk gets the discard in time.
        let idle = async {
            world.clock().sleep(Duration::from_secs(4)).await;
            assert!(disk.counters().discards > before, "the disk is told");
            let now = pool.usage();
            assert!(now.free >= room + 960 * KIB && now.returning < 64 * KIB, "DISCARD1: {now:?}");
        };
        let committing = pool.keep_committing();
        futures_util::pin_mut!(idle, committing);
        futures_util::future::select(idle, committing).await;
        write(&device, &arena, Extent::new(0, MIB), 2).await.expect("space");
        assert_eq!(parts(&device, &arena, &[0, 255, 256, 511]).await, [2, 2, 1, 1]);
        sound(&pool).await;
    });
}

#[test]
fn what_is_acknowledged_is_committed_after_a_second_though_nobody_asks() {
    let world = World::new(6);
    let disk = SimDisk::new(4 * MIB);
    let arena = world.arena();
    world.schedule_crash(CrashAt::Time(varve_block::Moment(5_000_000_000)));
    let _crashed = world.run_until_crash(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (_, device) = volume(&pool, "v", MIB).await;
        write(&device, &arena, Extent::new(0, 64 * KIB), 7).await.expect("space");
        pool.keep_committing().await;
    });
    world.run(async {
        let pool = open(disk.device(&world), &world).await;
        let device = pool.volume(pool.list()[0].id).expect("listed");
        assert!(read(&device, &arena, Extent::new(0, 64 * KIB)).await.iter().all(|byte| *byte == 7));
        sound(&pool).await;
    });
}

/// What is read while others change things: more than the reserve of the pool, which is never filled.
const READ: Extent = Extent { offset: 0, length: MIB };

/// A pool with a volume of which so much is 1s.
async fn with_volume(
    disk: &SimDisk,
    world: &World,
    injected_bug: Option<InjectedBug>,
) -> (Rc<Pool>, u64, Device) {
    let pool = fresh(disk.device(world), world).await;
    drop(pool);
    let pool = open_with(disk.device(world), world, injected_bug).await;
    let (id, device) = volume(&pool, "v", 4 * MIB).await;
    write(&device, &world.arena(), READ, 1).await.expect("space");
    device.flush().await.expect("no faults");
    (pool, id, device)
}

fn disk_without_instant_answers(size: u64) -> SimDisk {
    SimDisk::with(DiskOptions { instant: false, ..DiskOptions::sized(size) })
}

/// Begins a read that the disk answers half a minute later, does `meanwhile`, and returns what was
/// read.
async fn read_slowly(
    disk: &SimDisk,
    world: &World,
    device: &Device,
    meanwhile: impl Future<Output = ()>,
) -> Vec<u8> {
    let (arena, clock) = (world.arena(), world.clock());
    let slow = FaultPlan { stall: 1_000_000, ..FaultPlan::default() };
    disk.set_faults(slow, FaultBudget::new(1, 1));
    let others = async {
        clock.sleep(Duration::from_millis(1)).await;
        meanwhile.await;
    };
    futures_util::join!(read(device, &arena, READ), others).0
}

/// A snapshot overwrites in place what its origin has released; a read of the origin is on its way there.
fn read_while_the_other_overwrites(injected_bug: Option<InjectedBug>) -> Vec<u8> {
    let world = World::new(8);
    let disk = disk_without_instant_answers(4 * MIB);
    world.run(async {
        let (pool, id, device) = with_volume(&disk, &world, injected_bug).await;
        let snapshot = pool.snapshot(id, "s", false).await.expect("space");
        let other = pool.volume(snapshot).expect("just created");
        read_slowly(&disk, &world, &device, async {
            device.discard(READ).await.expect("no faults");
            device.flush().await.expect("no faults");
            write(&other, &world.arena(), READ, 2).await.expect("space");
        })
        .await
    })
}

#[test]
fn a_read_never_sees_what_another_volume_writes_where_it_found_its_own() {
    let alike = |content: &[u8], byte| content.iter().all(|found| *found == byte);
    assert!(alike(&read_while_the_other_overwrites(None), 1), "THIN4");
    let has_bug = read_while_the_other_overwrites(Some(InjectedBug::ForgetReaders));
    assert!(alike(&has_bug, 2), "the fault is noticed");
}

/// Blocks are freed and taken again by another volume; a read is on its way to them.
fn read_while_another_takes_the_blocks(injected_bug: Option<InjectedBug>) -> Vec<u8> {
    let world = World::new(9);
    let disk = disk_without_instant_answers(4 * MIB);
    world.run(async {
        let (pool, _, device) = with_volume(&disk, &world, injected_bug).await;
        let (_, other) = volume(&pool, "w", 4 * MIB).await;
        read_slowly(&disk, &world, &device, async {
            device.discard(READ).await.expect("no faults");
            pool.checkpoint().await.expect("no faults");
            for (_, piece) in Extent::new(0, 4 * MIB).pieces(64 * KIB) {
                let _full = write(&other, &world.arena(), piece, 2).await;
            }
        })
        .await
    })
}

#[test]
fn a_block_is_not_taken_again_while_it_is_read() {
    let alike = |content: &[u8], byte| content.iter().all(|found| *found == byte);
    assert!(alike(&read_while_another_takes_the_blocks(None), 1), "THIN5");
    let has_bug = read_while_another_takes_the_blocks(Some(InjectedBug::ForgetReaders));
    assert!(!alike(&has_bug, 1), "the fault is noticed");
}

/// Freed blocks are discarded on the disk while another volume takes them, the last there are. Whether that one holds what
/// was written to it.
fn write_while_the_disk_is_told(injected_bug: Option<InjectedBug>) -> bool {
    let world = World::new(19);
    let disk = disk_without_instant_answers(4 * MIB);
    world.run(async {
        let (pool, _, device) = with_volume(&disk, &world, injected_bug).await;
        let (_, other) = volume(&pool, "w", 8 * MIB).await;
        let (arena, clock, mut written) = (world.arena(), world.clock(), 0);
        while write(&other, &arena, Extent::new(written, 16 * KIB), 2).await.is_ok() {
            written += 16 * KIB;
        }
        pool.set_discards(Discards::PassDown);
        device.discard(READ).await.expect("no faults");
        let writes = async {
            clock.sleep(Duration::from_millis(1)).await;
            while write(&other, &arena, Extent::new(written, 16 * KIB), 2).await.is_ok() {
                written += 16 * KIB;
            }
        };
        let (told, ()) = futures_util::join!(pool.checkpoint(), writes);
        told.expect("no faults");
        // All requests have ended, those of the disk too.
        pool.checkpoint().await.expect("no faults");
        assert!(written > 3 * MIB, "it took what was freed: {written}");
        read(&other, &arena, Extent::new(0, written)).await.iter().all(|byte| *byte == 2)
    })
}

#[test]
fn the_disk_is_told_of_a_block_before_somebody_else_writes_there() {
    assert!(write_while_the_disk_is_told(None), "DISCARD1");
    assert!(!write_while_the_disk_is_told(Some(InjectedBug::PassDownLate)), "the fault is noticed");
}

#[test]
fn a_write_to_a_full_pool_waits_until_its_owner_has_made_it_larger() {
    let world = World::new(11);
    let disk = SimDisk::new(8 * MIB);
    world.run(async {
        let part = |bytes| Device::new(Linear::new(vec![(bytes, disk.device(&world), 0)]));
        let (pool, arena) = (fresh(part(2 * MIB), &world).await, world.arena());
        let (_, device) = volume(&pool, "one", 4 * MIB).await;
        assert!(pool.percent() < 20, "{}", pool.percent());
        // The owner is notified before a write fails.
        let owner = async {
            pool.filled(80).await;
            assert!(!pool.is_paused() && pool.percent() >= 80);
            assert_eq!(pool.next_event().await, PoolEvent::Paused);
            pool.grown(part(6 * MIB)).expect("it grows");
            assert_eq!(pool.next_event().await, PoolEvent::Resumed);
        };
        pool.set_when_full(WhenFull::Pause { timeout: Duration::from_secs(60) });
        let writes = async {
            for (_, piece) in Extent::new(0, 4 * MIB).pieces(64 * KIB) {
                write(&device, &arena, piece, 1).await.expect("it waits for room");
            }
        };
        futures_util::join!(owner, writes);
        let (_, other) = volume(&pool, "two", 4 * MIB).await;
        pool.set_when_full(WhenFull::Error);
        let mut refused = None;
        for (_, piece) in Extent::new(0, 4 * MIB).pieces(64 * KIB) {
            refused = refused.or(write(&other, &arena, piece, 2).await.err());
        }
        assert_eq!(refused, Some(IoError::NoSpace));
        pool.set_when_full(WhenFull::Pause { timeout: Duration::from_millis(5) });
        let vain = write(&other, &arena, Extent::new(4 * MIB - 64 * KIB, 64 * KIB), 2).await;
        assert_eq!(vain, Err(IoError::NoSpace));
        let told = [pool.next_event().await, pool.next_event().await, pool.next_event().await];
        assert_eq!(told, [PoolEvent::Paused, PoolEvent::TimedOut, PoolEvent::Resumed]);
        sound(&pool).await;
    });
}

#[test]
fn a_volume_over_which_others_lie_is_not_removed_whatever_people_hold() {
    let (world, disk) = (World::new(1), SimDisk::new(4 * MIB));
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (one, _) = volume(&pool, "one", MIB).await;
        pool.set_base(one, true).await.expect("it is there");
        pool.set_flags(one, true, true).await.expect("it is there");
        pool.set_flags(one, true, false).await.expect("it is there");
        assert_eq!(pool.remove(one).await, Err(PoolError::Held));
        let clone = pool.snapshot(one, "clone", false).await.expect("there is space");
        pool.remove(clone).await.expect("nothing is backed by the clone");
        pool.checkpoint().await.expect("no faults");
        drop(pool);
        let pool = open(disk.device(&world), &world).await;
        assert_eq!(pool.remove(one).await, Err(PoolError::Held));
        pool.set_base(one, false).await.expect("it is there");
        pool.remove(one).await.expect("nothing is backed by it any more");
        sound(&pool).await;
    });
}

#[test]
fn a_volume_that_is_claimed_takes_writes_until_all_others_are() {
    let world = World::new(13);
    let disk = SimDisk::new(4 * MIB);
    world.run(async {
        let (pool, arena) = (fresh(disk.device(&world), &world).await, world.arena());
        let (one, device) = volume(&pool, "one", MIB).await;
        let (two, _) = volume(&pool, "two", MIB).await;
        // A walk through all of the second volume is under way.
        let walk = pool.freeze(two).await.expect("it is there");
        let claimed = pool.claim(one).await.expect("it is there");
        let mut other = Box::pin(pool.claim(two));
        assert!((&mut other).now_or_never().is_none(), "the walk is waited for");
        write(&device, &arena, Extent::new(0, PART), 1).await.expect("nothing is frozen yet");
        drop(walk);
        let (first, second) = (claimed.freeze().await, other.await.expect("it is there").freeze().await);
        let mut late = Box::pin(write(&device, &arena, Extent::new(0, PART), 2));
        assert!((&mut late).now_or_never().is_none(), "now both are frozen");
        let snapshot = first.snapshot("s", true).expect("space");
        second.snapshot("s", true).expect("space");
        drop((first, second));
        late.await.expect("space");
        let snapshot = pool.volume(snapshot).expect("just created");
        assert_eq!(read(&snapshot, &arena, Extent::new(0, PART)).await[0], 1);
        sound(&pool).await;
    });
}
