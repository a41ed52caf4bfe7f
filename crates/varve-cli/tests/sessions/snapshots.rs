//! Snapshots through the real program: compared, removed, held, independent, and what happens when space runs out.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use serde_json::Value;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const NO_SPACE: u32 = 28;

/// The daemon with a volume `data/a` of `size` MiB on a disk of `disk` MiB in extents of 1 MiB, and a connection to it.
fn volume(disk: u64, size: u64, options: &str) -> (World, Client) {
    let world = World::started();
    world.ok(&format!("pv create d1 --size {disk}M"));
    world.ok("vg create data d1 --extent-size 1M");
    world.ok(&format!("lv create data/a --size {size}M {options}"));
    world.ok("export create data/a --nbd unix:a.sock");
    let client = Client::new(&world.path("a.sock"), "data/a");
    (world, client)
}

/// All bytes of a snapshot.
fn content(world: &World, name: &str) -> Vec<u8> {
    world.ok(&format!("export create {name} --nbd unix:s.sock --read-only"));
    let all = Client::new(&world.path("s.sock"), name).read_all();
    world.ok("export remove s.sock");
    all
}

fn names(world: &World) -> Vec<String> {
    let list = world.data("snap list data/a");
    let name = |snapshot: &Value| snapshot["name"].as_str().expect("a text").replace("data/a@", "");
    list.as_array().expect("a list").iter().map(name).collect()
}

/// The extents of a diff, in bytes.
fn extents(diff: &Value) -> Vec<(u64, u64)> {
    let extent = |extent: &Value| {
        (extent["offset"].as_u64().expect("a number"), extent["length"].as_u64().expect("a number"))
    };
    diff["extents"].as_array().expect("a list").iter().map(extent).collect()
}

/// Every byte that differs lies in an extent, and each 4 KiB of an extent differs: what was written was different.
fn is_exactly(one: &[u8], two: &[u8], extents: &[(u64, u64)]) -> bool {
    let mut listed = vec![false; one.len() / 4096];
    for (offset, length) in extents {
        assert_eq!((offset % 4096, length % 4096), (0, 0));
        let parts = usize::try_from(offset / 4096).expect("small")
            ..usize::try_from((offset + length) / 4096).expect("small");
        listed[parts].fill(true);
    }
    let differs = one.chunks(4096).zip(two.chunks(4096)).map(|(one, two)| one != two);
    differs.eq(listed)
}

/// Waits until `condition` holds.
fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(180), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn has_event(world: &World, subject: &str, message: &str) -> bool {
    let status = world.data("status");
    let events = status["events"].as_array().expect("a list");
    events.iter().any(|event| {
        event["subject"] == subject && event["message"].as_str().is_some_and(|text| text.contains(message))
    })
}

#[test]
fn a_diff_is_what_a_comparison_of_all_bytes_finds() {
    let (world, mut client) = volume(300, 32, "");
    client.fill(0, 32 * MIB, 1).expect("space");
    world.ok("snap create data/a@one");
    client.fill(3 * MIB, 4096, 2).expect("space");
    client.fill(5 * MIB + 8192, MIB, 3).expect("space");
    world.ok("snap create data/a@two");
    client.fill(3 * MIB, 8192, 4).expect("space");
    client.fill(31 * MIB, MIB, 5).expect("space");
    let (one, two, now) = (content(&world, "data/a@one"), content(&world, "data/a@two"), client.read_all());
    let diff = world.data("snap diff data/a@one data/a@two");
    assert_eq!(extents(&diff), [(3 * MIB, 4096), (5 * MIB + 8192, MIB)]);
    assert_eq!((diff["bytes"].as_u64(), &diff["exact"]), (Some(MIB + 4096), &Value::from(true)));
    assert!(is_exactly(&one, &two, &extents(&diff)));
    assert_eq!(
        extents(&world.data("snap diff data/a@two data/a@one")),
        extents(&diff),
        "it has no direction"
    );
    assert!(is_exactly(&two, &now, &extents(&world.data("snap diff data/a@two"))));
    assert!(is_exactly(&one, &now, &extents(&world.data("snap diff data/a@one data/a"))));
    let text = world.ok("snap diff data/a@one data/a@two");
    assert!(text.starts_with(" OFFSET   LENGTH\n3145728     4096\n"), "{text}");
    assert!(text.ends_with("2 extents, 1.0 MiB differ between data/a@one and data/a@two\n"), "{text}");
    assert!(world.ok("snap diff data/a@two data/a@two").starts_with("nothing differs"));
}

