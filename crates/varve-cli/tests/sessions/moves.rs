//! Disks that are emptied while what lies on them is used.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::harness::World;
use crate::writer::Writer;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// So long something may take on a machine that is busy with other work.
const SOON: Duration = Duration::from_secs(300);

/// The job that empties a disk, as it is now.
fn moving(world: &World) -> serde_json::Value {
    let jobs = world.data("job list");
    let mut jobs = jobs.as_array().expect("a list").iter().rev();
    jobs.find(|job| job["kind"] == "move")
        .cloned()
        .unwrap_or_else(|| panic!("no move: {}", world.data("job list")))
}

/// Lets `writers` work until the move has ended, which it must do well.
fn work_until_moved(world: &World, writers: &mut [&mut Writer]) {
    let end = Instant::now() + SOON;
    while moving(world)["state"] == "running" {
        writers.iter_mut().for_each(|writer| writer.work(20));
        assert!(Instant::now() < end, "{}", moving(world));
    }
    assert_eq!(moving(world)["state"], "done", "{}", moving(world));
}

/// Takes a disk out of the group, and away.
fn take_away(world: &mut World, disk: &str) {
    world.ok(&format!("vg reduce data {disk}"));
    world.ok(&format!("pv remove {disk} -y"));
    std::fs::remove_file(world.path(disk)).expect("nothing of the group is there");
}

#[test]
fn a_disk_is_emptied_under_load_and_the_move_goes_on_after_a_crash() {
    let mut world = World::started();
    world.ok("pv create d1 d2 --size 700M");
    world.ok("vg create data d1 d2");
    world.ok("lv create data/vm --size 600M --on d1");
    let mut writer = Writer::new(&world, "data/vm");
    writer.work(2000);
    let job = world.data("pv move d1 --rate 100M --no-wait");
    assert_eq!((&job["kind"], &job["state"]), (&"move".into(), &"running".into()), "{job}");
    let end = Instant::now() + SOON;
    while moving(&world)["done"].as_u64().expect("bytes") < 300 * MIB {
        writer.work(20);
        assert!(Instant::now() < end, "{}", moving(&world));
    }
    world.kill();
    world.start();
    writer.reconnect(&world);
    assert_eq!(moving(&world)["state"], "running", "MOVEJOB1");
    writer.check();
    work_until_moved(&world, &mut [&mut writer]);
    writer.check();
    let segments = world.data("lv show data/vm")["segments"].to_string();
    assert!(segments.contains("/d2:1048576") && !segments.contains("/d1:"), "in one run: {segments}");
    take_away(&mut world, "d1");
    writer.work(20);
    world.ok("pv scan");
    writer.check();
    assert_eq!(world.stop(), Some(0));
    world.start();
    writer.reconnect(&world);
    writer.check();
}

#[test]
fn whatever_lies_on_a_disk_moves() {
    let mut world = World::started();
    world.ok("pv create d1 d2 d3 d4 --size 700M");
    world.ok("vg create data d1 d2 d3 d4");
    world.ok("lv create data/wide --size 64M --type striped --stripes 2 --on d1,d2");
    world.ok("lv create data/safe --size 64M --type mirror --copies 2 --on d1,d2");
    world.ok("lv create data/parity --size 64M --type ddraid --order 1 --on d1,d2,d3");
    world.ok("lv create data/vm --size 64M --on d1");
    world.ok("pool create data/p --size 200M --on d1");
    world.ok("lv create data/thin --pool p --size 1G");
    let mut writers: Vec<Writer> = ["data/wide", "data/safe", "data/parity", "data/vm", "data/thin"]
        .into_iter()
        .map(|name| Writer::new(&world, name))
        .collect();
    writers.iter_mut().for_each(|writer| writer.work(300));
    world.ok("snap create data/vm@before data/thin@before");
    let before: Vec<_> = writers[3..].iter().map(|writer| writer.blocks.clone()).collect();
    world.ok("pv move d1 --rate 200M --no-wait");
    let mut all: Vec<&mut Writer> = writers.iter_mut().collect();
    work_until_moved(&world, &mut all);
    take_away(&mut world, "d1");
    writers.iter_mut().for_each(|writer| writer.work(20));
    for restarted in [false, true] {
        if restarted {
            assert_eq!(world.stop(), Some(0));
            world.start();
            writers.iter_mut().for_each(|writer| writer.reconnect(&world));
        }
        // MOVEJOB2, MOVEJOB3
        writers.iter_mut().for_each(Writer::check);
        assert!(world.data("status")["problems"].is_null(), "{}", world.data("status"));
    }
    for (name, blocks) in ["data/vm@before", "data/thin@before"].into_iter().zip(before) {
        let mut snapshot = Writer::new(&world, name);
        snapshot.blocks = blocks;
        snapshot.check();
    }
}

#[test]
fn a_move_is_shown_refused_and_ended() {
    let mut world = World::started();
    world.ok("pv create d1 d2 d3 --size 300M");
    world.ok("vg create data d1 d2 d3");
    world.ok("lv create data/vm --size 200M --on d1");
    let plan = world.ok("pv move d1 d2 -n");
    assert!(plan.contains("would move 200.0 MiB of data/vm from pv0:0+50 to pv1:0+50"), "{plan}");
    assert_eq!(world.data("job list").as_array().map(Vec::len), Some(0), "nothing was begun");
    let help = world.refused("vg reduce data d1", 5, "V0210");
    assert!(help.contains("varve pv move"), "{help}");
    world.refused("pv move d3", 3, "V0116");
    world.refused("pv move d9", 3, "V0106");
    let mut writer = Writer::new(&world, "data/vm");
    writer.work(500);
    let job = world.data("pv move d1 d2 --rate 1M --no-wait")["id"].as_str().expect("an id").to_owned();
    world.refused("pv move d1", 5, "V0309");
    world.refused("lv extend data/vm --size +4M", 5, "V0309");
    world.ok(&format!("job cancel {job}"));
    let end = Instant::now() + SOON;
    while moving(&world)["state"] == "running" {
        writer.work(5);
        assert!(Instant::now() < end, "{}", moving(&world));
    }
    assert_eq!(moving(&world)["state"], "cancelled");
    let segments = world.data("lv show data/vm")["segments"].to_string();
    assert!(
        segments.contains("/d1:") && !segments.contains("/d2:"),
        "its first step had not ended: {segments}"
    );
    world.ok("lv extend data/vm --size +4M");
    writer.check();
    // A disk that is not there is not moved from.
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("d1"), world.path("away")).expect("renamed");
    world.start();
    let missing = world.refused("pv move d1", 1, "V0205");
    assert!(missing.contains("varve pv replace"), "{missing}");
}

#[test]
fn what_moves_onto_a_disk_that_a_volume_has_left_moves_on_without_what_left() {
    // SHARDMOVE2
    let mut world = World::started();
    world.ok("pv create d1 d2 d3 --size 100M");
    world.ok("vg create data d1 d2 d3");
    world.ok("lv create data/wide --size 16M --type striped --stripes 2 --on d1,d2");
    let mut writer = Writer::new(&world, "data/wide");
    writer.work(500);
    // One half leaves d2; the other half comes where it was, and leaves, too.
    for (from, to) in [("d2", "d3"), ("d1", "d2"), ("d2", "d1"), ("d3", "d2"), ("d1", "d3")] {
        world.ok(&format!("pv move {from} {to}"));
        writer.check();
        writer.work(100);
    }
    assert_eq!(world.stop(), Some(0));
    world.start();
    writer.reconnect(&world);
    writer.check();
}
