//! The device: two verbs and a question on the implementor's side, one checked door on the caller's.
//!
//! Contract, asserted by [`Device::submit`] for every layer:
//! - DEVICE1. A request is inside the device.
//! - DEVICE2. A request's ends are multiples of the device's block size.
//! - DEVICE3. A change is submitted only to a device that may be written; else it is answered `ReadOnly`.
//! - DEVICE4. A request of no bytes, other than a flush, is answered at once.
//! - DEVICE5. A read's outcome is the buffer that was given, filled, or another one as long; every other outcome is empty.
//!
//! And of what a device that forwards requests, such as [`crate::Switch`], relies on:
//! - DEVICE6. A forwarded request is dropped before the device that carries it out is, and counted until then.
//!
//! DEVICE6 is known to us and not to the compiler; `docs/decisions/0081-forwarding-without-allocation.md` says why this file has
//! `unsafe` code.

#![allow(unsafe_code)]

use crate::buffer::{Buffer, Bytes};
use crate::clock::LocalFuture;
use crate::error::IoError;
use crate::io::{Durability, Io, Outcome, ZeroOptions};
use crate::shape::{Allocation, Rejected, Shape};
use crate::tasks::tracker::TrackerGuard;
use crate::units::Extent;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// What the caller of [`BlockDevice::map`] is about to do with the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapIntent {
    /// To know what is where: whether there are holes is asked of the leaves, too.
    Inspect,
    /// To read them.
    Read,
    /// To overwrite them in place. Bytes that are not shared lead on; a request must be sent for the rest.
    Overwrite,
}

/// Where a run of bytes is.
#[derive(Clone)]
pub enum Location {
    /// On another device, from `offset` on.
    On {
        /// That device.
        device: Device,
        /// The first byte there.
        offset: u64,
    },
    /// Nowhere: they are zeros.
    Zeros,
    /// Where the device that was asked puts them: a request must be sent to it.
    Sent,
}

/// A run of bytes and where it is.
#[derive(Clone)]
pub struct MapPiece {
    /// Bytes.
    pub length: u64,
    /// Where they lie.
    pub location: Location,
    /// What they hold; none where only the device that they lie on could tell.
    pub holds: Option<Allocation>,
}

/// Keeps an answer true while it is held (MAP2).
#[derive(Default)]
pub struct MapGuard(pub(crate) Vec<Box<dyn Any>>);

/// Where the beginning of a range is, and what keeps it there.
#[derive(Default)]
pub struct MapAnswer {
    /// Runs in order (MAP1).
    pub pieces: Vec<MapPiece>,
    /// To be held as long as the pieces are used (MAP2).
    pub guard: MapGuard,
}

/// The answer to a question where bytes lie.
pub type MapFuture<'a> = LocalFuture<'a, Result<MapAnswer, IoError>>;

/// The implementor's side of a device.
pub trait BlockDevice {
    /// Constant for the device's life; a resize builds a new tree and swaps it.
    fn shape(&self) -> Shape;

    /// Carries out one request. A request that was submitted runs to its end; the future may be dropped only
    /// when the world that runs it ends.
    fn submit(&self, io: Checked) -> Completion<'_>;

    /// Where the beginning of `extent`, some bytes of the device, is, by the contract in `map.rs`. A device that cannot tell wants
    /// a request.
    fn map(&self, extent: Extent, _intent: MapIntent) -> MapFuture<'_> {
        let piece = MapPiece { length: extent.length, location: Location::Sent, holds: None };
        let answer = MapAnswer { pieces: vec![piece], guard: MapGuard::default() };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// A request that went through the door: DEVICE1 to DEVICE4 hold for it.
#[derive(Debug)]
pub struct Checked(Io);

impl Checked {
    /// The request.
    pub fn into_io(self) -> Io {
        self.0
    }
    /// The request, to look at.
    pub fn io(&self) -> &Io {
        &self.0
    }
    /// The bytes that it touches.
    pub fn extent(&self) -> Extent {
        self.0.extent()
    }
}

/// An answer that is there already, or a future of it. A remap returns its child's and allocates nothing.
pub enum Completion<'a> {
    /// Done without waiting; `None` once taken.
    Ready(Option<Outcome>),
    /// Under way.
    Pending(LocalFuture<'a, Outcome>),
    /// Under way on a device that may have been replaced since.
    Forwarded(Forwarded),
}

impl<'a> Completion<'a> {
    /// A finished request.
    pub fn ready(outcome: Outcome) -> Self {
        Completion::Ready(Some(outcome))
    }
    /// A finished request that succeeded and carries no data.
    pub fn done() -> Self {
        Completion::ready(Ok(Buffer::empty()))
    }
    /// A finished request that failed.
    pub fn failed(error: IoError) -> Self {
        Completion::ready(Err(error))
    }
    /// A request under way.
    pub fn pending(future: impl Future<Output = Outcome> + 'a) -> Self {
        Completion::Pending(Box::pin(future))
    }
    /// This request, with `kept` held until it is done.
    pub fn keeping<T: 'a>(self, kept: T) -> Self {
        match self {
            ready @ Completion::Ready(_) => ready,
            under_way => Completion::pending(async move {
                let _kept = kept;
                under_way.await
            }),
        }
    }
    /// The answer as a future of no particular kind.
    pub fn boxed(self) -> LocalFuture<'a, Outcome> {
        match self {
            Completion::Pending(future) => future,
            other => Box::pin(other),
        }
    }
}

