//! Socket files of others, which may be in a bad way.

use super::with_shards;
use crate::{bind_unix, find_group, set_socket_access};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;
use varve_block::host::FileAccess;

#[test]
fn a_socket_file_whose_listener_accepts_nothing_is_left_alone_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let address = SocketAddrUnix::new(&path).expect("a short path");
    // Until its backlog is full.
    let mut waiting = Vec::new();
    loop {
        let flags = SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.expect("a socket");
        match rustix::net::connect(&socket, &address) {
            Ok(()) => waiting.push(socket),
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                break;
            }
        }
    }
    with_shards(1, |shards| {
        let (sender, receiver) = channel();
        let place = path.clone();
        drop(shards.handle(0).run(move |context| async move {
            let _ = sender
                .send(context.listen_unix(&place, FileAccess::OWNER).map(drop).map_err(|error| error.kind()));
        }));
        let answer = receiver.recv_timeout(Duration::from_secs(60)).expect("the shard does not wait");
        assert_eq!(answer, Err(std::io::ErrorKind::AddrInUse));
    });
    drop((listener, waiting));
    with_shards(1, |shards| {
        let place = path.clone();
        let replaced = shards.handle(0).run_and_wait(move |context| async move {
            context.listen_unix(&place, FileAccess::OWNER).map(drop).map_err(|error| error.kind())
        });
        assert_eq!(replaced, Ok(Ok(())), "nobody listens on it any more");
        drop(UnixListener::bind(&path).expect("the file is gone with its listener"));
    });
}

/// Mode and group of a file.
fn access_of(path: &std::path::Path) -> (u32, u32) {
    let metadata = std::fs::symlink_metadata(path).expect("it is there");
    (metadata.mode() & 0o7777, metadata.gid())
}

#[test]
fn a_socket_file_has_its_mode_whatever_the_umask_takes_away() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in [0o600, 0o660, 0o666, 0o622] {
        let path = directory.path().join(format!("{mode:o}"));
        let socket = bind_unix(&path, FileAccess { mode, group: None }, 1).expect("a socket");
        assert_eq!(access_of(&path).0, mode);
        set_socket_access(&path, FileAccess { mode: 0o640, group: None }).expect("it is ours");
        assert_eq!(access_of(&path).0, 0o640);
        drop(socket);
    }
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("written");
    let before = access_of(&file);
    assert!(set_socket_access(&file, FileAccess::OWNER).is_err(), "it is no socket");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path().join("666"), &link).expect("a link");
    assert!(set_socket_access(&link, FileAccess::OWNER).is_err(), "no link is followed");
    assert_eq!((access_of(&file), access_of(&directory.path().join("666")).0), (before, 0o640));
}

#[test]
fn groups_are_found_by_name_and_number() {
    assert_eq!(
        find_group("root").or(find_group("0")).map_err(|error| error.kind()),
        find_group("0").map_err(|error| error.kind())
    );
    let own = rustix::process::getegid().as_raw();
    assert_eq!(find_group(&own.to_string()).ok(), Some(own));
    for unknown in ["no such group", "", "4294967295", "a\0b", "-1"] {
        assert_eq!(find_group(unknown).map_err(|error| error.kind()), Err(std::io::ErrorKind::NotFound));
    }
}

/// LISTENER1, for a user of group 1, who may never connect, and for one of group 2, who may sometimes.
#[test]
fn a_socket_that_changes_its_group_never_lets_the_wrong_one_in() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root may give files to other groups");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let closed = FileAccess { mode: 0o600, group: Some(1) };
    let open = FileAccess { mode: 0o660, group: Some(2) };
    let _socket = bind_unix(&path, closed, 1).expect("a socket");
    assert_eq!(access_of(&path), (0o600, 1));
    let (is_done, has_both) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            while !is_done.load(SeqCst) {
                seen.insert(access_of(&path));
                has_both.store(seen.contains(&(0o660, 2)) && seen.contains(&(0o600, 1)), SeqCst);
            }
            seen
        });
        // On a busy machine the watcher comes late.
        let mut turns = 0;
        while turns < 5_000 || !has_both.load(SeqCst) && turns < 5_000_000 {
            turns += 1;
            set_socket_access(&path, open).expect("root may");
            set_socket_access(&path, closed).expect("root may");
        }
        is_done.store(true, SeqCst);
        let seen = watcher.join().expect("no check failed");
        assert!(seen.contains(&(0o660, 2)) && seen.contains(&(0o600, 1)), "both were seen: {seen:?}");
        assert!(!seen.contains(&(0o660, 1)), "LISTENER1: {seen:?}");
    });
}
