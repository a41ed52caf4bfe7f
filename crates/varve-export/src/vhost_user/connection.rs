//! The socket between a machine and its door: whole messages with their descriptors, never waited for once the door is to close.

use super::message::{DESCRIPTORS_MAX, HEADER, Header, Message};
use crate::bell::{Bell, wait_for};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Why a session ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The machine has left.
    Left,
    /// The door closes.
    Stopped,
    /// The machine sent what cannot be understood, or the socket failed.
    Failed(String),
}

impl From<Errno> for End {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => End::Left,
            errno => End::Failed(errno.to_string()),
        }
    }
}

/// A message with what came with it.
pub(super) struct Received {
    pub(super) header: Header,
    pub(super) message: Message,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// A connection of a machine.
pub(super) struct Connection<'a> {
    pub(super) socket: OwnedFd,
    /// Rings when the door is to close.
    pub(super) stop: &'a Bell,
}

impl Connection<'_> {
    fn ready(&self, flags: PollFlags) -> Result<(), End> {
        let [_, stops] = wait_for([(&self.socket, flags), (self.stop, PollFlags::IN)]);
        if stops { Err(End::Stopped) } else { Ok(()) }
    }

    /// The next message.
    pub(super) fn receive(&self) -> Result<Received, End> {
        let mut descriptors = Vec::new();
        let mut header = [0; HEADER];
        let mut done = 0;
        while done < HEADER {
            self.ready(PollFlags::IN)?;
            done += self.receive_some(&mut header[done..], &mut descriptors)?;
        }
        let header = Header::decode(header)
            .ok_or_else(|| End::Failed("it sent a message of another protocol".to_owned()))?;
        let mut body = vec![0; header.length];
        let mut done = 0;
        while done < body.len() {
            self.ready(PollFlags::IN)?;
            match recv(&self.socket, &mut body[done..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(End::Left),
                Ok((_, some)) => done += some,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let message = Message::decode(header.kind, &body);
        let message = message.ok_or_else(|| {
            End::Failed(format!("message {} has {} bytes, which is not its length", header.kind, body.len()))
        })?;
        Ok(Received { header, message, descriptors })
    }

    fn receive_some(&self, into: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<usize, End> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = match recvmsg(&self.socket, &mut [IoSliceMut::new(into)], &mut ancillary, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            Err(errno) => return Err(errno.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > DESCRIPTORS_MAX {
            return Err(End::Failed("it passed too many descriptors".to_owned()));
        }
        if received.bytes == 0 { Err(End::Left) } else { Ok(received.bytes) }
    }

    /// Sends a message, with a descriptor or without.
    pub(super) fn send(&self, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), End> {
        send(&self.socket, message, descriptor, || self.ready(PollFlags::OUT))
    }

    /// The process at the other end, for people.
    pub(super) fn peer(&self) -> String {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&self.socket) else {
            return "a process".to_owned();
        };
        let process = peer.pid.as_raw_nonzero();
        let program = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("comm"));
        let program: String =
            program.unwrap_or_default().trim().chars().filter(|letter| !letter.is_control()).collect();
        if program.is_empty() {
            format!("process {process}")
        } else {
            format!("process {process} ({program})")
        }
    }
}

/// Sends all of a message; what comes with it, with its first byte.
pub(super) fn send(
    socket: &impl AsFd,
    message: &[u8],
    mut descriptor: Option<BorrowedFd<'_>>,
    mut ready: impl FnMut() -> Result<(), End>,
) -> Result<(), End> {
    let mut done = 0;
    while done < message.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let passed = descriptor.map(|descriptor| [descriptor]);
        if let Some(passed) = &passed {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(passed)), "there is room for one");
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(socket, &[IoSlice::new(&message[done..])], &mut ancillary, flags) {
            Ok(sent) => {
                done += sent;
                descriptor = None;
            }
            Err(Errno::AGAIN | Errno::INTR) => ready()?,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
