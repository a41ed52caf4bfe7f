//! A device without the right to write.
//!
//! Invariant READONLY1: no change reaches the device below: the shape says so, and the checked door goes by the shape.

use crate::device::{BlockDevice, Checked, Completion, Device, MapAnswer, MapFuture, MapIntent};
use crate::shape::{Access, Shape};
use crate::units::Extent;

/// `device` without the right to write; `device` itself if it may not be written anyway.
pub fn read_only(device: Device) -> Device {
    if device.shape().access == Access::ReadOnly {
        return device;
    }
    Device::new(ReadOnly { device })
}

struct ReadOnly {
    device: Device,
}

impl BlockDevice for ReadOnly {
    fn shape(&self) -> Shape {
        Shape { access: Access::ReadOnly, ..self.device.shape() }
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        self.device.submit(io.into_io())
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        assert!(intent != MapIntent::Overwrite, "READONLY1");
        MapAnswer::through(&self.device, extent.offset, extent.length).ready()
    }
}