impl Future for Completion<'_> {
    type Output = Outcome;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match self.get_mut() {
            Completion::Ready(outcome) => {
                Poll::Ready(outcome.take().expect("a completion is polled to its end once"))
            }
            Completion::Pending(future) => future.as_mut().poll(context),
            Completion::Forwarded(forwarded) => forwarded.poll(context),
        }
    }
}

/// A request under way, and the device that carries it out; nothing once it is done.
pub struct Forwarded(Option<Held>);

/// DEVICE6: the fields are dropped in this order.
struct Held {
    request: LocalFuture<'static, Outcome>,
    _device: Rc<dyn BlockDevice>,
    _inside: TrackerGuard,
}

impl Forwarded {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let held = self.0.as_mut().expect("a completion is polled to its end once");
        let outcome = held.request.as_mut().poll(context);
        if outcome.is_ready() {
            self.0 = None;
        }
        outcome
    }
}

/// The caller's side of a device: asserts the contract once, traces once, forwards.
#[derive(Clone)]
pub struct Device {
    inner: Rc<dyn BlockDevice>,
    shape: Shape,
}

impl Device {
    /// A handle to `inner`.
    pub fn new(inner: impl BlockDevice + 'static) -> Self {
        Self::from_rc(Rc::new(inner))
    }

    /// A handle to `inner`, which its maker keeps a hold of too.
    pub fn from_rc(inner: Rc<dyn BlockDevice>) -> Self {
        let shape = inner.shape();
        assert!(shape.block_size.is_power_of_two() && shape.size.is_multiple_of(u64::from(shape.block_size)));
        Self { inner, shape }
    }

    /// What the device is like.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether both are handles to one and the same device.
    pub fn is_same(&self, other: &Device) -> bool {
        std::ptr::addr_eq(Rc::as_ptr(&self.inner), Rc::as_ptr(&other.inner))
    }

    /// Submits one request.
    pub fn submit(&self, io: Io) -> Completion<'_> {
        match self.check(io) {
            Ok(checked) => self.inner.submit(checked),
            Err(answered) => answered,
        }
    }

    /// Submits one request; one that is under way keeps the device, and the place that `enter` gives it, until it is done.
    /// Allocates nothing itself.
    pub fn forward(&self, io: Io, enter: impl FnOnce() -> TrackerGuard) -> Completion<'static> {
        let checked = match self.check(io) {
            Ok(checked) => checked,
            Err(answered) => return answered,
        };
        // SAFETY: DEVICE6. The request, the only thing that may keep this reference, is dropped before the count of
        // `self.inner` beside it, which keeps what the reference leads to alive and in its place; until there is a request
        // `self` does. `submit` works for a reference of any lifetime, so no implementor can rely on this one.
        let device: &'static dyn BlockDevice = unsafe { &*Rc::as_ptr(&self.inner) };
        match device.submit(checked) {
            ready @ Completion::Ready(_) => ready,
            under_way => {
                let request = under_way.boxed();
                let held = Held { request, _device: Rc::clone(&self.inner), _inside: enter() };
                Completion::Forwarded(Forwarded(Some(held)))
            }
        }
    }

    /// The only place where a [`Checked`] is made; else the answer.
    fn check(&self, io: Io) -> Result<Checked, Completion<'static>> {
        match self.shape.check(&io) {
            Ok(()) => {}
            Err(Rejected::ReadOnly) => return Err(Completion::failed(IoError::ReadOnly)),
            Err(rejected) => {
                panic!("contract: {rejected:?}: {} of {:?} on {:?}", io.verb(), io.extent(), self.shape)
            }
        }
        if io.extent().is_empty() && !matches!(io, Io::Flush) {
            return Err(Completion::done());
        }
        tracing::trace!(target: "varve::io", verb = io.verb(), extent = ?io.extent());
        Ok(Checked(io))
    }

    /// Reads into `buffer`, all of it, from `offset` on.
    pub fn read(&self, offset: u64, buffer: Buffer) -> Completion<'_> {
        self.submit(Io::Read { offset, buffer })
    }

    /// Writes all of `data` at `offset`.
    pub fn write(&self, offset: u64, data: Bytes, durability: Durability) -> Completion<'_> {
        self.submit(Io::Write { offset, data, durability })
    }

    /// Makes `extent` read as zeros.
    pub fn zero(&self, extent: Extent, options: ZeroOptions) -> Completion<'_> {
        self.submit(Io::Zero { extent, options })
    }

    /// Discards the content of `extent`.
    pub fn discard(&self, extent: Extent) -> Completion<'_> {
        self.submit(Io::Discard { extent })
    }

    /// Makes every acknowledged write durable.
    pub fn flush(&self) -> Completion<'_> {
        self.submit(Io::Flush)
    }

    /// The implementor's answer (`map.rs`).
    pub(crate) fn ask(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        self.inner.map(extent, intent)
    }
}
