//! The client's side of the handshake: asks for one export with everything useful that the server can do.
//!
//! In order: extended headers, else structured replies; `base:allocation`; the export, by `GO`, else by
//! `EXPORT_NAME`. What a server does not know is done without.
//!
//! Invariants:
//! - CLIENT1. At most one option is unanswered.
//! - CLIENT2. A server that answers something else than was asked, or without end, is left.

mod session;

pub use session::{Event, Outstanding, PIECES_MAX, Session};

use crate::reader::{Reader, collect, text};
use crate::transmission::Framing;
use crate::wire::{self, BlockSizes, ExportFlags, info, option, reply};

/// What a client wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The export's name; empty for the server's default.
    pub name: String,
    /// Whether to ask for extended headers.
    pub extended_headers: bool,
    /// Whether to ask for structured replies.
    pub structured_replies: bool,
    /// Whether to ask for `base:allocation`; it needs one of the two above.
    pub allocation: bool,
}

impl Wish {
    /// Everything, for the export `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), extended_headers: true, structured_replies: true, allocation: true }
    }
}

/// What a client got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connected {
    /// Bytes of the export.
    pub size: u64,
    /// What it can do.
    pub flags: ExportFlags,
    /// Which requests it likes; the protocol's defaults if the server did not say.
    pub block_sizes: BlockSizes,
    /// The headers.
    pub framing: Framing,
    /// The number of `base:allocation`, if it was agreed.
    pub allocation: Option<u32>,
    /// The export's own name, if the server said it.
    pub name: Option<String>,
    /// The export's description, if the server said it.
    pub description: Option<String>,
}

/// Why a handshake failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The peer is no server of this protocol, or of a form that is not spoken here.
    #[error("the server does not speak the protocol: {0}")]
    Malformed(&'static str),
    /// There is no such export.
    #[error("the server has no such export: {0}")]
    UnknownExport(String),
    /// The server refused.
    #[error("the server refused (reply {kind:#x}): {message}")]
    Refused {
        /// One of [`reply`].
        kind: u32,
        /// What the server says about it.
        message: String,
    },
}

/// What the owner of a handshake does next; what was written to `output` is sent first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Feed more bytes.
    More,
    /// The transmission begins.
    Ready(Box<Connected>),
    /// Close the connection.
    Failed(HandshakeError),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Greeting,
    ReplyHeader { option: u32 },
    ReplyData { option: u32, kind: u32, length: usize },
    ExportName,
    Ended,
}

/// The client's side of one handshake.
#[derive(Debug)]
pub struct Handshake {
    phase: Phase,
    pending: Vec<u8>,
    wish: Wish,
    no_zeroes: bool,
    replies: u32,
    got: Connected,
    /// Whether the server has sent the export's size.
    told: bool,
}

type Progress = Result<Option<Step>, HandshakeError>;

impl Handshake {
    /// A handshake that waits for the server's greeting.
    pub fn new(wish: Wish) -> Self {
        let got = Connected {
            size: 0,
            flags: ExportFlags::default(),
            block_sizes: BlockSizes::default(),
            framing: Framing::Simple,
            allocation: None,
            name: None,
            description: None,
        };
        Self {
            phase: Phase::Greeting,
            pending: Vec::new(),
            wish,
            no_zeroes: false,
            replies: 0,
            got,
            told: false,
        }
    }

    /// Takes bytes of the server, as far as they belong to the handshake; says how many it took. What is to be
    /// sent is appended to `output`.
    pub fn feed(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Step) {
        let mut used = 0;
        loop {
            let length = match self.phase {
                Phase::Greeting => wire::GREETING_LENGTH,
                Phase::ReplyHeader { .. } => wire::OPTION_REPLY_HEADER_LENGTH,
                Phase::ReplyData { length, .. } => length,
                Phase::ExportName if self.no_zeroes => 10,
                Phase::ExportName => 10 + wire::EXPORT_NAME_PADDING,
                Phase::Ended => {
                    return (used, Step::Failed(HandshakeError::Malformed("the handshake is over")));
                }
            };
            let (taken, full) = collect(&mut self.pending, &input[used..], length);
            used += taken;
            if !full {
                return (used, Step::More);
            }
            let item = std::mem::take(&mut self.pending);
            match self.item(&item, output) {
                Ok(None) => {}
                Ok(Some(step)) => return (used, step),
                Err(error) => {
                    self.phase = Phase::Ended;
                    return (used, Step::Failed(error));
                }
            }
        }
    }

