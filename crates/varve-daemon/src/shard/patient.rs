//! A device over a snapshot store whose changes wait for the store to grow instead of failing for want of space.
//!
//! Invariant W1: a change that fails with no space is tried again only after the store has grown.

use super::grower::Grower;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, Io, IoError, Outcome, Shape, StatusFuture,
};
use varve_target::snapshot::SnapshotStore;

/// `device`, which is the origin or a snapshot of `store`.
pub(super) fn patient(device: Device, store: &Rc<SnapshotStore>, grower: &Grower) -> Device {
    Device::new(Patient { device, store: Rc::clone(store), grower: grower.clone() })
}

struct Patient {
    device: Device,
    store: Rc<SnapshotStore>,
    grower: Grower,
}

impl Patient {
    async fn retry(&self, io: Io, mut seen: u64) -> Outcome {
        loop {
            if !self.grower.grow(&self.store, seen).await {
                return Err(IoError::NoSpace); // W1
            }
            seen = self.store.usage().size;
            match self.device.submit(again(&io)).await {
                Err(IoError::NoSpace) => {}
                outcome => return outcome,
            }
        }
    }
}

/// The same change once more; its data is shared, not copied.
fn again(io: &Io) -> Io {
    match io {
        Io::Write { offset, data, durability } => {
            Io::Write { offset: *offset, data: data.clone(), durability: *durability }
        }
        Io::Zero { extent, options } => Io::Zero { extent: *extent, options: *options },
        Io::Discard { extent } => Io::Discard { extent: *extent },
        Io::Flush | Io::Read { .. } => Io::Flush,
    }
}

impl BlockDevice for Patient {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        if matches!(io, Io::Read { .. }) {
            return self.device.submit(io);
        }
        let (kept, seen) = (again(&io), self.store.usage().size);
        match self.device.submit(io) {
            Completion::Ready(Some(Err(IoError::NoSpace))) => Completion::pending(self.retry(kept, seen)),
            ready @ Completion::Ready(_) => ready,
            Completion::Pending(future) => Completion::pending(async move {
                match future.await {
                    Err(IoError::NoSpace) => self.retry(kept, seen).await,
                    outcome => outcome,
                }
            }),
        }
    }

    fn status(&self, extent: Extent) -> StatusFuture<'_> {
        self.device.status(extent)
    }
}
