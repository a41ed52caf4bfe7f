//! Extents that a volume gains, made to read as zeros before they count: at once where a disk can, else their ends.

use crate::fault;
use varve_block::{Device, Extent, GIB, IoError, MIB, ZeroOptions};

/// Bytes that are cleared at a time.
pub const STEP: u64 = 4 * MIB;

/// Makes a part of a volume that does not count yet read as zeros, if that costs nothing; whether it did.
pub async fn clear_fast(device: &Device, extent: Extent) -> Result<bool, IoError> {
    let fast = ZeroOptions { fast: true, ..ZeroOptions::default() };
    for (_, piece) in extent.pieces(GIB) {
        if fault::lacks("fast-zero") {
            return Ok(false);
        }
        match device.zero(piece, fast).await {
            Ok(_) => {}
            Err(IoError::Unsupported) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    device.flush().await?;
    Ok(true)
}

/// Makes a part of a volume that does not count yet read as zeros, whatever that costs.
pub async fn clear_all(device: &Device, extent: Extent) -> Result<(), IoError> {
    let slow = ZeroOptions { unmap: false, ..ZeroOptions::default() };
    for (_, piece) in extent.pieces(STEP) {
        device.zero(piece, slow).await?;
    }
    device.flush().await.map(drop)
}

/// Makes the ends of a part of a volume read as zeros, so that nothing that lay there before is taken for a file system.
pub async fn clear_ends(device: &Device, extent: Extent) -> Result<(), IoError> {
    let slow = ZeroOptions { unmap: false, ..ZeroOptions::default() };
    let length = extent.length.min(MIB);
    for offset in [extent.offset, extent.end() - length] {
        device.zero(Extent::new(offset, length), slow).await?;
    }
    device.flush().await.map(drop)
}
