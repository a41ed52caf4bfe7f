//! Thin pools through the command: names, dry runs, refusals, restarts, and a group that goes back to a backup.

use crate::client::Client;
use crate::harness::World;

const MIB: u64 = 1 << 20;

fn with_pool() -> World {
    let world = World::with_group();
    world.ok("pool create data/p --size 200M --auto-extend off --when-full error");
    world.ok("lv create data/a --pool p --size 4G");
    world.ok("lv create data/b --pool data/p --size 100M");
    world
}

fn names(world: &World, list: &str) -> Vec<String> {
    let shown = world.data(list);
    let names = shown.as_array().expect("a list").iter().map(|one| one["name"].as_str().expect("a name"));
    names.map(str::to_owned).collect()
}

#[test]
fn a_dry_run_of_a_pool_says_would_and_changes_nothing() {
    let world = with_pool();
    world.ok("snap create data/a@one data/b@one");
    world.ok("lv create data/c --pool p --size 1G");
    let before = world.everything(&["d1", "d2"]);
    for words in [
        "pool create data/q --size 100M",
        "pool extend data/p --size +100M",
        "pool change data/p --when-full pause",
        "lv create data/d --pool p --size 1T",
        "lv extend data/a --size +1G",
        "lv reduce data/b --size 10M",
        "lv rename data/a z",
        "lv remove data/c",
        "snap create data/a@two --of data/a@one",
        "snap create data/a@two data/b@two",
        "snap remove data/a@one",
        "snap rollback data/a@one",
        "snap hold data/a@one",
    ] {
        let text = world.ok(&format!("{words} -n"));
        assert!(text.starts_with("would ") && text.ends_with("nothing was changed\n"), "{words}: {text}");
        assert!(world.everything(&["d1", "d2"]) == before, "varve {words} -n changed something");
    }
}

#[test]
fn pools_and_thin_volumes_refuse_with_codes_and_remedies() {
    let world = with_pool();
    world.ok("lv create data/thick --size 16M");
    world.ok("snap create data/a@one");
    for (words, exit, code) in [
        ("pool show data/x", 3, "V0310"),
        ("pool show data/a", 3, "V0310"),
        ("pool create data/a --size 100M", 4, "V0302"),
        ("pool create data/q --size 9T", 6, "V0601"),
        ("pool create data/q --size 100M --block-size 3K", 2, "V0409"),
        ("pool create data/q --size 100M --when-full drop-oldest", 2, "V0305"),
        ("pool change data/p", 2, "V0002"),
        ("pool extend data/p --size 100M", 2, "V0306"),
        ("pool remove data/p -y", 5, "V0311"),
        ("lv show data/p", 2, "V0312"),
        ("lv remove data/p -y", 2, "V0312"),
        ("export create data/p --nbd unix:p.sock", 2, "V0312"),
        ("lv create data/a --size 16M", 4, "V0302"),
        ("lv create data/thick --pool p --size 16M", 4, "V0302"),
        ("lv create data/p --pool p --size 16M", 4, "V0302"),
        ("lv rename data/thick a", 4, "V0302"),
        ("lv rename data/a thick", 4, "V0302"),
        ("lv create data/c --pool x --size 16M", 3, "V0310"),
        ("lv create data/c --pool p --size 2000000T", 2, "V0306"),
        ("lv create data/c --pool p --size 50%FREE", 2, "V0306"),
        ("lv create data/c --pool p --size 1G --when-full error", 2, "V0002"),
        ("lv create data/c --pool p --size 1G --type striped --stripes 2", 2, "V0002"),
        ("lv change data/a --when-full error", 2, "V0002"),
        ("lv extend data/a --size 1G", 2, "V0306"),
        ("lv reduce data/a --size 8G -y", 2, "V0306"),
        ("lv remove data/a --now -y", 5, "V0304"),
        ("snap create data/a@one", 4, "V0402"),
        ("snap create data/a@two --chunk-size 64K", 2, "V0409"),
        ("snap create data/a@two --of data/a@none", 3, "V0401"),
        ("snap create data/a@two --of data/b@one", 2, "V0002"),
        ("snap create data/thick@two --mode thin", 2, "V0002"),
        ("vg remove data -y", 5, "V0204"),
    ] {
        world.refused(words, exit, code);
    }
}

