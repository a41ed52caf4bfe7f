//! A simulated host: files that are disks, sockets, and shards, all in one simulated world.
//!
//! What is on the disks and in the state directory outlives a crash; whatever else there is does not.

use super::mapper::{MAPPERS, MapperLink, Mappers};
use super::model::base_content;
use super::remote::{Imported, portal_of};
use super::watched::Watched;
use crate::host::remembered::Remembered;
use futures_channel::mpsc;
use futures_util::StreamExt;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use uuid::Uuid;
use varve_block::host::{
    ConnectError, DiskCounters, DiskOptions, DiskPlacement, DiskState, FileIdentity, FileLook, Medium,
    MediumExtent, OpenError,
};
use varve_block::{Arena, Clock, Device, Extent, LocalFuture, Portal, Shape, Spawner, Stream};
use varve_export::fuse::{FuseError, FuseOptions};
use varve_format::qcow2::Backing;
use varve_sim::{DiskOptions as SimOptions, FaultBudget, FaultPlan, Oracle, Random, SimDisk};
use varve_target::qcow2::{NewImage, create, read_header};
use varve_volume::events::{EventReceiver, event_channel};
use varve_volume::world::{
    ArchiveEntry, DiskRef, FileDoor, FileLink, FileWork, Files, Listener, OpenDisk, OpenImage, Place, World,
};
use varve_volume::{ShardHandle, shard_channel};

/// The shards of a daemon.
const SHARDS: usize = 2;

/// A file that is a disk, or holds an image of one.
#[derive(Clone, Copy)]
struct Entry {
    disk: u64,
    /// By which way it is reached, of several that the host cannot tell apart from other disks.
    way: u64,
    /// Bytes that it may have at most.
    size: u64,
    /// Bytes that it has.
    length: u64,
    /// Since it was used last it was as short as this: what was behind is zeros.
    cut: Option<u64>,
    /// How often part of it was cut off while it was in use.
    cuts: u64,
    is_image: bool,
    /// Whether it cannot be opened now.
    is_gone: bool,
}

impl Entry {
    /// What the host tells disks apart by.
    fn key(&self) -> (u64, u64) {
        (self.disk, self.way)
    }

    fn medium(&self) -> MediumExtent {
        MediumExtent::whole(Medium::File(FileIdentity { device: self.way, inode: self.disk }))
    }
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<PathBuf, Entry>,
    /// Files that were deleted while they are open, by the names that they had.
    deleted: BTreeMap<PathBuf, Entry>,
    last_disk: u64,
    /// Processes that have ended.
    ended: u64,
    /// Disks that the process that runs has locked, and by which way.
    locked: BTreeSet<(u64, u64)>,
    /// What the state directory holds.
    remembered: Option<String>,
    archived: Vec<ArchiveEntry>,
    is_archive_full: bool,
    /// The files of listening sockets, each with a number of its own.
    sockets: BTreeMap<PathBuf, u64>,
    last_socket: u64,
    /// Folders that are not there.
    lost_folders: BTreeSet<PathBuf>,
    /// Bytes that the file system has left, if it has few.
    room: Option<u64>,
}

/// The files of the host.
#[derive(Default)]
pub(crate) struct SimFiles(Mutex<Table>);

impl SimFiles {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What the state directory holds.
    pub(crate) fn remembered(&self) -> Remembered {
        let text = self.table().remembered.clone();
        text.map_or_else(Remembered::default, |text| Remembered::parse(&text).expect("what was saved"))
    }

    /// What was archived of a group, the newest last.
    pub(crate) fn archived(&self, group: Uuid) -> Vec<ArchiveEntry> {
        self.table().archived.iter().filter(|entry| entry.group == group).cloned().collect()
    }

    /// Lets the archive be written no more, or again.
    pub(crate) fn set_archive_full(&self, is_full: bool) {
        self.table().is_archive_full = is_full;
    }

    /// The state directory is lost.
    pub(crate) fn lose_state(&self) {
        let mut table = self.table();
        (table.remembered, table.archived) = (None, Vec::new());
    }

