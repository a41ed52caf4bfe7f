//! A virtual machine that does what an input says: the other side of the vhost-user-blk door.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Bytes of the guest's memory.
pub const MEMORY: u64 = 1 << 20;
/// Where it is in the machine's process.
const USER: u64 = 0x10_0000_0000;
/// Where the queue's descriptors are in it; the ring of what is available follows, then that of what is used.
const QUEUE: u64 = 0x1000;
const QUEUE_SIZE: u16 = 16;
/// Where its requests are.
const DATA: u64 = 0x10000;
/// How long an answer may take: the time of an input is shorter.
const ANSWER_MAX: Duration = Duration::from_secs(8);

/// What an input has the machine do. Its first byte says which, modulo their number.
pub mod step {
    /// A message with any kind, flags, descriptors and body.
    pub const MESSAGE: u8 = 0;
    /// The message of this number of a sound conversation.
    pub const SOUND: u8 = 1;
    /// Bytes in the guest's memory.
    pub const POKE: u8 = 2;
    /// A request with a header and up to three descriptors, of which one may be wrong.
    pub const REQUEST: u8 = 3;
    /// Another length of the guest's memory.
    pub const TRUNCATE: u8 = 4;
    /// How many there are.
    pub const COUNT: u8 = 5;
}

/// Messages of a sound conversation, with the descriptor that comes with each.
pub const SOUND: usize = 14;

/// Numbers and bytes from an input; zeros behind its end.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte, unless the input has ended.
    pub fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// A machine that is connected.
pub struct Machine {
    stream: UnixStream,
    memory: OwnedFd,
    kick: OwnedFd,
    call: OwnedFd,
    error: OwnedFd,
    available: u16,
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pair(first: u32, second: u32) -> Vec<u8> {
    [first, second].map(u32::to_le_bytes).concat()
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an event")
}

impl Machine {
    /// One with memory of its own.
    pub fn new(stream: UnixStream) -> Self {
        let memory = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a test has memory");
        ftruncate(&memory, MEMORY).expect("a test has memory");
        stream.set_read_timeout(Some(ANSWER_MAX)).expect("a socket");
        Self { stream, memory, kick: event(), call: event(), error: event(), available: 0 }
    }

    /// Sends a message. A door that has left does not read it.
    fn send(&self, kind: u32, flags: u32, body: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let length = u32::try_from(body.len()).expect("it is short");
        let message = [&[kind, flags, length].map(u32::to_le_bytes).concat()[..], body].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "there is room");
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = sendmsg(&self.stream, &[IoSlice::new(&message)], &mut ancillary, flags);
    }

    /// Message `number` of a sound conversation.
    fn send_sound(&self, number: usize) {
        let at = USER + QUEUE;
        let queue = words(&[0]);
        let memory = [words(&[1]), words(&[0, MEMORY, USER, 0])].concat();
        let addresses = [pair(0, 0), words(&[at, at + 0x2000, at + 0x1000, 0])].concat();
        let in_flight = [words(&[0, 0]), vec![1, 0, QUEUE_SIZE as u8, 0], vec![0; 4]].concat();
        let region = words(&[0, 0x20_0000, 0x1000, USER + 0x20_0000, 0]);
        let messages: [(u32, Vec<u8>, Option<&OwnedFd>); SOUND] = [
            (1, vec![], None),
            (16, words(&[u64::MAX >> 48]), None),
            (2, words(&[u64::MAX >> 30]), None),
            (3, vec![], None),
            (31, in_flight, None),
            (5, memory, Some(&self.memory)),
            (8, pair(0, QUEUE_SIZE.into()), None),
            (10, pair(0, 0), None),
            (9, addresses, None),
            (13, queue.clone(), Some(&self.call)),
            (14, queue.clone(), Some(&self.error)),
            (12, queue, Some(&self.kick)),
            (18, pair(0, 1), None),
            (37, region, Some(&self.memory)),
        ];
        let (kind, body, descriptor) = &messages[number % SOUND];
        let descriptor: Vec<BorrowedFd<'_>> =
            descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
        self.send(*kind, 1, body, &descriptor);
    }

