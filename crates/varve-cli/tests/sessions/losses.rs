//! Arrays of ddraid that lose a data member at once with the daemon: what is refused, and accepted by a person.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use crate::replacing::wait_for_members;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(120);

/// Where something is written, in regions of their own.
const WRITTEN: [u64; 3] = [3 << 20, 5 << 20, 6 << 20];

/// A group of three disks with ddraid.
fn world_with(options: &str) -> World {
    let world = World::with_group();
    world.ok("pv create d3 --size 600M");
    world.ok("vg extend data d3");
    world.ok(&format!("lv create data/r --size 24M --type ddraid --order 1 {options}"));
    world
}

/// Writes to a volume, and flushes it.
fn write(world: &World, volume: &str) {
    world.ok(&format!("export create data/{volume} --nbd unix:{volume}.sock"));
    let mut client = Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"));
    for at in WRITTEN {
        client.write(at, &[7; 64 << 10]).expect("there is space");
    }
    client.flush();
}

/// The daemon is killed, and starts without the disk of the first data member.
fn lose_a_member(world: &mut World) {
    let shown = world.data("array show data/r");
    let lost = shown[0]["array"]["members"][0]["disks"][0].as_str().expect("a path").to_owned();
    world.kill();
    std::fs::rename(&lost, format!("{lost}.gone")).expect("moved away");
    world.start();
}

/// With a pool on ddraid, too; both were written when the member was lost.
fn world() -> World {
    let mut world = world_with("");
    world.ok("pool create data/p --size 40M --type ddraid --order 1");
    world.ok("lv create data/t --pool p --size 24M");
    ["r", "t"].iter().for_each(|volume| write(&world, volume));
    lose_a_member(&mut world);
    world
}

#[test]
fn what_is_lost_is_listed_and_accepted_in_part_or_as_a_whole() {
    let mut world = world();
    let shown = world.ok("array show data/r");
    assert!(shown.contains("that wait for the missing member, or for --accept-stale: 3, 5-6"), "{shown}");
    let mut client = Client::new(&world.path("r.sock"), "data/r");
    assert!(client.read(3 << 20, 4096).is_err() && client.read(5 << 20, 4096).is_err());

    let message = world.refused("array rebuild data/r --accept-stale 4 -y", 2, "V0002");
    assert!(message.contains("not all of 4 waits") && message.contains("3, 5-6"), "{message}");
    world.refused("array rebuild data/r", 2, "V0002");
    world.refused("array rebuild data/r --accept-stale 3", 8, "V0004");
    let plan = world.ok("array rebuild data/r --accept-stale 3 -n");
    assert!(
        plan.contains("would accept region 3 of data/r as it is: 1.0 MiB from byte 3145728 on"),
        "{plan}"
    );
    assert!(plan.contains("what was being written there when the power failed is lost"), "{plan}");
    assert!(client.read(3 << 20, 4096).is_err(), "nothing was changed");
    world.ok("array rebuild data/r --accept-stale 3 -y");
    // The daemon was killed, and the disks have everything.
    assert_eq!(client.read(3 << 20, 4096), Ok(vec![7; 4096]));
    assert!(client.read(5 << 20, 4096).is_err(), "it was not named");
    drop(client);
    world.kill();
    world.start();
    let mut client = Client::new(&world.path("r.sock"), "data/r");
    assert_eq!(client.read(3 << 20, 4096), Ok(vec![7; 4096]), "what was accepted is durable");
    let shown = world.ok("array rebuild data/r --accept-stale all -y");
    assert!(!shown.contains("--accept-stale"), "nothing waits: {shown}");
    assert_eq!(client.read(5 << 20, 4096), Ok(vec![7; 4096]));
    world.refused("array rebuild data/r --accept-stale all -y", 2, "V0002");
    world.refused("array rebuild data/none --accept-stale all -y", 3, "V0301");
}

/// With checksums only what was being written is lost, and nothing was.
#[test]
fn what_was_flushed_is_not_lost_with_checksums() {
    let mut world = world_with("--checksums");
    write(&world, "r");
    lose_a_member(&mut world);
    let mut client = Client::new(&world.path("r.sock"), "data/r");
    for at in WRITTEN {
        assert_eq!(client.read(at, 64 << 10), Ok(vec![7; 64 << 10]));
    }
    let lost = || world.data("array show data/r")[0]["array"]["lost"].clone();
    let begun = Instant::now();
    while lost() != 0 {
        assert!(begun.elapsed() < SOON, "{}", world.ok("array show data/r"));
        std::thread::sleep(Duration::from_millis(50));
    }
    client.write(3 << 20, &[8; 4096]).expect("the region is lost no more");
    client.flush();
    assert_eq!(client.read(3 << 20, 4096), Ok(vec![8; 4096]));
    let shown = world.ok("array show data/r");
    assert!(!shown.contains("cannot be read") && !shown.contains("--accept-stale"), "{shown}");
}

#[test]
fn a_pool_is_taken_into_use_when_the_loss_of_its_own_metadata_is_accepted() {
    let world = world();
    let state = world.data("pool show data/p")["state"].clone();
    if state == "unusable" {
        let message = world.refused("array rebuild data/p --accept-stale 1 -y", 7, "V0307");
        assert!(message.contains("varve array rebuild data/p --accept-stale all"), "{message}");
        assert!(world.ok("array rebuild data/p --accept-stale all -n").contains("and take it into use"));
    }
    world.ok("array rebuild data/p --accept-stale all -y");
    assert_eq!(world.data("pool show data/p")["state"], "degraded", "its member is missing still");
    let mut client = Client::new(&world.path("t.sock"), "data/t");
    assert_eq!(client.read(5 << 20, 4096), Ok(vec![7; 4096]));
    world.ok("pool check data/p");
}

#[test]
fn a_member_is_filled_anew_from_the_others() {
    let mut world = World::with_group();
    world.ok("lv create data/m --size 24M --type mirror --copies 2");
    world.ok("export create data/m --nbd unix:m.sock");
    let mut client = Client::new(&world.path("m.sock"), "data/m");
    client.write(1 << 20, &[7; 64 << 10]).expect("there is space");
    client.flush();
    world.refused("array rebuild data/m d9", 3, "V0211");
    let plan = world.ok("array rebuild data/m d1 -n");
    assert!(plan.contains("would fill member 0 of data/m anew from the others"), "{plan}");
    world.ok("array rebuild data/m d1");
    wait_for_members(&world, &["m"]);
    assert!(world.ok("array scrub data/m --wait").contains("all members fit"));
    assert_eq!(client.read(1 << 20, 4096), Ok(vec![7; 4096]));
    drop(client);
    assert_eq!(world.stop(), Some(0));
}
