//! Schedules of snapshots: they run by the clock and by hand, remove what they made themselves alone, and say when they fail.

#![expect(clippy::disallowed_methods, reason = "real processes are waited for")]

use crate::harness::World;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Waits until `is_so`.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn names(world: &World, volume: &str) -> Vec<String> {
    let list = world.data(&format!("snap list {volume}"));
    let name = |snapshot: &Value| {
        let name = snapshot["name"].as_str().expect("a text");
        name.split_once('@').expect("a snapshot").1.to_owned()
    };
    list.as_array().expect("a list").iter().map(name).collect()
}

/// The snapshots that a schedule says are its own.
fn own(world: &World, schedule: &str) -> Vec<String> {
    let shown = world.data(&format!("schedule show {schedule}"));
    let texts = shown["snapshots"].as_array().cloned().unwrap_or_default();
    texts.iter().map(|name| name.as_str().expect("a text").to_owned()).collect()
}

#[test]
fn a_schedule_runs_by_the_clock_and_removes_only_what_it_made() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 16M");
    world.ok("pool create data/p --size 64M");
    world.ok("lv create data/t --pool p --size 1G");
    for volume in ["a", "t"] {
        world.ok(&format!("snap create data/{volume}@{volume}-20200101-000000"));
        world.ok(&format!("schedule create data/{volume} --every 1s --keep 2"));
    }
    for volume in ["a", "t"] {
        let schedule = format!("data/{volume}");
        eventually("it runs", || own(&world, &schedule).len() >= 2);
        let held = own(&world, &schedule)[0].clone();
        world.ok(&format!("snap hold {held}"));
        let first = own(&world, &schedule);
        eventually("it goes on", || {
            let now = own(&world, &schedule);
            now.iter().filter(|name| !first.contains(name)).count() >= 2
        });
        let there = names(&world, &schedule);
        assert!(
            there.contains(&format!("{volume}-20200101-000000")),
            "SCHEDULERUN2: it is not its own: {there:?}"
        );
        assert!(
            there.iter().any(|name| held.ends_with(name.as_str())),
            "SCHEDULERUN3: it is held: {there:?}"
        );
        let kept = own(&world, &schedule).len();
        assert!((3..=5).contains(&kept), "two, one that is held, and what runs meanwhile: {kept}");
        assert_eq!(world.data(&format!("schedule show {schedule}"))["state"], "active");
    }
    world.ok("lv rename data/a b");
    world.ok("schedule change data/a --name hourly --every 1h");
    world.ok("schedule remove data/t");
    let (left, of_t) = (own(&world, "data/hourly"), names(&world, "data/t"));
    assert!(left.iter().all(|name| name.starts_with("data/b@a-")), "{left:?}");
    world.kill();
    world.start();
    assert_eq!(world.data("schedule list").as_array().map(Vec::len), Some(1));
    assert_eq!(own(&world, "data/hourly").last(), left.last(), "it knows its own after a restart");
    let ran = world.data("schedule run data/hourly");
    assert_eq!(ran["made"].as_array().map(Vec::len), Some(1), "{ran}");
    assert!(ran["removed"].as_array().is_some_and(|removed| !removed.is_empty()), "{ran}");
    assert_eq!(names(&world, "data/t"), of_t, "what a schedule made stays without it");
    assert_eq!(world.stop(), Some(0));
    assert_eq!(world.data("check d1 d2")["clean"], true);
}

