//! A snapshot whose changes wait for its store to grow instead of failing for want of space. (Changes of the volume
//! need no such layer: their store does what the volume's policy says.)
//!
//! Invariant RETRY1: a change that fails with no space is tried again only after the store has grown.

use crate::opened::open_store::OpenStore;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Extent, Io, IoError, MapAnswer, MapFuture, MapIntent, Outcome,
    Shape,
};

/// `device`, which is a snapshot of `open`.
pub(crate) fn retry_on_no_space(device: Device, open: &Rc<OpenStore>) -> Device {
    Device::new(RetryOnNoSpace { device, open: Rc::clone(open) })
}

struct RetryOnNoSpace {
    device: Device,
    open: Rc<OpenStore>,
}

impl RetryOnNoSpace {
    async fn retry(&self, io: Io, mut seen: u64) -> Outcome {
        loop {
            if !self.open.grow(seen).await {
                return Err(self.open.store.refuse_for_space());
            }
            let size = self.open.store.usage().size;
            assert!(size > seen, "RETRY1: {seen} bytes were too few");
            seen = size;
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

impl BlockDevice for RetryOnNoSpace {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        if matches!(io, Io::Read { .. }) {
            return self.device.submit(io);
        }
        let (kept, seen) = (again(&io), self.open.store.usage().size);
        match self.device.submit(io) {
            Completion::Ready(Some(Err(IoError::NoSpace))) => Completion::pending(self.retry(kept, seen)),
            ready @ Completion::Ready(_) => ready,
            under_way => Completion::pending(async move {
                match under_way.await {
                    Err(IoError::NoSpace) => self.retry(kept, seen).await,
                    outcome => outcome,
                }
            }),
        }
    }

    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::through(&self.device, extent.offset, extent.length).ready()
    }
}
