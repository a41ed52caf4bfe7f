//! How a damaged block of a store is reported.

use crate::pdata::MapError;
use varve_block::IoError;
use varve_format::store::{StoreFormatError, Uuid};

/// What a request receives for an error of the maps of `store`; the trace names the block.
pub(in crate::snapshot) fn report(store: Uuid, error: MapError) -> IoError {
    match error {
        MapError::Io(error) => error,
        MapError::Full => IoError::NoSpace,
        MapError::Damaged { block, error } => {
            tracing::error!(%store, block = block.number(), %error, "a block of the exception store's maps is damaged");
            IoError::Corrupt
        }
    }
}

/// Tells of a block of the store, at byte `address`, that is not what leads there expects.
pub(in crate::snapshot) fn tell_of_block(
    store: Uuid,
    address: u64,
    expected: &str,
    found: &StoreFormatError,
) {
    tracing::error!(%store, address, expected, %found, "a block of the exception store is damaged");
}
