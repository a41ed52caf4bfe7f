//! Descriptions that are written back to the group they are of: what is kept, what is named, and what is dropped.

use crate::client::Client;
use crate::harness::World;
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn fill(world: &World, name: &str, bytes: u64, value: u8) {
    world.ok(&format!("export create {name} --nbd unix:client.sock"));
    let mut client = Client::new(&world.path("client.sock"), name);
    for offset in (0..bytes).step_by(1 << 20) {
        client.fill(offset, MIB.min(bytes - offset), value).expect("there is space");
    }
    client.flush();
    drop(client);
    world.ok("export remove client.sock -y");
}

fn holds(world: &World, name: &str, bytes: u64, value: u8) -> bool {
    world.ok(&format!("export create {name} --nbd unix:client.sock --read-only"));
    let all = Client::new(&world.path("client.sock"), name).read_all();
    world.ok("export remove client.sock -y");
    let length = usize::try_from(bytes).expect("few bytes");
    all[..length].iter().all(|byte| *byte == value)
}

/// A pool of 64 MiB, a backup, and then a pool that has grown and is full of data.
fn with_grown_pool() -> World {
    let world = World::with_group();
    world.ok("pool create data/p --size 64M --auto-extend off --when-full error");
    world.ok("lv create data/thin --pool p --size 100M");
    world.ok("vg backup data backup");
    world.ok("pool extend data/p --size 160M");
    fill(&world, "data/thin", 100 * MIB, 9);
    world
}

#[test]
fn a_pool_that_has_grown_since_a_backup_keeps_its_extents_and_its_volumes() {
    let world = with_grown_pool();
    world.ok("lv create data/late --size 16M");
    let would = world.ok("vg restore data backup -n");
    assert!(would.contains("would keep data/p as it is"), "{would}");
    assert!(would.contains("would drop data/late (16.0 MiB)"), "{would}");
    assert!(would.contains("would need --drop data/late"), "{would}");
    // RESTOREVG1
    let refused = world.refused("vg restore data backup -y", 8, "V0213");
    assert!(refused.contains("varve vg restore data FILE --drop data/late"), "{refused}");
    assert_eq!(world.data("lv show data/late")["state"], "active", "what is refused changes nothing");
    world.refused("vg restore data backup --drop data/late --drop data/thin -y", 2, "V0208");
    let done = world.data("vg restore data backup --drop data/late -y");
    assert_eq!(
        (&done["dropped"], &done["added"]),
        (&serde_json::json!(["data/late"]), &serde_json::json!([]))
    );
    assert_eq!(world.data("pool show data/p")["size"].as_u64(), Some(160 * MIB));
    assert!(holds(&world, "data/thin", 100 * MIB, 9), "nothing of it was lost");
    // What the pool holds is given to no other volume.
    world.ok("lv create data/more --size 100%FREE");
    fill(&world, "data/more", 8 * MIB, 1);
    assert!(holds(&world, "data/thin", 100 * MIB, 9));
}

#[test]
fn a_pool_that_holds_what_the_backup_gives_to_another_is_dropped_only_by_name() {
    let world = World::with_group();
    world.ok("pool create data/p --size 64M --auto-extend off --when-full error");
    world.ok("lv create data/thin --pool p --size 40M");
    world.ok("lv create data/old --size 100%FREE");
    world.ok("vg backup data backup");
    world.ok("lv remove data/old --now -y");
    world.ok("pool extend data/p --size +128M");
    fill(&world, "data/thin", 40 * MIB, 5);
    let refused = world.refused("vg restore data backup -y", 8, "V0213");
    assert!(refused.contains("data/p: it has 192.0 MiB"), "{refused}");
    assert!(refused.contains("and with it data/thin"), "{refused}");
    assert!(refused.contains("--drop data/p"), "{refused}");
    assert!(holds(&world, "data/thin", 40 * MIB, 5), "it is served as before");
    let done = world.data("vg restore data backup --drop data/p -y");
    assert_eq!(done["dropped"], serde_json::json!(["data/p"]));
    assert_eq!(done["added"], serde_json::json!(["data/old"]));
    let list = world.data("lv list");
    let names: Vec<&Value> = list.as_array().expect("a list").iter().map(|lv| &lv["name"]).collect();
    assert_eq!(names, ["data/old"]);
}

#[test]
fn a_store_that_has_grown_since_a_backup_keeps_its_extents_and_its_snapshots() {
    let world = with_grown_pool();
    world.ok("lv create data/a --size 32M");
    world.ok("snap create data/a@s");
    world.ok("vg backup data with-store");
    world.ok("lv extend data/a@s --size +64M");
    fill(&world, "data/a", 32 * MIB, 3);
    let would = world.ok("vg restore data with-store -n");
    assert!(would.contains("would keep data/a as it is"), "{would}");
    world.ok("vg restore data with-store -y");
    assert!(holds(&world, "data/a@s", MIB, 0), "the snapshot is what it was");
    assert!(holds(&world, "data/a", 32 * MIB, 3));
    assert!(holds(&world, "data/thin", 100 * MIB, 9));
}

