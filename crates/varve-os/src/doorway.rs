//! The devices that a shard has opened to others, and the requests that have come to them: begun a few at a time.
//!
//! Invariant DOORWAY1: in one turn of the shard at most [`VISITS_MAX`] such requests are begun, of at most [`VISIT_BYTES`] and one
//! request more; devices take turns. So a flood from another thread (a FUSE door's) leaves their turns to other tasks.

use crate::executor::Queue;
use slab::Slab;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use varve_block::{Buffer, Device, Done, Io, IoError};

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
pub(crate) struct Visit {
    pub(crate) device: Device,
    pub(crate) io: Io,
    pub(crate) reply: Reply<Buffer>,
}

impl Doorway {
    /// Releases all devices; requests that were not begun, and those that come later, are answered `Gone`.
    pub(crate) fn close(&self) {
        let (devices, visits) = (self.devices.take(), self.visits.take());
        drop((devices, visits));
    }

    /// Whether requests have come that were not begun.
    pub(crate) fn has_visits(&self) -> bool {
        !self.visits.borrow().is_empty()
    }

    /// Begins the next requests (DOORWAY1).
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

    /// Puts a request to the device `key` in line.
    pub(crate) fn add_visit(&self, key: usize, visit: Visit) {
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

    /// Opens a device to others, under a key.
    pub(crate) fn open(&self, device: Device) -> usize {
        self.devices.borrow_mut().insert(device)
    }

    /// The device that was opened under `key`.
    pub(crate) fn device(&self, key: usize) -> Option<Device> {
        self.devices.borrow().get(key).cloned()
    }

    /// Opens it no more.
    pub(crate) fn shut(&self, key: usize) {
        let device = self.devices.borrow_mut().try_remove(key);
        drop(device);
    }
}

/// Calls back exactly once: with the answer, or with `Gone` if it is dropped before there is one.
pub(crate) struct Reply<T: 'static>(Option<Done<Result<T, IoError>>>);

impl<T> Reply<T> {
    pub(crate) fn new(done: Done<Result<T, IoError>>) -> Self {
        Self(Some(done))
    }

    pub(crate) fn send(mut self, answer: Result<T, IoError>) {
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
