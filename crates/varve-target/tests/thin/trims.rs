//! Discards that are passed down to disks: before another owner writes there, and without delaying what need not wait.

use crate::common::{fresh, read, slow_to_trim, sound, volume, write};
use std::time::Duration;
use varve_block::{Extent, KIB, MIB};
use varve_sim::{SimDisk, World};
use varve_target::pdata::MetadataOrder;
use varve_target::thin::Discards;

const PART: u64 = 4 * KIB;

#[test]
fn a_flush_does_not_wait_until_the_disk_knows_what_is_free() {
    let world = World::new(20);
    let disk = SimDisk::new(8 * MIB);
    world.run(async {
        let (arena, clock) = (world.arena(), world.clock());
        let pool = fresh(slow_to_trim(disk.device(&world), &world, 30), &world).await;
        pool.set_metadata_order(MetadataOrder::WriteThrough); // every flush is a checkpoint
        pool.set_discards(Discards::PassDown);
        let (_, device) = volume(&pool, "v", 4 * MIB).await;
        write(&device, &arena, Extent::new(0, MIB), 1).await.expect("space");
        device.flush().await.expect("no faults");
        device.discard(Extent::new(0, MIB)).await.expect("no faults");
        let begun = clock.now();
        for part in 0..4 {
            write(&device, &arena, Extent::new(2 * MIB + part * PART, PART), 2).await.expect("space");
            device.flush().await.expect("no faults");
        }
        let took = clock.now().since(begun);
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert_eq!(disk.counters().discards, 0, "nobody was told yet");
        pool.checkpoint().await.expect("no faults");
        assert!(disk.counters().discards > 0 && clock.now().since(begun) >= Duration::from_secs(30));
        sound(&pool).await;
    });
}

#[test]
fn what_two_checkpoints_free_is_taken_by_nobody_before_the_disk_is_told() {
    let world = World::new(20);
    let disk = SimDisk::new(4 * MIB);
    world.run(async {
        let (arena, clock) = (world.arena(), world.clock());
        let pool = fresh(slow_to_trim(disk.device(&world), &world, 30), &world).await;
        pool.set_discards(Discards::PassDown);
        let (_, device) = volume(&pool, "v", 4 * MIB).await;
        let (_, other) = volume(&pool, "w", 8 * MIB).await;
        write(&device, &arena, Extent::new(0, MIB), 1).await.expect("space");
        device.flush().await.expect("no faults");
        device.discard(Extent::new(0, 512 * KIB)).await.expect("no faults");
        // The disk gets the discard of the second half ten seconds after the first, and takes thirty for each.
        let later = async {
            clock.sleep(Duration::from_secs(10)).await;
            device.discard(Extent::new(512 * KIB, 512 * KIB)).await.expect("no faults");
            pool.checkpoint().await.expect("no faults");
        };
        let mut written = 0;
        let writes = async {
            clock.sleep(Duration::from_secs(35)).await;
            while write(&other, &arena, Extent::new(written, 16 * KIB), 2).await.is_ok() {
                written += 16 * KIB;
            }
        };
        let (first, (), ()) = futures_util::join!(pool.checkpoint(), later, writes);
        first.expect("no faults");
        assert!(written > MIB, "it took what was freed: {written}");
        let content = read(&other, &arena, Extent::new(0, written)).await;
        assert!(content.iter().all(|byte| *byte == 2), "DISCARD1");
    });
}
