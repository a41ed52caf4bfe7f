//! The gate between a volume and its disks, which can be closed for good.
//!
//! Invariants:
//! - VOLGATE1. Below all that is served of a volume, its stores included, stands the volume's gate. Behind a closed gate
//!   nothing of it reaches a disk any more, whoever asks.
//! - VOLGATE2. A gate that was closed stays closed: a volume that is used again is opened anew, behind another gate.

use std::cell::Cell;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, IoError, MapAnswer, MapFuture, MapIntent, Shape,
};

/// Whether requests of a volume reach its disks. Cloning shares it.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    is_closed: Rc<Cell<bool>>,
}

impl Gate {
    /// `device`, behind this gate (VOLGATE1).
    pub(super) fn guard(&self, device: Device) -> Device {
        Device::new(Guarded { device, gate: self.clone() })
    }

    /// Lets nothing through from now on (VOLGATE2).
    pub(super) fn close(&self) {
        self.is_closed.set(true);
    }

    /// Whether nothing gets through.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }
}

struct Guarded {
    device: Device,
    gate: Gate,
}

impl BlockDevice for Guarded {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        if self.gate.is_closed() {
            return Completion::failed(IoError::Gone);
        }
        self.device.submit(io.into_io())
    }

    /// VOLGATE1: whoever moved bytes himself would not see that the gate is closed.
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        if self.gate.is_closed() {
            return Box::pin(std::future::ready(Err(IoError::Gone)));
        }
        MapAnswer::in_front(&self.device, extent, intent).ready()
    }
}
