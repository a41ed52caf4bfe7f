//! Parts of a store by themselves: what its table takes, and in which order what was written enters the log.

use super::checkpoint::pack;
use super::contents::Contents;
use super::*;
use varve_block::{Durability, MIB, UnixTime};
use varve_format::store::{Entry, ZEROS};
use varve_sim::{SimDisk, World};

const ID: Uuid = Uuid::from_u128(1);

fn parts(first: u64, count: u64) -> Extent {
    Extent::new(first * PART_SIZE, count * PART_SIZE)
}

fn created(id: u64, name: String) -> Entry {
    let (created, size) = (UnixTime(0), 1 << 30);
    Entry::Created(Descriptor { id, name, created, size, read_only: false, held: false, base: false })
}

#[test]
fn what_is_kept_for_a_table_is_enough_whatever_it_says() {
    for (snapshots, ranges) in [(1, 0), (1, 1), (3, 200), (1, 5000), (300, 0), (300, 3000)] {
        let mut contents = Contents::new(1);
        for id in 1..=snapshots {
            contents
                .apply(&created(id, format!("{id:x>0$}", 1 + (id as usize * 7) % 100)))
                .expect("a new one");
        }
        contents.apply(&Entry::RollbackBegun { snapshot: 1, boundary: snapshots + 1 }).expect("it is there");
        for range in 0..ranges {
            contents.apply(&Entry::Restored { snapshot: 1, extent: parts(range * 2, 1) }).expect("under way");
        }
        for id in 2..=snapshots / 2 {
            contents.apply(&Entry::Removed(id)).expect("it is there");
        }
        let bytes = (1..=snapshots).map(|id| (id, SnapshotBytes { preserved: 1, written: 1 })).collect();
        let kept = contents.table_blocks();
        // One more of either kind fits as well.
        contents.apply(&Entry::Restored { snapshot: 1, extent: parts(ranges * 2, 1) }).expect("under way");
        assert!(
            pack(contents.table(&bytes)).len() as u64 <= kept,
            "SNAPSHOT9: {snapshots} snapshots, {ranges} ranges"
        );
        contents.apply(&created(snapshots + 1, "n".repeat(100))).expect("a new one");
        assert!(
            pack(contents.table(&bytes)).len() as u64 <= kept,
            "SNAPSHOT9: {snapshots} snapshots, {ranges} ranges"
        );
    }
}

#[test]
fn bytes_and_ends_that_nothing_is_known_of_are_refused() {
    let mut contents = Contents::new(1);
    for id in 1..4 {
        contents.apply(&created(id, format!("s{id}"))).expect("a new one");
    }
    contents.apply(&Entry::Removed(2)).expect("it is there");
    let refused = [
        (created(2, "s2".to_owned()), "CONTENTS2: two snapshots have one id"),
        (created(3, "s4".to_owned()), "CONTENTS2: two snapshots have one id"),
        (Entry::Removed(7), "an entry names a snapshot that does not exist"),
        (Entry::RollbackBegun { snapshot: 2, boundary: 9 }, "an entry names a snapshot that does not exist"),
    ];
    for (entry, why) in refused {
        assert_eq!(contents.apply(&entry), Err(StoreError::Corrupt(why)), "{entry:?}");
    }
    contents.apply(&Entry::RollbackBegun { snapshot: 1, boundary: 4 }).expect("it is there");
    let refused = [
        (Entry::RollbackEnded(3), "a rollback ends that is not under way"),
        (Entry::RollbackBegun { snapshot: 3, boundary: 9 }, "a rollback begins before another one has ended"),
        (Entry::Removed(1), "the snapshot to which the origin is rolled back was removed"),
    ];
    for (entry, why) in refused {
        assert_eq!(contents.apply(&entry), Err(StoreError::Corrupt(why)), "{entry:?}");
    }
    assert!(contents.check_sizes(1 << 30).is_ok() && contents.check_sizes((1 << 30) - PART_SIZE).is_err());
    assert_eq!(contents.check_names(), Ok(()));
    contents.apply(&created(5, "s3".to_owned())).expect("its id is new");
    assert_eq!(contents.check_names(), Err(StoreError::Corrupt("two snapshots have one name")));
}

/// An open store with one snapshot of an origin of a MiB.
async fn with_snapshot(world: &World, origin: &SimDisk, disk: &SimDisk) -> (Rc<SnapshotStore>, u64) {
    let device = disk.device(world);
    SnapshotStore::format(&device, &world.arena(), FormatOptions::new(ID)).await.expect("large enough");
    let store = SnapshotStore::open(
        origin.device(world),
        device,
        world.arena(),
        world.clock(),
        StoreOptions::default(),
    );
    let store = store.await.expect("just formatted");
    let new = NewSnapshot { name: "s".to_owned(), read_only: false, held: false };
    let id = store.create(&new).await.expect("space");
    (store, id)
}

#[test]
fn what_the_log_was_refused_comes_before_what_was_written_since() {
    let world = World::new(1);
    let (origin, disk) = (SimDisk::new(MIB), SimDisk::new(MIB));
    world.run(async {
        let (store, id) = with_snapshot(&world, &origin, &disk).await;
        let view = store.snapshot(id).expect("there");
        view.write(0, world.arena().copy(&[1; 4096]), Durability::Volatile).await.expect("space");
        let refused = std::mem::take(&mut store.state.borrow_mut().unlogged);
        assert_eq!(refused.len(), 1, "it waits for a flush");
        view.zero(parts(0, 1), varve_block::ZeroOptions::default()).await.expect("space");
        store.refuse_written(refused);
        let places: Vec<bool> = store.state.borrow().unlogged.iter().map(|one| one.place == ZEROS).collect();
        assert_eq!(places, [false, true], "SNAPSHOT4: of two entries for one part the later one counts");
    });
}
