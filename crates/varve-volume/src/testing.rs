//! A shard of a simulated world for tests of what lives on one. It has time and tasks, one small disk, and no sockets.

use crate::world::{DiskRef, FileLink, FileWork, Listener, OpenDisk, Place, World};
use crate::{ShardContext, ShardHandle, event_channel, shard_channel};
use std::any::Any;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_block::host::{ConnectError, DiskCounters, DiskState, FileLook, Medium, MediumExtent, OpenError};
use varve_block::{Arena, Clock, Device, LocalFuture, Portal, Shape, Spawner};

struct TestWorld(Rc<varve_sim::World>, varve_sim::SimDisk);

/// The disk, open.
pub(crate) struct TestDisk;

const DISK_SIZE: u64 = 64 << 10;

impl OpenDisk for TestDisk {
    fn path(&self) -> &Path {
        Path::new("/disk")
    }

    fn medium(&self) -> MediumExtent {
        MediumExtent::whole(Medium::Device(0))
    }

    fn shape(&self) -> Shape {
        Shape::new(DISK_SIZE, 512)
    }

    fn sectors(&self) -> (u32, u32) {
        (512, 512)
    }

    fn size(&self) -> u64 {
        DISK_SIZE
    }

    fn length(&self) -> u64 {
        DISK_SIZE
    }

    fn set_length(&self, _: u64) -> Result<(), OpenError> {
        unreachable!("it is no image")
    }

    fn state(&self) -> DiskState {
        DiskState::InUse
    }

    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    fn counters(&self) -> DiskCounters {
        DiskCounters::default()
    }

    fn look(&self, _: &Path) -> FileLook {
        FileLook::default()
    }

    fn has_abandoned(&self) -> bool {
        false
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl World for TestWorld {
    fn index(&self) -> usize {
        0
    }

    fn clock(&self) -> Clock {
        self.0.clock()
    }

    fn spawner(&self) -> Spawner {
        self.0.spawner()
    }

    fn arena(&self) -> Arena {
        self.0.arena()
    }

    fn new_id(&self) -> Uuid {
        Uuid::nil()
    }

    fn device(&self, _: &DiskRef) -> Device {
        self.1.device(&self.0)
    }

    fn disk_of(&self, opening: Arc<dyn Any + Send + Sync>) -> DiskRef {
        opening.downcast::<TestDisk>().expect("a disk of this world")
    }

    fn portal(&self, _: &Device) -> Portal {
        unreachable!("there is no other shard")
    }

    fn import(&self, _: &Portal) -> Device {
        unreachable!("there is no other shard")
    }

    fn listen(&self, _: &Place) -> io::Result<Box<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connect<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, Result<Box<dyn FileLink>, ConnectError>> {
        Box::pin(async { Err(ConnectError::NobodyListens(path.to_owned())) })
    }

    fn is_draining(&self) -> bool {
        false
    }

    fn work_at(&self, _: &Path, _: FileWork) {}

    fn work_alone(&self, _: FileWork) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A world with one shard, and its handle.
pub(crate) fn shard() -> (Rc<varve_sim::World>, ShardHandle) {
    let world = Rc::new(varve_sim::World::new(1));
    let ((handle, inbox), (sender, _)) = (shard_channel(0), event_channel());
    world.spawner().spawn(
        inbox.serve(Rc::new(TestWorld(Rc::clone(&world), varve_sim::SimDisk::new(DISK_SIZE))), sender),
    );
    (world, handle)
}

/// Does `work` on a shard of its own.
pub(crate) fn on_a_shard<T: Send + 'static, W: Future<Output = T> + 'static>(
    work: impl FnOnce(ShardContext) -> W + Send + 'static,
) -> T {
    let (world, handle) = shard();
    world.run(handle.run(work)).expect("it runs")
}
