//! What a disk of the simulated host answers once it is out of use, as a file of the real host does.

use super::files::SimOpenDisk;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Durability, Extent, Io, IoError, MapAnswer, MapFuture,
    MapIntent, Shape,
};
use varve_volume::world::OpenDisk;

thread_local! {
    /// A control: disks that are cut short answer still, with zeros.
    pub(super) static ANSWERS_CUT: Cell<bool> = const { Cell::new(false) };
}

/// A disk that is out of use once it has lost writes that others count on, or part of what it held, as a file of the real host is.
pub(super) struct Watched {
    pub(super) device: Device,
    pub(super) shape: Shape,
    pub(super) file: Arc<SimOpenDisk>,
}

impl BlockDevice for Watched {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        let is_counted_on = matches!(io, Io::Flush | Io::Write { durability: Durability::Durable, .. });
        let is_read = matches!(io, Io::Read { .. });
        if self.file.state().is_cut_off() && !ANSWERS_CUT.get() {
            return Completion::failed(IoError::Gone);
        }
        if !is_read && self.file.has_lost_writes.load(Ordering::Relaxed) {
            return Completion::failed(IoError::Medium);
        }
        let completion = self.device.submit(io);
        Completion::pending(async move {
            let outcome = completion.await;
            if outcome.is_err() {
                self.file.errors.fetch_add(1, Ordering::Relaxed);
                self.file.has_lost_writes.fetch_or(is_counted_on, Ordering::Relaxed);
            }
            match self.file.state().is_cut_off() {
                true if ANSWERS_CUT.get() => outcome.map(|mut read| {
                    read.fill(0);
                    read
                }),
                true => Err(IoError::Gone),
                false => outcome,
            }
        })
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::in_front(&self.device, extent, intent).ready()
    }
}
