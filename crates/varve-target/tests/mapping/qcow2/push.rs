//! Images that give what they hold to what is below them, under clients, on disks that crash at any moment.

use std::cell::RefCell;
use std::rc::Rc;
use varve_block::{Access, Device, KIB};
use varve_format::qcow2::Backing;
use varve_sim::{
    Client, CrashAt, CrashKind, Mix, Oracle, Random, SharedOracle, SimDisk, World, caught_share, run_seeds,
    test_name,
};
use varve_target::qcow2::{Image, ImageDevice, InjectedBug, NewImage, OpenError, Options, create};

const FILE: u64 = 3 << 20;
const SIZE: u64 = 192 * KIB;

/// An image over a raw disk, or over another image.
struct History {
    below: SimDisk,
    below_is_image: bool,
    disk: SimDisk,
    oracle: SharedOracle,
    random: Random,
    bug: Option<InjectedBug>,
    seed: u64,
}

fn new_image(random: &mut Random, below: Option<&str>) -> NewImage {
    let extended_l2 = random.chance(1, 3);
    let cluster_size = if extended_l2 { 16 * KIB } else { *random.pick(&[512, 4 * KIB, 16 * KIB, 64 * KIB]) };
    let version = if extended_l2 { 3 } else { *random.pick(&[2, 3]) };
    let backing = below.map(|format| Backing { name: "below".to_owned(), format: Some(format.to_owned()) });
    NewImage { cluster_size, extended_l2, version, backing, ..NewImage::new(SIZE) }
}

impl History {
    fn new(seed: u64, bug: Option<InjectedBug>) -> Self {
        let world = World::new(seed);
        let mut random = world.random();
        let below_is_image = random.chance(1, 2);
        let below = SimDisk::new(if below_is_image { FILE } else { SIZE });
        let disk = SimDisk::new(FILE);
        let oracle = Rc::new(RefCell::new(Oracle::new(1, SIZE)));
        if below_is_image {
            let new = new_image(&mut random, None);
            world.run(create(below.device(&world), world.arena(), &new)).expect("created");
        }
        let new = new_image(&mut random, Some(if below_is_image { "qcow2" } else { "raw" }));
        world.run(create(disk.device(&world), world.arena(), &new)).expect("created");
        let history = Self { below, below_is_image, disk, oracle, random, bug, seed };
        history.fill(&world);
        history
    }

    /// Something is in what is below, and some of it is overwritten in the image.
    fn fill(&self, world: &World) {
        let mut random = world.random();
        let mix = Mix { zeros: 3, length_max: 24 * KIB, ..Mix::default() };
        world.run(async {
            let (lower, below) = self.open_below(world, Access::ReadWrite, None).await;
            let client = Client::new(below, world.arena(), Rc::clone(&self.oracle));
            client.exercise(&mix, 12, &mut random).await.expect("no faults");
            client.flush().await.expect("no faults");
            close(lower.as_ref()).await;
            let (image, _lower) = self.open(world, Options::default()).await;
            let client = self.client(world, &image);
            client.exercise(&mix, 12, &mut random).await.expect("no faults");
            client.flush().await.expect("no faults");
            image.close().await.expect("closed");
        });
    }

    async fn open_below(
        &self,
        world: &World,
        access: Access,
        bug: Option<InjectedBug>,
    ) -> (Option<Rc<Image>>, Device) {
        let device = self.below.device(world);
        if !self.below_is_image {
            device.flush().await.expect("no faults");
            return (None, device);
        }
        device.flush().await.expect("no faults");
        let options = Options { access, bug, ..Options::default() };
        let image = Rc::new(Image::open(device, world.arena(), options).await.expect("opened"));
        (Some(Rc::clone(&image)), Device::new(ImageDevice::new(image)))
    }

    async fn open(&self, world: &World, options: Options) -> (Rc<Image>, Option<Rc<Image>>) {
        let access = if options.pushes { Access::ReadWrite } else { Access::ReadOnly };
        let (lower, below) = self.open_below(world, access, None).await;
        let options = Options { access: Access::ReadWrite, backing: Some(below), bug: self.bug, ..options };
        let image = Image::open(self.disk.device(world), world.arena(), options).await;
        (Rc::new(image.expect("opened")), lower)
    }

    fn client(&self, world: &World, image: &Rc<Image>) -> Client {
        let device = Device::new(ImageDevice::new(Rc::clone(image)));
        Client::new(device, world.arena(), Rc::clone(&self.oracle))
    }

