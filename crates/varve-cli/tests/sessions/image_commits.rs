//! The job that puts what a volume's image holds into the image below it: under clients, killed, ended, refused.

use crate::client::Client;
use crate::harness::World;
use crate::image_jobs::{LONG, copying, idle, is_sound, jobs};
use crate::image_volumes::{chain, compare, content, disconnect, qemu, read, write};
use std::fs;

/// Where a volume lies.
fn place(world: &World, name: &str) -> String {
    world.ok(&format!("lv show {name}"))
}

fn restart(world: &mut World) {
    assert_eq!(world.stop(), Some(0));
    world.start_with("--image-dir images");
}

#[test]
fn committing_an_image_is_killed_ended_and_given_again_under_a_client() {
    let mut world = World::with_group();
    let mut model = content(3, LONG);
    fs::create_dir_all(world.path("images")).expect("a folder");
    // Shorter than the image that is backed by it.
    fs::write(world.path("images/base"), vec![7; 1 << 20]).expect("written");
    fs::write(world.path("full"), &model).expect("written");
    qemu(&world, "qemu-img convert -f raw -O qcow2 full images/top");
    qemu(&world, "qemu-img rebase -u -f qcow2 -b base -F raw images/top");
    restart(&mut world);
    world.ok("lv create data/v --image images/top --format qcow2");
    world.ok("snap create data/v@before --read-only");
    let before = model.clone();
    let would = world.ok("lv commit data/v -n");
    assert!(would.contains("into the image below it"), "{would}");
    world.ok("lv commit data/v --no-wait");
    copying(&world);
    for verb in
        ["lv commit data/v", "lv flatten data/v", "lv extend data/v --size +4M", "lv deactivate data/v"]
    {
        let refused = world.refused(verb, 5, "V0309");
        assert!(refused.contains("varve job wait"), "{verb}: {refused}");
    }
    disconnect(&world, write(&world, "data/v", &mut model, 2));
    copying(&world);
    world.kill();
    is_sound(&world, "images/top");
    world.start_with("--image-dir images");
    let job = copying(&world);
    world.ok(&format!("job cancel {job}"));
    idle(&world);
    assert_eq!(jobs(&world, "cancelled").len(), 1, "{}", world.data("job list"));
    assert!(place(&world, "data/v").contains("images/top"));
    disconnect(&world, write(&world, "data/v", &mut model, 5));
    assert!(read(&world, "data/v") == model, "half here, half there");
    world.ok("export create data/v --nbd unix:stays.sock");
    let mut client = Client::new(&world.path("stays.sock"), "data/v");
    let said = world.ok("lv commit data/v --wait");
    assert!(said.contains("lies in the image below now"), "{said}");
    assert!(place(&world, "data/v").contains("images/base"));
    fs::remove_file(world.path("images/top")).expect("nothing needs it");
    client.write(0, &[1; 4096]).expect("its client stays connected");
    model[..4096].fill(1);
    client.flush();
    drop(client);
    world.ok("export remove stays.sock -y");
    restart(&mut world);
    assert!(read(&world, "data/v") == model, "alone");
    assert!(read(&world, "data/v@before") == before, "its snapshot");
    assert_eq!(world.stop(), Some(0));
    compare(&world, "images/base", "raw", &model);
}

#[test]
fn an_image_is_committed_once_whenever_the_daemon_dies() {
    for fault in ["image-committed", "image-left"] {
        let mut world = World::with_group();
        let (top, mut model) = chain(&world, 3);
        restart(&mut world);
        world.ok(&format!("lv create data/v --image {top} --format qcow2"));
        disconnect(&world, write(&world, "data/v", &mut model, 4));
        assert_eq!(world.stop(), Some(0));
        world.start_with_fault_and(fault, "--image-dir images");
        assert_ne!(world.run("lv commit data/v --wait").exit, 0);
        world.wait_for_death();
        is_sound(&world, "images/3");
        is_sound(&world, "images/2");
        world.start_with("--image-dir images");
        idle(&world);
        assert!(place(&world, "data/v").contains("images/2"), "{fault}: {}", world.data("job list"));
        assert!(read(&world, "data/v") == model, "{fault}");
        disconnect(&world, write(&world, "data/v", &mut model, 6));
        assert_eq!(world.stop(), Some(0));
        assert!(qemu(&world, "qemu-img info images/2").contains("backing file: 1"), "one layer goes");
        compare(&world, "images/2", "qcow2", &model);
    }
}

#[test]
fn what_cannot_be_committed_says_so_and_serves_on() {
    let mut world = World::with_group();
    let (top, model) = chain(&world, 1);
    qemu(&world, "qemu-img create -q -f qcow2 -b 0 -F raw images/other");
    fs::write(world.path("images/long"), vec![1; 8 << 20]).expect("written");
    qemu(&world, "qemu-img create -q -f qcow2 -b long -F raw images/short 4M");
    fs::write(world.path("plain"), vec![0; 1 << 20]).expect("written");
    restart(&mut world);
    world.ok(&format!("lv create data/v --image {top} --format qcow2"));
    world.ok("lv create data/other --image images/other --format qcow2");
    world.ok("lv create data/short --image images/short --format qcow2");
    world.ok("lv create data/plain --image plain");
    world.refused("lv commit data/plain", 2, "V0002");
    world.refused("lv commit data/short -n", 2, "V0316");
    for command in ["lv commit data/v -n", "lv commit data/v"] {
        let refused = world.refused(command, 5, "V0104");
        assert!(refused.contains("images/0") && refused.contains("end what else uses it"), "{refused}");
    }
    assert!(read(&world, "data/v") == model && read(&world, "data/other")[..4096] == model[..4096]);
    let refused = world.refused("lv commit data/short", 2, "V0316");
    assert!(refused.contains("images/long holds a disk of 8.0 MiB"), "{refused}");
    assert!(read(&world, "data/short") == vec![1; 4 << 20]);
    assert_eq!(world.data("job list"), serde_json::json!([]), "what is refused leaves no job");
    world.ok("lv remove data/other -y");
    world.ok("lv commit data/v -n");
    world.ok("lv commit data/v --wait");
    assert!(read(&world, "data/v") == model);
    world.refused("lv commit data/v", 2, "V0002");
}
