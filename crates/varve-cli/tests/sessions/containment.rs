//! A panic in one volume or pool takes that one out of use, by name, and nothing else, until a person activates it.
#![expect(
    clippy::disallowed_methods,
    reason = "a test waits for a daemon in real time, and writes beside it"
)]

use crate::client::Client;
use crate::harness::World;
use crate::stalling::StallingDisk;
use std::time::{Duration, Instant};

/// Enough for a busy machine.
const SOON: Duration = Duration::from_secs(120);

const EIO: u32 = 5;

/// A group with two volumes and a pool with two more.
fn world() -> World {
    let world = World::with_group();
    world.ok("lv create data/a --size 8M");
    world.ok("lv create data/b --size 8M");
    world.ok("pool create data/p --size 64M");
    world.ok("lv create data/t --pool p --size 16M");
    world.ok("lv create data/u --pool p --size 16M");
    world
}

/// The same under a daemon with an injected bug.
fn world_with_bug(bug: &str) -> World {
    let mut world = world();
    assert_eq!(world.stop(), Some(0));
    world.start_with_bug(bug);
    world
}

fn client(world: &World, name: &str) -> Client {
    let socket = format!("{}.sock", name.replace('/', "-"));
    world.ok(&format!("export create {name} --nbd unix:{socket}"));
    Client::new(&world.path(&socket), name)
}

fn state(world: &World, noun: &str, name: &str) -> (String, String) {
    let shown = world.data(&format!("{noun} show {name}"));
    let text = |field: &str| shown[field].as_str().unwrap_or_default().to_owned();
    (text("state"), text("reason"))
}

/// Waits until the group's own text says that something in it is out of use.
fn wait_for_mark(world: &World) {
    let begun = Instant::now();
    loop {
        world.ok("vg backup data backup");
        let text = std::fs::read_to_string(world.path("backup")).expect("just written");
        if text.contains("inactive = ") {
            return;
        }
        assert!(begun.elapsed().as_secs() < 60, "the text says so: {text}");
    }
}

#[test]
fn a_panic_in_a_volume_takes_it_out_of_use_until_it_is_activated() {
    let mut world = world_with_bug("data/a:write");
    let (mut a, mut b, mut t) =
        (client(&world, "data/a"), client(&world, "data/b"), client(&world, "data/t"));
    assert_eq!(a.write(0, &[1; 4096]), Err(EIO));
    assert_eq!(a.read(0, 4096), Err(EIO), "VOLGATE1: every request to it");
    for other in [&mut b, &mut t] {
        assert_eq!(other.write(0, &[2; 4096]), Ok(()));
    }
    wait_for_mark(&world);
    let (shown, reason) = state(&world, "lv", "data/a");
    assert_eq!(shown, "failed");
    assert!(reason.contains("an injected bug: write"), "{reason}");
    assert!(world.ok("lv list data").contains("failed"));
    assert!(world.ok("status").contains("failed and is out of use"));
    let help = world.refused("snap create data/a@one", 7, "V0320");
    assert!(help.contains("varve lv activate data/a"), "{help}");
    assert_eq!(state(&world, "lv", "data/b").0, "active");
    assert_eq!(world.stop(), Some(1), "the exit status tells of it");

    world.start();
    assert_eq!(state(&world, "lv", "data/a").0, "failed", "OUTOFUSE1: over restarts too");
    assert_eq!(Client::new(&world.path("data-b.sock"), "data/b").read(0, 4096), Ok(vec![2; 4096]));
    assert!(world.ok("lv activate data/a -n").contains("would take data/a into use"));
    world.ok("lv activate data/a");
    assert_eq!(state(&world, "lv", "data/a").0, "active");
    let mut a = Client::new(&world.path("data-a.sock"), "data/a");
    assert_eq!(a.write(0, &[1; 4096]), Ok(()), "its export is back");
    assert_eq!(world.stop(), Some(0));
}

#[test]
fn doors_lead_to_a_volume_that_is_activated_while_the_daemon_runs() {
    let world = world_with_bug("data/a:write");
    let mut a = client(&world, "data/a");
    assert_eq!(a.write(0, &[1; 4096]), Err(EIO));
    wait_for_mark(&world);
    assert_eq!(a.read(0, 4096), Err(EIO));
    world.ok("lv activate data/a");
    assert_eq!(a.read(0, 4096), Ok(vec![0; 4096]), "OUTOFUSE2: the connection is the one from before");
}

