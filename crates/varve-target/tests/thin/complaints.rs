//! What users of dm-thin, LVM2, ZFS and others complained about, one test for each; the corruptions of dm-thin that are
//! not here are in `thin_cases.rs`.

use crate::common::{fresh, open, read, remove_all, sound, volume, write};
use std::cell::Cell;
use varve_block::{Device, Extent, IoError, KIB, MIB};
use varve_sim::{SimDisk, World, for_each_crash_point};
use varve_target::thin::Discards;

const PART: u64 = 4 * KIB;
const BLOCK: u64 = 64 * KIB;

async fn holds(world: &World, device: &Device, extent: Extent, byte: u8) -> bool {
    read(device, &world.arena(), extent).await.iter().all(|found| *found == byte)
}

/// QubesOS/qubes-issues#4209, moby#20272, thin-provisioning-tools#252, stratisd#3520: a pool that had been full could not be
/// opened again, or only after its metadata was made larger by hand.
#[test]
fn a_pool_that_was_full_is_opened_and_emptied_without_a_tool() {
    let world = World::new(1);
    let disk = SimDisk::new(8 * MIB);
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (id, device) = volume(&pool, "one", 64 * MIB).await;
        let mut at = 0;
        while write(&device, &world.arena(), Extent::new(at * 3 * PART, PART), 1).await.is_ok() {
            at += 1;
        }
        while write(&device, &world.arena(), Extent::new(at * 3 * PART, PART), 1).await.is_ok() {
            at += 1; // What a checkpoint gave back.
        }
        for number in 0..20 {
            pool.snapshot(id, &format!("s{number}"), false).await.expect("it needs no space");
        }
        drop((device, pool));
        for _ in 0..3 {
            let pool = open(disk.device(&world), &world).await.expect("a full pool opens");
            sound(&pool).await;
            let device = pool.volume(id).expect("it is there");
            assert!(holds(&world, &device, Extent::new(0, PART), 1).await);
            let refused = write(&device, &world.arena(), Extent::new(40 * MIB, BLOCK), 2).await;
            assert_eq!(refused, Err(IoError::NoSpace), "spdk#906: it is no I/O error");
        }
        let pool = open(disk.device(&world), &world).await.expect("a full pool opens");
        for info in pool.list() {
            pool.remove(info.id).await.expect("removals go on");
        }
        remove_all(&pool).await;
        sound(&pool).await;
        let (_, device) = volume(&pool, "two", 8 * MIB).await;
        write(&device, &world.arena(), Extent::new(0, 4 * MIB), 3).await.expect("all space is back");
    });
}

/// dm-thin's `needs_check`: after a failed commit a pool was read-only until a tool had cleared a flag.
#[test]
fn a_pool_whose_disk_failed_at_a_commit_needs_no_tool_when_the_disk_is_back() {
    let world = World::new(2);
    let disk = SimDisk::new(8 * MIB);
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (id, device) = volume(&pool, "one", 4 * MIB).await;
        write(&device, &world.arena(), Extent::new(0, MIB), 1).await.expect("space");
        device.flush().await.expect("no faults");
        write(&device, &world.arena(), Extent::new(MIB, MIB), 2).await.expect("space");
        disk.vanish();
        assert!(device.flush().await.is_err(), "the client is told");
        assert!(device.flush().await.is_err(), "and not told later that all is well");
        disk.reappear();
        drop((device, pool));
        let pool = open(disk.device(&world), &world).await.expect("nothing has to be repaired");
        let device = pool.volume(id).expect("it is there");
        assert!(holds(&world, &device, Extent::new(0, MIB), 1).await, "what was flushed is there");
        write(&device, &world.arena(), Extent::new(2 * MIB, MIB), 3).await.expect("it takes writes");
        device.flush().await.expect("and commits");
        sound(&pool).await;
    });
}

