//! Writes that wait for room in a pool: every event that makes some lets them go on, long before they would time out.

use crate::common::{fresh, sound, volume, write};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{BlockDevice, Checked, Completion, Device, Extent, Io, IoError, KIB, MIB, Shape};
use varve_sim::{Holder, Holds, SimDisk, World};
use varve_target::thin::{Discards, Pool, WhenFull};

const BLOCK: u64 = 64 * KIB;
/// A write times out after so long.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// A pool without room, and a volume in it that has some of it.
struct Full {
    pool: Rc<Pool>,
    id: u64,
    device: Device,
    /// Where the next write to it goes.
    next: u64,
}

/// A full pool with one volume.
async fn full(world: &World, below: Device) -> Full {
    fill(world, fresh(below, world).await).await
}

/// A full pool with another volume, which holds something.
async fn full_beside_another(world: &World, below: Device) -> (u64, Full) {
    let pool = fresh(below, world).await;
    let (other, device) = volume(&pool, "other", 4 * MIB).await;
    write(&device, &world.arena(), Extent::new(0, MIB), 1).await.expect("space");
    (other, fill(world, pool).await)
}

/// Makes a volume that takes all that is left.
async fn fill(world: &World, pool: Rc<Pool>) -> Full {
    let (id, device) = volume(&pool, "v", 64 * MIB).await;
    let mut next = 0;
    for _ in 0..2 {
        // A checkpoint gives some back.
        while write(&device, &world.arena(), Extent::new(next, BLOCK), 1).await.is_ok() {
            next += BLOCK;
        }
    }
    pool.set_when_full(WhenFull::Pause { timeout: WAIT_MAX });
    Full { pool, id, device, next }
}

/// Whether `what` ends within a little while.
async fn ends(world: &World, what: impl Future<Output = Result<(), IoError>>) -> bool {
    let a_while = pin!(world.clock().sleep(Duration::from_secs(5)));
    match select(pin!(what), a_while).await {
        Either::Left((outcome, _)) => outcome.is_ok(),
        Either::Right(_) => false,
    }
}

/// A write to a full pool waits, and after `event` it ends soon and well.
async fn ends_after(world: &World, full: &Full, event: impl Future<Output = ()>) {
    let (arena, clock) = (world.arena(), world.clock());
    let mut waits = pin!(write(&full.device, &arena, Extent::new(full.next, BLOCK), 2));
    assert!(!ends(world, waits.as_mut()).await, "there is no room");
    let event = async {
        event.await;
        clock.sleep(Duration::from_secs(20)).await;
    };
    match select(waits, pin!(event)).await {
        Either::Left((outcome, _)) => assert_eq!(outcome, Ok(()), "POOLFULL2: there is room"),
        Either::Right(_) => panic!("POOLFULL4: it sleeps though there is room"),
    }
    sound(&full.pool).await;
}

#[test]
fn a_discard_wakes_who_waits_for_room() {
    for discards in [Discards::Keep, Discards::PassDown] {
        let (world, disk) = (World::new(1), SimDisk::new(8 * MIB));
        world.run(async {
            let full = full(&world, disk.device(&world)).await;
            full.pool.set_discards(discards);
            let trim =
                async { full.device.discard(Extent::new(0, 4 * BLOCK)).await.map(drop).expect("no faults") };
            ends_after(&world, &full, trim).await;
        });
    }
}

#[test]
fn a_removal_wakes_who_waits_for_room() {
    // POOLFULL1: it is removed, and a checkpoint is made, while a write waits.
    let (world, disk) = (World::new(2), SimDisk::new(8 * MIB));
    world.run(async {
        let (other, full) = full_beside_another(&world, disk.device(&world)).await;
        let pool = Rc::clone(&full.pool);
        let remove = async {
            pool.remove(other).await.expect("listed");
            while pool.remove_some(1).await.expect("no faults").volumes > 0 {}
        };
        ends_after(&world, &full, remove).await;
    });
}

#[test]
fn a_volume_that_shrinks_or_is_emptied_wakes_who_waits_for_room() {
    let (world, disk) = (World::new(3), SimDisk::new(8 * MIB));
    world.run(async {
        let (other, mut full) = full_beside_another(&world, disk.device(&world)).await;
        let pool = Rc::clone(&full.pool);
        ends_after(&world, &full, async { pool.resize(other, 512 * KIB).await.expect("listed") }).await;
        full.next += BLOCK;
        while ends(&world, write(&full.device, &world.arena(), Extent::new(full.next, BLOCK), 1)).await {
            full.next += BLOCK;
        }
        let empty = async {
            pool.empty(other).await.expect("listed");
            while pool.remove_some(1).await.expect("no faults").volumes > 0 {}
        };
        ends_after(&world, &full, empty).await;
    });
}

/// A disk on which every second write of data fails, if so wished.
struct Failing {
    device: Device,
    fails: Rc<Cell<bool>>,
}

impl BlockDevice for Failing {
    fn shape(&self) -> Shape {
        self.device.shape()
    }
    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        if self.fails.get() && matches!(&io, Io::Write { data, .. } if data.len() as u64 == BLOCK) {
            self.fails.set(false);
            return Completion::failed(IoError::Medium);
        }
        self.device.submit(io)
    }
}

#[test]
fn a_write_that_fails_gives_its_room_to_who_waits() {
    let (world, disk) = (World::new(4), SimDisk::new(8 * MIB));
    world.run(async {
        let fails = Rc::new(Cell::new(false));
        let failing = Device::new(Failing { device: disk.device(&world), fails: Rc::clone(&fails) });
        let (holder, below) = Holder::new(failing);
        let full = full(&world, below).await;
        full.pool.set_when_full(WhenFull::Error);
        full.device.discard(Extent::new(0, BLOCK)).await.map(drop).expect("no faults");
        full.pool.checkpoint().await.expect("no faults");
        full.pool.checkpoint().await.expect("no faults");
        // The last room is taken by a write that hangs, and then fails.
        holder.hold_next(1, Holds::VolatileWrites);
        let arena = world.arena();
        let mut hangs = Box::pin(write(&full.device, &arena, Extent::new(0, BLOCK), 3));
        while holder.held() == 0 {
            assert!((&mut hangs).now_or_never().is_none());
            world.clock().sleep(Duration::from_millis(1)).await;
        }
        full.pool.set_when_full(WhenFull::Pause { timeout: WAIT_MAX });
        let fail = async {
            fails.set(true);
            holder.release();
            assert_eq!(hangs.await, Err(IoError::Medium));
        };
        ends_after(&world, &full, fail).await;
    });
}

#[test]
fn the_end_of_a_reader_wakes_who_waits_for_what_it_kept() {
    let (world, disk) = (World::new(5), SimDisk::new(8 * MIB));
    world.run(async {
        let (holder, below) = Holder::new(disk.device(&world));
        let full = full(&world, below).await;
        let arena = world.arena();
        holder.hold_next(1, Holds::Reads);
        let mut reads = full.device.read(0, arena.take(65536));
        while holder.held() == 0 {
            assert!((&mut reads).now_or_never().is_none());
            world.clock().sleep(Duration::from_millis(1)).await;
        }
        full.device.discard(Extent::new(0, 4 * BLOCK)).await.map(drop).expect("no faults");
        let end = async {
            holder.release();
            reads.await.map(drop).expect("no faults");
        };
        ends_after(&world, &full, end).await;
        assert!(full.pool.info(full.id).is_some());
    });
}