    fn item(&mut self, item: &[u8], output: &mut Vec<u8>) -> Progress {
        match self.phase {
            Phase::Greeting => self.greeting(item, output),
            Phase::ReplyHeader { option } => self.reply_header(option, item),
            Phase::ReplyData { option, kind, .. } => {
                self.phase = Phase::ReplyHeader { option };
                self.reply(option, kind, item, output)
            }
            Phase::ExportName => {
                let mut reader = Reader::new(item);
                self.export(&mut reader)?;
                Ok(Some(self.ready()))
            }
            Phase::Ended => Ok(None),
        }
    }

    fn greeting(&mut self, item: &[u8], output: &mut Vec<u8>) -> Progress {
        let mut reader = Reader::new(item);
        if reader.u64() != Some(wire::GREETING_MAGIC) || reader.u64() != Some(wire::OPTION_MAGIC) {
            return Err(HandshakeError::Malformed("the greeting is not that of a newstyle server"));
        }
        let flags = reader.u16().unwrap_or(0);
        self.no_zeroes = flags & wire::FLAG_NO_ZEROES != 0;
        let ours = flags & (wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES);
        output.extend_from_slice(&u32::from(ours).to_be_bytes());
        if flags & wire::FLAG_FIXED_NEWSTYLE == 0 {
            self.ask_export_name(output);
        } else if self.wish.extended_headers {
            self.ask(option::EXTENDED_HEADERS, &[], output);
        } else {
            self.ask_structured(output);
        }
        Ok(None)
    }

    /// Sends an option; the one before it has been answered (CLIENT1).
    fn ask(&mut self, option: u32, data: &[u8], output: &mut Vec<u8>) {
        put_option(option, data, output);
        self.replies = 0;
        self.phase = Phase::ReplyHeader { option };
    }

    fn ask_structured(&mut self, output: &mut Vec<u8>) {
        if self.wish.structured_replies {
            self.ask(option::STRUCTURED_REPLY, &[], output);
        } else {
            self.ask_go(output);
        }
    }

    fn ask_meta(&mut self, output: &mut Vec<u8>) {
        if !self.wish.allocation {
            return self.ask_go(output);
        }
        let mut data = counted(&self.wish.name);
        data.extend_from_slice(&1u32.to_be_bytes());
        data.extend_from_slice(&counted(wire::ALLOCATION_CONTEXT));
        self.ask(option::SET_META_CONTEXT, &data, output);
    }

    fn ask_go(&mut self, output: &mut Vec<u8>) {
        let mut data = counted(&self.wish.name);
        data.extend_from_slice(&3u16.to_be_bytes());
        for fact in [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE] {
            data.extend_from_slice(&fact.to_be_bytes());
        }
        self.ask(option::GO, &data, output);
    }

    fn ask_export_name(&mut self, output: &mut Vec<u8>) {
        put_option(option::EXPORT_NAME, self.wish.name.as_bytes(), output);
        self.phase = Phase::ExportName;
    }

