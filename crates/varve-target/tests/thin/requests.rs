//! Requests that are under way while something happens to a pool or a volume as a whole, and requests that fail.

use crate::common::{fresh, open, read, slow_to_trim, sound, volume, write};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::time::Duration;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, KIB, MIB, MapAnswer, MapFuture, MapGuard, MapIntent,
    MapPiece, Shape, ZeroOptions,
};
use varve_sim::{CrashKind, FaultBudget, FaultPlan, Holder, Holds, SimDisk, World};
use varve_target::thin::{Backing, Discards, NewVolume, Origin, Uuid};

const PART: u64 = 4 * KIB;
const ORIGIN: Origin = Origin {
    backing: Backing::Snapshot { store: Uuid::from_u128(9), number: 3, created: 5 },
    bytes: 64 * KIB,
};

/// Whether `what` has ended after a while of the world's time.
async fn ends<T>(world: &World, what: impl Future<Output = T>) -> bool {
    let a_while = pin!(world.clock().sleep(Duration::from_secs(100)));
    matches!(select(pin!(what), a_while).await, Either::Left(_))
}

/// Polls `request` until `holder` keeps something of it back.
async fn begun<T>(world: &World, holder: &Holder, request: &mut (impl Future<Output = T> + Unpin)) {
    while holder.held() == 0 {
        assert!((&mut *request).now_or_never().is_none(), "it is under way");
        world.clock().sleep(Duration::from_millis(1)).await;
    }
}

/// THIN7 of the module.
#[test]
fn a_clone_and_a_rollback_wait_for_changes_of_their_source_that_are_under_way() {
    let (world, disk) = (World::new(1), SimDisk::new(8 * MIB));
    let arena = world.arena();
    world.run(async {
        let (holder, below) = Holder::new(disk.device(&world));
        let pool = fresh(below, &world).await;
        let (id, device) = volume(&pool, "v", MIB).await;
        let (other, _) = volume(&pool, "w", MIB).await;
        write(&device, &arena, Extent::new(0, 64 * KIB), 1).await.expect("space");
        pool.checkpoint().await.expect("no faults");
        holder.hold_next(1, Holds::VolatileWrites);
        let mut hangs = Box::pin(write(&device, &arena, Extent::new(0, 64 * KIB), 2));
        begun(&world, &holder, &mut hangs).await;
        assert!(!ends(&world, pool.snapshot(id, "s", true)).await, "THIN7: the source is written");
        assert!(!ends(&world, pool.roll_back(other, id)).await, "the source is written");
        holder.release();
        hangs.await.expect("no faults");
    });
}

/// THIN5 of the module.
#[test]
fn a_write_that_is_under_way_keeps_its_blocks_from_others() {
    let (world, disk) = (World::new(1), SimDisk::new(2 * MIB));
    let arena = world.arena();
    world.run(async {
        let (holder, below) = Holder::new(disk.device(&world));
        let pool = fresh(below, &world).await;
        let (_, device) = volume(&pool, "v", MIB).await;
        let (_, other) = volume(&pool, "w", 4 * MIB).await;
        let mut written = 0;
        while write(&other, &arena, Extent::new(written * PART, PART), 3).await.is_ok() {
            written += 1;
        }
        written -= 16;
        other.discard(Extent::new(written * PART, 64 * KIB)).await.expect("no faults");
        pool.checkpoint().await.expect("no faults");
        pool.checkpoint().await.expect("no faults");
        write(&device, &arena, Extent::new(0, 64 * KIB), 1).await.expect("space");
        pool.checkpoint().await.expect("no faults");
        holder.hold_next(1, Holds::VolatileWrites);
        let mut hangs = Box::pin(write(&device, &arena, Extent::new(0, 64 * KIB), 2));
        begun(&world, &holder, &mut hangs).await;
        device.discard(Extent::new(0, 64 * KIB)).await.expect("no faults");
        // The only room is what the write goes to.
        let mut late = Box::pin(async {
            for number in 0..16 {
                write(&other, &arena, Extent::new((written + number) * PART, PART), 3).await.expect("space");
            }
        });
        let is_early = ends(&world, late.as_mut()).await;
        holder.release();
        hangs.await.expect("no faults");
        if !is_early {
            late.await;
        }
        let found = read(&other, &arena, Extent::new(0, (written + 16) * PART)).await;
        assert!(found.iter().all(|byte| *byte == 3), "THIN5: of {written}");
        sound(&pool).await;
    });
}

#[test]
fn a_write_that_fails_takes_no_space() {
    let (world, disk) = (World::new(1), SimDisk::new(8 * MIB));
    let arena = world.arena();
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (_, device) = volume(&pool, "v", 4 * MIB).await;
        pool.checkpoint().await.expect("no faults");
        let before = (pool.percent(), pool.usage().free);
        let plan = FaultPlan { write_error: 1_000_000, ..FaultPlan::default() };
        disk.set_faults(plan, FaultBudget::unlimited());
        for number in 0..32 {
            let extent = Extent::new(number * 64 * KIB, 64 * KIB);
            assert!(write(&device, &arena, extent, 1).await.is_err(), "the disk fails");
        }
        disk.set_faults(FaultPlan::default(), FaultBudget::unlimited());
        disk.repair();
        assert_eq!((pool.percent(), pool.usage().free), before, "what was taken was given back");
        sound(&pool).await;
    });
}

