//! Physical volumes of which more or less is used, while volumes on them are.

use crate::client::Client;
use crate::harness::World;

const MIB: u64 = 1 << 20;

fn set_length(world: &World, file: &str, bytes: u64) {
    let file = std::fs::File::options().write(true).open(world.path(file)).expect("it is there");
    file.set_len(bytes).expect("it has another length");
}

fn size_of(world: &World, disk: &str) -> u64 {
    world.data(&format!("pv show {disk}"))["size"].as_u64().expect("a size")
}

fn fill(world: &World, volume: &str, at: u64, length: u64, value: u8) {
    let mut client = Client::new(&world.path("socket"), volume);
    client.fill(at, length, value).expect("it serves");
    client.flush();
}

fn holds(world: &World, volume: &str, runs: &[(u64, u8)]) {
    let all = Client::new(&world.path("socket"), volume).read_all();
    let mut at = 0;
    for (length, value) in runs {
        let end = at + usize::try_from(*length).expect("it is small");
        assert!(all[at..end].iter().all(|byte| byte == value), "{volume}: {value} from {at} on");
        at = end;
    }
    assert_eq!(all.len(), at, "{volume}");
}

/// What the offline tools say of both disks.
fn is_sound(world: &World) {
    let said = world.ok("check d1 d2");
    assert!(!said.contains("last MiB") && said.contains("nothing is damaged"), "{said}");
}

#[test]
fn a_disk_that_has_grown_is_used_to_its_end_while_it_serves() {
    let mut world = World::with_group();
    world.ok("lv create data/v --size 500M --on d1");
    world.ok("lv create data/m --size 64M --type mirror --copies 2");
    world.ok("pool create data/p --size 16M --on d1");
    world.ok("lv create data/t --pool p --size 400M");
    for volume in ["v", "m", "t"] {
        world.ok(&format!("export create data/{volume} --nbd unix:socket"));
        fill(&world, &format!("data/{volume}"), 0, 8 * MIB, 1);
    }
    let mut client = Client::new(&world.path("socket"), "data/v");
    assert!(
        world.refused("pv resize d1 --size 900M", 1, "V0103").contains("d1 has 600.0 MiB, and not 900.0 MiB")
    );
    world.ok("pv resize d1");
    assert_eq!(size_of(&world, "d1"), 596 * MIB, "nothing has changed");
    set_length(&world, "d1", 1000 * MIB);
    let planned = world.ok("pv resize d1 -n");
    let step = "from 600.0 MiB to 1000.0 MiB: data gains 100 extents (400.0 MiB)";
    assert!(planned.contains("would resize") && planned.contains(step), "{planned}");
    assert_eq!(size_of(&world, "d1"), 596 * MIB);
    let said = world.ok("pv resize d1");
    assert!(said.contains("d1 has 996.0 MiB for group data now"), "{said}");
    client.fill(8 * MIB, MIB, 2).expect("its client has stayed");
    client.flush();
    // All that is there goes on, and uses what there is now.
    world.ok("pool extend data/p --size 100M");
    world.ok("lv extend data/v --size 700M");
    world.ok("lv extend data/m --size 96M");
    fill(&world, "data/v", 600 * MIB, 100 * MIB, 3);
    fill(&world, "data/m", 64 * MIB, 32 * MIB, 4);
    fill(&world, "data/t", 300 * MIB, 60 * MIB, 5);
    let in_new_space = |world: &World| {
        holds(world, "data/v", &[(8 * MIB, 1), (MIB, 2), (591 * MIB, 0), (100 * MIB, 3)]);
        holds(world, "data/m", &[(8 * MIB, 1), (56 * MIB, 0), (32 * MIB, 4)]);
        holds(world, "data/t", &[(8 * MIB, 1), (292 * MIB, 0), (60 * MIB, 5), (40 * MIB, 0)]);
        world.ok("status --check");
    };
    in_new_space(&world);
    drop(client);
    assert_eq!(world.stop(), Some(0));
    is_sound(&world);
    world.start();
    in_new_space(&world);
    // The tail is at the new end, and of use.
    assert_eq!(world.stop(), Some(0));
    world.overwrite("d1", 0, 1 << 20);
    world.ok("repair d1 d2 -y");
    world.start();
    in_new_space(&world);
}

