//! A device whose changes stay in memory: code that writes can run on a device that may only be read.
//!
//! Invariant OVERLAY1: no change reaches the device below, and what was changed reads as it was changed.

use crate::buffer::Buffer;
use crate::device::{BlockDevice, Checked, Completion, Device};
use crate::error::IoError;
use crate::io::{Io, Outcome};
use crate::shape::{Access, Shape};
use crate::units::Extent;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// `device`, which may be read-only, with changes that are kept in memory; each block of them takes its size there.
pub fn overlay(device: Device) -> Device {
    Device::new(Overlay { device, changed: RefCell::default() })
}

struct Overlay {
    device: Device,
    /// The blocks that were changed, by their numbers.
    changed: RefCell<BTreeMap<u64, Box<[u8]>>>,
}

impl Overlay {
    fn block_size(&self) -> u64 {
        self.device.shape().block_size.into()
    }

    /// The numbers of the blocks of `extent`.
    fn blocks(&self, extent: Extent) -> std::ops::Range<u64> {
        assert!(extent.is_aligned(self.block_size()), "OVERLAY1: whole blocks, not {extent:?}");
        extent.offset / self.block_size()..extent.end() / self.block_size()
    }

    async fn read(&self, offset: u64, buffer: Buffer) -> Outcome {
        let blocks = self.blocks(Extent::new(offset, buffer.len() as u64));
        let mut read = self.device.read(offset, buffer).await?;
        for (number, block) in self.changed.borrow().range(blocks) {
            let at = usize::try_from(number * self.block_size() - offset).expect("the buffer is in memory");
            read[at..at + block.len()].copy_from_slice(block); // OVERLAY1
        }
        Ok(read)
    }

    fn change(&self, extent: Extent, data: Option<&[u8]>) -> Outcome {
        let length = usize::try_from(self.block_size()).expect("a block is small");
        let mut changed = self.changed.borrow_mut();
        for (index, number) in self.blocks(extent).enumerate() {
            let block =
                data.map_or_else(|| vec![0; length], |data| data[index * length..][..length].to_vec());
            changed.insert(number, block.into_boxed_slice());
        }
        Ok(Buffer::empty())
    }
}

impl BlockDevice for Overlay {
    fn shape(&self) -> Shape {
        Shape { access: Access::ReadWrite, discard: false, ..self.device.shape() }
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let done = match io.into_io() {
            Io::Read { offset, buffer } => return Completion::pending(self.read(offset, buffer)),
            Io::Write { offset, data, .. } => {
                self.change(Extent::new(offset, data.len() as u64), Some(&data))
            }
            Io::Zero { extent, .. } => self.change(extent, None),
            Io::Discard { .. } => Err(IoError::Unsupported),
            Io::Flush => Ok(Buffer::empty()),
        };
        Completion::pending(async move { done })
    }
}
