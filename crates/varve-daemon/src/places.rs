//! The state directory and the socket, of which only one daemon at a time may have the use.
//!
//! Invariant P1: a socket file is removed only if nobody listens at it, and only while its lock is held.

use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use varve_api::{Code, Failure};

/// Files that are locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct Locks {
    _files: Vec<File>,
}

/// Makes the state directory and locks it and the socket's place.
pub(crate) fn lock(state: &Path, socket: &Path) -> Result<Locks, Failure> {
    make_directory(state).map_err(|error| state_unusable(state, &error))?;
    if let Some(parent) = socket.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_directory(parent).map_err(|error| socket_unusable(socket, &error))?;
    }
    let state_lock = lock_file(&state.join("lock"), &format!("the state directory {}", state.display()))?;
    let socket_lock = lock_file(&beside(socket), &format!("the socket {}", socket.display()))?;
    Ok(Locks { _files: vec![state_lock, socket_lock] })
}

/// Listens at `socket`, in place of a file that a killed daemon left there.
pub(crate) fn listen(socket: &Path, _locks: &Locks) -> Result<UnixListener, Failure> {
    if UnixStream::connect(socket).is_ok() {
        return Err(another(&format!("the socket {}", socket.display())));
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(socket_unusable(socket, &error)),
        _ => {}
    }
    let bound = UnixListener::bind(socket).and_then(|listener| {
        std::fs::set_permissions(socket, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| socket_unusable(socket, &error))
}

fn make_directory(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn beside(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn lock_file(path: &Path, what: &str) -> Result<File, Failure> {
    let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
    let mut file = open.map_err(|error| state_unusable(path, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(another(what)),
        Err(error) => return Err(state_unusable(path, &error.into())),
    }
    let _ = file.set_len(0);
    let _ = writeln!(file, "{}", std::process::id());
    Ok(file)
}

fn another(what: &str) -> Failure {
    Failure::new(Code::DaemonRuns, format!("another daemon uses {what}"))
        .help("stop it first (SIGTERM), or give this one its own --state and --socket")
}

fn state_unusable(path: &Path, error: &std::io::Error) -> Failure {
    let code = if error.kind() == ErrorKind::StorageFull { Code::NoSpaceOnHost } else { Code::StateUnusable };
    Failure::new(code, format!("{}: {error}", path.display())).help("choose another place with --state DIR")
}

fn socket_unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::SocketUnusable, format!("the socket {}: {error}", path.display()))
        .help("choose another place with --socket PATH")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_once_and_free_again_afterwards() {
        let folder = tempfile::tempdir().expect("a folder");
        let (state, socket) = (folder.path().join("state"), folder.path().join("run/varve.sock"));
        let locks = lock(&state, &socket).expect("free");
        let listener = listen(&socket, &locks).expect("free");
        let second = lock(&folder.path().join("other"), &socket).map_err(|failure| failure.code);
        assert_eq!(second.err(), Some(Code::DaemonRuns));
        let second = lock(&state, &folder.path().join("other.sock")).map_err(|failure| failure.code);
        assert_eq!(second.err(), Some(Code::DaemonRuns));
        drop((listener, locks));
        let locks = lock(&state, &socket).expect("free again");
        assert!(socket.exists(), "a killed daemon leaves its socket");
        listen(&socket, &locks).expect("P1: nobody listens, so it is replaced");
    }

    #[test]
    fn a_socket_at_which_somebody_listens_is_not_taken_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("varve.sock");
        let _other = UnixListener::bind(&socket).expect("free");
        let locks = lock(&folder.path().join("state"), &socket).expect("free");
        let taken = listen(&socket, &locks).map_err(|failure| failure.code);
        assert_eq!(taken.err(), Some(Code::DaemonRuns), "P1");
    }
}
