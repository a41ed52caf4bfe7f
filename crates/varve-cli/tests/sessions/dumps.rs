//! Tools for disks that no daemon holds, where one group or pool must not be taken for another.

use crate::harness::World;
use serde_json::Value;
use std::os::unix::fs::FileExt;

/// The group's first extent, in which its first pool begins.
const POOL_AT: u64 = 1 << 20;

/// The disk on which a volume of one piece lies, where it begins there, and its bytes.
fn place(world: &World, name: &str) -> (String, u64, usize) {
    let shown = world.data(&format!("lv show {name}"));
    let segments = shown["segments"].as_array().expect("a list");
    assert_eq!(segments.len(), 1, "{shown}");
    let (disk, offset) =
        segments[0]["areas"][0].as_str().and_then(|area| area.rsplit_once(':')).expect("an area");
    let size = usize::try_from(shown["size"].as_u64().expect("a size")).expect("it fits");
    (disk.to_owned(), offset.parse().expect("a number"), size)
}

#[test]
fn what_is_compared_is_of_one_pool_and_a_damaged_pool_hides_no_other() {
    let mut world = World::started();
    world.ok("pv create d1 d2 d3 --size 300M");
    world.ok("vg create data d1 d2");
    world.ok("vg create other d3");
    for group in ["data", "other"] {
        world.ok(&format!("pool create {group}/p --size 100M"));
        world.ok(&format!("lv create {group}/a --pool p --size 8M"));
        world.ok(&format!("lv create {group}/b --pool p --size 8M"));
    }
    world.ok("pool create data/q --size 100M");
    world.ok("lv create data/c --pool q --size 8M");
    world.ok("snap create data/c@one --read-only");
    world.ok("lv create data/over --pool q --size 8M --origin data/c@one");
    assert_eq!(world.stop(), Some(0));
    let exact =
        |pair: &str| -> Value { world.data(&format!("dump d1 d2 d3 --delta {pair}"))["exact"].clone() };
    let text = world.refused("dump d1 d2 d3 --delta data/a other/b", 2, "V0002");
    assert!(text.contains("two groups"), "{text}");
    assert_eq!((exact("data/a data/b"), exact("other/a other/b")), (true.into(), true.into()));
    assert_eq!((exact("data/c data/c@one"), exact("data/c data/over")), (true.into(), false.into()));
    world.refused("dump d1 d2 d3 --delta data/a data/c", 3, "V0301");
    let disk = std::fs::File::options().write(true).open(world.path("d1")).expect("a disk");
    disk.write_all_at(&[0; 8192], POOL_AT).expect("it is writable");
    assert_eq!(exact("data/c data/c@one"), true, "the pool before it is damaged");
    let text = world.refused("dump d1 d2 d3 --delta data/a data/b", 7, "V0802");
    assert!(text.contains("data/p"), "{text}");
}

#[test]
fn the_content_of_a_volume_does_not_say_whether_it_was_put_aside() {
    let mut world = World::with_group();
    world.ok("pool create data/p --size 100M");
    world.ok("lv create data/home --size 64M");
    world.ok("lv create data/plain --size 64M");
    world.ok("snap create data/home@one");
    assert_eq!(world.stop(), Some(0));
    world.ok("repair d1 d2 --store data/p -y");
    world.start();
    let places = ["data/p.store-1", "data/home", "data/plain"].map(|name| place(&world, name));
    assert_eq!(world.stop(), Some(0));
    let (kept, others) = places.split_first().expect("three");
    let open = |disk: &str| std::fs::File::options().read(true).write(true).open(disk).expect("a disk");
    let mut content = vec![0; kept.2];
    open(&kept.0).read_exact_at(&mut content, kept.1).expect("it is long enough");
    for (disk, offset, _) in others {
        open(disk).write_all_at(&content, *offset).expect("it is long enough");
    }
    assert!(world.ok("dump d1 d2 --store data/p.store-1").starts_with("varve-thin-pool 2\n"));
    assert!(world.ok("dump d1 d2 --store data/home").starts_with("varve-exception-store 1\n"));
    world.refused("dump d1 d2 --store data/plain", 3, "V0301");
}
