//! Images in a file system that fills up: what was acknowledged is there, and the image goes on as soon as there is room.

use crate::qcow2::files::arena;
use futures_executor::block_on;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use varve_block::{
    Access, BlockDevice, Buffer, Checked, Completion, Device, Durability, Extent, Io, IoError, KIB, Shape,
    ZeroOptions,
};
use varve_format::qcow2::RefcountWidth;
use varve_sim::Random;
use varve_target::qcow2::{Image, ImageDevice, NewImage, OpenError, Options, create};

const BLOCK: u64 = 4 * KIB;

/// A sparse file in a file system that has room for so many blocks of it.
struct Sparse {
    bytes: RefCell<Vec<u8>>,
    held: RefCell<BTreeSet<u64>>,
    blocks_max: Cell<usize>,
    /// Whether what is there is written elsewhere, as where snapshots keep it.
    copies: Cell<bool>,
    /// Whether its disk fails.
    fails: Cell<bool>,
}

impl Sparse {
    fn new(size: u64) -> Rc<Self> {
        let bytes = vec![0; usize::try_from(size).expect("small")];
        let (held, blocks_max) = (RefCell::default(), Cell::new(usize::MAX));
        let (copies, fails) = (Cell::new(false), Cell::new(false));
        Rc::new(Self { bytes: RefCell::new(bytes), held, blocks_max, copies, fails })
    }

    fn blocks(extent: Extent) -> impl Iterator<Item = u64> {
        extent.align_out(BLOCK).pieces(BLOCK).map(|(block, _)| block)
    }

    fn part(extent: Extent) -> std::ops::Range<usize> {
        let at = |offset: u64| usize::try_from(offset).expect("small");
        at(extent.offset)..at(extent.end())
    }

    /// Takes the blocks of `extent`, if there are as many.
    fn take(&self, extent: Extent) -> Result<(), IoError> {
        if self.fails.get() {
            return Err(IoError::Medium);
        }
        let mut held = self.held.borrow_mut();
        let new: Vec<u64> = Self::blocks(extent).filter(|block| !held.contains(block)).collect();
        let full = held.len() >= self.blocks_max.get() && self.copies.get();
        if full || (!new.is_empty() && held.len() + new.len() > self.blocks_max.get()) {
            return Err(IoError::NoSpace);
        }
        held.extend(new);
        Ok(())
    }
}

impl BlockDevice for Sparse {
    fn shape(&self) -> Shape {
        Shape { discard: true, ..Shape::new(self.bytes.borrow().len() as u64, 512) }
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let outcome = match io.into_io() {
            Io::Read { offset, mut buffer } => {
                let extent = Extent::new(offset, buffer.len() as u64);
                buffer.copy_from_slice(&self.bytes.borrow()[Self::part(extent)]);
                return Completion::ready(Ok(buffer));
            }
            Io::Write { offset, data, .. } => {
                let extent = Extent::new(offset, data.len() as u64);
                self.take(extent).map(|()| self.bytes.borrow_mut()[Self::part(extent)].copy_from_slice(&data))
            }
            Io::Zero { extent, .. } => {
                self.take(extent).map(|()| self.bytes.borrow_mut()[Self::part(extent)].fill(0))
            }
            Io::Discard { extent } => {
                self.bytes.borrow_mut()[Self::part(extent)].fill(0);
                let whole = extent.align_in(BLOCK);
                let mut held = self.held.borrow_mut();
                Self::blocks(whole).for_each(|block| {
                    held.remove(&block);
                });
                Ok(())
            }
            Io::Flush => Ok(()),
        };
        Completion::ready(outcome.map(|()| Buffer::empty()))
    }
}

struct Disk {
    file: Rc<Sparse>,
    image: Rc<Image>,
    device: Device,
    cluster: u64,
    /// Of each cluster the byte that was acknowledged.
    model: Vec<u8>,
}

