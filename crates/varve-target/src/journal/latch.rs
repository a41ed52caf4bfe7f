//! The failure latch: after a failed write to the log it is unknown what the disk holds, and nothing is changed any more.

use crate::pdata::of_device;
use std::cell::Cell;
use varve_block::IoError;

/// Open until the first failure; then shut until the engine is opened again.
#[derive(Default)]
pub(crate) struct Latch(Cell<Option<IoError>>);

impl Latch {
    /// What has failed, if anything has.
    pub(crate) fn failure(&self) -> Option<IoError> {
        self.0.get()
    }

    /// Fails with what has failed before.
    pub(crate) fn check(&self) -> Result<(), IoError> {
        self.0.get().map_or(Ok(()), Err)
    }

    /// Shuts. Returns the error of requests: `NoSpace` is for engines that are full, not for a disk below them.
    pub(crate) fn shut(&self, error: IoError) -> IoError {
        let told = of_device(error);
        self.0.set(self.0.get().or(Some(told)));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_stays_and_a_full_disk_is_not_a_full_engine() {
        let latch = Latch::default();
        assert_eq!((latch.failure(), latch.check()), (None, Ok(())));
        assert_eq!(latch.shut(IoError::NoSpace), IoError::HostFull);
        assert_eq!(latch.shut(IoError::Gone), IoError::Gone);
        assert_eq!((latch.failure(), latch.check()), (Some(IoError::HostFull), Err(IoError::HostFull)));
    }
}
