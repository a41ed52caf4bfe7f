//! An array as a device.

use super::Array;
use super::change::Change;
use std::rc::Rc;
use varve_block::{BlockDevice, Checked, Completion, Device, Io, Shape, accept_unaligned};

impl Array {
    /// The array as a device. Any byte can be addressed, but of a mirror without checksums: whole blocks of its members.
    pub fn device(self: &Rc<Self>) -> Device {
        let device = Device::from_rc(Rc::clone(self) as Rc<dyn BlockDevice>);
        match self.is_mirror() && !self.spec.checksums {
            true => device,
            false => accept_unaligned(device, self.options.arena.clone()),
        }
    }
}

impl BlockDevice for Array {
    fn shape(&self) -> Shape {
        self.shape.get()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        self.counters.requests.set(self.counters.requests.get() + 1);
        match io.into_io() {
            Io::Read { offset, buffer } => self.read(offset, buffer),
            Io::Write { offset, data, durability } => {
                Completion::pending(self.change(offset, Change::Write(data), durability))
            }
            Io::Zero { extent, options } => {
                let change = Change::Zero(extent.length, options);
                Completion::pending(self.change(extent.offset, change, options.durability))
            }
            Io::Discard { extent } => self.discard(extent),
            Io::Flush => Completion::pending(self.flush()),
        }
    }
}