    /// Each of two disks is found where the other one was.
    pub(crate) fn exchange(&self, one: &Path, other: &Path) {
        let mut table = self.table();
        if let (Some(first), Some(second)) =
            (table.entries.get(one).copied(), table.entries.get(other).copied())
        {
            table.entries.insert(one.to_owned(), second);
            table.entries.insert(other.to_owned(), first);
        }
    }

    /// A file has another name.
    pub(crate) fn rename(&self, old: &str, new: &str) {
        let mut table = self.table();
        let entry = table.entries.remove(Path::new(old)).expect("it is there");
        table.entries.insert(new.into(), entry);
    }

    /// A disk is found at another path, too; `is_known` says whether the host knows that it is the same one.
    pub(crate) fn link(&self, disk: &str, path: &str, is_known: bool) {
        let mut table = self.table();
        let entry = table.entries[Path::new(disk)];
        let way = if is_known { entry.way } else { entry.way + 1 };
        table.entries.insert(path.into(), Entry { way, ..entry });
    }

    /// The process has ended: the kernel takes its locks away.
    pub(crate) fn process_ended(&self) {
        let mut table = self.table();
        table.ended += 1;
        table.locked.clear();
        table.deleted.clear();
    }

    /// Paths of all disks that are there.
    pub(crate) fn disks(&self) -> Vec<String> {
        let table = self.table();
        let there = table.entries.iter().filter(|(_, entry)| !entry.is_gone && !entry.is_image);
        there.map(|(path, _)| path.display().to_string()).collect()
    }

    /// A folder with sockets goes, or an empty one comes.
    pub(crate) fn set_folder(&self, folder: &Path, is_there: bool) {
        let mut table = self.table();
        table.sockets.retain(|path, _| path.parent() != Some(folder));
        match is_there {
            true => drop(table.lost_folders.remove(folder)),
            false => drop(table.lost_folders.insert(folder.to_owned())),
        }
    }

    /// A socket's file is deleted.
    pub(crate) fn delete_socket(&self, path: &Path) {
        assert!(self.table().sockets.remove(path).is_some(), "it is there");
    }

    /// Whether there is a socket at `path`.
    pub(crate) fn has_socket(&self, path: &Path) -> bool {
        self.table().sockets.contains_key(path)
    }

    /// A file that is open is deleted.
    pub(crate) fn delete(&self, path: &Path) {
        let mut table = self.table();
        let entry = table.entries.remove(path).expect("it is there");
        table.deleted.insert(path.to_owned(), entry);
    }

    /// A file that was deleted and is open has its name again.
    pub(crate) fn restore(&self, path: &Path) {
        let mut table = self.table();
        let entry = table.deleted.remove(path).expect("it is open");
        table.entries.insert(path.to_owned(), entry);
    }

    /// Another file comes into being.
    pub(crate) fn make(&self, path: &Path, length: u64) {
        self.table().add(path, length, length, false);
    }

    /// The file system has so many bytes left; none: enough.
    pub(crate) fn set_room(&self, room: Option<u64>) {
        self.table().room = room;
    }

    fn make_socket(&self, path: &Path) -> io::Result<()> {
        let mut table = self.table();
        if path.parent().is_some_and(|folder| table.lost_folders.contains(folder)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        table.last_socket += 1;
        let number = table.last_socket;
        table.sockets.insert(path.to_owned(), number);
        Ok(())
    }

    /// Bytes of a file.
    pub(crate) fn length(&self, path: &Path) -> u64 {
        self.table().entries.get(path).map_or(0, |entry| entry.length)
    }

    /// Bytes of an open file, whatever its name is now.
    fn length_of(&self, open: Entry) -> u64 {
        let table = self.table();
        let found = table.files().find(|entry| entry.disk == open.disk);
        found.map_or(0, |entry| entry.length)
    }

    /// Part of an open file was cut off since.
    fn is_cut_off(&self, open: Entry) -> bool {
        self.table().files().any(|entry| entry.disk == open.disk && entry.cuts > open.cuts)
    }

    fn set_length(&self, disk: u64, bytes: u64) {
        let mut table = self.table();
        let Table { entries, deleted, .. } = &mut *table;
        let mut files = entries.values_mut().chain(deleted.values_mut());
        let Some(entry) = files.find(|entry| entry.disk == disk) else { return };
        assert!(bytes <= entry.size, "an image has the room that it may need");
        if bytes < entry.length {
            entry.cut = Some(entry.cut.map_or(bytes, |cut| cut.min(bytes)));
        }
        entry.length = bytes;
    }
}

impl Table {
    /// Files with and without a name.
    fn files(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().chain(self.deleted.values())
    }

