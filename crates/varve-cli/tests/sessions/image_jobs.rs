//! The job that takes a volume's image off what lies below it: what is refused meanwhile, and what becomes of it when it is killed,
//! ended, put off or given again.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::client::Client;
use crate::harness::World;
use crate::image_volumes::{chain, compare, content, disconnect, qemu, read, write};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Bytes of an image that is not copied in a moment.
pub(crate) const LONG: usize = 192 << 20;

/// The jobs of a state.
pub(crate) fn jobs(world: &World, state: &str) -> Vec<Value> {
    let all = world.data("job list");
    all.as_array().expect("a list").iter().filter(|job| job["state"] == state).cloned().collect()
}

/// Waits until no job runs.
pub(crate) fn idle(world: &World) {
    let end = Instant::now() + Duration::from_secs(120);
    while !jobs(world, "running").is_empty() {
        assert!(Instant::now() < end, "{}", world.data("job list"));
        sleep(Duration::from_millis(20));
    }
}

/// Waits until a job has copied something, but not all; its number.
pub(crate) fn copying(world: &World) -> String {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let running = jobs(world, "running");
        let job = running.first().unwrap_or_else(|| panic!("it runs: {}", world.data("job list")));
        let (done, total) = (job["done"].as_u64().expect("bytes"), job["total"].as_u64().expect("bytes"));
        if done > 0 {
            assert!(done < total, "{job}");
            return job["id"].as_str().expect("a number").to_owned();
        }
        assert!(Instant::now() < end, "{job}");
        sleep(Duration::from_millis(5));
    }
}

/// QEMU finds nothing in an image but clusters that are not needed, which a daemon that is killed may leave.
pub(crate) fn is_sound(world: &World, image: &str) {
    let check = Command::new("qemu-img").args(["check", "-U", "-f", "qcow2"]).arg(world.path(image)).output();
    let check = check.expect("qemu-img");
    assert!(matches!(check.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&check.stderr));
}

#[test]
fn flattening_an_image_is_killed_ended_and_given_again_under_a_client() {
    let mut world = World::with_group();
    let mut model = content(3, LONG);
    fs::create_dir_all(world.path("images")).expect("a folder");
    fs::write(world.path("images/base"), &model).expect("written");
    qemu(&world, "qemu-img create -q -f qcow2 -b base -F raw images/top");
    assert_eq!(world.stop(), Some(0));
    world.start_with("--image-dir images");
    world.ok("lv create data/v --image images/top --format qcow2");
    world.ok("lv flatten data/v --no-wait");
    copying(&world);
    for verb in
        ["lv flatten data/v", "lv extend data/v --size +4M", "lv remove data/v -y", "lv deactivate data/v"]
    {
        let refused = world.refused(verb, 5, "V0309");
        assert!(refused.contains("varve job wait"), "{verb}: {refused}");
    }
    disconnect(&world, write(&world, "data/v", &mut model, 2));
    copying(&world);
    world.kill();
    is_sound(&world, "images/top");
    assert!(qemu(&world, "qemu-img info -U images/top").contains("backing file"));
    world.start_with("--image-dir images");
    let job = copying(&world);
    world.ok(&format!("job cancel {job}"));
    idle(&world);
    assert_eq!(jobs(&world, "cancelled").len(), 1, "{}", world.data("job list"));
    disconnect(&world, write(&world, "data/v", &mut model, 5));
    assert!(read(&world, "data/v") == model, "IMAGEJOB1: what was copied stays");
    world.ok("lv flatten data/v --wait");
    fs::remove_file(world.path("images/base")).expect("nothing needs it");
    assert!(read(&world, "data/v") == model, "alone");
    assert_eq!(world.stop(), Some(0));
    is_sound(&world, "images/top");
    qemu(&world, "qemu-img check -q -r leaks images/top");
    assert!(!qemu(&world, "qemu-img info images/top").contains("backing file"));
    compare(&world, "images/top", "qcow2", &model);
}

