//! Layouts of volumes and pools: on no disk, striped, on disks that are named, and arrays.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use crate::replacing::wait_until_in_sync;
use std::time::{Duration, Instant};

/// So long something may take on a machine that is busy with other work.
const SOON: Duration = Duration::from_secs(120);

#[test]
fn volumes_of_zeros_and_errors_lie_on_no_disk_and_come_back_after_a_restart() {
    let mut world = World::with_group();
    let free = world.data("vg show data")["free"].clone();
    let plan = world.ok("lv create data/nothing --size 64M --type zero -n");
    assert!(plan.contains("of zeros data/nothing of 64.0 MiB (on no disk)"), "{plan}");
    world.ok("lv create data/nothing --size 64M --type zero");
    world.ok("lv create data/broken --size 4M --type error");
    world.ok("lv extend data/nothing --size +1T");
    world.ok("lv reduce data/nothing --size 128M -y");
    for round in 0..2 {
        assert_eq!(world.data("vg show data")["free"], free, "nothing is taken");
        let shown = world.data("lv show data/nothing");
        assert_eq!((&shown["layout"], &shown["size"]), (&"zero".into(), &(128 << 20).into()), "{shown}");
        assert_eq!(world.data("lv show data/broken")["layout"], "error");
        world.ok("export create data/nothing --nbd unix:zero.sock");
        world.ok("export create data/broken --nbd unix:error.sock");
        let mut zero = Client::new(&world.path("zero.sock"), "data/nothing");
        zero.write(4096, &[7; 4096]).expect("it is dropped");
        zero.flush();
        assert_eq!(zero.read(0, 16_384), Ok(vec![0; 16_384]));
        let mut broken = Client::new(&world.path("error.sock"), "data/broken");
        assert_eq!((broken.read(0, 512), broken.write(0, &[1; 512])), (Err(5), Err(5)), "EIO");
        world.ok("export remove zero.sock --force");
        world.ok("export remove error.sock --force");
        if round == 0 {
            assert_eq!(world.stop(), Some(0));
            world.start();
        }
    }
    world.ok("lv remove data/broken -y");
    world.refused("lv create data/thin --size 4M --type zero --pool p", 2, "V0002");
}

