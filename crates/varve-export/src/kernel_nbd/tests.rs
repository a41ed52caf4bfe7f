//! The door beside a kernel that is made here: its calls, its files, and its side of the connections.

use super::*;
use crate::Budget;
use crate::device_door::memory::{Memory, SIZE};
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use varve_block::IoError;
use varve_nbd::wire::{SIMPLE_REPLY_MAGIC, command_flag};
use varve_nbd::{Command, ErrorCode, Framing, Request};

/// Longer than what does not wait takes.
const LONG: Duration = Duration::from_secs(20);

/// The files of a host, and what its kernel was asked.
struct Host {
    folder: tempfile::TempDir,
    asked: Mutex<Vec<String>>,
    /// The kernel's side of the connections that it was given last.
    sockets: Mutex<Vec<UnixStream>>,
    given: Condvar,
}

#[derive(Clone)]
struct FakeKernel(Arc<Host>);

impl Host {
    fn new() -> Arc<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("sys/nbd0")).expect("a writable folder");
        fs::create_dir_all(folder.path().join("dev")).expect("a writable folder");
        fs::create_dir_all(folder.path().join("proc")).expect("a writable folder");
        fs::write(folder.path().join("dev/nbd0"), vec![0; 4096]).expect("a writable folder");
        let host = Self { folder, asked: Mutex::default(), sockets: Mutex::default(), given: Condvar::new() };
        Arc::new(host)
    }

    fn devices(&self) -> Devices {
        let at = |name: &str| self.folder.path().join(name);
        Devices(BlockDevices { sys: at("sys"), dev: at("dev"), proc: at("proc") })
    }

    fn link(&self) -> PathBuf {
        self.folder.path().join("dev/varve/data/v")
    }

    fn show(&self, file: &str, content: &str) {
        fs::write(self.folder.path().join("sys/nbd0").join(file), content).expect("a writable folder");
    }

    fn hide(&self, file: &str) {
        let _ = fs::remove_file(self.folder.path().join("sys/nbd0").join(file));
    }

    fn note(&self, what: String) {
        self.asked.lock().expect("no panic").push(what);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("no panic"))
    }

    /// The kernel's side of a connection.
    fn socket(&self) -> UnixStream {
        let mut sockets = self.sockets.lock().expect("no panic");
        while sockets.is_empty() {
            sockets = self.given.wait_timeout(sockets, LONG).expect("no panic").0;
        }
        sockets.remove(0)
    }

    fn open(self: &Arc<Self>, memory: &Arc<Memory>) -> Result<DeviceDoor, AttachError> {
        let portal = memory.portal(Shape::new(SIZE, 1));
        let options = AttachOptions::new("0a", Budget::new(1 << 26), spawn);
        let kernel = Box::new(FakeKernel(Arc::clone(self)));
        open_at(kernel, self.devices(), (portal, Arena::heap(1 << 22)), &self.link(), &options)
    }
}

