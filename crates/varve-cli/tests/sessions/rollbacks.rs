//! Rollbacks to a snapshot from before the volume grew: one rule for every kind of volume.
//!
//! The content comes back, the size stays: what lies beyond the snapshot's end is zeros from that instant on, whatever
//! happens to the daemon.

use crate::client::Client;
use crate::harness::World;
use serde_json::json;

const MIB: u64 = 1 << 20;
/// Bytes of the volume when the snapshot was taken, and later.
const OLD: u64 = 4 * MIB;
const NEW: u64 = 10 * MIB;

/// A kind of volume: how `data/a` comes to be, and how its snapshot is taken.
struct Kind {
    make: &'static [&'static str],
    snapshot: &'static str,
    /// The MiB in which the snapshot and the volume are said to differ at the end: what was written since and, of a thick
    /// volume, what the snapshot does not have.
    differs: (u64, u64),
}

const POOL: &str = "pool create data/p --size 100M";
const KINDS: [Kind; 4] = [
    Kind { make: &["lv create data/a --size 4M"], snapshot: "snap create data/a@s", differs: (4, 6) },
    Kind {
        make: &["lv create data/a --size 4M"],
        snapshot: "snap create data/a@s --mode independent",
        differs: (4, 6),
    },
    Kind {
        make: &[POOL, "lv create data/a --pool p --size 4M"],
        snapshot: "snap create data/a@s",
        differs: (7, 1),
    },
    Kind {
        make: &[
            "lv create data/base --size 4M",
            "snap create data/base@gold --read-only",
            POOL,
            "lv create data/a --pool p --origin data/base@gold",
        ],
        snapshot: "snap create data/a@s",
        differs: (7, 1),
    },
];

/// The first and the last byte of each MiB of `data/a`, which has `NEW` bytes.
fn content(world: &World) -> Vec<u8> {
    let all = Client::new(&world.path("a.sock"), "data/a").read_all();
    assert_eq!(all.len() as u64, NEW, "the size stays");
    let byte = |part: &[u8]| {
        assert!(part.iter().all(|byte| *byte == part[0]), "all of a MiB is of one time");
        part[0]
    };
    all.chunks(1 << 20).map(byte).collect()
}

#[test]
fn a_rollback_of_a_volume_that_had_grown_brings_content_back_and_keeps_the_size() {
    for Kind { make, snapshot, differs } in KINDS {
        let mut world = World::started();
        world.ok("pv create d1 --size 300M");
        world.ok("vg create data d1 --extent-size 1M");
        make.iter().for_each(|line| drop(world.ok(line)));
        world.ok("export create data/a --nbd unix:a.sock");
        Client::new(&world.path("a.sock"), "data/a").fill(0, OLD, 1).expect("space");
        world.ok(snapshot);
        world.ok("lv extend data/a --size 10M");
        let mut client = Client::new(&world.path("a.sock"), "data/a");
        client.fill(2 * MIB, NEW - 2 * MIB, 2).expect("space");
        drop(client);
        assert_eq!(content(&world), [1, 1, 2, 2, 2, 2, 2, 2, 2, 2], "{snapshot}");

        let plan = world.ok("snap rollback data/a@s --no-snapshot -n");
        assert!(plan.contains("make its last 6291456 bytes, from byte 4194304 to 10485760, zeros"), "{plan}");
        world.ok("snap rollback data/a@s --no-snapshot -y");
        let restored = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(content(&world), restored, "from that instant on: {make:?}, {snapshot}");
        let mut client = Client::new(&world.path("a.sock"), "data/a");
        client.fill(7 * MIB, MIB, 3).expect("space");
        client.flush();
        drop(client);
        let written = [1, 1, 1, 1, 0, 0, 0, 3, 0, 0];
        assert_eq!(content(&world), written, "{make:?}, {snapshot}");
        world.kill();
        world.start();
        assert_eq!(content(&world), written, "and behind a crash: {make:?}, {snapshot}");
        for job in world.data("job list").as_array().expect("a list") {
            world.ok(&format!("job wait {}", job["id"].as_str().expect("a text")));
        }
        assert_eq!(content(&world), written, "and when all is restored: {make:?}, {snapshot}");
        let plan = world.ok("snap rollback data/a@s --no-snapshot -n");
        assert!(plan.contains("4194304 to 10485760"), "the snapshot is what it was: {plan}");
        let extents = world.data("snap diff data/a@s")["extents"].clone();
        let (offset, length) = differs;
        assert_eq!(
            extents,
            json!([{ "offset": offset * MIB, "length": length * MIB }]),
            "{make:?}, {snapshot}"
        );
        assert_eq!(world.stop(), Some(0), "{}", world.log());
    }
}