/// thin-provisioning-tools#226, lvm2#129: after a crash the names and the mappings were of two transactions
/// ("transaction_id mismatch"), and a file had to be edited by hand.
#[test]
fn names_and_mappings_are_of_one_transaction_whenever_it_crashes() {
    let crashes = for_each_crash_point(7, |world| {
        let disk = SimDisk::new(4 * MIB);
        let done = Cell::new(0_u64);
        let _crashed = world.run_until_crash(async {
            let pool = fresh(disk.device(world), world).await;
            let (id, device) = volume(&pool, "one", MIB).await;
            for round in 1..4_u8 {
                write(&device, &world.arena(), Extent::new(0, PART), round).await.expect("space");
                pool.snapshot(id, &format!("s{round}"), true).await.expect("space");
                done.set(u64::from(round));
            }
            pool.rename(id, "other").await.expect("it is there");
            done.set(4);
        });
        world.run(async {
            let Ok(pool) = open(disk.device(world), world).await else { return assert_eq!(done.get(), 0) };
            for round in 1..4_u8 {
                let found = pool.snapshot_named(1, &format!("s{round}"));
                assert!(found.is_some() || done.get() < u64::from(round), "it was said to be made");
                let Some(found) = found else { continue };
                let device = pool.volume(found.id).expect("listed");
                assert!(
                    holds(world, &device, Extent::new(0, PART), round).await,
                    "s{round} is of its instant"
                );
            }
            assert!(pool.named("other").is_some() || done.get() < 4);
            sound(&pool).await;
        });
    });
    assert!(crashes > 10, "{crashes}");
}

/// Kernel commits 49e99fc717 and 0d200aefd4: a snapshot was taken of metadata that had not been committed.
#[test]
fn a_snapshot_holds_what_was_written_and_not_flushed_before_it() {
    for_each_crash_point(8, |world| {
        let disk = SimDisk::new(4 * MIB);
        let made = Cell::new(false);
        let _crashed = world.run_until_crash(async {
            let pool = fresh(disk.device(world), world).await;
            let (id, device) = volume(&pool, "one", MIB).await;
            write(&device, &world.arena(), Extent::new(0, 2 * BLOCK), 1).await.expect("space");
            pool.snapshot(id, "s", true).await.expect("space");
            made.set(true);
            write(&device, &world.arena(), Extent::new(0, BLOCK), 2).await.expect("space");
        });
        world.run(async {
            let Ok(pool) = open(disk.device(world), world).await else { return assert!(!made.get()) };
            let Some(found) = pool.snapshot_named(1, "s") else { return assert!(!made.get(), "it was made") };
            let device = pool.volume(found.id).expect("listed");
            assert!(
                holds(world, &device, Extent::new(0, 2 * BLOCK), 1).await,
                "all of it, and nothing later"
            );
        });
    });
}

/// A discard was passed down to blocks that a snapshot held still (kernel, "check if the block is still shared").
#[test]
fn a_discard_leaves_what_a_snapshot_shares() {
    let world = World::new(3);
    let disk = SimDisk::new(8 * MIB);
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        pool.set_discards(Discards::PassDown);
        let (id, device) = volume(&pool, "one", 2 * MIB).await;
        write(&device, &world.arena(), Extent::new(0, MIB), 1).await.expect("space");
        let number = pool.snapshot(id, "s", false).await.expect("space");
        let snapshot = pool.volume(number).expect("just created");
        pool.checkpoint().await.expect("no faults");
        device.discard(Extent::new(0, MIB)).await.expect("no faults");
        pool.checkpoint().await.expect("no faults");
        let told = disk.counters().discards;
        for part in 0..MIB / BLOCK {
            write(&device, &world.arena(), Extent::new(MIB + part * BLOCK, BLOCK), 2).await.expect("space");
        }
        assert!(holds(&world, &device, Extent::new(0, MIB), 0).await);
        assert!(holds(&world, &snapshot, Extent::new(0, MIB), 1).await, "the disk has kept it");
        sound(&pool).await;
        drop(snapshot);
        pool.remove(number).await.expect("it is there");
        remove_all(&pool).await;
        assert!(disk.counters().discards > told, "now nobody needs it, and the disk is told");
        assert!(holds(&world, &device, Extent::new(MIB, MIB), 2).await);
        sound(&pool).await;
    });
}

