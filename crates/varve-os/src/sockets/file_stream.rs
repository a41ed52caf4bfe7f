//! Connections to programs of this host that pass open files, too.
//!
//! Invariants:
//! - FILESTREAM1. A connection is made only to a program of this process's user or of root, or at a socket file that belongs to one of
//!   these.
//! - FILESTREAM2. Connecting never waits for the program: one whose backlog is full refuses.

use crate::disks::operation::{Operation, Socket, SocketAction};
use crate::driver::reactor::Reactor;
use crate::shard::ShardContext;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use varve_block::host::{ConnectError, Peer};
use varve_block::{Arena, Stream, StreamError};

/// Bytes that one receive takes in.
const RECEIVE_LENGTH: usize = 64 << 10;
/// Descriptors that one message can carry, as the kernel has it.
const DESCRIPTORS_MAX: usize = 253;

/// What came: bytes, and the files that were sent with them.
#[derive(Debug)]
pub struct ReceivedFiles {
    /// At least one.
    pub bytes: Vec<u8>,
    /// In order.
    pub files: Vec<OwnedFd>,
}

/// A connection to a program that may pass open files.
pub struct FileStream {
    reactor: Rc<Reactor>,
    socket: Rc<Socket>,
    stream: Stream,
    arena: Arena,
    peer: Peer,
}

impl ShardContext {
    /// Connects to the program that listens at the Unix socket `path` (FILESTREAM1, FILESTREAM2).
    pub async fn connect_files(&self, path: &Path) -> Result<FileStream, ConnectError> {
        let asked = path.to_owned();
        // Only the look-up of the path may wait.
        let connected = self.blocking_at(path, move || connect(&asked)).await;
        let system = |error: std::io::Error| ConnectError::System { path: path.to_owned(), error };
        let (socket, peer) = connected.map_err(|gone| system(std::io::Error::other(gone)))??;
        let copy = socket.try_clone().map_err(system)?;
        let (reactor, arena) = (Rc::clone(&self.core.reactor), self.arena());
        Ok(FileStream { reactor, socket: Socket::new(copy), stream: self.adopt(socket), arena, peer })
    }
}

impl FileStream {
    /// The process at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Sends bytes after those that were sent before.
    pub async fn send(&self, bytes: &[u8]) -> Result<(), StreamError> {
        self.stream.send(vec![self.arena.copy(bytes)]).await
    }

    /// Waits for more. If it is dropped before its end nothing is lost.
    pub async fn receive(&self) -> Result<ReceivedFiles, StreamError> {
        loop {
            match receive_now(&self.socket) {
                Ok(received) if received.bytes.is_empty() => return Err(StreamError::Closed),
                Ok(received) => return Ok(received),
                Err(Errno::AGAIN) => {}
                Err(_) => return Err(StreamError::Broken),
            }
            let ready = Operation::Socket(Rc::clone(&self.socket), SocketAction::AwaitInput);
            match self.reactor.start(ready).await.1 {
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return Err(StreamError::Broken),
            }
        }
    }
}

fn connect(path: &Path) -> Result<(OwnedFd, Peer), ConnectError> {
    let owned = || path.to_owned();
    let fail = |errno: Errno| match errno {
        Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => ConnectError::NobodyListens(owned()),
        Errno::AGAIN => ConnectError::Busy(owned()),
        errno => ConnectError::System { path: owned(), error: errno.into() },
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(fail)?;
    let address = SocketAddrUnix::new(path).map_err(fail)?;
    rustix::net::connect(&socket, &address).map_err(fail)?; // FILESTREAM2
    let credentials = rustix::net::sockopt::socket_peercred(&socket).map_err(fail)?;
    let peer = Peer { process: credentials.pid.as_raw_nonzero().get(), user: credentials.uid.as_raw() };
    let own = rustix::process::geteuid().as_raw();
    let owner = std::fs::metadata(path).ok().map(|file| file.uid());
    if !is_trusted(peer.user, owner, own) {
        return Err(ConnectError::Foreign { path: owned(), user: peer.user, own }); // FILESTREAM1
    }
    Ok((socket, peer))
}

/// FILESTREAM1, for a program of `user` at a socket file of `owner` and a process of the user `own`.
fn is_trusted(user: u32, owner: Option<u32>, own: u32) -> bool {
    [Some(user), owner].into_iter().flatten().any(|user| user == own || user == 0)
}

/// Takes what is there, without waiting.
fn receive_now(socket: &Socket) -> Result<ReceivedFiles, Errno> {
    let mut bytes = vec![0; RECEIVE_LENGTH];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            files.extend(descriptors);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE); // Descriptors were lost.
    }
    bytes.truncate(received.bytes);
    Ok(ReceivedFiles { bytes, files })
}

#[cfg(test)]
mod tests;
