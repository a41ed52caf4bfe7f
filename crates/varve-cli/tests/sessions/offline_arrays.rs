//! Mirrors and ddraid looked at without a daemon: checked, dumped, what lies on them made anew, and nothing written that need not be.

use crate::client::Client;
use crate::harness::World;
use std::os::unix::fs::FileExt;

const DISKS: [&str; 3] = ["d1", "d2", "d3"];

fn content(volume: &str) -> Vec<u8> {
    let first = u32::from(volume.as_bytes()[0]);
    (0..(1 << 20) / 4_u32).flat_map(|at| (at ^ (first << 20) ^ 0x5a5a_1234).to_le_bytes()).collect()
}

/// A mirror with a snapshot, ddraid, and a pool on ddraid, all written; a daemon runs.
fn world() -> World {
    let world = World::with_group();
    world.ok("pv create d3 --size 600M");
    world.ok("vg extend data d3");
    world.ok("lv create data/m --size 24M --type mirror --copies 2");
    world.ok("lv create data/r --size 24M --type ddraid --order 1 --checksums");
    world.ok("pool create data/p --size 40M --type ddraid --order 1");
    world.ok("lv create data/t --pool p --size 24M");
    world.ok("snap create data/m@s");
    for volume in ["m", "r", "t"] {
        world.ok(&format!("export create data/{volume} --nbd unix:{volume}.sock"));
        write(&world, volume);
    }
    world
}

fn write(world: &World, volume: &str) {
    let mut client = Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"));
    client.write(4 << 20, &content(volume)).expect("there is space");
    client.flush();
}

fn disks(world: &World) -> Vec<Vec<u8>> {
    DISKS.iter().map(|disk| std::fs::read(world.path(disk)).expect("a disk")).collect()
}

#[test]
fn a_check_compares_members_and_looks_at_what_lies_on_them_and_writes_nothing() {
    let mut world = world();
    assert_eq!(world.stop(), Some(0));
    let before = disks(&world);
    let sound = world.ok("check d1 d2 d3");
    for what in ["data/m", "data/r", "data/p", "the snapshots of data/m"] {
        assert!(sound.contains(&format!("note: array: {what}: sound; ")), "{what}: {sound}");
    }
    assert!(sound.contains("note: pool: data/p: sound; 1 volumes"), "{sound}");
    assert!(sound.contains("note: snapshot store: data/m: sound; 1 snapshots"), "{sound}");
    let without = world.ok("check d1 d2");
    assert!(without.contains("d3) is away"), "{without}");
    assert!(
        without.contains("note: pool: data/p: sound; 1 volumes"),
        "it is read from the others: {without}"
    );
    assert!(world.ok("dump d1 d2 --store data/p").contains("volume"));
    assert!(disks(&world) == before, "LOOKARRAY1");

    // The first copy of what the mirror holds changes on one disk.
    let sector = &content("m")[512..1024];
    let mut copies = before.iter().zip(DISKS).filter_map(|(bytes, disk)| {
        let at = bytes.chunks_exact(512).position(|chunk| chunk == sector)?;
        Some((disk, at as u64 * 512))
    });
    let (disk, at) = copies.next_back().expect("it lies on two disks");
    let file = std::fs::File::options().write(true).open(world.path(disk)).expect("a disk");
    file.write_all_at(&[0xee; 512], at).expect("written");
    let ended = world.run("check d1 d2 d3");
    let message = ended.stdout;
    assert_eq!(ended.exit, 7, "{message}");
    assert!(
        message.contains("DAMAGED: array: data/m: 1 blocks of which the members do not fit"),
        "{message}"
    );
}

