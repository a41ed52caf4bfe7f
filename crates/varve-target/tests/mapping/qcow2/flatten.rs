//! Images that take in what is below them, under clients, on disks that crash at any moment.

use std::cell::RefCell;
use std::rc::Rc;
use varve_block::{Access, Device, Durability, Extent, IoError, KIB};
use varve_format::qcow2::{Backing, COPIED, OFFSET_MASK, SECTOR};
use varve_sim::{
    Client, CrashAt, CrashKind, Mix, Oracle, Random, SharedOracle, SimDisk, World, caught_share, run_seeds,
    test_name,
};
use varve_target::qcow2::{Image, ImageDevice, InjectedBug, NewImage, Options, create, read_header};

const FILE: u64 = 3 << 20;

/// A raw disk, and an image over it, which is longer.
struct History {
    below: SimDisk,
    disk: SimDisk,
    oracle: SharedOracle,
    random: Random,
    bug: Option<InjectedBug>,
    seed: u64,
}

impl History {
    fn new(seed: u64, bug: Option<InjectedBug>) -> Self {
        let world = World::new(seed);
        let mut random = world.random();
        let (length, size) = (192 * KIB, 192 * KIB + 16 * KIB * random.below(4));
        let (below, disk) = (SimDisk::new(length), SimDisk::new(FILE));
        let oracle = Rc::new(RefCell::new(Oracle::new(1, length)));
        let client = Client::new(below.device(&world), world.arena(), Rc::clone(&oracle));
        let mix = Mix { length_max: 24 * KIB, ..Mix::default() };
        world.run(async {
            client.exercise(&mix, 12, &mut random).await.expect("no faults");
            client.flush().await.expect("no faults");
        });
        oracle.borrow_mut().grow(size);
        let extended_l2 = random.chance(1, 3);
        let cluster_size =
            if extended_l2 { 16 * KIB } else { *random.pick(&[512, 4 * KIB, 16 * KIB, 64 * KIB]) };
        let version = if extended_l2 { 3 } else { *random.pick(&[2, 3]) };
        let backing = Some(Backing { name: "below".to_owned(), format: Some("raw".to_owned()) });
        let new = NewImage { cluster_size, extended_l2, version, backing, ..NewImage::new(size) };
        world.run(create(disk.device(&world), world.arena(), &new)).expect("created");
        Self { below, disk, oracle, random, bug, seed }
    }

    /// One boot: clients work while the image takes in what is below it. Whether it needs that no more.
    fn boot(&mut self, number: u64) -> bool {
        let world = World::new(self.seed * 100 + number);
        let header = world.run(read_header(self.disk.device(&world), world.arena())).expect("readable");
        let is_flat = header.backing.is_none();
        let options = Options {
            access: Access::ReadWrite,
            backing: (!is_flat).then(|| self.below.device(&world)),
            cache_bytes: *self.random.pick(&[4 * KIB, 1024 * KIB]),
            bug: self.bug,
            ..Options::default()
        };
        let image = Rc::new(
            world.run(Image::open(self.disk.device(&world), world.arena(), options)).expect("opened"),
        );
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        let client = Client::new(device, world.arena(), Rc::clone(&self.oracle));
        world.run(client.verify()).expect("QFLAT2");
        if is_flat {
            let report = world.run(image.check()).expect("checked");
            assert_eq!(report.corruptions, 0, "{:?}", report.told);
            return true;
        }
        if number < 4 {
            world.schedule(CrashAt::Event(self.random.between(1, 300)), CrashKind::Power);
        }
        let mix = Mix { zeros: 3, discards: 6, length_max: 24 * KIB, overlaps: 50, ..Mix::default() };
        let mut choices = self.random.fork();
        let ran = world.run_until_crash(async {
            let flatten = async {
                let mut at = 0;
                while at < image.size() {
                    at += image.pull(at).await.expect("no faults").length;
                }
                image.forget_backing().await.expect("no faults");
            };
            let clients = async { client.exercise(&mix, 40, &mut choices).await.expect("no faults") };
            futures_util::future::join(flatten, clients).await;
            client.verify().await.expect("QFLAT1");
            image.close().await.expect("closed");
        });
        if ran.crashed() {
            self.oracle.borrow_mut().crashed();
        } else {
            let flush = self.oracle.borrow_mut().flush_started();
            self.oracle.borrow_mut().flush_finished(flush);
        }
        false
    }
}

fn history(seed: u64, bug: Option<InjectedBug>) {
    let mut history = History::new(seed, bug);
    let boots = (1..=5).position(|number| history.boot(number));
    assert!(boots.is_some(), "it needs what lies below no more in the end");
}

