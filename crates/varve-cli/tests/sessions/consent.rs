//! What a daemon does not do because a disk says so: open files of its host, or serve a disk to itself.

use crate::client::Client;
use crate::harness::World;
use serde_json::Value;

const LENGTH: usize = 1 << 20;

/// A volume over an image, and the disks of its group in another host's hands.
fn with_foreign_group() -> (World, World) {
    let mut home = World::with_group();
    home.ok("pool create data/p --size 100M --auto-extend off --when-full error");
    std::fs::write(home.path("gold"), vec![7; LENGTH]).expect("a writable folder");
    home.ok("lv create data/a --pool p --image gold");
    home.ok("lv create data/plain --pool p --size 1M");
    assert_eq!(home.stop(), Some(0));
    let mut host = World::new();
    for disk in ["d1", "d2"] {
        std::fs::rename(home.path(disk), host.path(disk)).expect("they move to the other host");
    }
    host.start();
    (home, host)
}

fn read(world: &World, name: &str) -> Vec<u8> {
    world.ok(&format!("export create {name} --nbd unix:read.sock --read-only"));
    let all = Client::new(&world.path("read.sock"), name).read_all();
    world.ok("export remove read.sock -y");
    all
}

fn openings(world: &World) -> usize {
    let status = world.data("status");
    let events: Vec<Value> = status["events"].as_array().expect("a list").clone();
    events
        .iter()
        .filter(|event| event["message"].as_str().is_some_and(|text| text.starts_with("opened as an image")))
        .count()
}

#[test]
fn an_image_that_a_foreign_disk_names_is_opened_only_when_somebody_agrees() {
    let (home, mut host) = with_foreign_group();
    host.ok("pv scan d1 d2");
    let shown = host.data("lv show data/a");
    assert_eq!(shown["state"], "unusable", "{shown}");
    let reason = shown["reason"].as_str().expect("a reason").to_owned();
    assert!(reason.contains(home.path("gold").to_str().expect("UTF-8")), "{reason}");
    let refused = host.refused("export create data/a --nbd unix:a.sock", 7, "V0318");
    assert!(refused.contains("varve pv scan --trust-images"), "{refused}");
    assert_eq!(openings(&host), 0, "IMAGES4: nothing was opened");
    assert_eq!(
        host.data("lv show data/plain")["state"],
        "active",
        "the pool and its other volumes are served"
    );
    // A scan without a word about images is no consent.
    host.ok("pv scan");
    assert_eq!(host.stop(), Some(0));
    host.start();
    assert_eq!((&host.data("lv show data/a")["state"], openings(&host)), (&Value::from("unusable"), 0));

    let would = host.ok("pv scan --trust-images -n");
    assert!(would.contains("would agree to") && would.contains("gold"), "{would}");
    assert_eq!(openings(&host), 0);
    host.ok("pv scan --trust-images");
    assert!(openings(&host) > 0, "an opening is an event");
    assert!(read(&host, "data/a") == vec![7; LENGTH]);
    // It is remembered, under --state.
    assert_eq!(host.stop(), Some(0));
    host.start();
    assert!(read(&host, "data/a") == vec![7; LENGTH]);
}

#[test]
fn a_daemon_takes_no_disk_that_it_serves_itself() {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    if !std::path::Path::new("/dev/fuse").exists() {
        return; // No file can be served here, so none can be a disk.
    }
    world.ok("export create data/a --fuse served");
    for words in
        ["pv create served", "pv create served -y", "vg create inner served", "vg extend data served -y"]
    {
        let refused = world.refused(words, 5, "V0115");
        assert!(refused.contains("which this daemon exports"), "{refused}");
    }
    std::os::unix::fs::symlink(world.path("served"), world.path("link")).expect("a writable folder");
    world.refused("pv create link", 5, "V0115");
    // IDENTITY1
    world.refused("pv scan served", 5, "V0115");
    world.ok("export remove served -y");
    world.ok("pv create elsewhere --size 64M");
}