/// openzfs#5862, #6825: a rollback destroyed the snapshots that came after.
#[test]
fn a_rollback_keeps_the_newer_snapshots() {
    let world = World::new(4);
    let disk = SimDisk::new(8 * MIB);
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (id, device) = volume(&pool, "one", MIB).await;
        let mut snapshots = Vec::new();
        for round in 1..6_u8 {
            write(&device, &world.arena(), Extent::new(0, BLOCK), round).await.expect("space");
            snapshots.push(pool.snapshot(id, &format!("s{round}"), true).await.expect("space"));
        }
        pool.roll_back(id, snapshots[0]).await.expect("space");
        assert!(holds(&world, &device, Extent::new(0, BLOCK), 1).await);
        pool.roll_back(id, snapshots[4]).await.expect("and forward again");
        assert!(holds(&world, &device, Extent::new(0, BLOCK), 5).await);
        for (snapshot, round) in snapshots.iter().zip(1..) {
            let device = pool.volume(*snapshot).expect("it is there");
            assert!(holds(&world, &device, Extent::new(0, BLOCK), round).await);
        }
        remove_all(&pool).await;
        sound(&pool).await;
    });
}

/// openzfs#14276, longhorn#2221, bcachefs-tools#853, btrfs-progs#1034: a removal stalled everything, walked all that its
/// origin has, and showed no progress.
#[test]
fn removing_many_snapshots_of_an_unchanged_volume_walks_nothing() {
    let world = World::new(5);
    let disk = SimDisk::new(16 * MIB);
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (id, device) = volume(&pool, "one", 12 * MIB).await;
        for part in 0..1000 {
            write(&device, &world.arena(), Extent::new(part * 2 * PART, PART), 1).await.expect("space");
        }
        let mut snapshots = Vec::new();
        for number in 0..200 {
            snapshots.push(pool.snapshot(id, &format!("s{number}"), true).await.expect("space"));
        }
        let before = disk.counters();
        for snapshot in &snapshots {
            pool.remove(*snapshot).await.expect("it is there");
        }
        let cost = disk.counters().since(&before);
        assert!(cost.writes < 230, "{} writes: a record each, and a checkpoint at most", cost.writes);
        assert!(cost.reads < 20, "{} reads", cost.reads);
        let (mut steps, mut left) = (0, usize::MAX);
        while left > 0 {
            let removal = pool.remove_some(1).await.expect("no faults");
            assert!(removal.volumes <= left, "it goes forward");
            assert_eq!(removal.runs, 0, "others hold all of them");
            (steps, left) = (steps + removal.steps, removal.volumes);
        }
        assert!(steps <= 2 * 200, "{steps} steps: a root and a name each");
        // One that holds a thousand runs alone tells how far it is.
        let last = pool.snapshot(id, "last", true).await.expect("space");
        pool.roll_back(id, last).await.expect("space");
        remove_all(&pool).await;
        device.discard(Extent::new(0, 12 * MIB)).await.expect("no faults");
        pool.remove(last).await.expect("it is there");
        let mut told = vec![0];
        while pool.remove_some(1).await.expect("no faults").volumes > 0 {
            told.extend(pool.list().iter().find(|info| info.id == last).map(|info| info.removed_bytes));
        }
        assert!(told.is_sorted() && told.len() > 5, "{told:?}");
        remove_all(&pool).await;
        sound(&pool).await;
    });
}

