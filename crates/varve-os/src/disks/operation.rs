//! What a shard asks of the kernel, as data that owns everything the kernel touches meanwhile.

use crate::clock;
use crate::disks::attempt;
use crate::disks::disk_file::{Answered, DiskFile};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use varve_block::host::CacheMode;
use varve_block::{Buffer, Bytes, Extent};

/// Most parts that one system call sends (`IOV_MAX`).
pub(crate) const PARTS_MAX: usize = 1024;
/// Most bytes of one request to the kernel, a multiple of every sector size.
pub(crate) const TRANSFER_MAX: usize = 1 << 30;

/// A count of bytes, or what went wrong.
pub(crate) type Answer = Result<usize, Errno>;

/// One operation.
pub(crate) enum Operation {
    /// On a disk.
    Disk(DiskOperation),
    /// On a socket.
    Socket(Rc<Socket>, SocketAction),
}

impl Operation {
    /// Whether it waits for a peer to begin something.
    pub(crate) fn waits_for_peer(&self) -> bool {
        let Operation::Socket(_, action) = self else { return false };
        matches!(action, SocketAction::Receive { .. } | SocketAction::AwaitInput)
    }
}

/// An operation on a disk; may be carried out by any thread.
pub(crate) struct DiskOperation {
    disk: Arc<DiskFile>,
    pub(crate) action: DiskAction,
    /// Its number among those that make pages durable (SYNC1 of `syncs.rs`).
    sync: Option<u64>,
    /// When it began, in nanoseconds of the monotonic clock.
    begun: u64,
}

/// What is done on a disk.
pub(crate) enum DiskAction {
    /// Fill `buffer` from `done` on; `offset` is where its start is on the disk.
    Read { offset: u64, buffer: Buffer, done: usize },
    /// Write `data` from `done` on; `offset` is where its start goes.
    Write { offset: u64, data: Bytes, done: usize, durable: bool },
    /// Make everything durable.
    Flush,
    /// Change allocation.
    Allocate { mode: FallocateFlags, extent: Extent },
    /// Discard an extent of a block device.
    Discard { extent: Extent },
}

impl DiskAction {
    fn counted(&self) -> Answered {
        match self {
            Self::Read { .. } => Answered::Read,
            Self::Write { .. } => Answered::Write,
            Self::Flush => Answered::Flush,
            Self::Allocate { .. } | Self::Discard { .. } => Answered::Discard,
        }
    }
}

impl DiskOperation {
    pub(crate) fn new(disk: Arc<DiskFile>, action: DiskAction) -> Self {
        let makes_durable = matches!(action, DiskAction::Flush | DiskAction::Write { durable: true, .. });
        let is_cached = disk.cache_mode() == CacheMode::Buffered;
        let sync = (makes_durable && is_cached).then(|| disk.syncs.enter());
        let begun = clock::now().0;
        disk.answers.begin(begun);
        match &action {
            DiskAction::Allocate { .. } => disk.blocks().begin_release(),
            DiskAction::Write { data, .. } => disk.blocks().begin_write(data.len()),
            _ => {}
        }
        Self { disk, action, sync, begun }
    }

    /// The disk that it is on.
    pub(crate) fn disk(&self) -> &Arc<DiskFile> {
        &self.disk
    }

    /// Its answer has come, whether a task waits for it or not: a failure whose consequences are unknown takes the disk
    /// out of use (DISKFILE2 of `disk_file.rs`), before anything that ran beside it is acknowledged (SYNC1 of `syncs.rs`).
    pub(crate) fn complete(&mut self, answer: Answer) {
        match (&self.action, answer) {
            (_, Err(Errno::INTR | Errno::AGAIN)) => {}
            (DiskAction::Flush, Err(errno)) => {
                self.disk.report("flush", 0, self.disk.size(), errno);
                self.disk.poison(errno);
            }
            (DiskAction::Write { durable: true, .. }, Err(errno)) if self.disk.loses_writes(errno) => {
                self.disk.poison(errno);
            }
            (DiskAction::Write { durable: true, .. }, Ok(0)) if self.disk.loses_writes(Errno::NOSPC) => {
                self.disk.poison(Errno::NOSPC);
            }
            _ => {}
        }
        if let Some(number) = self.sync.take() {
            self.disk.syncs.leave(number);
        }
        match &self.action {
            DiskAction::Allocate { .. } => self.disk.blocks().end_release(),
            DiskAction::Write { data, .. } => self.disk.blocks().end_write(data.len()),
            _ => {}
        }
        let now = clock::now().0;
        self.disk.answers.count(self.action.counted(), answer.unwrap_or(0) as u64, self.begun, now);
        self.disk.answers.end(self.begun, now);
    }