/// FLATTEN2 of `flatten.rs`.
#[test]
fn a_flattening_is_over_only_when_nobody_reads_the_origin() {
    let (world, disk, below) = (World::new(1), SimDisk::new(8 * MIB), SimDisk::new(64 * KIB));
    let arena = world.arena();
    world.run(async {
        let (holder, origin) = Holder::new(below.device(&world));
        write(&origin, &arena, Extent::new(0, 64 * KIB), 5).await.expect("no faults");
        let pool = fresh(disk.device(&world), &world).await;
        let new = NewVolume { name: "v".into(), bytes: MIB, origin: Some(ORIGIN) };
        let id = pool.create(&new).await.expect("space");
        pool.attach_origin(&ORIGIN, &origin).expect("it fits");
        let device = pool.volume(id).expect("listed");
        holder.hold_next(1, Holds::Reads);
        let mut hangs = device.read(0, arena.take(4096));
        begun(&world, &holder, &mut hangs).await;
        let mut flatten = Box::pin(async { while pool.flatten_some(id).await.expect("space").is_some() {} });
        assert!(!ends(&world, flatten.as_mut()).await, "FLATTEN2: somebody reads the origin still");
        holder.release();
        let ((), found) = futures_util::join!(flatten, hangs);
        assert_eq!(found.expect("no faults")[0], 5);
    });
}

#[test]
fn an_origin_that_hangs_under_a_flattening_stops_no_checkpoint() {
    let (world, disk, below) = (World::new(1), SimDisk::new(8 * MIB), SimDisk::new(64 * KIB));
    world.run(async {
        let (holder, origin) = Holder::new(below.device(&world));
        write(&origin, &world.arena(), Extent::new(0, 64 * KIB), 5).await.expect("no faults");
        let pool = fresh(disk.device(&world), &world).await;
        let new = NewVolume { name: "v".into(), bytes: MIB, origin: Some(ORIGIN) };
        let id = pool.create(&new).await.expect("space");
        pool.attach_origin(&ORIGIN, &origin).expect("it fits");
        holder.hold_next(1, Holds::Reads);
        let mut flatten = Box::pin(pool.flatten_some(id));
        begun(&world, &holder, &mut flatten).await;
        let (_, other) = volume(&pool, "other", MIB).await;
        write(&other, &world.arena(), Extent::new(0, 64 * KIB), 1).await.expect("space");
        assert!(ends(&world, pool.checkpoint()).await, "FLATTEN3");
        holder.release();
        flatten.await.expect("no faults");
    });
}

/// Says that it is a hole up to the middle of a part.
struct Ragged(Device);

impl BlockDevice for Ragged {
    fn shape(&self) -> Shape {
        self.0.shape()
    }
    fn submit(&self, io: Checked) -> Completion<'_> {
        self.0.submit(io.into_io())
    }
    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        let hole = Extent::new(0, 6 * KIB).intersect(extent).map_or(0, |hole| hole.length);
        let piece = match hole {
            0 => MapPiece::sent(extent.length),
            length => MapPiece::hole(length),
        };
        MapAnswer::new(piece, MapGuard::none()).ready()
    }
}

#[test]
fn a_hole_of_an_origin_that_ends_within_a_part_costs_no_data() {
    let (world, disk, below) = (World::new(1), SimDisk::new(8 * MIB), SimDisk::new(64 * KIB));
    let arena = world.arena();
    world.run(async {
        let origin = Device::new(Ragged(below.device(&world)));
        write(&origin, &arena, Extent::new(6 * KIB, 58 * KIB), 5).await.expect("no faults");
        let pool = fresh(disk.device(&world), &world).await;
        let new = NewVolume { name: "v".into(), bytes: MIB, origin: Some(ORIGIN) };
        let id = pool.create(&new).await.expect("space");
        pool.attach_origin(&ORIGIN, &origin).expect("it fits");
        let device = pool.volume(id).expect("listed");
        let before = read(&device, &arena, Extent::new(0, MIB)).await;
        while pool.flatten_some(id).await.expect("space").is_some() {}
        assert!(read(&device, &arena, Extent::new(0, MIB)).await == before, "it shows what it showed");
    });
}

