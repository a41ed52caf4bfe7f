//! Arrays whose log lies on a disk of its own: it is lost, comes back, is replaced and removed, under clients.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use serde_json::Value;
use std::time::{Duration, Instant};

/// So long something may take on a machine that is busy with other work.
const SOON: Duration = Duration::from_secs(120);

fn client(world: &World, volume: &str) -> Client {
    Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"))
}

fn content(round: u8) -> Vec<u8> {
    (0..2 << 20).map(|at: u32| at.to_le_bytes()[1] ^ round).collect()
}

/// The array of a volume or pool itself.
fn array(world: &World, volume: &str) -> Value {
    world.data(&format!("array show data/{volume}"))[0]["array"].clone()
}

/// Whether the log of a volume or pool lies on `disk` now.
fn has_log(world: &World, volume: &str, disk: &str) -> bool {
    let log = array(world, volume)["log"].clone();
    log["in_use"] == true && log["disk"].as_str().is_some_and(|path| path.ends_with(disk))
}

fn wait_until(world: &World, volume: &str, is_so: impl Fn(&Value) -> bool) {
    let begun = Instant::now();
    while !is_so(&array(world, volume)) {
        assert!(begun.elapsed() < SOON, "{}", world.ok(&format!("array show data/{volume}")));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Disks d1 to d5; a mirror, ddraid and a pool with their logs on d5, where no member lies.
fn world() -> World {
    let world = World::with_group();
    world.ok("pv create d3 d4 d5 --size 600M");
    world.ok("vg extend data d3 d4 d5");
    let mirror = "lv create data/m --size 24M --type mirror --copies 2 --on d1,d2";
    let plan = world.ok(&format!("{mirror} --log d5 -n"));
    assert!(plan.contains("; log: pv4:0+1"), "{plan}");
    let message = world.refused(&format!("{mirror} --log d2"), 2, "V0305");
    assert!(message.contains("holds no member of it"), "{message}");
    world.refused("lv create data/l --size 24M --log d5", 2, "V0002");
    world.ok(&format!("{mirror} --log d5"));
    world.ok("lv create data/r --size 24M --type ddraid --order 1 --on d1,d2,d3 --log d5");
    world.ok("pool create data/p --size 24M --type mirror --copies 2 --on d1,d2 --log d5");
    for volume in ["m", "r"] {
        world.ok(&format!("export create data/{volume} --nbd unix:{volume}.sock"));
    }
    assert!(["m", "r", "p"].iter().all(|volume| has_log(&world, volume, "d5")));
    world
}

fn write(world: &World, round: u8) {
    for volume in ["m", "r"] {
        let mut client = client(world, volume);
        client.write(u64::from(round) << 20, &content(round)).expect("it serves");
        client.flush();
    }
}

fn check(world: &World, round: u8) {
    for volume in ["m", "r"] {
        let read = client(world, volume).read(u64::from(round) << 20, 2 << 20);
        assert!(read.is_ok_and(|read| read == content(round)), "{volume}, {round}");
    }
}

#[test]
fn a_log_disk_may_be_lost_with_the_power_and_return() {
    let mut world = world();
    write(&world, 1);
    world.kill();
    world.start();
    check(&world, 1);
    for volume in ["m", "r"] {
        wait_until(&world, volume, |array| array["unsynced"] == 0);
    }
    write(&world, 3);
    world.kill();
    std::fs::rename(world.path("d5"), world.path("gone")).expect("moved away");
    world.start();
    check(&world, 3);
    assert!(world.ok("lv list").contains("degraded"));
    let shown = world.ok("array show data/r");
    assert!(shown.contains("d5 (missing) is away, its members have it"), "{shown}");
    let problems = world.data("status")["problems"].to_string();
    assert!(problems.contains("data/m") && problems.contains("data/r"), "{problems}");
    write(&world, 5);
    for volume in ["m", "r"] {
        wait_until(&world, volume, |array| array["unsynced"] == 0);
    }
    std::fs::rename(world.path("gone"), world.path("d5")).expect("moved back");
    world.ok("pv scan d5");
    for volume in ["m", "r", "p"] {
        wait_until(&world, volume, |array| array["log"]["in_use"] == true);
    }
    assert!(!world.ok("lv list").contains("degraded"));
    [1, 3, 5].into_iter().for_each(|round| check(&world, round));

    // Without a data member the array cannot do without its log.
    world.kill();
    for disk in ["d1", "d5"] {
        std::fs::rename(world.path(disk), world.path(&format!("{disk}.gone"))).expect("moved away");
    }
    world.start();
    let message = world.refused("lv activate data/r", 7, "V0307");
    assert!(message.contains("the log is missing") && message.contains("--accept-missing"), "{message}");
    std::fs::rename(world.path("d5.gone"), world.path("d5")).expect("moved back");
    world.ok("pv scan d5");
    assert!(has_log(&world, "r", "d5"));
    let read = client(&world, "r").read(5 << 20, 2 << 20);
    assert!(read.is_ok_and(|read| read == content(5)), "computed from the others");
}

#[test]
fn a_log_goes_where_it_is_told_to_and_nothing_is_lost_on_the_way() {
    let mut world = world();
    write(&world, 1);
    world.refused("array change data/m", 2, "V0002");
    world.refused("array change data/m --log d5 --slow-after 10s", 2, "V0002");
    world.refused("array change data/m --log d5", 2, "V0305");
    world.refused("array change data/m --log d2", 2, "V0305");
    let plan = world.ok("array change data/m --log d4 -n");
    assert!(plan.contains("would put the log of data/m on") && has_log(&world, "m", "d5"), "{plan}");
    world.ok("array change data/m --log d4");
    assert!(has_log(&world, "m", "d4"));
    write(&world, 3);
    let shown = world.ok("array fail data/m d4");
    assert!(shown.contains("d4 is away, its members have it"), "{shown}");
    write(&world, 5);
    world.ok("pv scan d4");
    assert!(has_log(&world, "m", "d4"));
    world.ok("array change data/m --log members");
    assert!(array(&world, "m")["log"].is_null());
    world.ok("array change data/m --log d5");

    let message = world.refused("vg reduce data d5", 5, "V0210");
    assert!(message.contains("varve pv move"), "{message}");
    world.ok("pv move d5 d4 --wait");
    let logs = ["m", "r"].map(|volume| has_log(&world, volume, "d4"));
    assert_eq!(logs, [true, true]);
    write(&world, 7);
    world.kill();
    world.start();
    [1, 3, 5, 7].into_iter().for_each(|round| check(&world, round));
    world.ok("array replace data/m d4 d5");
    assert!(has_log(&world, "m", "d5"));
    world.ok("pv replace d4 d5");
    assert!(has_log(&world, "r", "d5"));
    world.ok("lv convert data/m --type mirror --copies 2 --on d1,d2 --wait");
    assert!(array(&world, "m")["log"].is_null(), "{}", world.ok("array show data/m"));
    world.ok("lv convert data/m --type mirror --copies 2 --on d3,d4 --log d5 --wait");
    assert!(has_log(&world, "m", "d5"));
    world.ok("lv split data/m half");
    assert!(world.data("lv show data/m")["array"].is_null());
    [1, 3, 5, 7].into_iter().for_each(|round| check(&world, round));
    world.ok("export remove data/r -y");
    world.ok("lv remove data/r -y");
    world.ok("pool remove data/p -y");
    world.ok("vg reduce data d5");
    assert_eq!(world.stop(), Some(0));
    world.ok("check d1 d2 d3 d4");
}
