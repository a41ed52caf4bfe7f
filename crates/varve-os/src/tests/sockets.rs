//! Socket files of others, which may be in a bad way.

use super::with_shards;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::channel;
use std::time::Duration;

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
            let _ = sender.send(context.listen_unix(&place, 0o600).map(drop).map_err(|error| error.kind()));
        }));
        let answer = receiver.recv_timeout(Duration::from_secs(60)).expect("the shard does not wait");
        assert_eq!(answer, Err(std::io::ErrorKind::AddrInUse));
    });
    drop((listener, waiting));
    with_shards(1, |shards| {
        let place = path.clone();
        let replaced = shards.handle(0).run_and_wait(move |context| async move {
            context.listen_unix(&place, 0o600).map(drop).map_err(|error| error.kind())
        });
        assert_eq!(replaced, Ok(Ok(())), "nobody listens on it any more");
        drop(UnixListener::bind(&path).expect("the file is gone with its listener"));
    });
}
