//! The books of pools that are larger than a leaf, a block of the log or one place of a page, and copies of them.

use crate::common::{ID, fresh, open, read, remove_all, sound, volume, write};
use varve_block::{Extent, KIB, MIB};
use varve_sim::{CrashKind, Random, SimDisk, World};
use varve_target::thin::{
    MetadataBackup, Pool, PoolFormat, backed_up_pool, check_pool, dump_pool, restore_pool,
};

const PART: u64 = 4 * KIB;

fn index(length: u64) -> usize {
    usize::try_from(length).expect("small")
}

/// LOGRING1 of the journal, and RECORD2.
#[test]
fn records_of_many_blocks_wrap_around_the_ring() {
    for seed in 1..7_u64 {
        let mut random = Random::new(seed);
        let (world, disk) = (World::new(seed), SimDisk::new(160 * MIB));
        let arena = world.arena();
        let mut expected: Vec<(u64, u8)> = Vec::new();
        world.run(async {
            let format = PoolFormat { log_bytes: Some(64 * KIB), ..PoolFormat::new(ID) };
            Pool::format(&disk.device(&world), &arena, format).await.expect("large enough");
            let pool = open(disk.device(&world), &world).await.expect("a new pool");
            let (_, device) = volume(&pool, "v", 256 * MIB).await;
            let mut part = 0;
            for round in 0..48_u8 {
                for _ in 0..*random.pick(&[60, 100, 230, 340, 440, 800]) {
                    part += 2;
                    write(&device, &arena, Extent::new(part * PART, PART), round + 1).await.expect("space");
                    expected.push((part, round + 1));
                }
                device.flush().await.expect("no faults");
            }
        });
        world.crash(CrashKind::Power);
        world.run(async {
            let pool = open(disk.device(&world), &world).await.expect("a pool can always be opened");
            let device = pool.volume(pool.named("v").expect("it was created").id).expect("listed");
            for (part, byte) in &expected {
                let found = read(&device, &arena, Extent::new(part * PART, PART)).await;
                assert!(found.iter().all(|one| one == byte), "{part}");
            }
            sound(&pool).await;
        });
    }
}

/// REFCOUNT1 and REFCOUNT2 of `ref_counts.rs`: counts that fill many leaves, and changes of them that reach over
/// leaves.
#[test]
fn counts_of_holders_fill_many_leaves() {
    const PARTS: u64 = 3000;
    let (world, disk) = (World::new(1), SimDisk::new(64 * MIB));
    let arena = world.arena();
    world.run(async {
        let format = PoolFormat { block_size: PART, ..PoolFormat::new(ID) };
        Pool::format(&disk.device(&world), &arena, format).await.expect("large enough");
        let pool = open(disk.device(&world), &world).await.expect("a new pool");
        let (id, device) = volume(&pool, "v", PARTS * PART).await;
        let all = Extent::new(0, PARTS * PART);
        write(&device, &arena, all, 1).await.expect("space");
        let first = pool.snapshot(id, "a", false).await.expect("space");
        for part in (0..PARTS).step_by(2) {
            write(&device, &arena, Extent::new(part * PART, PART), 2).await.expect("space");
        }
        pool.checkpoint().await.expect("no faults");
        // All of the first one's map is copied: one more holds each of its blocks.
        let second = pool.snapshot(first, "b", false).await.expect("space");
        let (one, two) = (pool.volume(first).expect("listed"), pool.volume(second).expect("listed"));
        for part in (0..PARTS).step_by(7) {
            write(&two, &arena, Extent::new(part * PART, PART), 3).await.expect("space");
        }
        pool.checkpoint().await.expect("no faults");
        sound(&pool).await;
        for part in (0..PARTS).step_by(3) {
            write(&one, &arena, Extent::new(part * PART, PART), 4).await.expect("space");
        }
        pool.checkpoint().await.expect("no faults");
        sound(&pool).await;
        let (content, before) = (read(&device, &arena, all).await, read(&two, &arena, all).await);
        for part in 0..PARTS {
            assert_eq!(content[index(part * PART)], if part % 2 == 0 { 2 } else { 1 }, "{part}");
            assert_eq!(before[index(part * PART)], if part % 7 == 0 { 3 } else { 1 }, "{part}");
        }
        pool.remove(first).await.expect("listed");
        pool.remove(second).await.expect("listed");
        remove_all(&pool).await;
        sound(&pool).await;
    });
}

/// RESTORE3 of `restore.rs`.
#[test]
fn what_a_text_shares_without_saying_like_is_not_overwritten() {
    let (world, disk) = (World::new(1), SimDisk::new(16 * MIB));
    let arena = world.arena();
    world.run(async {
        let (device, clock) = (disk.device(&world), world.clock());
        let pool = fresh(device.clone(), &world).await;
        volume(&pool, "b", MIB).await;
        let (_, c) = volume(&pool, "c", MIB).await;
        write(&c, &arena, Extent::new(0, 64 * KIB), 1).await.expect("space");
        pool.checkpoint().await.expect("no faults");
        drop((pool, c));
        let text = dump_pool(&device, &arena, &clock).await.expect("sound");
        let map = text.lines().find(|line| line.starts_with("map")).expect("one").to_owned();
        let b = text.lines().find(|line| line.starts_with("volume 1 ")).expect("b").to_owned();
        let text = text.replacen(&b, &format!("{b}\n{map}"), 1);
        restore_pool(&device, &arena, &clock, &text, false).await.expect("it fits");
        let pool = open(device, &world).await.expect("sound");
        let of = |name: &str| pool.volume(pool.named(name).expect("listed").id).expect("listed");
        write(&of("b"), &arena, Extent::new(0, 64 * KIB), 9).await.expect("space");
        let found = read(&of("c"), &arena, Extent::new(0, 64 * KIB)).await;
        assert!(found.iter().all(|byte| *byte == 1), "RESTORE3");
        sound(&pool).await;
    });
}

#[test]
fn what_is_put_aside_of_a_pool_is_a_sound_pool_whichever_place_of_a_page_counts() {
    for checkpoints in 1..4 {
        let (world, disk, aside) = (World::new(1), SimDisk::new(16 * MIB), SimDisk::new(16 * MIB));
        let arena = world.arena();
        world.run(async {
            let (device, clock) = (disk.device(&world), world.clock());
            let pool = fresh(device.clone(), &world).await;
            let (_, a) = volume(&pool, "a", MIB).await;
            for number in 0..checkpoints {
                write(&a, &arena, Extent::new(number * 64 * KIB, 64 * KIB), 1).await.expect("space");
                pool.checkpoint().await.expect("no faults");
            }
            drop((pool, a));
            let kept = MetadataBackup::find(&device, &arena, &clock).await.expect("sound");
            kept.copy(&device, &aside.device(&world), &arena).await.expect("no faults");
            let again = backed_up_pool(&aside.device(&world), &arena).await.expect("it was put there");
            let report = check_pool(&again, &arena, &clock).await.expect("a pool");
            assert!(report.is_sound(), "{checkpoints}: {report:#?}");
            assert_eq!(dump_pool(&again, &arena, &clock).await, dump_pool(&device, &arena, &clock).await);
        });
    }
}