#[test]
fn after_a_kill_a_check_says_what_a_daemon_makes_equal_and_a_pool_on_an_array_is_made_anew() {
    let mut world = world();
    write(&world, "m");
    write(&world, "t");
    world.kill();
    let before = disks(&world);
    let told = world.ok("check d1 d2 d3");
    assert!(told.contains("were being written; the next start of a daemon makes them equal"), "{told}");
    assert!(disks(&world) == before, "LOOKARRAY1");
    let plan = world.ok("repair d1 d2 d3 --store data/p -n");
    assert!(plan.contains("would write the metadata of data/p anew: 1 volumes"), "{plan}");
    assert!(disks(&world) == before, "LOOKARRAY1: nothing was to be changed");
    let done = world.ok("repair d1 d2 d3 --store data/p -y");
    assert!(done.contains("wrote the metadata of data/p anew"), "{done}");
    let done = world.ok("repair d1 d2 d3 --store data/m -y");
    assert!(done.contains("made the snapshot store data/m anew; the old one is data/m.store-1"), "{done}");
    assert_eq!(world.data("check d1 d2 d3")["clean"], true);
    world.start();
    for volume in ["m", "r", "t"] {
        let mut client = Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"));
        assert_eq!(client.read(4 << 20, 1 << 20), Ok(content(volume)), "{volume}");
    }
    assert_eq!(world.stop(), Some(0));
    let clean = world.ok("check d1 d2 d3");
    assert!(!clean.contains("were being written"), "LOOKARRAY2: {clean}");
}

/// Where the nodes of maps lie on a disk.
fn nodes(world: &World, disk: &str) -> Vec<u64> {
    let bytes = std::fs::read(world.path(disk)).expect("a disk");
    let blocks = bytes.chunks_exact(4096).enumerate();
    blocks.filter(|(_, block)| block.starts_with(b"VNOD")).map(|(number, _)| number as u64 * 4096).collect()
}

/// Spoils every node of a map on a disk; whether there was one.
fn spoil_nodes(world: &World, disk: &str) -> bool {
    let file = std::fs::File::options().write(true).open(world.path(disk)).expect("a disk");
    let found = nodes(world, disk);
    found.iter().for_each(|at| file.write_all_at(b"spoiled", at + 200).expect("written"));
    !found.is_empty()
}

/// A mirror with a snapshot, and what was there before is preserved for it; nothing runs, and the maps are on the disks.
fn with_preserved_content() -> World {
    let mut world = World::with_group();
    world.ok("pv create d3 --size 600M");
    world.ok("vg extend data d3");
    world.ok("lv create data/m --size 24M --type mirror --copies 2");
    world.ok("export create data/m --nbd unix:m.sock");
    write(&world, "m");
    world.ok("snap create data/m@s");
    let mut client = Client::new(&world.path("m.sock"), "data/m");
    client.fill(4 << 20, 1 << 20, 7).expect("there is space");
    client.flush();
    drop(client);
    for _ in 0..2 {
        // What the log says is entered into the maps.
        assert_eq!(world.stop(), Some(0));
        world.start();
    }
    assert_eq!(world.stop(), Some(0));
    world
}

fn snapshot(world: &World) -> Vec<u8> {
    world.ok("export create data/m@s --nbd unix:s.sock --read-only");
    let mut client = Client::new(&world.path("s.sock"), "data/m@s");
    client.read(4 << 20, 1 << 20).expect("it is served")
}

