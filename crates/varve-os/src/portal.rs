//! Requests to devices of other shards and threads: sent as letters, begun a few at a time, answered by a call.
//!
//! Invariant P1: in one turn of the shard at most [`VISITS_MAX`] such requests are begun, of at most [`VISIT_BYTES`] and one
//! request more; devices take turns. So a flood from another thread (a FUSE door's) leaves their turns to other tasks.

use crate::executor::{Letter, Mailbox, Queue};
use crate::shard::{Abroad, ShardContext};
use futures_channel::oneshot;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use varve_block::{
    BlockDevice, Buffer, Checked, Completion, Device, Done, Extent, Io, IoError, Outcome, Portal, Shape,
    StatusFuture, StatusRun, Submit,
};

/// Requests of others that are begun in one turn of the shard.
const VISITS_MAX: usize = 16;
/// Bytes of them.
const VISIT_BYTES: u64 = 256 << 10;

/// The devices that a shard has opened to others.
#[derive(Default)]
pub(crate) struct Doorway {
    devices: RefCell<Slab<Device>>,
    /// What has come and was not begun, by the keys of the devices; the device whose turn is next comes first.
    visits: RefCell<VecDeque<(usize, VecDeque<Visit>)>>,
}

/// A request that has come.
struct Visit {
    device: Device,
    io: Io,
    reply: Reply<Buffer>,
}

impl Doorway {
    /// Lets go of all devices; requests that were not begun, and those that come later, are answered `Gone`.
    pub(crate) fn close(&self) {
        let (devices, visits) = (self.devices.take(), self.visits.take());
        drop((devices, visits));
    }

    /// Whether requests have come that were not begun.
    pub(crate) fn has_visits(&self) -> bool {
        !self.visits.borrow().is_empty()
    }

    /// Begins the next requests (P1).
    pub(crate) fn begin_visits(&self, queue: &Rc<Queue>) {
        let mut bytes_left = VISIT_BYTES;
        for _ in 0..VISITS_MAX {
            let Some(Visit { device, io, reply }) = self.next_visit() else { return };
            let bytes = if matches!(io, Io::Read { .. } | Io::Write { .. }) { io.extent().length } else { 0 };
            queue.spawn(async move { reply.send(device.submit(io).await) });
            bytes_left = bytes_left.saturating_sub(bytes);
            if bytes_left == 0 {
                return;
            }
        }
    }

    fn add_visit(&self, key: usize, visit: Visit) {
        let mut visits = self.visits.borrow_mut();
        match visits.iter_mut().find(|(other, _)| *other == key) {
            Some((_, line)) => line.push_back(visit),
            None => visits.push_back((key, VecDeque::from([visit]))),
        }
    }

    fn next_visit(&self) -> Option<Visit> {
        let mut visits = self.visits.borrow_mut();
        let (key, mut line) = visits.pop_front()?;
        let visit = line.pop_front();
        if !line.is_empty() {
            visits.push_back((key, line));
        }
        visit
    }

    fn open(&self, device: Device) -> usize {
        self.devices.borrow_mut().insert(device)
    }

    fn device(&self, key: usize) -> Option<Device> {
        self.devices.borrow().get(key).cloned()
    }

    fn shut(&self, key: usize) {
        let device = self.devices.borrow_mut().try_remove(key);
        drop(device);
    }
}

/// The sending side.
struct Passage {
    mailbox: Arc<Mailbox>,
    key: usize,
}

/// Calls back exactly once: with the answer, or with `Gone` if it is dropped before there is one.
struct Reply<T: 'static>(Option<Done<Result<T, IoError>>>);

impl<T> Reply<T> {
    fn send(mut self, answer: Result<T, IoError>) {
        if let Some(done) = self.0.take() {
            done(answer);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(IoError::Gone));
        }
    }
}

impl Passage {
    fn send(&self, call: impl FnOnce(&ShardContext) + Send + 'static) {
        // A letter that comes back is dropped, and its reply says that the shard is gone.
        let _ = self.mailbox.send(Letter::Call(Box::new(call)));
    }
}

impl Submit for Passage {
    fn submit(&self, io: Io, done: Done<Outcome>) {
        let (key, reply) = (self.key, Reply(Some(done)));
        self.send(move |context| {
            let Some(device) = context.core.doorway.device(key) else {
                return reply.send(Err(IoError::Gone));
            };
            context.core.doorway.add_visit(key, Visit { device, io, reply });
        });
    }

    fn status(&self, extent: Extent, done: Done<Result<Vec<StatusRun>, IoError>>) {
        let (key, reply) = (self.key, Reply(Some(done)));
        self.send(move |context| {
            let Some(device) = context.core.doorway.device(key) else {
                return reply.send(Err(IoError::Gone));
            };
            context.core.queue.spawn(async move { reply.send(device.status(extent).await) });
        });
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let key = self.key;
        self.send(move |context| context.core.doorway.shut(key));
    }
}

/// A device of another shard.
struct Imported {
    portal: Portal,
    abroad: Rc<Cell<usize>>,
}

impl BlockDevice for Imported {
    fn shape(&self) -> Shape {
        self.portal.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let (sender, receiver) = oneshot::channel();
        self.portal.submit(io.into_io(), move |outcome| {
            let _ = sender.send(outcome);
        });
        let abroad = Abroad::enter(&self.abroad);
        Completion::pending(async move {
            let _abroad = abroad;
            receiver.await.unwrap_or(Err(IoError::Gone))
        })
    }

    fn status(&self, extent: Extent) -> StatusFuture<'_> {
        let (sender, receiver) = oneshot::channel();
        self.portal.status(extent, move |answer| {
            let _ = sender.send(answer);
        });
        let abroad = Abroad::enter(&self.abroad);
        Box::pin(async move {
            let _abroad = abroad;
            receiver.await.unwrap_or(Err(IoError::Gone))
        })
    }
}

impl ShardContext {
    /// Opens `device` to other shards, until the last clone of the portal is dropped.
    pub fn portal(&self, device: &Device) -> Portal {
        let key = self.core.doorway.open(device.clone());
        let mailbox = Arc::clone(&self.core.mailbox);
        Portal::new(device.shape(), Arc::new(Passage { mailbox, key }))
    }

    /// A device that forwards to another shard. Each request costs two hops between threads.
    pub fn import(&self, portal: &Portal) -> Device {
        Device::new(Imported { portal: portal.clone(), abroad: Rc::clone(&self.core.abroad) })
    }
}
