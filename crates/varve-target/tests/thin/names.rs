//! What volumes and snapshots of a pool are called, and how they are found by that.

use crate::common::{fresh, open, remove_all, sound, volume, write};
use varve_block::{Extent, KIB, MIB};
use varve_format::NAME_LENGTH_MAX;
use varve_sim::{SimDisk, World};
use varve_target::thin::{Pool, PoolError, PoolEvent, Trashed, VolumeSpace, dump_pool, restore_pool};

#[test]
fn a_snapshot_says_of_which_volume_it_is_and_its_name_is_only_a_name() {
    let world = World::new(12);
    let disk = SimDisk::new(4 * MIB);
    world.run(async {
        let (pool, arena) = (fresh(disk.device(&world), &world).await, world.arena());
        let (one, device) = volume(&pool, "one", 2 * MIB).await;
        write(&device, &arena, Extent::new(0, MIB), 1).await.expect("there is space");
        assert_eq!(pool.volume_space(one).await, Ok(VolumeSpace { exclusive: MIB, shared: 0 }));
        let long = "x".repeat(NAME_LENGTH_MAX);
        // A snapshot may have the name of a volume, and one of a snapshot is one of its volume.
        let first = pool.snapshot(one, "one", false).await.expect("names of snapshots are their volume's");
        let second = pool.snapshot(first, &long, false).await.expect("a name");
        let infos = [one, first, second].map(|id| pool.info(id).expect("just created"));
        assert_eq!(
            infos.map(|info| (info.snapshot_of, info.source)),
            [(None, 0), (Some(one), one), (Some(one), first)]
        );
        for wrong in ["1@x", "@x", "1@", "", ".x"] {
            assert_eq!(pool.snapshot(one, wrong, false).await, Err(PoolError::Name), "{wrong}");
        }
        for source in [one, first] {
            assert_eq!(pool.snapshot(source, "one", false).await, Err(PoolError::Exists));
        }
        write(&device, &arena, Extent::new(0, 64 * KIB), 2).await.expect("there is space");
        assert_eq!(
            pool.volume_space(one).await,
            Ok(VolumeSpace { exclusive: 64 * KIB, shared: MIB - 64 * KIB })
        );
        pool.checkpoint().await.expect("no faults");
        let third = pool.snapshot(second, "third", true).await.expect("its entry of the log is read again");
        drop((device, pool));
        let pool = open(disk.device(&world), &world).await.expect("a pool can always be opened");
        assert_eq!(
            pool.snapshots_of(one).iter().map(|info| info.id).collect::<Vec<_>>(),
            [first, second, third]
        );
        assert_eq!([one, first, 99].map(|id| pool.count_snapshots(id)), [3, 0, 0]);
        assert_eq!(pool.named("one").map(|info| info.id), Some(one));
        assert_eq!(pool.snapshot_named(one, "one").map(|info| info.id), Some(first));
        assert_eq!(pool.snapshot_named(one, &long).map(|info| info.id), Some(second), "it is read again");
        assert_eq!((pool.named(&long), pool.snapshot_named(first, &long)), (None, None));
        assert_eq!(pool.info(99), None);
        pool.remove(one).await.expect("nothing holds it");
        assert_eq!(pool.count_snapshots(one), 3, "they are its snapshots still");
        sound(&pool).await;
    });
}

#[test]
fn the_oldest_of_the_trash_goes_first_and_no_other_one_before_its_space_is_back() {
    let (world, disk) = (World::new(1), SimDisk::new(4 * MIB));
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let mut ids = Vec::new();
        for (name, removed) in [("new", 7), ("old", 5), ("kept", 0)] {
            let (id, device) = volume(&pool, name, MIB).await;
            write(&device, &world.arena(), Extent::new(0, 64 * KIB), 1).await.expect("there is space");
            ids.push(id);
            if removed > 0 {
                pool.trash().put(id, Trashed { removed, until: 9 }).await.expect("it is there");
            }
        }
        let [new, old, kept] = ids[..] else { panic!("three were made") };
        assert_eq!(pool.trash().list(), [old, new]);
        assert!(pool.named("old").is_none(), "its name is free");
        let info = pool.info(old).expect("it is kept");
        assert_eq!((info.name.as_str(), info.trashed), ("old", Some(Trashed { removed: 5, until: 9 })));
        assert_eq!((pool.usage().volumes, pool.usage().virtual_bytes), (1, MIB), "it is promised nothing");
        assert_eq!(pool.trash().give_up(kept).await, Err(PoolError::NotFound));
        for _ in 0..3 {
            assert_eq!(pool.trash().drop_oldest().await, Ok(true));
            assert_eq!(pool.trash().list(), [new], "POOLTRASH2");
        }
        assert!(matches!(pool.next_event().await, PoolEvent::Dropped(dropped) if dropped.id == old));
        remove_all(&pool).await;
        pool.rename(new, "new").await.expect("its name is free still");
        assert_eq!(pool.trash().drop_oldest().await, Ok(false), "POOLTRASH1: it came back");
        sound(&pool).await;
    });
}

