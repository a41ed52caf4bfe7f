//! Disks that are gone for good, and the members of arrays that others hold in their place.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use crate::stalling::StallingDisk;
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
    wait_for_members(world, &["m", "r", "p"]);
}

/// Waits until all members of these volumes and pools of `data` are in sync.
pub(crate) fn wait_for_members(world: &World, volumes: &[&str]) {
    for volume in volumes {
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
    world.ok("lv activate data/m --accept-missing -y");

    // What does not need the disk goes on.
    world.ok("lv create data/new --size 8M");
    world.ok("lv remove data/new --now -y");
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
    assert!(told.contains("in data/m, data/r, data/p\njob 1 runs; varve job wait 1"), "{told}");
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
    world.ok("lv activate data/m --accept-missing -y");
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
    world.ok("pv scan");
    assert_eq!(world.ok("array show data/r").matches("away").count(), 2, "no disk was named");
    world.ok("pv scan d1");
    wait_until_in_sync(&world);
    world.ok("array fail data/r d1");
    // DETACH1
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
    assert!(world.ok("vg show data").contains("missing"), "DETACH2: it is used no more");
    world.ok("vg reduce data --missing");
    // What the failed disk left is nothing to attend to, although it is still there.
    let begun = Instant::now();
    while world.run("status --check").exit != 0 {
        assert!(begun.elapsed() < SOON, "{}", world.ok("status"));
        std::thread::sleep(Duration::from_millis(50));
    }
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

/// Waits until no volume or pool has a member on `disk`, and all are in sync.
fn wait_until_replaced(world: &World, disk: &str) {
    let begun = Instant::now();
    while ["m", "r", "p"].iter().any(|volume| lies_on(world, volume, disk)) {
        assert!(begun.elapsed() < SOON, "{}{}", world.ok("vg show data"), world.ok("status"));
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_until_in_sync(world);
}

fn write_all(clients: &mut [Client], round: u8) {
    for client in clients {
        client.write(u64::from(round) << 20, &content(round)).expect("it serves without the disk");
        client.flush();
    }
}

#[test]
fn spares_take_the_place_of_disks_that_fail_and_that_stay_away() {
    let mut world = world();
    world.ok("pv create d5 --size 600M");
    world.ok("pv create small --size 40M");
    world.ok("vg extend data d4 d5 small");
    let free = world.data("vg show data")["free"].as_u64().expect("a number");
    assert!(world.ok("pv change d4 --spare yes -n").contains("d4 (pv3) as a spare"));
    for disk in ["d4", "d5", "small"] {
        world.ok(&format!("pv change {disk} --spare yes"));
    }
    let message = world.refused("pv change d1 --spare yes", 5, "V0210");
    assert!(message.contains("varve pv move"), "{message}");
    assert!(world.refused("lv create data/x --size 8M --on d4", 5, "V0117").contains("--spare no"));
    let shown = world.data("vg show data");
    assert!(shown["free"].as_u64() < Some(free - (1100 << 20)), "{shown}");
    assert!(world.ok("pv list").contains(" spare ") && world.ok("pv show d4").contains("spare"));

    let mut clients: Vec<Client> = VOLUMES.iter().map(|volume| client(&world, volume)).collect();
    write_all(&mut clients, 1);
    let disk = std::fs::OpenOptions::new().write(true).open(world.path("d1")).expect("it is there");
    disk.set_len(1 << 20).expect("it is cut short");
    write_all(&mut clients, 2);
    wait_until_replaced(&world, "d1");
    let told = world.ok("vg history data");
    assert!(told.contains("takes the place of"), "{told}");
    assert_eq!(world.data("pv show small")["spare"], true, "it is too small");
    let spares = ["d4", "d5"].map(|disk| world.data(&format!("pv show {disk}"))["spare"].is_null());
    assert!(spares[0] != spares[1], "one of them holds members now: {spares:?}");
    world.ok("vg reduce data --missing");
    drop(clients);

    // One that is missing at the start is given time.
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("d3"), world.path("gone")).expect("moved away");
    world.start();
    let mut clients: Vec<Client> = VOLUMES.iter().map(|volume| client(&world, volume)).collect();
    write_all(&mut clients, 3);
    std::thread::sleep(Duration::from_secs(3));
    assert!(lies_on(&world, "r", "d3"), "LOSTDISKS1");
    drop(clients);
    assert_eq!(world.stop(), Some(0));
    world.start_with("--spare-after 0");
    wait_until_replaced(&world, "d3");
    world.ok("vg reduce data --missing");

    // And then there is none any more that is large enough.
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("d2"), world.path("gone")).expect("moved away");
    world.start_with("--spare-after 0");
    let begun = Instant::now();
    while !world.ok("status").contains("not replaced by a spare") {
        assert!(begun.elapsed() < SOON, "{}", world.ok("status"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let checked = world.run("status --check");
    assert_eq!(checked.exit, 7, "{}", checked.stdout);
    assert!(checked.stdout.contains("not replaced by a spare"), "{}", checked.stdout);
    world.ok("lv activate data/m --accept-missing -y");
    world.ok("pv create d6 --size 600M");
    world.ok("vg extend data d6");
    world.ok("pv change d6 --spare yes");
    wait_until_replaced(&world, "d2");
    let problems = world.data("status")["problems"].to_string();
    assert!(!problems.contains("not replaced"), "{problems}");
    for volume in VOLUMES {
        let mut client = client(&world, volume);
        let expected = [&content(1)[..1 << 20], &content(2)[..1 << 20], &content(3)].concat();
        assert_eq!(client.read(1 << 20, expected.len()), Ok(expected), "{volume}");
    }
}

#[test]
fn two_disks_that_have_failed_are_replaced_one_after_the_other() {
    let world = World::with_group();
    world.ok("pv create d3 d4 d5 --size 600M");
    world.ok("vg extend data d3 d4 d5");
    for (volume, disks) in [("a", "d1,d3"), ("b", "d2,d4")] {
        world.ok(&format!("lv create data/{volume} --size 24M --type mirror --copies 2 --on {disks}"));
        world.ok(&format!("export create data/{volume} --nbd unix:{volume}.sock"));
    }
    let mut clients = [client(&world, "a"), client(&world, "b")];
    for disk in ["d1", "d2"] {
        let file = std::fs::OpenOptions::new().write(true).open(world.path(disk)).expect("it is there");
        file.set_len(1 << 20).expect("it is cut short");
    }
    write_all(&mut clients, 1);
    let begun = Instant::now();
    while world.ok("vg show data").matches("was cut short").count() < 2 {
        assert!(begun.elapsed() < SOON, "{}", world.ok("vg show data"));
        std::thread::sleep(Duration::from_millis(50));
    }
    for (disk, volume) in [("d1", "a"), ("d2", "b")] {
        world.ok(&format!("pv replace {disk} d5"));
        assert!(!lies_on(&world, volume, disk));
    }
    write_all(&mut clients, 2);
    world.ok("vg reduce data --missing");
}

#[test]
fn what_an_array_declares_is_kept_and_changed_while_it_serves() {
    let Some(stalling) = StallingDisk::new() else { return };
    let mut world = World::with_group();
    world.ok(&format!("vg extend data {}", stalling.path().display()));
    let message = world.refused("lv create data/l --size 8M --slow-after 10s", 2, "V0002");
    assert!(message.contains("--type mirror"), "{message}");
    let create =
        format!("lv create data/m --size 24M --type mirror --copies 2 --on d1,{}", stalling.path().display());
    world.refused(&format!("{create} --slow-after 10ms"), 2, "V0305");
    world.refused(&format!("{create} --resync-rate 20M..10M"), 2, "V0305");
    world.refused(&format!("{create} --release-after 2h"), 2, "V0305");
    let plan = world.ok(&format!("{create} --slow-after 10m --resync-rate 20M..200M -n"));
    assert!(plan.contains("would let its arrays wait 600 s for a member"), "{plan}");
    world.ok(&format!("{create} --slow-after 10m --resync-rate 20M..200M"));
    world.ok("pool create data/p --size 24M --type mirror --copies 2 --on d1,d2 --slow-after 20s --release-after 5s");
    let shown = world.ok("array show data/p");
    assert!(shown.contains("slow after: 20 s, resync rate: 8.0 MiB a second, clean after: 5 s"), "{shown}");
    assert_eq!(world.data("array change data/p --release-after 0")[0]["array"]["release_after_ms"], 0);
    let shown = world.ok("array show data/m");
    assert!(shown.contains("slow after: 600 s, resync rate: 20.0 MiB to 200.0 MiB a second"), "{shown}");
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(world.ok("array show data/m"), shown);
    world.ok("export create data/m --nbd unix:m.sock");
    let mut clients = [client(&world, "m")];
    write_all(&mut clients, 1);
    world.refused("array change data/m", 2, "V0002");
    assert!(
        world
            .ok("array change data/m --slow-after 1s -n")
            .contains("would let the arrays of data/m wait 1 s")
    );
    assert!(world.ok("array show data/m").contains("slow after: 600 s"), "nothing was changed");
    assert_eq!(world.data("array change data/m --slow-after 1s")[0]["array"]["slow_after_ms"], 1000);
    stalling.stall();
    write_all(&mut clients, 2);
    let shown = world.ok("array show data/m");
    assert!(shown.contains("away") && shown.contains("20.0 MiB to 200.0 MiB"), "{shown}");
    stalling.release();
    assert_eq!(world.stop(), Some(0));
}

#[test]
fn no_backup_of_the_text_revives_a_member_that_was_replaced() {
    let world = World::with_group();
    world.ok("pv create d3 --size 600M");
    world.ok("vg extend data d3");
    world.ok("lv create data/m --size 24M --type mirror --copies 2 --on d1,d2");
    world.ok("export create data/m --nbd unix:m.sock");
    let write = |round| {
        let mut client = client(&world, "m");
        client.write(1 << 20, &content(round)).expect("there is space");
        client.flush();
    };
    let holds = |round| client(&world, "m").read_all()[1 << 20..][..3 << 20] == content(round);
    write(1);
    world.ok("vg backup data backup");
    world.ok("array replace data/m d1 d3");
    wait_for_members(&world, &["m"]);
    write(2);
    world.ok("export remove e1 -y");
    let refused = world.refused("vg restore data backup -y", 8, "V0213");
    assert!(refused.contains("--drop data/m"), "{refused}");
    world.ok("vg restore data backup --drop data/m -y");
    assert!(lies_on(&world, "m", "d1"), "as the backup says");
    let message = world.refused("export create data/m --nbd unix:m.sock", 7, "V0307");
    assert!(message.contains("--accept-missing"), "the member on d3 is not in the text: {message}");
    world.ok("lv activate data/m --accept-missing -y");
    world.ok("export create data/m --nbd unix:m.sock");
    assert!(holds(2), "d1 has what was written before it was replaced");
    wait_for_members(&world, &["m"]);
    world.ok("array fail data/m d2");
    assert!(holds(2), "it was filled from d2");
}