#[test]
fn volumes_of_a_pool_come_back_with_their_snapshots_and_exports() {
    let mut world = with_pool();
    world.ok("export create data/a --nbd unix:a.sock");
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.fill(0, MIB, 1).expect("there is space");
    world.ok("snap create data/a@one data/b@one");
    client.fill(0, 4096, 2).expect("there is space");
    world.ok("snap create data/a@two --of data/a@one --read-only");
    world.ok("snap hold data/a@two");
    world.ok("lv rename data/b c");
    world.ok("export create data/c@one --nbd unix:c.sock --read-only");
    let counted = |world: &World| {
        let thin = world.data("lv show data/a");
        (thin["thin"]["mapped"].as_u64(), thin["thin"]["exclusive"].as_u64(), thin["id"].clone())
    };
    let before = (names(&world, "lv list"), world.data("snap list"), counted(&world));
    assert_eq!(before.0, ["data/a", "data/c"]);
    assert_eq!((before.2.0, before.2.1), (Some(MIB), Some(4096)));
    drop(client);
    assert_eq!(world.stop(), Some(0));
    for _ in 0..3 {
        world.start();
        assert_eq!((names(&world, "lv list"), world.data("snap list"), counted(&world)), before);
        let exports = world.data("export list");
        let serving = exports.as_array().expect("a list").iter().filter(|one| one["state"] == "serving");
        assert_eq!(serving.count(), 2, "{exports}");
        world.kill();
    }
    let check = world.ok("check d1 d2");
    assert!(check.contains("pool: data/p: sound; 5 volumes and snapshots"), "{check}");
    assert!(check.ends_with("nothing is damaged\n"), "{check}");
    world.start();
    // A pool that was away brings its volumes and exports back with it.
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("d1"), world.path("elsewhere")).expect("it is there");
    world.start();
    assert_eq!(world.data("pool show data/p")["state"], "unusable");
    world.refused("lv create data/x --pool p --size 1G", 7, "V0307");
    world.ok("pv scan elsewhere");
    assert_eq!((names(&world, "lv list"), world.data("snap list"), counted(&world)), before);
    let exports = world.data("export list");
    assert!(exports.as_array().expect("a list").iter().all(|one| one["state"] == "serving"), "{exports}");
}

#[test]
fn a_name_that_a_backup_brings_back_is_taken_from_the_thin_volume() {
    let world = with_pool();
    world.ok("lv create data/x --size 16M");
    world.ok("vg backup data backup");
    world.ok("lv remove data/x -y");
    world.ok("lv create data/x --pool p --size 1G");
    world.ok("snap create data/x@s");
    world.ok("vg restore data backup -y");
    assert_eq!(names(&world, "lv list"), ["data/a", "data/b", "data/x", "data/x-1"], "THINNAMES1");
    assert_eq!(world.data("lv show data/x")["layout"], "linear");
    assert_eq!(world.data("lv show data/x-1")["thin"]["pool"], "data/p");
    assert_eq!(names(&world, "snap list"), ["data/x-1@s"]);
    assert!(world.ok("status").contains("the name was taken"), "an event says so");
}

#[test]
fn a_full_pool_is_told_as_no_space_and_goes_on_when_it_has_some() {
    let world = with_pool();
    world.ok("export create data/a --nbd unix:a.sock");
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    let mut written = 0;
    let refused = loop {
        match client.fill(written, MIB, 7) {
            Ok(()) => written += MIB,
            Err(error) => break error,
        }
        assert!(written < 200 * MIB, "a pool of 200 MiB is full before that");
    };
    assert_eq!(refused, 28, "ENOSPC, and not EIO");
    assert!(written > 180 * MIB, "{written}");
    client.fill(0, MIB, 8).expect("overwrites go on");
    world.ok("pool extend data/p --size +64M");
    client.fill(written, MIB, 9).expect("there is space again");
    let pool = world.data("pool show data/p");
    let metrics = crate::harness::http(&world.path("varve.sock"), "/metrics");
    assert!(metrics.contains("varve_pool_bytes{pool=\"data/p\"} 276824064\n"), "{metrics}");
    assert!(pool["ratio"].as_f64().is_some_and(|ratio| ratio > 15.0), "{pool}");
    drop(client);
    world.ok("export remove data/a -y");
    world.ok("lv remove data/a -y");
    world.ok("lv remove data/b -y");
    world.ok("pool remove data/p -y");
    assert_eq!(names(&world, "pool list"), Vec::<String>::new());
}