fn spawn(name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

impl Kernel for FakeKernel {
    fn connect(
        &self,
        index: u32,
        parameters: &Parameters,
        sockets: &[UnixStream],
        identity: &str,
    ) -> io::Result<()> {
        self.0.note(format!("connect {index} of {} over {}", parameters.size, sockets.len()));
        self.0.show("size", &(parameters.size / 512).to_string());
        self.0.show("pid", "1");
        self.0.show("backend", identity);
        let own = sockets.iter().map(|socket| socket.try_clone().expect("a descriptor"));
        self.0.sockets.lock().expect("no panic").extend(own);
        Ok(())
    }

    fn replace_socket(&self, index: u32, socket: &UnixStream, _: &str) -> io::Result<()> {
        self.0.note(format!("socket for {index}"));
        self.0.sockets.lock().expect("no panic").push(socket.try_clone()?);
        self.0.given.notify_all();
        Ok(())
    }

    fn resize(&self, index: u32, parameters: &Parameters, _: &str) -> io::Result<()> {
        self.0.note(format!("size of {index}: {}", parameters.size));
        self.0.show("size", &(parameters.size / 512).to_string());
        Ok(())
    }

    fn disconnect(&self, index: u32) -> io::Result<()> {
        self.0.note(format!("disconnect {index}"));
        self.0.show("size", "0");
        self.0.hide("pid");
        self.0.hide("backend");
        for socket in self.0.sockets.lock().expect("no panic").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        Ok(())
    }
}

fn ask(mut socket: &UnixStream, command: Command, offset: u64, length: u64, data: &[u8]) {
    let request = Request { flags: 0, command, cookie: offset + 7, offset, length };
    let head = request.encode(Framing::Simple).expect("it is short");
    socket.write_all(&head).and_then(|()| socket.write_all(data)).expect("the door reads");
}

/// The error and the data of the next answer, which is to the request at `offset`.
fn answer(mut socket: &UnixStream, offset: u64, length: usize) -> (u32, Vec<u8>) {
    socket.set_read_timeout(Some(LONG)).expect("a socket");
    let mut head = [0; 16];
    socket.read_exact(&mut head).expect("an answer");
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(word(0), SIMPLE_REPLY_MAGIC);
    assert_eq!(u64::from_be_bytes(head[8..].try_into().expect("eight bytes")), offset + 7, "KSESSION1");
    let mut data = vec![0; if word(4) == 0 { length } else { 0 }];
    socket.read_exact(&mut data).expect("its data");
    (word(4), data)
}

#[test]
fn requests_of_the_kernel_are_answered() {
    let (host, memory) = (Host::new(), Memory::new(IoError::Medium));
    let door = host.open(&memory).expect("it is attached");
    assert_eq!(host.asked(), ["connect 0 of 1048576 over 2"]);
    assert_eq!(fs::read_link(host.link()).expect("a link"), door.device());
    let [first, second] = [host.socket(), host.socket()];
    ask(&first, Command::Write, 512, 4, b"abcd");
    assert_eq!(answer(&first, 512, 0), (0, Vec::new()));
    ask(&second, Command::Read, 511, 6, &[]);
    assert_eq!(answer(&second, 511, 6), (0, b"\0abcd\0".to_vec()));
    ask(&second, Command::Flush, 0, 0, &[]);
    assert_eq!(answer(&second, 0, 0).0, 0);
    ask(&second, Command::Trim, 0, 512, &[]);
    assert_eq!(answer(&second, 0, 0).0, ErrorCode::Invalid.code(), "it was not offered");
    ask(&second, Command::Write, SIZE - 2, 4, b"abcd");
    assert_eq!(answer(&second, SIZE - 2, 0).0, ErrorCode::NoSpace.code(), "beyond its end");
    ask(&second, Command::Read, 512, 2, &[]);
    assert_eq!(answer(&second, 512, 2), (0, b"ab".to_vec()), "the data of the refused write were skipped");
    let counters = door.counters();
    assert_eq!((counters.writes, counters.reads, counters.flushes, counters.in_flight), (1, 2, 1, 0));
    assert_eq!(command_flag::FUA, 1);
}

#[test]
fn a_write_that_may_be_sent_again_is_done_after_the_first_one() {
    let (host, memory) = (Host::new(), Memory::new(IoError::Medium));
    let door = host.open(&memory).expect("it is attached");
    let [first, second] = [host.socket(), host.socket()];
    memory.keep(1);
    ask(&first, Command::Write, 0, 4, b"old.");
    while memory.kept() == 0 {
        std::thread::yield_now();
    }
    // The kernel has waited too long: it ends the connection, and sends the request again.
    first.shutdown(Shutdown::Both).expect("it is connected");
    ask(&second, Command::Write, 0, 4, b"old.");
    ask(&second, Command::Write, 0, 4, b"new.");
    second.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    assert!((&second).read(&mut [0; 16]).is_err(), "KCONNECTION1: the first one is in flight");
    assert_eq!(host.asked(), ["connect 0 of 1048576 over 2"], "KCONNECTION2, KSESSION2: no other socket yet");
    memory.release();
    assert_eq!((answer(&second, 0, 0).0, answer(&second, 0, 0).0), (0, 0));
    assert_eq!(&memory.content.lock().expect("no panic")[..4], b"new.", "KCONNECTION1");
    let third = host.socket();
    ask(&third, Command::Read, 0, 4, &[]);
    assert_eq!(answer(&third, 0, 4), (0, b"new.".to_vec()), "the connection has another socket");
    assert!(door.is_serving());
}

#[test]
fn a_device_stays_for_the_next_daemon_which_takes_it_over_with_its_size() {
    let (host, memory) = (Host::new(), Memory::new(IoError::Medium));
    let door = host.open(&memory).expect("it is attached");
    let [first, second] = [host.socket(), host.socket()];
    door.leave();
    drop(door);
    assert_eq!((&first).read(&mut [0; 1]).expect("it has ended"), 0);
    assert_eq!(host.asked(), ["connect 0 of 1048576 over 2"], "DEVICEDOOR1");
    assert!(host.link().symlink_metadata().is_ok());
    host.show("size", "8");
    drop((first, second));
    let door = host.open(&memory).expect("it is taken over");
    let [socket, _other] = [host.socket(), host.socket()];
    let mut asked = host.asked();
    asked.sort();
    assert_eq!(asked, ["size of 0: 1048576", "socket for 0", "socket for 0"]);
    ask(&socket, Command::Read, 0, 1, &[]);
    assert_eq!(answer(&socket, 0, 1).0, 0);
    door.replace(memory.portal(Shape::new(SIZE / 2, 1)));
    while host.devices().size(0) != SIZE / 2 {
        std::thread::yield_now();
    }
}

#[test]
fn a_device_in_use_is_not_disconnected_unless_that_is_forced() {
    let (host, memory) = (Host::new(), Memory::new(IoError::Medium));
    let door = host.open(&memory).expect("it is attached");
    fs::create_dir_all(host.folder.path().join("sys/nbd0/holders/dm-1")).expect("a writable folder");
    assert_eq!((door.users())(), ["/dev/dm-1"]);
    assert!(
        matches!(door.close(), Err(AttachError::Busy(_, users)) if users == ["/dev/dm-1"]),
        "DEVICEDOOR1"
    );
    assert!(door.is_serving() && host.link().symlink_metadata().is_ok());
    host.asked();
    fs::remove_dir(host.folder.path().join("sys/nbd0/holders/dm-1")).expect("it is there");
    door.close().expect("nothing uses it");
    assert_eq!(host.asked(), ["disconnect 0"]);
    assert!(!host.folder.path().join("dev/varve").exists(), "the link has gone, with its folders");
    let door = host.open(&memory).expect("it is attached again");
    fs::create_dir_all(host.folder.path().join("sys/nbd0/holders/dm-1")).expect("a writable folder");
    door.detach();
    assert_eq!(host.asked().last().map(String::as_str), Some("disconnect 0"));
    assert!(!door.is_serving(), "DEVICEDOOR2");
}

#[test]
fn what_cannot_be_attached_leaves_nothing() {
    let (host, memory) = (Host::new(), Memory::new(IoError::Medium));
    fs::write(host.folder.path().join("dev/nbd0"), [0; 16]).expect("a writable folder");
    let failed = host.open(&memory).map(drop).expect_err("its first page cannot be read");
    assert!(matches!(failed, AttachError::Failed { doing: "read", .. }), "{failed}");
    assert_eq!(host.asked().last().map(String::as_str), Some("disconnect 0"), "KNBD1");
    assert!(!host.folder.path().join("dev/varve").exists(), "KNBD1");
    fs::create_dir_all(host.link()).expect("a writable folder");
    let failed = host.open(&memory).map(drop).expect_err("a folder is where the link is to be");
    assert!(matches!(failed, AttachError::Taken(_)), "{failed}");
    assert_eq!(host.asked(), Vec::<String>::new());
}

#[test]
fn another_program_that_disconnects_it_ends_the_door() {
    let (host, memory) = (Host::new(), Memory::new(IoError::Medium));
    let door = host.open(&memory).expect("it is attached");
    FakeKernel(Arc::clone(&host)).disconnect(0).expect("it is connected");
    while door.is_serving() {
        std::thread::yield_now();
    }
    door.close().expect("there is nothing to disconnect");
    assert_eq!(host.asked(), ["connect 0 of 1048576 over 2", "disconnect 0"]);
}
