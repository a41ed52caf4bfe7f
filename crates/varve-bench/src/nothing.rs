//! A device that does nothing and answers at once: what is left is the cost of the layers above it.

use varve_block::{BlockDevice, Buffer, Checked, Completion, Device, Io, Shape};

/// The device.
struct Nothing(Shape);

/// A device of `size` bytes with blocks of `block_size` on which every request succeeds; reads fill nothing.
pub(crate) fn nothing(size: u64, block_size: u32) -> Device {
    Device::new(Nothing(Shape { discard: true, fast_zero: true, ..Shape::new(size, block_size) }))
}

impl BlockDevice for Nothing {
    fn shape(&self) -> Shape {
        self.0
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { buffer, .. } => Completion::ready(Ok(buffer)),
            _ => Completion::ready(Ok(Buffer::empty())),
        }
    }
}
