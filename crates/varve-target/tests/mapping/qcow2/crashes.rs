//! Images on disks that crash: what was flushed is there, and no table contradicts another.

use crate::qcow2::files::{Folder, qemu, qemu_check, text};
use std::cell::RefCell;
use std::rc::Rc;
use varve_block::{Access, Device, Durability, Extent, KIB};
use varve_format::qcow2::RefcountWidth;
use varve_sim::{
    Client, CrashAt, CrashKind, Mix, Oracle, Random, SharedOracle, SimDisk, World, caught_share, run_seeds,
    test_name,
};
use varve_target::qcow2::{Image, ImageDevice, InjectedBug, NewImage, Options, create};

const FILE: u64 = 3 << 20;

struct History<'a> {
    disk: SimDisk,
    random: Random,
    oracle: SharedOracle,
    bug: Option<InjectedBug>,
    /// Where the image is handed to QEMU's programs.
    folder: Option<&'a Folder>,
    seed: u64,
}

fn new_image(random: &mut Random) -> NewImage {
    let version = if random.chance(1, 4) { 2 } else { 3 };
    let extended_l2 = version == 3 && random.chance(1, 3);
    let cluster_size =
        if extended_l2 { 16 * KIB } else { *random.pick(&[512, 1024, 4096, 16 * KIB, 64 * KIB]) };
    let bits = if version == 2 { 16 } else { *random.pick(&[8, 16, 32, 64]) };
    let refcount_width = RefcountWidth::of_bits(bits).expect("a width");
    let size = if cluster_size < 1024 { 96 * KIB } else { 256 * KIB };
    NewImage { cluster_size, version, extended_l2, refcount_width, ..NewImage::new(size) }
}

impl<'a> History<'a> {
    fn new(seed: u64, bug: Option<InjectedBug>, folder: Option<&'a Folder>) -> Self {
        let world = World::new(seed);
        let mut random = world.random();
        let disk = SimDisk::new(FILE);
        let new = new_image(&mut random);
        world.run(create(disk.device(&world), world.arena(), &new)).expect("created");
        let oracle = Rc::new(RefCell::new(Oracle::new(1, new.size)));
        Self { disk, random, oracle, bug, folder, seed }
    }

    fn options(&mut self) -> Options {
        let cache_bytes = *self.random.pick(&[4 * KIB, 16 * KIB, 1024 * KIB]);
        Options { access: Access::ReadWrite, cache_bytes, bug: self.bug, ..Options::default() }
    }

    /// One boot, at the end of which the power fails, the process is killed, or the image is closed.
    fn boot(&mut self, number: u64) {
        let world = World::new(self.seed * 100 + number);
        let report = world.run(async {
            let image = Image::open(self.disk.device(&world), world.arena(), Options::default()).await;
            image.expect("opened").check().await.expect("checked")
        });
        assert_eq!(report.corruptions, 0, "boot {number}: {:?}", report.told);
        self.ask_qemu(report.leaks > 0);
        let options = self.options();
        let image = world.run(Image::open(self.disk.device(&world), world.arena(), options));
        let image = Rc::new(image.expect("opened"));
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        let client = Client::new(device, world.arena(), Rc::clone(&self.oracle));
        world.run(client.verify()).expect("no faults");
        let closes = self.random.chance(1, 3);
        if !closes {
            let (kind, events_max) = self.crash(number);
            world.schedule(CrashAt::Event(self.random.between(1, events_max)), kind);
        }
        let mix = Mix { zeros: 3, discards: 6, length_max: 40 * KIB, ..Mix::default() };
        let ran = world.run_until_crash(async {
            client.exercise(&mix, 60, &mut self.random).await.expect("no faults");
            client.flush().await.expect("no faults");
            image.close().await.expect("closed");
        });
        if ran.crashed() {
            self.oracle.borrow_mut().crashed();
        } else if closes && number.is_multiple_of(2) {
            self.take_snapshot(number);
        }
    }

