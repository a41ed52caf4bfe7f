//! What volumes can be called, how large they can be, and how much of an origin they can show.

use super::PoolError;
use varve_block::is_aligned;
use varve_format::thin::{Origin, PART_SIZE};
use varve_format::{NAME_LENGTH_MAX as OWN_NAME_LENGTH_MAX, check_name};

/// The longest name in a pool, in bytes: a number, `@` and a name.
const NAME_LENGTH_MAX: usize = OWN_NAME_LENGTH_MAX + 21;

pub(super) fn check_size(bytes: u64) -> Result<(), PoolError> {
    if is_aligned(bytes, PART_SIZE) && bytes > 0 && bytes <= 1 << 60 {
        return Ok(());
    }
    Err(PoolError::Misfit("a volume is made of blocks of 4 KiB, up to 1 EiB"))
}

/// Whether a volume of `bytes` bytes can lie over `origin`.
pub(super) fn check_origin(origin: Option<Origin>, bytes: u64) -> Result<(), PoolError> {
    let fits = |origin: Origin| {
        let is_named = !origin.store.is_nil();
        is_named && (1..=bytes).contains(&origin.bytes) && is_aligned(origin.bytes, PART_SIZE)
    };
    if origin.is_none_or(fits) {
        return Ok(());
    }
    Err(PoolError::Misfit("of an origin at most the size of the volume shows"))
}

/// A name, or the number of a volume, `@` and a name: a snapshot of that volume, however often it is renamed.
pub(super) fn check_volume_name(name: &str) -> Result<(), PoolError> {
    let own = match name.split_once('@') {
        Some((number, own)) if is_number(number) => own,
        _ => name,
    };
    let fits = name.len() <= NAME_LENGTH_MAX;
    check_name(own).ok().filter(|()| fits).ok_or(PoolError::Name)
}

/// Whether `text` is a volume's number as it is written.
fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|number| number.to_string() == text)
}
