//! Images that a command refuses, and sizes that it cannot have: nothing has changed afterwards, neither the files nor the volumes, and
//! the plan refuses the same.

use crate::client::Client;
use crate::harness::World;
use crate::image_volumes::{content, qemu, read};
use std::fs;

/// Cuts a file; what it holds then.
fn cut(world: &World, name: &str, bytes: u64) -> Vec<u8> {
    let path = world.path(name);
    fs::OpenOptions::new().write(true).open(&path).expect("there").set_len(bytes).expect("cut");
    fs::read(path).expect("read")
}

#[test]
fn an_image_that_was_cut_off_makes_no_volume_and_is_not_written_elsewhere() {
    let mut world = World::new();
    world.start_with("--image-dir .");
    world.ok("pv create d1 --size 64M");
    world.ok("vg create data d1");
    qemu(&world, "qemu-img create -q -f qcow2 base 16M");
    qemu(&world, "qemu-io -f qcow2 -c write~-q~-P~1~0~16M base");
    qemu(&world, "qemu-img create -q -f qcow2 -b base -F qcow2 top");
    qemu(&world, "qemu-io -f qcow2 -c write~-q~-P~2~0~8M top");
    qemu(&world, "qemu-img create -q -f qcow2 -b top -F qcow2 over");
    fs::copy(world.path("top"), world.path("whole")).expect("copied");
    let base = fs::read(world.path("base")).expect("read");
    // In data, in an L2 table, and before the L1 table.
    for length in [3 << 20, 5 << 16, 200 << 10, 100 << 10] {
        fs::copy(world.path("whole"), world.path("top")).expect("copied");
        let top = cut(&world, "top", length);
        let over = fs::read(world.path("over")).expect("read");
        for image in ["top", "over"] {
            for plan in ["-n", ""] {
                let create = format!("lv create data/x --image {image} --format qcow2 {plan}");
                let said = world.refused(create.trim_end(), 2, "V0316");
                assert!(said.contains("truncated") && said.contains("truncate -s"), "{said}");
            }
        }
        for command in ["commit top", "flatten top", "commit over", "convert top flat -f qcow2 -O raw"] {
            let said = world.refused(&format!("image {command}"), 7, "V0802");
            assert!(said.contains("truncated"), "{said}");
        }
        assert!(fs::read(world.path("top")).expect("read") == top, "it stays as it is");
        assert!(fs::read(world.path("base")).expect("read") == base, "and so does what lies below it");
        assert!(fs::read(world.path("over")).expect("read") == over, "and what lies above it");
        assert!(!world.path("flat").exists());
    }
    assert_eq!(world.data("lv list").as_array().map(Vec::len), Some(0));
    // Cut off while no volume uses it.
    fs::copy(world.path("whole"), world.path("top")).expect("copied");
    world.ok("lv create data/x --image top --format qcow2");
    assert_eq!(world.stop(), Some(0));
    let top = cut(&world, "top", 3 << 20);
    world.start_with("--image-dir .");
    let said = world.refused("export create data/x --nbd unix:x.sock", 7, "V0307");
    assert!(said.contains("truncated") && said.contains("truncate -s"), "{said}");
    assert!(fs::read(world.path("top")).expect("read") == top, "it stays as it is");
    assert_eq!(world.stop(), Some(0));
}

#[test]
fn a_volume_of_which_an_image_was_cut_off_is_neither_committed_nor_flattened_and_nothing_is_changed() {
    let mut world = World::new();
    world.start_with("--image-dir .");
    world.ok("pv create d1 --size 64M");
    world.ok("vg create data d1");
    qemu(&world, "qemu-img create -q -f qcow2 base 16M");
    qemu(&world, "qemu-io -f qcow2 -c write~-q~-P~1~0~16M base");
    qemu(&world, "qemu-img create -q -f qcow2 -b base -F qcow2 top");
    qemu(&world, "qemu-io -f qcow2 -c write~-q~-P~2~0~8M top");
    let names = ["base", "top"];
    let whole = names.map(|name| fs::read(world.path(name)).expect("read"));
    world.ok("lv create data/x --image top --format qcow2");
    assert_eq!(world.stop(), Some(0));
    let used = names.map(|name| fs::read(world.path(name)).expect("read"));
    for cut_off in names {
        for length in [3 << 20, 100 << 10] {
            cut(&world, cut_off, length);
            let before = names.map(|name| fs::read(world.path(name)).expect("read"));
            let said = world.refused("image map top", 7, "V0802");
            assert!(said.contains("truncated") && said.contains(cut_off), "{said}");
            world.start_with("--image-dir .");
            for command in ["lv commit data/x", "lv flatten data/x"] {
                for options in [" -n", ""] {
                    let said = world.refused(&format!("{command}{options}"), 7, "V0307");
                    assert!(
                        said.contains("truncated") && said.contains(cut_off),
                        "{command}{options}: {said}"
                    );
                }
            }
            assert_eq!(world.data("job list"), serde_json::json!([]), "no job is left");
            assert_eq!(world.stop(), Some(0));
            let after = names.map(|name| fs::read(world.path(name)).expect("read"));
            assert!(before == after, "{cut_off} of {length} bytes, and the other one, stay as they are");
            for (name, bytes) in names.iter().zip(&used) {
                fs::write(world.path(name), bytes).expect("written");
            }
        }
    }
    assert!(used == whole, "an image that is only read is not written");
    world.start_with("--image-dir .");
    world.ok("lv commit data/x --wait");
    assert!(read(&world, "data/x")[..8 << 20].iter().all(|byte| *byte == 2), "a whole one is committed");
}

