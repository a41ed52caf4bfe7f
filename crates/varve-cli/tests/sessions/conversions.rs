//! Volumes and pools that are converted to other layouts while they are used.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::harness::World;
use crate::writer::Writer;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// So long something may take on a machine that is busy with other work.
const SOON: Duration = Duration::from_secs(300);

/// The last conversion, as it is now.
fn converting(world: &World) -> serde_json::Value {
    let jobs = world.data("job list");
    let mut jobs = jobs.as_array().expect("a list").iter().rev();
    jobs.find(|job| job["kind"] == "convert")
        .cloned()
        .unwrap_or_else(|| panic!("no conversion: {}", world.data("job list")))
}

/// Lets `writers` work until the conversion has ended; how it did.
fn work_until_ended(world: &World, writers: &mut [&mut Writer]) -> serde_json::Value {
    let end = Instant::now() + SOON;
    while converting(world)["state"] == "running" {
        writers.iter_mut().for_each(|writer| writer.work(20));
        assert!(Instant::now() < end, "{}", converting(world));
    }
    converting(world)
}

fn work_until_converted(world: &World, writers: &mut [&mut Writer]) {
    let ended = work_until_ended(world, writers);
    assert_eq!(ended["state"], "done", "{ended}");
}

/// A world whose group has disks of 300 MiB.
fn world_of(disks: usize) -> World {
    let world = World::started();
    let disks: Vec<String> = (1..=disks).map(|number| format!("d{number}")).collect();
    world.ok(&format!("pv create {} --size 300M", disks.join(" ")));
    world.ok(&format!("vg create data {}", disks.join(" ")));
    world
}

fn layout_of(world: &World, volume: &str) -> String {
    world.data(&format!("lv show {volume}"))["layout"].as_str().expect("a word").to_owned()
}

fn free(world: &World) -> u64 {
    world.data("vg show data")["free"].as_u64().expect("bytes")
}

#[test]
fn a_volume_goes_through_every_layout_under_load_and_goes_on_after_a_crash() {
    let mut world = world_of(4);
    let empty = free(&world);
    world.ok("lv create data/vm --size 80M");
    let mut writer = Writer::new(&world, "data/vm");
    writer.work(1000);
    for (layout, options) in [
        ("mirror", "--copies 2"),
        ("ddraid", "--order 1"),
        ("striped", "--stripes 2"),
        ("mirror", "--copies 3"),
        ("linear", "--on d4"),
    ] {
        world.ok(&format!("lv convert data/vm --type {layout} {options} --rate 40M --no-wait"));
        let end = Instant::now() + SOON;
        while converting(&world)["done"].as_u64().expect("bytes") < 16 * MIB {
            writer.work(20);
            assert!(Instant::now() < end, "{}", converting(&world));
        }
        world.kill();
        world.start();
        writer.reconnect(&world);
        assert_eq!(converting(&world)["state"], "running", "CONVERTJOB1");
        writer.check();
        // TREES2: its tree was built while it is converted.
        work_until_converted(&world, &mut [&mut writer]);
        writer.check();
        assert_eq!(layout_of(&world, "data/vm"), layout);
        world.ok("pv scan");
        writer.work(20);
        assert_eq!(world.stop(), Some(0));
        world.start();
        writer.reconnect(&world);
        writer.check();
        assert!(world.data("status")["problems"].is_null(), "{}", world.data("status"));
    }
    assert_eq!(free(&world), empty - 80 * MIB, "nothing else is taken");
    world.ok("lv extend data/vm --size +4M");
    writer.work(20);
    writer.check();
}

