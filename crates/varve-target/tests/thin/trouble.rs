//! Disks below a pool that run out of space themselves: that is a failure of the disk, reported in order, and no sign that
//! the pool is full or that nothing has begun.

use crate::common::{fresh, open, sound, volume, write};
use std::cell::Cell;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Durability, Extent, Io, IoError, KIB, MIB, Shape,
};
use varve_sim::{SimDisk, World};
use varve_target::thin::{Discards, PoolError};

/// What a disk has no space for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lacks {
    Nothing,
    Superblocks,
    Records,
    Nodes,
    Pages,
    Flushes,
    Data,
}

struct Full {
    device: Device,
    lacks: Rc<Cell<Lacks>>,
}

impl Full {
    fn is_refused(&self, io: &Io) -> bool {
        let begins = |io: &Io, magic: &[u8]| matches!(io, Io::Write { data, .. } if data.starts_with(magic));
        match self.lacks.get() {
            Lacks::Nothing => false,
            Lacks::Superblocks => begins(io, b"VARVE\xffTP"),
            Lacks::Records => begins(io, b"VREC"),
            Lacks::Nodes => begins(io, b"VNOD"),
            Lacks::Pages => begins(io, b"VSPC"),
            Lacks::Flushes => matches!(io, Io::Flush),
            Lacks::Data => begins(io, &[7; 16]),
        }
    }
}

impl BlockDevice for Full {
    fn shape(&self) -> Shape {
        self.device.shape()
    }
    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        if self.is_refused(&io) {
            return Completion::failed(IoError::NoSpace);
        }
        self.device.submit(io)
    }
}

#[test]
fn a_disk_without_space_for_metadata_ends_the_pool_in_order_and_nothing_committed_is_lost() {
    let kinds = [Lacks::Superblocks, Lacks::Records, Lacks::Nodes, Lacks::Pages, Lacks::Flushes];
    for (seed, kind) in (1..).zip(kinds) {
        let (world, disk) = (World::new(seed), SimDisk::new(8 * MIB));
        world.run(async {
            let (arena, lacks) = (world.arena(), Rc::new(Cell::new(Lacks::Nothing)));
            let full = Full { device: disk.device(&world), lacks: Rc::clone(&lacks) };
            let pool = fresh(Device::new(full), &world).await;
            let (id, front) = volume(&pool, "v", MIB).await;
            write(&front, &arena, Extent::new(0, 64 * KIB), 1).await.expect("space");
            front.flush().await.map(drop).expect("no faults");
            write(&front, &arena, Extent::new(64 * KIB, 64 * KIB), 2).await.expect("space");
            lacks.set(kind);
            let failed = match kind {
                Lacks::Records => pool.commit().await,
                _ => pool.checkpoint().await,
            };
            assert_eq!(failed, Err(PoolError::Io(IoError::HostFull)), "{kind:?}: the disk has failed");
            // Every request gets this error, whatever it asks for, and none that of a full pool.
            lacks.set(Lacks::Nothing);
            assert_eq!(front.flush().await.map(drop), Err(IoError::HostFull), "{kind:?}");
            let refused = write(&front, &arena, Extent::new(0, 4 * KIB), 3).await;
            assert_eq!(refused, Err(IoError::HostFull), "{kind:?}");
            pool.set_discards(Discards::PassDown);
            assert!(front.discard(Extent::new(0, 64 * KIB)).await.is_err(), "{kind:?}");
            assert_eq!(pool.commit_if_due().await, Err(PoolError::Io(IoError::HostFull)), "{kind:?}");
            drop((front, pool));
            let pool = open(disk.device(&world), &world).await.expect("the disk is well again");
            let front = pool.volume(id).expect("listed");
            assert_eq!(crate::common::read(&front, &arena, Extent::new(0, 4 * KIB)).await[0], 1, "{kind:?}");
            sound(&pool).await;
        });
    }
}

#[test]
fn a_pool_that_failed_does_not_say_that_a_snapshot_has_gone() {
    let (world, disk) = (World::new(9), SimDisk::new(8 * MIB));
    world.run(async {
        let lacks = Rc::new(Cell::new(Lacks::Nothing));
        let full = Full { device: disk.device(&world), lacks: Rc::clone(&lacks) };
        let pool = fresh(Device::new(full), &world).await;
        let (id, _) = volume(&pool, "v", MIB).await;
        let snapshot = pool.snapshot(id, "s", true).await.expect("space");
        lacks.set(Lacks::Records);
        for _ in 0..2 {
            assert_eq!(pool.remove(snapshot).await, Err(PoolError::Io(IoError::HostFull)));
        }
        drop(pool);
        let pool = open(disk.device(&world), &world).await.expect("the disk is well again");
        assert!(pool.info(snapshot).is_some(), "its removal was not durable");
    });
}

#[test]
fn a_disk_without_space_for_data_fails_that_write_and_no_other() {
    let (world, disk) = (World::new(9), SimDisk::new(8 * MIB));
    world.run(async {
        let (arena, lacks) = (world.arena(), Rc::new(Cell::new(Lacks::Nothing)));
        let full = Full { device: disk.device(&world), lacks: Rc::clone(&lacks) };
        let pool = fresh(Device::new(full), &world).await;
        let (_, front) = volume(&pool, "v", MIB).await;
        lacks.set(Lacks::Data);
        let data = arena.copy(&[7; 65536]);
        let refused = front.write(0, data, Durability::Volatile).await.map(drop);
        assert_eq!(refused, Err(IoError::NoSpace), "what the disk says");
        write(&front, &arena, Extent::new(0, 64 * KIB), 1).await.expect("other data has space");
        front.flush().await.map(drop).expect("the pool goes on");
        sound(&pool).await;
    });
}

/// The first volume has released what both had; on the disk it holds it until that is committed.
#[test]
fn what_was_shared_is_not_overwritten_after_the_commit_that_failed_to_say_that_it_is_not() {
    for (seed, kind) in (20..).zip([Lacks::Flushes, Lacks::Records]) {
        let (world, disk) = (World::new(seed), SimDisk::new(8 * MIB));
        world.run(async {
            let (arena, lacks) = (world.arena(), Rc::new(Cell::new(Lacks::Nothing)));
            let full = Full { device: disk.device(&world), lacks: Rc::clone(&lacks) };
            let pool = fresh(Device::new(full), &world).await;
            let (id, front) = volume(&pool, "v", MIB).await;
            let extent = Extent::new(0, 4 * KIB);
            write(&front, &arena, extent, 1).await.expect("space");
            let other = pool.snapshot(id, "clone", false).await.expect("space");
            write(&front, &arena, extent, 2).await.expect("space");
            let (frozen, other) =
                (pool.freeze(other).await.expect("there"), pool.volume(other).expect("there"));
            let fail = async {
                lacks.set(kind);
                assert_eq!(pool.commit().await, Err(PoolError::Io(IoError::HostFull)), "{kind:?}");
                lacks.set(Lacks::Nothing);
                drop(frozen);
            };
            // It was admitted before the pool failed, and goes on behind that.
            let (_told, ()) = futures_util::join!(write(&other, &arena, extent, 3), fail);
            drop((front, other, pool));
            let pool = open(disk.device(&world), &world).await.expect("the disk is well again");
            let front = pool.volume(id).expect("listed");
            let byte = crate::common::read(&front, &arena, extent).await[0];
            assert!(byte == 1 || byte == 2, "REFCOUNT4, {kind:?}: {byte} was written to the other");
            sound(&pool).await;
        });
    }
}