#[test]
fn what_cannot_be_written_is_as_long_as_it_was() {
    let world = World::with_group();
    qemu(&world, "qemu-img create -q -f qcow2 base 16M");
    qemu(&world, "qemu-img create -q -f qcow2 -b base -F qcow2 top");
    qemu(&world, "qemu-io -f qcow2 -c write~-q~-P~2~0~8M top");
    qemu(&world, "qemu-img bitmap --add base changed");
    let mut corrupt = fs::read(world.path("top")).expect("read");
    corrupt[79] |= 2;
    fs::write(world.path("corrupt"), &corrupt).expect("written");
    // The L1 table and the refcount table at one place.
    let mut overlap = fs::read(world.path("top")).expect("read");
    let table: [u8; 8] = overlap[48..56].try_into().expect("8 bytes");
    overlap[40..48].copy_from_slice(&table);
    fs::write(world.path("overlap"), &overlap).expect("written");
    let base = fs::read(world.path("base")).expect("read");
    world.refused("image commit top", 1, "V0902");
    assert!(fs::read(world.path("base")).expect("read") == base, "nothing was committed");
    for (image, before) in [("base", &base), ("corrupt", &corrupt), ("overlap", &overlap)] {
        for plan in [" -n", ""] {
            let said = world.run(&format!("lv create data/x --image {image} --format qcow2{plan}"));
            assert_ne!(said.exit, 0, "{image}{plan}");
        }
        assert!(&fs::read(world.path(image)).expect("read") == before, "{image} stays as it is");
    }
    assert_eq!(world.data("lv list").as_array().map(Vec::len), Some(0));
}

#[test]
fn a_volume_that_is_not_made_of_whole_blocks_is_refused_snapshots_and_stays_in_use() {
    let mut world = World::with_group();
    let size = (1 << 20) + 512;
    qemu(&world, &format!("qemu-img create -q -f qcow2 -o extended_l2=on odd {size}"));
    world.ok("lv create data/odd --image odd --format qcow2");
    world.ok("export create data/odd --nbd unix:odd.sock");
    let mut client = Client::new(&world.path("odd.sock"), "data/odd");
    let mut model = content(1, size);
    client.write(0, &model).expect("written");
    client.discard(1 << 20, 512).expect("discarded");
    model[1 << 20..].fill(0);
    for mode in ["dependent", "independent"] {
        for plan in ["-n", ""] {
            let create = format!("snap create data/odd@s --mode {mode} {plan}");
            let said = world.refused(create.trim_end(), 2, "V0306");
            assert!(said.contains("varve lv extend data/odd --size 1052672B"), "{said}");
        }
    }
    assert_eq!(world.data("lv show data/odd")["state"], "active");
    client.write(0, &model[..4096]).expect("it is in use");
    world.ok("lv extend data/odd --size 1052672B");
    model.resize(1_052_672, 0);
    world.ok("snap create data/odd@s");
    for plan in ["-n", ""] {
        let extend = format!("lv extend data/odd --size +512B {plan}");
        world.refused(extend.trim_end(), 2, "V0306");
    }
    client.write(0, &model[..4096]).expect("it is in use");
    drop(client);
    assert!(read(&world, "data/odd") == model);
    world.ok("snap remove data/odd@s -y");
    world.ok("export remove odd.sock -y");
    world.ok("lv remove data/odd -y");
    assert_eq!(world.stop(), Some(0));
    qemu(&world, "qemu-img check -q -f qcow2 odd");
}