    /// Carries it out on this thread, waiting.
    pub(crate) fn execute(&mut self) -> Answer {
        let disk = &*self.disk;
        match &mut self.action {
            DiskAction::Read { offset, buffer, done } => {
                let end = buffer.len().min(*done + TRANSFER_MAX);
                attempt::read(disk, *offset + *done as u64, &mut buffer[*done..end])
            }
            DiskAction::Write { offset, data, done, durable } => {
                let end = data.len().min(*done + TRANSFER_MAX);
                attempt::write(disk, *offset + *done as u64, &data[*done..end], *durable)
            }
            DiskAction::Flush => attempt::flush(disk),
            DiskAction::Allocate { mode, extent } => attempt::allocate(disk, *mode, *extent),
            DiskAction::Discard { extent } => attempt::discard(disk, *extent),
        }
    }

    /// Whether only a thread can do it.
    pub(crate) fn needs_thread(&self) -> bool {
        matches!(self.action, DiskAction::Discard { .. })
    }
}

/// A socket that operations share.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn new(descriptor: OwnedFd) -> Rc<Self> {
        Rc::new(Self(descriptor))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// What is done on a socket.
pub(crate) enum SocketAction {
    /// Take what is there into `buffer` from `filled` on; at least one byte, or the end.
    Receive { buffer: Buffer, filled: usize },
    /// Wait until there is something to receive, or the end.
    AwaitInput,
    /// Send what is left of a message; some of it may be left.
    Send(Box<Message>),
}

impl SocketAction {
    /// Carries it out if that needs no waiting; else `Errno::AGAIN`.
    pub(crate) fn try_now(&mut self, socket: &Socket) -> Answer {
        match self {
            SocketAction::Receive { buffer, filled } => try_receive(socket, &mut buffer[*filled..]),
            SocketAction::AwaitInput => has_input(socket),
            SocketAction::Send(message) => message.try_send(socket),
        }
    }
}

/// Whether something is there to be received, or the end; else `Errno::AGAIN`.
fn has_input(socket: &Socket) -> Answer {
    let mut watched = [PollFd::new(socket, PollFlags::IN)];
    match rustix::event::poll(&mut watched, Some(&Timespec::default()))? {
        0 => Err(Errno::AGAIN),
        ready => Ok(ready),
    }
}

/// Takes what is there, without waiting.
pub(crate) fn try_receive(socket: &Socket, space: &mut [u8]) -> Answer {
    loop {
        match rustix::net::recv(socket, &mut *space, RecvFlags::DONTWAIT) {
            Ok((count, _)) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Parts to be sent in order, and how far that has come.
pub(crate) struct Message {
    parts: Vec<Bytes>,
    /// The first part that is not sent whole, and how much of it is.
    part: usize,
    skip: usize,
    /// What the kernel reads while a send is under way (see `ring.rs`).
    pub(crate) vectors: Vec<libc::iovec>,
    pub(crate) header: Option<libc::msghdr>,
}

impl Message {
    pub(crate) fn new(parts: Vec<Bytes>) -> Self {
        let mut message = Self { parts, part: 0, skip: 0, vectors: Vec::new(), header: None };
        message.advance(0);
        message
    }

    /// Whether all is sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.part == self.parts.len()
    }

    /// Notes that `count` more bytes are sent.
    pub(crate) fn advance(&mut self, mut count: usize) {
        while let Some(part) = self.parts.get(self.part) {
            let left = part.len() - self.skip;
            if count < left {
                self.skip += count;
                return;
            }
            count -= left;
            self.part += 1;
            self.skip = 0;
        }
        assert_eq!(count, 0, "no more is sent than there was");
    }

    /// What is left, as far as one system call takes it.
    pub(crate) fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let skips = std::iter::once(self.skip).chain(std::iter::repeat(0));
        self.parts[self.part..].iter().zip(skips).take(PARTS_MAX).map(|(part, skip)| &part[skip..])
    }

    /// Sends what goes out without waiting.
    pub(crate) fn try_send(&self, socket: &Socket) -> Answer {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            let sent = if self.part + 1 == self.parts.len() {
                rustix::net::send(socket, &self.parts[self.part][self.skip..], flags)
            } else {
                let slices: Vec<IoSlice<'_>> = self.rest().map(IoSlice::new).collect();
                rustix::net::sendmsg(socket, &slices, &mut rustix::net::SendAncillaryBuffer::default(), flags)
            };
            match sent {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::Arena;

    #[test]
    fn a_message_advances_over_part_borders_and_empty_parts() {
        let arena = Arena::heap(1 << 16);
        let parts =
            vec![Bytes::empty(), arena.copy(b"abc"), Bytes::empty(), arena.copy(b"defg"), Bytes::empty()];
        let mut message = Message::new(parts);
        message.advance(2);
        assert_eq!(message.rest().collect::<Vec<_>>().concat(), b"cdefg");
        message.advance(3);
        assert_eq!(message.rest().collect::<Vec<_>>().concat(), b"fg");
        assert!(!message.is_sent());
        message.advance(2);
        assert!(message.is_sent());
        assert!(Message::new(vec![Bytes::empty()]).is_sent());
    }
}
