//! The numbers of the protocol: magics, flags, options, replies, commands and errors.

use std::fmt;

/// First word of the server's greeting, "NBDMAGIC".
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of the greeting and first word of every option, "IHAVEOPT".
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of the server's reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a request with an extended header.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// First word of a chunk of a reply with an extended header.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Bytes of the greeting.
pub const GREETING_LENGTH: usize = 18;
/// Bytes of the header of an option.
pub const OPTION_HEADER_LENGTH: usize = 16;
/// Bytes of the header of a reply to an option.
pub const OPTION_REPLY_HEADER_LENGTH: usize = 20;
/// Longest name of an export, description or query, in bytes.
pub const NAME_LENGTH_MAX: usize = 4096;
/// Most bytes of an option, or of a reply to one, that are looked at; longer ones are refused.
pub const OPTION_LENGTH_MAX: usize = 64 << 10;
/// Most bytes of an option that are skipped after its refusal; a longer one ends the handshake.
pub const OPTION_SKIP_MAX: u32 = 1 << 20;
/// Most bytes of options, headers included, that a client may send in one handshake. A client that lists exports sends a few
/// options for each of them.
pub const HANDSHAKE_LENGTH_MAX: u64 = 16 << 20;
/// Most replies that a server may send in the handshake for one export.
pub const REPLIES_MAX: u32 = 256;
/// Most bytes of data in one request or in one chunk of a reply.
pub const PAYLOAD_LENGTH_MAX: u32 = 32 << 20;
/// Zeros after the answer to `EXPORT_NAME`, unless both sides left them out.
pub const EXPORT_NAME_PADDING: usize = 124;

/// Flags of the handshake, both directions: options are answered even if they are unknown.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// Flags of the handshake, both directions: no padding after the answer to `EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 2;

/// The name of the metadata context that says where an export holds data.
pub const ALLOCATION_CONTEXT: &str = "base:allocation";
/// What the name of a metadata context begins with that says which bytes were changed since a state of before; the name of that follows.
pub const DIRTY_CONTEXT: &str = "qemu:dirty-bitmap:";
/// State of a run of bytes: no space is allocated.
pub const STATE_HOLE: u32 = 1;
/// State of a run of bytes: it reads as zeros.
pub const STATE_ZERO: u32 = 2;
/// A run of [`DIRTY_CONTEXT`] that may have been changed.
pub const STATE_DIRTY: u32 = 1;

/// Options that a client sends.
pub mod option {
    /// Choose an export and begin; failure closes the connection.
    pub const EXPORT_NAME: u32 = 1;
    /// End the handshake.
    pub const ABORT: u32 = 2;
    /// Name the exports.
    pub const LIST: u32 = 3;
    /// Encrypt the connection.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and begin.
    pub const GO: u32 = 7;
    /// Reply in chunks.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Name metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use 64-bit lengths.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of replies to options.
pub mod reply {
    /// Accepted, or the end of a list.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One fact about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// The option is not known.
    pub const ERR_UNSUP: u32 = ERROR_BIT + 1;
    /// The option is forbidden.
    pub const ERR_POLICY: u32 = ERROR_BIT + 2;
    /// The option's data make no sense.
    pub const ERR_INVALID: u32 = ERROR_BIT + 3;
    /// Encryption has to begin first.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT + 5;
    /// The export is not known.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT + 6;
    /// The server is going away.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT + 7;
    /// The option, or the answer to it, is too long.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT + 9;
    /// Extended headers were agreed already.
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR_BIT + 10;
}

/// Types of facts about an export.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// Its own name.
    pub const NAME: u16 = 1;
    /// A line for users.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Flags of a request.
pub mod command_flag {
    /// Acknowledge only once it is durable.
    pub const FUA: u16 = 1 << 0;
    /// Allocate the zeros.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Answer a read with one chunk.
    pub const DF: u16 = 1 << 2;
    /// Answer with one run only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than write zeros slowly.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// With extended headers: the length is that of a payload.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types of chunks of a reply.
pub mod chunk {
    /// Set in `flags` of the last chunk of a reply.
    pub const DONE: u16 = 1;
    /// Nothing to say.
    pub const NONE: u16 = 0;
    /// Data.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeros.
    pub const OFFSET_HOLE: u16 = 2;
    /// Runs with 32-bit lengths.
    pub const BLOCK_STATUS: u16 = 5;
    /// Runs with 64-bit lengths.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// Set in every error.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// The request failed.
    pub const ERROR: u16 = ERROR_BIT + 1;
    /// The request failed at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}

/// What an export can do; sent once, when it is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportFlags(pub u16);

impl ExportFlags {
    /// Always set.
    pub const HAS_FLAGS: Self = Self(1 << 0);
    /// Changes are refused.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// Knows flush.
    pub const FLUSH: Self = Self(1 << 2);
    /// Knows forced unit access.
    pub const FUA: Self = Self(1 << 3);
    /// Prefers ascending addresses.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// Knows trim.
    pub const TRIM: Self = Self(1 << 5);
    /// Knows write-zeroes.
    pub const WRITE_ZEROES: Self = Self(1 << 6);
    /// Knows the flag "do not fragment".
    pub const DF: Self = Self(1 << 7);
    /// Several connections see one device, and a flush on one covers them all.
    pub const MULTI_CONN: Self = Self(1 << 8);
    /// Knows cache.
    pub const CACHE: Self = Self(1 << 10);
    /// Knows the flag "fast zero".
    pub const FAST_ZERO: Self = Self(1 << 11);

