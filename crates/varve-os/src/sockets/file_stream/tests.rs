//! Tests of connections to programs that pass files.

use super::*;
use crate::{CacheMode, DiskFile, IoChoice, OpenError, Shards, ShardsConfig};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

fn send_with(stream: &UnixStream, bytes: &[u8], files: &[&File]) {
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    }
    let sent = rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}

/// What `work` on a shard comes to.
fn on_shard<T: Send + 'static, F: Future<Output = T> + 'static>(
    choice: IoChoice,
    work: impl FnOnce(ShardContext) -> F + Send + 'static,
) -> T {
    let shards = Shards::start(&ShardsConfig { io: choice, ..ShardsConfig::default() }).expect("a shard");
    let done = shards.handle(0).run_and_wait(work).expect("the shard lives");
    assert!(shards.stop(), "it ends in order");
    done
}

#[test]
fn bytes_and_files_arrive_in_order_with_a_ring_and_without() {
    for choice in [IoChoice::Auto, IoChoice::Pool] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let files = [File::create(&one).expect("a file"), File::create(&two).expect("a file")];
        #[expect(clippy::disallowed_methods, reason = "the program is another one")]
        let program = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("the daemon connects");
            let mut hello = [0; 5];
            std::io::Read::read_exact(&mut &stream, &mut hello).expect("it says hello");
            send_with(&stream, b"first", &[&files[0], &files[1]]);
            send_with(&stream, b"second", &[]);
            (hello, stream)
        });
        let (peer, received) = on_shard(choice, {
            let path = path.clone();
            move |context| async move {
                let stream = context.connect_files(&path).await.expect("the program listens");
                stream.send(b"hello").await.expect("sent");
                let (mut bytes, mut files) = (Vec::new(), Vec::new());
                while bytes.len() < 11 {
                    let received = stream.receive().await.expect("the program sends");
                    bytes.extend(received.bytes);
                    files.extend(received.files);
                }
                (stream.peer(), (bytes, files))
            }
        });
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
        assert_eq!(peer.process, i32::try_from(std::process::id()).expect("small"));
        assert_eq!(received.0, b"firstsecond");
        let inodes: Vec<u64> = received.1.into_iter().map(|file| inode(&File::from(file))).collect();
        let inode_at = |path| inode(&File::open(path).expect("it is there"));
        assert_eq!(inodes, [inode_at(&one), inode_at(&two)]);
        assert_eq!(&program.join().expect("the program ends").0, b"hello");
    }
}

fn inode(file: &File) -> u64 {
    file.metadata().expect("a file").ino()
}

#[test]
fn a_program_that_is_not_there_or_accepts_nothing_is_told_apart_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (gone, full) = (folder.path().join("gone"), folder.path().join("full"));
    let listener = UnixListener::bind(&full).expect("a socket");
    rustix::net::listen(&listener, 0).expect("a backlog of one");
    let errors = on_shard(IoChoice::Auto, move |context| async move {
        let gone = context.connect_files(&gone).await.err().map(|error| error.to_string());
        let mut kept = Vec::new();
        let busy = loop {
            match context.connect_files(&full).await {
                Ok(stream) if kept.len() < 100 => kept.push(stream),
                Ok(_) => break None,
                Err(error) => break Some(error),
            }
        };
        (gone, matches!(busy, Some(ConnectError::Busy(_))))
    });
    assert!(errors.0.is_some_and(|error| error.contains("no program listens at")));
    assert!(errors.1, "FILESTREAM2");
}

#[test]
fn a_file_that_was_passed_has_the_rights_of_its_opening_and_is_no_disk_of_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, [7; 8192]).expect("a file");
    let open = |read: bool, write: bool| File::options().read(read).write(write).open(&path).expect("open");
    let passed = |file: File| DiskFile::passed(file.into(), CacheMode::Direct);
    let reads = passed(open(true, false)).expect("a file to read");
    assert_eq!((reads.shape().access, reads.size()), (varve_block::Access::ReadOnly, 8192), "PASSED1");
    let writes = passed(open(true, true)).expect("a file to write, beside the other one");
    assert_eq!(writes.shape().access, varve_block::Access::ReadWrite);
    assert!(writes.path().ends_with("file"), "{:?}", writes.path());
    assert!(matches!(passed(open(false, true)), Err(OpenError::Permission(_))), "it cannot be read");
    let appends = File::options().read(true).append(true).open(&path).expect("open");
    assert!(matches!(passed(appends), Err(OpenError::Permission(_))), "writes would go to its end");
    assert!(matches!(passed(File::open("/dev/null").expect("open")), Err(OpenError::NotADisk(_))));
    assert!(matches!(passed(File::open(folder.path()).expect("open")), Err(OpenError::NotADisk(_))));
    drop((reads, writes));
    let disk = DiskFile::open(&path, crate::DiskOptions::default()).expect("a disk of a group");
    assert!(matches!(passed(open(true, false)), Err(OpenError::InUse(_))), "PASSED2");
    drop(disk);
    passed(open(true, true)).expect("it is no disk any more");
}

#[test]
fn only_programs_of_this_user_and_of_root_are_trusted_or_whose_socket_is_theirs() {
    let trusted = [(7, Some(8), 7), (0, Some(8), 7), (8, Some(7), 7), (8, Some(0), 7), (0, None, 0)];
    assert!(trusted.iter().all(|(user, owner, own)| is_trusted(*user, *owner, *own)), "FILESTREAM1");
    let others = [(8, Some(8), 7), (8, None, 7), (7, Some(7), 0), (7, None, 0)];
    assert!(others.iter().all(|(user, owner, own)| !is_trusted(*user, *owner, *own)), "FILESTREAM1");
}
