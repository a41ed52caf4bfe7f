//! The messages of the protocol.

use thiserror::Error;

mod codec;

pub(crate) use codec::decode_header;

/// Version of the protocol.
pub const VERSION: u16 = 1;
/// First bytes of the body of [`ToMapper::Hello`].
pub const MAGIC: [u8; 8] = *b"VARVEMAP";
/// Bytes of a message's header.
pub const HEADER_LENGTH: usize = 16;
/// Bytes of an extent.
pub const EXTENT_LENGTH: usize = 48;
/// Most bytes of a message's body.
pub const BODY_LENGTH_MAX: usize = 64 << 10;
/// Most extents in one message.
pub const EXTENTS_MAX: usize = 1024;
/// Most devices that a mapper may name, those of the hello and its own.
pub const DEVICES_MAX: u32 = 256;
/// Most bytes of a name.
pub const NAME_LENGTH_MAX: usize = 255;
/// Most bytes that the extents of one answer may have the engine copy.
pub const COPY_LENGTH_MAX: u64 = 64 << 20;
/// Device number of an extent that has no such device.
pub const NO_DEVICE: u32 = u32::MAX;

/// Why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WireError {
    /// No message has this kind.
    #[error("message of unknown kind {0}")]
    Kind(u16),
    /// The body is too long or too short for its kind.
    #[error("message of kind {kind} with a body of {length} bytes")]
    Length {
        /// The kind.
        kind: u16,
        /// Bytes of the body.
        length: usize,
    },
    /// A field has a value that it cannot have.
    #[error("message of kind {kind}: {field} has a value that is not allowed")]
    Field {
        /// The kind.
        kind: u16,
        /// Which field.
        field: &'static str,
    },
}

/// What a request will do with the range that it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// Read it.
    Read,
    /// Change it.
    Write,
}

/// For which requests an answer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// For reads.
    pub read: bool,
    /// For writes.
    pub write: bool,
}

impl Access {
    /// Reads.
    pub const READ: Self = Self { read: true, write: false };
    /// Writes.
    pub const WRITE: Self = Self { read: false, write: true };
    /// Reads and writes.
    pub const BOTH: Self = Self { read: true, write: true };
}

/// Where the bytes of an extent lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On a device.
    Data {
        /// Number of the device.
        device: u32,
        /// First byte there.
        offset: u64,
    },
    /// Nowhere: they are zeros. For reads only.
    Zero,
    /// Unknown: requests for it fail.
    Error,
    /// On a device, once the engine has copied them there, but for what the request writes itself. In the answer to a request to
    /// write only, and overlapping it.
    Copy {
        /// Number of the device.
        device: u32,
        /// First byte there.
        offset: u64,
        /// Number of the device and first byte from where they are copied; zeros if there is none.
        from: Option<(u32, u64)>,
    },
}

/// A run of bytes of the volume, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First byte in the volume.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Where they lie.
    pub place: Place,
    /// For which requests.
    pub access: Access,
    /// The answer is for the request that asked alone, and is not kept.
    pub once: bool,
    /// In an answer to a write: the mapper is to hear when what is copied, and what the request that asked writes there, is durable.
    pub notify: bool,
    /// Milliseconds for which the answer holds; without end if 0.
    pub expiry_ms: u32,
}

impl Extent {
    /// An extent that is at `place`, for reads and writes, until it is invalidated.
    pub fn new(offset: u64, length: u64, place: Place) -> Self {
        let access = if place == Place::Zero { Access::READ } else { Access::BOTH };
        Self { offset, length, place, access, once: false, notify: false, expiry_ms: 0 }
    }

    /// The byte behind it; `None` if there is no such number.
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.length)
    }
}

/// A device that a mapper may name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GivenDevice {
    /// Bytes.
    pub size: u64,
    /// Whether extents for writes may lie there.
    pub is_writable: bool,
    /// What it is called: `VG/LV`.
    pub name: String,
}

/// What an engine says first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Name of the volume.
    pub volume: String,
    /// Bytes of the volume.
    pub size: u64,
    /// Bytes of which all offsets and lengths are multiples.
    pub block_size: u32,
    /// Number of extents that follow in [`ToMapper::Held`].
    pub held: u32,
    /// Devices 0, 1 and so on.
    pub devices: Vec<GivenDevice>,
}

/// What a mapper says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Welcome {
    /// It keeps a mapping that is to be made durable: it is asked to when the volume is flushed.
    pub is_persistent: bool,
    /// Answers that were given before it came (back) hold.
    pub keeps_answers: bool,
    /// It frees ranges of which both ends are multiples of so many bytes, a power of two; none if 0.
    pub trim_unit: u32,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It is done.
    Done,
    /// It failed.
    Failed,
}

/// A message of the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToMapper {
    /// The first message.
    Hello(Hello),
    /// Answers for writes, and ranges made zero, that were not flushed when the last connection ended: they hold.
    Held(Vec<Extent>),
    /// Where does this range lie? Answered by [`ToEngine::Mapped`].
    Map {
        /// First byte.
        offset: u64,
        /// Bytes of the request; the answer may have more, and must have the first.
        length: u64,
        /// What for.
        intent: Intent,
    },
    /// Make durable what was answered so far. Answered by [`ToEngine::Flushed`].
    Flush,
    /// Free the range: it is zeros from now on. Answered by [`ToEngine::Trimmed`].
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// No request uses any more what was invalidated.
    Invalidated,
    /// What was copied there for the answer with this number, and what the request that asked wrote there, is durable.
    Durable {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// What the answer with this number would have had copied was not: that part of the answer does not hold.
    Failed {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

/// A message of the mapper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToEngine {
    /// The answer to the hello. Devices may be registered before it.
    Welcome(Welcome),
    /// One more device: a file, whose descriptor comes with the message.
    Device {
        /// Its number.
        number: u32,
        /// Whether extents for writes may lie there.
        is_writable: bool,
    },
    /// The answer to a request, or, with number 0, what was not asked for yet.
    Mapped(Vec<Extent>),
    /// Forget answers for this range. Answered by [`ToMapper::Invalidated`].
    Invalidate {
        /// First byte.
        offset: u64,
        /// Bytes; those beyond the volume's end do not matter.
        length: u64,
        /// Which answers.
        access: Access,
    },
    /// The answer to [`ToMapper::Flush`].
    Flushed(Status),
    /// The answer to [`ToMapper::Trim`].
    Trimmed(Status),
}

/// A message with the number that ties an answer to its request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbered<T> {
    /// The number.
    pub id: u64,
    /// The message.
    pub message: T,
}

/// A kind of message with bytes.
pub trait Message: Sized {
    /// Appends the message's bytes, with its header.
    fn encode(&self, id: u64, bytes: &mut Vec<u8>);

    /// The message of this kind with this body.
    fn decode(kind: u16, body: &[u8]) -> Result<Self, WireError>;
}

#[cfg(test)]
mod tests;
