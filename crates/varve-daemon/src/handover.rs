//! One daemon takes over from another: what is said between the two, with the descriptors that pass.
//!
//! The daemon that runs listens at `replace.sock` in its state directory. One that is started with `--replace` connects there and says
//! which version of the handover it knows; the other one has its clients wait, closes its volumes as at any stop, passes on what can be,
//! and ends when it hears that the new one serves.
//!
//! ```text
//! new: Hello                           old: Refused, or Accepted
//!                                      old: Refused (it serves on), or Given, and the descriptors
//! new: opens disks and exports; Taken  old: ends
//! new: goes on with the connections
//! ```
//!
//! A message is its length, four bytes, little-endian, and JSON. Descriptors follow `Given`, at most [`DESCRIPTORS_MAX`] with each byte, in
//! the order of [`Given`]; then the unread bytes of all connections, in the order of these. What the old daemon cannot close it does not pass
//! on, and nothing else either: it ends, and the new one starts as after a crash.
//!
//! Invariants:
//! - TAKEOVER1. Before `Taken` the new daemon answers no request of a connection that it was passed: if it ends, the old one, which has all
//!   descriptors still, takes everything back and goes on.
//! - TAKEOVER2. Disks that are taken back are opened anew: their locks say when the requests of the new daemon have ended.
//! - TAKEOVER3. Two daemons whose versions of the handover differ leave each other alone.

use crate::http::listen::Listeners;
use crate::places::Locks;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use varve_api::{Code, Failure};
use varve_control::{HandedSocket, Handover};
use varve_export::nbd::{
    BlockSizes, ConnectionState, Contexts, DetachedConnection, ExportFlags, Framing, Terms,
};

/// The version of what is said here (TAKEOVER3).
const VERSION: u32 = 1;
/// Where the daemon listens for the one that is to take over, in its state directory.
const SOCKET: &str = "replace.sock";
/// Bytes of a message.
const MESSAGE_MAX: usize = 64 << 20;
/// Descriptors that pass with one byte; the kernel takes 253.
const DESCRIPTORS_MAX: usize = 200;
/// How long the other daemon may take for a message that it has begun, or for an answer that needs no work.
const TALK_MAX: Duration = Duration::from_secs(10);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4;

#[derive(Serialize, Deserialize)]
struct Hello {
    version: u32,
    /// Of the program.
    program: String,
    process: u32,
    /// Where its HTTP interface is to listen.
    socket: PathBuf,
    /// Where it is to listen too and cannot, unless the old daemon does and passes that on.
    #[serde(default)]
    occupied: Vec<SocketAddr>,
}

/// What every version of [`Hello`] has.
#[derive(Deserialize)]
struct AnyHello {
    version: u32,
    #[serde(default)]
    program: String,
}

#[derive(Serialize, Deserialize)]
enum Reply {
    Refused(Failure),
    /// The new daemon is to wait, no longer than so many seconds.
    Accepted {
        process: u32,
        bound_s: u64,
    },
    Given(Given),
}

#[derive(Serialize, Deserialize)]
struct Taken {}

/// What is passed on, in the order of the descriptors.
#[derive(Serialize, Deserialize)]
struct Given {
    /// When clients began to wait, by the host's monotonic clock.
    begun_ms: u64,
    locks: usize,
    /// One descriptor each.
    tcp: Vec<SocketAddr>,
    sockets: Vec<GivenSocket>,
    disks: usize,
}

#[derive(Serialize, Deserialize)]
struct GivenSocket {
    address: String,
    has_listener: bool,
    connections: Vec<GivenConnection>,
}

#[derive(Serialize, Deserialize)]
struct GivenConnection {
    export: String,
    size: u64,
    flags: u16,
    block_sizes: [u32; 3],
    /// Bits of lengths: 32, or 64 with extended headers; none with simple replies.
    chunks: Option<u8>,
    allocation: bool,
    dirty: bool,
    unread: u64,
    skip: u64,
}

/// What a daemon begins with that takes over from another one, or takes back.
pub(crate) struct Inherited {
    pub(crate) locks: Locks,
    pub(crate) listeners: Listeners,
    pub(crate) handover: Handover,
    /// When clients began to wait, by the host's monotonic clock.
    pub(crate) begun_ms: u64,
}

/// The connection of two daemons.
pub(crate) struct Link {
    stream: UnixStream,
    /// The other one.
    pub(crate) process: u32,
}