#[test]
fn a_removal_returns_at_once_and_says_before_what_it_frees() {
    let (mut world, mut client) = volume(600, 64, "");
    for name in ["one", "two", "three"] {
        world.ok(&format!("snap create data/a@{name}"));
        // Only every second part, so that the store has an entry for each.
        for at in (0..64 * MIB).step_by(16384) {
            client.write(at, &[7; 4096]).expect("space");
        }
    }
    let freed = 16 * MIB;
    let plan = world.data("snap remove data/a@three -n");
    assert_eq!(plan["bytes_freed"].as_u64(), Some(freed), "{plan}");
    let plan = world.data("snap remove data/a@one -n");
    assert_eq!(plan["bytes_freed"].as_u64(), Some(freed), "{plan}");
    let plan = world.data("snap remove data/a@one..@two -n");
    assert_eq!(plan["bytes_freed"].as_u64(), Some(2 * freed), "{plan}");
    let used =
        |world: &World| world.data("lv show data/a")["snapshot_store"]["used"].as_u64().expect("a number");
    let before = used(&world);
    world.ok("snap remove data/a@one..@two -y --no-wait");
    assert_eq!(names(&world), ["three"]);
    world.kill();
    world.start();
    assert_eq!(names(&world), ["three"], "REMOVAL1: what was removed stays removed");
    until("the removal", || {
        world.data("job list").as_array().is_some_and(|jobs| jobs.iter().all(|job| job["state"] == "done"))
    });
    assert!(used(&world) + freed < before + 2 * MIB, "{before} {}", used(&world));
    world.ok("snap hold data/a@three");
    let refusal = world.refused("snap remove data/a@three -y", 5, "V0403");
    assert!(refusal.contains("varve snap release data/a@three"), "{refusal}");
    world.ok("snap release data/a@three");
    world.ok("snap remove data/a@three -y --wait");
    assert!(world.data("lv show data/a")["snapshot_store"].is_null());
}

#[test]
fn a_name_is_free_again_while_its_old_bearer_is_still_being_removed() {
    let (mut world, mut client) = volume(600, 64, "");
    world.ok("snap create data/a@one data/a@old");
    for at in (0..64 * MIB).step_by(8192) {
        client.write(at, &[7; 4096]).expect("space");
    }
    world.ok("snap remove data/a@old -y --no-wait");
    world.ok("snap create data/a@old");
    world.kill();
    world.start();
    until("the removal", || {
        world.data("job list").as_array().is_some_and(|jobs| jobs.iter().all(|job| job["state"] == "done"))
    });
    assert_eq!(names(&world), ["one", "old"], "the new one is not taken for the old one");
}

/// Fills the volume anew after each of two snapshots; what the last writes end with.
fn overfill(world: &World, client: &mut Client) -> Result<(), u32> {
    for (name, value) in [("one", 1), ("two", 2)] {
        world.ok(&format!("snap create data/a@{name}"));
        client.fill(0, 16 * MIB, value)?;
    }
    Ok(())
}

#[test]
fn a_full_group_fails_writes_if_that_is_declared() {
    let (world, mut client) = volume(41, 16, "--when-full error");
    let history = world.data("vg history data");
    assert_eq!(
        history["entries"].as_array().map(Vec::len),
        Some(2),
        "the volume came with its policy: {history}"
    );
    assert_eq!(overfill(&world, &mut client), Err(NO_SPACE));
    assert_eq!(names(&world), ["one", "two"]);
    client.fill(0, MIB, 9).expect("a rewrite needs no copy");
    until("the warning", || has_event(&world, "data/a", "of its snapshot store"));
    until("the group's warning", || has_event(&world, "data", "of the group are taken"));
    world.ok("snap remove data/a@one -y --wait");
    client.fill(0, 16 * MIB, 3).expect("there is room again");
}

#[test]
fn a_full_group_drops_the_oldest_if_that_is_declared_and_says_so() {
    // Room for 35 MiB of old content: with three snapshots there would be 36, without the oldest unheld one 32.
    let (mut world, _) = volume(52, 16, "");
    let shown = world.data("lv change data/a --when-full drop-oldest --pause-timeout 5s");
    assert_eq!(shown["snapshot_policy"]["when_full"], "drop-oldest");
    world.ok("snap create data/a@kept");
    world.ok("snap hold data/a@kept");
    world.kill();
    world.start();
    assert_eq!(
        world.data("lv show data/a")["snapshot_policy"],
        serde_json::json!({
            "when_full": "drop-oldest", "pause_timeout_ms": 5000, "auto_extend": {"at_percent": 80, "by_percent": 20}
        })
    );
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.fill(0, 4 * MIB, 9).expect("there is room");
    assert_eq!(overfill(&world, &mut client), Ok(()));
    assert_eq!(names(&world), ["kept", "two"]);
    until("the event", || has_event(&world, "data/a@one", "dropped to make room"));
    let metrics = crate::harness::http(&world.path("varve.sock"), "/metrics");
    assert!(metrics.contains("varve_snapshots_dropped_total{volume=\"data/a\"} 1\n"), "{metrics}");
}