#[test]
fn a_run_that_is_interrupted_has_made_all_of_its_snapshots_or_none() {
    let mut world = World::with_group();
    world.ok("lv create data/a --size 16M");
    world.ok("lv create data/b --size 16M");
    world.ok("schedule create data/a --set b --name both --every 366d --keep 1");
    world.ok("schedule run data/both");
    eventually("what is not to stay goes", || names(&world, "data/a").len() == 1);
    let before = names(&world, "data/a");
    for place in ["snapshot-set-begun", "snapshot-set-made"] {
        assert_eq!(world.stop(), Some(0));
        world.start_with_fault(place);
        assert_ne!(world.run("schedule run data/both").exit, 0, "nobody says that it was done");
        world.wait_for_death();
        world.start();
        assert_eq!(
            (names(&world, "data/a"), names(&world, "data/b")),
            (before.clone(), before.clone()),
            "{place}"
        );
        assert_eq!(own(&world, "data/both").len(), 2, "SCHEDULERUN1, {place}");
    }
    let planned = world.ok("schedule run data/both -n");
    let removed: Vec<&str> = planned.lines().filter(|line| line.starts_with("would remove ")).collect();
    let expected: Vec<String> =
        ["a", "b"].iter().map(|volume| format!("would remove data/{volume}@{}", before[0])).collect();
    assert_eq!(removed, expected, "{planned}");
    let ran = world.data("schedule run data/both");
    let of = |field: &str| ran[field].as_array().map(Vec::len);
    assert_eq!((of("made"), of("removed")), (Some(2), Some(2)), "{ran}");
    let (a, b) = (names(&world, "data/a"), names(&world, "data/b"));
    assert!(a == b && a.len() == 1 && a != before, "they are of one instant: {a:?}, {b:?}");
}

#[test]
fn a_schedule_that_fails_needs_a_person_until_it_has_run() {
    let world = World::with_group();
    let rows = || {
        let status = world.data("status");
        let rows = status["attention"].as_array().cloned().unwrap_or_default();
        rows.into_iter().filter(|row| row["kind"] == "schedule-failed").collect::<Vec<Value>>()
    };
    world.ok("lv create data/a --size 16M");
    world.ok("lv create data/rest --size 100%FREE");
    world.ok("schedule create data/a --every 1d --keep 0d,3");
    eventually("it has no room", || !rows().is_empty());
    let row = rows()[0].clone();
    assert_eq!(
        (&row["noun"], &row["name"], &row["severity"]),
        (&"schedule".into(), &"data/a".into(), &"warning".into())
    );
    let help = row["help"].as_str().expect("a text");
    assert!(help.contains("varve vg extend data") && help.contains("varve schedule run data/a"), "{help}");
    let shown = world.data("schedule show data/a");
    assert_eq!(shown["state"], "failing", "{shown}");
    assert_eq!(world.run("status --check").exit, 7);
    world.ok("pv create d3 --size 300M");
    world.ok("vg extend data d3");
    world.ok("schedule run data/a");
    assert_eq!(rows(), Vec::<Value>::new());
    assert_eq!(world.data("schedule show data/a")["state"], "active");
    world.ok("lv deactivate data/a");
    assert_eq!(world.data("schedule show data/a")["state"], "paused", "TIMER1");
}

#[test]
fn a_volume_takes_its_schedules_with_it() {
    let world = World::with_group();
    world.ok("pool create data/p --size 64M");
    world.ok("lv create data/t --pool p --size 1G");
    world.ok("lv create data/a --size 16M");
    let list = || world.data("schedule list").as_array().map(Vec::len);
    for volume in ["data/t", "data/a"] {
        world.ok(&format!("schedule create {volume} --every 366d --keep 3"));
        let said = world.ok(&format!("schedule show {volume}"));
        assert!(said.contains("keep") && said.contains("366d"), "{said}");
        eventually("it runs first", || !own(&world, volume).is_empty());
        for snapshot in own(&world, volume) {
            world.ok(&format!("snap remove {snapshot} -y --wait"));
        }
        assert_eq!(list(), Some(1));
        let planned = world.ok(&format!("lv remove {volume} --now -n"));
        assert!(
            planned.contains(&format!("would remove schedule {volume}, whose volumes are gone")),
            "{planned}"
        );
        world.ok(&format!("lv remove {volume} --now -y"));
        assert_eq!(list(), Some(0), "PLANSCHEDULE1, TIMER2: {volume}");
    }
}
