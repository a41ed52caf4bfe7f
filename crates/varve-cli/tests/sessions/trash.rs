//! The trash: what is removed comes back as it was, goes when its time is over, and makes room for what needs it.

#![expect(clippy::disallowed_methods, reason = "real processes are waited for")]

use crate::client::Client;
use crate::harness::World;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Waits until `is_so`.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn with_client<T>(world: &World, name: &str, work: impl FnOnce(&mut Client) -> T) -> T {
    world.ok(&format!("export create {name} --nbd unix:client.sock"));
    let done = work(&mut Client::new(&world.path("client.sock"), name));
    world.ok("export remove client.sock -y");
    done
}

fn content(world: &World, name: &str) -> Vec<u8> {
    with_client(world, name, Client::read_all)
}

fn names(world: &World, list: &str) -> Vec<String> {
    let items = world.data(list);
    let name = |item: &Value| item["name"].as_str().expect("a text").to_owned();
    items.as_array().expect("a list").iter().map(name).collect()
}

fn group(world: &World, what: &str) -> u64 {
    let shown = world.data("vg show data");
    shown.pointer(what).and_then(Value::as_u64).unwrap_or_else(|| panic!("{what} of {shown}"))
}

#[test]
fn a_removed_volume_comes_back_with_its_data_and_its_snapshots_after_a_crash() {
    let mut world = World::with_group();
    for (name, options) in [("linear", ""), ("mirror", " --type mirror --copies 2")] {
        let volume = format!("data/{name}");
        world.ok(&format!("lv create {volume} --size 8M{options}"));
        with_client(&world, &volume, |client| {
            client.fill(0, 8 * MIB, 0x11).expect("it is served");
            client.flush();
        });
        world.ok(&format!("snap create {volume}@one"));
        with_client(&world, &volume, |client| {
            client.fill(MIB, 2 * MIB, 0x22).expect("it is served");
            client.flush();
        });
        let (data, snapshot) = (content(&world, &volume), content(&world, &format!("{volume}@one")));
        assert!(data != snapshot && snapshot == vec![0x11; 8 << 20], "{name}: there is something to lose");
        let free = group(&world, "/free");
        let said = world.ok(&format!("lv remove {volume} -y"));
        assert!(said.contains(&format!("varve trash restore {volume}")), "{said}");
        assert_eq!(names(&world, "lv list"), [""; 0], "{name}");
        assert_eq!(names(&world, "snap list"), [""; 0], "{name}");
        world.refused(&format!("export create {volume} --nbd unix:a.sock"), 3, "V0301");
        assert_eq!(world.data("status")["health"], "ok", "{name}");
        let list = world.data("trash list");
        assert_eq!((&list[0]["name"], &list[0]["size"]), (&json!(volume), &json!(8 * MIB)));
        assert_eq!(list[0]["has_snapshots"], true);
        assert!(list[0]["left"].as_u64().is_some_and(|left| (86_000..=86_400).contains(&left)), "{list}");
        assert_eq!(list[0]["gives_back"].as_u64(), Some(group(&world, "/trash/bytes")));
        assert_eq!(group(&world, "/free"), free, "{name}: its extents are kept");
        world.kill();
        world.start();
        assert_eq!(names(&world, "trash list data").join(" "), volume);
        world.ok(&format!("lv create {volume} --size 4M"));
        let taken = world.refused(&format!("trash restore {volume}"), 4, "V0302");
        assert!(taken.contains("--as NEW"), "{taken}");
        world.ok(&format!("trash restore {volume} --as {name}-old"));
        assert!(content(&world, &format!("{volume}-old")) == data, "{name}");
        assert!(content(&world, &format!("{volume}-old@one")) == snapshot, "{name}");
        with_client(&world, &format!("{volume}-old"), |client| {
            client.fill(0, MIB, 0x33).expect("it is written again");
        });
        assert!(
            content(&world, &format!("{volume}-old@one")) == snapshot,
            "{name}: its snapshot is one still"
        );
        world.ok(&format!("lv remove {volume} --now -y"));
        world.ok(&format!("snap remove {volume}-old@one -y --wait"));
        world.ok(&format!("lv remove {volume}-old --now -y"));
        assert_eq!(names(&world, "trash list"), [""; 0]);
    }
    assert_eq!(world.stop(), Some(0));
    assert_eq!(world.data("check d1 d2")["clean"], true);
}

