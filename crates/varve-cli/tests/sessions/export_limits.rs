//! How fast the clients of an export may be: given, changed while they wait, kept over a restart, and in no way at its end.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use serde_json::json;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// The daemon with an export `e1` of a volume, with these limits.
fn world(limits: &str) -> World {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok(&format!("export create data/a --nbd unix:a.sock {limits}"));
    world
}

fn client(world: &World) -> Client {
    Client::new(&world.path("a.sock"), "data/a")
}

/// How long it takes.
fn time(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// Writes three times a MiB, each when the one before is done.
fn writer(world: &World) -> JoinHandle<Vec<Result<(), u32>>> {
    let mut client = client(world);
    std::thread::spawn(move || (0..3).map(|number| client.write(number << 20, &vec![7; MIB])).collect())
}

/// Waits until so many writes have been done.
fn await_requests(world: &World, count: u64) {
    let begun = Instant::now();
    while world.data("export list")[0]["traffic"]["writes"].as_u64() < Some(count) {
        assert!(begun.elapsed() < Duration::from_secs(120), "{}", world.ok("export list --json"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn clients_of_an_export_share_its_limits_which_are_changed_in_use_and_kept() {
    let mut world = world("--iops 20");
    let (mut one, mut other) = (client(&world), client(&world));
    let took = time(|| {
        for number in 0..21 {
            one.read(number * 4096, 4096).expect("it serves");
            other.read(number * 4096, 4096).expect("it serves");
        }
    });
    assert!(took > Duration::from_millis(1_800), "42 requests at 20 a second: {took:?}");
    let planned = world.ok("export change e1 --bandwidth 1M -n");
    assert!(
        planned.contains("would give export e1 of data/a limits of 20 requests a second and 1.0 MiB"),
        "{planned}"
    );
    assert_eq!(world.data("export list")[0]["limits"], json!({ "iops": 20 }));
    let changed = world.ok("export change e1 --iops none --bandwidth 1M");
    assert_eq!(changed, "e1 of data/a: read-write, 1.0 MiB/s\n");
    let took = time(|| (0..4).for_each(|number| one.write(number << 20, &vec![1; MIB]).expect("it serves")));
    assert!(took > Duration::from_millis(2_800), "4 MiB at 1 MiB a second, the last on credit: {took:?}");
    assert_eq!(world.stop(), Some(0));
    world.start();
    assert_eq!(world.data("export list")[0]["limits"], json!({ "bandwidth": MIB }));
    assert!(world.ok("export list").contains("read-write, 1.0 MiB/s"));
    let mut one = client(&world);
    let took = time(|| (0..4).for_each(|number| drop(one.read(number << 20, MIB).expect("it serves"))));
    assert!(took > Duration::from_millis(2_800), "after a restart: {took:?}");
}

#[test]
fn requests_that_wait_go_on_when_the_limits_or_the_export_end() {
    let mut world = world("--bandwidth 4K");
    // Four minutes for each.
    let waiting = writer(&world);
    await_requests(&world, 1);
    assert!(!waiting.is_finished(), "the second one waits");
    world.ok("export change a.sock --bandwidth none");
    assert_eq!(waiting.join().expect("no check failed"), [Ok(()); 3]);
    world.ok("export change data/a --bandwidth 4K");
    let mut before = client(&world);
    before.write(0, &vec![8; MIB]).expect("on credit");
    world.refused("export remove e1", 5, "V0507");
    let waiting = std::thread::spawn(move || before.write(0, &vec![9; MIB]));
    // It has been sent by then, and waits for four minutes.
    std::thread::sleep(Duration::from_secs(1));
    assert!(!waiting.is_finished());
    let begun = Instant::now();
    assert_eq!(world.stop(), Some(0), "{}", world.log());
    assert!(begun.elapsed() < Duration::from_secs(60), "a stop waits for no limit");
    assert_eq!(waiting.join().expect("no check failed"), Ok(()), "what waited is done");
    world.start();
    world.ok("export change data/a --bandwidth none");
    assert_eq!(client(&world).read(0, MIB), Ok(vec![9; MIB]));
}

#[test]
fn what_is_no_limit_is_refused_and_nothing_changes() {
    let world = world("--iops 20");
    world.refused("export change e1", 2, "V0002");
    world.refused("export change e1 --iops 0", 2, "V0002");
    world.refused("export change e1 --iops lots", 2, "V0002");
    world.refused("export change e1 --bandwidth 0", 2, "V0002");
    world.refused("export change e1 --bandwidth fast", 2, "V0009");
    world.refused("export change e9 --iops 1", 3, "V0501");
    world.refused("export create data/a --nbd unix:b.sock --iops 0", 2, "V0002");
    assert_eq!(world.data("export list")[0]["limits"], json!({ "iops": 20 }));
    assert_eq!(world.data("export list").as_array().map(Vec::len), Some(1));
}

#[test]
fn a_file_has_the_same_limits() {
    if !std::path::Path::new("/dev/fuse").exists() {
        println!("SKIPPED: no /dev/fuse here");
        return;
    }
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    world.ok("export create data/a --fuse file --iops 20");
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("a flag of open");
    let open = std::fs::File::options().read(true).custom_flags(direct).open(world.path("file"));
    let file = open.expect("it is mounted");
    let mut memory = vec![0; 2 * 4096];
    let aligned = memory.as_ptr().align_offset(4096);
    let took = time(|| {
        for number in 0..42 {
            file.read_exact_at(&mut memory[aligned..aligned + 4096], number * 4096).expect("it serves");
        }
    });
    assert!(took > Duration::from_millis(1_800), "42 requests at 20 a second: {took:?}");
}