    /// A new file, of `length` bytes now.
    fn add(&mut self, path: &Path, size: u64, length: u64, is_image: bool) -> Entry {
        self.last_disk += 1;
        let entry = Entry {
            disk: self.last_disk,
            way: 0,
            size,
            length,
            cut: None,
            cuts: 0,
            is_image,
            is_gone: false,
        };
        self.entries.insert(path.to_owned(), entry);
        entry
    }
}

/// A disk that is open and locked.
pub(super) struct SimOpenDisk {
    files: Arc<SimFiles>,
    path: PathBuf,
    entry: Entry,
    /// Processes that had ended when it was opened.
    process: u64,
    /// Whether it is opened exclusively.
    is_alone: bool,
    /// Bytes of it that are used, however much longer its file is.
    end: AtomicU64,
    pub(super) has_lost_writes: AtomicBool,
    /// Requests that failed.
    pub(super) errors: AtomicU64,
}

impl Drop for SimOpenDisk {
    fn drop(&mut self) {
        let mut table = self.files.table();
        if self.is_alone && table.ended == self.process {
            table.locked.remove(&self.entry.key());
        }
    }
}

impl OpenDisk for SimOpenDisk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn medium(&self) -> MediumExtent {
        self.entry.medium()
    }

    fn shape(&self) -> Shape {
        Shape::new(self.size(), 512)
    }

    fn sectors(&self) -> (u32, u32) {
        (512, 512)
    }

    fn size(&self) -> u64 {
        self.length() / 512 * 512
    }

    fn length(&self) -> u64 {
        self.files.length_of(self.entry).min(self.end.load(Ordering::Relaxed))
    }