#[test]
fn what_needs_space_gets_that_of_the_oldest_in_the_trash_and_shows_nothing_of_it() {
    let world = World::started();
    world.ok("pv create d1 --size 104M");
    world.ok("vg create data d1");
    for name in ["old", "new"] {
        world.ok(&format!("lv create data/{name} --size 40M"));
        with_client(&world, &format!("data/{name}"), |client| {
            client.fill(0, 40 * MIB, 0xa5).expect("it is served");
        });
        world.ok(&format!("lv remove data/{name} -y"));
    }
    let plan = world.ok("lv create data/x --size 48M -n");
    assert!(plan.contains("would empty the trash of data/old (40.0 MiB)"), "{plan}");
    assert_eq!(names(&world, "trash list"), ["data/old", "data/new"], "a plan empties nothing");
    world.refused("lv create data/x --size 48M --slow-after 5s", 2, "V0002");
    assert_eq!(names(&world, "trash list"), ["data/old", "data/new"], "what is refused empties nothing");
    world.ok("lv create data/x --size 48M");
    assert_eq!(names(&world, "trash list"), ["data/new"], "the oldest, and no more than is needed");
    assert_eq!(content(&world, "data/x").iter().filter(|byte| **byte != 0).count(), 0);
    let (free, trash) = (group(&world, "/free"), group(&world, "/trash/bytes"));
    assert!(free > 0 && trash == 40 * MIB, "{free} {trash}");
    world.ok("lv create data/y --size 100%FREE");
    assert_eq!(world.data("lv show data/y")["size"].as_u64(), Some(free + trash), "100%FREE counts it");
    assert_eq!((names(&world, "trash list"), group(&world, "/free")), (Vec::new(), 0));
    let refused = world.refused("lv create data/z --size 4M", 6, "V0601");
    assert!(refused.contains("varve vg extend"), "{refused}");
    assert_eq!(content(&world, "data/y").iter().filter(|byte| **byte != 0).count(), 0);
}

#[test]
fn a_snapshot_store_and_a_pool_grow_into_the_trash() {
    let world = World::started();
    world.ok("pv create d1 --size 130M");
    world.ok("vg create data d1");
    world.ok("pool create data/p --size 32M --auto-extend 50%:100%");
    world.ok("lv create data/t --pool p --size 1G");
    world.ok("lv create data/gone --size 88M");
    world.ok("lv remove data/gone -y");
    assert_eq!(group(&world, "/trash/count"), 1);
    with_client(&world, "data/t", |client| {
        client.fill(0, 60 * MIB, 0x5a).expect("the pool grows into what the trash has");
        assert_eq!(client.read(59 * MIB, 4096).expect("it is there"), vec![0x5a; 4096]);
    });
    assert_eq!(names(&world, "trash list"), [""; 0]);
    world.ok("lv remove data/t -y");
    world.ok("pool remove data/p --now -y");
    world.ok("lv create data/v --size 4M");
    world.ok("lv create data/fill --size 100%FREE");
    world.ok("lv remove data/fill -y");
    assert_eq!(group(&world, "/free"), 0);
    world.ok("snap create data/v@s");
    assert_eq!(names(&world, "snap list data/v"), ["data/v@s"]);
    assert_eq!(names(&world, "trash list"), [""; 0], "the store took its space");
}

