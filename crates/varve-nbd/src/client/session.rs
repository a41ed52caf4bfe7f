//! The client's side of the transmission: which replies belong to which requests, and what they bring.
//!
//! Invariants:
//! - SESSION1. Every reply answers a request in flight, and a request is answered once.
//! - SESSION2. Data of a read lie inside it, come once for each byte, and are complete when it succeeds.
//! - SESSION3. What a server can make the session keep is bounded: [`PIECES_MAX`] pieces a read,
//!   [`RUNS_MAX`](crate::transmission::RUNS_MAX) runs a reply, and no more than the owner has in flight.

use crate::reader::Reader;
use crate::transmission::{Framing, Head, Malformed, RUNS_MAX, Reply, ReplyKind, Request, Run};
use crate::wire::{self, Command, ErrorCode, chunk};
use std::collections::HashMap;

/// Most separate pieces of one read that may be there before they join.
pub const PIECES_MAX: usize = 1024;
/// Most bytes of a chunk that carries no data, such as runs or the text of an error.
const CHUNK_LENGTH_MAX: u64 = 12 + RUNS_MAX as u64 * 16;

/// A request that waits for its reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outstanding {
    command: Command,
    offset: u64,
    length: u64,
    /// Parts of a read that came, in order, relative to its offset, joined where they touch.
    pieces: Vec<(u64, u64)>,
    error: Option<ErrorCode>,
}

/// What the owner of a session does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Feed at least this many bytes at once: those that were not taken, and more.
    More(usize),
    /// The next `length` bytes of the stream go to the read's buffer from `start` on; the owner takes them before
    /// it goes on feeding.
    Data {
        /// Which read.
        cookie: u64,
        /// First byte in the read's buffer.
        start: u64,
        /// Bytes.
        length: u64,
    },
    /// Zeros for the read's buffer.
    Hole {
        /// Which read.
        cookie: u64,
        /// First byte in the read's buffer.
        start: u64,
        /// Bytes.
        length: u64,
    },
    /// What a block status brought; cut to the length that was asked.
    Runs {
        /// Which request.
        cookie: u64,
        /// From the request's offset on.
        runs: Vec<Run>,
    },
    /// The request is answered.
    Done {
        /// Which request.
        cookie: u64,
        /// Whether it succeeded.
        result: Result<(), ErrorCode>,
    },
}

/// The requests in flight on one connection.
#[derive(Debug)]
pub struct Session {
    framing: Framing,
    allocation: Option<u32>,
    requests: HashMap<u64, Outstanding>,
    /// Answered, to be reported next.
    done: Option<u64>,
}

impl Session {
    /// A session on a connection that agreed on `framing` and a number for `base:allocation`.
    pub fn new(framing: Framing, allocation: Option<u32>) -> Self {
        Self { framing, allocation, requests: HashMap::new(), done: None }
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Notes a request and gives the header to send. Panics if its cookie is in flight already. A
    /// [`Command::Disconnect`] has no reply and is not noted.
    pub fn submit(&mut self, request: &Request) -> Result<Head, ErrorCode> {
        let mut request = *request;
        if self.framing == Framing::Extended && request.command == Command::Write {
            request.flags |= wire::command_flag::PAYLOAD_LEN;
        }
        let head = request.encode(self.framing)?;
        if request.command != Command::Disconnect {
            let Request { command, offset, length, .. } = request;
            let outstanding = Outstanding { command, offset, length, pieces: Vec::new(), error: None };
            let earlier = self.requests.insert(request.cookie, outstanding);
            assert!(earlier.is_none(), "SESSION1: the cookie {} is in flight", request.cookie);
        }
        Ok(head)
    }

    /// Takes items from `input` until one of them concerns the owner; says how many bytes it took.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, Event), Malformed> {
        let mut used = 0;
        loop {
            if let Some(cookie) = self.done.take() {
                return self.finish(cookie).map(|event| (used, event));
            }
            let (taken, event) = self.item(&input[used..])?;
            used += taken;
            if let Some(event) = event {
                return Ok((used, event));
            }
        }
    }

    /// One simple reply or one chunk.
    fn item(&mut self, input: &[u8]) -> Result<(usize, Option<Event>), Malformed> {
        let Some((reply, front)) = Reply::decode(self.framing, input)? else {
            return Ok((0, Some(Event::More(self.front_length(input)))));
        };
        let Some(request) = self.requests.get_mut(&reply.cookie) else {
            return Err(Malformed("SESSION1: a reply to no request"));
        };
        let (kind, length) = match reply.kind {
            ReplyKind::Simple(error) => {
                let event = request.simple(reply.cookie, self.framing, error)?;
                self.done = Some(reply.cookie);
                return Ok((front, event));
            }
            ReplyKind::Chunk { kind, length } => (kind, length),
        };
        // The data of a read stay in the stream; everything else of a chunk is read here.
        let inner = if kind == chunk::OFFSET_DATA { length.min(8) } else { length };
        if inner > CHUNK_LENGTH_MAX {
            return Err(Malformed("SESSION3: a chunk is too long"));
        }
        let end = front + usize::try_from(inner).map_err(|_| Malformed("SESSION3: a chunk is too long"))?;
        let Some(payload) = input.get(front..end) else {
            return Ok((0, Some(Event::More(end))));
        };
        let event = request.chunk(reply.cookie, kind, length, payload, self.allocation)?;
        if reply.done {
            self.done = Some(reply.cookie);
        }
        Ok((end, event))
    }