    fn end_at(&self, bytes: u64) -> Result<(), OpenError> {
        let length = self.files.length_of(self.entry);
        if length < bytes {
            return Err(OpenError::TooSmall { path: self.path.clone(), size: length, size_min: bytes });
        }
        self.end.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn set_length(&self, bytes: u64) -> Result<(), OpenError> {
        self.files.set_length(self.entry.disk, bytes);
        Ok(())
    }

    fn state(&self) -> DiskState {
        let (found, expected) = (self.files.length_of(self.entry), self.end.load(Ordering::Relaxed));
        match (self.files.is_cut_off(self.entry), self.has_lost_writes.load(Ordering::Relaxed)) {
            (true, _) => DiskState::CutOff { lost: 0 },
            (false, _) if found < expected && !self.entry.is_image => DiskState::Shrunk { expected, found },
            (false, true) => DiskState::WritesLost,
            (false, false) => DiskState::InUse,
        }
    }

    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    fn counters(&self) -> DiskCounters {
        DiskCounters { errors: self.errors.load(Ordering::Relaxed), ..DiskCounters::default() }
    }

    fn look(&self, path: &Path) -> FileLook {
        let length = self.files.length_of(self.entry);
        let table = self.files.table();
        let is_own = |entry: &Entry| entry.disk == self.entry.disk;
        let placement = match table.entries.get(path) {
            Some(entry) if is_own(entry) => DiskPlacement::AtPath,
            _ if table.deleted.values().any(is_own) => DiskPlacement::Deleted,
            _ => DiskPlacement::Elsewhere,
        };
        FileLook { placement, room: table.room, length: Some(length) }
    }

    fn has_abandoned(&self) -> bool {
        false
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// The files as the world's work sees them.
struct SimFilesRef(Arc<SimFiles>);

impl SimFilesRef {
    fn opened(&self, path: &Path, entry: Entry, process: u64, is_alone: bool) -> DiskRef {
        let (files, path) = (Arc::clone(&self.0), path.to_owned());
        let (end, has_lost_writes, errors) = Default::default();
        let disk = SimOpenDisk { files, path, entry, process, is_alone, end, has_lost_writes, errors };
        // An image is as long as its file is.
        disk.end.store(if entry.is_image { u64::MAX } else { entry.length }, Ordering::Relaxed);
        Arc::new(disk)
    }
}

impl Files for SimFilesRef {
    fn open(&self, path: &Path, options: DiskOptions) -> Result<DiskRef, OpenError> {
        let mut table = self.0.table();
        match (options.create_size, table.entries.get(path)) {
            (Some(_), Some(_)) => return Err(OpenError::Exists(path.to_owned())),
            (Some(size), None) => drop(table.add(path, 2 * size, size, false)),
            (None, _) => {}
        }
        let entry = table.entries.get(path).copied().filter(|entry| !entry.is_gone);
        let entry = entry.ok_or_else(|| OpenError::NotFound(path.to_owned()))?;
        if !table.locked.insert(entry.key()) {
            return Err(OpenError::InUse(path.to_owned()));
        }
        Ok(self.opened(path, entry, table.ended, true))
    }

    fn open_image(&self, path: &Path, _: DiskOptions) -> Result<OpenImage, OpenError> {
        let table = self.0.table();
        let entry = table.entries.get(path).copied().filter(|entry| !entry.is_gone);
        let entry = entry.ok_or_else(|| OpenError::NotFound(path.to_owned()))?;
        assert!(entry.length.is_multiple_of(512), "an image that is read is made of sectors");
        let disk = self.opened(path, entry, table.ended, false);
        Ok(OpenImage { disk, tail: Vec::new().into(), modified_ns: None })
    }

    fn open_image_to_write(&self, path: &Path, options: DiskOptions) -> Result<OpenImage, OpenError> {
        let disk = self.open(path, options)?;
        Ok(OpenImage { disk, tail: Vec::new().into(), modified_ns: None })
    }

    fn modified_ns(&self, _: &Path) -> Option<u64> {
        None
    }

    fn medium(&self, path: &Path) -> io::Result<MediumExtent> {
        let found = self.0.table().entries.get(path).copied().filter(|entry| !entry.is_gone);
        Ok(found.ok_or(io::ErrorKind::NotFound)?.medium())
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.table().entries.remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.table().entries.get(path).is_some_and(|entry| !entry.is_gone)
    }

    fn is_folder(&self, path: &Path) -> bool {
        !self.0.table().lost_folders.contains(path)
    }

    fn identity(&self, path: &Path) -> Option<FileIdentity> {
        let number = *self.0.table().sockets.get(path)?;
        Some(FileIdentity { device: 1, inode: number })
    }

    fn own_export_below(&self, _: &Path, _: &[PathBuf]) -> Option<PathBuf> {
        None
    }

    fn save(&self, remembered: &str) -> io::Result<()> {
        self.0.table().remembered = Some(remembered.to_owned());
        Ok(())
    }

    fn archive(&self, entry: &ArchiveEntry) -> io::Result<()> {
        let mut table = self.0.table();
        if table.is_archive_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        table.archived.push(entry.clone());
        Ok(())
    }

    fn check_listen(&self, _: &Place) -> io::Result<()> {
        Ok(())
    }

    fn check_mount(&self, path: &Path) -> Result<(), FuseError> {
        Err(FuseError::NotAFile(path.to_owned()))
    }

    fn mount(
        &self,
        _: &Portal,
        _: &Arena,
        path: &Path,
        _: &FuseOptions,
    ) -> Result<Box<dyn FileDoor>, FuseError> {
        Err(FuseError::NotAFile(path.to_owned()))
    }
}

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

    /// Makes the raw backing image of an image.
    fn make_base(&self, path: &str, size: u64, number: u16) {
        let room = size.next_multiple_of(u64::from(self.block_size));
        let disk = self.disk(self.files.table().add(Path::new(path), room, size, true));
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
            Place::Unix(path) => (path.display().to_string(), Some(path)),
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
