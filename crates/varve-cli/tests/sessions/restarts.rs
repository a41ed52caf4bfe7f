//! Ends and beginnings: SIGTERM, SIGKILL, a lost state directory, disks that move, are missing or were copied.

use crate::harness::World;
use serde_json::Value;

/// Volumes, snapshots and exports, without what was counted.
fn shown(world: &World) -> Vec<Value> {
    let mut volumes = world.data("lv list");
    for volume in volumes.as_array_mut().expect("a list") {
        let volume = volume.as_object_mut().expect("an object");
        for counted in ["traffic", "shard", "snapshot_store"] {
            volume.remove(counted);
        }
    }
    vec![volumes, world.data("snap list"), world.data("export list")]
}

fn furnished() -> World {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("lv create data/b --size 64M --type striped --stripes 2");
    world.ok("snap create data/a@one data/b@one");
    world.ok("export create data/a --nbd unix:a.sock");
    world.ok("export create data/b@one --nbd unix:b.sock --read-only");
    world
}

#[test]
fn everything_comes_back_after_sigterm_and_after_sigkill() {
    let mut world = furnished();
    let before = shown(&world);
    assert_eq!(world.stop(), Some(0));
    assert!(!world.path("varve.sock").exists() && !world.path("a.sock").exists(), "it tidies up");
    world.start();
    assert_eq!(shown(&world), before);
    // At once: what the kernel still holds of the killed daemon is waited for.
    for _ in 0..4 {
        world.kill();
        assert!(world.path("a.sock").exists(), "a killed daemon leaves its sockets");
        world.start();
        assert_eq!(shown(&world), before, "EXPORTS1: and they are replaced");
    }
}

#[test]
fn the_state_directory_may_be_lost() {
    let mut world = furnished();
    let before = shown(&world);
    world.kill();
    std::fs::remove_dir_all(world.path("state")).expect("it is there");
    world.start();
    assert_eq!(world.data("vg list"), Value::Array(Vec::new()));
    world.ok("pv scan d1 d2");
    let after = shown(&world);
    assert_eq!(after[1].as_array().map(Vec::len), Some(2), "snapshots are on the disks");
    assert_eq!(after[0][0]["id"], before[0][0]["id"]);
    assert_eq!(after[2], Value::Array(Vec::new()), "exports were only remembered");
}

#[test]
fn a_moved_disk_is_found_again() {
    let mut world = furnished();
    let before = shown(&world);
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("d2"), world.path("elsewhere")).expect("it is there");
    world.start();
    assert_eq!(world.data("vg show data")["state"], "incomplete");
    let states = world.data("pv list");
    let missing = states.as_array().expect("a list").iter().filter(|disk| disk["state"] == "missing").count();
    assert_eq!(missing, 1, "{states}");
    assert_eq!(world.data("lv show data/b")["state"], "unusable");
    world.refused("snap create data/b@two", 7, "V0307");
    assert!(world.log().contains("d2"), "the log names it");
    world.ok("pv scan elsewhere");
    assert_eq!(world.data("vg show data")["state"], "ok");
    let mut after = shown(&world);
    assert_eq!(after[2], before[2], "its exports came back with it");
    after[0] = before[0].clone(); // the places have moved with the disk
    assert_eq!(after, before);
    assert_eq!(world.data("pv list").as_array().map(Vec::len), Some(2), "the old place is forgotten");
    world.kill();
    world.start();
    assert_eq!(world.data("vg show data")["state"], "ok");
}

#[test]
fn missing_disks_can_be_given_up() {
    let mut world = furnished();
    assert_eq!(world.stop(), Some(0));
    std::fs::remove_file(world.path("d2")).expect("it is there");
    world.start();
    world.refused("vg reduce data --missing", 7, "V0307");
    world.ok("vg reduce data --missing --with-volumes -y");
    assert_eq!(world.data("vg show data")["state"], "ok");
}

#[test]
fn a_copied_disk_is_refused_and_harms_nobody() {
    let world = furnished();
    std::fs::copy(world.path("d1"), world.path("copy")).expect("it is there");
    let before = shown(&world);
    let text = world.refused("pv scan copy", 1, "V0111");
    assert!(text.contains("clone"), "{text}");
    assert_eq!(shown(&world), before, "DISKS2");
}

#[test]
fn only_one_daemon_at_a_time() {
    let world = furnished();
    let state = world.refused("daemon --state state --socket other.sock", 5, "V0007");
    assert!(state.contains("another daemon"), "{state}");
    world.refused("daemon --state other --socket varve.sock", 5, "V0007");
    world.ok("lv list");
    let mut second = World::new();
    second.start();
    let disk = world.path("d1");
    second.refused(&format!("pv scan {}", disk.display()), 5, "V0104");
    second.refused(&format!("pv create {} --yes", disk.display()), 5, "V0104");
}
