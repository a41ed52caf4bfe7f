//! One connection of the kernel: its requests, taken by one thread and answered by another. No thread waits for a disk.
//!
//! Invariants:
//! - KSESSION1. Each request that was taken is answered once, unless the connection has ended; the kernel then sends it again.
//! - KSESSION2. When a session has ended nothing of it is in flight.

use super::connections::Connections;
use crate::answers::Answers;
use crate::bell::{Bell, Spawn, wait};
use crate::counters::Kind;
use crate::in_flight::Permit;
use crate::nbd::error_code;
use crate::requests::{Refusal, Requests};
use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use varve_block::{Access, Buffer, Durability, Extent, Io, Rejected, Shape, ZeroOptions};
use varve_nbd::server::{Contexts, Terms};
use varve_nbd::wire::{PAYLOAD_LENGTH_MAX, command_flag};
use varve_nbd::{BlockSizes, Command, ErrorCode, ExportFlags, Framing, Head, Request};

const HEADER: usize = Framing::Simple.request_length();

/// What all connections of a device share.
pub(super) struct Served {
    /// The number of the device.
    pub(super) index: u32,
    /// The way to the volume.
    pub(super) requests: Arc<Requests>,
    /// Its connections.
    pub(super) connections: Connections,
    /// Rings when no more is to be taken.
    pub(super) stop: Bell,
    /// Starts a thread.
    pub(super) spawn: Spawn,
}

/// A connection.
struct Session<'a> {
    served: &'a Arc<Served>,
    connection: usize,
    socket: Arc<UnixStream>,
    answers: Answers,
}

/// What can be asked of a device of this shape. Zeros are asked for only where they cost less than writing them: one request for them
/// may be as large as the device.
pub(super) fn flags(shape: Shape) -> ExportFlags {
    let is_read_only = shape.access == Access::ReadOnly;
    ExportFlags::HAS_FLAGS
        .with(ExportFlags::FLUSH)
        .with(ExportFlags::MULTI_CONN)
        .with_if(is_read_only, ExportFlags::READ_ONLY)
        .with_if(!is_read_only, ExportFlags::FUA)
        .with_if(!is_read_only && shape.discard, ExportFlags::TRIM)
        .with_if(!is_read_only && shape.fast_zero, ExportFlags::WRITE_ZEROES)
}

/// Serves a connection until it ends or the door stops (KSESSION2).
pub(super) fn serve(served: &Arc<Served>, connection: usize, socket: UnixStream) -> std::io::Result<()> {
    let socket = Arc::new(socket);
    let (answers, last_answer) = Answers::start(served.spawn, "varve-nbd")?;
    served.connections.open(connection, &socket);
    let session = Session { served, connection, socket, answers };
    while session.take_next() {}
    drop(session);
    last_answer.wait();
    served.connections.close(connection);
    Ok(())
}

impl Session<'_> {
    /// Takes one request; whether there may be more.
    fn take_next(&self) -> bool {
        let [_, stops] = wait([&*self.socket, &self.served.stop]);
        let mut header = [0; HEADER];
        if stops || (&*self.socket).read_exact(&mut header).is_err() {
            return false;
        }
        match Request::decode(Framing::Simple, &header) {
            Ok(Some(request)) if request.command != Command::Disconnect => self.take(request).is_some(),
            Ok(_) => false,
            Err(malformed) => {
                tracing::warn!(target: "varve::kernel_nbd", device = self.served.index, %malformed,
                    "the kernel's connection was closed");
                false
            }
        }
    }

    fn answer(&self, request: Request) -> Answer {
        let (served, socket, answers) =
            (Arc::clone(self.served), Arc::clone(&self.socket), self.answers.clone());
        Answer { served, connection: self.connection, socket, answers, request, is_change: false }
    }

    /// Sends a request on its way; none if the connection is of no use any more.
    fn take(&self, request: Request) -> Option<()> {
        let requests = &self.served.requests;
        let mut answer = self.answer(request);
        let payload = u32::try_from(request.payload_length(Framing::Simple)).ok()?;
        if payload > PAYLOAD_LENGTH_MAX {
            return None;
        }
        let checked = terms(requests.shape()).check(&request);
        let is_read = request.command == Command::Read && checked.is_ok();
        let data_bytes = if is_read { request.length } else { payload.into() };
        let permit = requests.permit(data_bytes);
        let mut buffer = requests.arena().take(usize::try_from(data_bytes).ok()?);
        if !is_read {
            (&*self.socket).read_exact(&mut buffer).ok()?;
        }
        if let Err(error) = checked {
            answer.give(Err(error), permit);
            return Some(());
        }
        let Some((kind, io)) = io(&request, buffer) else {
            answer.give(Err(ErrorCode::NotSupported), permit);
            return Some(());
        };
        if !matches!(kind, Kind::Read | Kind::Flush) {
            if !self.served.connections.begin(self.connection) {
                return None;
            }
            answer.is_change = true;
        }
        requests.submit(kind, permit, io, |done, permit| answer.give(done.map_err(error), permit));
        Some(())
    }
}