#[test]
fn flattening_that_was_put_off_goes_on_once_when_its_volume_is_activated() {
    let mut world = World::with_group();
    let (top, model) = chain(&world, 2);
    assert_eq!(world.stop(), Some(0));
    world.start_with("--image-dir images");
    world.ok(&format!("lv create data/v --image {top} --format qcow2"));
    assert_eq!(world.stop(), Some(0));
    world.start_with_fault_and("image-pulled", "--image-dir images");
    assert_ne!(world.run("lv flatten data/v --wait").exit, 0);
    world.wait_for_death();
    fs::rename(world.path(&top), world.path("away")).expect("renamed");
    world.start_with("--image-dir images");
    idle(&world);
    assert_eq!(jobs(&world, "failed").len(), 1, "{}", world.data("job list"));
    fs::rename(world.path("away"), world.path(&top)).expect("renamed");
    // IMAGEJOB2
    world.ok("lv activate data/v");
    world.ok("job wait 2"); // Under the next number.
    assert_eq!(jobs(&world, "done").len(), 1);
    world.ok("pv scan");
    idle(&world);
    assert_eq!(jobs(&world, "done").len(), 1, "{}", world.data("job list"));
    assert!(read(&world, "data/v") == model);
    assert_eq!(world.stop(), Some(0));
    compare(&world, &top, "qcow2", &model);
}

#[test]
fn an_image_is_flattened_below_a_thin_volume_over_its_snapshot() {
    let mut world = World::with_group();
    let (top, mut model) = chain(&world, 3);
    assert_eq!(world.stop(), Some(0));
    world.start_with("--image-dir images");
    world.ok(&format!("lv create data/v --image {top} --format qcow2"));
    world.ok("snap create data/v@gold --read-only");
    let gold = model.clone();
    world.ok("pool create data/p --size 64M");
    world.ok("lv create data/thin --pool p --origin data/v@gold");
    world.ok("export create data/thin --nbd unix:thin.sock");
    let mut thin = Client::new(&world.path("thin.sock"), "data/thin");
    disconnect(&world, write(&world, "data/v", &mut model, 6));
    world.ok("lv flatten data/v --wait");
    assert!(thin.read_all() == gold, "IMAGEJOB3: its client stays connected");
    assert!(read(&world, "data/v") == model);
    assert!(read(&world, "data/v@gold") == gold);
    drop(thin);
    world.ok("export remove thin.sock -y");
    assert_eq!(world.stop(), Some(0));
    compare(&world, &top, "qcow2", &model);
}

#[test]
fn flattening_an_image_waits_until_somebody_agrees_to_it_and_ends_well_then() {
    let mut world = World::with_group();
    let model = content(9, LONG);
    fs::create_dir_all(world.path("images")).expect("a folder");
    fs::write(world.path("images/base"), &model).expect("written");
    qemu(&world, "qemu-img create -q -f qcow2 -b base -F raw images/top");
    assert_eq!(world.stop(), Some(0));
    world.start_with("--image-dir images");
    world.ok("lv create data/v --image images/top --format qcow2");
    world.ok("lv flatten data/v --no-wait");
    copying(&world);
    world.kill();
    // What was agreed to is kept there.
    fs::rename(world.path("state"), world.path("aside")).expect("it is there");
    world.start_with("--image-dir images");
    world.ok("pv scan d1 d2");
    world.refused("export create data/v --nbd unix:v.sock", 7, "V0318");
    world.ok("pv scan");
    let all = world.data("job list");
    assert_eq!(all.as_array().map(Vec::len), Some(1), "nothing agrees to the image: {all}");
    let waits = all[0]["error"]["message"].as_str().unwrap_or_default();
    assert!(waits.ends_with("; it goes on when that can be used again"), "it is put off: {all}");
    assert!(qemu(&world, "qemu-img info -U images/top").contains("backing file"), "nothing was done");
    world.ok("pv scan --trust-images");
    idle(&world);
    assert_eq!(jobs(&world, "done").len(), 1, "{}", world.data("job list"));
    assert!(read(&world, "data/v") == model);
    assert_eq!(world.stop(), Some(0));
    assert!(!qemu(&world, "qemu-img info images/top").contains("backing file"));
    compare(&world, "images/top", "qcow2", &model);
}
