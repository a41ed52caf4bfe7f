//! Members of a mirror in whose place there are copies that were made of their disks while it served.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use crate::replacing::wait_for_members;
use std::time::{Duration, Instant};

/// So long something may take on a machine that is busy with other work.
const SOON: Duration = Duration::from_secs(120);
const SIZE: u64 = 4 << 20;

/// A mirror of d1 and d2; `copy` was made of d2 when it was full of ones, and it is full of twos since.
fn world() -> World {
    world_of(&[
        "lv create data/m --size 4M --type mirror --copies 2 --on d1,d2",
        "export create data/m --nbd unix:m.sock",
    ])
}

/// The same of a volume in a pool.
fn world_with_a_pool() -> World {
    world_of(&[
        "pool create data/m --size 16M --type mirror --copies 2 --on d1,d2",
        "lv create data/t --pool m --size 4M",
        "export create data/t --nbd unix:m.sock",
    ])
}

fn world_of(commands: &[&str]) -> World {
    let world = World::started();
    world.ok("pv create d1 d2 --size 256M");
    world.ok("vg create data d1 d2");
    for command in commands {
        world.ok(command);
    }
    fill(&world, 1);
    std::fs::copy(world.path("d2"), world.path("copy")).expect("a copy of a disk in use");
    fill(&world, 2);
    world
}

fn client(world: &World) -> Client {
    Client::new(&world.path("m.sock"), "")
}

/// Fills the volume, flushes it, and waits until nothing is dirty.
fn fill(world: &World, byte: u8) {
    let mut client = client(world);
    client.fill(0, SIZE, byte).expect("it serves");
    client.flush();
    let begun = Instant::now();
    while world.data("array show data/m")[0]["array"]["dirty"] != 0 {
        assert!(begun.elapsed() < SOON, "{}", world.ok("array show data/m"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Overwrites d2 with its older copy, as a disk that is cloned onto another is.
fn put_copy_back(world: &World) {
    std::fs::copy(world.path("copy"), world.path("d2")).expect("the copy is as long");
}

/// What was written last is read, whichever member is asked.
fn check_reads(world: &World) {
    let mut client = client(world);
    for turn in 0..4 {
        let old = client.read_all().into_iter().filter(|byte| *byte != 2).count();
        assert_eq!(old, 0, "old bytes, in reading number {turn}");
    }
}

/// Both members have what was written last, and each alone returns it.
fn check_both(world: &World) {
    wait_for_members(world, &["m"]);
    check_reads(world);
    assert!(world.ok("array scrub data/m --check-only --wait").contains("all members fit"));
    for disk in ["d1", "d2"] {
        world.ok(&format!("array fail data/m {disk}"));
        check_reads(world);
        world.ok(&format!("pv scan {disk}"));
        wait_for_members(world, &["m"]);
    }
    assert_eq!(world.ok("status --check"), "ok\n");
}

#[test]
fn an_older_member_over_a_restart_is_named_and_filled_anew_once_a_person_says_so() {
    let mut world = world();
    assert_eq!(world.stop(), Some(0));
    put_copy_back(&world);
    world.start();
    let message = world.refused("lv activate data/m", 7, "V0307");
    assert!(message.contains("member 1 is in an older state than another one"), "{message}");
    assert!(message.contains("varve lv activate data/m --accept-missing"), "{message}");
    let problems = world.data("status")["problems"].to_string();
    assert!(problems.contains("member 1 is in an older state") && problems.contains("data/m"), "{problems}");
    assert!(!world.path("m.sock").exists(), "no client is served by a mirror that is not in use");
    let plan = world.ok("lv activate data/m --accept-missing -n");
    assert!(plan.contains("member 1 is in an older state"), "{plan}");
    world.ok("lv activate data/m --accept-missing -y");
    let begun = Instant::now();
    while !world.path("m.sock").exists() {
        assert!(begun.elapsed() < SOON, "{}", world.ok("export list"));
        std::thread::sleep(Duration::from_millis(50));
    }
    check_reads(&world);
    check_both(&world);
    assert_eq!(world.stop(), Some(0));
    world.start();
    check_both(&world);
}

#[test]
fn an_older_member_that_is_scanned_is_filled_anew_and_nothing_old_is_read() {
    for world in [world(), world_with_a_pool()] {
        world.ok("array fail data/m d2");
        let mut client = client(&world);
        client.write(0, &[2; 4096]).expect("the other member serves");
        client.flush();
        put_copy_back(&world);
        world.ok("pv scan d2");
        check_reads(&world);
        check_both(&world);
    }
}

/// Snapshots are what they were, whichever member of their store is asked.
#[test]
fn an_older_member_below_a_snapshot_store_is_filled_anew_and_snapshots_are_what_they_were() {
    let world = world_of(&[
        "lv create data/m --size 4M --type mirror --copies 2 --on d1,d2",
        "snap create data/m@zeros",
        "export create data/m --nbd unix:m.sock",
    ]);
    // The copy of d2 knows nothing of this.
    world.ok("snap create data/m@twos");
    fill(&world, 3);
    fill(&world, 2);
    world.ok("array fail data/m d2");
    put_copy_back(&world);
    world.ok("pv scan d2");
    check_both(&world);
    for (name, byte) in [("zeros", 0), ("twos", 2)] {
        world.ok(&format!("export create data/m@{name} --nbd unix:{name}.sock"));
        for disk in ["d1", "d2"] {
            world.ok(&format!("array fail data/m {disk}"));
            let mut client = Client::new(&world.path(&format!("{name}.sock")), "");
            assert!(client.read_all().into_iter().all(|found| found == byte), "{name} without {disk}");
            world.ok(&format!("pv scan {disk}"));
            wait_for_members(&world, &["m"]);
        }
    }
}
