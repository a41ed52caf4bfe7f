//! A virtual machine as a door sees it: a socket, memory, queues, and a disk behind the door that can be held.

use super::super::connection::send;
use super::super::memory::Memory;
use super::super::message::{Message, RegionAt, protocol};
use super::super::{VhostDoor, VhostOptions};
use crate::bell::{Bell, wait_for};
use crate::budget::Budget;
use rustix::event::PollFlags;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use varve_block::{
    Access, Arena, Buffer, Done, Extent, Io, IoError, KIB, MIB, Outcome, Portal, Shape, StatusRun, Submit,
};

/// Where the guest's memory is in its process.
pub(super) const USER: u64 = 0x10_0000_0000;
pub(super) const MEMORY: u64 = MIB;
pub(super) const SIZE: u16 = 16;
/// Where its data begins.
pub(super) const DATA: u64 = 0x10000;
const QUEUE_BYTES: u64 = 0x3000;

/// A request without an answer.
type Held = (Io, Done<Outcome>);

/// A disk that keeps what it is asked, and answers at once or when it is let.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) content: Mutex<Vec<u8>>,
    pub(super) asked: Mutex<Vec<String>>,
    held: Mutex<Option<Vec<Held>>>,
}

impl Disk {
    pub(super) fn new(size: u64) -> Arc<Self> {
        let content = vec![0; usize::try_from(size).expect("it is small")];
        Arc::new(Self { content: Mutex::new(content), ..Self::default() })
    }

    pub(super) fn portal(self: &Arc<Self>, access: Access) -> Portal {
        let size = self.content.lock().expect("no panic").len() as u64;
        let shape = Shape { discard: true, optimal_size: 4096, access, ..Shape::new(size, 1) };
        Portal::new(shape, Arc::clone(self) as Arc<dyn Submit>)
    }

    /// Answers nothing from now on.
    pub(super) fn hold(&self) {
        *self.held.lock().expect("no panic") = Some(Vec::new());
    }

    /// Answers what is held, the last first, and all else at once.
    pub(super) fn release(&self) {
        let held = self.held.lock().expect("no panic").take().unwrap_or_default();
        held.into_iter().rev().for_each(|(io, done)| done(self.answer(io)));
    }

    /// Answers one of those that are held.
    pub(super) fn release_one(&self, index: usize) {
        let held = self.held.lock().expect("no panic").as_mut().map(|held| held.remove(index));
        let (io, done) = held.expect("the disk is held");
        done(self.answer(io));
    }

    fn answer(&self, io: Io) -> Outcome {
        let mut content = self.content.lock().expect("no panic");
        let range = |extent: Extent| {
            let bound = |at: u64| usize::try_from(at).expect("it is small");
            bound(extent.offset)..bound(extent.end())
        };
        let extent = range(io.extent());
        match io {
            Io::Read { mut buffer, .. } => {
                buffer.copy_from_slice(&content[extent]);
                return Ok(buffer);
            }
            Io::Write { data, .. } => content[extent].copy_from_slice(&data),
            Io::Zero { .. } | Io::Discard { .. } => content[extent].fill(0),
            Io::Flush => {}
        }
        Ok(Buffer::empty())
    }
}

impl Submit for Disk {
    fn submit(&self, io: Io, done: Done<Outcome>) {
        let Extent { offset, length } = io.extent();
        let kind = match &io {
            Io::Read { .. } => "read",
            Io::Write { .. } => "write",
            Io::Zero { options, .. } if options.unmap => "unmap",
            Io::Zero { .. } => "zero",
            Io::Discard { .. } => "discard",
            Io::Flush => "flush",
        };
        self.asked.lock().expect("no panic").push(format!("{kind} {offset} {length}"));
        if let Some(held) = &mut *self.held.lock().expect("no panic") {
            return held.push((io, done));
        }
        done(self.answer(io));
    }

    fn status(&self, _: Extent, done: Done<Result<Vec<StatusRun>, IoError>>) {
        done(Ok(Vec::new()));
    }
}

/// A door at a socket.
pub(super) struct Stage {
    pub(super) disk: Arc<Disk>,
    pub(super) door: VhostDoor,
    pub(super) path: PathBuf,
    _folder: tempfile::TempDir,
}

