//! A device whose inside can be exchanged while it is in use: how a volume grows or gets its first snapshot.
//!
//! Invariants:
//! - SWITCH1. While suspended no request is inside, and no guard of its map answers is held; new requests wait at the gate in
//!   the order in which they came.
//! - SWITCH2. A request that waited while the device shrank below it is answered `Gone`, and reaches nothing.

use crate::device::{
    BlockDevice, Checked, Completion, Device, MapAnswer, MapFuture, MapGuard, MapIntent, MapPiece,
};
use crate::error::IoError;
use crate::io::Io;
use crate::shape::{Rejected, Shape};
use crate::tasks::gate::Gate;
use crate::tasks::tracker::TrackerGuard;
use crate::units::Extent;
use std::cell::RefCell;
use std::rc::Rc;

/// The exchangeable device. Its [`Device`] handles keep the shape they were made with; after a resize ask
/// [`Switch::device`] for a new one.
#[derive(Clone)]
pub struct Switch {
    inner: Rc<Inner>,
}

struct Inner {
    current: RefCell<Device>,
    gate: Gate,
}

impl Switch {
    /// A switch that leads to `device`.
    pub fn new(device: Device) -> Self {
        Self { inner: Rc::new(Inner { current: RefCell::new(device), gate: Gate::default() }) }
    }

    /// A handle with the present shape.
    pub fn device(&self) -> Device {
        Device::from_rc(Rc::new(self.clone()))
    }

    /// What the switch leads to now.
    pub fn current(&self) -> Device {
        self.inner.current.borrow().clone()
    }

    /// Number of requests inside.
    pub fn inside(&self) -> usize {
        self.inner.gate.inside()
    }

    /// Holds back new requests and waits until those inside are done. May be nested.
    pub async fn suspend(&self) -> Suspended {
        let suspended = Suspended { switch: self.clone(), _closed: self.inner.gate.close() };
        self.inner.gate.drained().await;
        suspended
    }

    fn forward(&self, io: Io, inside: TrackerGuard) -> Completion<'static> {
        let device = self.current();
        // SWITCH2: the request was checked against the shape of its handle, not of what is inside now.
        if device.shape().check(&io) == Err(Rejected::OutOfBounds) {
            return Completion::failed(IoError::Gone);
        }
        device.forward(io, || inside)
    }
}

/// The right to exchange the inside; on drop the requests that waited go on.
pub struct Suspended {
    switch: Switch,
    _closed: TrackerGuard,
}

impl Suspended {
    /// What the switch leads to now.
    pub fn current(&self) -> Device {
        self.switch.current()
    }

    /// Leads the switch to `device` from now on.
    pub fn replace(&self, device: Device) {
        assert_eq!(self.switch.inside(), 0, "SWITCH1");
        self.switch.inner.current.replace(device);
    }
}

impl BlockDevice for Switch {
    fn shape(&self) -> Shape {
        self.inner.current.borrow().shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        if let Some(inside) = self.inner.gate.try_enter() {
            return self.forward(io.into_io(), inside);
        }
        Completion::pending(async move {
            let inside = self.inner.gate.enter().await;
            self.forward(io.into_io(), inside).await
        })
    }

    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        Box::pin(async move {
            let inside = self.inner.gate.enter().await;
            let device = self.current();
            if !device.shape().extent().contains(extent) {
                return Err(IoError::Gone); // SWITCH2
            }
            let piece = MapPiece::on(&device, extent.offset, extent.length);
            Ok(MapAnswer::new(piece, MapGuard::holding(inside))) // SWITCH1: its holder is inside
        })
    }
}
