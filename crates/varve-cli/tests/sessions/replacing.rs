//! Disks that are gone for good, and the members of arrays that others hold in their place.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use std::time::{Duration, Instant};

/// So long something may take on a machine that is busy with other work.
const SOON: Duration = Duration::from_secs(120);
const VOLUMES: [&str; 3] = ["m", "r", "t"];

/// Disks d1 to d4, a mirror and ddraid with a snapshot each, and a pool on ddraid with a thin volume; all on d1 and two others.
fn world() -> World {
    let world = World::with_group();
    world.ok("pv create d3 d4 --size 600M");
    world.ok("vg extend data d3");
    world.ok("lv create data/m --size 24M --type mirror --copies 2 --on d1,d2");
    world.ok("lv create data/r --size 24M --type ddraid --order 1");
    world.ok("pool create data/p --size 40M --type ddraid --order 1");
    world.ok("lv create data/t --pool p --size 100M");
    world.ok("snap create data/r@before data/t@before");
    for volume in VOLUMES {
        world.ok(&format!("export create data/{volume} --nbd unix:{volume}.sock"));
    }
    world
}

fn client(world: &World, volume: &str) -> Client {
    Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"))
}

fn content(round: u8) -> Vec<u8> {
    (0..3 << 20).map(|at: u32| at.to_le_bytes()[1] ^ round).collect()
}

/// The members of all arrays of a volume or pool.
fn members(world: &World, volume: &str) -> Vec<serde_json::Value> {
    let arrays = world.data(&format!("array show data/{volume}"));
    let members = arrays.as_array().expect("a list").iter().map(|one| one["array"]["members"].clone());
    members.flat_map(|members| members.as_array().expect("a list").clone()).collect()
}

