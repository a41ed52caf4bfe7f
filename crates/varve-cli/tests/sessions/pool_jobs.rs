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

/// A volume of 1s with a snapshot, then of 2s.
fn with_snapshot(make: &str) -> World {
    let world = with_pool();
    world.ok(make);
    fill(&world, "data/v", 1);
    world.ok("snap create data/v@one");
    fill(&world, "data/v", 2);
    world
}

/// The same, which the daemon was to roll back when it died at `place`.
fn dead_at(place: &str, make: &str) -> World {
    let mut world = with_snapshot(make);
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault(place);
    assert_ne!(world.run("snap rollback data/v@one -y").exit, 0);
    world.wait_for_death();
    world
}

/// The state directory is lost; the next daemon is shown its disks by a scan.
fn start_without_state(world: &mut World) {
    std::fs::remove_dir_all(world.path("state")).expect("there is one");
    world.start();
    world.ok("pv scan d1 d2");
}

const THIN: &str = "lv create data/v --pool p --size 8M";
const THICK: &str = "lv create data/v --size 8M";

#[test]
fn a_rollback_that_was_begun_or_was_to_begin_when_the_daemon_died_goes_on_under_its_number_without_a_state_directory()
 {
    for (make, place) in
        [(THIN, "job-recorded"), (THIN, "rollback-begun"), (THICK, "job-recorded"), (THICK, "rollback-begun")]
    {
        let mut world = dead_at(place, make);
        start_without_state(&mut world);
        let job = world.data("job show 1");
        assert_eq!((&job["kind"], &job["subject"]), (&json!("rollback"), &json!("data/v@one")), "{job}");
        world.ok("job wait 1");
        assert_eq!(
            content(&world, "data/v"),
            1,
            "ROLLJOB1, JOBRECORD1: {make}, {place}: what is done has happened"
        );
        let job = world.data("snap remove data/v@one -y --wait");
        assert_eq!(job["id"], "2", "no number is used again: {job}");
    }
}

#[test]
fn a_rollback_that_had_begun_goes_on_though_it_stands_in_no_text() {
    let mut world = with_snapshot(THICK);
    world.ok("vg backup data backup.toml");
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault("rollback-begun");
    assert_ne!(world.run("snap rollback data/v@one -y").exit, 0);
    world.wait_for_death();
    world.lose_descriptions(&["d1", "d2"]);
    world.ok("restore backup.toml d1 d2 --yes");
    world.start();
    let job = world.data("job list")[0].clone();
    assert_eq!(
        (&job["kind"], &job["subject"]),
        (&json!("rollback"), &json!("data/v@one")),
        "ROLLJOB2: {job}"
    );
    world.ok(&format!("job wait {}", job["id"].as_str().expect("a number")));
    assert_eq!(content(&world, "data/v"), 1, "ROLLJOB2");
}

#[test]
fn a_rollback_that_was_done_when_the_daemon_died_is_not_made_over_what_was_written_since() {
    for make in [THIN, THICK] {
        let mut world = with_snapshot(make);
        assert_eq!(world.stop(), Some(0));
        world.start_with_fault("job-erasure");
        world.ok("snap rollback data/v@one -y --wait");
        assert_eq!(content(&world, "data/v"), 1, "{make}");
        fill(&world, "data/v", 3);
        assert_eq!(world.stop(), Some(0));
        start_without_state(&mut world);
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
    world.ok("lv create data/c --size 8M");
    world.ok("snap create data/b@one");
    world.ok("snap create data/c@one");
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault("job-erasure"); // They go on with the next start.
    for volume in ["a", "b", "c"] {
        world.ok(&format!("snap remove data/{volume}@one -y --wait"));
    }
    world.ok("lv remove data/c -y");
    world.kill();
    let mut disk = std::fs::OpenOptions::new().write(true).open(world.path("d1")).expect("a disk");
    disk.seek(SeekFrom::Start(POOL_AT)).and_then(|_| disk.write_all(&[0; 8192])).expect("it is writable");
    drop(disk);
    world.start();
    let text = world.refused("job wait 1", 7, "V0307"); // REMOVAL3
    assert!(text.contains("cannot be removed") && text.contains("help: varve lv list"), "{text}");
    world.ok("job wait 2"); // The volume is there, and has no such snapshot any more.
    world.ok("job wait 3"); // It went with its volume.
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
