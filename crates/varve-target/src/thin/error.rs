//! Why a pool refuses.

use crate::pdata::MapError;
use std::fmt;
use varve_block::IoError;
use varve_format::thin::PoolFormatError;

/// Why something about a pool or its volumes cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// A device failed.
    Io(IoError),
    /// There is no space left in the pool.
    NoSpace,
    /// There is no volume with this id.
    NotFound,
    /// There is a volume with this name already.
    Exists,
    /// The volume is held.
    Held,
    /// The name is none.
    Name,
    /// The pool's device is too small; the number is the bytes that it must have.
    TooSmall(u64),
    /// The volume's external origin is missing.
    OriginMissing,
    /// What was asked does not fit the pool or the volume, as said.
    Misfit(&'static str),
    /// There is no pool on this device, or none that can be read.
    Format(PoolFormatError),
    /// The pool contradicts itself, as said.
    Corrupt(&'static str),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::Io(error) => write!(f, "input or output failed: {error}"),
            PoolError::NoSpace => f.write_str("no space is left in the pool"),
            PoolError::NotFound => f.write_str("there is no such volume in the pool"),
            PoolError::Exists => f.write_str("there is a volume with this name in the pool already"),
            PoolError::Held => f.write_str("the volume is held"),
            PoolError::Name => f.write_str("this cannot be a volume's name"),
            PoolError::TooSmall(bytes) => write!(f, "a pool needs at least {bytes} bytes"),
            PoolError::OriginMissing => f.write_str("the origin of the volume is missing"),
            PoolError::Misfit(why) | PoolError::Corrupt(why) => f.write_str(why),
            PoolError::Format(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for PoolError {}

impl From<IoError> for PoolError {
    fn from(error: IoError) -> Self {
        if error == IoError::NoSpace { PoolError::NoSpace } else { PoolError::Io(error) }
    }
}

impl From<MapError> for PoolError {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Io(error) => error.into(),
            MapError::Full => PoolError::NoSpace,
            MapError::Damaged { block, error } => {
                tracing::error!(block = block.number(), %error, "a block of the pool's maps is damaged");
                PoolError::Io(IoError::Corrupt)
            }
        }
    }
}

/// What a request returns for `error`.
pub(super) fn io_error(error: MapError) -> IoError {
    match PoolError::from(error) {
        PoolError::Io(error) => error,
        _ => IoError::NoSpace,
    }
}