impl Disk {
    fn new(clusters: u64, cluster: u64) -> Self {
        let refcount_width = RefcountWidth::of_bits(64).expect("a width");
        let new = NewImage { cluster_size: cluster, refcount_width, ..NewImage::new(clusters * cluster) };
        let file = Sparse::new(new.room().expect("valid"));
        let end = block_on(create(Device::from_rc(file.clone()), arena(), &new)).expect("created");
        let (image, device) = Self::open(&file, Some(end), Access::ReadWrite);
        Self { file, image, device, cluster, model: vec![0; usize::try_from(clusters).expect("few")] }
    }

    fn open(file: &Rc<Sparse>, file_end: Option<u64>, access: Access) -> (Rc<Image>, Device) {
        let options = Options { access, file_end, cache_bytes: 64 * KIB, ..Options::default() };
        let image = block_on(Image::open(Device::from_rc(file.clone()), arena(), options)).expect("opened");
        let image = Rc::new(image);
        (Rc::clone(&image), Device::new(ImageDevice::new(image)))
    }

    fn write(&mut self, cluster: usize, byte: u8) -> Result<(), IoError> {
        let data = arena().copy(&vec![byte; usize::try_from(self.cluster).expect("small")]);
        block_on(self.device.write(cluster as u64 * self.cluster, data, Durability::Volatile))?;
        self.model[cluster] = byte;
        Ok(())
    }

    fn discard(&mut self, cluster: usize) -> Result<(), IoError> {
        block_on(self.device.discard(Extent::new(cluster as u64 * self.cluster, self.cluster)))?;
        self.model[cluster] = 0;
        Ok(())
    }

    fn flush(&self) -> Result<(), IoError> {
        block_on(self.device.flush()).map(drop)
    }

    /// What was acknowledged is read, of this image, or of one that is opened where the power has failed.
    fn compare(&self, device: &Device) {
        for (cluster, byte) in self.model.iter().enumerate() {
            let length = usize::try_from(self.cluster).expect("small");
            let read =
                block_on(device.read(cluster as u64 * self.cluster, arena().take(length))).expect("read");
            assert!(read.iter().all(|read| read == byte), "cluster {cluster} is not {byte}");
        }
    }

    fn compare_anew(&self) {
        let (image, device) = Self::open(&self.file, None, Access::ReadOnly);
        let report = block_on(image.check()).expect("checked");
        assert_eq!(report.corruptions, 0, "{:?}", report.told);
        self.compare(&device);
    }
}

#[test]
fn an_image_in_a_full_file_system_loses_nothing_and_trims_make_room() {
    // So many clusters that entries lie in several tables, and counts in several blocks.
    let mut disk = Disk::new(20_000, 16 * KIB);
    let mut random = Random::new(1);
    for _ in 0..40 {
        disk.write(random.index(20_000), 1).expect("there is room");
    }
    disk.flush().expect("there is room");
    disk.file.blocks_max.set(disk.file.held.borrow().len() + 50);
    let mut refused = Vec::new();
    for _ in 0..60 {
        let cluster = random.index(20_000);
        if disk.write(cluster, 2).is_err_and(|error| error == IoError::NoSpace) {
            refused.push(cluster);
        }
    }
    assert!(refused.len() > 30, "it is full");
    assert_eq!(disk.image.failure(), None);
    let held: Vec<usize> = (0..20_000).filter(|cluster| disk.model[*cluster] > 0).collect();
    for cluster in &held[..10] {
        disk.write(*cluster, 3).expect("what is there is written over");
    }
    disk.compare(&disk.device);
    disk.flush().expect("QCOMMIT4");
    disk.compare_anew();
    for cluster in &held[10..40] {
        disk.discard(*cluster).expect("a trim needs no room");
    }
    disk.flush().expect("QCOMMIT4");
    disk.flush().expect("what was freed is there");
    for cluster in &refused[..10] {
        disk.write(*cluster, 4).expect("the trims have made room");
    }
    disk.flush().expect("QCOMMIT4");
    disk.compare_anew();
}

