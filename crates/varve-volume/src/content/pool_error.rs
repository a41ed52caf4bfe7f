//! The errors of a pool in the words of snapshots.

use varve_block::IoError;
use varve_target::snapshot::StoreError;
use varve_target::thin::PoolError;

/// The error of a pool in the words of snapshots.
pub(crate) fn store_error(error: PoolError) -> StoreError {
    match error {
        PoolError::Io(error) => StoreError::Io(error),
        PoolError::NoSpace | PoolError::TooSmall(_) => StoreError::NoSpace,
        PoolError::NotFound => StoreError::NotFound,
        PoolError::Exists => StoreError::Exists,
        PoolError::Held => StoreError::Held,
        PoolError::Name => StoreError::Name,
        PoolError::OriginMissing | PoolError::Misfit(_) | PoolError::Format(_) | PoolError::Corrupt(_) => {
            tracing::error!(%error, "a pool refuses");
            StoreError::Io(IoError::Corrupt)
        }
    }
}
