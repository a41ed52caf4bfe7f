//! Volumes on disks that cannot be cleared cheaply: none shows what another one wrote.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// What is taken from the daemon.
const FAST_ZERO: &str = "fast-zero";

fn with_slow_disks() -> World {
    let mut world = World::new();
    world.start_with_fault(FAST_ZERO);
    world.ok("pv create d1 d2 --size 300M");
    world.ok("vg create data d1 d2");
    world
}

/// Waits until a volume is served, and all of it is.
fn wait_until_clear(world: &World, name: &str) {
    let end = Instant::now() + Duration::from_secs(300);
    loop {
        let jobs = world.data("job list");
        let mut jobs = jobs.as_array().expect("a list").iter();
        let runs = jobs.any(|job| job["kind"] == "clear" && job["state"] == "running");
        if !runs && world.data(&format!("lv show {name}"))["state"] == "active" {
            return;
        }
        assert!(Instant::now() < end, "{}", world.data("job list"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn with_client<T>(world: &World, name: &str, work: impl FnOnce(&mut Client) -> T) -> T {
    world.ok(&format!("export create {name} --nbd unix:client.sock"));
    let done = work(&mut Client::new(&world.path("client.sock"), name));
    world.ok("export remove client.sock -y");
    done
}

/// All extents of the group hold something, and are free.
fn soil(world: &World) {
    world.ok("lv create data/soil --size 100%FREE --no-zero");
    assert_eq!(world.data("lv show data/soil")["state"], "active", "nobody waits who does not want to");
    let size = world.data("lv show data/soil")["size"].as_u64().expect("a size");
    with_client(world, "data/soil", |client| {
        for offset in (0..size).step_by(1 << 20) {
            client.fill(offset, MIB, 0xa5).expect("it is served");
        }
    });
    world.ok("lv remove data/soil --now -y");
}

/// Whether all of hundreds of MiB are `value`: compared by blocks, since the tests are not optimised.
fn are_all(bytes: &[u8], value: u8) -> bool {
    let block = [value; 4096];
    bytes.chunks(block.len()).all(|chunk| chunk == &block[..chunk.len()])
}

#[test]
fn a_new_volume_shows_nothing_that_another_one_wrote_there() {
    let mut world = with_slow_disks();
    soil(&world);
    world.ok("lv create data/a --size 256M");
    // The job is in the group's text, so a crash loses nothing of it.
    world.kill();
    world.start_with_fault(FAST_ZERO);
    wait_until_clear(&world, "data/a");
    let all = with_client(&world, "data/a", Client::read_all);
    assert_eq!((all.len() as u64, are_all(&all, 0)), (256 * MIB, true), "CLEARING1");
    world.ok("vg backup data text");
    let text = std::fs::read_to_string(world.path("text")).expect("a backup");
    assert!(!text.contains("[[job]]"), "{text}");
    // With `--no-zero` a volume shows what is there.
    world.ok("lv create data/raw --size 16M --no-zero");
    let raw = with_client(&world, "data/raw", Client::read_all);
    assert!(raw.contains(&0xa5) && are_all(&raw[..1 << 20], 0), "only its ends are cleared");
}

#[test]
fn while_new_extents_are_cleared_a_volume_is_served_as_before_and_then_with_them() {
    let world = with_slow_disks();
    soil(&world);
    world.ok("lv create data/a --size 16M");
    wait_until_clear(&world, "data/a");
    world.ok("export create data/a --nbd unix:a.sock");
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.fill(0, MIB, 7).expect("it is served");
    world.ok("lv extend data/a --size +256M");
    client.fill(15 * MIB, MIB, 8).expect("it is served all the time");
    world.ok("pv scan"); // What is served is compared with what the group says.
    let end = Instant::now() + Duration::from_secs(300);
    loop {
        // It is not seen before it is clear.
        let mut late = Client::new(&world.path("a.sock"), "data/a");
        let last = late.read(late.size - MIB, 1 << 20).expect("it is served");
        assert!(late.size == 16 * MIB || are_all(&last, 0), "CLEARING1");
        if late.size == 272 * MIB {
            break;
        }
        assert!(Instant::now() < end, "{}", world.data("job list"));
    }
    drop(client);
    wait_until_clear(&world, "data/a");
    assert_eq!(world.data("lv show data/a")["size"].as_u64(), Some(272 * MIB));
    let all = Client::new(&world.path("a.sock"), "data/a").read_all();
    assert_eq!(all.len() as u64, 272 * MIB);
    assert!(are_all(&all[..1 << 20], 7) && are_all(&all[15 << 20..16 << 20], 8));
    assert!(are_all(&all[16 << 20..], 0), "CLEARING1");
}

/// Waits until nothing is being cleared.
fn wait_for_jobs(world: &World) {
    let end = Instant::now() + Duration::from_secs(300);
    let runs = |jobs: &serde_json::Value| {
        jobs.as_array().expect("a list").iter().any(|job| job["kind"] == "clear" && job["state"] == "running")
    };
    while runs(&world.data("job list")) {
        assert!(Instant::now() < end, "{}", world.data("job list"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a pool has grown: it does after its job has ended.
fn wait_for_size(world: &World, pool: &str, size: u64) {
    let end = Instant::now() + Duration::from_secs(300);
    while world.data(&format!("pool show {pool}"))["size"].as_u64() != Some(size) {
        assert!(Instant::now() < end, "{}", world.data(&format!("pool show {pool}")));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn arrays_and_pools_on_them_read_as_zeros_wherever_others_wrote() {
    let mut world = World::new();
    world.start_with_fault(FAST_ZERO);
    world.ok("pv create d1 d2 d3 --size 400M");
    world.ok("vg create data d1 d2 d3");
    soil(&world);
    for layout in ["--type ddraid --order 1", "--type mirror --copies 2 --read-policy verify"] {
        world.ok(&format!("lv create data/a --size 16M --no-zero {layout}"));
        wait_until_clear(&world, "data/a");
        with_client(&world, "data/a", |client| check_pieces(client, 16 << 20));
        world.ok("lv remove data/a --now -y");
        // More than is cleared while a command waits.
        world.ok(&format!("pool create data/p --size 160M {layout}"));
        world.ok("lv create data/t --pool p --size 1G");
        with_client(&world, "data/t", |client| check_pieces(client, 16 << 20));
        wait_for_jobs(&world);
        world.ok("pool extend data/p --size +32M");
        wait_for_jobs(&world);
        wait_for_size(&world, "data/p", 192 * MIB);
        with_client(&world, "data/t", |client| {
            for block in (0..150).map(|index| (100 + index) * MIB) {
                client.write(block + 4096, &[7; 4096]).expect("it is served");
                let found = client.read(block, 65536).expect("no member differs from the others");
                assert_eq!(found.iter().filter(|byte| **byte == 0).count(), 65536 - 4096, "CLEARING1");
            }
            client.fill(300 * MIB, 150 * MIB, 8).expect("the pool has grown");
        });
        world.ok("lv remove data/t --now -y");
        world.ok("pool remove data/p --now -y");
    }
}

/// Writes the pieces, and reads all of the first `length` bytes.
fn check_pieces(client: &mut Client, length: usize) {
    let mut expected = vec![0; length];
    for (offset, length) in PIECES {
        client.write(offset, &vec![9; length]).expect("it is served");
        expected[usize::try_from(offset).expect("small")..][..length].fill(9);
    }
    client.flush();
    assert!(client.read(0, length).as_ref() == Ok(&expected), "CLEARING1");
}

/// Small pieces, at no block's edges.
const PIECES: [(u64, usize); 5] =
    [(512, 512), (4196, 1), ((1 << 20) + 12_287, 2), ((10 << 20) + 8192, 4096), ((13 << 20) - 513, 1025)];

/// Writes the pieces, and tells whether all else is zeros, also from another connection.
fn write_pieces(world: &World, name: &str) {
    let size = with_client(world, name, |client| {
        for (offset, length) in PIECES {
            client.write(offset, &vec![7; length]).expect("it is served");
        }
        client.flush();
        client.size
    });
    let mut wanted = vec![0; usize::try_from(size).expect("it is small")];
    for (offset, length) in PIECES {
        let offset = usize::try_from(offset).expect("it is small");
        wanted[offset..offset + length].fill(7);
    }
    let found = with_client(world, name, Client::read_all);
    let wrong = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
    assert_eq!((found.len(), wrong), (wanted.len(), None), "{name} (V1)");
}

#[test]
fn what_is_written_in_part_in_a_pool_or_a_store_shows_nothing_of_what_lay_there() {
    let world = with_slow_disks();
    soil(&world);
    world.ok("pool create data/p --size 100M --auto-extend off --when-full error");
    world.ok("lv create data/thin --pool p --size 64M");
    world.ok("lv create data/thick --size 16M");
    wait_until_clear(&world, "data/thick");
    world.ok("snap create data/thick@one data/thin@one");
    for name in ["data/thin", "data/thick"] {
        write_pieces(&world, name);
        let snapshot = with_client(&world, &format!("{name}@one"), Client::read_all);
        assert!(are_all(&snapshot, 0), "{name}@one (V1)");
    }
    // What was mapped once and then discarded is mapped anew over blocks that hold something.
    with_client(&world, "data/thin", |client| {
        client.fill(0, 32 * MIB, 0xa5).expect("it is served");
        client.discard(0, 32 << 20).expect("it is served");
        client.flush();
    });
    write_pieces(&world, "data/thin");
}

#[test]
fn a_volume_that_is_being_cleared_says_so_and_can_be_given_up() {
    let world = with_slow_disks();
    world.ok("lv create data/a --size 560M");
    let shown = world.data("lv show data/a");
    if shown["state"] == "clearing" {
        assert!(
            shown["reason"].as_str().is_some_and(|reason| reason.contains("is being cleared")),
            "{shown}"
        );
        let jobs = world.data("job list");
        let job =
            jobs.as_array().expect("a list").iter().find(|job| job["kind"] == "clear").expect("it runs");
        let id = job["id"].as_str().expect("an id");
        let _ = world.run(&format!("job cancel {id}")); // It may have ended meanwhile.
        let _ = world.run(&format!("job wait {id}"));
    }
    world.ok("lv remove data/a --now -y");
    assert_eq!(world.data("vg show data")["volumes"], serde_json::json!([]));
}