#[test]
fn an_image_takes_in_what_lies_below_it_under_clients_and_crashes() {
    run_seeds(test_name!("an_image_takes_in_what_lies_below_it_under_clients_and_crashes"), 400, |seed| {
        history(seed, None);
    });
    for (name, bug) in [
        ("a header before what was copied", InjectedBug::ForgetBeforeData),
        ("copies over what was written meanwhile", InjectedBug::PullUnseen),
    ] {
        caught_share(name, 150, 2, |seed| history(seed, Some(bug)));
    }
}

#[test]
fn only_what_is_not_zeros_below_is_copied() {
    let world = World::steady(1);
    let (below, disk) = (SimDisk::new(512 * KIB), SimDisk::new(FILE));
    below.poke(128 * KIB, &vec![7; 40 << 10]);
    let backing = Some(Backing { name: "below".to_owned(), format: Some("raw".to_owned()) });
    let new = NewImage { cluster_size: 16 * KIB, backing, ..NewImage::new(1 << 20) };
    world.run(create(disk.device(&world), world.arena(), &new)).expect("created");
    let options = || Options { access: Access::ReadWrite, ..Options::default() };
    let over = Options { backing: Some(below.device(&world)), ..options() };
    let image = world.run(Image::open(disk.device(&world), world.arena(), over)).expect("opened");
    let (mut at, mut copied) = (0, 0);
    while at < image.size() {
        let pulled = world.run(image.pull(at)).expect("no faults");
        (at, copied) = (at + pulled.length, copied + pulled.copied);
    }
    assert_eq!(copied, 48 * KIB, "whole clusters");
    world.run(image.forget_backing()).expect("no faults");
    let image = world.run(Image::open(disk.device(&world), world.arena(), options())).expect("opened");
    let image = Rc::new(image);
    assert_eq!(image.header().backing, None);
    let device = Device::new(ImageDevice::new(image));
    let bytes = world.run(device.read(0, world.arena().take(1 << 20))).expect("readable");
    let extent = Extent::new(128 * KIB, 40 * KIB);
    let wanted = |at: u64| u8::from(at >= extent.offset && at < extent.end()) * 7;
    assert!((0..).zip(bytes.iter()).all(|(at, byte)| *byte == wanted(at)));
}

/// The entry of a cluster leads to the L1 table from now on, as if data could be written there.
fn lead_to_metadata(disk: &SimDisk, world: &World, cluster: usize) {
    let header = world.run(read_header(disk.device(world), world.arena())).expect("readable");
    let l1 = disk.peek(Extent::new(header.l1_offset, SECTOR));
    let table = u64::from_be_bytes(l1[..8].try_into().expect("8 bytes")) & OFFSET_MASK;
    let mut entries = disk.peek(Extent::new(table, SECTOR));
    entries[cluster * 8..][..8].copy_from_slice(&(header.l1_offset | COPIED).to_be_bytes());
    disk.poke(table, &entries);
}

#[test]
fn an_image_that_is_found_corrupt_afterwards_says_so_and_still_needs_nothing_below() {
    let world = World::steady(1);
    let (below, disk) = (SimDisk::new(512 * KIB), SimDisk::new(FILE));
    below.poke(0, &vec![7; 64 << 10]);
    let backing = Some(Backing { name: "below".to_owned(), format: Some("raw".to_owned()) });
    let new = NewImage { cluster_size: 16 * KIB, backing, ..NewImage::new(1 << 20) };
    world.run(create(disk.device(&world), world.arena(), &new)).expect("created");
    let open = || {
        let (backing, access) = (Some(below.device(&world)), Access::ReadWrite);
        let options = Options { access, backing, ..Options::default() };
        let image = world.run(Image::open(disk.device(&world), world.arena(), options)).expect("opened");
        Rc::new(image)
    };
    let write = |image: &Rc<Image>, at: u64| {
        let device = Device::new(ImageDevice::new(Rc::clone(image)));
        world.run(device.write(at, world.arena().take_zeroed(4096).freeze(), Durability::Volatile)).map(drop)
    };
    let image = open();
    write(&image, 512 * KIB).expect("it makes a table");
    world.run(image.close()).expect("closed");
    lead_to_metadata(&disk, &world, 40);
    let image = open();
    let mut at = 0;
    while at < image.size() {
        at += world.run(image.pull(at)).expect("no faults").length;
    }
    world.run(image.forget_backing()).expect("no faults");
    assert_eq!(write(&image, 40 * 16 * KIB), Err(IoError::Corrupt));
    let header = world.run(read_header(disk.device(&world), world.arena())).expect("readable");
    assert!(header.corrupt, "the image says so");
    assert_eq!(header.backing, None, "QFLAT3");
}