/// Waits until all members of `data/m`, `data/r` and `data/p` are in sync, those of their snapshot stores too.
pub(crate) fn wait_until_in_sync(world: &World) {
    for volume in ["m", "r", "p"] {
        let begun = Instant::now();
        while members(world, volume).iter().any(|member| member["state"] != "in-sync") {
            assert!(begun.elapsed() < SOON, "{}", world.ok(&format!("array show data/{volume}")));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn lies_on(world: &World, volume: &str, disk: &str) -> bool {
    let is_on = |member: &serde_json::Value| {
        let disks = member["disks"].as_array().expect("a list");
        disks.iter().any(|path| path.as_str().is_some_and(|path| path.ends_with(disk)))
    };
    members(world, volume).iter().any(is_on)
}

#[test]
fn a_disk_that_is_gone_is_replaced_under_clients_and_another_one_may_go_then() {
    let mut world = world();
    for volume in VOLUMES {
        let mut client = client(&world, volume);
        client.write(1 << 20, &content(1)).expect("there is space");
        client.flush();
    }
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("d1"), world.path("gone")).expect("moved away");
    world.start();
    let message = world.refused("array replace data/m d1 d3", 7, "V0307");
    assert!(message.contains("--accept-missing"), "it may be the only one that is up to date: {message}");
    world.ok("lv activate data/m --accept-missing");

    // What does not need the disk goes on.
    world.ok("lv create data/new --size 8M");
    world.ok("lv remove data/new -y");
    let message = world.refused("lv extend data/m --size +8M", 5, "V0210");
    assert!(message.contains("varve pv replace"), "{message}");
    world.refused("pv replace d1 d4", 3, "V0211");
    world.refused("pv replace d1 d3", 6, "V0601");
    let message = world.refused("vg reduce data --missing --with-volumes -y", 5, "V0210");
    assert!(message.contains("varve pv replace"), "{message}");
    world.ok("vg extend data d4");
    let plan = world.ok("pv replace d1 -n");
    assert!(plan.contains("would replace the member of data/m on pv0"), "{plan}");
    assert!(lies_on(&world, "m", "d1"), "nothing was changed");

    let mut clients: Vec<Client> = VOLUMES.iter().map(|volume| client(&world, volume)).collect();
    for client in &mut clients {
        client.write(2 << 20, &content(2)).expect("it serves without the disk");
    }
    let told = world.ok("pv replace d1 d4");
    assert!(told.contains("data/m, data/r, data/p; varve array show data/m"), "{told}");
    for client in &mut clients {
        client.write(3 << 20, &content(3)).expect("it serves while the member is rebuilt");
        client.flush();
    }
    wait_until_in_sync(&world);
    assert!(["m", "r", "p"].iter().all(|volume| !lies_on(&world, volume, "d1")));
    assert!(!world.ok("lv list").contains("degraded"));
    world.ok("lv extend data/m --size +8M");
    drop(clients);
    assert_eq!(world.stop(), Some(0));

    // The old disk comes back with what it had, and is a disk without members; another one goes.
    std::fs::rename(world.path("gone"), world.path("d1")).expect("moved back");
    std::fs::rename(world.path("d2"), world.path("gone")).expect("moved away");
    world.start();
    world.ok("lv activate data/m --accept-missing");
    for volume in VOLUMES {
        let mut client = client(&world, volume);
        let expected = [&content(1)[..1 << 20], &content(2)[..1 << 20], &content(3)].concat();
        assert_eq!(client.read(1 << 20, expected.len()), Ok(expected), "{volume}");
    }
    world.ok("pv replace d2 d1");
    wait_until_in_sync(&world);
    world.ok("vg reduce data --missing");
    assert_eq!(world.stop(), Some(0));
    world.ok("check d1 d3 d4");
}

#[test]
fn a_member_is_failed_and_replaced_by_hand_where_the_others_have_all_data() {
    let mut world = world();
    world.ok("vg extend data d4");
    let mut clients: Vec<Client> = VOLUMES.iter().map(|volume| client(&world, volume)).collect();
    for client in &mut clients {
        client.write(1 << 20, &content(1)).expect("there is space");
    }
    world.ok("array fail data/r d1 -n");
    assert!(members(&world, "r").iter().all(|member| member["state"] == "in-sync"), "nothing was changed");
    let shown = world.ok("array fail data/r d1");
    assert_eq!(shown.matches("away").count(), 2, "of the volume and its snapshots: {shown}");
    let message = world.refused("array fail data/r d2", 5, "V0309");
    assert!(message.contains("do not have all of its data"), "{message}");
    world.refused("array replace data/r d2", 5, "V0309");
    world.refused("array fail data/m d3", 3, "V0106");
    world.refused("array show data/t", 2, "V0330");
    world.ok("array replace data/r d1");
    // A disk that works is emptied before it fails.
    world.ok("array replace data/m pv1 pv3");
    for client in &mut clients {
        client.write(2 << 20, &content(2)).expect("it serves");
        client.flush();
    }
    wait_until_in_sync(&world);
    assert!(!lies_on(&world, "r", "d1") && lies_on(&world, "r", "d4"));
    assert!(lies_on(&world, "m", "d1") && !lies_on(&world, "m", "d2") && lies_on(&world, "p", "d2"));
    drop(clients);
    world.kill();
    world.start();
    wait_until_in_sync(&world);
    for volume in VOLUMES {
        let mut client = client(&world, volume);
        let expected = [&content(1)[..1 << 20], &content(2)].concat();
        assert_eq!(client.read(1 << 20, expected.len()), Ok(expected), "{volume}");
    }
}

#[test]
fn a_disk_that_fails_while_it_is_used_is_replaced_without_being_written() {
    let mut world = world();
    world.ok("vg extend data d4");
    let mut clients: Vec<Client> = VOLUMES.iter().map(|volume| client(&world, volume)).collect();
    for client in &mut clients {
        client.write(1 << 20, &content(1)).expect("there is space");
        client.flush();
    }
    let disk = std::fs::OpenOptions::new().write(true).open(world.path("d1")).expect("it is there");
    disk.set_len(1 << 20).expect("it is cut short");
    let begun = Instant::now();
    while !world.ok("vg show data").contains("was cut short") {
        assert!(begun.elapsed() < SOON, "{}", world.ok("vg show data"));
        std::thread::sleep(Duration::from_millis(50));
    }
    for client in &mut clients {
        client.write(2 << 20, &content(2)).expect("it serves without the disk");
    }
    let message = world.refused("array replace data/m d1 d4", 1, "V0801");
    assert!(message.contains("varve pv replace"), "{message}");
    world.ok("pv replace d1 d4");
    for client in &mut clients {
        client.write(3 << 20, &content(3)).expect("it serves while the member is rebuilt");
        client.flush();
    }
    wait_until_in_sync(&world);
    assert!(world.ok("vg show data").contains("missing"), "it is used no more");
    world.ok("vg reduce data --missing");
    drop(clients);
    world.kill();
    std::fs::remove_file(world.path("d1")).expect("it is there");
    world.start();
    wait_until_in_sync(&world);
    for volume in VOLUMES {
        let mut client = client(&world, volume);
        let expected = [&content(1)[..1 << 20], &content(2)[..1 << 20], &content(3)].concat();
        assert_eq!(client.read(1 << 20, expected.len()), Ok(expected), "{volume}");
    }
    assert_eq!(world.stop(), Some(0));
    world.ok("check d2 d3 d4");
}