#[test]
fn a_pool_is_not_given_less_than_its_own_superblock_says_whatever_the_text_says_now() {
    let mut world = with_grown_pool();
    world.ok("lv create data/a --size 32M");
    world.ok("snap create data/a@s");
    world.ok("vg backup data grown");
    assert_eq!(world.stop(), Some(0));
    // The description is lost, and written anew from a backup of before the pool grew.
    world.lose_descriptions(&["d1", "d2"]);
    // Without a daemon it is compared, too.
    let refused = world.refused("restore backup d1 d2 -y", 8, "V0213");
    assert!(refused.contains("data/p: the pool has 160.0 MiB by its own account"), "OFFLINE1: {refused}");
    assert!(refused.contains("varve restore backup PATH… --drop data/p"), "{refused}");
    world.refused("restore grown d1 d2 --drop data/a -y", 2, "V0208");
    // RESTOREVG2
    assert!(world.ok("restore backup d1 d2 -n").contains("would need --drop data/p: the pool has"));
    world.ok("restore backup d1 d2 --drop data/p -y");
    world.start();
    assert_eq!(world.data("lv list"), serde_json::json!([]), "the pool is gone, with its volume");
    let refused = world.refused("vg restore data backup -y", 8, "V0213");
    assert!(refused.contains("the pool has 160.0 MiB by its own account"), "{refused}");
    world.ok("vg restore data grown -y");
    assert!(holds(&world, "data/thin", 100 * MIB, 9), "nothing of it was lost");
}

#[test]
fn a_pool_on_an_array_is_not_given_less_than_its_own_superblock_says() {
    for layout in ["mirror --copies 2", "ddraid --order 1"] {
        let mut world = World::with_group();
        world.ok("pv create d3 --size 600M");
        world.ok("vg extend data d3");
        world.ok(&format!("pool create data/p --size 64M --type {layout} --auto-extend off"));
        world.ok("lv create data/thin --pool p --size 100M");
        world.ok("vg backup data backup");
        world.ok("pool extend data/p --size 160M");
        world.ok("vg backup data grown");
        let would = world.ok("vg restore data backup -n");
        assert!(would.contains("would keep data/p as it is"), "{layout}: {would}");
        assert_eq!(world.stop(), Some(0));
        world.lose_descriptions(&["d1", "d2", "d3"]);
        let refused = world.refused("restore backup d1 d2 d3 -y", 8, "V0213");
        assert!(refused.contains("data/p: the pool has 160.0 MiB by its own account"), "{layout}: {refused}");
        world.ok("restore grown d1 d2 d3 -y");
        world.start();
        assert_eq!(world.data("pool show data/p")["state"], "active", "{layout}");
    }
}

/// Whether it lies on an array or not, and whether the daemon has stopped in order or not.
#[test]
fn a_grown_store_is_not_given_less_than_what_it_leads_to() {
    for (number, layout) in ["linear", "mirror --copies 2", "ddraid --order 1"].into_iter().enumerate() {
        let mut world = World::with_group();
        world.ok("pv create d3 --size 600M");
        world.ok("vg extend data d3");
        world.ok(&format!("lv create data/a --size 100M --type {layout}"));
        fill(&world, "data/a", MIB, 3);
        world.ok("snap create data/a@s");
        world.ok("vg backup data backup");
        world.ok("lv extend data/a@s --size +128M");
        world.ok("vg backup data grown");
        fill(&world, "data/a", 100 * MIB, 4); // More than the store had before.
        let would = world.ok("vg restore data backup -n");
        assert!(would.contains("would keep data/a as it is"), "{layout}: {would}");
        match number % 2 {
            0 => assert_eq!(world.stop(), Some(0)),
            _ => world.kill(),
        }
        world.lose_descriptions(&["d1", "d2", "d3"]);
        let refused = world.refused("restore backup d1 d2 d3 -y", 8, "V0213");
        let said = "its snapshot store has 192.0 MiB by its own account";
        assert!(refused.contains(said) && refused.contains("--drop data/a"), "{layout}: {refused}");
        world.ok("restore grown d1 d2 d3 -y");
        world.start();
        assert!(holds(&world, "data/a@s", MIB, 3), "{layout}: the snapshot is what it was");
        assert!(holds(&world, "data/a", 100 * MIB, 4), "{layout}");
    }
}

