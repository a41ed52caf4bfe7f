//! What volumes and snapshots of a pool are called, and how they are found by that.

#[path = "common/thin.rs"]
mod common;

use common::{fresh, open, read, remove_all, sound, volume, write};
use varve_block::{Extent, KIB, MIB};
use varve_sim::{SimDisk, World};
use varve_target::thin::{Holding, Pool, PoolError};

#[test]
fn snapshots_are_called_after_the_number_of_their_volume() {
    let world = World::new(12);
    let disk = SimDisk::new(4 * MIB);
    world.run(async {
        let (pool, arena) = (fresh(disk.device(&world), &world).await, world.arena());
        let (one, device) = volume(&pool, "one", 2 * MIB).await;
        write(&device, &arena, Extent::new(0, MIB), 1).await.expect("there is space");
        assert_eq!(pool.holding(one).await, Ok(Holding { exclusive: MIB, shared: 0 }));
        let long = format!("{}@{}", u64::MAX, "x".repeat(127));
        for name in ["1@before", "0@0", long.as_str()] {
            pool.snapshot(one, name, false).await.expect(name);
        }
        for wrong in ["01@x", "+1@x", "one@x", "@x", "1@", "1@a@b", "1@.x"] {
            assert_eq!(pool.snapshot(one, wrong, false).await, Err(PoolError::Name), "{wrong}");
        }
        assert_eq!(pool.snapshot(one, "1@before", false).await, Err(PoolError::Exists));
        write(&device, &arena, Extent::new(0, 64 * KIB), 2).await.expect("there is space");
        assert_eq!(pool.holding(one).await, Ok(Holding { exclusive: 64 * KIB, shared: MIB - 64 * KIB }));
        pool.checkpoint().await.expect("no faults");
        drop((device, pool));
        let pool = open(disk.device(&world), &world).await.expect("a pool can always be opened");
        assert!(pool.list().iter().any(|volume| volume.name == long), "it is read again");
        assert_eq!(["1@", "0@", "7@"].map(|start| pool.count_named(start)), [1, 1, 0]);
        assert_eq!(pool.info(one).map(|volume| volume.name).as_deref(), Some("one"));
        assert_eq!(pool.info(99), None);
        let device = pool.volume(one).expect("it is there");
        assert_eq!(read(&device, &arena, Extent::new(0, 4 * KIB)).await[0], 2);
        sound(&pool).await;
    });
}

#[test]
fn volumes_are_found_by_their_names_whatever_becomes_of_them() {
    let (world, disk) = (World::new(1), SimDisk::new(4 * MIB));
    world.run(async {
        let pool = fresh(disk.device(&world), &world).await;
        let ((one, _), (two, _)) = (volume(&pool, "one", MIB).await, volume(&pool, "two", MIB).await);
        let of = |volume: u64, name: &str| format!("{volume}@{name}");
        for name in [of(one, "b"), of(one, "a"), of(one, "c"), of(two, "a"), of(11, "a")] {
            pool.snapshot(one, &name, false).await.expect("there is space");
        }
        let gone = pool.named(&of(one, "a")).expect("just made");
        pool.remove(gone.id).await.expect("it is there");
        pool.rename(two, "three").await.expect("the name is free");
        let found = |pool: &Pool| {
            let names = |start: &str| pool.named_like(start).into_iter().map(|volume| volume.name);
            assert!(pool.named(&of(one, "a")).is_none() && pool.named("two").is_none());
            assert_eq!(pool.named("three").map(|volume| volume.id), Some(two));
            assert_eq!(
                names(&of(one, "")).collect::<Vec<_>>(),
                [of(one, "b"), of(one, "c")],
                "in their order"
            );
            let numbers = pool.numbers_like(&of(one, "")).into_iter();
            let names_of = numbers.filter_map(|number| pool.info(number)).map(|volume| volume.name);
            assert_eq!(names_of.collect::<Vec<_>>(), [of(one, "b"), of(one, "c")], "N1 of `names.rs`");
            assert_eq!(names("t").count(), 1);
        };
        found(&pool);
        assert_eq!(pool.rename(two, "one").await, Err(PoolError::Exists));
        assert_eq!(pool.snapshot(one, &of(one, "b"), false).await, Err(PoolError::Exists));
        sound(&pool).await; // N1 of `names.rs`
        drop(pool);
        let pool = open(disk.device(&world), &world).await.expect("a pool can always be opened");
        found(&pool);
        pool.snapshot(one, &of(one, "a"), false).await.expect("what was removed has no name");
        volume(&pool, "two", MIB).await;
        remove_all(&pool).await;
        sound(&pool).await;
        let usage = pool.usage();
        assert_eq!((usage.volumes, usage.snapshots), (3, 5), "{usage:?}");
    });
}