#[test]
fn what_was_in_the_trash_for_its_time_goes_and_without_a_time_nothing_is_kept() {
    let mut world = World::with_group();
    let free = group(&world, "/free");
    world.ok("lv create data/a --size 8M");
    let changed = world.ok("vg change data --trash 1s");
    assert!(changed.contains("stays for 1s"), "{changed}");
    world.ok("lv remove data/a -y");
    eventually("its time is over", || group(&world, "/trash/count") == 0);
    assert_eq!(group(&world, "/free"), free, "and its space is back");
    world.refused("trash restore data/a", 3, "V0430");
    world.ok("vg change data --trash 0");
    world.ok("lv create data/a --size 8M");
    assert_eq!(world.data("lv remove data/a -y"), json!({}));
    assert_eq!((names(&world, "trash list"), group(&world, "/free")), (Vec::new(), free));
    world.ok("vg change data --trash 7d");
    world.kill();
    world.start();
    assert_eq!(group(&world, "/trash/keep"), 7 * 86_400);
    world.ok("lv create data/a --size 8M");
    world.ok("lv remove data/a --now -y");
    assert_eq!((names(&world, "trash list"), group(&world, "/free")), (Vec::new(), free));
}

#[test]
fn what_is_in_the_trash_keeps_no_disk_in_a_group_and_is_named_by_its_identity_if_need_be() {
    let world = World::with_group();
    for disk in ["d1", "d2"] {
        world.ok(&format!("lv create data/a --size 8M --on {disk}"));
        world.ok("lv remove data/a -y");
    }
    world.refused("trash restore data/a", 2, "V0431");
    let id = world.data("trash list")[0]["id"].as_str().expect("a text").to_owned();
    world.ok(&format!("trash restore data/{id} -n"));
    let plan = world.ok("vg reduce data d2 -n");
    assert!(plan.contains("would empty the trash of data/a"), "{plan}");
    world.ok("vg reduce data d2 -y");
    let list = world.data("trash list");
    assert_eq!((list.as_array().map(Vec::len), &list[0]["id"]), (Some(1), &json!(id)));
    world.ok("trash empty data -y");
    assert_eq!(names(&world, "trash list"), [""; 0]);
    assert_eq!(group(&world, "/free"), group(&world, "/size"));
}

#[test]
fn several_are_removed_by_one_command_or_none() {
    let world = World::with_group();
    world.ok("pool create data/p --size 32M");
    for words in ["a --size 8M", "b --size 8M", "t --pool p --size 8M"] {
        world.ok(&format!("lv create data/{words}"));
    }
    let plan = world.ok("lv remove data/a data/t -n");
    assert!(plan.contains("would move data/a") && plan.contains("would move data/t"), "{plan}");
    world.refused("lv remove data/a data/none -y", 3, "V0301");
    world.refused("lv remove data/a data/a -y", 2, "V0002");
    world.refused("lv remove data/a data/t", 8, "V0004");
    for name in ["a", "b"] {
        world.ok(&format!("export create data/{name} --nbd unix:{name}.sock"));
    }
    world.refused("lv remove data/t data/b -y", 5, "V0303");
    assert_eq!(names(&world, "lv list"), ["data/a", "data/b", "data/t"], "what is refused removes none");
    world.refused("export remove a.sock none -y", 3, "V0501");
    let closed = world.ok("export remove a.sock b.sock -y");
    assert!(closed.contains("of data/a\n") && closed.contains("of data/b"), "{closed}");
    let removed = world.data("lv remove data/a data/t data/b -y");
    let removed: Vec<&Value> =
        removed.as_array().expect("a list").iter().map(|one| &one["removed"]).collect();
    assert_eq!(removed, ["data/a", "data/t", "data/b"]);
    assert_eq!((names(&world, "lv list"), names(&world, "trash list").len()), (Vec::new(), 3));
    world.ok("pool create data/q --size 32M");
    world.ok("pool remove data/p data/q --now -y");
    assert_eq!(names(&world, "pool list"), [""; 0]);
}

