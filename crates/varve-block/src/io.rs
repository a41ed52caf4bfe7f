//! One request to a device, as data, and its answer.

use crate::buffer::{Buffer, Bytes};
use crate::error::IoError;
use crate::units::Extent;

/// When a write may be acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// As soon as later reads see it; a crash before the next flush may undo it.
    #[default]
    Volatile,
    /// Only once it survives a crash (forced unit access).
    Durable,
}

/// How a run of zeros may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroOptions {
    /// When the request may be acknowledged.
    pub durability: Durability,
    /// Whether the space may be given back.
    pub unmap: bool,
    /// Fail with [`IoError::Unsupported`] rather than write zeros as data.
    pub fast: bool,
}

impl Default for ZeroOptions {
    fn default() -> Self {
        Self { durability: Durability::Volatile, unmap: true, fast: false }
    }
}

/// One request.
#[derive(Debug)]
pub enum Io {
    /// Fill the whole buffer from `offset` on.
    Read {
        /// First byte on the device.
        offset: u64,
        /// Where the data goes; its length is the request's. Comes back in the [`Outcome`].
        buffer: Buffer,
    },
    /// Store all of `data` at `offset`.
    Write {
        /// First byte on the device.
        offset: u64,
        /// What is written; its length is the request's.
        data: Bytes,
        /// When the write may be acknowledged.
        durability: Durability,
    },
    /// Make the extent read as zeros.
    Zero {
        /// What is zeroed.
        extent: Extent,
        /// How.
        options: ZeroOptions,
    },
    /// The content of the extent is no longer needed; it may read as anything that was ever written there by
    /// this volume's owner, or zeros.
    Discard {
        /// The bytes that are no longer needed.
        extent: Extent,
    },
    /// Every write that was acknowledged before this was submitted survives a crash once this is acknowledged.
    Flush,
}

/// The answer to a request: for a read the filled buffer, else an empty one.
pub type Outcome = Result<Buffer, IoError>;

impl Io {
    /// The bytes of the device that the request touches; empty at 0 for a flush.
    pub fn extent(&self) -> Extent {
        match self {
            Io::Read { offset, buffer } => Extent::new(*offset, buffer.len() as u64),
            Io::Write { offset, data, .. } => Extent::new(*offset, data.len() as u64),
            Io::Zero { extent, .. } | Io::Discard { extent } => *extent,
            Io::Flush => Extent::default(),
        }
    }

    /// Whether the request may change what the device holds.
    pub fn is_change(&self) -> bool {
        matches!(self, Io::Write { .. } | Io::Zero { .. } | Io::Discard { .. })
    }

    /// This request at another place.
    pub fn at(mut self, new_offset: u64) -> Io {
        match &mut self {
            Io::Read { offset, .. } | Io::Write { offset, .. } => *offset = new_offset,
            Io::Zero { extent, .. } | Io::Discard { extent } => {
                *extent = Extent::new(new_offset, extent.length);
            }
            Io::Flush => {}
        }
        self
    }

    /// Splits into the first `length` bytes and the rest. Panics on a flush, or beyond the end.
    pub fn split_at(self, length: u64) -> (Io, Io) {
        match self {
            Io::Read { offset, mut buffer } => {
                let rest = buffer.split_off(as_index(length));
                (Io::Read { offset, buffer }, Io::Read { offset: offset + length, buffer: rest })
            }
            Io::Write { offset, data, durability } => {
                let (first, rest) = data.split_at(as_index(length));
                (
                    Io::Write { offset, data: first, durability },
                    Io::Write { offset: offset + length, data: rest, durability },
                )
            }
            Io::Zero { extent, options } => {
                let (first, rest) = extent.split_at(length);
                (Io::Zero { extent: first, options }, Io::Zero { extent: rest, options })
            }
            Io::Discard { extent } => {
                let (first, rest) = extent.split_at(length);
                (Io::Discard { extent: first }, Io::Discard { extent: rest })
            }
            Io::Flush => panic!("a flush has no parts"),
        }
    }

    /// A word for traces.
    pub fn verb(&self) -> &'static str {
        match self {
            Io::Read { .. } => "read",
            Io::Write { .. } => "write",
            Io::Zero { .. } => "zero",
            Io::Discard { .. } => "discard",
            Io::Flush => "flush",
        }
    }
}

fn as_index(length: u64) -> usize {
    usize::try_from(length).expect("a request in memory is shorter than the address space")
}
