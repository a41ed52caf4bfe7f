//! A simulated host: disks, sockets, and shards, all in one simulated world.
//!
//! What is on the disks and in the state directory outlives a crash; whatever else there is does not.

use super::files::{Entry, SimFiles, SimFilesRef, SimOpenDisk};
use super::mapper::{MAPPERS, MapperLink, Mappers};
use super::model::base_content;
use super::remote::{Imported, portal_of};
use super::watched::Watched;
use futures_channel::mpsc;
use futures_util::StreamExt;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use varve_block::host::ConnectError;
use varve_block::{Arena, Clock, Device, Extent, KIB, LocalFuture, Portal, Shape, Spawner, Stream};
use varve_format::qcow2::Backing;
use varve_sim::{DiskOptions as SimOptions, FaultBudget, FaultPlan, Oracle, Random, SimDisk};
use varve_target::qcow2::{NewImage, create, read_header};
use varve_volume::events::{EventReceiver, event_channel};
use varve_volume::world::{DiskRef, FileLink, FileWork, Listener, OpenDisk, Place, World};
use varve_volume::{ShardHandle, shard_channel};

/// The shards of a daemon.
const SHARDS: usize = 2;

/// The raw backing image of an image, if it has one.
pub(crate) fn base_of(image: &str) -> String {
    format!("{image}-base")
}

/// The image whose backing image a raw image is made to be.
pub(crate) fn image_over(base: &str) -> Option<&str> {
    base.strip_suffix("-base")
}

/// Listening sockets, by the texts of their places; each with the connections that wait.
type Sockets = RefCell<BTreeMap<String, mpsc::UnboundedSender<Stream>>>;

/// The host. It outlives crashes.
pub(crate) struct Host {
    pub(crate) world: varve_sim::World,
    pub(crate) files: Arc<SimFiles>,
    disks: RefCell<BTreeMap<u64, SimDisk>>,
    sockets: Sockets,
    pub(crate) mappers: Mappers,
    random: RefCell<Random>,
    block_size: u32,
    latency_max: Duration,
    /// Whether its disks clear extents at no cost.
    has_fast_zero: Cell<bool>,
}

impl Host {
    /// A host without disks in the world of `seed`; its disks take so long for a request at most.
    pub(crate) fn new(seed: u64, latency_max: Duration) -> Rc<Self> {
        let world = varve_sim::World::new(seed);
        let mut random = world.random();
        let block_size = *random.pick(&[512, 4096]);
        Rc::new(Self {
            files: Arc::default(),
            disks: RefCell::default(),
            sockets: RefCell::default(),
            mappers: Mappers::default(),
            random: RefCell::new(random),
            block_size,
            latency_max,
            has_fast_zero: Cell::new(true),
            world,
        })
    }

    fn disk(&self, entry: Entry) -> SimDisk {
        let new = || {
            SimDisk::with(SimOptions {
                block_size: self.block_size,
                latency_max: self.latency_max,
                fast_zero: self.has_fast_zero.get(),
                ..SimOptions::sized(entry.size)
            })
        };
        self.disks.borrow_mut().entry(entry.disk).or_insert_with(new).clone()
    }

    /// A disk with the bytes that the one at `path` has now.
    pub(crate) fn clone_disk(&self, path: &str, clone: &str) {
        let original = self.disk_at(path);
        let size = self.files.length(Path::new(path));
        let entry = self.files.table().add(Path::new(clone), size, size, false);
        self.disk(entry).poke(0, &original.peek(Extent::new(0, size)));
    }

    /// Disks that are not used yet write zeros where they are to be cleared.
    pub(crate) fn take_fast_zero(&self) {
        self.has_fast_zero.set(false);
    }

    /// The disk at `path`.
    pub(crate) fn disk_at(&self, path: &str) -> SimDisk {
        let entry = self.files.table().entries[Path::new(path)];
        self.disk(entry)
    }

    /// Lets requests to a disk fail by `plan`.
    pub(crate) fn set_faults(&self, path: &str, plan: FaultPlan) {
        if path.starts_with(MAPPERS) {
            return; // A mapper only comes and goes.
        }
        let disk = self.disk_at(path);
        disk.set_faults(plan, FaultBudget::unlimited());
        if plan == FaultPlan::default() {
            disk.repair();
        }
    }

