//! A device that keeps requests back on demand: a disk that hangs on some requests and serves all others.

use std::cell::Cell;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Checked, Completion, Device, Durability, Extent, Io, MapAnswer, MapFuture, MapIntent,
    Notify, Shape,
};

/// Which requests are kept back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// Reads.
    Reads,
    /// Writes that need not be durable when they are answered.
    VolatileWrites,
    /// Writes that are durable when they are answered.
    DurableWrites,
    /// All requests.
    All,
}

impl Holds {
    fn include(self, io: &Io) -> bool {
        match self {
            Holds::Reads => matches!(io, Io::Read { .. }),
            Holds::All => true,
            Holds::DurableWrites => matches!(io, Io::Write { durability: Durability::Durable, .. }),
            Holds::VolatileWrites => matches!(io, Io::Write { durability: Durability::Volatile, .. }),
        }
    }
}

/// Decides which requests to a device are kept back, and for how long. Cloning shares it.
#[derive(Clone)]
pub struct Holder {
    inner: Rc<Inner>,
}

struct Inner {
    device: Device,
    /// How many more are to be kept back, and which.
    wanted: Cell<(u32, Holds)>,
    held: Cell<u32>,
    /// What is kept back goes on in the next round.
    round: Cell<u64>,
    released: Notify,
}

impl Holder {
    /// `device` with a holder in front of it: to be used in its place.
    pub fn new(device: Device) -> (Holder, Device) {
        let inner = Rc::new(Inner {
            device,
            wanted: Cell::new((0, Holds::Reads)),
            held: Cell::new(0),
            round: Cell::new(0),
            released: Notify::default(),
        });
        (Holder { inner: Rc::clone(&inner) }, Device::new(InFront { inner }))
    }

    /// Keeps the next `count` requests of this kind back: they reach the device when they are released.
    pub fn hold_next(&self, count: u32, which: Holds) {
        self.inner.wanted.set((count, which));
    }

    /// How many requests are kept back now.
    pub fn held(&self) -> u32 {
        self.inner.held.get()
    }

    /// Lets all requests go on that are kept back, and keeps no more back.
    pub fn release(&self) {
        self.inner.wanted.set((0, Holds::Reads));
        self.inner.round.set(self.inner.round.get() + 1);
        self.inner.released.notify_all();
    }
}

impl Inner {
    /// Whether `io` is one of those that are to be kept back.
    fn takes(&self, io: &Io) -> bool {
        let (count, which) = self.wanted.get();
        let taken = count > 0 && which.include(io);
        if taken {
            self.wanted.set((count - 1, which));
            self.held.set(self.held.get() + 1);
        }
        taken
    }

    async fn released(&self, round: u64) {
        self.released.until(|| self.round.get() != round).await;
        self.held.set(self.held.get() - 1);
    }
}

struct InFront {
    inner: Rc<Inner>,
}

impl BlockDevice for InFront {
    fn shape(&self) -> Shape {
        self.inner.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let io = io.into_io();
        if !self.inner.takes(&io) {
            return self.inner.device.submit(io);
        }
        let round = self.inner.round.get();
        Completion::pending(async move {
            self.inner.released(round).await;
            self.inner.device.submit(io).await
        })
    }

    /// A caller that moved the bytes itself could not be held back.
    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::in_front(&self.inner.device, extent, intent).ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimDisk, World};
    use futures_util::FutureExt;
    use varve_block::KIB;

    #[test]
    fn what_is_held_reaches_the_disk_when_it_is_released_and_all_else_at_once() {
        let (world, disk) = (World::new(1), SimDisk::new(64 * KIB));
        let (holder, device) = Holder::new(disk.device(&world));
        let arena = world.arena();
        world.run(async {
            holder.hold_next(1, Holds::Reads);
            let mut first = device.read(0, arena.take(512));
            assert_eq!(holder.held(), 1);
            assert!((&mut first).now_or_never().is_none());
            device.write(0, arena.copy(&[7; 512]), Durability::Volatile).await.expect("no faults");
            assert_eq!(device.read(0, arena.take(512)).await.expect("not held")[0], 7);
            assert_eq!(disk.counters().reads, 1);
            holder.release();
            assert_eq!(first.await.expect("no faults")[0], 7, "it reads what is there when it arrives");
            assert_eq!(holder.held(), 0);
        });
    }
}
