//! The files of a simulated host: disks, images and sockets by their names, the state directory, and what is open of them.

use super::attached::{self, SimKernel};
use crate::host::remembered::Remembered;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use uuid::Uuid;
use varve_block::host::{
    DiskCounters, DiskOptions, DiskPlacement, DiskState, FileAccess, FileIdentity, FileLook, Medium,
    MediumExtent, OpenError,
};
use varve_block::{Arena, Portal, Shape};
use varve_export::fuse::{FuseError, FuseOptions};
use varve_export::nbd::TlsFiles;
use varve_export::{AttachError, Budget, Driver};
use varve_volume::world::{ArchiveEntry, DiskRef, FileDoor, Files, OpenDisk, OpenImage, Place};

/// A file that is a disk, or holds an image of one.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) disk: u64,
    /// By which way it is reached, of several that the host cannot tell apart from other disks.
    way: u64,
    /// Bytes that it may have at most.
    pub(super) size: u64,
    /// Bytes that it has.
    pub(super) length: u64,
    /// Since it was used last it was as short as this: what was behind is zeros.
    pub(super) cut: Option<u64>,
    /// How often part of it was cut off while it was in use.
    pub(super) cuts: u64,
    is_image: bool,
    /// Whether it cannot be opened now.
    pub(super) is_gone: bool,
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
pub(super) struct Table {
    pub(super) entries: BTreeMap<PathBuf, Entry>,
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
    pub(super) sockets: BTreeMap<PathBuf, u64>,
    last_socket: u64,
    /// Folders that are not there.
    lost_folders: BTreeSet<PathBuf>,
    /// Bytes that the file system has left, if it has few.
    room: Option<u64>,
    pub(crate) kernel: SimKernel,
}

/// The files of the host.
#[derive(Default)]
pub(crate) struct SimFiles(Mutex<Table>);

impl SimFiles {
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
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

    /// What `work` does with the kernel.
    pub(crate) fn with_kernel<T>(&self, work: impl FnOnce(&mut SimKernel) -> T) -> T {
        work(&mut self.table().kernel)
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

    pub(super) fn make_socket(&self, path: &Path) -> io::Result<()> {
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

    pub(super) fn set_length(&self, disk: u64, bytes: u64) {
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
    pub(super) fn add(&mut self, path: &Path, size: u64, length: u64, is_image: bool) -> Entry {
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
    pub(super) path: PathBuf,
    pub(super) entry: Entry,
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
pub(super) struct SimFilesRef(pub(super) Arc<SimFiles>);

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

    fn read_tls(&self, folder: &Path) -> Result<TlsFiles, (PathBuf, io::Error)> {
        Err((folder.join(TlsFiles::NAMES[0]), io::ErrorKind::NotFound.into()))
    }

    fn find_group(&self, name: &str) -> io::Result<u32> {
        match name {
            "qemu" => Ok(107),
            "root" => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn set_socket_access(&self, path: &Path, _: FileAccess) -> io::Result<()> {
        let is_there = self.0.table().sockets.contains_key(path);
        if is_there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
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

    fn serve_machine(
        &self,
        _: &Portal,
        _: &Arena,
        _: (&Path, FileAccess),
        _: &str,
        _: &Budget,
    ) -> io::Result<Box<dyn FileDoor>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn check_attach(&self, driver: Driver, _: &Path) -> Result<(), AttachError> {
        attached::check(&self.0, driver)
    }

    fn attach(
        &self,
        driver: Driver,
        portal: &Portal,
        _: &Arena,
        path: &Path,
        identity: &str,
        _: &Budget,
    ) -> Result<Box<dyn FileDoor>, AttachError> {
        attached::attach(&self.0, driver, portal, (path, identity))
    }
}
