//! Doors learn of writes that were lost below them.
//!
//! A volume that is opened anew, after a disk or something in it has failed, may have lost writes that were acknowledged
//! and not flushed. Their writer has been promised nothing yet, but counts on its next flush.
//!
//! Invariant LOSSES1: after what served a volume was taken away without a last flush, the next flush of each of its doors fails,
//! once.

use crate::injected_bug::{InjectedBug, has};
use std::cell::Cell;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, Io, IoError, MapAnswer, MapFuture, MapIntent, Shape,
};

/// How often a volume may have lost writes. Cloning shares it.
#[derive(Clone, Default)]
pub(crate) struct Losses(Rc<Cell<u64>>);

impl Losses {
    /// Writes may have been lost.
    pub(super) fn add(&self) {
        if has(InjectedBug::HideLoss) {
            return;
        }
        self.0.set(self.0.get() + 1);
    }

    /// `device` for one door, which hears of losses from now on (LOSSES1).
    pub(super) fn door(&self, device: Device) -> Device {
        Device::new(Door { device, losses: self.clone(), heard: Cell::new(self.0.get()) })
    }
}

struct Door {
    device: Device,
    losses: Losses,
    heard: Cell<u64>,
}

impl BlockDevice for Door {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        if matches!(io, Io::Flush) {
            let now = self.losses.0.get();
            if self.heard.replace(now) != now {
                return Completion::failed(IoError::Medium); // LOSSES1
            }
        }
        self.device.submit(io)
    }

    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::through(&self.device, extent.offset, extent.length).ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_sim::{SimDisk, World};

    #[test]
    fn each_door_hears_of_a_loss_with_its_next_flush_and_once() {
        let (world, losses) = (World::new(1), Losses::default());
        let device = SimDisk::new(4096).device(&world);
        let (one, other) = (losses.door(device.clone()), losses.door(device.clone()));
        world.run(async {
            losses.add();
            losses.add();
            let late = losses.door(device);
            assert!(late.flush().await.is_ok(), "it had written nothing");
            for door in [one, other] {
                assert_eq!(door.flush().await.map(drop), Err(IoError::Medium), "LOSSES1");
                assert!(door.flush().await.is_ok(), "once");
            }
        });
    }
}
