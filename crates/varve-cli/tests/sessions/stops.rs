//! What waits can be ended: exports whose writes wait for space, a state directory that takes nothing, a daemon that stops.
#![expect(
    clippy::disallowed_methods,
    reason = "a test waits for a daemon in real time, and writes beside it"
)]

use crate::client::Client;
use crate::harness::{World, http};
use crate::stalling::StallingDisk;
use rustix::process::Signal;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Less than the writes would wait, and enough for a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// A volume of which writes wait for space, for ten minutes, behind an export; the thread that writes.
fn with_waiting_writes() -> (World, JoinHandle<Result<(), u32>>) {
    let world = World::started();
    world.ok("pv create d1 --size 200M");
    world.ok("vg create data d1");
    world.ok("lv create data/a --size 96M --pause-timeout 10m");
    world.ok("lv create data/c --size 4M");
    world.ok("snap create data/a@one");
    world.ok("lv create data/fill --size 100%FREE");
    world.ok("export create data/a --nbd unix:a.sock");
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    let writer = std::thread::spawn(move || client.fill(0, 96 << 20, 1));
    let begun = Instant::now();
    while world.data("lv show data/a")["snapshot_store"]["paused"] != true {
        assert!(begun.elapsed() < SOON, "writes wait: {}", world.ok("lv show data/a"));
    }
    (world, writer)
}

#[test]
fn an_export_whose_writes_wait_is_removed_soon_and_holds_up_no_other_command() {
    let (world, writer) = with_waiting_writes();
    let begun = Instant::now();
    let mut removal = world.command("export remove data/a --force --yes").spawn().expect("it starts");
    // LOCKING2, CHANGE2, SNAPSTORE1
    world.ok("lv rename data/c d");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(removal.wait().expect("it ends").success());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(writer.join().expect("it is answered"), Err(28), "there was no space for it");
    assert!(world.data("export list").as_array().is_some_and(Vec::is_empty));
}

#[test]
fn a_daemon_of_which_writes_wait_stops_soon() {
    let (mut world, writer) = with_waiting_writes();
    let begun = Instant::now();
    // STOP1
    assert_eq!(world.stop(), Some(0));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(writer.join().expect("it is answered"), Err(28));
}

#[test]
fn a_daemon_whose_terminal_is_gone_stops_in_order() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 16M");
    world.ok("export create data/a --nbd unix:a.sock");
    Client::new(&world.path("a.sock"), "data/a").fill(0, 1 << 20, 7).expect("it is served");
    world.signal(Signal::HUP);
    assert_eq!(world.ended(), Some(0), "{}", world.log());
    assert!(world.log().contains("stopped") && !world.path("varve.sock").exists(), "{}", world.log());
    world.start();
    let found = Client::new(&world.path("a.sock"), "data/a").read(0, 1 << 20).expect("it is served");
    assert!(found.iter().all(|byte| *byte == 7));
}

#[test]
fn what_cannot_be_made_durable_at_the_stop_marks_the_exit_status() {
    let mut world = World::with_group();
    world.ok("pool create data/p --size 64M");
    world.ok("lv create data/t --pool p --size 16M");
    world.ok("export create data/t --nbd unix:t.sock");
    Client::new(&world.path("t.sock"), "data/t").fill(0, 4 << 20, 7).expect("it is served");
    for disk in ["d1", "d2"] {
        world.set_refusing(disk, true);
    }
    let ended = world.stop();
    for disk in ["d1", "d2"] {
        world.set_refusing(disk, false);
    }
    assert_eq!(ended, Some(1), "{}", world.log());
    assert!(world.log().contains("data/p could not be made durable"), "{}", world.log());
}

