//! Disks and images that other programs have made larger while the daemon has them open.

use crate::client::Client;
use crate::harness::World;
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn set_length(world: &World, file: &str, bytes: u64) {
    let file = std::fs::File::options().write(true).open(world.path(file)).expect("it is there");
    file.set_len(bytes).expect("it grows");
}

/// Asks again until the daemon has looked at its files.
fn grown_to(show: impl Fn() -> Value) -> u64 {
    loop {
        if let Some(bytes) = show()["grown_to"].as_u64() {
            return bytes;
        }
    }
}

#[test]
fn a_disk_and_an_image_that_have_grown_are_shown_and_the_volume_takes_what_the_image_gained() {
    let world = World::with_group();
    std::fs::write(world.path("image"), vec![7; 8 << 20]).expect("a writable folder");
    world.ok("lv create data/i --image image --format raw");
    world.ok("export create data/i --nbd unix:client.sock");
    assert_eq!(world.data("lv show data/i")["image"]["grown_to"], Value::Null);
    set_length(&world, "d1", 700 * MIB);
    set_length(&world, "image", 24 * MIB);
    assert_eq!(grown_to(|| world.data("pv show d1")), 700 * MIB);
    assert_eq!(grown_to(|| world.data("lv show data/i")["image"].clone()), 24 * MIB);
    let said = world.ok("pv scan d1");
    assert!(said.contains("d1: it has grown to 700.0 MiB, and uses no more than before"), "{said}");
    let said = world.ok("lv show data/i");
    let help = "its image has grown to 24.0 MiB: varve lv extend data/i --size 25165824B";
    assert!(said.contains(help), "{said}");
    world.ok("status --check");
    world.ok("lv extend data/i --size 25165824B");
    assert_eq!(world.data("lv show data/i")["size"].as_u64(), Some(24 * MIB));
    assert_eq!(world.data("lv show data/i")["image"]["grown_to"], Value::Null);
    let all = Client::new(&world.path("client.sock"), "data/i").read_all();
    assert!(all[..8 << 20].iter().all(|byte| *byte == 7) && all[8 << 20..].iter().all(|byte| *byte == 0));
    assert_eq!(all.len() as u64, 24 * MIB, "its export is as long");
}
