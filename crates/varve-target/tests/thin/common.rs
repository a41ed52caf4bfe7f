//! What tests of thin pools begin and end with: a pool, a volume, what is written and read, and whether the books are right.

use std::rc::Rc;
use std::time::Duration;
use varve_block::{
    Arena, BlockDevice, Checked, Clock, Completion, Device, Durability, Extent, Io, IoError, Shape,
};
use varve_format::pdata::Block;
use varve_format::thin::Superblock;
use varve_sim::{SimDisk, World};
use varve_target::thin::{NewVolume, Pool, PoolError, PoolFormat, PoolOptions, Uuid};

/// The id of every pool.
pub(crate) const ID: Uuid = Uuid::from_u128(7 << 64);

pub(crate) async fn fresh(device: Device, world: &World) -> Rc<Pool> {
    Pool::format(&device, &world.arena(), PoolFormat::new(ID)).await.expect("large enough");
    open(device, world).await.expect("just formatted")
}

pub(crate) async fn open(device: Device, world: &World) -> Result<Rc<Pool>, PoolError> {
    Pool::open(device, world.arena(), world.clock(), PoolOptions::default()).await
}

pub(crate) async fn volume(pool: &Rc<Pool>, name: &str, bytes: u64) -> (u64, Device) {
    let new = NewVolume { name: name.into(), bytes, origin: None };
    let id = pool.create(&new).await.expect("there is space");
    (id, pool.volume(id).expect("just created"))
}

pub(crate) async fn write(device: &Device, arena: &Arena, extent: Extent, byte: u8) -> Result<(), IoError> {
    let mut data = arena.take(usize::try_from(extent.length).expect("small"));
    data.fill(byte);
    device.write(extent.offset, data.freeze(), Durability::Volatile).await.map(drop)
}

pub(crate) async fn read(device: &Device, arena: &Arena, extent: Extent) -> Vec<u8> {
    let buffer = arena.take(usize::try_from(extent.length).expect("small"));
    device.read(extent.offset, buffer).await.expect("no faults").to_vec()
}

/// The newer of the two superblocks of the pool on `disk`.
pub(crate) fn newest_superblock(disk: &SimDisk) -> Superblock {
    let slot = |address: Block| Superblock::decode(&disk.peek(address.extent()), address);
    [0, 1].map(Block::new).map(slot).into_iter().flatten().max_by_key(|one| one.number).expect("a pool")
}

/// The pool is as its books say.
pub(crate) async fn sound(pool: &Pool) {
    let report = pool.check().await.expect("no faults");
    assert!(report.is_sound(), "{report:#?}");
}

/// Everything is quiescent: what is being removed is gone, and its space is free.
pub(crate) async fn remove_all(pool: &Pool) {
    while pool.remove_some(100).await.expect("no faults").volumes > 0 {}
    pool.checkpoint().await.expect("no faults");
    pool.checkpoint().await.expect("no faults");
}

/// A disk that answers discards late.
struct SlowToTrim {
    below: Device,
    clock: Clock,
    delay: Duration,
}

impl BlockDevice for SlowToTrim {
    fn shape(&self) -> Shape {
        self.below.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            io @ Io::Discard { .. } => Completion::pending(async move {
                self.clock.sleep(self.delay).await;
                self.below.submit(io).await
            }),
            io => self.below.submit(io),
        }
    }
}

/// `below`, which answers discards so many seconds late.
pub(crate) fn slow_to_trim(below: Device, world: &World, seconds: u64) -> Device {
    Device::new(SlowToTrim { below, clock: world.clock(), delay: Duration::from_secs(seconds) })
}
