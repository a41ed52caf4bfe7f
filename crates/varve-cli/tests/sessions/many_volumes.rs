//! Hundreds of volumes and exports: what each of them takes.

use crate::harness::{World, post};
use serde_json::json;

/// Makes thin volumes with these numbers, and exports each at the same socket.
fn make(world: &World, numbers: std::ops::Range<u32>) {
    let (socket, address) = (world.path("varve.sock"), format!("unix:{}", world.path("all.sock").display()));
    for number in numbers {
        let name = format!("data/v{number}");
        post(&socket, "/v1/volumes", &json!({ "name": name, "size": "1G", "pool": "p" }));
        post(&socket, "/v1/exports", &json!({ "volume": name, "door": "nbd", "address": address }));
    }
}

#[test]
fn a_thin_volume_and_its_export_take_no_more_memory_the_more_there_are() {
    const EACH_MAX: u64 = 24 << 10; // Twice what they take in a program that is not optimised.
    let mut world = World::with_group();
    world.ok("pool create data/p --size 400M");
    make(&world, 0..250);
    let before = world.memory();
    make(&world, 250..800);
    let each = world.memory().saturating_sub(before) / 550;
    assert!(each <= EACH_MAX, "{each} bytes each");
    world.kill();
    world.start();
    let is_serving = |export: &serde_json::Value| export["state"] == "serving";
    let exports = world.data("export list");
    assert_eq!(exports.as_array().expect("a list").iter().filter(|one| is_serving(one)).count(), 800);
    let found = world.data("lv show data/v799");
    assert_eq!((&found["name"], found["exports"].as_array().map(Vec::len)), (&json!("data/v799"), Some(1)));
}