#[test]
fn a_full_group_pauses_writes_until_there_is_space_or_the_time_is_over() {
    let (world, mut client) = volume(41, 16, "--pause-timeout 1500ms");
    let begun = Instant::now();
    assert_eq!(overfill(&world, &mut client), Err(NO_SPACE));
    assert!(begun.elapsed() > Duration::from_millis(1400), "{:?}", begun.elapsed());
    // GROWTH2
    assert_eq!(names(&world), ["one", "two"]);
    world.ok("lv change data/a --pause-timeout 10m");
    let waiting = std::thread::spawn(move || client.fill(0, 16 * MIB, 3));
    until("the pause", || world.data("lv show data/a")["snapshot_store"]["paused"] == true);
    until("the event of the pause", || has_event(&world, "data/a", "wait for space"));
    until("the status of the pause", || world.run("status --check").exit == 7);
    let status = world.data("status");
    let rows: Vec<&Value> = status["attention"].as_array().expect("a list").iter().collect();
    assert_eq!(rows.len(), 1, "{status}");
    assert_eq!(
        (&rows[0]["kind"], &rows[0]["name"]),
        (&"space-waited-for".into(), &"data/a".into()),
        "{status}"
    );
    let message = rows[0]["message"].as_str().expect("a text");
    assert!(message.contains("writes that need a copy wait for space"), "{message}");
    world.ok("snap create data/a@three"); // nothing else is held up
    world.ok("pv create d2 --size 200M");
    world.ok("vg extend data d2");
    assert_eq!(waiting.join().expect("no panic"), Ok(()));
    until("the end of the pause", || has_event(&world, "data/a", "go on"));
    until("the status is ok", || world.run("status --check").exit == 0);
}

#[test]
fn extension_can_be_off_and_done_by_hand() {
    let (world, mut client) = volume(300, 96, "--auto-extend off --when-full error");
    world.ok("snap create data/a@one");
    assert_eq!(client.fill(0, 96 * MIB, 1), Err(NO_SPACE));
    let size = |world: &World| world.data("lv show data/a")["snapshot_store"]["size"].as_u64();
    assert_eq!(size(&world), Some(64 * MIB));
    world.ok("lv extend data/a@one --size +50M");
    assert_eq!(size(&world), Some(114 * MIB));
    client.fill(0, 96 * MIB, 2).expect("there is room now");
    world.refused("lv extend data/a@one --size 100M", 2, "V0306");
}

