//! A device in memory that answers at once: what a throttle above it makes of it is all the time that it takes.

use std::cell::RefCell;
use varve_block::{BlockDevice, Buffer, Checked, Completion, Device, Extent, Io, Shape};

/// The device.
struct Memory {
    shape: Shape,
    content: RefCell<Vec<u8>>,
}

/// A device of `size` bytes, all zeros, with blocks of 512.
pub(crate) fn memory(size: u64) -> Device {
    let shape = Shape { discard: true, fast_zero: true, ..Shape::new(size, 512) };
    let length = usize::try_from(size).expect("it fits into memory");
    Device::new(Memory { shape, content: RefCell::new(vec![0; length]) })
}

fn range(extent: Extent) -> std::ops::Range<usize> {
    let index = |at: u64| usize::try_from(at).expect("it lies in memory");
    index(extent.offset)..index(extent.end())
}

impl BlockDevice for Memory {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let place = range(io.extent());
        let mut content = self.content.borrow_mut();
        match io.into_io() {
            Io::Read { mut buffer, .. } => {
                buffer.copy_from_slice(&content[place]);
                return Completion::ready(Ok(buffer));
            }
            Io::Write { data, .. } => content[place].copy_from_slice(&data),
            Io::Zero { .. } | Io::Discard { .. } => content[place].fill(0),
            Io::Flush => {}
        }
        Completion::ready(Ok(Buffer::empty()))
    }
}
