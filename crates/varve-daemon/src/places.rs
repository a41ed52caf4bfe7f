//! The state directory and the socket, of which only one daemon at a time may have the use.
//!
//! Others may write where these files are (a socket in `/tmp`), and may have left something there that leads elsewhere.
//!
//! Invariants:
//! - PLACES1. Only a socket file is removed, only if no process listens at it, and only while its lock is held.
//! - PLACES2. No symbolic link is followed in the last part of a name, and no file is changed that is not a lock of ours.
//! - PLACES3. The socket is its owner's alone unless it is shared; a directory that is made for it lets others through only then.

use crate::config::ControlSocket;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use varve_api::{Code, Failure};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Permissions of directories that are made: of those for the owner alone, and of those where a shared socket is (PLACES3).
const DIRECTORY_MODE: u32 = 0o700;
const SHARED_DIRECTORY_MODE: u32 = 0o755;
/// Bytes of a lock: a process and the end of a line.
const LOCK_LENGTH: usize = 12;

/// Files that are locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct Locks {
    files: Vec<File>,
}

impl Locks {
    /// Locks that another process has passed here, and that go on with their descriptors; the files name this process from now on.
    pub(crate) fn of(descriptors: Vec<OwnedFd>) -> Self {
        let files: Vec<File> = descriptors.into_iter().map(File::from).collect();
        files.iter().for_each(note_process);
        Self { files }
    }

    /// Their descriptors.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.files.iter().map(AsFd::as_fd)
    }

    /// The files name this process again.
    pub(crate) fn take_back(&self) {
        self.files.iter().for_each(note_process);
    }
}

/// Makes the state directory and locks it and the socket's place.
pub(crate) fn lock(state: &Path, socket: &ControlSocket) -> Result<Locks, Failure> {
    make_directory(state, DIRECTORY_MODE).map_err(|error| state_unusable(state, &error))?;
    let mode = if socket.access.is_shared() { SHARED_DIRECTORY_MODE } else { DIRECTORY_MODE };
    let socket = &socket.path;
    if let Some(parent) = socket.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_directory(parent, mode).map_err(|error| socket_unusable(socket, &error))?;
    }
    let state_lock = lock_file(&state.join("lock"), &format!("the state directory {}", state.display()))?;
    let socket_lock = lock_file(&beside(socket), &format!("the socket {}", socket.display()))?;
    Ok(Locks { files: vec![state_lock, socket_lock] })
}

/// Listens at `socket`, in place of a file that a killed daemon left there.
pub(crate) fn listen(socket: &ControlSocket, _locks: &Locks) -> Result<UnixListener, Failure> {
    let bound = varve_os::bind_unix(&socket.path, socket.access, BACKLOG); // PLACES1, PLACES3
    let socket = &socket.path;
    let listening = bound.map(UnixListener::from).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listening.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => another(&format!("the socket {}", socket.display())),
        _ => socket_unusable(socket, &error),
    })
}

/// Goes on with what listens at `socket` already, for those whom the configuration lets in; listens anew if the file has gone.
pub(crate) fn keep(
    listener: UnixListener,
    socket: &ControlSocket,
    locks: &Locks,
) -> Result<UnixListener, Failure> {
    match varve_os::set_socket_access(&socket.path, socket.access) {
        Ok(()) => Ok(listener),
        Err(error) if error.kind() == ErrorKind::NotFound => listen(socket, locks),
        Err(error) => Err(socket_unusable(&socket.path, &error)),
    }
}

/// Listens at a TCP address.
pub(crate) fn listen_tcp(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Nothing can listen at a TCP address.
pub(crate) fn address_unusable(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::new(Code::SocketUnusable, format!("the address {address}: {error}"))
}

fn make_directory(path: &Path, mode: u32) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)
}

