//! Reads whose places are remembered: whatever changes an image over a chain is seen at once, and a place that is being read is not
//! used again meanwhile.

use futures_util::future::{join, join_all};
use std::rc::Rc;
use varve_block::{Access, Device, Durability, Extent, KIB, ZeroOptions};
use varve_format::qcow2::Backing;
use varve_sim::{Random, SimDisk, World, caught_share, run_seeds, test_name};
use varve_target::qcow2::{Image, ImageDevice, InjectedBug, Layer, NewImage, Options, chain, create};

const SIZE: u64 = 256 * KIB;
const FILE: u64 = 2 << 20;

fn to_write(bug: Option<InjectedBug>) -> Options {
    Options { access: Access::ReadWrite, cache_bytes: 64 * KIB, bug, ..Options::default() }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

/// Some images, each over the last one, and what all of them show together.
struct Chain {
    world: World,
    random: Random,
    disks: Vec<SimDisk>,
    model: Vec<u8>,
}

impl Chain {
    fn new(seed: u64, layers: usize) -> Self {
        let world = World::new(seed);
        let random = world.random();
        let mut chain = Self { world, random, disks: Vec::new(), model: vec![0; index(SIZE)] };
        for layer in 0..layers {
            chain.add(layer);
        }
        chain
    }

    /// An image over the others, with something in it.
    fn add(&mut self, layer: usize) {
        let (disk, arena) = (SimDisk::new(FILE), self.world.arena());
        let extended_l2 = self.random.chance(1, 3);
        let cluster_size = if extended_l2 { 16 * KIB } else { *self.random.pick(&[512, 4096, 64 * KIB]) };
        let mut new = NewImage { cluster_size, extended_l2, ..NewImage::new(SIZE) };
        if layer > 0 {
            new.backing = Some(Backing { name: "below".to_owned(), format: Some("qcow2".to_owned()) });
        }
        self.world.run(create(disk.device(&self.world), arena, &new)).expect("created");
        self.disks.push(disk);
        let (image, device) = self.open(to_write(None));
        for _ in 0..6 {
            self.write(&device);
        }
        self.world.run(image.close()).expect("closed");
    }

    fn open_layer(&self, number: usize, options: Options) -> Image {
        let image = Image::open(self.disks[number].device(&self.world), self.world.arena(), options);
        self.world.run(image).expect("opened")
    }

    /// The uppermost image over the others.
    fn open(&self, options: Options) -> (Rc<Image>, Device) {
        let image = Rc::new(self.open_to_grow(options));
        (Rc::clone(&image), Device::new(ImageDevice::new(image)))
    }

    fn open_to_grow(&self, options: Options) -> Image {
        let top = self.disks.len() - 1;
        let below = (0..top).rev().map(|number| self.open_layer(number, Options::default()));
        let backing = chain(below.map(|image| Layer::Image(Rc::new(image))).collect(), &self.world.arena());
        self.open_layer(top, Options { backing, ..options })
    }

    fn extent(&mut self, length_max: u64) -> Extent {
        let sectors = SIZE / 512;
        let first = self.random.below(sectors);
        let count = 1 + self.random.below((length_max / 512).min(sectors - first));
        Extent::new(first * 512, count * 512)
    }

    fn set(&mut self, extent: Extent, value: u8) {
        self.model[index(extent.offset)..index(extent.end())].fill(value);
    }

    fn write(&mut self, device: &Device) {
        let (extent, value) = (self.extent(48 * KIB), self.random.between(1, 255) as u8);
        let data = self.world.arena().copy(&vec![value; index(extent.length)]);
        self.world.run(device.write(extent.offset, data, Durability::Volatile)).expect("written");
        self.set(extent, value);
    }

    fn content(&self, device: &Device, extent: Extent) -> Vec<u8> {
        let buffer = self.world.arena().take(index(extent.length));
        self.world.run(device.read(extent.offset, buffer)).expect("readable").to_vec()
    }

    fn compare(&mut self, device: &Device) {
        let extent = self.extent(24 * KIB);
        let expected = &self.model[index(extent.offset)..index(extent.end())];
        assert!(self.content(device, extent) == expected, "QCHAIN1: {extent:?}");
    }

    /// Changes the image, and reads between.
    fn exercise(&mut self, device: &Device, image: &Image) {
        for _ in 0..40 {
            match self.random.below(8) {
                0 | 1 => self.write(device),
                2 => {
                    let extent = self.extent(48 * KIB);
                    self.world.run(device.zero(extent, ZeroOptions::default())).expect("zeroed");
                    self.set(extent, 0);
                }
                3 => {
                    let extent = self.extent(96 * KIB);
                    let before = self.content(device, extent);
                    self.world.run(device.discard(extent)).expect("discarded");
                    let after = self.content(device, extent);
                    let fits = |(after, before): (&u8, &u8)| after == before || *after == 0;
                    assert!(after.iter().zip(&before).all(fits), "a discard leaves what was there, or zeros");
                    self.model[index(extent.offset)..index(extent.end())].copy_from_slice(&after);
                }
                4 => drop(self.world.run(device.flush()).expect("flushed")),
                5 => self.world.run(image.make_durable()).expect("committed"),
                _ => {}
            }
            self.compare(device);
            self.compare(device);
        }
    }
}

#[test]
fn changes_over_a_chain_are_seen_where_places_below_are_remembered() {
    run_seeds(test_name!("changes_over_a_chain_are_seen_where_places_below_are_remembered"), 150, |seed| {
        let mut images = Chain::new(seed, 1 + index(seed % 6));
        let (image, device) = images.open(to_write(None));
        images.exercise(&device, &image);
        images.world.run(image.close()).expect("closed");
        drop((image, device));
        // It grows, and what is gained is zeros whatever was remembered of the end.
        let mut image = images.open_to_grow(to_write(None));
        images.world.run(image.grow(SIZE + 64 * KIB)).expect("grown");
        let image = Rc::new(image);
        let device = Device::new(ImageDevice::new(Rc::clone(&image)));
        images.exercise(&device, &image);
        let gained = images.content(&device, Extent::new(SIZE, 64 * KIB));
        assert!(gained.iter().all(|byte| *byte == 0), "QGROW2");
    });
}

#[test]
#[should_panic(expected = "QCHAIN1")]
fn an_image_that_may_be_written_is_no_part_of_a_chain() {
    let images = Chain::new(1, 1);
    let image = images.open_layer(0, to_write(None));
    let _ = chain(vec![Layer::Image(Rc::new(image))], &images.world.arena());
}

/// Clusters are read while they are discarded and written again: each holds its own number, or zeros.
fn reading_what_is_freed(seed: u64, bug: Option<InjectedBug>) {
    let (world, disk) = (World::new(seed), SimDisk::new(FILE));
    let (mut random, arena) = (world.random(), world.arena());
    let cluster = 4096;
    let new = NewImage { cluster_size: cluster, ..NewImage::new(32 * cluster) };
    world.run(create(disk.device(&world), arena.clone(), &new)).expect("created");
    let image = world.run(Image::open(disk.device(&world), arena.clone(), to_write(bug))).expect("opened");
    let device = Device::new(ImageDevice::new(Rc::new(image)));
    let data = |number: u64| arena.copy(&vec![number as u8 + 1; index(cluster)]);
    let write = async |number: u64| {
        let written = device.write(number * cluster, data(number), Durability::Volatile).await;
        written.expect("written");
    };
    let read = async |number: u64| {
        let content = device.read(number * cluster, arena.take(index(cluster))).await.expect("readable");
        let own = |byte: &u8| *byte == 0 || *byte == number as u8 + 1;
        assert!(content.iter().all(own), "QWRITE2: cluster {number} shows another one's data");
    };
    let numbers: Vec<(u64, u64)> = (0..150).map(|_| (random.below(32), random.below(32))).collect();
    world.run(async {
        for number in 0..16 {
            write(number).await;
        }
        for (gone, written) in numbers {
            let readers = join_all((0..4).map(|_| read(gone)));
            let writer = async {
                device.discard(Extent::new(gone * cluster, cluster)).await.expect("discarded");
                device.flush().await.expect("flushed");
                write(written).await;
            };
            join(readers, writer).await;
        }
    });
}

#[test]
fn a_place_that_is_read_is_not_used_again_meanwhile() {
    run_seeds(test_name!("a_place_that_is_read_is_not_used_again_meanwhile"), 100, |seed| {
        reading_what_is_freed(seed, None);
    });
    let bug = InjectedBug::ReadUnguarded;
    caught_share("reads without an epoch", 100, 2, |seed| reading_what_is_freed(seed, Some(bug)));
}
