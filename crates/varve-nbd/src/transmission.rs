//! The headers of requests and replies, in their three framings.
//!
//! | framing | request | reply | how it is agreed |
//! |---|---|---|---|
//! | simple | 28 bytes, 32-bit length | 16 bytes, then the data of a read | nothing agreed |
//! | structured | the same | chunks with 20 bytes of header | `STRUCTURED_REPLY` |
//! | extended | 32 bytes, 64-bit length | chunks with 32 bytes of header | `EXTENDED_HEADERS` |
//!
//! Invariant TERMS1: a [`Head`] that announces data or runs announces exactly what the caller sends after it.

use crate::reader::Reader;
use crate::wire::{self, Command, ErrorCode, chunk, command_flag};
use std::ops::Deref;

/// Which headers both sides agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// One reply for each request.
    #[default]
    Simple,
    /// Replies in chunks.
    Structured,
    /// Replies in chunks, lengths of 64 bits.
    Extended,
}

impl Framing {
    /// Bytes of the header of a request.
    pub const fn request_length(self) -> usize {
        match self {
            Framing::Simple | Framing::Structured => 28,
            Framing::Extended => 32,
        }
    }

    /// Bytes of the fixed part of a reply.
    pub const fn reply_length(self) -> usize {
        match self {
            Framing::Simple => 16,
            Framing::Structured => 20,
            Framing::Extended => 32,
        }
    }
}

/// The peer does not speak the protocol; where its next message begins is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the peer does not speak the protocol: {0}")]
pub struct Malformed(pub &'static str);

/// The header of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Bits of [`command_flag`].
    pub flags: u16,
    /// What is asked.
    pub command: Command,
    /// Comes back in the reply.
    pub cookie: u64,
    /// First byte on the export.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Request {
    /// Reads the header at the front of `bytes`; `None` if there are fewer than [`Framing::request_length`].
    pub fn decode(framing: Framing, bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        if bytes.len() < framing.request_length() {
            return Ok(None);
        }
        let wanted = match framing {
            Framing::Simple | Framing::Structured => wire::REQUEST_MAGIC,
            Framing::Extended => wire::EXTENDED_REQUEST_MAGIC,
        };
        let mut reader = Reader::new(bytes);
        if reader.u32() != Some(wanted) {
            return Err(Malformed("a request does not begin with its magic"));
        }
        Ok(Self::fields(framing, reader))
    }

    fn fields(framing: Framing, mut reader: Reader<'_>) -> Option<Self> {
        Some(Self {
            flags: reader.u16()?,
            command: Command::from_code(reader.u16()?),
            cookie: reader.u64()?,
            offset: reader.u64()?,
            length: match framing {
                Framing::Simple | Framing::Structured => u64::from(reader.u32()?),
                Framing::Extended => reader.u64()?,
            },
        })
    }

    /// The header's bytes; an error if the length needs more than the framing's width.
    pub fn encode(&self, framing: Framing) -> Result<Head, ErrorCode> {
        let mut head = Head::new();
        let extended = framing == Framing::Extended;
        head.u32(if extended { wire::EXTENDED_REQUEST_MAGIC } else { wire::REQUEST_MAGIC });
        head.u16(self.flags);
        head.u16(self.command.code());
        head.u64(self.cookie);
        head.u64(self.offset);
        if extended {
            head.u64(self.length);
        } else {
            head.u32(u32::try_from(self.length).map_err(|_| ErrorCode::Overflow)?);
        }
        Ok(head)
    }

    /// Whether a flag of [`command_flag`] is set.
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Bytes that follow the header. The data of a write follow whatever its flags say, as other servers hold it.
    pub fn payload_length(&self, framing: Framing) -> u64 {
        let announced = framing == Framing::Extended && self.has(command_flag::PAYLOAD_LEN);
        if self.command == Command::Write || announced { self.length } else { 0 }
    }
}

/// A run of bytes and its state, [`wire::STATE_HOLE`] and [`wire::STATE_ZERO`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Bytes.
    pub length: u64,
    /// State.
    pub state: u32,
}

/// A header, ready to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    bytes: [u8; Self::CAPACITY],
    length: u8,
}

impl Deref for Head {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl Head {
    /// No header is longer.
    pub const CAPACITY: usize = 48;

    fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], length: 0 }
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let at = usize::from(self.length);
        self.bytes[at..at + N].copy_from_slice(&bytes);
        self.length += u8::try_from(N).expect("N is at most 8");
    }

    fn u16(&mut self, value: u16) {
        self.put(value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.put(value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.put(value.to_be_bytes());
    }

    fn simple(cookie: u64, error: u32) -> Self {
        let mut head = Self::new();
        head.u32(wire::SIMPLE_REPLY_MAGIC);
        head.u32(error);
        head.u64(cookie);
        head
    }

    /// The header of the only chunk of a reply, with `payload` bytes after it.
    fn chunk(framing: Framing, kind: u16, request: &Request, payload: u32) -> Self {
        Self::one_of(framing, (kind, true), request, payload)
    }

    fn one_of(framing: Framing, (kind, is_last): (u16, bool), request: &Request, payload: u32) -> Self {
        let mut head = Self::new();
        let extended = framing == Framing::Extended;
        head.u32(if extended { wire::EXTENDED_REPLY_MAGIC } else { wire::STRUCTURED_REPLY_MAGIC });
        head.u16(if is_last { chunk::DONE } else { 0 });
        head.u16(kind);
        head.u64(request.cookie);
        if extended {
            head.u64(request.offset);
            head.u64(u64::from(payload));
        } else {
            head.u32(payload);
        }
        head
    }

    /// Success without data.
    pub fn done(framing: Framing, request: &Request) -> Self {
        match framing {
            Framing::Simple => Self::simple(request.cookie, 0),
            _ => Self::chunk(framing, chunk::NONE, request, 0),
        }
    }

    /// Failure.
    pub fn error(framing: Framing, request: &Request, error: ErrorCode) -> Self {
        if framing == Framing::Simple {
            return Self::simple(request.cookie, error.code());
        }
        let mut head = Self::chunk(framing, chunk::ERROR, request, 6);
        head.u32(error.code());
        head.u16(0);
        head
    }

    /// Success of a read; its `length` bytes of data follow (TERMS1).
    pub fn data(framing: Framing, request: &Request, length: u32) -> Self {
        if framing == Framing::Simple {
            return Self::simple(request.cookie, 0);
        }
        if length == 0 {
            return Self::done(framing, request);
        }
        assert!(length <= wire::PAYLOAD_LENGTH_MAX, "TERMS1: a read is refused when it is too long");
        let mut head = Self::chunk(framing, chunk::OFFSET_DATA, request, length + 8);
        head.u64(request.offset);
        head
    }

    /// Success of a block status; `count` runs as [`encode_runs`] writes them follow (TERMS1). Panics if replies are
    /// simple, which cannot carry runs. The runs of other contexts follow in replies of their own unless it is the last.
    pub fn status(framing: Framing, request: &Request, context: u32, count: u32, is_last: bool) -> Self {
        assert!(framing != Framing::Simple && count <= RUNS_MAX, "TERMS1");
        if framing == Framing::Extended {
            let mut head = Self::one_of(framing, (chunk::BLOCK_STATUS_EXT, is_last), request, 8 + count * 16);
            head.u32(context);
            head.u32(count);
            return head;
        }
        let mut head = Self::one_of(framing, (chunk::BLOCK_STATUS, is_last), request, 4 + count * 8);
        head.u32(context);
        head
    }
}

/// Most runs in one reply.
pub const RUNS_MAX: u32 = 1 << 16;

/// Joins neighbours of equal state and cuts off what is beyond `wanted` bytes or [`RUNS_MAX`] runs; empty runs
/// vanish. No run is longer than `wanted`, so a 32-bit request has 32-bit runs (CODEC2).
pub fn coalesce(runs: impl IntoIterator<Item = Run>, wanted: u64, only_one: bool) -> Vec<Run> {
    let limit = if only_one { 1 } else { RUNS_MAX as usize };
    let mut joined: Vec<Run> = Vec::new();
    let mut left = wanted;
    for run in runs {
        let length = run.length.min(left);
        if length == 0 {
            continue;
        }
        let full = joined.len() == limit;
        match joined.last_mut() {
            Some(last) if last.state == run.state => last.length += length,
            _ if full => break,
            _ => joined.push(Run { length, state: run.state }),
        }
        left -= length;
    }
    joined
}

/// Appends `runs` as they stand after [`Head::status`]. Without extended headers a run that needs more than 32
/// bits is cut to the largest multiple of 4096 that fits, and the runs after it are left out; [`coalesce`] never
/// makes such a run for a 32-bit request. Returns how many were written.
pub fn encode_runs(framing: Framing, runs: &[Run], output: &mut Vec<u8>) -> u32 {
    let mut count = 0;
    for run in runs {
        count += 1;
        if framing == Framing::Extended {
            output.extend_from_slice(&run.length.to_be_bytes());
            output.extend_from_slice(&u64::from(run.state).to_be_bytes());
            continue;
        }
        let fits = u32::try_from(run.length);
        output.extend_from_slice(&fits.unwrap_or(u32::MAX - 4095).to_be_bytes());
        output.extend_from_slice(&run.state.to_be_bytes());
        if fits.is_err() {
            break;
        }
    }
    count
}

/// The front of a reply, or of a chunk of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// That of the request.
    pub cookie: u64,
    /// Whether this is all of the reply.
    pub done: bool,
    /// What it says.
    pub kind: ReplyKind,
}

/// What a reply says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyKind {
    /// A simple reply; after a successful read its data follow.
    Simple(Option<ErrorCode>),
    /// A chunk of type `kind` with `length` bytes of payload, which follow.
    Chunk {
        /// One of [`chunk`].
        kind: u16,
        /// Bytes that follow.
        length: u64,
    },
}

impl Reply {
    /// Reads the front of a reply; gives it and its length, or `None` if `bytes` hold less.
    pub fn decode(framing: Framing, bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some(magic) = Reader::new(bytes).u32() else { return Ok(None) };
        let expected = match magic {
            // A server may answer without data in the old way even if structured replies were agreed.
            wire::SIMPLE_REPLY_MAGIC if framing != Framing::Extended => Framing::Simple,
            wire::STRUCTURED_REPLY_MAGIC if framing == Framing::Structured => Framing::Structured,
            wire::EXTENDED_REPLY_MAGIC if framing == Framing::Extended => Framing::Extended,
            _ => return Err(Malformed("a reply does not begin with its magic")),
        };
        let length = expected.reply_length();
        Ok(Self::fields(expected, &bytes[4..]).map(|reply| (reply, length)))
    }

    fn fields(framing: Framing, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if framing == Framing::Simple {
            let error = ErrorCode::from_code(reader.u32()?);
            return Some(Self { cookie: reader.u64()?, done: true, kind: ReplyKind::Simple(error) });
        }
        let flags = reader.u16()?;
        let kind = reader.u16()?;
        let cookie = reader.u64()?;
        let length = if framing == Framing::Extended {
            let _offset_of_the_request = reader.u64()?;
            reader.u64()?
        } else {
            u64::from(reader.u32()?)
        };
        Some(Self { cookie, done: flags & chunk::DONE != 0, kind: ReplyKind::Chunk { kind, length } })
    }
}

#[cfg(test)]
mod tests;
