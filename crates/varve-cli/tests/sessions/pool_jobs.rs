//! Jobs that a crash or a lost pool interrupts: each ends as what has really happened to its snapshots.

use crate::client::Client;
use crate::harness::{World, http};
use serde_json::{Value, json};
use std::io::{Read, Seek, SeekFrom, Write};

/// The group's first extent, in which the pool begins.
const POOL_AT: u64 = 1 << 20;

fn with_pool() -> World {
    let world = World::with_group();
    world.ok("pool create data/p --size 100M --auto-extend off --when-full error");
    world
}

fn fill(world: &World, name: &str, value: u8) {
    world.ok(&format!("export create {name} --nbd unix:fill.sock"));
    let mut client = Client::new(&world.path("fill.sock"), name);
    let size = client.size;
    client.fill(0, size, value).expect("there is space");
    drop(client);
    world.ok("export remove fill.sock -y");
}

/// The byte that all of a volume is.
fn content(world: &World, name: &str) -> u8 {
    world.ok(&format!("export create {name} --nbd unix:read.sock --read-only"));
    let all = Client::new(&world.path("read.sock"), name).read_all();
    world.ok("export remove read.sock -y");
    assert!(all.iter().all(|byte| *byte == all[0]), "{name} is of one kind");
    all[0]
}

/// Changes what the daemon, which does not run, remembers of jobs; what it remembered.
fn remember_jobs(world: &World, jobs: &Value) -> Value {
    let path = world.path("state/state.json");
    let text = std::fs::read_to_string(&path).expect("it remembers");
    let mut state: Value = serde_json::from_str(&text).expect("JSON");
    let before = std::mem::replace(&mut state["jobs"], jobs.clone());
    std::fs::write(&path, state.to_string()).expect("a writable folder");
    before
}

/// A volume of 1s with a snapshot, then of 2s, which the daemon was to roll back when it died at `place`.
fn dead_at(place: &str, make: &str) -> World {
    let mut world = with_pool();
    world.ok(make);
    fill(&world, "data/v", 1);
    world.ok("snap create data/v@one");
    fill(&world, "data/v", 2);
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault(place);
    assert_ne!(world.run("snap rollback data/v@one -y").exit, 0);
    world.wait_for_death();
    world
}

const THIN: &str = "lv create data/v --pool p --size 8M";
const THICK: &str = "lv create data/v --size 8M";

#[test]
fn a_rollback_that_had_not_begun_when_the_daemon_died_is_made_and_not_only_called_done() {
    for make in [THIN, THICK] {
        let mut world = dead_at("rollback-remembered", make);
        let jobs = remember_jobs(&world, &json!([]));
        world.start();
        assert_eq!(content(&world, "data/v"), 2, "{make}: it had not begun");
        assert_eq!(world.stop(), Some(0));
        remember_jobs(&world, &jobs);
        world.start();
        world.ok("job wait 1");
        assert_eq!(content(&world, "data/v"), 1, "{make}: what is done has happened");
    }
}

#[test]
fn a_rollback_that_had_begun_when_the_daemon_died_is_not_made_over_what_was_written_since() {
    for make in [THIN, THICK] {
        let mut world = dead_at("rollback-begun", make);
        let jobs = remember_jobs(&world, &json!([]));
        world.start();
        assert_eq!(content(&world, "data/v"), 1, "{make}: it had begun");
        if make == THICK {
            continue; // Its store tells: it goes on, whatever is remembered.
        }
        fill(&world, "data/v", 3);
        assert_eq!(world.stop(), Some(0));
        remember_jobs(&world, &jobs);
        world.start();
        world.ok("job wait 1");
        assert_eq!(content(&world, "data/v"), 3, "{make}: it is made once");
    }
}

