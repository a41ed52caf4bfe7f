//! The real host: its files, its sockets, and the shards of `varve-os`.

use crate::own_exports::find_own;
use crate::passed::PassedDescriptors;
use crate::real_disk::RealDisk;
use crate::real_doors::{RealDevice, RealFileDoor, RealMachineDoor};
use crate::{archive, file_link, state, tls_files};
use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;
use uuid::Uuid;
use varve_block::host::{FileAccess, FileIdentity, MediumExtent};
use varve_block::{Arena, Clock, Device, LocalFuture, Portal, Spawner, Stream};
use varve_export::fuse::{Audience, FuseDoor, FuseError, FuseOptions, check_driver, check_file};
use varve_export::nbd::TlsFiles;
use varve_export::vhost_user::{VhostDoor, VhostOptions};
use varve_export::{AttachError, AttachOptions, Budget, Driver, kernel_nbd, ublk};
use varve_os::{ConnectError, DiskFile, DiskOptions, OpenError, ShardContext};
use varve_volume::world::{
    ArchiveEntry, DiskRef, FileDoor, FileLink, FileWork, Files, Listener, OpenImage, Place, World,
};
use varve_volume::{EventReceiver, ShardHandle, event_channel, shard_channel};

/// The files of this host.
struct RealFiles {
    /// Where what is remembered is kept.
    state_dir: PathBuf,
    /// What an earlier process has passed here.
    passed: Arc<PassedDescriptors>,
    /// Where devices were mounted as files or attached; some may be so no more.
    mounted: Mutex<BTreeSet<PathBuf>>,
}

impl RealFiles {
    /// The file that this daemon exports on which `path` is, if it is on one.
    fn own_mount_below(&self, path: &Path) -> Option<PathBuf> {
        let own: Vec<PathBuf> = self.mounts().iter().cloned().collect();
        if own.is_empty() { None } else { find_own(path, &own) }
    }

