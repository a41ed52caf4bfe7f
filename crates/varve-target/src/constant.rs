//! Devices that need no storage: one that is all zeros, and one on which everything fails.

use varve_block::{
    BlockDevice, Checked, Completion, Extent, Io, IoError, MapAnswer, MapFuture, MapGuard, MapIntent,
    MapPiece, Shape,
};

/// Reads as zeros; what is written to it is forgotten.
pub struct ZeroTarget {
    shape: Shape,
}

impl ZeroTarget {
    /// `size` bytes of zeros in blocks of `block_size`.
    pub const fn new(size: u64, block_size: u32) -> Self {
        let mut shape = Shape::new(size, block_size);
        shape.discard = true;
        shape.fast_zero = true;
        Self { shape }
    }
}

impl BlockDevice for ZeroTarget {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { mut buffer, .. } => {
                buffer.fill(0);
                Completion::ready(Ok(buffer))
            }
            Io::Write { .. } | Io::Zero { .. } | Io::Discard { .. } | Io::Flush => Completion::done(),
        }
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        let piece = match intent {
            MapIntent::Inspect | MapIntent::Read => MapPiece::hole(extent.length),
            MapIntent::Overwrite => MapPiece::sent(extent.length),
        };
        MapAnswer::new(piece, MapGuard::none()).ready()
    }
}

/// Answers every request with one error: what stands where a disk is missing.
pub struct ErrorTarget {
    shape: Shape,
    error: IoError,
    /// Whether it never took anything that a flush would have to make durable.
    is_empty: bool,
}

impl ErrorTarget {
    /// `size` bytes in blocks of `block_size`, all of which fail with `error`.
    pub const fn new(size: u64, block_size: u32, error: IoError) -> Self {
        Self { shape: Shape::new(size, block_size), error, is_empty: false }
    }

    /// As [`ErrorTarget::new`], where nothing was ever taken: a flush has nothing to make durable, and succeeds.
    pub const fn empty(size: u64, block_size: u32, error: IoError) -> Self {
        Self { shape: Shape::new(size, block_size), error, is_empty: true }
    }
}

impl BlockDevice for ErrorTarget {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Flush if self.is_empty => Completion::done(),
            _ => Completion::failed(self.error),
        }
    }

    fn map(&self, _extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        Box::pin(std::future::ready(Err(self.error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use varve_block::{Allocation, Arena, Device, StatusRun};

    #[test]
    fn zeros_are_read_whatever_was_written() {
        let arena = Arena::heap(1 << 16);
        let device = Device::new(ZeroTarget::new(8192, 512));
        let written = device.write(512, arena.copy(&[7; 512]), varve_block::Durability::Volatile);
        assert!(written.now_or_never().expect("at once").is_ok());
        let mut buffer = arena.take(1024);
        buffer.fill(9);
        let read = device.read(0, buffer).now_or_never().expect("at once").expect("zeros");
        assert!(read.iter().all(|byte| *byte == 0));
        let runs = device.status(Extent::new(0, 8192)).now_or_never().expect("at once").expect("known");
        assert_eq!(runs, [StatusRun { length: 8192, allocation: Allocation::Hole }]);
    }

    #[test]
    fn every_request_to_the_error_target_fails_with_its_error() {
        let device = Device::new(ErrorTarget::new(8192, 512, IoError::Gone));
        assert_eq!(device.flush().now_or_never().expect("at once").err(), Some(IoError::Gone));
        assert_eq!(
            device.discard(Extent::new(0, 512)).now_or_never().expect("at once").err(),
            Some(IoError::Gone)
        );
        assert!(device.status(Extent::new(0, 512)).now_or_never().expect("at once").is_err());
    }
}