#[test]
fn a_pool_may_be_striped_and_grows_by_whole_rows() {
    let mut world = World::with_group();
    world.ok("pool create data/p --size 100M --type striped --stripes 2 --stripe-size 64K");
    world.ok("lv create data/a --pool p --size 200M");
    world.ok("export create data/a --nbd unix:a.sock");
    let content: Vec<u8> = (0..8 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    client.write(1 << 20, &content).expect("there is space");
    client.flush();
    world.ok("pool extend data/p --size +1M");
    let pool = world.data("pool show data/p");
    let segments = pool["segments"].as_array().expect("a list");
    let are_wide =
        segments.iter().all(|segment| segment["areas"].as_array().is_some_and(|all| all.len() == 2));
    assert!(are_wide, "{pool}");
    drop(client);
    assert_eq!(world.stop(), Some(0));
    world.ok("check d1 d2");
    world.start();
    let mut client = Client::new(&world.path("a.sock"), "data/a");
    assert_eq!(client.read(1 << 20, content.len()).as_ref(), Ok(&content));
    world.refused("pool create data/q --size 10M --type zero", 2, "V0305");
}

/// The disks on which a volume or pool lies.
fn disks_of(shown: &serde_json::Value) -> Vec<String> {
    let segments = shown["segments"].as_array().expect("a list").iter();
    let areas = segments.flat_map(|segment| segment["areas"].as_array().expect("a list"));
    let disk = |area: &serde_json::Value| {
        let path = area.as_str().and_then(|area| area.rsplit_once(':')).expect("PATH:OFFSET").0.to_owned();
        path.rsplit_once('/').expect("absolute").1.to_owned()
    };
    areas.map(disk).collect()
}

#[test]
fn volumes_and_pools_lie_on_the_disks_that_are_named() {
    let world = World::with_group();
    world.ok("lv create data/a --size 8M --on d2");
    assert_eq!(disks_of(&world.data("lv show data/a")), ["d2"]);
    world.ok("lv extend data/a --size +8M --on pv0");
    assert_eq!(disks_of(&world.data("lv show data/a")), ["d2", "d1"]);
    world.ok("pool create data/p --size 40M --on pv1");
    world.ok("pool extend data/p --size +40M --on d1");
    assert_eq!(disks_of(&world.data("pool show data/p")), ["d2", "d1"]);
    world.ok("lv create data/s --size 8M --type striped --stripes 2 --on d2,d1");
    world.refused("lv create data/b --size 700M --on d1", 6, "V0601");
    world.refused("lv create data/b --size 8M --on d3", 3, "V0211");
    world.refused("lv create data/b --size 8M --on pv7", 3, "V0211");
    world.refused("lv create data/b --size 8M --pool p --on d1", 2, "V0002");
}

#[test]
fn a_plan_says_where_an_array_would_lie() {
    let world = World::with_group();
    let plan = world.ok("lv create data/m --size 40M --type mirror --copies 2 -n");
    let line = "would create mirrored volume (2 copies) data/m of 40.0 MiB (10 extents: ";
    assert!(plan.contains(line) && plan.contains("; metadata: "), "{plan}");
    let plan = world.ok("pool create data/m --size 40M --type mirror --copies 2 --read-policy verify -n");
    assert!(plan.contains("would create mirrored pool (2 copies) data/m"), "{plan}");
    let message = world.refused("lv create data/m --size 40M --type mirror --copies 3 -n", 6, "V0601");
    assert!(message.contains("on each of 3 disks; 2 disks of data have as much"), "{message}");
    world.refused("lv create data/m --size 40M --type ddraid --order 1", 6, "V0601");
    world.refused("lv create data/m --size 40M --type mirror", 2, "V0002");
    world.refused("lv create data/m --size 40M --type ddraid", 2, "V0002");
    world.ok("pv create d3 --size 100M");
    world.ok("vg extend data d3");
    let plan = world.ok("lv create data/m --size 40M --type ddraid --order 1 --array-block-size 16K -n");
    assert!(
        plan.contains("ddraid volume (order 1, 3 members, blocks of 16.0 KiB) data/m of 40.0 MiB"),
        "{plan}"
    );
}

#[test]
fn an_array_serves_without_a_disk_and_catches_it_up_when_it_is_back() {
    let mut world = World::with_group();
    world.ok("pv create d3 --size 200M");
    world.ok("vg extend data d3");
    world.ok("lv create data/m --size 24M --type mirror --copies 2 --on d1,d2");
    world.ok("lv create data/r --size 24M --type ddraid --order 1");
    world.ok("pool create data/p --size 40M --type ddraid --order 1");
    world.ok("lv create data/t --pool p --size 100M");
    world.ok("snap create data/r@before data/t@before");
    let volumes = ["m", "r", "t"];
    let content =
        |round: u8| -> Vec<u8> { (0..3 << 20).map(|at: u32| at.to_le_bytes()[1] ^ round).collect() };
    for volume in volumes {
        world.ok(&format!("export create data/{volume} --nbd unix:{volume}.sock"));
        let mut client = Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"));
        client.write(1 << 20, &content(1)).expect("there is space");
        client.flush();
    }
    assert!(world.ok("lv list").contains("ddraid 2+1"));
    assert_eq!(world.stop(), Some(0));
    std::fs::rename(world.path("d1"), world.path("gone")).expect("moved away");
    world.start();
    // Which of two copies is the newer one is not known to one of them alone.
    let refused = world.ok("lv show data/m");
    assert!(refused.contains("the members that are missing may have newer data"), "{refused}");
    let plan = world.ok("lv activate data/m --accept-missing -n");
    assert!(plan.contains("what only its missing members have is lost"), "{plan}");
    assert!(!world.ok("lv activate data/m -n").contains("is lost"), "nothing is accepted");
    let declined = world.refused("lv activate data/m --accept-missing", 8, "V0004");
    assert!(declined.contains("--yes"), "{declined}");
    assert_eq!(world.data("lv show data/m")["state"], "unusable", "nothing was accepted");
    world.refused("lv activate data/m -y", 2, "V0002");
    world.ok("lv activate data/m --accept-missing -y");
    for volume in volumes {
        let mut client = Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"));
        assert_eq!(client.read(1 << 20, 3 << 20), Ok(content(1)), "{volume}");
        client.write(2 << 20, &content(2)).expect("it goes on");
        client.flush();
    }
    let listed = world.ok("lv list");
    assert_eq!(listed.matches("degraded").count(), 2, "{listed}");
    assert!(world.ok("status").contains("lv data/r is degraded"), "a person is told");
    let shown = world.data("pv show d1");
    assert!(shown["ejections"].as_u64() >= Some(3) && shown["errors"] == 0, "of m, r and p: {shown}");
    assert_eq!(world.data("pv show d2")["ejections"], 0);
    world.refused("pv show d9", 3, "V0114");
    std::fs::rename(world.path("gone"), world.path("d1")).expect("moved back");
    world.ok("pv scan");
    wait_until_in_sync(&world);
    assert!(!world.ok("lv list").contains("degraded"));
    assert_eq!(world.stop(), Some(0));
    // What was written meanwhile is on the disk that was away: another one goes.
    std::fs::rename(world.path("d2"), world.path("gone")).expect("moved away");
    world.start();
    world.ok("lv activate data/m --accept-missing -y");
    for volume in volumes {
        let mut client = Client::new(&world.path(&format!("{volume}.sock")), &format!("data/{volume}"));
        assert_eq!(client.read(2 << 20, 3 << 20), Ok(content(2)), "{volume}");
        assert_eq!(client.read(1 << 20, 1 << 20), Ok(content(1)[..1 << 20].to_vec()), "{volume}");
    }
}

#[test]
fn an_array_grows_while_it_is_used_and_its_space_comes_back() {
    let world = World::with_group();
    let free = world.data("vg show data")["free"].clone();
    world.ok("lv create data/m --size 8M --type mirror --copies 2");
    world.ok("export create data/m --nbd unix:m.sock");
    let mut client = Client::new(&world.path("m.sock"), "data/m");
    client.write(0, &[5; 65_536]).expect("written");
    world.ok("lv extend data/m --size +8M");
    drop(client);
    let begun = Instant::now();
    while world.data("lv show data/m")["size"] != (16 << 20) {
        assert!(begun.elapsed() < SOON, "{}", world.ok("lv show data/m"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut client = Client::new(&world.path("m.sock"), "data/m");
    client.write(12 << 20, &[6; 65_536]).expect("written");
    client.flush();
    assert_eq!(client.read(0, 65_536), Ok(vec![5; 65_536]));
    assert_eq!(client.read(12 << 20, 131_072), Ok([vec![6; 65_536], vec![0; 65_536]].concat()));
    drop(client);
    world.ok("export remove m.sock -y");
    world.ok("lv remove data/m --now -y");
    assert_eq!(world.data("vg show data")["free"], free);
}

/// The column EJECTIONS of `pv list` in the line of `disk`; two follow it.
fn ejections_of(world: &World, disk: &str) -> String {
    let listed = world.ok("pv list");
    let column = |line: &str| line.split_whitespace().rev().nth(2).unwrap_or_default().to_owned();
    assert_eq!(listed.lines().next().map(column).as_deref(), Some("EJECTIONS"), "{listed}");
    let line = listed.lines().find(|line| line.contains(&format!("/{disk} "))).expect("it is listed");
    column(line)
}

#[test]
fn the_list_of_disks_says_how_often_arrays_went_on_without_each() {
    let world = World::with_group();
    world.ok("lv create data/m --size 8M --type mirror --copies 2");
    world.ok("lv create data/n --size 8M --type mirror --copies 2");
    assert_eq!((ejections_of(&world, "d1").as_str(), ejections_of(&world, "d2").as_str()), ("0", "0"));
    world.ok("array fail data/m d1");
    world.ok("array fail data/n d1");
    let begun = Instant::now();
    while ejections_of(&world, "d1") != "2" {
        assert!(begun.elapsed() < SOON, "{}", world.ok("pv list"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(ejections_of(&world, "d2"), "0", "both go on with it");
}

#[test]
fn a_block_of_an_array_that_is_too_small_for_physical_sectors_is_warned_of() {
    let world = World::with_group();
    world.ok("pv create d3 --size 100M");
    world.ok("vg extend data d3");
    let create = |name: &str, block: &str, more: &str| {
        world.run(&format!(
            "lv create data/{name} --size 8M --type ddraid --order 1 --array-block-size {block} {more}"
        ))
    };
    let warning = "warning: fragments of 2048 bytes are smaller than the physical sectors of ";
    let planned = create("r", "4K", "-n");
    assert!(planned.stdout.contains(warning), "{}{}", planned.stdout, planned.stderr);
    assert_eq!((planned.exit, planned.stderr.as_str()), (0, ""), "the plan says it");
    let made = create("r", "4K", "");
    assert!(made.exit == 0 && made.stderr.starts_with(warning), "{}{}", made.stdout, made.stderr);
    assert!(
        made.stderr.contains("; --array-block-size ") && made.stderr.ends_with(" fits\n"),
        "{}",
        made.stderr
    );
    let fits = made.stderr.trim_end().rsplit(' ').nth(1).expect("a size").to_owned();
    let made = create("s", &fits, "");
    assert_eq!((made.exit, made.stderr.as_str()), (0, ""), "{fits} fits");
}