#[test]
fn independent_snapshots_have_stores_of_their_own() {
    let (mut world, mut client) = volume(600, 32, "");
    client.fill(0, 32 * MIB, 1).expect("space");
    world.ok("snap create data/a@shared");
    world.ok("snap create data/a@own --mode independent");
    world.ok("snap create data/a@other --mode independent --chunk-size 4K");
    client.fill(0, MIB, 2).expect("space");
    let modes = |world: &World| -> Vec<String> {
        let list = world.data("snap list data/a");
        let mut modes: Vec<String> = list
            .as_array()
            .expect("a list")
            .iter()
            .map(|snapshot| format!("{} {} {}", snapshot["name"], snapshot["mode"], snapshot["used"]))
            .collect();
        modes.sort();
        modes
    };
    let wanted = [
        r#""data/a@other" "independent" 1048576"#,
        r#""data/a@own" "independent" 1048576"#,
        r#""data/a@shared" "dependent" 1048576"#,
    ];
    assert_eq!(modes(&world), wanted);
    let shown = world.data("lv show data/a");
    assert_eq!(shown["independent_stores"].as_array().map(Vec::len), Some(2));
    let listed = world.data("snap list data/a");
    let own = listed.as_array().and_then(|all| all.iter().find(|one| one["name"] == "data/a@own"));
    assert_eq!(Some(&world.data("snap show data/a@own")), own);
    let shown = world.ok("snap show data/a@own");
    assert!(shown.contains("kept:     1.0 MiB\n") && shown.contains("flags:    independent\n"), "{shown}");
    world.kill();
    world.start();
    assert_eq!(modes(&world), wanted);
    client = Client::new(&world.path("a.sock"), "data/a");
    client.fill(4 * MIB, MIB, 3).expect("space");
    let old = vec![1; 32 << 20];
    for name in ["shared", "own", "other"] {
        assert!(content(&world, &format!("data/a@{name}")) == old, "{name}");
        assert_eq!(extents(&world.data(&format!("snap diff data/a@{name}"))), [(0, MIB), (4 * MIB, MIB)]);
    }
    assert_eq!(world.data("snap diff data/a@own data/a@shared")["exact"], false);
    world.refused("snap rollback data/a@shared -y", 5, "V0411");
    world.refused("snap create data/a@own", 4, "V0402");
    let free = world.data("vg show data")["free"].as_u64().expect("a number");
    world.ok("snap remove data/a@own data/a@shared -y --wait");
    assert_eq!(
        world.data("vg show data")["free"].as_u64(),
        Some(free + 128 * MIB),
        "both stores are given back"
    );
    assert!(content(&world, "data/a@other") == old);
    let refused = world.refused("snap rollback data/a@other -y --force", 5, "V0411");
    assert!(refused.contains("--no-snapshot"), "no second store can be beside it: {refused}");
    world.ok("snap rollback data/a@other -y --wait --force --no-snapshot");
    assert!(client.read_all() == old, "one that is alone can be rolled back to");
    world.ok("snap remove data/a@other -y --wait");
    assert_eq!(world.data("lv show data/a")["independent_stores"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_store_is_made_anew_offline_and_the_old_one_is_kept() {
    let (mut world, mut client) = volume(300, 32, "");
    client.fill(0, 32 * MIB, 1).expect("space");
    world.ok("snap create data/a@one");
    client.fill(MIB, MIB, 2).expect("space");
    world.ok("snap create data/a@two --mode independent");
    client.fill(2 * MIB, MIB, 3).expect("space");
    let (one, two) = (content(&world, "data/a@one"), content(&world, "data/a@two"));
    drop(client);
    assert_eq!(world.stop(), Some(0));
    let text = world.ok("dump d1 --store data/a");
    assert!(text.starts_with("varve-exception-store 1\n") && text.contains(" one created "), "{text}");
    assert!(world.ok("dump d1 --store data/a#1").contains(" two created "));
    world.refused("dump d1 --store data/b", 3, "V0301");
    let plan = world.data("repair d1 --store data/a -n");
    assert_eq!((plan["bytes_taken"].as_u64(), plan["bytes_freed"].as_u64()), (Some(64 * MIB), Some(0)));
    world.refused("repair d1 --store data/a", 8, "V0004");
    assert_eq!(world.data("repair d1 --store data/a -y")["kept_as"], "data/a.store-1");
    std::fs::write(world.path("text"), world.ok("dump d1 --store data/a#1")).expect("writable");
    assert_eq!(world.data("restore text d1 --store data/a#1 -y")["kept_as"], "data/a.store-2");
    world.refused("restore log d1 --store data/a -y", 2, "V0208");
    let check = world.data("check d1");
    assert_eq!(check["clean"], true, "{check}");
    world.start();
    assert!(content(&world, "data/a@one") == one && content(&world, "data/a@two") == two);
    world.ok("lv remove data/a.store-1 -y");
    world.ok("lv remove data/a.store-2 -y");
}

#[test]
fn a_snapshot_is_made_writable_changed_and_made_read_only_again() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 32M");
    world.ok("pool create data/p --size 64M");
    world.ok("lv create data/t --pool p --size 32M");
    for name in ["data/a@one", "data/t@one"] {
        world.ok(&format!("snap create {name} --read-only"));
        let export = || {
            world.ok(&format!("export create {name} --nbd unix:one.sock"));
            Client::new(&world.path("one.sock"), name)
        };
        let mut kept = export();
        assert!(kept.fill(4096, 4096, 7).is_err());
        let refusal = world.refused(&format!("snap change {name} --read-write"), 5, "V0404");
        assert!(refusal.contains("varve export remove"), "SNAPCHANGE1: {refusal}");
        drop(kept);
        world.ok("export remove one.sock");

        let changed = world.data(&format!("snap change {name} --read-write"));
        assert_eq!(changed[0]["read_only"], false, "{changed}");
        let mut written = export();
        written.fill(4096, 4096, 7).expect("it may be written");
        world.refused(&format!("snap change {name} --read-only"), 5, "V0404");
        drop(written);
        world.ok("export remove one.sock");

        let changed = world.data(&format!("snap change {name} --read-only"));
        assert_eq!(changed[0]["read_only"], true, "{changed}");
        let mut again = export();
        assert!(again.fill(4096, 4096, 8).is_err());
        drop(again);
        world.ok("export remove one.sock");

        world.ok(&format!("snap hold {name}"));
        let refusal = world.refused(&format!("snap change {name} --read-write"), 5, "V0403");
        assert!(refusal.contains(&format!("varve snap release {name}")), "SNAPCHANGE2: {refusal}");
        world.ok(&format!("snap release {name}"));
    }
    world.kill();
    world.start();
    for name in ["data/a@one", "data/t@one"] {
        assert_eq!(world.data(&format!("snap change {name} --read-only"))[0]["read_only"], true);
        let content = content(&world, name);
        assert!(content[4096..8192].iter().all(|byte| *byte == 7), "what was written before is durable");
    }
    world.ok("lv create data/over --pool p --origin data/a@one");
    let refusal = world.refused("snap change data/a@one --read-write", 5, "V0416");
    assert!(refusal.contains("varve lv flatten data/over"), "SNAPCHANGE2: {refusal}");
}

#[test]
fn a_snapshot_is_renamed_and_what_refers_to_it_stays() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 16M");
    world.ok("pool create data/p --size 64M");
    world.ok("lv create data/t --pool p --size 16M");
    for (byte, volume) in [(7, "data/a"), (8, "data/t")] {
        world.ok(&format!("export create {volume} --nbd unix:v.sock"));
        let mut client = Client::new(&world.path("v.sock"), volume);
        client.fill(0, MIB, byte).expect("it is served");
        world.ok(&format!("snap create {volume}@one --read-only"));
        client.fill(0, MIB, 9).expect("it is served");
        world.ok(&format!("snap create {volume}@two --read-only"));
        drop(client);
        world.ok("export remove v.sock");
        let one = format!("{volume}@one");
        world.refused(&format!("snap rename {one} two"), 4, "V0402");
        world.refused(&format!("snap rename {volume}@none three"), 3, "V0401");
        world.refused(&format!("snap rename {one} data/other@three"), 2, "V0002");
        world.ok(&format!("export create {one} --nbd unix:o.sock"));
        let refusal = world.refused(&format!("snap rename {one} three"), 5, "V0404");
        assert!(refusal.contains("varve export remove"), "SNAPCHANGE3: {refusal}");
        world.ok("export remove o.sock");
        world.ok(&format!("export create {volume}@two --nbd unix:o.sock --since one"));
        let refusal = world.refused(&format!("snap rename {one} three"), 5, "V0404");
        assert!(refusal.contains("compares"), "SNAPCHANGE3: {refusal}");
        world.ok("export remove o.sock");
        world.ok(&format!("snap hold {one}"));
        assert_eq!(world.data(&format!("snap rename {one} three"))["name"], format!("{volume}@three"));
        // Its old name is free.
        world.ok(&format!("snap create {volume}@one"));
    }
    world.ok("lv create data/over --pool p --origin data/a@three");
    world.ok("snap rename data/a@three data/a@four");
    world.kill();
    world.start();
    assert_eq!(names(&world), ["four", "two", "one"], "the oldest first, as they were made");
    for (byte, name) in [(7, "data/a@four"), (7, "data/over"), (8, "data/t@three")] {
        let content = content(&world, name);
        assert!(content[..1 << 20].iter().all(|found| *found == byte), "{name}");
    }
    world.refused("snap remove data/t@three -y", 5, "V0403");
}

/// A plan looks at what it is about once, not once for each of the others.
#[test]
fn a_plan_for_the_removal_of_thousands_takes_no_longer_than_making_them() {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    let begun = Instant::now();
    for first in (0..3_000).step_by(500) {
        let names: Vec<String> = (first..first + 500).map(|number| format!("data/a@s{number}")).collect();
        world.ok(&format!("snap create {}", names.join(" ")));
    }
    let made = begun.elapsed();
    let begun = Instant::now();
    let plan = world.ok("snap remove data/a@s0..@s2999 -n");
    let planned = begun.elapsed();
    assert_eq!(plan.lines().filter(|line| line.starts_with("would remove data/a@s")).count(), 3_000);
    assert!(planned < made, "{planned:?} for the plan, {made:?} for the snapshots");
}
