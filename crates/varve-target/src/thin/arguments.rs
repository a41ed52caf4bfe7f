//! How large volumes can be, and how much of an origin they can show.

use super::PoolError;
use varve_block::is_aligned;
use varve_format::thin::{Origin, PART_SIZE};

pub(super) fn check_size(bytes: u64) -> Result<(), PoolError> {
    if is_aligned(bytes, PART_SIZE) && bytes > 0 && bytes <= 1 << 60 {
        return Ok(());
    }
    Err(PoolError::Misfit("a volume is made of blocks of 4 KiB, up to 1 EiB"))
}

/// Whether a volume of `bytes` bytes can be backed by `origin`.
pub(super) fn check_origin(origin: Option<Origin>, bytes: u64) -> Result<(), PoolError> {
    let fits = |origin: Origin| {
        let is_named = !origin.backing.id().is_nil();
        is_named && (1..=bytes).contains(&origin.bytes) && is_aligned(origin.bytes, PART_SIZE)
    };
    if origin.is_none_or(fits) {
        return Ok(());
    }
    Err(PoolError::Misfit("of an origin at most the size of the volume shows"))
}