/// What the daemon that runs has, and one that is to take over has to want.
#[derive(Clone)]
pub(crate) struct Own {
    /// Where its HTTP interface listens.
    pub(crate) socket: PathBuf,
    /// At which TCP addresses it listens.
    pub(crate) tcp: Vec<SocketAddr>,
    /// Whether a service manager started it, for which a process ends that another one follows.
    pub(crate) is_service: bool,
}

/// What came of an attempt to take over.
pub(crate) enum Attempt {
    /// No daemon runs that knows of handovers.
    NoDaemon,
    /// It has closed the connection meanwhile.
    Ended,
    /// It has passed on everything.
    Given(Box<Inherited>, Link),
}

/// Milliseconds of the host's monotonic clock, which all processes share.
pub(crate) fn now_ms() -> u64 {
    varve_os::monotonic_now().0 / 1_000_000
}

/// The path of the socket in `state`, however long that is: through a descriptor of the directory, which is to stay open meanwhile.
fn place(state: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let directory = rustix::fs::open(state, flags, rustix::fs::Mode::empty())?;
    let path = varve_os::descriptor_path(&directory).join(SOCKET);
    Ok((directory, path))
}

/// Listens for a daemon that is to take over; the lock of the state directory is held.
pub(crate) fn listen(state: &Path) -> io::Result<tokio::net::UnixListener> {
    let (_directory, path) = place(state)?;
    leave(state); // One that ends may listen still.
    let socket = varve_os::bind_unix(&path, varve_os::FileAccess::OWNER, BACKLOG)?;
    let listener = std::os::unix::net::UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}

/// Removes the socket.
pub(crate) fn leave(state: &Path) {
    let path = state.join(SOCKET);
    let is_socket = std::fs::symlink_metadata(&path)
        .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()));
    if is_socket {
        let _ = std::fs::remove_file(&path);
    }
}

/// Waits for a daemon that is to take over and can; others are refused.
pub(crate) async fn next_successor(listener: &tokio::net::UnixListener, own: &Own, bound: Duration) -> Link {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let own = own.clone();
        let greeted = tokio::task::spawn_blocking(move || greet(stream.into_std()?, &own, bound)).await;
        match greeted {
            Ok(Ok(link)) => return link,
            Ok(Err(error)) => tracing::warn!(%error, "a daemon that is to take over was refused"),
            Err(error) => tracing::warn!(%error, "a daemon that is to take over was not heard"),
        }
    }
}

fn greet(stream: UnixStream, own: &Own, bound: Duration) -> io::Result<Link> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TALK_MAX))?;
    stream.set_write_timeout(Some(TALK_MAX))?;
    let mut link = Link { stream, process: 0 };
    let text = link.receive_text()?;
    let AnyHello { version, program } = serde_json::from_slice(&text)?;
    let refused = if version == VERSION {
        let hello: Hello = serde_json::from_slice(&text)?;
        link.process = hello.process;
        refusal(&hello, own)
    } else {
        let message = format!(
            "the daemon that runs hands over by version {VERSION}, and {program} knows version {version}: neither can take over from the other"
        );
        Some(Failure::new(Code::DaemonRuns, message).help("stop it (SIGTERM), then start the new one"))
    };
    if let Some(failure) = refused {
        link.refuse(failure.clone());
        return Err(io::Error::other(failure.message));
    }
    link.send(&Reply::Accepted { process: std::process::id(), bound_s: bound.as_secs() })?;
    Ok(link)
}

/// Why a daemon of the same version cannot take over.
fn refusal(hello: &Hello, own: &Own) -> Option<Failure> {
    if own.is_service {
        let message = "a service manager started the daemon that runs: it would not know the new one";
        return Some(Failure::new(Code::DaemonRuns, message).help("systemctl restart varve"));
    }
    if hello.socket != own.socket {
        let socket = own.socket.display();
        let message = format!("the daemon that runs with this --state has its socket at {socket}");
        return Some(Failure::new(Code::DaemonRuns, message).help(format!("--socket {socket}")));
    }
    let address = hello.occupied.iter().find(|address| !own.tcp.contains(address))?;
    let message =
        format!("the address {address}: it cannot be listened at, and the daemon that runs does not");
    Some(Failure::new(Code::SocketUnusable, message).help("choose another address; nothing has changed"))
}