#[test]
fn snapshots_and_pools_go_with_the_conversion_of_what_they_lie_on() {
    let mut world = world_of(4);
    world.ok("lv create data/vm --size 40M");
    world.ok("pool create data/p --size 80M");
    world.ok("lv create data/thin --pool p --size 200M");
    let mut vm = Writer::new(&world, "data/vm");
    let mut thin = Writer::new(&world, "data/thin");
    vm.work(300);
    thin.work(300);
    world.ok("snap create data/vm@before data/thin@before");
    let before = [vm.blocks.clone(), thin.blocks.clone()];
    vm.work(100);
    for (layout, options) in [("mirror", "--copies 2"), ("ddraid", "--order 1"), ("linear", "")] {
        world.ok(&format!("lv convert data/vm --type {layout} {options} --no-wait"));
        work_until_converted(&world, &mut [&mut vm, &mut thin]);
        world.ok(&format!("pool convert data/p --type {layout} {options} --no-wait"));
        work_until_converted(&world, &mut [&mut vm, &mut thin]);
        let arrays = match layout {
            "linear" => 0,
            _ => world.data("array show data/vm").as_array().map_or(0, Vec::len),
        };
        assert_eq!(arrays, if layout == "linear" { 0 } else { 2 }, "its store is as safe as the volume");
        for restarted in [false, true] {
            if restarted {
                assert_eq!(world.stop(), Some(0));
                world.start();
                vm.reconnect(&world);
                thin.reconnect(&world);
            }
            // TREES1, CONVERTJOB2, CONVERTJOB3
            vm.check();
            thin.check();
            assert!(world.data("status")["problems"].is_null(), "{}", world.data("status"));
        }
    }
    for (name, blocks) in ["data/vm@before", "data/thin@before"].into_iter().zip(before) {
        let mut snapshot = Writer::new(&world, name);
        snapshot.blocks = blocks;
        snapshot.check();
    }
}

#[test]
fn a_conversion_is_shown_refused_and_cancelled() {
    let mut world = world_of(3);
    world.ok("lv create data/vm --size 84M --on d1");
    let before = free(&world);
    let plan = world.ok("lv convert data/vm --type mirror --copies 2 -n");
    assert!(plan.contains("would copy 84.0 MiB of data/vm to a mirror of 2 copies: "), "{plan}");
    assert_eq!(world.data("job list").as_array().map(Vec::len), Some(0), "nothing was begun");
    let rows = world.refused("lv convert data/vm --type ddraid --order 1", 2, "V0306");
    assert!(rows.contains("varve lv extend data/vm --size +4194304"), "{rows}");
    world.refused("lv convert data/vm --type mirror --copies 4", 6, "V0601");
    world.refused("lv convert data/vm --type zero", 2, "V0305");
    world.refused("lv convert data/none --type linear", 3, "V0301");
    let mut writer = Writer::new(&world, "data/vm");
    writer.work(500);
    let job = world.data("lv convert data/vm --type mirror --copies 2 --rate 1M --no-wait");
    let job = job["id"].as_str().expect("an id").to_owned();
    for other in [
        "lv convert data/vm --type linear",
        "lv extend data/vm --size +4M",
        "lv remove data/vm -y",
        "snap create data/vm@one",
        "pv move d1",
    ] {
        world.refused(other, 5, "V0309");
    }
    world.ok(&format!("job cancel {job}"));
    let ended = work_until_ended(&world, &mut [&mut writer]);
    assert_eq!(ended["state"], "cancelled", "{ended}");
    assert_eq!((layout_of(&world, "data/vm").as_str(), free(&world)), ("linear", before), "as it was");
    writer.work(20);
    writer.check();
    world.ok("lv extend data/vm --size +4M");
    assert_eq!(world.stop(), Some(0));
    world.start();
    writer.reconnect(&world);
    writer.check();
}

#[test]
fn a_copy_of_a_mirror_goes_as_a_volume_with_the_content_of_one_instant() {
    let mut world = world_of(3);
    world.ok("lv create data/vm --size 40M");
    world.refused("lv split data/vm copy", 2, "V0305");
    let mut writer = Writer::new(&world, "data/vm");
    writer.work(300);
    world.ok("lv convert data/vm --type mirror --copies 3 --no-wait");
    work_until_converted(&world, &mut [&mut writer]);
    world.refused("lv split data/vm vm", 4, "V0302");
    let plan = world.ok("lv split data/vm first -n");
    assert!(plan.contains("would let a copy of data/vm go as data/first"), "{plan}");
    let mut copies = Vec::new();
    for (name, layout) in [("data/first", "mirror"), ("data/second", "linear")] {
        writer.work(50);
        let before = writer.blocks.clone();
        world.ok(&format!("lv split data/vm {name}"));
        assert_eq!(layout_of(&world, "data/vm"), layout);
        writer.work(50);
        let mut copy = Writer::new(&world, name);
        copy.blocks = before;
        copy.check(); // SPLIT1
        copies.push(copy);
    }
    for restarted in [false, true] {
        if restarted {
            world.kill();
            world.start();
            writer.reconnect(&world);
            copies.iter_mut().for_each(|copy| copy.reconnect(&world));
        }
        writer.check();
        copies.iter_mut().for_each(Writer::check);
        copies.iter_mut().for_each(|copy| copy.work(5));
        assert!(world.data("status")["problems"].is_null(), "{}", world.data("status"));
    }
}