/// THIN6: a crash after a commit half way through a shrinking shows the origin nowhere where something else was.
#[test]
fn what_a_shrinking_has_cut_off_already_never_shows_the_origin_again() {
    const PARTS: u64 = 800;
    let (world, disk, below) = (World::new(1), SimDisk::new(16 * MIB), SimDisk::new(4 * MIB));
    let (arena, wide) = (world.arena(), Origin { bytes: 4 * MIB, ..ORIGIN });
    world.run(async {
        let origin = below.device(&world);
        write(&origin, &arena, Extent::new(0, 4 * MIB), 5).await.expect("no faults");
        let pool = fresh(disk.device(&world), &world).await;
        let new = NewVolume { name: "v".into(), bytes: 4 * MIB, origin: Some(wide) };
        let id = pool.create(&new).await.expect("space");
        pool.attach_origin(&wide, &origin).expect("it fits");
        let device = pool.volume(id).expect("listed");
        for part in (0..PARTS).step_by(2) {
            write(&device, &arena, Extent::new(part * PART, PART), 1).await.expect("space");
        }
        pool.checkpoint().await.expect("no faults");
    });
    world.run(async {
        let (holder, device) = Holder::new(disk.device(&world));
        let pool = open(device, &world).await.expect("sound");
        let id = pool.named("v").expect("listed").id;
        let mapped = || pool.info(id).expect("listed").mapped_bytes;
        let all = mapped();
        let mut shrinks = Box::pin(pool.resize(id, 64 * KIB));
        // Until it waits for a leaf behind the first.
        while mapped() == all {
            holder.release();
            holder.hold_next(1, Holds::Reads);
            assert!((&mut shrinks).now_or_never().is_none(), "it is under way");
            world.clock().sleep(Duration::from_millis(1)).await;
            begun(&world, &holder, &mut shrinks).await;
        }
        assert!(mapped() > 64 * KIB, "it is half way");
        pool.commit().await.expect("no faults");
    });
    world.crash(CrashKind::Power);
    world.run(async {
        let pool = open(disk.device(&world), &world).await.expect("sound");
        pool.attach_origin(&wide, &below.device(&world)).expect("it fits");
        let device = pool.volume(pool.named("v").expect("listed").id).expect("listed");
        let found = read(&device, &arena, Extent::new(0, PARTS * PART)).await;
        let shown: Vec<u8> = found.chunks(8 * 1024).map(|two| two[0]).collect();
        assert!(shown.contains(&0) && shown.contains(&1), "the crash came half way");
        assert!(!shown.contains(&5), "THIN6: what was cut off shows the origin again");
        sound(&pool).await;
    });
}

/// SPACE5 of `space.rs`.
#[test]
fn blocks_of_which_the_disk_is_being_told_are_free_after_a_crash() {
    let (world, disk) = (World::new(1), SimDisk::new(8 * MIB));
    let arena = world.arena();
    world.run(async {
        let pool = fresh(slow_to_trim(disk.device(&world), &world, 100_000), &world).await;
        let (_, device) = volume(&pool, "v", 4 * MIB).await;
        write(&device, &arena, Extent::new(0, 2 * MIB), 1).await.expect("space");
        pool.checkpoint().await.expect("no faults");
        pool.set_discards(Discards::PassDown);
        device.discard(Extent::new(0, MIB)).await.expect("no faults");
        let mut first = Box::pin(pool.checkpoint());
        assert!(!ends(&world, first.as_mut()).await, "the disk is being told");
        write(&device, &arena, Extent::new(2 * MIB, 64 * KIB), 2).await.expect("space");
        device.discard(Extent::new(MIB, 64 * KIB)).await.expect("no faults");
        assert!(
            !ends(&world, pool.checkpoint()).await,
            "a page was written, and the disk is still being told"
        );
    });
    world.crash(CrashKind::Power);
    world.run(async {
        let pool = open(disk.device(&world), &world).await.expect("sound");
        sound(&pool).await;
        let free = pool.usage().free;
        pool.checkpoint().await.expect("no faults");
        assert!(free >= 5 * MIB, "what was freed is free: {free}");
    });
}

/// Of a clone that releases all its source keeps what both had, by a node that it alone holds then; on the disk both hold it still.
#[test]
fn what_a_clone_has_released_is_not_overwritten_before_that_is_committed() {
    let (world, disk) = (World::new(7), SimDisk::new(8 * MIB));
    let arena = world.arena();
    let part = |number: u64| Extent::new(number * PART, PART);
    let clone = world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (id, device) = volume(&pool, "v", MIB).await;
        for number in 0..2 {
            write(&device, &arena, part(number), 1).await.expect("space");
        }
        let clone = pool.snapshot(id, "clone", false).await.expect("space");
        let other = pool.volume(clone).expect("it is there");
        other.zero(Extent::new(0, MIB), ZeroOptions::default()).await.expect("no faults");
        // The first change has a node of its own afterwards, and the second one finds it.
        write(&device, &arena, part(9), 2).await.expect("space");
        write(&device, &arena, part(1), 3).await.expect("space");
        clone
    });
    world.crash(CrashKind::Process);
    world.run(async {
        let pool = open(disk.device(&world), &world).await.expect("a pool can always be opened");
        let other = pool.volume(clone).expect("it was made");
        let byte = read(&other, &arena, part(1)).await[0];
        assert!(byte == 0 || byte == 1, "REFCOUNT4: {byte} was written to the other");
        sound(&pool).await;
    });
}
