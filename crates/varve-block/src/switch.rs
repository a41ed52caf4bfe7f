//! A device whose inside can be exchanged while it is in use: how a volume grows or gets its first snapshot.
//!
//! Invariants:
//! - SWITCH1. While suspended no request is inside; new ones wait at the gate in the order in which they came.
//! - SWITCH2. A request that waited while the device shrank below it is answered `Gone`, and reaches nothing.

use crate::device::{BlockDevice, Checked, Completion, Device, Rejected, Shape, StatusFuture};
use crate::error::IoError;
use crate::inside::{Inside, RequestCount};
use crate::io::Io;
use crate::units::Extent;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The exchangeable device. Its [`Device`] handles keep the shape they were made with; after a resize ask
/// [`Switch::device`] for a new one.
#[derive(Clone)]
pub struct Switch {
    inner: Rc<Inner>,
}

struct Inner {
    current: RefCell<Device>,
    inside: RequestCount,
    suspended: Cell<usize>,
    gate: RefCell<Vec<Waker>>,
}

impl Switch {
    /// A switch that leads to `device`.
    pub fn new(device: Device) -> Self {
        let inner = Inner {
            current: RefCell::new(device),
            inside: RequestCount::default(),
            suspended: Cell::new(0),
            gate: RefCell::default(),
        };
        Self { inner: Rc::new(inner) }
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
        self.inner.inside.get()
    }

    /// Holds back new requests and waits until those inside are done. May be nested.
    pub async fn suspend(&self) -> Suspended {
        self.inner.suspended.set(self.inner.suspended.get() + 1);
        let suspended = Suspended { switch: self.clone() };
        self.inner.inside.empty().await;
        suspended
    }

    async fn enter(&self) -> Inside {
        std::future::poll_fn(|context| {
            if self.inner.suspended.get() == 0 {
                return Poll::Ready(());
            }
            self.inner.gate.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.inner.inside.enter()
    }

    fn forward(&self, io: Io, inside: Inside) -> Completion<'static> {
        let device = self.current();
        // SWITCH2: the request was checked against the shape of its handle, not of what is inside now.
        if device.shape().check(&io) == Err(Rejected::OutOfBounds) {
            return Completion::failed(IoError::Gone);
        }
        device.forward(io, inside)
    }
}

/// The right to exchange the inside; on drop the requests that waited go on.
pub struct Suspended {
    switch: Switch,
}

impl Suspended {
    /// Leads the switch to `device` from now on.
    pub fn replace(&self, device: Device) {
        assert_eq!(self.switch.inside(), 0, "SWITCH1");
        self.switch.inner.current.replace(device);
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let inner = &self.switch.inner;
        inner.suspended.set(inner.suspended.get() - 1);
        if inner.suspended.get() == 0 {
            inner.gate.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl BlockDevice for Switch {
    fn shape(&self) -> Shape {
        self.inner.current.borrow().shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        if self.inner.suspended.get() == 0 {
            return self.forward(io.into_io(), self.inner.inside.enter());
        }
        Completion::pending(async move {
            let inside = self.enter().await;
            self.forward(io.into_io(), inside).await
        })
    }

    fn status(&self, extent: Extent) -> StatusFuture<'_> {
        Box::pin(async move {
            let _inside = self.enter().await;
            let device = self.current();
            if !device.shape().extent().contains(extent) {
                return Err(IoError::Gone);
            }
            device.status(extent).await
        })
    }
}