/// What is asked of the volume.
fn io(request: &Request, buffer: Buffer) -> Option<(Kind, Io)> {
    let (offset, extent) = (request.offset, Extent::new(request.offset, request.length));
    let is_durable = request.has(command_flag::FUA);
    let durability = if is_durable { Durability::Durable } else { Durability::Volatile };
    Some(match request.command {
        Command::Read => (Kind::Read, Io::Read { offset, buffer }),
        Command::Write => (Kind::Write, Io::Write { offset, data: buffer.freeze(), durability }),
        Command::Flush => (Kind::Flush, Io::Flush),
        Command::Trim if !is_durable => (Kind::Discard, Io::Discard { extent }),
        Command::WriteZeroes => {
            let unmap = !request.has(command_flag::NO_HOLE);
            let options = ZeroOptions { durability, unmap, ..ZeroOptions::default() };
            (Kind::Zero, Io::Zero { extent, options })
        }
        _ => return None,
    })
}

fn terms(shape: Shape) -> Terms {
    let block_sizes = BlockSizes { minimum: shape.block_size, ..BlockSizes::default() };
    Terms {
        size: shape.size,
        flags: flags(shape),
        block_sizes,
        framing: Framing::Simple,
        contexts: Contexts::default(),
    }
}

fn error(refusal: Refusal) -> ErrorCode {
    match refusal {
        Refusal::Failed(error) => error_code(error),
        Refusal::Shut => ErrorCode::Shutdown,
        Refusal::Rejected(Rejected::ReadOnly) => ErrorCode::Permission,
        Refusal::Rejected(_) => ErrorCode::Invalid,
    }
}

/// A request that is to be answered.
struct Answer {
    served: Arc<Served>,
    connection: usize,
    socket: Arc<UnixStream>,
    answers: Answers,
    request: Request,
    is_change: bool,
}

impl Answer {
    /// Has the thread for answers give it (KSESSION1).
    fn give(self, done: Result<Buffer, ErrorCode>, permit: Permit) {
        let answers = self.answers.clone();
        answers.give(permit, move || self.send(done));
    }

    fn send(&self, done: Result<Buffer, ErrorCode>) {
        if self.is_change {
            self.served.connections.end(self.connection);
        }
        let framing = Framing::Simple;
        let (head, data) = match done {
            Ok(data) if self.request.command == Command::Read => {
                let length = u32::try_from(data.len()).expect("the terms bound a request's data");
                (Head::data(framing, &self.request, length), Some(data))
            }
            Ok(_) => (Head::done(framing, &self.request), None),
            Err(error) => (Head::error(framing, &self.request, error), None),
        };
        // Who does not hear it sends the request again.
        let _ = send_all(&self.socket, &head, data.as_deref().unwrap_or_default());
    }
}

fn send_all(mut socket: &UnixStream, head: &[u8], data: &[u8]) -> std::io::Result<()> {
    let sent = socket.write_vectored(&[IoSlice::new(head), IoSlice::new(data)])?;
    if sent < head.len() {
        socket.write_all(&head[sent..])?;
    }
    socket.write_all(&data[sent.saturating_sub(head.len())..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(command: Command, flags: u16) -> Option<(Kind, Io)> {
        io(&Request { flags, command, cookie: 1, offset: 512, length: 1024 }, Buffer::empty())
    }

    #[test]
    fn what_the_kernel_wants_to_be_durable_is_asked_for_durably() {
        for (flags, wanted) in [(command_flag::FUA, Durability::Durable), (0, Durability::Volatile)] {
            let Some((Kind::Write, Io::Write { offset: 512, durability, .. })) = asked(Command::Write, flags)
            else {
                panic!("a write is one")
            };
            assert_eq!(durability, wanted);
            let Some((Kind::Zero, Io::Zero { extent, options })) = asked(Command::WriteZeroes, flags) else {
                panic!("zeros are zeros")
            };
            let zeros = ZeroOptions { durability: wanted, unmap: true, ..ZeroOptions::default() };
            assert_eq!((extent, options), (Extent::new(512, 1024), zeros));
        }
        let Some((_, Io::Zero { options, .. })) = asked(Command::WriteZeroes, command_flag::NO_HOLE) else {
            panic!("zeros are zeros")
        };
        assert!(!options.unmap);
        assert!(asked(Command::Trim, command_flag::FUA).is_none(), "a durable trim is not offered");
        assert!(matches!(asked(Command::Trim, 0), Some((Kind::Discard, _))));
    }
}