#[test]
fn a_pool_comes_back_and_what_somebody_needs_is_not_removed() {
    let mut world = World::with_group();
    world.ok("pool create data/p --size 32M");
    world.ok("pool remove data/p -y");
    world.refused("lv create data/t --pool p --size 8M", 3, "V0310");
    world.kill();
    world.start();
    world.ok("trash restore data/p");
    world.ok("lv create data/t --pool p --size 8M");
    world.ok("lv create data/a --size 8M");
    world.ok("snap create data/a@one");
    world.ok("schedule create data/a --every 366d --keep 3");
    world.ok("snap hold data/a@one");
    world.refused("lv remove data/a -y", 5, "V0403");
    world.ok("snap release data/a@one");
    world.ok("export create data/a@one --nbd unix:a.sock");
    world.refused("lv remove data/a -y", 5, "V0303");
    world.ok("export remove a.sock -y");
    world.ok("lv remove data/a -y");
    assert_eq!(names(&world, "schedule list"), ["data/a"], "it runs again when its volume is back");
    world.ok("trash restore data/a --as b");
    assert_eq!(world.data("schedule show data/a")["volumes"], json!(["data/b"]));
    world.ok("lv remove data/b -y");
    world.ok("trash empty data/b -y");
    assert_eq!(names(&world, "schedule list"), [""; 0]);
}

#[test]
fn a_thin_volume_comes_back_with_its_data_and_its_snapshots_after_a_crash() {
    let mut world = World::with_group();
    world.ok("pool create data/p --size 40M --auto-extend off --over-commit forbid");
    world.ok("lv create data/t --pool p --size 8M");
    with_client(&world, "data/t", |client| {
        client.fill(0, 8 * MIB, 0x11).expect("it is served");
    });
    world.ok("snap create data/t@one");
    world.ok("schedule create data/t --every 366d --keep 3");
    with_client(&world, "data/t", |client| {
        client.fill(MIB, 2 * MIB, 0x22).expect("it is served");
    });
    let (data, snapshot) = (content(&world, "data/t"), content(&world, "data/t@one"));
    assert!(data != snapshot && snapshot == vec![0x11; 8 << 20], "there is something to lose");
    world.ok("snap hold data/t@one");
    world.refused("lv remove data/t -y", 5, "V0403");
    world.ok("snap release data/t@one");
    world.ok("lv create data/free --pool p --size 1M");
    world.refused("lv create data/more --pool p --size 24M", 6, "V0317");
    let plan = world.ok("lv remove data/t -n");
    assert!(plan.contains("would move data/t (8.0 MiB) to the trash, where it stays for 1d"), "{plan}");
    let said = world.ok("lv remove data/t -y");
    assert!(said.contains("varve trash restore data/t"), "{said}");
    assert_eq!(
        (names(&world, "lv list"), names(&world, "snap list")),
        (vec!["data/free".to_owned()], Vec::new())
    );
    world.refused("export create data/t --nbd unix:a.sock", 3, "V0301");
    assert_eq!(world.data("status")["health"], "ok");
    let shown = world.data("trash list");
    assert_eq!((&shown[0]["name"], &shown[0]["pool"]), (&json!("data/t"), &json!("data/p")));
    assert_eq!((&shown[0]["has_snapshots"], &shown[0]["gives_back"]), (&json!(true), &json!(8 * MIB)));
    world.kill();
    world.start();
    let pool = world.data("pool show data/p");
    assert_eq!((&pool["volumes"], &pool["trashed"], &pool["snapshots"]), (&json!(1), &json!(1), &json!(0)));
    assert_eq!(names(&world, "trash list"), ["data/t"], "TRASHTHIN1");
    assert_eq!(names(&world, "schedule list"), ["data/t"], "it runs again when its volume is back");
    world.ok("lv create data/t --pool p --size 24M");
    let promised = world.refused("trash restore data/t --as old", 6, "V0317");
    assert!(promised.contains("has made"), "what is in the trash is promised no space: {promised}");
    world.ok("pool change data/p --over-commit allow");
    world.refused("trash restore data/t", 4, "V0302");
    let plan = world.ok("trash restore data/t --as old -n");
    assert!(plan.contains("would bring data/t (8.0 MiB) back from the trash as data/old"), "{plan}");
    world.ok("trash restore data/t --as old");
    assert!(content(&world, "data/old") == data && content(&world, "data/old@one") == snapshot);
    with_client(&world, "data/old", |client| {
        client.fill(0, MIB, 0x33).expect("it is written again");
    });
    assert!(content(&world, "data/old@one") == snapshot, "its snapshot is one still");
    assert_eq!(world.data("schedule show data/t")["volumes"], json!(["data/old"]));
    world.ok("lv remove data/old -y");
    let plan = world.ok("trash empty data/old -n");
    assert!(plan.contains("would empty the trash of data/old (8.0 MiB of its pool)"), "{plan}");
    world.ok("trash empty data/old -y");
    assert_eq!((names(&world, "trash list"), names(&world, "schedule list")), (Vec::new(), Vec::new()));
    eventually("its space is back", || world.data("pool show data/p")["allocated"].as_u64() < Some(MIB));
    assert_eq!(world.stop(), Some(0));
    assert_eq!(world.data("check d1 d2")["clean"], true);
}