#[test]
fn a_panic_in_a_pool_takes_all_of_its_volumes_and_no_others() {
    let mut world = world_with_bug("data/t:write");
    let (mut t, mut u, mut b) =
        (client(&world, "data/t"), client(&world, "data/u"), client(&world, "data/b"));
    assert_eq!(u.write(0, &[3; 4096]), Ok(()));
    assert_eq!(t.write(0, &[3; 4096]), Err(EIO));
    assert_eq!((u.read(0, 4096), u.write(0, &[4; 4096])), (Err(EIO), Err(EIO)));
    assert_eq!(b.write(0, &[2; 4096]), Ok(()));
    wait_for_mark(&world);
    assert_eq!(state(&world, "pool", "data/p").0, "failed");
    assert!(world.ok("pool list").contains("failed"));
    assert_eq!(world.stop(), Some(1));
    world.start();
    assert_eq!(state(&world, "pool", "data/p").0, "failed");
    world.ok("vg activate data");
    assert_eq!(state(&world, "pool", "data/p").0, "active");
    assert_eq!(Client::new(&world.path("data-t.sock"), "data/t").write(0, &[3; 4096]), Ok(()));
}

#[test]
fn what_panics_when_it_is_opened_does_not_keep_the_daemon_from_starting() {
    for (bug, noun, name) in [("data/a:open", "lv", "data/a"), ("data/p:open", "pool", "data/p")] {
        let mut world = world_with_bug(bug);
        assert_eq!(state(&world, noun, name).0, "failed");
        assert_eq!(client(&world, "data/b").write(0, &[2; 4096]), Ok(()));
        assert_eq!(world.stop(), Some(1));
        world.start();
        assert_eq!(state(&world, noun, name).0, "failed");
        world.ok(&format!("{noun} activate {name}"));
        assert_eq!(state(&world, noun, name).0, "active");
    }
}

#[test]
fn a_failure_that_no_commit_can_tell_of_is_remembered_all_the_same() {
    let mut world = World::started();
    world.ok("pv create d1 d2 --size 64M");
    world.ok("vg create data d1 d2");
    world.ok("lv create data/a --size 8M");
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("d2"), world.path("away")).expect("it is there");
    world.start_with_bug("data/a:write");
    assert_eq!(client(&world, "data/a").write(0, &[1; 4096]), Err(EIO));
    world.ok("lv list");
    assert_eq!(world.stop(), Some(1));
    world.start();
    assert_eq!(state(&world, "lv", "data/a").0, "failed");
    world.ok("lv activate data/a");
    assert_eq!(state(&world, "lv", "data/a").0, "active");
}

#[test]
fn a_panic_in_a_command_fails_that_command_and_marks_the_exit_status() {
    let mut world = world_with_bug("data:backup");
    world.refused("vg backup data file", 1, "V0014");
    world.ok("lv create data/c --size 4M");
    assert_eq!(world.stop(), Some(1));
}

#[test]
fn a_panic_at_the_stop_marks_the_exit_status() {
    let mut world = world_with_bug("data/a:flush");
    assert_eq!(world.stop(), Some(1));
    assert!(world.log().contains("data/a could not be made durable"), "{}", world.log());
}

/// Waits until a volume is shown in `wanted`.
fn wait_for_state(world: &World, name: &str, wanted: &str) {
    let begun = Instant::now();
    while state(world, "lv", name).0 != wanted {
        assert!(begun.elapsed() < SOON, "{name} becomes {wanted}: {}", world.ok("lv list"));
    }
}

/// A group of which a change reached only one of its disks, under a daemon with an injected bug in the volume `name`; the
/// change concerns `data/b`, and `data/a` lives on the same shard.
fn with_half_a_change(name: &str, verb: &str) -> World {
    let mut world = World::started();
    world.ok("pv create d1 d2 --size 100M");
    world.ok("vg create data d1 d2");
    for (volume, size) in [("a", "8M"), ("x", "8M"), ("b", "40M")] {
        world.ok(&format!("lv create data/{volume} --size {size}"));
    }
    let id = world.data(&format!("lv show {name}"))["id"].as_str().expect("an id").to_owned();
    assert_eq!(world.stop(), Some(0));
    world.start_with_bug(&format!("{id}:{verb}"));
    let shard = |name: &str| world.data(&format!("lv show {name}"))["shard"].clone();
    assert_eq!(shard("data/a"), shard("data/b"));
    world.set_refusing("d2", true);
    let reduced = world.run("lv reduce data/b --size 8M -y");
    world.set_refusing("d2", false);
    assert_ne!(reduced.exit, 0, "{}", reduced.stdout);
    world
}

