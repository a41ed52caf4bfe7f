//! The daemon as a service: what it tells the service manager, jobs that go on, a log without noise.

use crate::harness::World;
use serde_json::json;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

#[test]
fn the_service_manager_is_told() {
    let mut world = World::new();
    let manager = UnixDatagram::bind(world.path("notify.sock")).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(120))).expect("it is ours");
    let told = || {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).expect("a message in time");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    world.start();
    assert!(told().lines().any(|line| line == "READY=1"));
    assert_eq!(world.stop(), Some(0));
    assert!(told().lines().any(|line| line == "STOPPING=1"));
}

fn snapshots(world: &World) -> usize {
    world.data("snap list").as_array().map_or(0, Vec::len)
}

/// A volume with `count` snapshots.
fn with_snapshots(count: usize) -> World {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    let names: Vec<String> = (0..count).map(|number| format!("data/a@s{number}")).collect();
    world.ok(&format!("snap create {}", names.join(" ")));
    world
}

#[test]
fn a_job_whose_volume_is_gone_fails_with_a_reason() {
    let mut world = with_snapshots(1);
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault("job-erasure"); // It goes on with the next start.
    world.ok("snap rollback data/a@s0 --no-snapshot -y --wait");
    world.ok("snap remove data/a@s0 -y --wait");
    world.ok("lv remove data/a --now -y");
    world.kill();
    world.start();
    let text = world.refused("job wait 1", 1, "V0703");
    assert!(text.contains("data/a@s0") && text.contains("help: varve lv list"), "{text}");
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(world.data("job list"), json!([]), "it has ended");
}

#[test]
fn a_cancelled_job_keeps_what_it_did_and_does_not_come_back() {
    let mut world = with_snapshots(120);
    let job = world.data("snap remove data/a@s0..@s119 -y --no-wait");
    let id = job["id"].as_str().expect("an id").to_owned();
    let asked = world.run(&format!("job cancel {id}"));
    let ended = world.run(&format!("job wait {id} --json"));
    let state = world.data(&format!("job show {id}"))["state"].clone();
    let left = snapshots(&world);
    match state.as_str() {
        Some("cancelled") => assert!(asked.exit == 0 && ended.exit != 0 && left > 0, "{left} left"),
        Some("done") => assert!(left == 0, "{left} left"),
        other => panic!("{other:?} after the wait"),
    }
    assert_eq!(world.stop(), Some(0));
    world.start();
    // Snapshots that had gone when it was cancelled may be given back yet, by a job of their own.
    let jobs = world.data("job list");
    assert!(jobs.as_array().expect("a list").iter().all(|job| job["id"] != id), "{jobs}");
    assert_eq!(snapshots(&world), left);
}

#[test]
fn a_file_through_fuse_leaves_no_noise_in_the_log() {
    if !std::path::Path::new("/dev/fuse").exists() {
        println!("SKIPPED: no /dev/fuse here");
        return;
    }
    let mut world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("export create data/a --fuse a.img");
    // Copying asks for extended attributes; listing, for access lists.
    for words in [&["cp", "--preserve=all", "--sparse=always", "a.img", "copy"][..], &["ls", "-lZ", "a.img"]]
    {
        let mut command = std::process::Command::new(words[0]);
        let output = command.args(&words[1..]).current_dir(world.path(".")).output().expect("a tool");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    world.ok("export remove a.img");
    world.ok("export create data/a --fuse a.img");
    assert_eq!(world.stop(), Some(0));
    let log = world.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

/// Each disk, export and client takes a descriptor, and service managers give 1,024.
#[test]
fn a_daemon_that_is_started_with_a_low_limit_of_open_files_takes_what_the_hard_limit_allows() {
    let mut world = World::new();
    world.start_below("ulimit -S -n 40");
    let disks: Vec<String> = (0..60).map(|number| format!("d{number}")).collect();
    world.ok(&format!("pv create {} --size 8M", disks.join(" ")));
    world.ok(&format!("vg create data {}", disks.join(" ")));
    assert_eq!(world.data("pv list").as_array().map(Vec::len), Some(60));
    assert_eq!(world.ok("status --check"), "ok\n");
    assert_eq!(world.stop(), Some(0));
}

#[test]
fn an_export_for_which_there_is_no_descriptor_is_refused_with_the_limit_and_not_remembered() {
    let mut world = World::new();
    world.start_below("ulimit -n 60");
    world.ok("pv create d1 --size 64M");
    world.ok("vg create data d1");
    world.ok("lv create data/a --size 4M");
    let mut served = 0;
    let refused = loop {
        let ended = world.run(&format!("export create data/a --nbd unix:a{served}.sock"));
        if ended.exit != 0 {
            break ended;
        }
        served += 1;
        assert!(served < 60, "each export takes a descriptor");
    };
    assert!(served > 0, "{}", refused.stderr);
    assert!(refused.stderr.contains("Too many open files"), "{}", refused.stderr);
    assert!(refused.stderr.contains("help: start the daemon with a higher hard limit"), "{}", refused.stderr);
    let exports = |world: &World| world.data("export list").as_array().map(Vec::len);
    assert_eq!(exports(&world), Some(served), "none is half made");
    for number in 0..2 {
        world.ok(&format!("export remove a{number}.sock"));
    }
    world.ok("export create data/a --nbd unix:again.sock");
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(exports(&world), Some(served - 1), "what was refused is not remembered");
    assert_eq!(world.ok("status --check"), "ok\n");
}