#[expect(clippy::unnecessary_wraps, reason = "as the door wants it")]
fn spawn(_: &str, work: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the threads of the door are real")]
    std::thread::spawn(work);
    Ok(())
}

impl Stage {
    pub(super) fn new(size: u64, access: Access) -> Self {
        Self::on(&Disk::new(size), access, 64 * MIB)
    }

    pub(super) fn on(disk: &Arc<Disk>, access: Access, memory: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("free");
        let options = VhostOptions::new("0123456789abcdef0123456789", Budget::new(memory), spawn);
        let arena = Arena::heap(8 << 20);
        let door = VhostDoor::open(disk.portal(access), arena, listener.into(), &path, options);
        Self { disk: Arc::clone(disk), door: door.expect("it opens"), path, _folder: folder }
    }

    pub(super) fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).expect("the door listens")
    }

    pub(super) fn machine(&self) -> Machine {
        let mut machine = self.machine_when_free();
        machine.set_up(protocol::ALL & !protocol::IN_FLIGHT, None);
        machine
    }

    /// A machine that is not turned away.
    fn machine_when_free(&self) -> Machine {
        loop {
            let mut machine = Machine::new(self.connect());
            if machine.try_ask(1, &[]).is_some() {
                return machine;
            }
        }
    }
}

/// A test that fails does not wait for what it holds.
impl Drop for Stage {
    fn drop(&mut self) {
        self.disk.release();
    }
}

/// What a descriptor says.
#[derive(Clone, Copy)]
pub(super) struct Descriptor {
    pub(super) at: u64,
    pub(super) length: u32,
    pub(super) flags: u16,
    pub(super) next: u16,
}

/// A machine.
pub(super) struct Machine {
    stream: UnixStream,
    pub(super) file: OwnedFd,
    pub(super) memory: Memory,
    pub(super) kick: OwnedFd,
    pub(super) call: Bell,
    pub(super) error: Bell,
    bells: [OwnedFd; 2],
    pub(super) available: [u16; 2],
    used: [u16; 2],
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pair(first: u32, second: u32) -> Vec<u8> {
    [first, second].map(u32::to_le_bytes).concat()
}

fn event() -> (OwnedFd, OwnedFd) {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let event = rustix::event::eventfd(0, flags).expect("an event");
    (event.try_clone().expect("a descriptor"), event)
}

impl Machine {
    pub(super) fn new(stream: UnixStream) -> Self {
        let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&file, MEMORY).expect("memory");
        Self::with_memory(stream, file)
    }

    /// It, with its memory, at another door.
    pub(super) fn connected_anew(&self, stream: UnixStream) -> Self {
        let mut anew = Self::with_memory(stream, self.file());
        (anew.available, anew.used) = (self.available, self.used);
        anew
    }

    fn with_memory(stream: UnixStream, file: OwnedFd) -> Self {
        let at = RegionAt { guest: 0, size: MEMORY, user: USER, offset: 0 };
        let memory = Memory::default().with(at, file.try_clone().expect("a descriptor")).expect("memory");
        let ((call, call_there), (error, error_there)) = (event(), event());
        let (call, error) = (Bell::of(call).expect("an event"), Bell::of(error).expect("an event"));
        let bells = [call_there, error_there];
        let (kick, _) = event();
        let (available, used) = ([0; 2], [0; 2]);
        Self { stream, file, memory, kick, call, error, bells, available, used }
    }

    /// Sends a message that asks for an answer, if `acknowledged`.
    pub(super) fn send(&self, kind: u32, body: &[u8], descriptor: Option<&OwnedFd>, acknowledged: bool) {
        let length = u32::try_from(body.len()).expect("it is short");
        let header = [kind, if acknowledged { 9 } else { 1 }, length].map(u32::to_le_bytes).concat();
        let message = [&header, body].concat();
        let descriptor = descriptor.map(AsFd::as_fd);
        // A door that has turned it away does not read.
        let _ = send(&self.stream, &message, descriptor, || Ok(()));
    }

    pub(super) fn answer(&mut self) -> Option<Vec<u8>> {
        let mut header = [0; 12];
        self.stream.read_exact(&mut header).ok()?;
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let mut body = vec![0; length as usize];
        self.stream.read_exact(&mut body).ok()?;
        Some(body)
    }

