//! Why a store refuses.

use std::fmt;
use varve_block::IoError;
use varve_format::store::StoreFormatError;

/// Why something about a store or its snapshots cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// A device failed.
    Io(IoError),
    /// There is no space left in the store.
    NoSpace,
    /// There is no snapshot with this id.
    NotFound,
    /// There is a snapshot with this name already.
    Exists,
    /// The snapshot is held.
    Held,
    /// A rollback is under way, or that snapshot is what the origin is being rolled back to.
    Busy,
    /// The log could not be written during a rollback, and it is unknown what it says of that; the origin is not
    /// served until the store is opened again.
    HalfRolledBack,
    /// The name is none.
    Name,
    /// The store's device is too small; the number is the bytes that it must have.
    TooSmall(u64),
    /// Origin, store and options do not fit together, as said.
    Misfit(&'static str),
    /// There is no store on this device, or none that can be read.
    Format(StoreFormatError),
    /// The store contradicts itself, as said.
    Corrupt(&'static str),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Io(error) => write!(f, "input or output failed: {error}"),
            StoreError::NoSpace => f.write_str("no space is left in the exception store"),
            StoreError::NotFound => f.write_str("there is no such snapshot"),
            StoreError::Exists => f.write_str("there is a snapshot with this name already"),
            StoreError::Held => f.write_str("the snapshot is held"),
            StoreError::Busy => f.write_str("the origin is being rolled back"),
            StoreError::HalfRolledBack => f.write_str(
                "the log failed during a rollback; the origin is not served until it is read again",
            ),
            StoreError::Name => f.write_str("this cannot be a snapshot's name"),
            StoreError::TooSmall(bytes) => write!(f, "an exception store needs at least {bytes} bytes"),
            StoreError::Misfit(why) | StoreError::Corrupt(why) => f.write_str(why),
            StoreError::Format(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<IoError> for StoreError {
    fn from(error: IoError) -> Self {
        if error == IoError::NoSpace { StoreError::NoSpace } else { StoreError::Io(error) }
    }
}
