//! The gate between a volume and its disks, which can be closed for good.
//!
//! Invariants:
//! - VOLGATE1. Below all that is served of a volume, its stores included, stands the volume's gate. Behind a closed gate
//!   nothing of it reaches a disk any more, whatever sends it.
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
    pub(crate) fn guard(&self, device: Device) -> Device {
        Device::new(Guarded { device, gate: self.clone() })
    }

    /// Lets nothing through from now on (VOLGATE2).
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
    }

    /// Whether nothing gets through.
    pub(crate) fn is_closed(&self) -> bool {
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

    /// VOLGATE1: a caller that moved the bytes itself would not see that the gate is closed.
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        if self.gate.is_closed() {
            return Box::pin(std::future::ready(Err(IoError::Gone)));
        }
        MapAnswer::in_front(&self.device, extent, intent).ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::{Durability, KIB};
    use varve_sim::{SimDisk, World};

    #[test]
    fn behind_a_closed_gate_nothing_gets_through_and_behind_another_one_it_does() {
        let (world, disk) = (World::new(1), SimDisk::new(64 * KIB));
        let (gate, arena) = (Gate::default(), world.arena());
        let guarded = gate.guard(disk.device(&world));
        let write = async |device: &Device| {
            device.write(0, arena.copy(&[7; 512]), Durability::Volatile).await.map(drop)
        };
        world.run(async {
            write(&guarded).await.expect("it is open");
            gate.close();
            let later = gate.guard(disk.device(&world));
            for device in [&guarded, &later] {
                assert_eq!(write(device).await, Err(IoError::Gone), "VOLGATE1, VOLGATE2");
                assert_eq!(device.read(0, arena.take(512)).await.map(drop), Err(IoError::Gone), "VOLGATE1");
            }
            assert_eq!((disk.counters().writes, disk.counters().reads), (1, 0), "VOLGATE1");
            let anew = Gate::default().guard(disk.device(&world));
            write(&anew).await.expect("VOLGATE2: another gate is open");
            assert!(gate.is_closed(), "VOLGATE2");
        });
    }
}