    /// A disk or a mapper goes away, or comes back.
    pub(crate) fn set_gone(&self, path: &str, is_gone: bool) {
        if path.starts_with(MAPPERS) {
            return self.mappers.set_gone(Path::new(path), is_gone);
        }
        let disk = self.disk_at(path);
        if let Some(entry) = self.files.table().entries.get_mut(Path::new(path)) {
            entry.is_gone = is_gone;
        }
        if is_gone { disk.vanish() } else { disk.reappear() }
    }

    /// The file of a disk is cut to `length` bytes, and is not there as long as it is short.
    pub(crate) fn cut_off(&self, path: &str, length: u64) {
        if let Some(entry) = self.files.table().entries.get_mut(Path::new(path)) {
            entry.cut = Some(length);
            entry.cuts += 1;
        }
        self.set_gone(path, true);
    }

    /// The file of a disk is cut to nothing, and cannot be opened as long as it is short.
    pub(crate) fn shrink(&self, path: &str) {
        if path.starts_with(MAPPERS) {
            return self.set_gone(path, true);
        }
        if let Some(entry) = self.files.table().entries.get_mut(Path::new(path)) {
            (entry.cuts, entry.is_gone) = (entry.cuts + 1, true);
        }
    }

    /// The file of a disk has so many bytes at least.
    pub(crate) fn lengthen(&self, path: &str, bytes: u64) {
        if self.files.length(Path::new(path)) < bytes {
            self.set_length(path, bytes);
        }
    }

    /// Gives the file of a disk another length. What is cut off is lost.
    pub(crate) fn set_length(&self, path: &str, bytes: u64) {
        let path = Path::new(path);
        let entry = self.files.table().entries.get(path).copied();
        if let Some(entry) = entry {
            self.files.set_length(entry.disk, bytes);
            self.clear_cut(path);
        }
    }

    /// Makes an image in clusters of so many bytes if it is a qcow2 one: of a disk of zeros, or over a raw image with the base
    /// content of the volume of a number.
    pub(crate) async fn make_image(
        &self,
        path: &str,
        size: u64,
        cluster_size: Option<u64>,
        below: Option<u16>,
    ) {
        let backing = below.map(|number| {
            self.make_base(&base_of(path), size, number);
            Backing { name: base_of(path), format: Some("raw".to_owned()) }
        });
        match cluster_size {
            None => drop(self.files.table().add(Path::new(path), size, size, true)),
            Some(cluster_size) => {
                self.make_qcow2(path, &NewImage { cluster_size, backing, ..NewImage::new(size) }).await;
            }
        }
    }

    /// Makes a qcow2 image.
    pub(crate) async fn make_qcow2(&self, path: &str, image: &NewImage) {
        let path = Path::new(path);
        let room =
            image.room().expect("a size that is possible").next_multiple_of(u64::from(self.block_size));
        let entry = self.files.table().add(path, room, room, true);
        let device = self.disk(entry).device(&self.world);
        let end = create(device.clone(), self.world.arena(), image).await.expect("a sound disk");
        device.flush().await.expect("a sound disk");
        self.files.set_length(entry.disk, end);
    }

    /// Makes the raw backing image of an image, in whole blocks.
    fn make_base(&self, path: &str, size: u64, number: u16) {
        let whole = size.next_multiple_of(4 * KIB);
        let disk = self.disk(self.files.table().add(Path::new(path), whole, whole, true));
        let mut oracle = Oracle::new(number, size);
        for write in base_content(&mut oracle) {
            disk.poke(write.extent.offset, &Oracle::data(&self.world.arena(), &write));
        }
    }

    /// Whether an image has a backing image.
    pub(crate) async fn is_backed(&self, image: &str) -> bool {
        let header = read_header(self.disk_at(image).device(&self.world), self.world.arena()).await;
        header.is_ok_and(|header| header.backing.is_some())
    }

    /// Nothing needs the file at `path` any more, so it may be anything.
    pub(crate) fn spoil(&self, path: &str) {
        let entry = self.files.table().entries.get(Path::new(path)).copied();
        if let Some(entry) = entry {
            self.disk(entry).poke(0, &vec![0xA5; usize::try_from(entry.length).expect("an image is small")]);
        }
    }

    /// What was cut off a file reads as zeros.
    fn clear_cut(&self, path: &Path) {
        let cut = {
            let mut table = self.files.table();
            table.entries.get_mut(path).and_then(|entry| Some((entry.cut.take()?, *entry)))
        };
        if let Some((from, entry)) = cut {
            self.disk(entry).clear(Extent::new(from, entry.size - from));
        }
    }