fn beside(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn lock_file(path: &Path, what: &str) -> Result<File, Failure> {
    let file = open_lock(path).map_err(|error| state_unusable(path, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(another(what)),
        Err(error) => return Err(state_unusable(path, &error.into())),
    }
    note_process(&file);
    Ok(file)
}

/// For administrators. Always of one length, so that nothing has to be cut off.
fn note_process(file: &File) {
    let process = format!("{:<width$}\n", std::process::id(), width = LOCK_LENGTH - 1);
    let _ = file.write_all_at(process.as_bytes(), 0);
}

/// Opens a lock file, following no link in the last part of its name (PLACES2).
fn open_lock(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::LOOP) => return Err(not_a_lock("a symbolic link")),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() > 1 {
        return Err(not_a_lock("not a plain file, or one of several names"));
    }
    // The directory may be another user's, as /tmp is root's; what its owner puts there is as good as ours.
    let owner = path.parent().and_then(|parent| parent.metadata().ok()).map(|parent| parent.uid());
    if found.uid() != rustix::process::geteuid().as_raw() && Some(found.uid()) != owner {
        return Err(not_a_lock("another user's file"));
    }
    if found.len() > LOCK_LENGTH as u64 {
        return Err(not_a_lock("a file with something else in it"));
    }
    Ok(file)
}

fn not_a_lock(what: &str) -> std::io::Error {
    std::io::Error::new(ErrorKind::AlreadyExists, format!("{what} is where the lock of a daemon belongs"))
}

fn another(what: &str) -> Failure {
    Failure::new(Code::DaemonRuns, format!("another daemon uses {what}"))
        .help("stop it first (SIGTERM), or give this one its own --state and --socket")
}

fn state_unusable(path: &Path, error: &std::io::Error) -> Failure {
    let code = if error.kind() == ErrorKind::StorageFull { Code::NoSpaceOnHost } else { Code::StateUnusable };
    Failure::new(code, format!("{}: {error}", path.display())).help("choose another place with --state DIR")
}

/// Nothing can listen at the daemon's socket.
pub(crate) fn socket_unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::SocketUnusable, format!("the socket {}: {error}", path.display()))
        .help("choose another place with --socket PATH")
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_os::FileAccess;

    /// A socket for its owner alone.
    fn own(path: PathBuf) -> ControlSocket {
        ControlSocket { path, access: FileAccess::OWNER }
    }

    #[test]
    fn a_place_is_used_once_and_free_again_afterwards() {
        let folder = tempfile::tempdir().expect("a folder");
        let (state, socket) = (folder.path().join("state"), own(folder.path().join("run/varve.sock")));
        let locks = lock(&state, &socket).expect("free");
        let listener = listen(&socket, &locks).expect("free");
        let second = lock(&folder.path().join("other"), &socket).map_err(|failure| failure.code);
        assert_eq!(second.err(), Some(Code::DaemonRuns));
        let second = lock(&state, &own(folder.path().join("other.sock"))).map_err(|failure| failure.code);
        assert_eq!(second.err(), Some(Code::DaemonRuns));
        drop((listener, locks));
        let locks = lock(&state, &socket).expect("free again");
        assert!(socket.path.exists(), "a killed daemon leaves its socket");
        listen(&socket, &locks).expect("PLACES1: nobody listens, so it is replaced");
    }

    #[test]
    fn a_socket_at_which_somebody_listens_is_not_taken_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = own(folder.path().join("varve.sock"));
        let _other = UnixListener::bind(&socket.path).expect("free");
        let locks = lock(&folder.path().join("state"), &socket).expect("free");
        let taken = listen(&socket, &locks).map_err(|failure| failure.code);
        assert_eq!(taken.err(), Some(Code::DaemonRuns), "PLACES1");
    }
    #[test]
    fn nothing_is_changed_that_is_not_a_lock_of_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let (lock_path, victim) = (at("varve.sock.lock"), at("victim"));
        std::fs::write(&victim, "what somebody needs").expect("a writable folder");
        let fails = |why: &str| {
            let failure = lock(&at("state"), &own(at("varve.sock"))).expect_err("PLACES2");
            assert!(failure.message.contains(why), "PLACES2: {}", failure.message);
            assert_eq!(std::fs::read_to_string(&victim).expect("there"), "what somebody needs", "PLACES2");
            std::fs::remove_file(&lock_path).expect("there");
        };
        std::os::unix::fs::symlink(&victim, &lock_path).expect("a writable folder");
        fails("symbolic link");
        std::os::unix::fs::symlink(at("nowhere"), &lock_path).expect("a writable folder");
        fails("symbolic link");
        assert!(!at("nowhere").exists(), "PLACES2");
        std::fs::hard_link(&victim, &lock_path).expect("a writable folder");
        fails("several names");
        std::fs::copy(&victim, &lock_path).expect("a writable folder");
        fails("something else");
        std::fs::write(&lock_path, "4711\n").expect("a writable folder");
        let locks = lock(&at("state"), &own(at("varve.sock"))).expect("a lock that an older daemon has left");
        let text = std::fs::read_to_string(&lock_path).expect("there");
        assert_eq!(text.trim_end(), std::process::id().to_string());
        drop(locks);
    }

    #[test]
    fn a_file_that_is_no_socket_is_not_replaced_by_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = own(folder.path().join("varve.sock"));
        let locks = lock(&folder.path().join("state"), &socket).expect("free");
        std::fs::write(&socket.path, "precious").expect("a writable folder");
        let refused = listen(&socket, &locks).map_err(|failure| failure.code);
        assert_eq!(refused.err(), Some(Code::SocketUnusable), "PLACES1");
        assert_eq!(std::fs::read_to_string(&socket.path).expect("there"), "precious", "PLACES1");
        std::fs::remove_file(&socket.path).expect("there");
        listen(&socket, &locks).expect("free");
        let mode = std::fs::symlink_metadata(&socket.path).expect("there").mode();
        assert_eq!(mode & 0o777, 0o600, "PLACES2");
    }

    #[test]
    fn a_shared_socket_can_be_reached_and_another_one_cannot() {
        let folder = tempfile::tempdir().expect("a folder");
        let mode_of = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o777;
        for (name, access, directory, file) in [
            ("own", FileAccess::OWNER, 0o700, 0o600),
            ("shared", FileAccess { mode: 0o660, group: None }, 0o755, 0o660),
        ] {
            let socket = ControlSocket { path: folder.path().join(name).join("varve.sock"), access };
            let locks = lock(&folder.path().join("state").join(name), &socket).expect("free");
            let _listener = listen(&socket, &locks).expect("free");
            let parent = socket.path.parent().expect("it has one");
            assert_eq!((mode_of(parent), mode_of(&socket.path)), (directory, file), "PLACES3: {name}");
            assert_eq!(mode_of(&folder.path().join("state").join(name)), 0o700, "PLACES3: {name}");
            assert_eq!(mode_of(&beside(&socket.path)), 0o600, "PLACES3: {name}");
        }
    }
}
