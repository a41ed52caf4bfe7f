//! A device whose changes stay in memory: a pool is opened on it, and whatever its log asks for, nothing is written.
//!
//! Invariant POOLOVER1: no change reaches the device below.

use super::super::index;
use std::cell::RefCell;
use std::collections::BTreeMap;
use varve_block::{
    Access, BlockDevice, Buffer, Checked, Completion, Device, Extent, Io, IoError, Outcome, Shape, align_down,
};
use varve_format::thin::PART_SIZE;

/// The device below and what was changed since, in blocks of 4 KiB.
pub(in crate::thin) struct Overlay {
    below: Device,
    changed: RefCell<BTreeMap<u64, Box<[u8]>>>,
}

impl Overlay {
    /// `below`, to be changed in memory only.
    pub(in crate::thin) fn over(below: &Device) -> Device {
        Device::new(Self { below: below.clone(), changed: RefCell::default() })
    }

    async fn read(&self, offset: u64, buffer: Buffer) -> Outcome {
        let extent = Extent::new(offset, buffer.len() as u64);
        let mut buffer = self.below.read(offset, buffer).await?;
        let changed = self.changed.borrow();
        for (at, content) in changed.range(extent.offset..extent.end()) {
            let begin = index(at - extent.offset);
            buffer[begin..begin + content.len()].copy_from_slice(content);
        }
        Ok(buffer)
    }

    fn change(&self, extent: Extent, content: impl Fn(Extent) -> Box<[u8]>) {
        assert!(extent.is_aligned(PART_SIZE), "POOLOVER1: whole blocks: {extent:?}");
        let parts = extent.pieces(PART_SIZE).map(|(_, part)| (part.offset, content(part)));
        self.changed.borrow_mut().extend(parts);
    }
}

impl BlockDevice for Overlay {
    fn shape(&self) -> Shape {
        let below = self.below.shape();
        let block_size = below.block_size.max(PART_SIZE as u32);
        Shape {
            size: align_down(below.size, u64::from(block_size)),
            block_size,
            optimal_size: below.optimal_size.max(block_size),
            access: Access::ReadWrite,
            discard: false,
            fast_zero: false,
        }
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { offset, buffer } => Completion::pending(self.read(offset, buffer)),
            Io::Write { offset, data, .. } => {
                let at = |part: Extent| index(part.offset - offset);
                let content = |part: Extent| data[at(part)..at(part) + index(part.length)].into();
                self.change(Extent::new(offset, data.len() as u64), content);
                Completion::done()
            }
            Io::Zero { extent, .. } => {
                self.change(extent, |part| vec![0; index(part.length)].into());
                Completion::done()
            }
            Io::Discard { .. } => Completion::failed(IoError::Unsupported),
            Io::Flush => Completion::done(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdata::tests::memory;
    use futures_executor::block_on;
    use varve_block::{Arena, Durability, ZeroOptions};

    #[test]
    fn what_was_changed_is_read_back_and_the_device_below_is_as_it_was() {
        let (below, arena, part) = (memory(4), Arena::heap(1 << 20), index(PART_SIZE));
        let write = |device: &Device, at: u64, parts: usize, byte: u8| {
            let data = arena.copy(&vec![byte; parts * part]);
            block_on(device.write(at * PART_SIZE, data, Durability::Durable)).expect("memory does not fail");
        };
        write(&below, 0, 4, 1);
        let device = Overlay::over(&below);
        write(&device, 1, 2, 2);
        let zeroed = device.zero(Extent::new(2 * PART_SIZE, PART_SIZE), ZeroOptions::default());
        block_on(zeroed).expect("memory does not fail");
        let parts = |device: &Device| -> Vec<u8> {
            let content = block_on(device.read(0, arena.take(4 * part))).expect("memory does not fail");
            content.chunks(part).map(|part| part[0]).collect()
        };
        assert_eq!(parts(&device), [1, 2, 0, 1]);
        assert_eq!(parts(&below), [1; 4], "POOLOVER1");
    }
}