/// Asks the daemon that runs with this state directory to hand over, and waits for what it passes on. `occupied` are addresses that only this daemon can have.
pub(crate) fn take(state: &Path, socket: &Path, occupied: Vec<SocketAddr>) -> Result<Attempt, Failure> {
    let failed = |error: &io::Error| {
        let message = format!("the daemon that runs cannot be asked to hand over: {error}");
        Failure::new(Code::DaemonRuns, message).help("stop it (SIGTERM), then start this one")
    };
    let Ok((_directory, path)) = place(state) else { return Ok(Attempt::NoDaemon) };
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(Attempt::NoDaemon);
        }
        Err(error) => return Err(failed(&error)),
    };
    let asked = ask(Link { stream, process: 0 }, socket, occupied);
    match asked {
        Ok(attempt) => attempt,
        Err(error) if is_end(&error) => {
            tracing::warn!(
                "the daemon that was to hand over closed the connection: this one starts as after a crash once that has ended"
            );
            Ok(Attempt::Ended)
        }
        Err(error) => Err(failed(&error)),
    }
}

fn ask(mut link: Link, socket: &Path, occupied: Vec<SocketAddr>) -> io::Result<Result<Attempt, Failure>> {
    let wait_at_most = |link: &Link, limit| link.stream.set_read_timeout(Some(limit));
    wait_at_most(&link, TALK_MAX)?;
    let program = format!("varve {}", env!("CARGO_PKG_VERSION"));
    let (socket, process) = (socket.to_owned(), std::process::id());
    link.send(&Hello { version: VERSION, program, process, socket, occupied })?;
    let bound_s = match link.receive()? {
        Reply::Accepted { process, bound_s } => {
            link.process = process;
            bound_s
        }
        Reply::Refused(failure) => return Ok(Err(failure)),
        Reply::Given(_) => return Err(io::Error::other("it handed over unasked")),
    };
    wait_at_most(&link, Duration::from_secs(2 * bound_s) + TALK_MAX)?;
    match link.receive()? {
        Reply::Given(given) => {
            wait_at_most(&link, TALK_MAX)?;
            let inherited = link.receive_given(given)?;
            Ok(Ok(Attempt::Given(Box::new(inherited), link)))
        }
        Reply::Refused(failure) => Ok(Err(failure)),
        Reply::Accepted { .. } => Err(io::Error::other("it accepted twice")),
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl Link {
    fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).map_err(|_| ErrorKind::InvalidData)?;
        self.stream.write_all(&[&length.to_le_bytes(), text.as_slice()].concat())
    }

    fn receive<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.receive_text()?)?)
    }

    fn receive_text(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MESSAGE_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "a message is too long"));
        }
        let mut text = vec![0; length];
        self.stream.read_exact(&mut text)?;
        Ok(text)
    }

    /// Nothing is handed over.
    pub(crate) fn refuse(&mut self, failure: Failure) {
        let _ = self.send(&Reply::Refused(failure));
    }

    /// Passes everything on; this process keeps its own descriptors.
    pub(crate) fn give(&mut self, inherited: &Inherited) -> io::Result<()> {
        let Inherited { locks, listeners, handover, begun_ms } = inherited;
        let mut descriptors: Vec<BorrowedFd<'_>> = locks.descriptors().collect();
        let locks = descriptors.len();
        descriptors.push(listeners.socket.as_fd());
        descriptors.extend(listeners.tcp.iter().map(|(_, listener)| listener.as_fd()));
        let mut unread = Vec::new();
        let mut sockets = Vec::new();
        for HandedSocket { address, listener, connections } in &handover.sockets {
            descriptors.extend(listener.iter().map(AsFd::as_fd));
            for connection in connections {
                descriptors.push(connection.socket.as_fd());
                unread.extend_from_slice(&connection.state.unread);
            }
            sockets.push(GivenSocket {
                address: address.clone(),
                has_listener: listener.is_some(),
                connections: connections.iter().map(|connection| given(&connection.state)).collect(),
            });
        }
        descriptors.extend(handover.disks.iter().map(AsFd::as_fd));
        let tcp = listeners.tcp.iter().map(|(address, _)| *address).collect();
        let disks = handover.disks.len();
        self.send(&Reply::Given(Given { begun_ms: *begun_ms, locks, tcp, sockets, disks }))?;
        for descriptors in descriptors.chunks(DESCRIPTORS_MAX) {
            self.send_descriptors(descriptors)?;
        }
        self.stream.write_all(&unread)
    }

    fn send_descriptors(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "there is room for them");
        let byte = [IoSlice::new(&[0])];
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.stream, &byte, &mut ancillary, SendFlags::NOSIGNAL)
        })?;
        Ok(())
    }

    fn receive_descriptors(&self, count: usize) -> io::Result<VecDeque<OwnedFd>> {
        let mut received = VecDeque::with_capacity(count);
        while received.len() < count {
            let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let (mut byte, before) = ([0], received.len());
            let mut vectors = [IoSliceMut::new(&mut byte)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            // A process that was stopped and goes on has waited in vain.
            let message = rustix::io::retry_on_intr(|| {
                rustix::net::recvmsg(&self.stream, &mut vectors, &mut ancillary, flags)
            })?;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    received.extend(descriptors);
                }
            }
            if message.bytes == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if received.len() == before || message.flags.contains(ReturnFlags::CTRUNC) {
                return Err(io::Error::other("descriptors were lost: there are too many open files"));
            }
        }
        Ok(received)
    }

    fn receive_given(&mut self, given: Given) -> io::Result<Inherited> {
        let Given { begun_ms, locks, tcp, sockets, disks } = given;
        let of_sockets = |socket: &GivenSocket| usize::from(socket.has_listener) + socket.connections.len();
        let count = locks + 1 + tcp.len() + sockets.iter().map(of_sockets).sum::<usize>() + disks;
        let mut descriptors = self.receive_descriptors(count)?;
        let mut next = || descriptors.pop_front().ok_or(io::Error::from(ErrorKind::UnexpectedEof));
        let locks = (0..locks).map(|_| next()).collect::<io::Result<Vec<_>>>()?;
        let socket = next()?.into();
        let tcp = tcp.into_iter().map(|address| Ok((address, next()?.into()))).collect::<io::Result<_>>()?;
        let mut handed = Vec::with_capacity(sockets.len());
        for GivenSocket { address, has_listener, connections } in sockets {
            let listener = has_listener.then(&mut next).transpose()?;
            let mut taken = Vec::with_capacity(connections.len());
            for connection in connections {
                taken.push(DetachedConnection { socket: next()?, state: self.state(connection)? });
            }
            handed.push(HandedSocket { address, listener, connections: taken });
        }
        let disks = descriptors.into_iter().collect();
        for connection in handed.iter_mut().flat_map(|socket| &mut socket.connections) {
            self.stream.read_exact(&mut connection.state.unread)?;
        }
        let handover = Handover { sockets: handed, disks };
        Ok(Inherited { locks: Locks::of(locks), listeners: Listeners { socket, tcp }, handover, begun_ms })
    }

    /// What was agreed on a connection, with room for its unread bytes.
    fn state(&self, connection: GivenConnection) -> io::Result<ConnectionState> {
        let GivenConnection { export, size, flags, block_sizes, chunks, allocation, dirty, unread, skip } =
            connection;
        let framing = match chunks {
            None => Framing::Simple,
            Some(32) => Framing::Structured,
            Some(64) => Framing::Extended,
            Some(_) => return Err(io::Error::new(ErrorKind::InvalidData, "headers of an unknown kind")),
        };
        let [minimum, preferred, maximum] = block_sizes;
        let terms = Terms {
            size,
            flags: ExportFlags(flags),
            block_sizes: BlockSizes { minimum, preferred, maximum },
            framing,
            contexts: Contexts { allocation, dirty },
        };
        let unread = usize::try_from(unread).ok().filter(|bytes| *bytes <= MESSAGE_MAX);
        let unread = unread.ok_or(io::Error::new(ErrorKind::InvalidData, "too many unread bytes"))?;
        Ok(ConnectionState { export, terms, unread: vec![0; unread], skip })
    }

    /// Tells the old daemon that this one serves (TAKEOVER1).
    pub(crate) fn taken(mut self) {
        let _ = self.send(&Taken {}); // It may have ended.
    }

    /// Waits until the new daemon serves; false if it has ended without.
    pub(crate) fn wait_until_taken(mut self) -> bool {
        let _ = self.stream.set_read_timeout(None);
        self.receive::<Taken>().is_ok()
    }
}

fn given(state: &ConnectionState) -> GivenConnection {
    let ConnectionState { export, terms, unread, skip } = state;
    let Terms { size, flags, block_sizes, framing, contexts } = *terms;
    GivenConnection {
        export: export.clone(),
        size,
        flags: flags.0,
        block_sizes: [block_sizes.minimum, block_sizes.preferred, block_sizes.maximum],
        chunks: match framing {
            Framing::Simple => None,
            Framing::Structured => Some(32),
            Framing::Extended => Some(64),
        },
        allocation: contexts.allocation,
        dirty: contexts.dirty,
        unread: unread.len() as u64,
        skip: *skip,
    }
}