    /// One boot: clients work while the image gives away what it holds, or while it does not. Whether it holds nothing any more.
    fn boot(&mut self, number: u64) -> bool {
        let world = World::new(self.seed * 100 + number);
        let cache_bytes = *self.random.pick(&[4 * KIB, 1024 * KIB]);
        let pushes = number > 4 || self.random.chance(3, 4);
        let options = Options { cache_bytes, pushes, ..Options::default() };
        let (image, lower) = world.run(self.open(&world, options));
        let client = self.client(&world, &image);
        world.run(client.verify()).expect("QPUSH1");
        for image in lower.iter().chain([&image]) {
            let report = world.run(image.check()).expect("checked");
            assert_eq!(report.corruptions, 0, "{:?}", report.told);
        }
        if number < 5 {
            let kind = *self.random.pick(&[CrashKind::Power, CrashKind::Process]);
            world.schedule(CrashAt::Event(self.random.between(1, 400)), kind);
        }
        let mix = Mix { zeros: 3, discards: 6, length_max: 24 * KIB, overlaps: 50, ..Mix::default() };
        let mut choices = self.random.fork();
        let ran = world.run_until_crash(async {
            let push = async {
                let mut at = if pushes { 0 } else { SIZE };
                while at < SIZE {
                    at += image.push(at).await.expect("no faults").length;
                }
            };
            let clients = async { client.exercise(&mix, 40, &mut choices).await.expect("no faults") };
            futures_util::future::join(push, clients).await;
            client.verify().await.expect("QPUSH3");
            assert!(!pushes || image.holds_nothing().await.expect("no faults"), "QPUSH2");
            image.close().await.expect("closed");
            close(lower.as_ref().filter(|_| pushes)).await;
        });
        if ran.crashed() {
            self.oracle.borrow_mut().crashed();
            return false;
        }
        let flush = self.oracle.borrow_mut().flush_started();
        self.oracle.borrow_mut().flush_finished(flush);
        pushes
    }

    /// What lay below shows by itself what the image showed.
    fn verify_below(&self) {
        let world = World::new(self.seed * 100);
        world.run(async {
            let (_lower, below) = self.open_below(&world, Access::ReadWrite, None).await;
            Client::new(below, world.arena(), Rc::clone(&self.oracle)).verify().await.expect("QPUSH2");
        });
    }
}

async fn close(image: Option<&Rc<Image>>) {
    if let Some(image) = image {
        image.close().await.expect("closed");
    }
}

fn history(seed: u64, bug: Option<InjectedBug>) {
    let mut history = History::new(seed, bug);
    let done = (1..=5).position(|number| history.boot(number));
    assert!(done.is_some(), "it holds nothing in the end");
    history.verify_below();
}

#[test]
fn an_image_gives_what_it_holds_to_what_lies_below_it_under_clients_and_crashes() {
    let name = test_name!("an_image_gives_what_it_holds_to_what_lies_below_it_under_clients_and_crashes");
    run_seeds(name, 400, |seed| history(seed, None));
    for (name, bug) in [
        ("entries before what was given away", InjectedBug::EntriesBeforeBelow),
        ("clusters that are not held", InjectedBug::PushUnheld),
    ] {
        caught_share(name, 150, 2, |seed| history(seed, Some(bug)));
    }
}

#[test]
fn an_image_gives_nothing_to_what_cannot_take_it() {
    let world = World::steady(1);
    let disk = SimDisk::new(FILE);
    let new = NewImage {
        backing: Some(Backing { name: "below".to_owned(), format: Some("raw".to_owned()) }),
        ..NewImage::new(SIZE)
    };
    world.run(create(disk.device(&world), world.arena(), &new)).expect("created");
    let open = |backing: Option<Device>| {
        let options = Options { access: Access::ReadWrite, backing, pushes: true, ..Options::default() };
        world.run(Image::open(disk.device(&world), world.arena(), options)).map(drop)
    };
    assert!(matches!(open(None), Err(OpenError::Invalid(why)) if why.contains("no backing image")));
    let small = SimDisk::new(SIZE - 4 * KIB).device(&world);
    assert!(matches!(open(Some(small)), Err(OpenError::Invalid(why)) if why.contains("smaller")));
    open(Some(SimDisk::new(SIZE).device(&world))).expect("opened");
}