/// Not even after a crash: what it has taken into use it has described.
#[test]
fn a_grown_pool_is_not_given_less_than_what_it_leads_to_after_a_crash() {
    let mut world = World::with_group();
    world.ok("pool create data/p --size 64M --auto-extend off");
    world.ok("lv create data/thin --pool p --size 100M");
    world.ok("vg backup data backup");
    world.ok("pool extend data/p --size 160M");
    world.ok("vg backup data grown");
    fill(&world, "data/thin", 100 * MIB, 9);
    world.kill();
    world.lose_descriptions(&["d1", "d2"]);
    let refused = world.refused("restore backup d1 d2 -y", 8, "V0213");
    assert!(refused.contains("data/p: the pool has 160.0 MiB by its own account"), "{refused}");
    world.ok("restore grown d1 d2 -y");
    world.start();
    assert!(holds(&world, "data/thin", 100 * MIB, 9), "nothing of it was lost");
}

#[test]
fn what_was_under_way_in_a_backup_does_not_go_on_where_it_is_written_to_lost_disks() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 32M");
    world.ok("vg backup data backup");
    fill(&world, "data/a", 32 * MIB, 7);
    assert_eq!(world.stop(), Some(0));
    // As if the volume had not been cleared yet when the backup was made.
    let text = std::fs::read_to_string(world.path("backup")).expect("a backup");
    let volume = text.split("[[logical_volume]]").nth(1).expect("one volume");
    let id = volume.lines().find(|line| line.starts_with("id = ")).expect("it has an id");
    assert_eq!(text.lines().filter(|line| line.starts_with("last_job")).count(), 0, "{text}");
    let job = "[[job]]\nid = 1\nsubject = \"data/a\"\nstarted = \"2025-06-15T15:06:43Z\"\n";
    let marked = text.replacen("\n[group]", "\nlast_job = 1\n\n[group]", 1)
        + &format!("\n{job}\n[job.work.clear]\nvolume = {}\nfrom = 0\n", id.trim_start_matches("id = "));
    std::fs::write(world.path("marked"), marked).expect("there is room");
    world.lose_descriptions(&["d1", "d2"]);
    let words = "warning: data/a was being cleared in the backup, and is not";
    assert!(world.ok("restore marked d1 d2 -n").contains(words));
    assert!(world.ok("restore marked d1 d2 -y").contains(words));
    world.start();
    assert!(holds(&world, "data/a", 32 * MIB, 7), "UNDERWAY1");
}

#[test]
fn the_last_changes_are_taken_back_and_what_would_be_lost_by_that_is_named() {
    let world = World::with_group();
    world.ok("lv create data/a --size 8M");
    fill(&world, "data/a", 8 * MIB, 7);
    world.ok("lv remove data/a --now -y");
    let plan = world.ok("vg undo data -n");
    assert!(plan.contains("would take back change 3: lv remove data/a"), "{plan}");
    assert!(plan.contains("would bring back data/a"), "{plan}");
    world.refused("vg undo data", 8, "V0004");
    let done = world.ok("vg undo data -y");
    assert!(done.contains("brought back data/a"), "{done}");
    assert!(holds(&world, "data/a", 8 * MIB, 7), "nobody has had its extents meanwhile");
    world.ok("lv rename data/a b");
    world.ok("vg undo data -y");
    assert!(holds(&world, "data/a", 8 * MIB, 7));
    world.ok("vg undo data -y");
    assert!(holds(&world, "data/b", 8 * MIB, 7), "what was taken back is the last change, and is taken back");
    world.ok("lv create data/new --size 4M");
    world.ok("lv remove data/b -y");
    let refused = world.refused("vg undo data --to 2 -y", 8, "V0213");
    assert!(refused.contains("varve vg undo data --to 2 --drop data/new"), "{refused}");
    world.ok("export create data/new --nbd unix:new.sock");
    world.refused("vg undo data --to 2 --drop data/new -y", 5, "V0303");
    world.ok("export remove new.sock -y");
    let done = world.data("vg undo data --to 2 --drop data/new -y");
    assert_eq!((&done["dropped"][0], &done["added"][0]), (&"data/new".into(), &"data/a".into()));
    assert!(holds(&world, "data/a", 8 * MIB, 7), "it came out of the trash");
    assert_eq!(world.data("trash list"), Value::Array(Vec::new()));
    let last = world.data("vg show data")["sequence"].to_string();
    for beyond in ["0", "999", last.as_str()] {
        let refused = world.refused(&format!("vg undo data --to {beyond} -y"), 2, "V0208");
        assert!(refused.contains("varve vg history data"), "{refused}");
    }
    let history = world.ok("vg history data");
    assert!(history.contains("vg undo data, to change 2"), "{history}");
}