/// longhorn#8842, stratisd#2847, lvm2#48: what a removal was said to free did not come back.
#[test]
fn what_is_exclusive_comes_back_and_nothing_else() {
    let world = World::new(6);
    let disk = SimDisk::new(16 * MIB);
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (id, device) = volume(&pool, "one", 4 * MIB).await;
        write(&device, &world.arena(), Extent::new(0, 4 * MIB), 1).await.expect("space");
        let snapshot = pool.snapshot(id, "s", true).await.expect("space");
        write(&device, &world.arena(), Extent::new(0, 3 * MIB), 2).await.expect("space");
        remove_all(&pool).await;
        let said = pool.volume_space(snapshot).await.expect("it is there");
        assert_eq!((said.exclusive, said.shared), (3 * MIB, MIB));
        let before = pool.usage().free;
        pool.remove(snapshot).await.expect("it is there");
        remove_all(&pool).await;
        let back = pool.usage().free - before;
        assert!((3 * MIB..3 * MIB + 64 * KIB).contains(&back), "{back} bytes, some of them nodes");
        let before = pool.usage().free;
        device.discard(Extent::new(0, 4 * MIB)).await.expect("no faults");
        remove_all(&pool).await;
        assert!(pool.usage().free - before >= 4 * MIB, "kubernetes and others: trims come back too");
    });
}

/// lvm2#163, #164: a volume was given another size in a wrong way.
#[test]
fn what_lay_behind_the_end_of_a_volume_is_gone_when_it_grows_again() {
    let world = World::new(7);
    let disk = SimDisk::new(8 * MIB);
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (id, device) = volume(&pool, "one", 2 * MIB).await;
        write(&device, &world.arena(), Extent::new(0, 2 * MIB), 1).await.expect("space");
        let snapshot = pool.snapshot(id, "s", true).await.expect("space");
        pool.resize(id, MIB).await.expect("it is there");
        pool.resize(id, 2 * MIB).await.expect("it is there");
        let device = pool.volume(id).expect("it is there");
        assert!(holds(&world, &device, Extent::new(0, MIB), 1).await);
        assert!(holds(&world, &device, Extent::new(MIB, MIB), 0).await);
        let snapshot = pool.volume(snapshot).expect("it is there");
        assert!(holds(&world, &snapshot, Extent::new(0, 2 * MIB), 1).await, "a snapshot keeps its size");
        sound(&pool).await;
    });
}

/// openSUSE/snapper#216, openzfs#4550, spdk#3053: opening took longer with every snapshot and mapping. With mappings it does
/// not either: `thin_scale.rs`.
#[test]
fn opening_a_pool_reads_a_leaf_for_many_snapshots() {
    let world = World::new(8);
    let disk = SimDisk::new(64 * MIB);
    let reads = |snapshots: u64| {
        world.run(async {
            let pool = fresh(disk.device(&world), &world).await;
            let (id, device) = volume(&pool, "one", 64 * MIB).await;
            write(&device, &world.arena(), Extent::new(0, MIB), 1).await.expect("space");
            for number in 0..snapshots {
                pool.snapshot(id, &format!("s{number}"), true).await.expect("space");
            }
            pool.checkpoint().await.expect("no faults");
            drop((device, pool));
            let before = disk.counters();
            open(disk.device(&world), &world).await.expect("sound");
            disk.counters().since(&before).reads
        })
    };
    let (few, many) = (reads(1), reads(300));
    assert!(many <= few + 30, "{many} reads with 300 snapshots, {few} with one: a leaf for each 25");
}

/// QubesOS PR#404 and others: the trim of a whole volume blocked the pool for minutes.
#[test]
fn a_trim_costs_by_what_is_mapped_and_not_by_its_length() {
    let world = World::new(9);
    let disk = SimDisk::new(16 * MIB);
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let (_, device) = volume(&pool, "huge", 1 << 60).await;
        write(&device, &world.arena(), Extent::new(1 << 59, MIB), 1).await.expect("space");
        device.flush().await.expect("no faults");
        let before = disk.counters();
        device.discard(Extent::new(0, 1 << 60)).await.expect("no faults");
        device.flush().await.expect("no faults");
        let cost = disk.counters().since(&before);
        assert!(cost.requests() <= 4, "an exbibyte in {} requests", cost.requests());
        assert!(holds(&world, &device, Extent::new(1 << 59, MIB), 0).await);
        remove_all(&pool).await;
        sound(&pool).await;
    });
}