/// No disk promises that a snapshot has a higher number than its volume.
#[test]
fn a_volume_in_the_trash_is_given_up_whatever_numbers_its_snapshots_have() {
    let (world, disk) = (World::new(1), SimDisk::new(4 * MIB));
    world.run(async {
        let (device, arena, clock) = (disk.device(&world), world.arena(), world.clock());
        let pool = fresh(device.clone(), &world).await;
        for name in ["first", "second"] {
            volume(&pool, name, MIB).await;
        }
        pool.checkpoint().await.expect("there is space");
        drop(pool);
        let text = dump_pool(&device, &arena, &clock).await.expect("sound");
        let first = text.lines().find(|line| line.starts_with("volume 1 ")).expect("it was made first");
        let text = text.replacen(first, &format!("{first} snapshot-of 2"), 1);
        restore_pool(&device, &arena, &clock, &text, false).await.expect("it fits");
        let pool = open(device, &world).await.expect("a pool can always be opened");
        assert_eq!(pool.snapshot_numbers(2), [1]);
        pool.trash().put(2, Trashed { removed: 5, until: 9 }).await.expect("it is there");
        pool.trash().give_up(2).await.expect("it is in the trash");
        remove_all(&pool).await;
        assert_eq!(pool.list(), []);
    });
}

#[test]
fn volumes_are_found_by_their_names_whatever_becomes_of_them() {
    let (world, disk) = (World::new(1), SimDisk::new(4 * MIB));
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let ((one, _), (two, _)) = (volume(&pool, "one", MIB).await, volume(&pool, "two", MIB).await);
        for (of, name) in [(one, "b"), (one, "a"), (one, "c"), (two, "a"), (two, "d")] {
            pool.snapshot(of, name, false).await.expect("there is space");
        }
        let gone = pool.snapshot_named(one, "a").expect("just made");
        pool.remove(gone.id).await.expect("it is there");
        pool.rename(two, "three").await.expect("the name is free");
        let c = pool.snapshot_named(one, "c").expect("just made").id;
        assert_eq!(pool.rename(c, "b").await, Err(PoolError::Exists));
        pool.rename(c, "three").await.expect("a volume's name is no snapshot's");
        let found = |pool: &Pool| {
            assert!(pool.snapshot_named(one, "a").is_none() && pool.named("two").is_none());
            assert_eq!(pool.named("three").map(|volume| volume.id), Some(two));
            let names = pool.snapshots_of(one).into_iter().map(|volume| volume.name);
            assert_eq!(names.collect::<Vec<_>>(), ["b", "three"], "in their order");
            let numbers = pool.snapshot_numbers(one).into_iter();
            let names_of = numbers.filter_map(|number| pool.info(number)).map(|volume| volume.name);
            assert_eq!(names_of.collect::<Vec<_>>(), ["b", "three"], "POOLNAMES1");
        };
        found(&pool);
        assert_eq!(pool.rename(two, "one").await, Err(PoolError::Exists));
        assert_eq!(pool.snapshot(one, "b", false).await, Err(PoolError::Exists));
        sound(&pool).await; // POOLNAMES1
        drop(pool);
        let pool = open(disk.device(&world), &world).await.expect("a pool can always be opened");
        found(&pool);
        pool.snapshot(one, "a", false).await.expect("what was removed has no name");
        volume(&pool, "two", MIB).await;
        remove_all(&pool).await;
        sound(&pool).await;
        let usage = pool.usage();
        assert_eq!((usage.volumes, usage.snapshots), (3, 5), "{usage:?}");
    });
}
