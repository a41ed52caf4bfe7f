//! Arrays that are scrubbed while they serve: what rots on one disk is found, told, and made equal.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);

/// A group with a mirror and a mirrored pool, both with a client's content.
fn with_arrays() -> World {
    let world = World::with_group();
    world.ok("lv create data/m --size 24M --type mirror --copies 2");
    world.ok("pool create data/p --size 40M --type mirror --copies 2");
    world.ok("lv create data/t --pool p --size 24M");
    world.ok("lv create data/plain --size 8M");
    for volume in ["m", "t"] {
        world.ok(&format!("export create data/{volume} --nbd unix:{volume}.sock"));
        let mut client = Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"));
        client.write(1 << 20, &content()).expect("there is space");
        client.flush();
    }
    world
}

fn content() -> Vec<u8> {
    let words = (0..(3 << 20) / 4_u32).map(|at| (at ^ 0x5a5a_1234).to_le_bytes());
    words.flatten().collect()
}

/// Changes a sector in the middle of the first copy of the content on a disk.
fn rot(world: &World, disk: &str) {
    let path = world.path(disk);
    let bytes = std::fs::read(&path).expect("readable");
    let sector = &content()[1 << 20..][..512];
    let at = bytes.chunks_exact(512).position(|chunk| chunk == sector).expect("the content lies there");
    let mut file = std::fs::File::options().write(true).open(&path).expect("writable");
    file.seek(SeekFrom::Start(at as u64 * 512)).expect("it is as long");
    file.write_all(&[0xee; 512]).expect("written");
    file.sync_all().expect("durable");
}

#[test]
fn what_rots_on_one_disk_is_found_told_and_made_equal() {
    let mut world = with_arrays();
    let sound = world.ok("array scrub data/m --wait");
    assert!(sound.contains("data/m: 3.0 MiB verified, all members fit"), "{sound}");
    assert!(world.ok("array scrub data/p --wait").contains("all members fit"));
    rot(&world, "d2");
    let message = world.refused("array scrub data/m --check-only --wait", 7, "V0901");
    assert!(message.contains("blocks of which the members do not fit each other: 1"), "{message}");
    world.refused("array scrub data/m --check-only --wait", 7, "V0901"); // Nothing was written.
    let problem = "lv data/m is not the same on all members of its array: a scrub found 1 blocks of it";
    assert!(world.ok("status").contains(problem), "{}", world.ok("status"));
    let mended = world.ok("array scrub data/m --wait");
    assert!(mended.contains("blocks made equal: 1"), "{mended}");
    let problems = world.data("status")["problems"].to_string(); // Events tell of what has ended as well.
    assert!(!problems.contains("is not the same"), "{problems}");
    assert!(
        world.ok("status").contains("bytes from 2097152 on; they are equal now"),
        "{}",
        world.ok("status")
    );
    let jobs = world.data("job list");
    let last = jobs.as_array().expect("a list").last().expect("a job").clone();
    assert_eq!((&last["kind"], &last["scrub"]["mismatches"]), (&"array-scrub".into(), &1.into()), "{last}");
    assert!(world.ok("array scrub data/m --wait").contains("all members fit"));
    rot(&world, "d2");
    assert!(world.ok("array scrub data/m --wait").contains("blocks made equal: 1"));
    assert_eq!(world.stop(), Some(0));
    world.start();
    let shown = world.data("lv show data/m");
    assert_eq!(shown["array"]["scrub"]["mismatches"], 1, "SCRUBJOB1: it is remembered: {shown}");
    assert!(world.ok("lv show data/m").contains("last scrub: "));
    assert_eq!(world.data("pool show data/p")["array"]["scrub"]["complete"], true);
    let mut client = Client::new(&world.path("m.sock"), "data/m");
    assert_eq!(client.read(1 << 20, 3 << 20), Ok(content()));
}

#[test]
fn a_scrub_is_planned_cancelled_and_refused() {
    let mut world = with_arrays();
    let plan = world.ok("array scrub data/m -n");
    assert!(plan.contains("would compare the members of data/m in 3.0 MiB"), "{plan}");
    world.refused("array scrub data/plain", 2, "V0330");
    world.refused("array scrub data/t", 2, "V0330");
    world.refused("array scrub data/none", 3, "V0301");
    world.refused("array scrub data/m --rate 1K", 2, "V0002");
    let job = world.data("array scrub data/m --rate 64K --no-wait");
    let id = job["id"].as_str().expect("a number").to_owned();
    world.refused("array scrub data/m", 5, "V0309");
    let begun = Instant::now();
    while world.data(&format!("job show {id}"))["done"] == 0 {
        assert!(begun.elapsed() < SOON, "it has begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    world.ok(&format!("job cancel {id}"));
    world.refused(&format!("job wait {id}"), 1, "V0704");
    let job = world.data(&format!("job show {id}"));
    assert_eq!((&job["state"], &job["scrub"]["complete"]), (&"cancelled".into(), &false.into()), "{job}");
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("d1"), world.path("gone")).expect("moved away");
    world.start();
    world.ok("lv activate data/m --accept-missing -y");
    let message = world.refused("array scrub data/m", 5, "V0331");
    assert!(message.contains("is not in sync, and a scrub compares all members"), "{message}");
}
