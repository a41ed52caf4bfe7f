//! What volumes, and what decides about them, need of the host that they run on: a real one, or a simulated one.
//!
//! Nothing above this module knows in which of them it lives.
//!
//! Invariant HOST1: what may wait for a file system is done on a thread that no shard waits for; the answer comes back as a
//! future.

use std::any::Any;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use uuid::Uuid;
use varve_block::host::{
    ConnectError, DiskCounters, DiskMark, DiskOptions, DiskState, FileAccess, FileIdentity, FileLook,
    MediumExtent, OpenError, Peer,
};
use varve_block::{Arena, Clock, Device, LocalFuture, Portal, Shape, Spawner, Stream};
use varve_export::fuse::{FuseError, FuseOptions};
use varve_export::nbd::TlsFiles;
use varve_export::{AttachError, Budget, DoorCounters, Driver};

/// A disk or an image that is open, and locked as far as it was asked for; any shard can use it.
pub trait OpenDisk: Send + Sync {
    /// Where it is.
    fn path(&self) -> &Path;
    /// Which bytes of which medium it consists of.
    fn medium(&self) -> MediumExtent;
    /// The shape of a device on it.
    fn shape(&self) -> Shape;
    /// Bytes of its logical and its physical sectors.
    fn sectors(&self) -> (u32, u32);
    /// Bytes, in whole sectors.
    fn size(&self) -> u64;
    /// Bytes, all of them.
    fn length(&self) -> u64;
    /// Gives a file another length, durably; nothing may use it behind that any more. A block device keeps its own. May wait for
    /// ever.
    fn set_length(&self, bytes: u64) -> Result<(), OpenError>;
    /// It ends after so many bytes from now on, however much longer its file or block device is: what is behind may be cut off. Devices
    /// made before keep their shape. May wait for ever if it is to be longer than before.
    fn end_at(&self, _bytes: u64) -> Result<(), OpenError> {
        Ok(())
    }
    /// Whether it can be used still.
    fn state(&self) -> DiskState;
    /// For how long none of its requests has been answered.
    fn silence(&self) -> Duration;
    /// What was counted of its requests.
    fn counters(&self) -> DiskCounters;
    /// What its file is like now, and whether `path` leads to it. May wait for ever.
    fn look(&self, path: &Path) -> FileLook;
    /// Whether requests are under way whose answer no task awaits any more.
    fn has_abandoned(&self) -> bool;
    /// What it is known to hold, to be read again when it returns after it was away; of some disks nothing is known.
    fn marks(&self) -> Vec<DiskMark> {
        Vec::new()
    }
    /// It was found to hold these, and nothing has written it since.
    fn adopt_marks(&self, _: &[DiskMark]) {}
    /// A descriptor of it, with its lock, for another process to go on with, if there is one.
    fn descriptor(&self) -> Option<OwnedFd> {
        None
    }
    /// What the world that opened it makes devices of. They keep it as long as they live.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// A disk that is open.
pub type DiskRef = Arc<dyn OpenDisk>;

/// An opening of a disk, as long as a device is made of it or is to be.
pub type Opening = Weak<dyn Any + Send + Sync>;

/// The opening that `disk` is.
pub fn opening_of(disk: &DiskRef) -> Opening {
    Arc::downgrade(&Arc::clone(disk).into_any())
}

/// Whether both are one opening of a disk.
pub fn is_same_disk(one: &DiskRef, other: &DiskRef) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// An image that is open, and that no other program is to write.
pub struct OpenImage {
    /// The image.
    pub disk: DiskRef,
    /// What is behind its last whole sector.
    pub tail: Arc<[u8]>,
    /// When it was last written, in nanoseconds since 1970, as far as its file system says.
    pub modified_ns: Option<u64>,
}

/// Where a socket listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a file that those may use whom this lets.
    Unix(PathBuf, FileAccess),
    /// At a TCP address.
    Tcp(SocketAddr),
}

/// The address as users write it: `unix:PATH` or `tcp:HOST:PORT`.
impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unix(path, _) => write!(f, "unix:{}", path.display()),
            Place::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// What the archive of a group's texts is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveEntry {
    /// The group.
    pub group: Uuid,
    /// Seconds since 1970.
    pub date: u64,
    /// Its text; none if the group was removed.
    pub text: Option<ArchivedText>,
}

/// A text of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedText {
    /// The group's name.
    pub name: String,
    /// The number of the change.
    pub sequence: u64,
    /// What tells this text from others with that number.
    pub version: Uuid,
    /// The text, as `varve vg backup` writes it.
    pub text: String,
}