/// Exports the volume `a` of a new group on `disk`, which then stalls under a write. The client ends when the disk or the
/// daemon does.
fn with_stalled_write(world: &World, group: &str, disk: &StallingDisk) -> JoinHandle<Result<(), u32>> {
    let (path, volume) = (disk.path().display().to_string(), format!("{group}/a"));
    world.ok(&format!("pv create {path}"));
    world.ok(&format!("vg create {group} {path}"));
    world.ok(&format!("lv create {volume} --size 8M"));
    world.ok(&format!("export create {volume} --nbd unix:a.sock"));
    let mut client = Client::new(&world.path("a.sock"), &volume);
    disk.stall();
    let writer = std::thread::spawn(move || client.write(0, &[7; 1 << 20]));
    while world.data(&format!("lv show {volume}"))["traffic"]["writes"] == 0 {}
    writer
}

#[test]
fn an_export_whose_disk_does_not_answer_keeps_no_other_export_waiting() {
    let world = World::with_group();
    let Some(disk) = StallingDisk::new() else { return };
    world.ok("lv create data/c --size 4M");
    let writer = with_stalled_write(&world, "slow", &disk);
    let mut removal = world.command("export remove slow/a --force --yes").spawn().expect("it starts");
    while world.data("export list")[0]["state"] == "serving" {}
    world.ok("export create data/c --nbd unix:c.sock");
    assert!(
        removal.try_wait().expect("it is known").is_none(),
        "DOORS1, NBDSOCKET2: it waits for the disk still"
    );
    disk.release();
    let _ = writer.join();
    removal.wait().expect("it ends");
}

#[test]
fn all_stages_of_a_stop_together_take_no_longer_than_it_may_if_a_disk_does_not_answer() {
    let mut world = World::new();
    let Some(disk) = StallingDisk::new() else { return };
    world.start_with("--stop-timeout 6");
    let writer = with_stalled_write(&world, "data", &disk);
    let begun = Instant::now();
    world.signal(Signal::TERM);
    // The kernel keeps a process that has ended as long as it has the file open.
    while !world.log().contains("INFO varve_daemon: stopped") {
        // STOP3
        // Less than the stages took when each had its own time.
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", world.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    disk.release();
    assert_eq!(world.ended(), Some(1), "the exit status tells of it");
    let path = disk.path();
    assert!(world.log().contains(&format!("the disk {} does not answer", path.display())), "{}", world.log());
    assert!(writer.join().is_err(), "its connection ended without an answer");
}

#[test]
fn an_export_is_removed_for_good_or_not_at_all() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 4M");
    world.ok("export create data/a --nbd unix:a.sock");
    // Nothing can be written in its place.
    let beside = world.path("state/state.json.new");
    std::fs::create_dir(&beside).expect("it is free");
    world.refused("export remove data/a --yes", 1, "V0010");
    assert_eq!(world.data("export list")[0]["state"], "serving");
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    assert_eq!(client.write(0, &[1; 4096]), Ok(()), "it serves on");
    drop(client);
    std::fs::remove_dir(&beside).expect("it is there");
    world.ok("export remove data/a --yes");
    world.kill();
    world.start();
    assert!(
        world.data("export list").as_array().is_some_and(Vec::is_empty),
        "EXPORTS2: it does not come back"
    );
    assert_eq!(http(&world.path("varve.sock"), "/healthz"), "ok\n");
}

#[test]
fn a_plan_says_what_the_command_would_meet() {
    let world = World::started();
    world.ok("pv create d1 --size 200M");
    world.ok("vg create data d1");
    world.ok("lv create data/a --size 16M");
    world.ok("lv create data/b --size 16M");
    world.ok("lv create data/fill --size 110M");
    // The first store would take all that is free.
    world.refused("snap create data/a@x data/b@x -n", 6, "V0602");
    world.refused("snap create data/a@x data/b@x", 6, "V0602");
    world.ok("snap create data/a@x -n");
    for door in ["--nbd unix:missing/a.sock", "--fuse missing/a"] {
        world.refused(&format!("export create data/a {door} -n"), 1, "V0505");
        world.refused(&format!("export create data/a {door}"), 1, "V0505");
    }
}