#[test]
fn a_commit_without_room_is_done_again_when_there_is_some() {
    // A block of counts is for 512 clusters: the image needs more of them, and with them entries of its table.
    let mut disk = Disk::new(2_000, 4 * KIB);
    let mut random = Random::new(2);
    for round in 1..=6_u8 {
        for _ in 0..150 {
            disk.write(random.index(2_000), round).expect("there is room");
            if random.chance(1, 4) {
                disk.discard(random.index(2_000)).expect("there is room");
            }
        }
        // All that is written over needs room now, and there is none.
        disk.file.copies.set(true);
        disk.file.blocks_max.set(0);
        assert_eq!(disk.flush(), Err(IoError::NoSpace));
        assert_eq!(disk.image.failure(), None, "QCOMMIT3: it goes on");
        disk.compare(&disk.device);
        assert_eq!(disk.flush(), Err(IoError::NoSpace));
        disk.file.blocks_max.set(usize::MAX);
        disk.file.copies.set(false);
        disk.flush().expect("there is room again");
        disk.compare_anew();
    }
    block_on(disk.image.close()).expect("closed");
    let (image, _) = Disk::open(&disk.file, None, Access::ReadOnly);
    let report = block_on(image.check()).expect("checked");
    assert_eq!((report.corruptions, report.leaks), (0, 0), "{:?}", report.told);
}

#[test]
fn an_image_of_which_a_commit_has_failed_takes_no_change_any_more() {
    let mut disk = Disk::new(100, 16 * KIB);
    disk.write(1, 1).expect("a good disk");
    disk.file.fails.set(true);
    assert_eq!(disk.flush(), Err(IoError::Medium));
    disk.file.fails.set(false);
    assert_eq!(disk.image.failure(), Some(IoError::Medium), "QCOMMIT3");
    let zeroed = block_on(disk.device.zero(Extent::new(0, 64 * KIB), ZeroOptions::default()));
    assert_eq!(zeroed.map(drop), Err(IoError::Medium), "QCOMMIT3");
    for refused in [disk.write(1, 2), disk.discard(1), disk.flush()] {
        assert_eq!(refused, Err(IoError::Medium), "QCOMMIT3");
    }
    disk.compare(&disk.device);
}

#[test]
fn zeros_that_hold_space_give_it_back_when_they_are_discarded() {
    let mut disk = Disk::new(20_000, 16 * KIB);
    // The first table of entries is for 2,048 clusters.
    for cluster in [1, 3_000, 15_000] {
        disk.write(cluster, 1).expect("there is room");
        disk.flush().expect("there is room");
        let extent = Extent::new(cluster as u64 * disk.cluster, disk.cluster);
        let holds = ZeroOptions { unmap: false, ..ZeroOptions::default() };
        block_on(disk.device.zero(extent, holds)).expect("there is room");
        disk.flush().expect("there is room");
        let held = disk.file.held.borrow().len();
        disk.discard(cluster).expect("a trim needs no room");
        disk.flush().expect("QCOMMIT4");
        disk.flush().expect("what was freed is there");
        let given = held - disk.file.held.borrow().len();
        assert_eq!(given as u64, disk.cluster / BLOCK, "cluster {cluster}");
        disk.compare_anew();
    }
}

#[test]
fn an_image_is_not_begun_where_its_tables_have_no_room() {
    // The header has a cluster, the first table two.
    let new = NewImage { cluster_size: 512, ..NewImage::new(4 << 20) };
    let file = Sparse::new(1024);
    let made = block_on(create(Device::from_rc(file.clone()), arena(), &new));
    assert_eq!(made, Err(OpenError::Io(IoError::NoSpace)));
    assert!(file.held.borrow().is_empty(), "nothing was written");
}