/// The files of the host. Its calls may wait for ever (HOST1).
pub trait Files: Send + Sync {
    /// Opens and locks a disk.
    fn open(&self, path: &Path, options: DiskOptions) -> Result<DiskRef, OpenError>;
    /// Opens an image that is not to be written.
    fn open_image(&self, path: &Path, options: DiskOptions) -> Result<OpenImage, OpenError>;
    /// Opens an image to write it; no other program is to use it.
    fn open_image_to_write(&self, path: &Path, options: DiskOptions) -> Result<OpenImage, OpenError>;
    /// When the file at `path` was last written, in nanoseconds since 1970; unknown for a block device.
    fn modified_ns(&self, path: &Path) -> Option<u64>;
    /// Which bytes of which medium `path` leads to.
    fn medium(&self, path: &Path) -> io::Result<MediumExtent>;
    /// Where `path` leads: absolute, without links.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Whether there is anything at `path`.
    fn exists(&self, path: &Path) -> bool;
    /// Whether there is a folder at `path`.
    fn is_folder(&self, path: &Path) -> bool;
    /// What is at `path`, links not followed; none if nothing is.
    fn identity(&self, path: &Path) -> Option<FileIdentity>;
    /// The one of the exported files `own` on which `path` is, if it is on one.
    fn own_export_below(&self, path: &Path, own: &[PathBuf]) -> Option<PathBuf>;
    /// Makes what is remembered durable: the text takes the place of the one before.
    fn save(&self, remembered: &str) -> io::Result<()>;
    /// Makes a text of a group durable beside those before it, or marks those of a group as the texts of one that was removed; removes
    /// what has been kept for long enough.
    fn archive(&self, entry: &ArchiveEntry) -> io::Result<()>;
    /// Refuses a place at which listening is impossible now, and changes nothing.
    fn check_listen(&self, place: &Place) -> io::Result<()>;
    /// The files of TLS credentials in a folder; an error names the file.
    fn read_tls(&self, folder: &Path) -> Result<TlsFiles, (PathBuf, io::Error)>;
    /// The number of a group, by its name or number, to which files may be given: `NotFound` if there is none, `PermissionDenied` if
    /// they may not.
    fn find_group(&self, name: &str) -> io::Result<u32>;
    /// Gives the socket file at `path` another mode and group; if it fails it has those of before.
    fn set_socket_access(&self, path: &Path, access: FileAccess) -> io::Result<()>;
    /// Whether a device can be mounted at `path`.
    fn check_mount(&self, path: &Path) -> Result<(), FuseError>;
    /// Mounts a device as a file at `path`.
    fn mount(
        &self,
        portal: &Portal,
        arena: &Arena,
        path: &Path,
        options: &FuseOptions,
    ) -> Result<Box<dyn FileDoor>, FuseError>;
    /// Serves a device to virtual machines at the socket `place`, for those whom its access lets; they know it again by `serial`.
    fn serve_machine(
        &self,
        portal: &Portal,
        arena: &Arena,
        place: (&Path, FileAccess),
        serial: &str,
        budget: &Budget,
    ) -> io::Result<Box<dyn FileDoor>>;
    /// Whether a device can be made a block device of this kernel by its `driver`, with a link to it at `path`.
    fn check_attach(&self, driver: Driver, path: &Path) -> Result<(), AttachError>;
    /// Makes a device a block device of this kernel by its `driver`, with a link to it at `path`. One that an earlier program left there for the
    /// same `identity` is taken over.
    fn attach(
        &self,
        driver: Driver,
        portal: &Portal,
        arena: &Arena,
        path: &Path,
        identity: &str,
        budget: &Budget,
    ) -> Result<Box<dyn FileDoor>, AttachError>;
}

/// Finds out what uses a file; for a thread that may wait.
pub type FindUsers = Box<dyn FnOnce() -> Vec<String> + Send>;

