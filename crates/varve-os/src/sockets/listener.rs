//! Doors for connections: Unix and TCP listeners, and connecting to those of others.
//!
//! Invariants:
//! - LISTENER1. At no time may a user connect to a socket file who may neither before nor after. A new one listens once it has its group
//!   and mode; one that gets another group is its owner's alone meanwhile.
//! - LISTENER2. An accept that is dropped before it has answered takes no connection in: the next accept does, of another process too.

use crate::disks::operation::{Operation, Socket, SocketAction};
use crate::driver::reactor::Reactor;
use crate::folder::{check_folder, descriptor_path};
use crate::shard::ShardContext;
use crate::sys;
use rustix::fs::{AtFlags, Gid, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use varve_block::Stream;
use varve_block::host::FileAccess;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket of one shard. Dropping it closes it, and removes the socket file that it made.
pub struct Listener {
    reactor: Rc<Reactor>,
    socket: Rc<Socket>,
    address: Option<SocketAddr>,
    file: Option<SocketFile>,
}

/// A socket file that we made. Dropping it removes it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    is_left: bool,
}

impl SocketFile {
    /// The socket at `path`, which this process has made or goes on with.
    fn at(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        if !metadata.file_type().is_socket() {
            return Err(displaced());
        }
        Ok(Self { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()), is_left: false })
    }

    /// Leaves the file to another process.
    fn leave(mut self) {
        self.is_left = true;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        // Another file may be in its place by now.
        let same = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if same {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Waits for a connection. The descriptor can be adopted by any shard. After an error such as too many open
    /// files the listener still works; it ends with an error for good when the shard drains.
    pub async fn accept(&self) -> io::Result<OwnedFd> {
        loop {
            let operation = Operation::Socket(Rc::clone(&self.socket), SocketAction::AwaitInput);
            match self.reactor.start(operation).await.1 {
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            match rustix::net::accept_with(&*self.socket, SocketFlags::CLOEXEC) {
                Ok(descriptor) => return Ok(descriptor), // LISTENER2
                Err(Errno::INTR | Errno::AGAIN | Errno::CONNABORTED) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The socket, for another process to listen at; its file stays.
    pub fn into_descriptor(mut self) -> io::Result<OwnedFd> {
        let descriptor = self.socket.as_fd().try_clone_to_owned()?;
        if let Some(file) = self.file.take() {
            file.leave();
        }
        Ok(descriptor)
    }

    /// The address of a TCP listener, with the port that the system chose if none was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl ShardContext {
    /// Listens on a Unix socket that those may connect to whom `access` lets. A socket file without a listener is replaced.
    pub fn listen_unix(&self, path: impl AsRef<Path>, access: FileAccess) -> io::Result<Listener> {
        let (socket, file) = listen_at(path.as_ref(), access)?;
        self.listener(socket, None, Some(file))
    }

    /// Listens on a TCP address.
    pub fn listen_tcp(&self, address: SocketAddr) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        self.listener(listener.into(), Some(address), None)
    }

    /// Goes on with a socket that listens already; `path` is its file, if it has one.
    pub fn listen_on(&self, socket: OwnedFd, path: Option<&Path>) -> io::Result<Listener> {
        let file = path.map(SocketFile::at).transpose()?;
        let address = match file {
            Some(_) => None,
            None => SocketAddr::try_from(rustix::net::getsockname(&socket)?).ok(),
        };
        self.listener(socket, address, file)
    }

    fn listener(
        &self,
        socket: OwnedFd,
        address: Option<SocketAddr>,
        file: Option<SocketFile>,
    ) -> io::Result<Listener> {
        // An accept is tried after a poll, and must not wait if the client has left in between.
        rustix::io::ioctl_fionbio(&socket, true)?;
        let reactor = Rc::clone(&self.core.reactor);
        Ok(Listener { reactor, socket: Socket::new(socket), address, file })
    }

    /// Connects to a Unix socket.
    pub async fn connect_unix(&self, path: impl AsRef<Path>) -> io::Result<Stream> {
        let path = path.as_ref().to_owned();
        // Waits as long as the listener's backlog is full.
        let connected = self.blocking_at(path.clone(), move || UnixStream::connect(path)).await;
        Ok(self.adopt(connected.map_err(io::Error::other)??.into()))
    }

    /// Connects to a TCP address.
    pub async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Stream> {
        let connected = self.blocking(move || TcpStream::connect(address)).await;
        Ok(self.adopt(connected.map_err(io::Error::other)??.into()))
    }
}

/// A socket that listens at `path`, as [`bind_unix`] has it, and its file.
pub fn listen_at(path: &Path, access: FileAccess) -> io::Result<(OwnedFd, SocketFile)> {
    let socket = bind_unix(path, access, BACKLOG)?;
    Ok((socket, SocketFile::at(path)?))
}

/// A socket that listens at `path`, to whose file those may connect whom `access` lets; `backlog` connections may wait. A socket file
/// without a listener is replaced; a file of another kind is left alone, and so is a socket at which another process listens.
pub fn bind_unix(path: &Path, access: FileAccess, backlog: i32) -> io::Result<OwnedFd> {
    if is_stale(path)? {
        std::fs::remove_file(path)?;
    }
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file begins with the mode of the descriptor, less the umask, and with no group of it (LISTENER1).
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(access.of_owner()))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    if (access.is_shared() || access.group.is_some())
        && let Err(error) = set_socket_access(path, access)
    {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Gives the socket file at `path`, which this process has made, another mode and group. If it fails the file has those of before.
pub fn set_socket_access(path: &Path, access: FileAccess) -> io::Result<()> {
    // What is changed is what was looked at, wherever the path leads by then.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let now = rustix::fs::fstat(&file)?;
    let is_socket = rustix::fs::FileType::from_raw_mode(now.st_mode) == rustix::fs::FileType::Socket;
    let is_own = now.st_uid == rustix::process::geteuid().as_raw() && now.st_nlink == 1;
    if !is_socket || !is_own {
        return Err(displaced());
    }
    // No call changes the mode of a descriptor of this kind on every kernel.
    let link = descriptor_path(&file);
    let set_mode = |mode: u32| rustix::fs::chmod(&link, Mode::from_raw_mode(mode));
    if let Some(group) = access.group.filter(|group| *group != now.st_gid) {
        set_mode(access.of_owner() & now.st_mode)?; // LISTENER1
        if let Err(errno) =
            rustix::fs::chownat(&file, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)
        {
            set_mode(now.st_mode & 0o777)?;
            return Err(errno.into());
        }
    }
    Ok(set_mode(access.mode)?)
}

/// The number of a group of this host, by its name or number, to which this process may give its files. An error of kind `NotFound`
/// tells that there is none, one of kind `PermissionDenied` that it may not.
pub fn find_group(name: &str) -> io::Result<u32> {
    let group = match name.parse::<u32>() {
        Ok(u32::MAX) => None, // It stands for none where a group is changed.
        Ok(number) => Some(number),
        Err(_) => sys::group_called(name)?,
    };
    let group = group.ok_or(io::ErrorKind::NotFound)?;
    // The kernel has the same rule for this file, which nothing else knows.
    let probe = rustix::fs::memfd_create("varve-group", rustix::fs::MemfdFlags::CLOEXEC)?;
    match rustix::fs::fchown(&probe, None, Some(Gid::from_raw(group))) {
        Ok(()) => Ok(group),
        // A number that this user namespace does not map.
        Err(Errno::INVAL) => Err(io::ErrorKind::NotFound.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Refuses what [`bind_unix`] refuses, and changes nothing.
pub fn check_unix(path: &Path) -> io::Result<()> {
    is_stale(path)?;
    SocketAddrUnix::new(path)?;
    check_folder(path)
}

/// Refuses a TCP address at which listening is impossible now.
pub fn check_tcp(address: SocketAddr) -> io::Result<()> {
    TcpListener::bind(address).map(drop)
}

fn displaced() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "another file is in the place of the socket")
}

/// Whether there is a socket file without a listener. Any other file is refused.
fn is_stale(path: &Path) -> io::Result<bool> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(false) };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is in the way"));
    }
    // A listener that accepts nothing lets others wait once its backlog is full: a shard does not.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Ok(()) | Err(Errno::AGAIN) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens on this socket already"))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// A pair of connected sockets, for tests and for talking to oneself.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = UnixStream::pair()?;
    Ok((one.into(), other.into()))
}
