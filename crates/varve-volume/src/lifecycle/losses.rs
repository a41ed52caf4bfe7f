//! Doors learn of writes that were lost below them.
//!
//! A volume that is opened anew, after a disk or something in it has failed, may have lost writes that were acknowledged
//! and not flushed. Their writer has been promised nothing yet, but counts on its next flush.
//!
//! Invariants:
//! - LOSSES1. After what served a volume was taken away without a last flush, the next flush of each of its doors fails, once.
//! - LOSSES2. A file keeps that when it is led to its volume anew: its new door has heard what a file has heard.

use crate::injected_bug::{InjectedBug, has};
use std::cell::Cell;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, Io, IoError, MapAnswer, MapFuture, MapIntent, Shape,
};

/// How often a volume may have lost writes. Cloning shares it.
#[derive(Clone, Default)]
pub(crate) struct Losses(Rc<Counts>);

#[derive(Default)]
struct Counts {
    losses: Cell<u64>,
    /// How many of them the last flush through a file has reported.
    heard_by_files: Cell<u64>,
}

impl Losses {
    /// Writes may have been lost.
    pub(crate) fn add(&self) {
        if has(InjectedBug::HideLoss) {
            return;
        }
        self.0.losses.set(self.0.losses.get() + 1);
    }

    /// `device` for one door: a new one hears of losses from now on (LOSSES1), that of a file from before (LOSSES2).
    pub(crate) fn door(&self, device: Device, of: DoorOf) -> Device {
        let heard = match of {
            DoorOf::Client | DoorOf::NewFile => self.0.losses.get(),
            DoorOf::SameFile => self.0.heard_by_files.get(),
        };
        Device::new(Door { device, losses: self.clone(), heard: Cell::new(heard), of })
    }
}

/// Whom a door is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorOf {
    /// A connection, or a mapper.
    Client,
    /// A file that is mounted.
    NewFile,
    /// A file that had a door before: its volume was opened anew, or has another size.
    SameFile,
}

struct Door {
    device: Device,
    losses: Losses,
    heard: Cell<u64>,
    of: DoorOf,
}

impl BlockDevice for Door {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        if matches!(io, Io::Flush) {
            let now = self.losses.0.losses.get();
            if self.of != DoorOf::Client {
                self.losses.0.heard_by_files.set(now);
            }
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
        let (one, other) =
            (losses.door(device.clone(), DoorOf::Client), losses.door(device.clone(), DoorOf::NewFile));
        world.run(async {
            losses.add();
            losses.add();
            let late = losses.door(device, DoorOf::Client);
            assert!(late.flush().await.is_ok(), "it had written nothing");
            for door in [one, other] {
                assert_eq!(door.flush().await.map(drop), Err(IoError::Medium), "LOSSES1");
                assert!(door.flush().await.is_ok(), "once");
            }
        });
    }

    #[test]
    fn a_file_that_is_led_to_its_volume_anew_hears_of_a_loss_before_that_and_once() {
        let (world, losses) = (World::new(1), Losses::default());
        let device = SimDisk::new(4096).device(&world);
        let first = losses.door(device.clone(), DoorOf::NewFile);
        world.run(async {
            assert!(first.flush().await.is_ok(), "nothing is lost");
            losses.add();
            let led_anew = losses.door(device.clone(), DoorOf::SameFile);
            assert_eq!(led_anew.flush().await.map(drop), Err(IoError::Medium), "LOSSES2");
            assert!(led_anew.flush().await.is_ok(), "once");
            let again = losses.door(device.clone(), DoorOf::SameFile);
            assert!(again.flush().await.is_ok(), "it has heard of that");
            losses.add();
            let new = losses.door(device, DoorOf::NewFile);
            assert!(new.flush().await.is_ok(), "it had written nothing");
        });
    }
}