#[test]
fn a_disk_is_used_in_part_and_the_rest_is_cut_off_while_it_serves() {
    let mut world = World::with_group();
    world.ok("lv create data/v --size 100M --on d1");
    world.ok("lv create data/w --size 100M --on d1");
    world.ok("export create data/v --nbd unix:socket");
    fill(&world, "data/v", 0, 100 * MIB, 1);
    let said = world.refused("pv resize d1 --size 150M", 5, "V0210");
    assert!(said.contains("cannot be reduced to 150.0 MiB: data/w lie behind that"), "{said}");
    assert!(said.contains("--size 211812352B"), "the least: {said}");
    assert_eq!(size_of(&world, "d1"), 596 * MIB, "all or nothing");
    world.ok("pv resize d1 --size 211812352B");
    assert_eq!(size_of(&world, "d1"), 200 * MIB);
    world.ok("lv remove data/w -y");
    world.ok("pv resize d1 --size 150M");
    assert_eq!(size_of(&world, "d1"), 148 * MIB);
    let goes_on = |world: &World, value: u8| {
        fill(world, "data/v", 50 * MIB, MIB, value);
        holds(world, "data/v", &[(50 * MIB, 1), (MIB, value), (49 * MIB, 1)]);
        assert_eq!(world.data("pv show d1")["state"], "ok", "PVRESIZE1");
        world.ok("status --check");
    };
    goes_on(&world, 2);
    set_length(&world, "d1", 400 * MIB);
    goes_on(&world, 3);
    // The next daemon expects no more than the label says, either.
    assert_eq!(world.stop(), Some(0));
    is_sound(&world);
    world.start();
    set_length(&world, "d1", 150 * MIB);
    goes_on(&world, 4);
    assert_eq!(world.stop(), Some(0));
    is_sound(&world);
    world.start();
    goes_on(&world, 5);
    set_length(&world, "d1", 149 * MIB);
    let mut client = Client::new(&world.path("socket"), "data/v");
    client.write(0, &[9; 4096]).expect_err("what is used was cut off");
}

#[test]
fn an_old_end_is_believed_no_more() {
    let mut world = World::with_group();
    set_length(&world, "d1", 800 * MIB);
    world.ok("pv resize d1");
    world.ok("vg change data --cache 32M");
    assert_eq!(world.stop(), Some(0));
    // The file is as long as before, and what is left of it says nothing of itself.
    set_length(&world, "d1", 600 * MIB);
    world.overwrite("d1", 0, 1 << 20);
    let said = world.run("check d1");
    let why = "no physical volume, neither by its first nor by its last MiB";
    assert!(said.exit != 0 && said.stderr.contains(why), "RESIZE2: {}{}", said.stdout, said.stderr);
}

#[test]
fn what_moves_to_a_disk_that_has_grown_is_found_there() {
    let world = World::with_group();
    world.ok("lv create data/v --size 580M --on d1");
    world.ok("lv create data/x --size 100M --on d2");
    world.ok("lv extend data/x --size +4M --on d1");
    world.ok("export create data/x --nbd unix:socket");
    fill(&world, "data/x", 0, 100 * MIB, 1);
    set_length(&world, "d1", 1000 * MIB);
    world.ok("pv resize d1");
    world.ok("pv move d2 d1 --wait");
    fill(&world, "data/x", 50 * MIB, MIB, 2);
    holds(&world, "data/x", &[(50 * MIB, 1), (MIB, 2), (49 * MIB, 1), (4 * MIB, 0)]);
    assert_eq!(world.data("lv show data/x")["state"], "active");
    world.ok("vg reduce data d2");
    world.ok("status --check");
}