#[test]
fn a_pool_that_cannot_grow_gives_up_the_oldest_in_its_trash_and_no_write_fails() {
    let world = World::with_group();
    world.ok("pool create data/p --size 64M --auto-extend off --when-full error");
    for name in ["old", "new"] {
        world.ok(&format!("lv create data/{name} --pool p --size 20M"));
        with_client(&world, &format!("data/{name}"), |client| {
            client.fill(0, 20 * MIB, 0xa5).expect("it is served");
        });
    }
    for name in ["old", "new"] {
        world.ok(&format!("lv remove data/{name} -y"));
    }
    world.ok("lv create data/t --pool p --size 1G");
    let expected = vec![0x5a; 4096];
    with_client(&world, "data/t", |client| {
        client.fill(0, 30 * MIB, 0x5a).expect("it has the space of the oldest in the trash");
        assert_eq!(client.read(30 * MIB - 4096, 4096).expect("it is there"), expected);
    });
    assert_eq!(names(&world, "trash list"), ["data/new"], "GROWTH3: the oldest, and no more");
    let events = world.ok("events");
    assert!(events.contains("data/old") && events.contains("given up in the trash"), "{events}");
    world.ok("trash restore data/new");
    assert!(content(&world, "data/new") == vec![0xa5; 20 << 20]);
    world.ok("lv remove data/new -y");
    with_client(&world, "data/t", |client| {
        client.fill(30 * MIB, 15 * MIB, 0x5a).expect("it has the space of the other one");
        client.fill(45 * MIB, 40 * MIB, 0x5a).expect_err("there is nothing more to give up");
    });
    assert_eq!(names(&world, "trash list"), [""; 0]);
    world.ok("lv remove data/t --now -y");
    world.ok("vg change data --trash 1s");
    world.ok("lv create data/t --pool p --size 8M");
    world.ok("lv remove data/t -y");
    eventually("its time is over", || world.data("trash list") == json!([]));
    world.ok("vg change data --trash 0");
    world.ok("lv create data/t --pool p --size 8M");
    world.ok("lv remove data/t -y");
    assert_eq!(names(&world, "trash list"), [""; 0]);
    world.ok("vg change data --trash 1d");
    world.ok("lv create data/t --pool p --size 8M");
    world.ok("lv remove data/t -y");
    let plan = world.ok("pool remove data/p --now -n");
    assert!(plan.contains("would empty the trash of data/t"), "{plan}");
    world.ok("pool remove data/p -y");
    assert_eq!(names(&world, "trash list"), ["data/p"]);
    world.ok("trash restore data/p");
    world.ok("trash restore data/t");
}