#[test]
fn a_panic_while_volumes_are_compared_with_their_group_is_of_one_of_them() {
    let mut world = with_half_a_change("data/a", "fence");
    assert_eq!(state(&world, "lv", "data/b").0, "unusable", "the others are compared all the same");
    wait_for_state(&world, "data/a", "failed");
    assert_eq!(client(&world, "data/x").write(0, &[2; 4096]), Ok(()));
    world.ok("pv scan");
    assert_eq!(client(&world, "data/b").size, 8 << 20);
    world.ok("lv activate data/a");
    assert_eq!(client(&world, "data/a").write(0, &[1; 4096]), Ok(()));
    assert_eq!(world.stop(), Some(1));
}

#[test]
fn a_panic_while_a_volume_is_taken_out_of_use_is_of_that_volume() {
    let mut world = with_half_a_change("data/b", "retire");
    let _ = world.run("pv scan"); // It is retired, and panics.
    wait_for_state(&world, "data/b", "failed");
    for other in ["data/a", "data/x"] {
        assert_eq!(client(&world, other).write(0, &[2; 4096]), Ok(()));
    }
    world.ok("lv create data/c --size 4M");
    world.ok("lv activate data/b");
    let mut b = client(&world, "data/b");
    assert_eq!((b.size, b.write(0, &[1; 4096])), (8 << 20, Ok(())));
    assert_eq!(world.stop(), Some(1));
}

#[test]
fn a_volume_is_taken_into_use_when_no_request_from_before_it_failed_is_under_way() {
    let mut world = World::started();
    let Some(disk) = StallingDisk::new() else { return };
    world.ok(&format!("pv create {}", disk.path().display()));
    world.ok(&format!("vg create data {}", disk.path().display()));
    world.ok("lv create data/a --size 8M");
    assert_eq!(world.stop(), Some(0));
    world.start_with_bug("data/a:discard");
    let (mut one, mut two) = (client(&world, "data/a"), Client::new(&world.path("data-a.sock"), "data/a"));
    disk.stall();
    let writer = std::thread::spawn(move || one.write(0, &[7; 1 << 20]));
    while world.data("lv show data/a")["traffic"]["writes"] == 0 {}
    assert_eq!(two.discard(4 << 20, 4096), Err(EIO));
    assert_eq!(writer.join().expect("it is answered"), Err(EIO), "nothing of it is polled any more");
    wait_for_state(&world, "data/a", "failed");
    // The disk may still carry it out.
    let mut activation = world.command("lv activate data/a").spawn().expect("it starts");
    for _ in 0..30 {
        assert_ne!(state(&world, "lv", "data/a").0, "active", "ABANDONED1");
        std::thread::sleep(Duration::from_millis(100));
    }
    disk.release();
    activation.wait().expect("it ends");
    let begun = Instant::now();
    while world.run("lv activate data/a").exit != 0 {
        assert!(begun.elapsed() < SOON, "{}", world.run("lv activate data/a").stderr);
    }
    assert_eq!(two.read(0, 1 << 20), Ok(vec![7; 1 << 20]), "it was carried out before");
    assert_eq!(two.write(0, &[8; 4096]), Ok(()));
    assert_eq!(two.read(0, 4096), Ok(vec![8; 4096]));
}

#[test]
fn volumes_are_taken_out_of_use_and_into_it_by_command() {
    let mut world = world();
    world.ok("lv deactivate data/a -n");
    assert_eq!(state(&world, "lv", "data/a").0, "active");
    let mut b = client(&world, "data/b");
    world.refused("lv deactivate data/b", 5, "V0303");
    world.refused("lv activate data/t", 2, "V0002");
    world.ok("lv deactivate data/a");
    world.ok("pool deactivate data/p");
    assert_eq!(state(&world, "lv", "data/a").0, "inactive");
    assert_eq!(state(&world, "pool", "data/p").0, "inactive");
    assert!(
        world.refused("export create data/a --nbd unix:a.sock", 5, "V0321").contains("lv activate data/a")
    );
    assert_eq!(b.write(0, &[2; 4096]), Ok(()));
    drop(b);
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(state(&world, "lv", "data/a").0, "inactive");
    world.ok("vg activate data");
    world.ok("vg activate data");
    assert_eq!(state(&world, "lv", "data/a").0, "active");
    assert_eq!(client(&world, "data/t").write(0, &[3; 4096]), Ok(()));
}

#[test]
fn a_check_that_panics_in_one_volume_goes_on_with_the_others() {
    let mut world = world();
    world.ok("snap create data/a@one");
    assert_eq!(world.stop(), Some(0));
    let mut command = world.command("check d1 d2");
    let ended = command.env("VARVE_INJECT_PANIC", "data/a:check").output().expect("it runs");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(ended.status.code(), Some(7), "{text}");
    assert!(text.contains("DAMAGED: metadata: data/a: its check ended with a panic"), "{text}");
    assert!(text.contains("data/p"), "the pool is checked all the same: {text}");
}
