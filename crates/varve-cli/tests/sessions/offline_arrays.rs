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
    world.refused("repair d1 d2 d3 --store data/m -y", 2, "V0003");
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
