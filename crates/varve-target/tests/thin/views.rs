//! Walks through a pool's maps beside everything else: no request waits for them, and what they find is of one instant.

use crate::common::{fresh, open, volume, write};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use varve_block::{Arena, Device, Extent, KIB, MIB};
use varve_sim::{Holder, Holds, SimDisk, World};
use varve_target::thin::{InjectedBug, Pool, PoolError, PoolOptions};

const PART: u64 = 4 * KIB;
/// Every other one is written, so that there are many leaves.
const PARTS: u64 = 8192;
/// What the volume holds alone when a walk begins.
const OWN: u64 = (PARTS / 2 + 1) * PART;

/// Whether `what` ends within a while.
async fn ends<T>(world: &World, what: impl Future<Output = T>) -> bool {
    let a_while = pin!(world.clock().sleep(Duration::from_secs(100)));
    matches!(select(pin!(what), a_while).await, Either::Left(_))
}

/// A pool with a volume, 1, of many leaves, and a snapshot of when it held next to nothing, 2. It has just been opened.
struct Host {
    world: World,
    disk: SimDisk,
}

impl Host {
    fn new(disk_bytes: u64) -> Host {
        let (world, disk) = (World::new(1), SimDisk::new(disk_bytes));
        world.run(async {
            let (pool, arena) = (fresh(disk.device(&world), &world).await, world.arena());
            let (id, device) = volume(&pool, "v", PARTS * PART).await;
            write(&device, &arena, Extent::new(PART, PART), 1).await.expect("space");
            let snapshot = pool.snapshot(id, "s", true).await.expect("space");
            assert_eq!((id, snapshot), (1, 2));
            for part in (0..PARTS).step_by(2) {
                write(&device, &arena, Extent::new(part * PART, PART), 1).await.expect("space");
            }
            pool.checkpoint().await.expect("no faults");
        });
        Host { world, disk }
    }

    /// What `walk` finds while parts of the volume that it has not come to yet, a half that begins with `first`, change in
    /// every way that there is.
    fn walk_beside_changes<T>(
        &self,
        first: u64,
        injected_bug: Option<InjectedBug>,
        walk: impl AsyncFn(Rc<Pool>) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        let (world, arena) = (&self.world, self.world.arena());
        world.run(async {
            let (holder, below) = Holder::new(self.disk.device(world));
            let options = PoolOptions { injected_bug, ..PoolOptions::default() };
            let pool = Pool::open(below, arena.clone(), world.clock(), options).await.expect("sound");
            let device = pool.volume(1).expect("listed");
            // A leaf that is not written when the walk begins.
            write(&device, &arena, Extent::new((first + 3) * PART, PART), 2).await.expect("space");
            pool.exclusive(2).await.expect("no faults"); // reads the counts
            holder.hold_next(1, Holds::Reads);
            let mut walks = Box::pin(walk(Rc::clone(&pool)));
            while holder.held() == 0 {
                assert!((&mut walks).now_or_never().is_none(), "it reads nodes");
                world.clock().sleep(Duration::from_millis(1)).await;
            }
            let changes = change(&pool, &device, &arena, first);
            assert!(ends(world, changes).await, "a change waits for a walk");
            holder.release();
            walks.await
        })
    }
}

async fn change(pool: &Rc<Pool>, device: &Device, arena: &Arena, first: u64) {
    let parts = (first..first + PARTS / 2).step_by(2);
    let (_, other) = volume(pool, "w", 2 * PARTS * PART).await;
    for part in parts.clone().take(200) {
        write(device, arena, Extent::new(part * PART, 2 * PART), 3).await.expect("space");
    }
    pool.snapshot(1, "t", true).await.expect("space");
    pool.resize(1, (PARTS + 1) * PART).await.expect("space");
    for part in parts {
        device.discard(Extent::new(part * PART, 2 * PART)).await.expect("no faults");
    }
    pool.remove(pool.snapshot_named(1, "t").expect("listed").id).await.expect("listed");
    if first == 0 {
        pool.remove_some(8).await.expect("no faults"); // not so many that it comes to what the walk reads
    }
    // What was freed would be used again: in a small pool everything that is free is.
    for part in (0..2 * PARTS).step_by(2) {
        if pool.usage().free < 64 * KIB {
            break;
        }
        write(&other, arena, Extent::new(part * PART, PART), 4).await.expect("space");
        if part % 200 == 0 {
            pool.checkpoint().await.expect("no faults");
        }
    }
}

/// Walks that come to the second half first, and to the first half first.
#[test]
fn a_walk_finds_what_was_there_when_it_began_and_nothing_waits_for_it() {
    let quiet = |first: u64| {
        let host = Host::new(128 * MIB);
        host.world.run(async {
            let pool = open(host.disk.device(&host.world), &host.world).await.expect("sound");
            let (device, arena) = (pool.volume(1).expect("listed"), host.world.arena());
            write(&device, &arena, Extent::new((first + 3) * PART, PART), 2).await.expect("space");
            (pool.exclusive(1).await, pool.diff(1, 2).await)
        })
    };
    assert_eq!(quiet(0).0, Ok((OWN, PART)));
    let beside = async |pool: Rc<Pool>| pool.exclusive(1).await;
    assert_eq!(Host::new(128 * MIB).walk_beside_changes(0, None, beside), quiet(0).0);
    let beside = async |pool: Rc<Pool>| pool.diff(1, 2).await;
    assert_eq!(Host::new(128 * MIB).walk_beside_changes(PARTS / 2, None, beside), quiet(PARTS / 2).1);
}

/// NODEVIEW1 of `read_view.rs`: without it this would not be noticed.
#[test]
fn a_walk_whose_nodes_are_used_again_is_noticed() {
    let beside = async |pool: Rc<Pool>| pool.exclusive(1).await;
    let found = Host::new(40 * MIB).walk_beside_changes(0, Some(InjectedBug::ForgetReaders), beside);
    assert_ne!(found, Ok((OWN, PART)));
}
