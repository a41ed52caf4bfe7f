//! A disk whose metadata is read and written with a limit of time: one that hangs holds up no change of its group.
//!
//! Invariants:
//! - LIMIT1. A request is answered after [`LIMIT`] and a little at the latest, with [`IoError::Gone`] if the disk has not answered it.
//! - LIMIT2. A request that was answered so is still under way, and may reach the disk late: until it has ended, nothing else is submitted
//!   to the disk here. So it never goes over a text or label that is newer.
//! - LIMIT3. A request runs to its end, whether its caller still waits or not.

use futures_channel::oneshot;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;
use varve_block::{
    BlockDevice, Checked, Clock, Completion, Device, Extent, IoError, MapAnswer, MapFuture, MapIntent,
    Outcome, Shape, Spawner, Tracker,
};
use varve_volume::world::{DiskRef, OpenDisk};

/// How long a request for metadata may take: less than an array waits for a member (30 s), since all changes of the group wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// The limit is waited for in parts, so that a host that stood still sees one of them go by.
const PARTS: u32 = 4;

/// The requests for metadata of one open disk.
struct Requests {
    /// Those that were answered before they ended.
    overdue: Cell<u32>,
    under_way: Tracker,
    tell: Box<dyn Fn(bool)>,
}

impl Requests {
    fn new(tell: impl Fn(bool) + 'static) -> Rc<Self> {
        Rc::new(Self { overdue: Cell::new(0), under_way: Tracker::default(), tell: Box::new(tell) })
    }

    fn is_overdue(&self) -> bool {
        self.overdue.get() > 0
    }

    fn count(&self, overdue: u32) {
        let before = self.overdue.replace(overdue);
        if (before > 0) != (overdue > 0) {
            (self.tell)(overdue > 0);
        }
    }
}

/// An open disk and its requests.
type OfDisk = (Weak<dyn OpenDisk>, Rc<Requests>);

/// The requests of all disks that are open.
#[derive(Default)]
pub(crate) struct Limits(RefCell<Vec<OfDisk>>);

impl Limits {
    fn find(&self, file: &DiskRef) -> Option<Rc<Requests>> {
        let known = self.0.borrow();
        let file = Arc::downgrade(file);
        known.iter().find(|(known, _)| known.ptr_eq(&file)).map(|(_, requests)| Rc::clone(requests))
    }

    /// `device`, which is on `file`, with the limit; `tell` hears when the first of its requests is overdue (`true`), and when all
    /// have ended.
    pub(crate) fn put_on(
        &self,
        file: &DiskRef,
        device: Device,
        (clock, spawner): (Clock, Spawner),
        tell: impl Fn(bool) + 'static,
    ) -> Device {
        let requests = self.find(file).unwrap_or_else(|| {
            let requests = Requests::new(tell);
            let mut known = self.0.borrow_mut();
            known.retain(|(file, _)| file.strong_count() > 0);
            known.push((Arc::downgrade(file), Rc::clone(&requests)));
            requests
        });
        Device::new(Limited { device, requests, clock, spawner })
    }

    /// The disks that are open.
    pub(crate) fn open_disks(&self) -> Vec<DiskRef> {
        self.0.borrow().iter().filter_map(|(file, _)| file.upgrade()).collect()
    }

    /// Whether a request for metadata of this disk is overdue.
    pub(crate) fn is_overdue(&self, file: &DiskRef) -> bool {
        self.find(file).is_some_and(|requests| requests.is_overdue())
    }
}

struct Limited {
    device: Device,
    requests: Rc<Requests>,
    clock: Clock,
    spawner: Spawner,
}

impl BlockDevice for Limited {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        if self.requests.is_overdue() {
            return Completion::failed(IoError::Gone); // LIMIT2
        }
        let request = match self.device.forward(io.into_io(), || self.requests.under_way.enter()) {
            ready @ Completion::Ready(_) => return ready,
            request => request,
        };
        let (sender, answer) = oneshot::channel();
        let is_overdue = Rc::new(Cell::new(false));
        let (requests, is_late) = (Rc::clone(&self.requests), Rc::clone(&is_overdue));
        self.spawner.spawn(async move {
            let outcome = request.await; // LIMIT3
            if is_late.get() {
                requests.count(requests.overdue.get() - 1);
            }
            let _ = sender.send(outcome);
        });
        Completion::pending(limited(answer, self.clock.clone(), Rc::clone(&self.requests), is_overdue))
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        MapAnswer::in_front(&self.device, extent, intent).ready()
    }
}

/// Waits for an answer for [`LIMIT`] at most (LIMIT1).
async fn limited(
    mut answer: oneshot::Receiver<Outcome>,
    clock: Clock,
    requests: Rc<Requests>,
    is_overdue: Rc<Cell<bool>>,
) -> Outcome {
    for _ in 0..PARTS {
        if let Either::Left((outcome, _)) = select(&mut answer, clock.sleep(LIMIT / PARTS)).await {
            return outcome.unwrap_or(Err(IoError::Gone));
        }
    }
    // What has ended just now is not overdue.
    if let Ok(Some(outcome)) = answer.try_recv() {
        return outcome;
    }
    assert!(!is_overdue.replace(true), "LIMIT2: a request is counted once");
    requests.count(requests.overdue.get() + 1);
    Err(IoError::Gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_block::{Durability, KIB};
    use varve_sim::{Holder, Holds, SimDisk, World};

    #[test]
    fn a_late_request_is_answered_in_time_and_keeps_others_away_until_it_has_ended() {
        let (world, disk) = (World::new(1), SimDisk::new(64 * KIB));
        let (holder, device) = Holder::new(disk.device(&world));
        let (arena, clock, spawner) = (world.arena(), world.clock(), world.spawner());
        let told = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&told);
        let requests = Requests::new(move |is_overdue| log.borrow_mut().push(is_overdue));
        let limited = Limited { device, requests, clock: clock.clone(), spawner };
        let limited = Device::new(limited);
        world.run(async {
            let write = |byte| limited.write(0, arena.copy(&[byte; 512]), Durability::Volatile);
            holder.hold_next(1, Holds::VolatileWrites);
            let begun = clock.now();
            assert_eq!(write(1).await.map(drop), Err(IoError::Gone), "LIMIT1");
            assert!(clock.now().since(begun) < LIMIT * 2, "LIMIT1");
            assert_eq!(write(2).await.map(drop), Err(IoError::Gone), "LIMIT2");
            assert_eq!(disk.counters().writes, 0, "LIMIT2: nothing overtakes it");
            holder.release();
            clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(disk.counters().writes, 1, "LIMIT3");
            write(3).await.expect("the late one has ended");
            assert_eq!(limited.read(0, arena.take(512)).await.expect("it answers")[0], 3);
            assert_eq!(*told.borrow(), [true, false]);
            holder.hold_next(1, Holds::VolatileWrites);
            drop(write(4));
            holder.release();
            clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(limited.read(0, arena.take(512)).await.expect("it answers")[0], 4, "LIMIT3");
        });
    }
}
