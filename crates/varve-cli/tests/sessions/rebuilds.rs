//! Commands that wait for members of arrays to be filled, and what they say when that does not come to its end.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// So long something may take on a machine that is busy with other work.
const SOON: Duration = Duration::from_secs(120);

/// A mirror on the first two of three disks with 32 MiB of content, which takes some seconds to be filled.
fn world() -> World {
    let world = World::with_group();
    world.ok("pv create d3 --size 600M");
    world.ok("vg extend data d3");
    world.ok("lv create data/m --size 64M --type mirror --copies 2 --on d1,d2");
    world.ok("export create data/m --nbd unix:m.sock");
    let mut client = Client::new(&world.path("m.sock"), "data/m");
    client.write(0, &vec![7; 32 << 20]).expect("there is space");
    client.flush();
    world.ok("array change data/m --resync-rate 1M..8M");
    world
}

fn states(world: &World) -> Vec<String> {
    let arrays = world.data("array show data/m");
    let members = arrays[0]["array"]["members"].as_array().expect("a list");
    members.iter().map(|member| member["state"].as_str().expect("a word").to_owned()).collect()
}

/// Waits until the first job has filled something.
fn wait_until_begun(world: &World) {
    let begun = Instant::now();
    while world.data("job list")[0]["done"].as_u64().is_none_or(|done| done == 0) {
        assert!(begun.elapsed() < SOON, "{}", world.ok("job list"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_replacement_that_is_waited_for_ends_in_sync_and_one_that_is_not_names_its_job() {
    let world = world();
    let shown = world.ok("array replace data/m d1 d3 --wait");
    assert_eq!(shown.matches("in-sync").count(), 2, "{shown}");
    assert_eq!(states(&world), ["in-sync", "in-sync"]);
    let told = world.ok("pv replace d3 d1");
    assert!(told.contains("replaced") && told.contains("in data/m\njob 2 runs; varve job wait 2"), "{told}");
    let list = world.ok("job list");
    assert!(list.lines().any(|line| line.starts_with("2    array-rebuild  data/m  running")), "{list}");
    assert!(world.ok("array show data/m").contains("members are filled by job 2"));
    let refused = world.refused("job cancel 2", 5, "V0702");
    assert!(refused.contains("varve array fail data/m PATH"), "{refused}");
    assert!(world.ok("job wait 2").contains("array-rebuild data/m: done"));
    assert_eq!(states(&world), ["in-sync", "in-sync"]);
    let filled = world.data("array rebuild data/m d2 --wait");
    assert_eq!(filled[0]["array"]["members"][1]["state"], "in-sync", "{filled}");
}

#[test]
fn a_command_that_is_interrupted_leaves_the_job_and_says_so() {
    let mut world = world();
    let mut command = world.command("array replace data/m d1 d3 --wait");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_until_begun(&world);
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let ended = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8(ended.stderr).expect("UTF-8");
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("error[V0705]: job 1 goes on") && stderr.contains("varve job wait 1"),
        "{stderr}"
    );
    assert_eq!(world.data("job show 1")["state"], "running");
    world.kill();
    world.start();
    let jobs = world.data("job list");
    let job = jobs.as_array().and_then(|jobs| jobs.iter().find(|job| job["kind"] == "array-rebuild"));
    let job =
        job.unwrap_or_else(|| panic!("REBUILDJOB1: {jobs}"))["id"].as_str().expect("a number").to_owned();
    world.ok(&format!("job wait {job}"));
    assert_eq!(states(&world), ["in-sync", "in-sync"]);
}

#[test]
fn the_wait_for_a_disk_that_is_lost_meanwhile_ends_and_names_it() {
    let world = world();
    let mut command = world.command("array replace data/m d1 d3 --wait");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_until_begun(&world);
    let disk = std::fs::File::options().write(true).open(world.path("d3")).expect("a disk");
    disk.set_len(1 << 20).expect("it is cut short");
    let ended = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8(ended.stderr).expect("UTF-8");
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("member 0 of data/m") && stderr.contains("/d3 left before it was in sync"),
        "{stderr}"
    );
    assert_eq!(states(&world), ["away", "in-sync"]);
}
