//! Jobs that stand in the texts of their groups: over a crash, without the state directory, on another host.

use crate::harness::World;
use serde_json::json;

/// The group `data` with two volumes, one of them thin, and the group `other` with one; all have the snapshots `one` and `two`.
fn with_two_groups() -> World {
    let world = World::with_group();
    world.ok("pv create d3 --size 300M");
    world.ok("vg create other d3");
    world.ok("lv create data/v --size 8M");
    world.ok("pool create data/p --size 100M");
    world.ok("lv create data/w --pool p --size 8M");
    world.ok("lv create other/v --size 8M");
    for volume in ["data/v", "data/w", "other/v"] {
        world.ok(&format!("snap create {volume}@one"));
        world.ok(&format!("snap create {volume}@two"));
    }
    world
}

const ALL: &str = "data/v@one data/v@two data/w@one other/v@one other/v@two";

fn left(world: &World) -> Vec<String> {
    let shown = world.data("snap list");
    let names = shown.as_array().expect("a list").iter().map(|one| one["name"].as_str().expect("a name"));
    names.map(str::to_owned).collect()
}

/// The daemon dies at `place` while it removes all of [`ALL`], and the state directory is lost.
fn dead_at(place: &str) -> World {
    let mut world = with_two_groups();
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault(place);
    assert_ne!(world.run(&format!("snap remove {ALL} -y")).exit, 0);
    world.wait_for_death();
    std::fs::remove_dir_all(world.path("state")).expect("there is one");
    world.start();
    world
}

fn has_ended(world: &mut World) {
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(world.data("job list"), json!([]), "it has ended");
}

#[test]
fn snapshots_of_several_groups_go_all_once_their_job_stands_in_all_of_the_groups() {
    let mut world = dead_at("job-recorded");
    world.ok("pv scan d1 d2 d3");
    let job = world.data("job show 1");
    assert_eq!((&job["kind"], &job["subject"]), (&json!("snapshot-remove"), &json!(ALL)), "{job}");
    world.ok("job wait 1");
    assert_eq!(left(&world), ["data/w@two"]);
    let next = world.data("snap remove data/w@two -y --wait");
    assert_eq!(next["id"], "2", "no number is used again");
    has_ended(&mut world);
}

#[test]
fn snapshots_of_several_groups_all_stay_if_their_job_stands_in_some_of_the_groups_only() {
    let mut world = dead_at("job-part-recorded");
    world.ok("pv scan d3");
    assert_eq!(world.data("job list"), json!([]), "JOBRECORD3: the group that decides is not here");
    world.ok("pv scan d1 d2");
    assert_eq!(world.data("job list"), json!([]));
    assert_eq!(left(&world).len(), 6);
    let text = world.ok("vg backup other other.text");
    assert!(text.contains("wrote"), "{text}");
    let text = std::fs::read_to_string(world.path("other.text")).expect("it was written");
    assert!(!text.contains("[[job]]") && text.contains("last_job = 1"), "{text}");
    has_ended(&mut world);
}

#[test]
fn a_job_of_several_groups_waits_for_the_group_that_is_not_here() {
    let mut world = dead_at("job-recorded");
    world.ok("pv scan d1 d2");
    let text = world.refused("job wait 1", 7, "V0307");
    assert!(text.contains("is not here; it goes on when"), "{text}");
    assert_eq!(left(&world), ["data/w@two"], "what is here goes");
    world.ok("pv scan d3");
    world.ok("job wait 2"); // JOBRECORD2: under the next number.
    assert_eq!(left(&world), ["data/w@two"]);
    has_ended(&mut world);
}

#[test]
fn a_job_from_another_host_has_the_next_number_where_its_own_is_taken() {
    let mut world = dead_at("job-recorded");
    world.ok("pv create d4 --size 300M");
    world.ok("vg create own d4");
    world.ok("lv create own/v --size 8M");
    world.ok("snap create own/v@one");
    assert_eq!(world.data("snap remove own/v@one -y --wait")["id"], "1", "JOBRECORD4: it knows of no other");
    world.ok("pv scan d1 d2 d3");
    assert_eq!(world.data("job show 2")["subject"], ALL);
    world.ok("job wait 2");
    assert_eq!(left(&world), ["data/w@two"]);
    for group in ["data", "other"] {
        world.ok(&format!("vg backup {group} {group}.text"));
        let text = std::fs::read_to_string(world.path(&format!("{group}.text"))).expect("it was written");
        assert!(text.contains("last_job = 2") && !text.contains("[[job]]"), "{text}");
    }
    has_ended(&mut world);
}