    /// Whether every flag of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `self` and, if `condition`, `other` too.
    #[must_use]
    pub const fn with_if(self, condition: bool, other: Self) -> Self {
        if condition { self.with(other) } else { self }
    }

    /// Without any flag of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Debug for ExportFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExportFlags({:#06x})", self.0)
    }
}

/// Which requests an export likes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizes {
    /// Every request is a multiple of it; a power of two.
    pub minimum: u32,
    /// Multiples of it cost least; a power of two.
    pub preferred: u32,
    /// No request carries more data.
    pub maximum: u32,
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: PAYLOAD_LENGTH_MAX }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Data back.
    Read,
    /// Data follow.
    Write,
    /// Finish what is in flight and go; has no reply.
    Disconnect,
    /// Make durable what was acknowledged.
    Flush,
    /// Give up the content.
    Trim,
    /// Fetch what will be read soon.
    Cache,
    /// Make it read as zeros.
    WriteZeroes,
    /// Which parts hold data.
    BlockStatus,
    /// Something that this crate does not know.
    Other(u16),
}

impl Command {
    /// The command with this number.
    pub const fn from_code(code: u16) -> Self {
        match code {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            other => Command::Other(other),
        }
    }

    /// Its number.
    pub const fn code(self) -> u16 {
        match self {
            Command::Read => 0,
            Command::Write => 1,
            Command::Disconnect => 2,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::Cache => 5,
            Command::WriteZeroes => 6,
            Command::BlockStatus => 7,
            Command::Other(other) => other,
        }
    }
}

/// Why a request failed, as far as the protocol can say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ErrorCode {
    /// EPERM.
    #[error("operation not permitted")]
    Permission,
    /// EIO.
    #[error("input/output error")]
    Io,
    /// ENOMEM.
    #[error("out of memory")]
    NoMemory,
    /// EINVAL.
    #[error("invalid argument")]
    Invalid,
    /// ENOSPC.
    #[error("no space left")]
    NoSpace,
    /// EOVERFLOW.
    #[error("value too large")]
    Overflow,
    /// ENOTSUP.
    #[error("operation not supported")]
    NotSupported,
    /// ESHUTDOWN.
    #[error("server is shutting down")]
    Shutdown,
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> u32 {
        match self {
            ErrorCode::Permission => 1,
            ErrorCode::Io => 5,
            ErrorCode::NoMemory => 12,
            ErrorCode::Invalid => 22,
            ErrorCode::NoSpace => 28,
            ErrorCode::Overflow => 75,
            ErrorCode::NotSupported => 95,
            ErrorCode::Shutdown => 108,
        }
    }

    /// The error with this number; `None` for 0, which is success. Unknown numbers mean EINVAL, as the protocol
    /// wants it.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => None,
            1 => Some(ErrorCode::Permission),
            5 => Some(ErrorCode::Io),
            12 => Some(ErrorCode::NoMemory),
            28 => Some(ErrorCode::NoSpace),
            75 => Some(ErrorCode::Overflow),
            95 => Some(ErrorCode::NotSupported),
            108 => Some(ErrorCode::Shutdown),
            _ => Some(ErrorCode::Invalid),
        }
    }
}