    /// How long the front of the next reply is at least, as far as its magic tells.
    fn front_length(&self, input: &[u8]) -> usize {
        match (self.framing, Reader::new(input).u32()) {
            (Framing::Structured, None | Some(wire::SIMPLE_REPLY_MAGIC)) => Framing::Simple.reply_length(),
            (framing, _) => framing.reply_length(),
        }
    }

    fn finish(&mut self, cookie: u64) -> Result<Event, Malformed> {
        let request = self.requests.remove(&cookie).ok_or(Malformed("SESSION1: a reply to no request"))?;
        let complete = request.command != Command::Read
            || request.length == 0
            || request.pieces.as_slice() == [(0, request.length)];
        match request.error {
            Some(error) => Ok(Event::Done { cookie, result: Err(error) }),
            None if complete => Ok(Event::Done { cookie, result: Ok(()) }),
            None => Err(Malformed("SESSION2: a read was answered in part")),
        }
    }
}

impl Outstanding {
    fn simple(
        &mut self,
        cookie: u64,
        framing: Framing,
        error: Option<ErrorCode>,
    ) -> Result<Option<Event>, Malformed> {
        if framing == Framing::Structured && self.command == Command::Read {
            return Err(Malformed("a simple reply to a read although structured ones were agreed"));
        }
        self.error = error;
        if self.command != Command::Read || error.is_some() || self.length == 0 {
            return Ok(None);
        }
        self.place(0, self.length)?;
        Ok(Some(Event::Data { cookie, start: 0, length: self.length }))
    }

    fn chunk(
        &mut self,
        cookie: u64,
        kind: u16,
        length: u64,
        payload: &[u8],
        allocation: Option<u32>,
    ) -> Result<Option<Event>, Malformed> {
        let mut reader = Reader::new(payload);
        match (kind, self.command) {
            (chunk::NONE, _) if length == 0 => Ok(None),
            (chunk::OFFSET_DATA, Command::Read) if length > 8 => {
                let (start, length) = (self.start(&mut reader)?, length - 8);
                self.place(start, length)?;
                Ok(Some(Event::Data { cookie, start, length }))
            }
            (chunk::OFFSET_HOLE, Command::Read) if length == 12 => {
                let start = self.start(&mut reader)?;
                let length = u64::from(reader.u32().unwrap_or(0));
                self.place(start, length)?;
                Ok(Some(Event::Hole { cookie, start, length }))
            }
            (chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT, Command::BlockStatus) => {
                let context = reader.u32();
                if context.is_none() || context != allocation {
                    return Err(Malformed("runs of a context that was not agreed"));
                }
                let runs = self.runs(kind, reader)?;
                Ok(Some(Event::Runs { cookie, runs }))
            }
            (kind, _) if kind & chunk::ERROR_BIT != 0 => {
                let code = reader.u32().ok_or(Malformed("an error without its number"))?;
                self.error = ErrorCode::from_code(code).or(Some(ErrorCode::Invalid));
                Ok(None)
            }
            _ => Err(Malformed("a chunk that does not fit its request")),
        }
    }

    /// The place of a chunk in the read's buffer.
    fn start(&self, reader: &mut Reader<'_>) -> Result<u64, Malformed> {
        let offset = reader.u64().ok_or(Malformed("a chunk without an offset"))?;
        offset.checked_sub(self.offset).ok_or(Malformed("SESSION2: data from before the read"))
    }

    /// Notes that `length` bytes from `start` on are there (SESSION2).
    fn place(&mut self, start: u64, length: u64) -> Result<(), Malformed> {
        let end = start.checked_add(length).filter(|end| *end <= self.length && length > 0);
        let end = end.ok_or(Malformed("SESSION2: data from outside of the read"))?;
        let at = self.pieces.partition_point(|piece| piece.0 < start);
        if at > 0 && self.pieces[at - 1].1 > start || at < self.pieces.len() && self.pieces[at].0 < end {
            return Err(Malformed("SESSION2: the same data twice"));
        }
        self.pieces.insert(at, (start, end));
        if at + 1 < self.pieces.len() && self.pieces[at + 1].0 == end {
            self.pieces[at].1 = self.pieces.remove(at + 1).1;
        }
        if at > 0 && self.pieces[at - 1].1 == start {
            self.pieces[at - 1].1 = self.pieces.remove(at).1;
        }
        if self.pieces.len() > PIECES_MAX {
            return Err(Malformed("SESSION3: a read in too many pieces"));
        }
        Ok(())
    }

    fn runs(&self, kind: u16, mut reader: Reader<'_>) -> Result<Vec<Run>, Malformed> {
        let wide = kind == chunk::BLOCK_STATUS_EXT;
        if wide {
            let _count = reader.u32().ok_or(Malformed("runs without their number"))?;
        }
        let mut runs = Vec::new();
        let mut left = self.length;
        while !reader.is_empty() {
            let mut field = || if wide { reader.u64() } else { reader.u32().map(u64::from) };
            let (Some(length), Some(state)) = (field(), field()) else {
                return Err(Malformed("half a run"));
            };
            if length == 0 {
                return Err(Malformed("an empty run"));
            }
            let length = length.min(left);
            left -= length;
            if length > 0 {
                runs.push(Run { length, state: (state & 3) as u32 });
            }
        }
        if runs.is_empty() { Err(Malformed("no runs at all")) } else { Ok(runs) }
    }
}

#[cfg(test)]
mod tests;