/// Why a file is not closed.
#[derive(Debug, thiserror::Error)]
pub enum FileDoorError {
    /// A mounted file.
    #[error(transparent)]
    Mounted(#[from] FuseError),
    /// A block device.
    #[error(transparent)]
    Attached(#[from] AttachError),
}

/// A device behind a file that threads serve: mounted, a socket, or a link to a block device.
pub trait FileDoor: Send {
    /// Where.
    fn path(&self) -> &Path;
    /// Leads it to a device of another size.
    fn replace(&self, portal: Portal);
    /// Makes a socket or link anew, where another file or none is in its place; its clients stay.
    fn renew(&self, _: FileAccess) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives its file another mode and group; if it fails it has those of before. `Unsupported` if others than its owner cannot be let
    /// in while it is open.
    fn set_access(&self, _: FileAccess) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Whether it is served still.
    fn is_serving(&self) -> bool;
    /// What a client of it has to know.
    fn notice(&self) -> Option<String> {
        None
    }
    /// What was done through it.
    fn counters(&self) -> DoorCounters;
    /// What has it open: loop devices and processes, as far as they are known.
    fn clients(&self) -> Vec<String>;
    /// How to find out what else has it open, which takes longer.
    fn more_clients(&self) -> Option<FindUsers> {
        None
    }
    /// The block device to which its path leads, if to one.
    fn device(&self) -> Option<PathBuf> {
        None
    }
    /// Closes it, even if it is open.
    fn detach(&mut self);
    /// The program ends: closes it, or leaves it to the next program, if one can take it over.
    fn leave(&mut self) {
        self.detach();
    }
    /// Closes it, unless it has clients that stay.
    fn close(&mut self) -> Result<(), FileDoorError>;
}

/// Takes connections in.
pub trait Listener {
    /// The next connection.
    fn accept(&self) -> LocalFuture<'_, io::Result<Stream>>;
    /// Its socket, for another process to go on with, or this one; its file stays. Closes it if there is none.
    fn into_descriptor(self: Box<Self>) -> Option<OwnedFd> {
        None
    }
}

/// Why a connection to a program that passes files is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum LinkEnd {
    /// It was closed, or broke.
    #[error("the connection was lost")]
    Lost,
    /// The program passed a file that is no disk, or that is in use.
    #[error("it passed a file that cannot be used: {0}")]
    Refused(OpenError),
    /// The program passed a file that is on an export of this daemon.
    #[error("it passed a file that lies on {0}, which this daemon exports")]
    OwnExport(PathBuf),
}

/// Bytes, and the files that came with them.
pub type WithFiles = (Vec<u8>, Vec<DiskRef>);

/// A connection to a program that may pass open files.
pub trait FileLink {
    /// The program at the other end.
    fn peer(&self) -> Peer;
    /// Sends bytes after those that were sent before.
    fn send(&self, bytes: Vec<u8>) -> LocalFuture<'_, Result<(), LinkEnd>>;
    /// The next bytes, at least one, and the files that came with them.
    fn receive(&self) -> LocalFuture<'_, Result<WithFiles, LinkEnd>>;
}

/// Work on files, for a thread that may wait.
pub type FileWork = Box<dyn FnOnce(&dyn Files) + Send>;

/// The host, as one shard sees it.
pub trait World {
    /// The number of the shard, from zero.
    fn index(&self) -> usize;
    /// Time.
    fn clock(&self) -> Clock;
    /// The right to start tasks on the shard.
    fn spawner(&self) -> Spawner;
    /// Memory for requests.
    fn arena(&self) -> Arena;
    /// A new identity.
    fn new_id(&self) -> Uuid;
    /// A device on a disk that this world opened, with the shape that the disk has now.
    fn device(&self, disk: &DiskRef) -> Device;
    /// The disk of which `opening` is what [`OpenDisk::into_any`] gave.
    fn disk_of(&self, opening: Arc<dyn Any + Send + Sync>) -> DiskRef;
    /// The way from any thread to a device of this shard.
    fn portal(&self, device: &Device) -> Portal;
    /// A device that lives on another shard.
    fn import(&self, portal: &Portal) -> Device;
    /// Listens at `place`.
    fn listen(&self, place: &Place) -> io::Result<Box<dyn Listener>>;
    /// Goes on with a connection that was detached.
    fn adopt(&self, _: OwnedFd) -> Option<Stream> {
        None
    }
    /// Connects to the program that listens at the Unix socket `path`.
    fn connect<'a>(&'a self, path: &'a Path) -> LocalFuture<'a, Result<Box<dyn FileLink>, ConnectError>>;
    /// Whether nothing new is taken in any more, because the program is about to end.
    fn is_draining(&self) -> bool;
    /// Does `work` where only what is done at `path` waits for it (HOST1). If it is dropped undone the program ends.
    fn work_at(&self, path: &Path, work: FileWork);
    /// Does `work` on a thread of its own (HOST1).
    fn work_alone(&self, work: FileWork) -> io::Result<()>;
}