    /// What kind of a crash ends a boot, and within how many events. In some histories processes are killed, and the power fails
    /// soon after the next one has begun.
    fn crash(&self, number: u64) -> (CrashKind, u64) {
        match (self.seed.is_multiple_of(2), number.is_multiple_of(2)) {
            (true, _) => (CrashKind::Power, 400),
            (false, false) => (CrashKind::Process, 400),
            (false, true) => (CrashKind::Power, 8),
        }
    }

    fn dump(&self, path: &std::path::Path) {
        std::fs::write(path, self.disk.peek(Extent::new(0, FILE))).expect("written");
    }

    /// QEMU finds no contradiction either, and a leak where one was found.
    fn ask_qemu(&self, leaks: bool) {
        let Some(folder) = self.folder else { return };
        let path = folder.path(&format!("{}.qcow2", self.seed));
        self.dump(&path);
        let (corrupt, leaked, said) = qemu_check(&path);
        assert!(!corrupt, "{said}");
        assert_eq!(leaked, leaks, "{said}");
    }

    /// From here on clusters are shared with an internal snapshot, which QEMU makes.
    fn take_snapshot(&self, number: u64) {
        let Some(folder) = self.folder else { return };
        let path = folder.path(&format!("{}.qcow2", self.seed));
        self.dump(&path);
        qemu("qemu-img", &["snapshot", "-c", &number.to_string(), text(&path)]);
        let mut bytes = std::fs::read(&path).expect("read");
        bytes.resize(usize::try_from(FILE).expect("small"), 0);
        self.disk.poke(0, &bytes);
    }
}

fn history(seed: u64, bug: Option<InjectedBug>, folder: Option<&Folder>) {
    let mut history = History::new(seed, bug, folder);
    for number in 1..=5 {
        history.boot(number);
    }
}

#[test]
fn what_was_flushed_survives_and_tables_agree() {
    run_seeds(test_name!("what_was_flushed_survives_and_tables_agree"), 300, |seed| {
        history(seed, None, None);
    });
}

#[test]
fn qemu_agrees_after_crashes() {
    let folder = Folder::new("crashes");
    run_seeds(test_name!("qemu_agrees_after_crashes"), 30, |seed| {
        history(seed, None, Some(&folder));
    });
}

/// An image with something in it grows while the power fails: it is as large as it was or as it was to be, and shows what it did.
fn growing(seed: u64, bug: Option<InjectedBug>) {
    let world = World::new(seed);
    let mut random = world.random();
    let disk = SimDisk::new(FILE);
    let cluster_size = *random.pick(&[512, 1024, 4096]);
    let (size, grown) = (64 * KIB + 512, 512 * KIB + 64 * KIB * random.below(8));
    let new = NewImage { cluster_size, ..NewImage::new(size) };
    world.run(create(disk.device(&world), world.arena(), &new)).expect("created");
    let options = Options { access: Access::ReadWrite, bug, ..Options::default() };
    let image = world.run(Image::open(disk.device(&world), world.arena(), options.clone()));
    let mut image = image.expect("opened");
    let before = world.arena().copy(&[7; 20 * 1024]);
    {
        let image = Rc::new(image);
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        let at = size - 20 * KIB;
        world.run(device.write(at, before, Durability::Durable)).expect("written");
        drop(device);
    }
    image = world.run(Image::open(disk.device(&world), world.arena(), options)).expect("opened");
    world.schedule_crash(CrashAt::Event(random.between(1, 60)));
    let ran = world.run_until_crash(async {
        image.grow(grown).await.expect("no faults");
        image.close().await.expect("closed");
    });
    let world = World::new(seed * 100);
    let image = world.run(Image::open(disk.device(&world), world.arena(), Options::default()));
    let image = Rc::new(image.expect("opened"));
    let report = world.run(image.check()).expect("checked");
    assert_eq!(report.corruptions, 0, "{:?}", report.told);
    assert!(image.size() == grown || (ran.crashed() && image.size() == size), "{} bytes", image.size());
    let length = usize::try_from(image.size()).expect("small");
    let device = Device::new(ImageDevice::new(image));
    let content = world.run(device.read(0, world.arena().take(length))).expect("readable");
    let (start, end) =
        (usize::try_from(size - 20 * KIB).expect("small"), usize::try_from(size).expect("small"));
    assert!(content[start..end].iter().all(|byte| *byte == 7), "what was there is there");
    assert!(content[end..].iter().chain(&content[..start]).all(|byte| *byte == 0), "QGROW2");
}

