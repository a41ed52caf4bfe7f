//! Images that were moved: their volumes follow, in use and not, and to no other file.

use crate::client::Client;
use crate::harness::World;
use crate::image_volumes::{chain, disconnect, qemu, read, write};
use std::fs;

/// Where a volume lies, by the text of its group.
fn place(world: &World) -> String {
    let path =
        world.data("lv show data/v")["image"]["path"].as_str().expect("it lies in an image").to_owned();
    path.rsplit('/').next().expect("a name").to_owned()
}

fn follow(image: &str) -> String {
    format!("lv change data/v --image images/{image}")
}

/// A volume in an image over a base, and what it holds.
fn world_in_an_image() -> (World, Vec<u8>) {
    let mut world = World::with_group();
    let (top, mut model) = chain(&world, 1);
    assert_eq!(world.stop(), Some(0));
    world.start_with("--image-dir images");
    world.ok(&format!("lv create data/v --image {top} --format qcow2"));
    disconnect(&world, write(&world, "data/v", &mut model, 1));
    (world, model)
}

fn rename(world: &World, from: &str, to: &str) {
    fs::rename(world.path("images").join(from), world.path("images").join(to)).expect("it is there");
}

#[test]
fn a_volume_in_use_follows_the_file_that_it_has_open() {
    let (mut world, model) = world_in_an_image();
    world.ok("export create data/v --nbd unix:v.sock");
    let mut client = Client::new(&world.path("v.sock"), "data/v");
    rename(&world, "1", "moved");
    qemu(&world, "cp -p images/moved images/copy");
    let refused = world.refused(&follow("copy"), 5, "V0309");
    assert!(refused.contains("images/copy is another file"), "MOVEDIMAGE1: {refused}");
    world.refused(&format!("{} --force", follow("copy")), 5, "V0309");
    world.refused(&follow("absent"), 3, "V0114");
    fs::create_dir(world.path("images/below")).expect("a writable folder");
    rename(&world, "moved", "below/moved");
    let refused = world.refused(&follow("below/moved"), 7, "V0307");
    assert!(refused.contains("below/0 is not there"), "MOVEDIMAGE3: {refused}");
    let remedy =
        format!("qemu-img rebase -u -b FILE -F FORMAT {}", world.path("images/below/moved").display());
    assert!(refused.contains(&remedy), "{refused}");
    let said = world.run("image map -U images/below/moved").stderr;
    assert!(said.contains("below/0 is not there") && said.contains(&remedy), "{said}");
    rename(&world, "below/moved", "moved");
    assert_eq!(place(&world), "1", "what is refused changes nothing");
    let would = world.ok(&format!("{} -n", follow("moved")));
    assert!(would.contains("would let data/v lie in") && place(&world) == "1", "{would}");
    world.ok(&follow("moved"));
    assert_eq!(place(&world), "moved");
    assert!(client.read_all() == model, "its client stays connected");
    drop(client);
    assert_eq!(world.stop(), Some(0));
    world.start_with("--image-dir images");
    assert!(Client::new(&world.path("v.sock"), "data/v").read_all() == model);
    world.refused(&follow("moved"), 2, "V0002");
    world.ok("lv create data/plain --size 4M");
    world.refused("lv change data/plain --image images/moved", 2, "V0002");
}

#[test]
fn a_volume_that_is_not_in_use_follows_its_image_and_no_other_one() {
    let (mut world, model) = world_in_an_image();
    world.ok("export create data/v --nbd unix:v.sock");
    assert_eq!(world.stop(), Some(0));
    rename(&world, "1", "moved");
    world.start_with("--image-dir images");
    let shown = world.data("lv show data/v");
    assert_eq!(shown["state"], "unusable");
    let problems = world.data("status")["attention"].to_string();
    assert!(problems.contains("varve lv change data/v --image"), "{problems}");
    qemu(&world, "cp images/moved images/copy");
    qemu(&world, "qemu-img create -q -f qcow2 -u -b 0 -F raw images/long 8M");
    let refused = world.refused(&follow("copy"), 7, "V0319");
    assert!(refused.contains("--force") && refused.contains("it was written at"), "MOVEDIMAGE2: {refused}");
    world.refused(&format!("{} -n", follow("copy")), 7, "V0319");
    world.refused(&format!("{} --force", follow("long")), 7, "V0307");
    assert_eq!(place(&world), "1", "what is refused changes nothing");
    world.ok(&follow("moved"));
    assert!(Client::new(&world.path("v.sock"), "data/v").read_all() == model, "it is served");
    world.ok("export remove v.sock -y");

    world.ok("lv deactivate data/v");
    qemu(&world, "cp -p images/moved images/elsewhere");
    world.ok(&follow("elsewhere"));
    world.ok("lv activate data/v");
    assert!((place(&world), read(&world, "data/v")) == ("elsewhere".to_owned(), model.clone()));
    world.ok("lv deactivate data/v");
    world.ok(&format!("{} --force", follow("copy")));
    world.ok("lv activate data/v");
    assert!((place(&world), read(&world, "data/v")) == ("copy".to_owned(), model.clone()));

    world.ok("snap create data/v@s");
    world.ok("lv deactivate data/v");
    let refused = world.refused(&format!("{} --force", follow("moved")), 7, "V0307");
    assert!(refused.contains("past the snapshots of its volume"), "LEFT1: {refused}");
    rename(&world, "copy", "last");
    world.ok(&follow("last"));
    world.ok("lv activate data/v");
    assert!(read(&world, "data/v@s") == model);
    world.kill();
    rename(&world, "last", "killed");
    world.start_with("--image-dir images");
    let refused = world.refused(&follow("killed"), 7, "V0319");
    assert!(refused.contains("it is not known when data/v was released"), "{refused}");
    world.ok(&format!("{} --force", follow("killed")));
    assert!(read(&world, "data/v") == model);
}