    fn reply_header(&mut self, option: u32, item: &[u8]) -> Progress {
        let mut reader = Reader::new(item);
        if reader.u64() != Some(wire::OPTION_REPLY_MAGIC) || reader.u32() != Some(option) {
            return Err(HandshakeError::Malformed("a reply to an option that was not sent"));
        }
        self.replies += 1;
        let (kind, length) = (reader.u32().unwrap_or(0), reader.u32().unwrap_or(u32::MAX));
        match usize::try_from(length) {
            Ok(length) if length <= wire::OPTION_LENGTH_MAX && self.replies <= wire::REPLIES_MAX => {
                self.phase = Phase::ReplyData { option, kind, length };
                Ok(None)
            }
            _ => Err(HandshakeError::Malformed("CLIENT2: the replies to an option are too long")),
        }
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8], output: &mut Vec<u8>) -> Progress {
        match (option, kind) {
            (option::EXTENDED_HEADERS, reply::ACK) => {
                self.got.framing = Framing::Extended;
                self.ask_meta(output);
            }
            (option::EXTENDED_HEADERS, kind) if is_error(kind) => self.ask_structured(output),
            (option::STRUCTURED_REPLY, reply::ACK) => {
                self.got.framing = Framing::Structured;
                self.ask_meta(output);
            }
            (option::STRUCTURED_REPLY, kind) if is_error(kind) => self.ask_go(output),
            (option::SET_META_CONTEXT, reply::META_CONTEXT) => {
                let mut reader = Reader::new(data);
                let id = reader.u32().ok_or(HandshakeError::Malformed("a context without a number"))?;
                if reader.rest() == wire::ALLOCATION_CONTEXT.as_bytes() {
                    self.got.allocation = Some(id);
                }
            }
            (option::SET_META_CONTEXT, kind) if kind == reply::ACK || is_error(kind) => self.ask_go(output),
            (option::GO, reply::INFO) => self.fact(data)?,
            (option::GO, reply::ACK) if self.told => return Ok(Some(self.ready())),
            (option::GO, reply::ERR_UNSUP) => self.ask_export_name(output),
            (option::GO, reply::ERR_UNKNOWN) => {
                return Err(HandshakeError::UnknownExport(self.wish.name.clone()));
            }
            (option::GO, kind) if is_error(kind) => {
                return Err(HandshakeError::Refused { kind, message: String::from_utf8_lossy(data).into() });
            }
            _ => return Err(HandshakeError::Malformed("CLIENT2: a reply that does not fit the option")),
        }
        Ok(None)
    }

    fn fact(&mut self, data: &[u8]) -> Result<(), HandshakeError> {
        let mut reader = Reader::new(data);
        match reader.u16() {
            Some(info::EXPORT) => self.export(&mut reader)?,
            Some(info::NAME) => self.got.name = text(reader.rest()).map(str::to_owned),
            Some(info::DESCRIPTION) => self.got.description = text(reader.rest()).map(str::to_owned),
            Some(info::BLOCK_SIZE) => {
                let sizes = (reader.u32(), reader.u32(), reader.u32());
                let (Some(minimum), Some(preferred), Some(maximum)) = sizes else {
                    return Err(HandshakeError::Malformed("block sizes are missing"));
                };
                let orderly = minimum.is_power_of_two() && minimum <= preferred && minimum <= maximum;
                if !orderly || minimum > wire::PAYLOAD_LENGTH_MAX || !preferred.is_power_of_two() {
                    return Err(HandshakeError::Malformed("block sizes make no sense"));
                }
                let maximum = maximum.min(wire::PAYLOAD_LENGTH_MAX);
                self.got.block_sizes = BlockSizes { minimum, preferred, maximum };
            }
            Some(_) => {}
            None => return Err(HandshakeError::Malformed("a fact without a type")),
        }
        Ok(())
    }

    fn export(&mut self, reader: &mut Reader<'_>) -> Result<(), HandshakeError> {
        let (Some(size), Some(flags)) = (reader.u64(), reader.u16()) else {
            return Err(HandshakeError::Malformed("size and flags of the export are missing"));
        };
        self.got.size = size;
        self.got.flags = ExportFlags(flags);
        self.told = true;
        Ok(())
    }

    fn ready(&mut self) -> Step {
        self.phase = Phase::Ended;
        Step::Ready(Box::new(self.got.clone()))
    }
}

const fn is_error(kind: u32) -> bool {
    kind & reply::ERROR_BIT != 0
}

/// Appends one option as a client sends it. Panics if `data` are longer than [`wire::OPTION_LENGTH_MAX`].
pub fn put_option(option: u32, data: &[u8], output: &mut Vec<u8>) {
    assert!(data.len() <= wire::OPTION_LENGTH_MAX, "an option is built from names of at most 4096 bytes");
    output.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
    output.extend_from_slice(&option.to_be_bytes());
    output.extend_from_slice(&length_of(data).to_be_bytes());
    output.extend_from_slice(data);
}

fn counted(string: &str) -> Vec<u8> {
    [&length_of(string.as_bytes()).to_be_bytes()[..], string.as_bytes()].concat()
}

fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("names and options are far shorter than 4 GiB")
}

#[cfg(test)]
mod tests;