#[test]
fn an_image_that_grows_in_a_crash_has_one_size_or_the_other() {
    run_seeds(test_name!("an_image_that_grows_in_a_crash_has_one_size_or_the_other"), 200, |seed| {
        growing(seed, None);
    });
    caught_share("a header before its table", 120, 2, |seed| {
        growing(seed, Some(InjectedBug::SizeBeforeTable));
    });
}

#[test]
fn wrong_orders_are_noticed() {
    for (name, bug) in [
        ("QCOMMIT1: entries before counts", InjectedBug::EntriesBeforeCounts),
        ("QCOMMIT1: entries before data", InjectedBug::EntriesBeforeData),
        ("QCOUNT1: places free before entries have gone", InjectedBug::FreeBeforeEntries),
        ("QOPEN1: an image opened without a flush", InjectedBug::OpenUnflushed),
    ] {
        caught_share(name, 120, 2, |seed| history(seed, Some(bug), None));
    }
}

/// An image of 64 KiB clusters on a disk that holds nothing else, opened, and the disk.
fn opened(world: &World) -> (SimDisk, Rc<Image>, Device) {
    let disk = SimDisk::new(FILE);
    let end = world.run(create(disk.device(world), world.arena(), &NewImage::new(1 << 20))).expect("created");
    let options = Options { access: Access::ReadWrite, file_end: Some(end), ..Options::default() };
    let image = world.run(Image::open(disk.device(world), world.arena(), options)).expect("opened");
    let image = Rc::new(image);
    (disk, Rc::clone(&image), Device::new(ImageDevice::new(image)))
}

#[test]
fn a_flush_costs_two_flushes_if_anything_was_allocated_and_one_if_not() {
    let world = World::steady(1);
    let (disk, _, device) = opened(&world);
    let arena = world.arena();
    for (clusters, flushes) in [(12, 2), (12, 1), (0, 1)] {
        let before = disk.counters();
        world.run(async {
            for cluster in 0..clusters {
                let data = arena.copy(&[1; 4096]);
                device.write(cluster << 16, data, Durability::Volatile).await.expect("written");
            }
            device.flush().await.expect("flushed");
        });
        assert_eq!(disk.counters().since(&before).flushes, flushes, "{clusters} clusters");
    }
}

#[test]
fn the_first_write_to_a_cluster_behind_the_end_of_the_file_writes_no_more_than_it_was_given() {
    let world = World::steady(1);
    let (disk, _, device) = opened(&world);
    let before = disk.counters();
    let data = world.arena().copy(&[1; 4096]);
    world.run(async { device.write(8192, data, Durability::Volatile).await }).expect("written");
    assert_eq!(disk.counters().since(&before).bytes_written, 4096);
}

#[test]
fn what_was_discarded_is_used_again_without_a_flush() {
    let world = World::steady(1);
    let (_, _, device) = opened(&world);
    let arena = world.arena();
    for round in 0..5 {
        world.run(async {
            let data = arena.copy(&[round; 1 << 20]);
            device.write(0, data, Durability::Volatile).await.expect("there is room");
            device.discard(Extent::new(0, 1 << 20)).await.expect("discarded");
        });
    }
}
