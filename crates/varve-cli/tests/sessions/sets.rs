//! Snapshots of one instant when the daemon dies while they are made: all of them are there afterwards, or none.

use crate::harness::World;
use serde_json::Value;

/// Two groups with two volumes and a thin one in one and one in the other; `data/a` has a snapshot.
fn furnished() -> World {
    let world = World::with_group();
    world.ok("lv create data/a --size 32M");
    world.ok("lv create data/b --size 32M");
    world.ok("snap create data/a@before");
    world.ok("pool create data/p --size 64M");
    world.ok("lv create data/t --pool p --size 1G");
    world.ok("pv create d3 --size 300M");
    world.ok("vg create other d3");
    world.ok("lv create other/c --size 32M");
    world
}

fn names(world: &World) -> Vec<String> {
    let list = world.data("snap list");
    let name = |snapshot: &Value| snapshot["name"].as_str().expect("a text").to_owned();
    list.as_array().expect("a list").iter().map(name).collect()
}

/// Has the daemon die at `place` while it makes `wanted`, and starts it again.
fn interrupted(world: &mut World, place: &str, wanted: &str) {
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault(place);
    let ended = world.run(&format!("snap create {wanted}"));
    assert_ne!(ended.exit, 0, "nobody says that it was done: {}", ended.stdout);
    world.wait_for_death();
    world.start();
}

#[test]
fn an_interrupted_set_leaves_nothing_and_its_names_are_free() {
    let mut world = furnished();
    for place in ["snapshot-set-begun", "snapshot-set-made"] {
        let sets = ["data/a@x data/b@x", "data/b@x data/b@y", "data/a@x data/b@x other/c@x"];
        for wanted in sets.into_iter().chain(["data/t@x data/t@y", "data/a@x data/t@x other/c@x"]) {
            interrupted(&mut world, place, wanted);
            assert_eq!(names(&world), ["data/a@before"], "SETS1, INSTANT2, {place}: {wanted}");
        }
        interrupted(&mut world, place, "data/a@x data/a@y --mode independent");
        assert_eq!(names(&world), ["data/a@before"], "{place}");
    }
    assert!(world.log().contains("undone: not all snapshots"), "it is said: {}", world.log());
    world.ok("snap create data/a@x data/b@x other/c@x");
    let all = ["data/a@before", "data/a@x", "data/b@x", "other/c@x"];
    assert_eq!(names(&world), all);
    world.kill();
    world.start();
    assert_eq!(names(&world), all, "SETS2: what was acknowledged stays");
    assert_eq!(world.stop(), Some(0));
    assert!(!world.ok("dump d1 d2 d3").contains("snapshot_set"), "nothing is left to resolve");
    assert_eq!(world.data("check d1 d2 d3")["clean"], true);
}

#[test]
fn a_set_is_resolved_when_the_last_of_its_groups_is_here() {
    let mut world = furnished();
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault("snapshot-set-made");
    assert_ne!(world.run("snap create data/a@x other/c@x").exit, 0);
    world.wait_for_death();
    std::fs::rename(world.path("d3"), world.path("away")).expect("it is there");
    world.start();
    assert_eq!(names(&world), ["data/a@before", "data/a@x"], "nobody knows yet whether it counts");
    // SETS4
    let text = world.refused("snap create data/a@x data/b@x", 4, "V0402");
    assert!(text.contains("data/a@x"), "{text}");
    world.ok("pv scan away");
    assert_eq!(names(&world), ["data/a@before"]);
    world.ok("snap create data/a@x other/c@x");
}
