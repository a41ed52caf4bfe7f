//! The archive of groups: disks that have lost both of their ends come back by it, with their groups and data.

use crate::client::Client;
use crate::harness::World;
use std::path::Path;

const DISKS: [&str; 3] = ["d1", "d2", "d3"];
const MIB: u64 = 1 << 20;

/// A group on three disks, with a volume on all of them and a mirror; what both hold.
fn with_data() -> (World, [Vec<u8>; 2]) {
    let world = World::started();
    world.ok("pv create d1 --size 200M");
    world.ok("pv create d2 d3 --size 160M");
    world.ok("vg create data d1 d2 d3");
    world.ok("lv create data/wide --size 96M --type striped --stripes 3");
    world.ok("lv create data/safe --size 24M --type mirror --copies 2");
    for (volume, size) in [("wide", 96), ("safe", 24)] {
        world.ok(&format!("export create data/{volume} --nbd unix:{volume}.sock"));
        let mut client = Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"));
        for place in 0..size {
            client.fill(place * MIB, MIB, u8::try_from(place + 1).expect("few")).expect("there is space");
        }
        client.flush();
    }
    let content = content(&world);
    (world, content)
}

fn content(world: &World) -> [Vec<u8>; 2] {
    ["wide", "safe"].map(|volume| {
        Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}")).read_all()
    })
}

/// The first and the last MiB.
fn lose_ends(world: &World, disk: &str) {
    let size = std::fs::metadata(world.path(disk)).expect("a disk").len();
    for at in [0, size - MIB] {
        world.overwrite(disk, at, usize::try_from(MIB).expect("small"));
    }
}

/// The names of the versions in a folder, once there are so many; they come soon after the changes.
fn versions(folder: &Path, count: usize) -> Vec<String> {
    loop {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let names = entries.map(|entry| entry.expect("a file").file_name().into_string().expect("a name"));
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".vg")).collect();
        names.sort();
        if names.len() >= count {
            return names;
        }
        std::thread::yield_now();
    }
}

#[test]
fn both_ends_of_any_disks_are_lost_and_all_data_comes_back() {
    let (mut world, content_before) = with_data();
    for lost in 1..8_u32 {
        let group = world.data("vg show data");
        assert_eq!(world.stop(), Some(0));
        let is_lost = |number: usize| lost & 1 << number != 0;
        let lost: Vec<&str> = (0..3).filter(|number| is_lost(*number)).map(|number| DISKS[number]).collect();
        lost.iter().for_each(|disk| lose_ends(&world, disk));
        let repaired = world.run("repair d1 d2 d3 --state state -y");
        if lost.len() == DISKS.len() {
            let help = repaired
                .stderr
                .lines()
                .find_map(|line| line.strip_prefix("help: varve "))
                .expect(&repaired.stderr);
            let (command, what) = help.split_once(" writes ").expect(help);
            assert!(what.starts_with("group data as of change "), "{help}");
            assert!(command.ends_with(" d1 d2 d3"), "{help}");
            assert_eq!(repaired.exit, 3, "{}", repaired.stderr);
            world.ok(&format!("{command} -y"));
        } else {
            assert_eq!(repaired.exit, 0, "{lost:?}: {}{}", repaired.stdout, repaired.stderr);
        }
        world.start();
        assert_eq!(world.data("vg show data")["physical_volumes"], group["physical_volumes"], "{lost:?}");
        world.ok("status --check");
        assert!(content(&world) == content_before, "{lost:?}");
    }
}

#[test]
fn each_version_is_a_file_that_a_restore_takes() {
    let world = World::with_group();
    world.ok("lv create data/a --size 16M");
    world.ok("lv rename data/a b");
    let group = world.data("vg show data");
    let folder = world.path("state/archive").join(group["id"].as_str().expect("an id"));
    let versions = versions(&folder, 3);
    let numbers: Vec<&str> = versions.iter().map(|name| &name[..7]).collect();
    assert_eq!(numbers, ["data-1-", "data-2-", "data-3-"]);
    world.ok("vg backup data backup");
    let newest = std::fs::read(folder.join(&versions[2])).expect("a version");
    assert!(newest == std::fs::read(world.path("backup")).expect("a backup"), "it is what a backup is");
    let second = folder.join(&versions[1]);
    let would = world.ok(&format!("vg restore data {} -n", second.display()));
    assert!(would.contains("write back the volumes that data had in version 2"), "{would}");
    world.ok(&format!("vg restore data {} -y", second.display()));
    assert_eq!(world.data("lv list")[0]["name"], "data/a");
}

#[test]
fn a_state_directory_that_cannot_be_written_fails_no_command() {
    let world = World::with_group();
    let archive = world.path("state/archive");
    let id = world.data("vg show data")["id"].as_str().expect("an id").to_owned();
    versions(&archive.join(&id), 1); // Else that one may be written behind the others.
    std::fs::rename(&archive, world.path("state/aside")).expect("a folder");
    std::fs::write(&archive, "in the way").expect("a writable folder");
    world.ok("lv create data/a --size 16M");
    let is_told = || world.run("status --check").stdout.contains("cannot be written");
    while !is_told() {}
    world.ok("lv create data/b --size 16M");
    std::fs::remove_file(&archive).expect("it is there");
    while is_told() {}
    // The first is written once more if its folder was renamed before it was known to be durable.
    let later = || versions(&archive.join(&id), 2).into_iter().filter(|name| !name.starts_with("data-1-"));
    while later().count() < 2 {}
    let numbers: Vec<String> = later().map(|name| name[..7].to_owned()).collect();
    assert_eq!(numbers, ["data-2-", "data-3-"]);
    world.ok("status --check");
}

#[test]
fn the_archive_is_asked_only_when_disks_say_too_little() {
    let mut world = World::started();
    world.ok("pv create d1 d2 --size 64M");
    world.ok("vg create data d1 d2");
    assert_eq!(world.stop(), Some(0));
    // A folder where a text is to be.
    std::fs::create_dir_all(world.path("other/archive/group/data-1-00000000.vg")).expect("a new folder");
    let sound = world.run("repair d1 d2 --state other -y");
    assert_eq!((sound.exit, sound.stderr.as_str()), (0, ""), "{}", sound.stdout);
    assert!(sound.stdout.ends_with("nothing is damaged\nthere is nothing to mend\n"), "{}", sound.stdout);
    ["d1", "d2"].iter().for_each(|disk| lose_ends(&world, disk));
    let lost = world.run("repair d1 d2 --state other -y");
    assert!(
        lost.exit == 3 && lost.stderr.contains("the archive of groups cannot be read"),
        "{}",
        lost.stderr
    );
}