    fn mounts(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.mounted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files for RealFiles {
    fn open(&self, path: &Path, options: DiskOptions) -> Result<DiskRef, OpenError> {
        let passed = if options.create_size.is_none() { self.passed.disk(path) } else { None };
        DiskFile::open_with(path, options, passed).map(RealDisk::on)
    }

    fn open_image(&self, path: &Path, options: DiskOptions) -> Result<OpenImage, OpenError> {
        let file = DiskFile::open(path, options)?;
        file.keep_unwritten()?;
        let (tail, modified_ns) = (file.tail()?.into(), file.modified_ns()?);
        Ok(OpenImage { disk: RealDisk::on(file), tail, modified_ns })
    }

    fn open_image_to_write(&self, path: &Path, options: DiskOptions) -> Result<OpenImage, OpenError> {
        let file = DiskFile::open(path, options)?;
        file.keep_for_writing()?;
        let (tail, modified_ns) = (file.tail()?.into(), file.modified_ns()?);
        Ok(OpenImage { disk: RealDisk::on(file), tail, modified_ns })
    }

    fn modified_ns(&self, path: &Path) -> Option<u64> {
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        let since = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_nanos()).ok()
    }

    fn medium(&self, path: &Path) -> io::Result<MediumExtent> {
        varve_os::medium_at(path)
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::canonicalize(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn is_folder(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn identity(&self, path: &Path) -> Option<FileIdentity> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some(FileIdentity { device: metadata.dev(), inode: metadata.ino() })
    }

    fn own_export_below(&self, path: &Path, own: &[PathBuf]) -> Option<PathBuf> {
        find_own(path, own)
    }

    fn save(&self, remembered: &str) -> io::Result<()> {
        state::save(&self.state_dir, remembered)
    }

    fn archive(&self, entry: &ArchiveEntry) -> io::Result<()> {
        archive::keep(&self.state_dir, entry)
    }

    fn check_listen(&self, place: &Place) -> io::Result<()> {
        match place {
            Place::Unix(path, _) => varve_os::check_unix(path),
            Place::Tcp(address) => varve_os::check_tcp(*address),
        }
    }

    fn read_tls(&self, folder: &Path) -> Result<TlsFiles, (PathBuf, io::Error)> {
        tls_files::read(folder)
    }

    fn find_group(&self, name: &str) -> io::Result<u32> {
        varve_os::find_group(name)
    }

    fn set_socket_access(&self, path: &Path, access: FileAccess) -> io::Result<()> {
        varve_os::set_socket_access(path, access)
    }

    fn check_mount(&self, path: &Path) -> Result<(), FuseError> {
        check_file(path)?;
        check_driver()
    }

    /// Where only the owner may be let in, for the owner alone.
    fn mount(
        &self,
        portal: &Portal,
        arena: &Arena,
        path: &Path,
        options: &FuseOptions,
    ) -> Result<Box<dyn FileDoor>, FuseError> {
        let open = |options: &FuseOptions| FuseDoor::open(portal.clone(), arena.clone(), path, options);
        // Root sees every mount of its own; others need root to be let in for losetup.
        let wanted = match rustix::process::geteuid().is_root() {
            _ if options.mode & 0o077 != 0 => Audience::Everybody,
            true => Audience::Owner,
            false => Audience::OwnerAndRoot,
        };
        let door = match open(&FuseOptions { audience: wanted, ..options.clone() }) {
            Err(FuseError::Failed { .. }) if wanted == Audience::OwnerAndRoot => open(options),
            result => result,
        };
        let door = door?;
        self.mounts().insert(path.to_owned());
        Ok(Box::new(RealFileDoor(door)))
    }

    fn serve_machine(
        &self,
        portal: &Portal,
        arena: &Arena,
        (path, access): (&Path, FileAccess),
        serial: &str,
        budget: &Budget,
    ) -> io::Result<Box<dyn FileDoor>> {
        let (socket, file) = varve_os::listen_at(path, access)?;
        let options = VhostOptions::new(serial, budget.clone(), spawn);
        let door = VhostDoor::open(portal.clone(), arena.clone(), socket, path, options)?;
        Ok(Box::new(RealMachineDoor::new(file, door)))
    }

    fn check_attach(&self, driver: Driver, path: &Path) -> Result<(), AttachError> {
        match driver {
            Driver::Nbd => kernel_nbd::check(path),
            Driver::Ublk => ublk::check(path, spawn),
        }
    }

    fn attach(
        &self,
        driver: Driver,
        portal: &Portal,
        arena: &Arena,
        path: &Path,
        identity: &str,
        budget: &Budget,
    ) -> Result<Box<dyn FileDoor>, AttachError> {
        let options = AttachOptions::new(identity, budget.clone(), spawn);
        let (portal, arena) = (portal.clone(), arena.clone());
        let door = match driver {
            Driver::Nbd => kernel_nbd::open(portal, arena, path, &options)?,
            Driver::Ublk => ublk::open(portal, arena, path, &options)?,
        };
        self.mounts().insert(path.to_owned());
        Ok(Box::new(RealDevice(door)))
    }
}

fn spawn(name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

struct RealListener {
    context: ShardContext,
    listener: varve_os::Listener,
}

impl Listener for RealListener {
    fn accept(&self) -> LocalFuture<'_, io::Result<Stream>> {
        Box::pin(async { self.listener.accept().await.map(|descriptor| self.context.adopt(descriptor)) })
    }

    fn into_descriptor(self: Box<Self>) -> Option<OwnedFd> {
        self.listener.into_descriptor().ok()
    }
}

/// One shard of this host.
struct RealWorld {
    context: ShardContext,
    files: Arc<RealFiles>,
}

/// Lets shards of `varve-os` take work; the handles through which they get it, and what their volumes tell.
pub(crate) fn begin(
    shards: impl IntoIterator<Item = varve_os::ShardHandle>,
    state_dir: &Path,
    passed: Arc<PassedDescriptors>,
) -> (Vec<ShardHandle>, EventReceiver) {
    let files = Arc::new(RealFiles { state_dir: state_dir.to_owned(), passed, mounted: Mutex::default() });
    let (sender, events) = event_channel();
    let begin = |shard: varve_os::ShardHandle| {
        let (handle, inbox) = shard_channel(shard.index());
        let (files, sender) = (Arc::clone(&files), sender.clone());
        drop(shard.run(move |context: ShardContext| {
            let world = RealWorld { context, files };
            inbox.serve(Rc::new(world), sender)
        }));
        handle
    };
    (shards.into_iter().map(begin).collect(), events)
}

impl World for RealWorld {
    fn index(&self) -> usize {
        self.context.index()
    }

    fn clock(&self) -> Clock {
        self.context.clock()
    }

    fn spawner(&self) -> Spawner {
        self.context.spawner()
    }

    fn arena(&self) -> Arena {
        self.context.arena()
    }

    fn new_id(&self) -> Uuid {
        Uuid::new_v4()
    }

    fn device(&self, disk: &DiskRef) -> Device {
        let disk = Arc::clone(disk).into_any().downcast::<DiskFile>();
        self.context.disk(&disk.expect("every disk of this world is a file"))
    }

    fn disk_of(&self, opening: Arc<dyn Any + Send + Sync>) -> DiskRef {
        RealDisk::on(opening.downcast::<DiskFile>().expect("every disk of this world is a file"))
    }

    fn portal(&self, device: &Device) -> Portal {
        self.context.portal(device)
    }

    fn import(&self, portal: &Portal) -> Device {
        self.context.import(portal)
    }

    fn listen(&self, place: &Place) -> io::Result<Box<dyn Listener>> {
        let passed = self.files.passed.listener(place);
        let listener = match (place, passed) {
            (Place::Unix(path, _), Some(passed)) => self.context.listen_on(passed, Some(path))?,
            (Place::Tcp(_), Some(passed)) => self.context.listen_on(passed, None)?,
            (Place::Unix(path, access), None) => self.context.listen_unix(path, *access)?,
            (Place::Tcp(address), None) => self.context.listen_tcp(*address)?,
        };
        Ok(Box::new(RealListener { context: self.context.clone(), listener }))
    }

    fn adopt(&self, socket: OwnedFd) -> Option<Stream> {
        Some(self.context.adopt(socket))
    }

    fn connect<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, Result<Box<dyn FileLink>, ConnectError>> {
        let files = Arc::clone(&self.files);
        let own_export = Arc::new(move |path: &Path| files.own_mount_below(path));
        Box::pin(file_link::connect(self.context.clone(), own_export, path))
    }

    fn is_draining(&self) -> bool {
        self.context.is_draining()
    }

    fn work_at(&self, path: &Path, work: FileWork) {
        let (context, path, files) = (self.context.clone(), path.to_owned(), Arc::clone(&self.files));
        self.context.spawner().spawn(async move {
            let _ = context.blocking_at(path, move || work(&*files)).await;
        });
    }

    fn work_alone(&self, work: FileWork) -> io::Result<()> {
        let files = Arc::clone(&self.files);
        std::thread::Builder::new().name("varve-path".to_owned()).spawn(move || work(&*files)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use varve_os::{Shards, ShardsConfig};
    use varve_volume::Host;

    /// Longer than a shard that does not wait takes for an answer.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_file_system_that_does_not_answer_keeps_no_shard_from_other_work() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = ShardsConfig { arena_bytes: 8 << 20, ..ShardsConfig::default() };
        let shards = Shards::start(&config).expect("they start");
        let (handles, _events) = begin([shards.handle(0)], folder.path(), Arc::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let soon = async |answer| tokio::time::timeout(LONG, answer).await.is_ok();
        let path = folder.path().to_owned();
        for is_alone in [false, true] {
            let ((begun, has_begun), (release, hung)) = (channel(), channel::<()>());
            let path = path.clone();
            let done = handles[0].spawn(async move |host: Host| {
                let work = move |files: &dyn Files| {
                    begun.send(()).expect("the test waits for it");
                    let _ = hung.recv_timeout(2 * LONG);
                    files.exists(&path)
                };
                match is_alone {
                    true => host.files_alone(work).expect("a thread").await.is_ok_and(|found| found),
                    false => host.files_at(Path::new("/"), work).await.is_ok_and(|found| found),
                }
            });
            has_begun.recv_timeout(LONG).expect("it begins");
            assert!(runtime.block_on(soon(handles[0].is_alive())), "HOST1: alone: {is_alone}");
            release.send(()).expect("it waits");
            assert_eq!(runtime.block_on(done), Ok(true), "HOST1: the answer comes back");
        }
        drop(handles);
        shards.stop();
    }
}