#[test]
fn a_rollback_keeps_what_was_before_as_a_snapshot_and_its_plan_says_so() {
    for make in [["", "lv create data/a --size 4M"], [POOL, "lv create data/a --pool p --size 4M"]] {
        let mut world = World::started();
        world.ok("pv create d1 --size 300M");
        world.ok("vg create data d1 --extent-size 1M");
        make.iter().filter(|line| !line.is_empty()).for_each(|line| drop(world.ok(line)));
        world.ok("export create data/a --nbd unix:a.sock");
        let fill = |value| Client::new(&world.path("a.sock"), "data/a").fill(0, OLD, value).expect("space");
        let all = |world: &World, volume: &str| {
            let (address, name) = (format!("{volume}.read"), format!("data/{volume}"));
            world.ok(&format!("export create {name} --nbd unix:{address}"));
            let all = Client::new(&world.path(&address), &name).read_all();
            world.ok(&format!("export remove {address}"));
            assert!(all.iter().all(|byte| *byte == all[0]) && all.len() as u64 == OLD);
            all[0]
        };
        fill(1);
        world.ok("snap create data/a@s");
        fill(2);
        let plan = world.ok("snap rollback data/a@s -n");
        assert!(
            plan.contains("would make the snapshot data/a@before-rollback-1 of what data/a shows"),
            "{plan}"
        );
        assert!(!plan.contains("is lost"), "{plan}");
        assert_eq!(world.data("snap list data/a").as_array().map(Vec::len), Some(1), "-n makes none");
        let job = world.data("snap rollback data/a@s -y --wait");
        assert_eq!(job["kept"], json!("data/a@before-rollback-1"), "{job}");
        assert_eq!((all(&world, "a"), all(&world, "a@before-rollback-1")), (1, 2), "{make:?}");
        fill(3);
        let said = world.ok("snap rollback data/a@before-rollback-1 -y --wait");
        assert!(said.contains("what it showed before is data/a@before-rollback-2"), "{said}");
        let three = [all(&world, "a"), all(&world, "a@s"), all(&world, "a@before-rollback-2")];
        assert_eq!(three, [2, 1, 3], "{make:?}");
        world.ok("snap rollback data/a@s -y --wait --no-snapshot");
        assert_eq!(world.data("snap list data/a").as_array().map(Vec::len), Some(3));
        world.kill();
        world.start();
        let three =
            [all(&world, "a"), all(&world, "a@before-rollback-1"), all(&world, "a@before-rollback-2")];
        assert_eq!(three, [1, 2, 3], "{make:?}");
        assert_eq!(world.stop(), Some(0), "{}", world.log());
    }
}

#[test]
fn the_plan_of_a_rollback_to_a_longer_state_names_what_is_not_shown() {
    let mut world = World::started();
    world.ok("pv create d1 --size 300M");
    world.ok("vg create data d1 --extent-size 1M");
    world.ok(POOL);
    world.ok("lv create data/a --pool p --size 4M");
    world.ok("snap create data/a@s");
    world.ok("lv reduce data/a --size 1M -y");
    let plan = world.ok("snap rollback data/a@s -n");
    let part = "not show the last 3145728 bytes of data/a@s, from byte 1048576 to 4194304";
    assert!(plan.contains(part), "{plan}");
    assert_eq!(world.stop(), Some(0), "{}", world.log());
}

