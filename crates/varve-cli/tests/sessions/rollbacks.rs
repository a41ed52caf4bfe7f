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

        let plan = world.ok("snap rollback data/a@s -n");
        assert!(plan.contains("make its last 6291456 bytes, from byte 4194304 to 10485760, zeros"), "{plan}");
        world.ok("snap rollback data/a@s -y");
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
        let plan = world.ok("snap rollback data/a@s -n");
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
