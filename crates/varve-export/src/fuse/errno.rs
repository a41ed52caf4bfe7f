//! The errno that the kernel receives for each way in which a request can fail.

use fuser::Errno;
use varve_block::{IoError, Rejected};

/// The errno of an error of the device.
pub(super) fn of_error(error: IoError) -> Errno {
    match error {
        // Of what is full below itself an engine is out of use: a client that waits for room would wait for ever.
        IoError::Medium | IoError::HostFull | IoError::Corrupt => Errno::EIO,
        IoError::NoSpace => Errno::ENOSPC,
        IoError::ReadOnly | IoError::Fenced => Errno::EROFS,
        IoError::Gone => Errno::ENODEV,
        IoError::Unsupported => Errno::EOPNOTSUPP,
    }
}

/// The errno of a request that does not fit the device.
pub(super) fn of_rejected(rejected: Rejected) -> Errno {
    match rejected {
        Rejected::OutOfBounds => Errno::ENOSPC,
        Rejected::Misaligned => Errno::EINVAL,
        Rejected::ReadOnly => Errno::EROFS,
    }
}