#[test]
fn a_crash_leaves_the_rollback_and_the_snapshot_of_before_or_neither() {
    for (place, happens) in [
        ("snapshot-set-begun", false),
        ("snapshot-set-made", false),
        ("job-recorded", true),
        ("rollback-begun", true),
    ] {
        let mut world = World::started();
        world.ok("pv create d1 --size 300M");
        world.ok("vg create data d1 --extent-size 1M");
        world.ok("lv create data/a --size 4M");
        world.ok("export create data/a --nbd unix:a.sock");
        let fill = |world: &World, value| {
            let mut client = Client::new(&world.path("a.sock"), "data/a");
            client.fill(0, OLD, value).expect("space");
            client.flush();
        };
        fill(&world, 1);
        world.ok("snap create data/a@s");
        fill(&world, 2);
        assert_eq!(world.stop(), Some(0));
        world.start_with_fault(place);
        assert_ne!(world.run("snap rollback data/a@s -y").exit, 0, "{place}");
        world.wait_for_death();
        world.start();
        for job in world.data("job list").as_array().expect("a list") {
            world.ok(&format!("job wait {}", job["id"].as_str().expect("a text")));
        }
        let shown = Client::new(&world.path("a.sock"), "data/a").read_all();
        let snapshots = world.data("snap list data/a").as_array().map(Vec::len);
        let expected = if happens { (1, Some(2)) } else { (2, Some(1)) };
        assert_eq!((shown[0], snapshots), expected, "ROLLJOB4: {place}");
        assert_eq!(world.stop(), Some(0), "{}", world.log());
    }
}

#[test]
fn what_clients_have_open_is_not_changed_renamed_or_taken_away_unless_it_is_forced() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 4M");
    world.ok("export create data/a --nbd unix:a.sock");
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.fill(0, OLD, 1).expect("space");
    world.ok("snap create data/a@s");
    client.fill(0, OLD, 2).expect("space");
    let process = format!("process {}", std::process::id());
    assert!(world.data("export list")[0]["clients"][0].as_str().is_some_and(|name| name.contains(&process)));
    for words in
        ["snap rollback data/a@s -y", "export remove a.sock -y", "lv rename data/a b", "vg rename data other"]
    {
        for words in [words.to_owned(), format!("{words} -n")] {
            let refused = world.refused(&words, 5, "V0507");
            assert!(refused.contains(&process) && refused.contains("e1"), "EXPORTS4: {refused}");
        }
    }
    assert_eq!(client.read(0, 4096), Ok(vec![2; 4096]), "EXPORTS4: it is what the client wrote");
    assert_eq!(world.data("snap list data/a").as_array().map(Vec::len), Some(1));
    world.ok("snap rollback data/a@s -y --force");
    assert_eq!(client.read(0, 4096), Ok(vec![1; 4096]));
    world.ok("lv rename data/a b --force");
    assert_eq!(client.read(0, 4096), Ok(vec![1; 4096]), "it stays connected");
    world.ok("export remove a.sock --force");
    assert!(world.data("export list").as_array().is_some_and(Vec::is_empty));
    assert_eq!(world.stop(), Some(0), "{}", world.log());
}

#[test]
fn a_file_that_is_open_is_in_use_until_it_is_closed() {
    if !std::path::Path::new("/dev/fuse").exists() {
        println!("SKIPPED: no /dev/fuse here");
        return;
    }
    let mut world = World::with_group();
    world.ok("lv create data/a --size 4M");
    world.ok("snap create data/a@s");
    world.ok("export create data/a --fuse a.img");
    assert_eq!(world.data("export list")[0]["connections"], 0);
    let file = std::fs::File::open(world.path("a.img")).expect("it is served");
    for words in ["snap rollback data/a@s -y", "export remove a.img -y", "export remove a.img -n"] {
        let refused = world.refused(words, 5, "V0507");
        assert!(refused.contains(&format!("process {}", std::process::id())), "EXPORTS4: {refused}");
    }
    drop(file);
    world.ok("snap rollback data/a@s -y");
    let file = std::fs::File::open(world.path("a.img")).expect("it is served");
    world.ok("export remove a.img --force");
    assert!(world.data("export list").as_array().is_some_and(Vec::is_empty));
    drop(file);
    assert_eq!(world.stop(), Some(0), "{}", world.log());
}