    /// A daemon's shards, and what their volumes tell.
    pub(crate) fn begin_shards(self: &Rc<Self>) -> (Vec<ShardHandle>, EventReceiver) {
        self.sockets.borrow_mut().clear();
        let (sender, events) = event_channel();
        let begin = |index| {
            let (handle, inbox) = shard_channel(index);
            let world = SimShard { index, host: Rc::clone(self) };
            self.world.spawner().spawn(inbox.serve(Rc::new(world), sender.clone()));
            handle
        };
        ((0..SHARDS).map(begin).collect(), events)
    }

    /// Lets some time pass, as a call of the system does.
    pub(crate) async fn delay(&self) {
        let micros = self.random.borrow_mut().below(300);
        self.world.clock().sleep(Duration::from_micros(micros)).await;
    }
}

/// One shard of the host.
pub(crate) struct SimShard {
    pub(crate) index: usize,
    pub(crate) host: Rc<Host>,
}

impl SimShard {
    fn work(&self, work: FileWork) {
        let host = Rc::clone(&self.host);
        self.spawner().spawn(async move {
            host.delay().await;
            work(&SimFilesRef(Arc::clone(&host.files)));
        });
    }
}

impl World for SimShard {
    fn index(&self) -> usize {
        self.index
    }

    fn clock(&self) -> Clock {
        self.host.world.clock()
    }

    fn spawner(&self) -> Spawner {
        self.host.world.spawner()
    }

    fn arena(&self) -> Arena {
        self.host.world.arena()
    }

    fn new_id(&self) -> Uuid {
        let mut random = self.host.random.borrow_mut();
        Uuid::from_u64_pair(random.below(u64::MAX), random.below(u64::MAX))
    }

    fn device(&self, disk: &DiskRef) -> Device {
        let file = Arc::clone(disk).into_any().downcast::<SimOpenDisk>().expect("a disk of this world");
        self.host.clear_cut(&file.path);
        let device = self.host.disk(file.entry).device(&self.host.world);
        let shape = Shape { size: file.size(), ..device.shape() };
        Device::new(Watched { device, shape, file })
    }

    fn disk_of(&self, opening: Arc<dyn Any + Send + Sync>) -> DiskRef {
        opening.downcast::<SimOpenDisk>().expect("a disk of this world")
    }

    fn portal(&self, device: &Device) -> Portal {
        portal_of(device, &self.spawner())
    }

    fn import(&self, portal: &Portal) -> Device {
        Device::new(Imported { portal: portal.clone() })
    }

    fn listen(&self, place: &Place) -> io::Result<Box<dyn Listener>> {
        let (place, file) = match place {
            Place::Unix(path, _) => (path.display().to_string(), Some(path)),
            Place::Tcp(address) => (address.to_string(), None),
        };
        let mut sockets = self.host.sockets.borrow_mut();
        let is_there = file.is_none_or(|path| self.host.files.table().sockets.contains_key(path));
        if is_there && sockets.get(&place).is_some_and(|socket| !socket.is_closed()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        if let Some(path) = file {
            self.host.files.make_socket(path)?;
        }
        let (sender, connections) = mpsc::unbounded();
        sockets.insert(place, sender);
        Ok(Box::new(SimListener { connections: RefCell::new(connections) }))
    }

    fn connect<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, Result<Box<dyn FileLink>, ConnectError>> {
        Box::pin(async move {
            self.host.delay().await;
            let is_mapper = path.starts_with(MAPPERS) && !self.host.mappers.is_gone(path);
            let random = self.host.random.borrow_mut().fork();
            match is_mapper {
                true => Ok(Box::new(MapperLink::new(&self.host, path, random)) as Box<dyn FileLink>),
                false => Err(ConnectError::NobodyListens(path.to_owned())),
            }
        })
    }

    fn is_draining(&self) -> bool {
        false
    }

    fn work_at(&self, _: &Path, work: FileWork) {
        self.work(work);
    }

    fn work_alone(&self, work: FileWork) -> io::Result<()> {
        self.work(work);
        Ok(())
    }
}

struct SimListener {
    connections: RefCell<mpsc::UnboundedReceiver<Stream>>,
}

impl Listener for SimListener {
    fn accept(&self) -> LocalFuture<'_, io::Result<Stream>> {
        Box::pin(std::future::poll_fn(|context| {
            self.connections
                .borrow_mut()
                .poll_next_unpin(context)
                .map(|next| next.ok_or_else(|| io::ErrorKind::NotConnected.into()))
        }))
    }
}