#[test]
fn a_store_of_which_both_copies_are_damaged_is_made_anew_on_a_mirror_and_the_old_mirror_is_kept() {
    let mut world = with_preserved_content();
    assert_eq!(DISKS.iter().filter(|disk| spoil_nodes(&world, disk)).count(), 2, "two copies");
    assert_eq!(world.run("check d1 d2 d3").exit, 7);
    let before = disks(&world);
    let plan = world.ok("repair d1 d2 d3 --store data/m -n");
    assert!(plan.contains("keep the old one as data/m.store-1, read-only"), "{plan}");
    assert!(disks(&world) == before, "LOOKARRAY1");
    let ended = world.run("repair d1 d2 d3 --store data/m -y --json");
    assert_eq!(ended.exit, 9, "NEWSTORE1: {}", ended.stdout);
    assert!(ended.stdout.contains("\"bytes_lost\""), "{}", ended.stdout);
    let check = world.ok("check d1 d2 d3");
    assert!(check.contains("note: snapshot store: data/m: sound; 1 snapshots"), "{check}");
    for what in ["the snapshots of data/m", "data/m.store-1"] {
        assert!(check.contains(&format!("note: array: {what}: sound; ")), "LOOKARRAY2: {what}: {check}");
    }
    world.start();
    let shown = world.data("lv show data/m.store-1");
    assert_eq!(shown["state"], "active", "{shown}");
    world.ok("export create data/m.store-1 --nbd unix:old.sock");
    let mut old = Client::new(&world.path("old.sock"), "data/m.store-1");
    assert!(old.fill(0, 4096, 7).is_err(), "RENEW1: nothing of the old store is written");
    drop(old);
    world.ok("export remove data/m.store-1 -y");
    assert_eq!(world.data("lv show data/m")["state"], "active");
    let lost = snapshot(&world);
    let zeros = vec![0; 1 << 20];
    assert!(lost == zeros, "what its maps led to is lost, and zeros");
    world.ok("array scrub data/m --wait");
    assert_eq!(world.stop(), Some(0));

    // A second time, of the new one: arrays of one store are told apart.
    let again = world.ok("repair d1 d2 d3 --store data/m -y");
    assert!(again.contains("the old one is data/m.store-2"), "{again}");
    world.start();
    for volume in ["data/m", "data/m.store-1", "data/m.store-2"] {
        assert_eq!(world.data(&format!("lv show {volume}"))["state"], "active", "{volume}");
    }
    world.ok("lv remove data/m.store-1 -y");
    world.ok("lv remove data/m.store-2 -y");
    assert_eq!(world.stop(), Some(0));
    assert_eq!(world.data("check d1 d2 d3")["clean"], true);
}

#[test]
fn a_store_on_a_mirror_of_which_a_disk_is_gone_is_made_anew_from_the_other_copy() {
    let mut world = with_preserved_content();
    let holders: Vec<&str> = DISKS.into_iter().filter(|disk| !nodes(&world, disk).is_empty()).collect();
    let [gone, _] = holders[..] else { panic!("two copies: {holders:?}") };
    std::fs::rename(world.path(gone), world.path("away")).expect("it is there");
    let rest: Vec<&str> = DISKS.into_iter().filter(|disk| *disk != gone).collect();
    let rest = rest.join(" ");
    let refused = world.refused(&format!("repair {rest} --store data/m -y"), 1, "V0205");
    assert!(refused.contains(gone), "{refused}");
    // A daemon records that the disk is missing, and does without the copy there once a user accepts that this one counts.
    world.start();
    world.refused("lv activate data/m", 7, "V0307");
    assert_eq!(world.stop(), Some(0));
    let refused = world.refused(&format!("repair {rest} --store data/m -y"), 7, "V0307");
    assert!(refused.contains("lv activate data/m --accept-missing"), "{refused}");
    world.start();
    world.ok("lv activate data/m --accept-missing -y");
    assert_eq!(world.stop(), Some(0));
    let done = world.ok(&format!("repair {rest} --store data/m -y"));
    assert!(done.contains("made the snapshot store data/m anew; the old one is data/m.store-1"), "{done}");
    world.start();
    assert!(snapshot(&world) == content("m"), "all of it was on the other copy");
    let shown = world.data("array show data/m");
    let stores = shown.as_array().expect("arrays").iter().filter(|array| array["is_store"] == true);
    let states = stores.flat_map(|array| array["array"]["members"].as_array().expect("members").clone());
    let states: Vec<_> = states.map(|member| member["state"].clone()).collect();
    assert_eq!(states, ["in-sync", "in-sync"], "the new store has both of its copies");
    assert_eq!(world.data("lv show data/m.store-1")["state"], "degraded", "the old one has one");
    assert_eq!(world.stop(), Some(0));
}