    fn poke(&self, at: u64, bytes: &[u8]) {
        // Memory that was taken away takes nothing.
        let _ = rustix::io::pwrite(&self.memory, bytes, at);
    }

    /// A request, of which `input` says what is in it, and what of it is wrong.
    fn request(&mut self, input: &mut Input<'_>) {
        let head = u16::from(input.byte()) % QUEUE_SIZE;
        let (kind, sector) = (input.byte(), input.short());
        let (given, room, wrong) = (input.byte(), input.short(), input.byte());
        let at = DATA + 0x8000 * u64::from(head);
        self.poke(at, &[pair(kind.into(), 0), words(&[sector.into()])].concat());
        self.poke(at + 16, input.bytes(given.into()));
        self.poke(at + 0x7000, &[0xee]);
        let pieces = [(at, 16 + u32::from(given) * 2, 1), (at + 0x4000, room.into(), 3), (at + 0x7000, 1, 2)];
        for (number, (address, length, flags)) in (0_u16..).zip(pieces) {
            let is_wrong = u16::from(wrong & 3) == number + 1;
            let flags = flags ^ if is_wrong { u16::from(wrong >> 2 & 7) } else { 0 };
            let address = address ^ if is_wrong && wrong & 0x80 != 0 { 1 << 40 } else { 0 };
            let index = (head + number) % QUEUE_SIZE;
            let next = (index + 1) % if wrong & 0x40 != 0 { 2 } else { QUEUE_SIZE };
            let (flags, next) = (flags.to_le_bytes(), next.to_le_bytes());
            let descriptor = [&words(&[address])[..], &u32::to_le_bytes(length), &flags, &next].concat();
            self.poke(QUEUE + 16 * u64::from(index), &descriptor);
        }
        let ring = QUEUE + 0x1000;
        self.poke(ring + 4 + 2 * u64::from(self.available % QUEUE_SIZE), &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.poke(ring + 2, &self.available.to_le_bytes());
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }

    fn message(&self, input: &mut Input<'_>) {
        let (kind, flags, shape) = (input.byte() % 48, input.byte(), input.byte());
        let files = [&self.memory, &self.kick, &self.call, &self.error].map(AsFd::as_fd);
        let (first, count) = (usize::from(shape & 3), usize::from(shape >> 2 & 3));
        let descriptors = &files[first..(first + count).min(files.len())];
        let body = input.bytes(usize::from(shape >> 4) * 8);
        self.send(kind.into(), 1 ^ u32::from(flags), body, descriptors);
    }

    /// Reads what has been answered.
    fn drain(&mut self) {
        self.stream.set_nonblocking(true).expect("a socket");
        while matches!(self.stream.read(&mut [0; 4096]), Ok(1..)) {}
        self.stream.set_nonblocking(false).expect("a socket");
    }

    /// Does what `input` says.
    pub fn act(&mut self, input: &mut Input<'_>) {
        while let Some(kind) = input.next() {
            match kind % step::COUNT {
                step::MESSAGE => self.message(input),
                step::SOUND => self.send_sound(input.byte().into()),
                step::POKE => {
                    let at = u64::from(input.short()) * 16;
                    let length = input.byte();
                    self.poke(at, input.bytes(length.into()));
                }
                step::REQUEST => self.request(input),
                _ => drop(ftruncate(&self.memory, u64::from(input.byte() % 65) * 0x4000)),
            }
            self.drain();
        }
    }

    /// What the door offers; none if it turns this machine away.
    pub fn features(&mut self) -> Option<[u8; 20]> {
        self.send(1, 1, &[], &[]);
        let mut answer = [0; 20];
        match self.stream.read_exact(&mut answer) {
            Ok(()) => Some(answer),
            Err(error) => {
                assert!(error.kind() != ErrorKind::WouldBlock, "VHOST2: the door does not answer");
                None
            }
        }
    }
}
