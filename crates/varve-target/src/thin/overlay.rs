//! A device whose changes stay in memory: a pool is opened on it, and whatever its log asks for, nothing is written.
//!
//! Invariant V1: no change reaches the device below.

use super::index;
use std::cell::RefCell;
use std::collections::BTreeMap;
use varve_block::{
    Access, BlockDevice, Buffer, Checked, Completion, Device, Extent, Io, IoError, Outcome, Shape, align_down,
};
use varve_format::thin::PART_SIZE;

/// The device below and what was changed since, in blocks of 4 KiB.
pub(super) struct Overlay {
    below: Device,
    changed: RefCell<BTreeMap<u64, Box<[u8]>>>,
}

impl Overlay {
    /// `below`, to be changed in memory only.
    pub(super) fn over(below: &Device) -> Device {
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
        assert!(extent.is_aligned(PART_SIZE), "V1: whole blocks: {extent:?}");
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
