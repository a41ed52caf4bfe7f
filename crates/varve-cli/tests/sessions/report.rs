//! `varve report`: all that the daemon says, in one file.

use crate::harness::World;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn a_report_has_what_every_list_says_and_one_without_a_daemon_what_the_host_says() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 8M");
    world.ok("snap create data/a@one");
    world.ok("export create data/a --nbd unix:a.sock");
    let said = world.ok("report told.json");
    assert!(said.starts_with("wrote told.json ("), "{said}");
    let read = |world: &World, name: &str| -> Value {
        serde_json::from_slice(&fs::read(world.path(name)).expect("it is there")).expect("JSON")
    };
    let told = read(&world, "told.json");
    let lists = [
        ("volumes", "lv list"),
        ("snapshots", "snap list"),
        ("exports", "export list"),
        ("disks", "pv list"),
        ("pools", "pool list"),
        ("jobs", "job list"),
    ];
    for (what, list) in lists {
        assert_eq!(told[what], world.data(list), "{what}");
    }
    assert_eq!((&told["groups"][0]["name"], &told["status"]["health"]), (&"data".into(), &"ok".into()));
    assert_eq!(told["histories"]["data"], world.data("vg history data"));
    assert!(
        told["metrics"].as_str().is_some_and(|text| text.contains("varve_problems 0\n")),
        "{}",
        told["metrics"]
    );
    assert!(
        told["process"]["cmdline"].as_str().is_some_and(|text| text.contains("daemon --")),
        "{}",
        told["process"]
    );
    assert_eq!(fs::metadata(world.path("told.json")).expect("it is there").mode() & 0o777, 0o600);
    let before = fs::read(world.path("told.json")).expect("it is there");
    world.refused("report told.json", 4, "V0112");
    assert_eq!(fs::read(world.path("told.json")).expect("it is there"), before);
    world.refused("report missing/told.json", 1, "V0902");

    assert_eq!(world.stop(), Some(0));
    world.ok("report alone.json");
    let alone = read(&world, "alone.json");
    assert_eq!(alone["status"]["error"]["code"], "V0005");
    let version = fs::read_to_string("/proc/version").expect("it is Linux");
    assert_eq!(alone["host"]["/proc/version"], Value::from(version));
}
