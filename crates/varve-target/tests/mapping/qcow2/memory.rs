//! Tables in memory: no more of them than an image was given memory for, however many are read or changed.

use std::rc::Rc;
use varve_block::{Access, Device, Durability, KIB};
use varve_format::qcow2::Backing;
use varve_sim::{SimDisk, World};
use varve_target::qcow2::{Image, ImageDevice, NewImage, Options, create};

/// What one table of clusters of 512 bytes leads to.
const TABLE: u64 = 32 * KIB;
const TABLES: u64 = 32;
const SIZE: u64 = TABLES * TABLE;
/// Memory for 16 tables.
const MEMORY: u64 = 16 * 512;

/// A disk with an image that has data under each table.
fn filled(world: &World) -> SimDisk {
    let disk = SimDisk::new(2 * SIZE);
    let below = Backing { name: "below".to_owned(), format: Some("raw".to_owned()) };
    let new = NewImage { cluster_size: 512, backing: Some(below), ..NewImage::new(SIZE) };
    world.run(create(disk.device(world), world.arena(), &new)).expect("created");
    let image = open(world, &disk, Options { access: Access::ReadWrite, ..Options::default() });
    let device = Device::new(ImageDevice::new(Rc::clone(&image)));
    for table in 0..TABLES {
        let data = world.arena().copy(&[7; 512]);
        world.run(device.write(table * TABLE, data, Durability::Volatile)).expect("written");
    }
    world.run(image.close()).expect("closed");
    disk
}

fn open(world: &World, disk: &SimDisk, options: Options) -> Rc<Image> {
    let options = Options { backing: Some(SimDisk::new(SIZE).device(world)), ..options };
    Rc::new(world.run(Image::open(disk.device(world), world.arena(), options)).expect("opened"))
}

#[test]
fn tables_that_are_read_leave_memory_for_those_that_follow() {
    let world = World::steady(1);
    let disk = filled(&world);
    let image = open(&world, &disk, Options { cache_bytes: MEMORY, ..Options::default() });
    let device = Device::new(ImageDevice::new(image));
    let read_all = || {
        let before = disk.counters();
        for table in 0..TABLES {
            let buffer = world.arena().take(512);
            let read = world.run(device.read(table * TABLE, buffer)).expect("readable");
            assert!(read.iter().all(|byte| *byte == 7), "table {table}");
        }
        disk.counters().since(&before).reads
    };
    assert_eq!(read_all(), 2 * TABLES, "each table is read, and what it leads to");
    assert_eq!(read_all(), 2 * TABLES, "none was kept until its turn came again");
}

#[test]
fn tables_that_change_while_an_image_gives_away_what_it_holds_are_written_when_they_fill_its_memory() {
    let world = World::steady(1);
    let disk = filled(&world);
    for (memory, writes) in [(MEMORY, true), (1024 * KIB, false)] {
        let options =
            Options { access: Access::ReadWrite, pushes: true, cache_bytes: memory, ..Options::default() };
        let image = open(&world, &disk, options);
        let before = disk.counters();
        let mut at = 0;
        while at < SIZE {
            at += world.run(image.push(at)).expect("pushed").length;
        }
        assert_eq!(disk.counters().since(&before).writes > 0, writes, "memory for {memory} bytes of tables");
    }
}