#[test]
fn a_removal_in_a_pool_that_cannot_be_used_is_not_called_done_and_other_pools_are_shown() {
    let mut world = with_pool();
    world.ok("pool create data/q --size 100M");
    world.ok("lv create data/a --pool p --size 8M");
    world.ok("lv create data/b --size 8M");
    world.ok("snap create data/a@one");
    let id = |words: &str| world.data(words)["id"].clone();
    let (volume, pool, thick) = (id("lv show data/a"), id("pool show data/p"), id("lv show data/b"));
    world.kill();
    let removal = |id: u64, volume: &Value, store: &Value| {
        let target = json!({"volume": volume, "store": store, "number": 2, "size": 8 << 20});
        json!({"id": id, "kind": "snapshot-remove", "subject": "data/a@one", "started": 1, "targets": [target]})
    };
    let nobody = json!("6f0e8a52-6d5c-4d0c-9e0f-0d0c7d0b9a11");
    let jobs = json!([removal(3, &volume, &pool), removal(4, &nobody, &nobody), removal(5, &thick, &nobody)]);
    remember_jobs(&world, &jobs);
    let mut disk = std::fs::OpenOptions::new().write(true).open(world.path("d1")).expect("a disk");
    disk.seek(SeekFrom::Start(POOL_AT)).and_then(|_| disk.write_all(&[0; 8192])).expect("it is writable");
    drop(disk);
    world.start();
    for lost in [3, 4] {
        let text = world.refused(&format!("job wait {lost}"), 7, "V0307");
        assert!(text.contains("cannot be removed") && text.contains("help: varve lv list"), "{text}");
    }
    world.ok("job wait 5"); // The volume is there, and has no such snapshot any more.
    let pools = world.data("pool list");
    let shown: Vec<_> =
        pools.as_array().expect("a list").iter().map(|pool| (&pool["name"], &pool["state"])).collect();
    let name = |text: &str| Value::from(text);
    let (p, q, active, unusable) = (name("data/p"), name("data/q"), name("active"), name("unusable"));
    assert_eq!(shown, [(&p, &unusable), (&q, &active)]);
    assert!(pools[0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{pools}");
    assert!(http(&world.path("varve.sock"), "/metrics").contains("varve_pool_bytes{pool=\"data/q\"}"));
}

#[test]
fn what_pools_and_thin_volumes_refuse_names_their_own_commands() {
    let world = with_pool();
    world.ok("lv create data/a --pool p --size 8M");
    world.ok("snap create data/a@one");
    for (words, exit, code, help) in [
        ("pool create data/p --size 100M", 4, "V0302", "varve pool remove data/p"),
        ("lv create data/p --size 100M", 4, "V0302", "varve pool remove data/p"),
        ("lv create data/p --pool p --size 16M", 4, "V0302", "varve pool show data/p"),
        ("lv rename data/a p", 4, "V0302", "varve pool show data/p"),
        ("pool extend data/p --size 50M", 2, "V0306", "varve pool extend data/p"),
        ("vg reduce data d1", 5, "V0210", "varve pv move"),
        ("lv extend data/a@one --size +1G", 2, "V0002", "varve pool extend data/p"),
        ("snap create data/a@two --mode independent", 2, "V0002", "leave --mode out"),
        ("snap create data/a@two --mode dependent", 2, "V0002", "leave --mode out"),
    ] {
        let text = world.refused(words, exit, code);
        assert!(text.contains(help), "varve {words}: {text}");
    }
    world.ok("snap create data/a@two --mode thin");
}

#[test]
fn a_damaged_record_in_the_midst_of_a_pools_log_is_told_with_its_remedy_and_nothing_is_lost_in_silence() {
    let mut world = with_pool();
    world.ok("lv create data/a --pool p --size 8M");
    world.ok("snap create data/a@one");
    world.ok("snap create data/a@two");
    world.kill();
    // Behind the two superblocks lies the log: its first record says that the volume was made.
    let path = world.path("d1");
    let flip = || {
        let mut disk = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("a disk");
        let mut byte = [0];
        disk.seek(SeekFrom::Start(POOL_AT + 8192 + 70))
            .and_then(|_| disk.read_exact(&mut byte))
            .expect("a byte");
        disk.seek_relative(-1).and_then(|()| disk.write_all(&[byte[0] ^ 1])).expect("it is writable");
    };
    flip();
    let checked = world.run("check d1 d2");
    assert!(checked.exit == 7 && checked.stdout.contains("DAMAGED: pool: data/p"), "{}", checked.stdout);
    world.start();
    let pools = world.data("pool list");
    assert_eq!(pools[0]["state"], "unusable");
    let reason = pools[0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("in the midst of the pool's log"), "{reason}");
    let text = world.refused("lv create data/b --pool p --size 8M", 7, "V0307");
    assert!(text.contains("help: varve check PATH… of the group's disks"), "{text}");
    assert_eq!(world.stop(), Some(0));
    flip();
    world.start();
    assert_eq!(world.data("snap list").as_array().map(Vec::len), Some(2), "all of it is there");
}
