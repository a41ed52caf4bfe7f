//! A device whose end is no whole block, made whole: bytes that lie behind its last block, then zeros. It is never written.
//!
//! Invariants:
//! - PADDED1. First comes the device below, then the tail, then zeros up to a whole block.
//! - PADDED2. The tail was read when the device was made: what is below does not change.

use crate::fan_out::join_pieces;
use std::sync::Arc;
use varve_block::{
    Access, BlockDevice, Buffer, Checked, Completion, Device, Extent, Io, IoError, MapAnswer, MapFuture,
    MapIntent, Shape, is_aligned, read_only,
};

/// A device with an end in memory.
pub struct Padded {
    below: Device,
    tail: Arc<[u8]>,
    shape: Shape,
}

impl Padded {
    /// `below`, behind it `tail`, and zeros up to a multiple of `block_size`, which is one of the block size below.
    pub fn new(below: Device, tail: Arc<[u8]>, block_size: u32) -> Self {
        let own = below.shape();
        assert!(
            is_aligned(u64::from(block_size), u64::from(own.block_size)),
            "PADDED1: blocks of {block_size}"
        );
        let size = (own.size + tail.len() as u64).next_multiple_of(u64::from(block_size));
        let shape = Shape {
            size,
            block_size,
            optimal_size: own.optimal_size.max(block_size),
            access: Access::ReadOnly,
            discard: false,
            fast_zero: false,
        };
        Self { below: read_only(below), tail, shape }
    }

    /// How many bytes from `offset` on lie below.
    fn below_from(&self, offset: u64) -> u64 {
        self.below.shape().size.saturating_sub(offset)
    }

    /// Fills a buffer that is read at `offset`, behind the device below.
    fn read_end(&self, offset: u64, mut buffer: Buffer) -> Completion<'_> {
        assert!(offset >= self.below.shape().size, "PADDED1: the end lies behind the device below");
        let start = index(offset - self.below.shape().size).min(self.tail.len());
        let data = &self.tail[start..(start + buffer.len()).min(self.tail.len())];
        let (first, rest) = buffer.split_at_mut(data.len());
        first.copy_from_slice(data);
        rest.fill(0);
        Completion::ready(Ok(buffer))
    }

    fn read(&self, offset: u64, mut buffer: Buffer) -> Completion<'_> {
        let here = self.below_from(offset);
        if here >= buffer.len() as u64 {
            return self.below.read(offset, buffer);
        }
        if here == 0 {
            return self.read_end(offset, buffer);
        }
        let end = buffer.split_off(index(here));
        join_pieces(vec![self.below.read(offset, buffer), self.read_end(offset + here, end)])
    }
}

impl BlockDevice for Padded {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { offset, buffer } => self.read(offset, buffer),
            Io::Flush => Completion::done(),
            Io::Write { .. } | Io::Zero { .. } | Io::Discard { .. } => Completion::failed(IoError::ReadOnly),
        }
    }

    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        let here = self.below_from(extent.offset).min(extent.length);
        if here > 0 {
            return MapAnswer::through(&self.below, extent.offset, here).ready();
        }
        MapAnswer::sent(extent.length).ready()
    }
}

fn index(length: u64) -> usize {
    usize::try_from(length).expect("a request in memory is shorter than the address space")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use varve_block::{Allocation, Arena, Durability, Rejected};

    /// Each byte says where it is.
    struct Counting;

    const BELOW: u64 = 4096 + 512;

    impl BlockDevice for Counting {
        fn shape(&self) -> Shape {
            Shape::new(BELOW, 512)
        }
        fn submit(&self, io: Checked) -> Completion<'_> {
            let Io::Read { offset, mut buffer } = io.into_io() else { panic!("PADDED2: it is only read") };
            for (at, byte) in buffer.iter_mut().enumerate() {
                *byte = ((offset + at as u64) % 251) as u8;
            }
            Completion::ready(Ok(buffer))
        }
    }

    #[test]
    fn reads_find_the_device_then_its_tail_then_zeros() {
        let arena = Arena::heap(1 << 16);
        let tail: Vec<u8> = (BELOW..BELOW + 100).map(|at| (at % 251) as u8).collect();
        let device = Device::new(Padded::new(Device::new(Counting), tail.into(), 4096));
        assert_eq!((device.shape().size, device.shape().access), (8192, Access::ReadOnly));
        for (offset, length) in [(0, 4096), (4096, 4096), (0, 8192)] {
            let read = device.read(offset, arena.take(length)).now_or_never().expect("at once");
            for (at, byte) in (offset..).zip(read.expect("readable").iter()) {
                let expected = if at < BELOW + 100 { (at % 251) as u8 } else { 0 };
                assert_eq!(*byte, expected, "PADDED1: byte {at}");
            }
        }
    }

    #[test]
    fn a_device_of_whole_blocks_stays_as_it_is_and_is_not_written() {
        let arena = Arena::heap(1 << 16);
        let below = Device::new(crate::ZeroTarget::new(8192, 4096));
        let device = Device::new(Padded::new(below, Vec::new().into(), 4096));
        assert_eq!(device.shape().size, 8192);
        let write = Io::Write { offset: 0, data: arena.copy(&[1; 4096]), durability: Durability::Volatile };
        assert_eq!(device.shape().check(&write), Err(Rejected::ReadOnly), "PADDED2");
        let status = device.status(Extent::new(4096, 4096)).now_or_never().expect("at once").expect("known");
        assert_eq!(status[0].allocation, Allocation::Hole);
    }
}