    /// Sends a message, which is accepted or not.
    pub(super) fn tell(&mut self, kind: u32, body: &[u8], descriptor: Option<&OwnedFd>) -> bool {
        self.send(kind, body, descriptor, true);
        self.answer().expect("an answer") == words(&[0])
    }

    fn try_ask(&mut self, kind: u32, body: &[u8]) -> Option<Vec<u8>> {
        self.send(kind, body, None, false);
        self.answer()
    }

    pub(super) fn ask(&mut self, kind: u32, body: &[u8]) -> Vec<u8> {
        self.send(kind, body, None, false);
        self.answer().expect("an answer")
    }

    fn file(&self) -> OwnedFd {
        self.file.try_clone().expect("a descriptor")
    }

    /// All that is done before a queue is served; with the memory for what is in flight, if it is given.
    pub(super) fn set_up(&mut self, protocol: u64, in_flight: Option<(&[u8], &OwnedFd)>) {
        let features = u64::from_le_bytes(self.ask(1, &[]).try_into().expect("a number"));
        self.send(16, &words(&[protocol]), None, false);
        assert!(self.tell(2, &words(&[features]), None));
        assert!(self.tell(3, &[], None));
        if let Some((area, file)) = in_flight {
            assert!(self.tell(32, area, Some(file)));
        }
        let file = self.file();
        assert!(self.tell(5, &[words(&[1]), words(&[0, MEMORY, USER, 0])].concat(), Some(&file)));
        self.start(0);
    }

    fn queue_at(queue: u32) -> u64 {
        0x1000 + QUEUE_BYTES * u64::from(queue)
    }

    /// Has a queue served.
    pub(super) fn start(&mut self, queue: u32) {
        let at = USER + Self::queue_at(queue);
        assert!(self.tell(8, &pair(queue, SIZE.into()), None));
        assert!(self.tell(10, &pair(queue, self.used[queue as usize].into()), None));
        let addresses = [pair(queue, 0), words(&[at, at + 0x2000, at + 0x1000, 0])].concat();
        assert!(self.tell(9, &addresses, None));
        let number = words(&[queue.into()]);
        let [call, error] = [0, 1].map(|index: usize| self.bells[index].try_clone().expect("a descriptor"));
        let kick = self.kick.try_clone().expect("a descriptor");
        assert!(self.tell(13, &number, Some(&call)) && self.tell(14, &number, Some(&error)));
        assert!(self.tell(12, &number, Some(&kick)));
        assert!(self.tell(18, &pair(queue, 1), None));
    }

    /// Has another descriptor tell it of answers.
    pub(super) fn set_call(&mut self, queue: u32, call: &OwnedFd) -> bool {
        self.tell(13, &words(&[queue.into()]), Some(call))
    }

    /// Has a queue served no more; where it goes on.
    pub(super) fn stop(&mut self, queue: u32) -> u16 {
        let answer = self.ask(11, &pair(queue, 0));
        u16::from_le_bytes([answer[4], answer[5]])
    }

    pub(super) fn put(&self, index: u16, descriptor: Descriptor) {
        self.put_at(Self::queue_at(0) + 16 * u64::from(index), descriptor);
    }

    pub(super) fn put_at(&self, at: u64, descriptor: Descriptor) {
        let Descriptor { at: address, length, flags, next } = descriptor;
        let bytes =
            [&words(&[address])[..], &length.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
        self.memory.write(at, &bytes.concat()).expect("memory");
    }

    /// Makes a head available.
    pub(super) fn offer(&mut self, head: u16) {
        let at = Self::queue_at(0) + 0x1000;
        let place = at + 4 + 2 * u64::from(self.available[0] % SIZE);
        self.memory.write(place, &head.to_le_bytes()).expect("memory");
        self.available[0] = self.available[0].wrapping_add(1);
        self.publish(self.available[0]);
    }

    pub(super) fn publish(&self, index: u16) {
        self.memory.store(Self::queue_at(0) + 0x1002, index, SeqCst).expect("memory");
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).expect("an event");
    }

    /// Sends a request of a kind with data that the guest gives, and room for what it gets; at the places from `head` on.
    pub(super) fn request(&mut self, head: u16, kind: u32, sector: u64, given: &[u8], room: u32) {
        let at = DATA + 0x8000 * u64::from(head / 4);
        self.memory.write(at, &[pair(kind, 0), words(&[sector])].concat()).expect("memory");
        self.memory.write(at + 16, given).expect("memory");
        self.memory.write(at + 0x7000, &[0xee]).expect("memory");
        let length = u32::try_from(given.len()).expect("it is short");
        // Header and data in one piece, as no driver cuts them but any may.
        self.put(head, Descriptor { at, length: 16 + length, flags: 1, next: head + 1 });
        self.put(head + 1, Descriptor { at: at + 0x4000, length: room, flags: 3, next: head + 2 });
        self.put(head + 2, Descriptor { at: at + 0x7000, length: 1, flags: 2, next: 0 });
        self.offer(head);
    }

    /// How many were given back.
    pub(super) fn used(&self) -> u16 {
        self.memory.load(Self::queue_at(0) + 0x2002, SeqCst).expect("memory")
    }

    /// The guest is to be notified of the next answer.
    pub(super) fn want_call(&self) {
        let event = Self::queue_at(0) + 0x1000 + 4 + 2 * u64::from(SIZE);
        self.memory.store(event, self.used[0], SeqCst).expect("memory");
    }

    /// Waits for the next answer: its head, how much was written, its status, and what the guest got.
    pub(super) fn wait(&mut self) -> (u16, u32, u8, Vec<u8>) {
        while self.used() == self.used[0] {
            self.want_call();
            if self.used() == self.used[0] {
                wait_for([(&self.call, PollFlags::IN)]);
                self.call.hush();
            }
        }
        let place = Self::queue_at(0) + 0x2004 + 8 * u64::from(self.used[0] % SIZE);
        let mut element = [0; 8];
        self.memory.read(place, &mut element).expect("memory");
        self.used[0] = self.used[0].wrapping_add(1);
        let [h0, h1, _, _, w0, w1, w2, w3] = element;
        let (head, written) = (u16::from_le_bytes([h0, h1]), u32::from_le_bytes([w0, w1, w2, w3]));
        let at = DATA + 0x8000 * u64::from(head / 4);
        let (mut status, mut got) = ([0], vec![0; (written as usize).saturating_sub(1)]);
        self.memory.read(at + 0x7000, &mut status).expect("memory");
        self.memory.read(at + 0x4000, &mut got).expect("memory");
        (head, written, status[0], got)
    }

    /// A request and its answer.
    pub(super) fn done(&mut self, kind: u32, sector: u64, given: &[u8], room: u32) -> (u32, u8, Vec<u8>) {
        self.request(0, kind, sector, given, room);
        let (_, written, status, got) = self.wait();
        (written, status, got)
    }

    /// Waits until the door says that a queue is broken.
    pub(super) fn is_broken(&self) -> bool {
        let [is_broken] = wait_for([(&self.error, PollFlags::IN)]);
        self.error.hush();
        is_broken
    }

    /// The memory for what is in flight, as the door makes it.
    pub(super) fn in_flight(&mut self) -> (Vec<u8>, OwnedFd) {
        let area = [words(&[0, 0]), 2_u16.to_le_bytes().to_vec(), SIZE.to_le_bytes().to_vec(), vec![0; 4]];
        self.send(31, &area.concat(), None, false);
        let (mut header, mut body) = ([0; 12], [0; 24]);
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let mut parts = [std::io::IoSliceMut::new(&mut header)];
        let flags = rustix::net::RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(&self.stream, &mut parts, &mut ancillary, flags).expect("an answer");
        self.stream.read_exact(&mut body).expect("an answer");
        let mut files = ancillary.drain().filter_map(|message| match message {
            rustix::net::RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        assert!(matches!(Message::decode(32, &body), Some(Message::SetInFlight(_))));
        (body.to_vec(), files.next().expect("a file comes with it"))
    }
}

/// Data that differs from place to place.
pub(super) fn pattern(seed: u8, length: u64) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8 ^ seed).collect()
}

/// As large as most disks of these tests.
pub(super) const DISK: u64 = 64 * KIB;
