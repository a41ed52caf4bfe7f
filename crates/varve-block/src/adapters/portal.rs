//! A device that lives on another thread, reached by sending requests as data.

use crate::error::IoError;
use crate::io::{Io, Outcome};
use crate::shape::{Shape, StatusRun};
use crate::units::Extent;
use std::sync::Arc;

/// Called once with the answer, on the device's thread; must not wait.
pub type Done<T> = Box<dyn FnOnce(T) + Send>;

/// The sending side of a channel to a shard on which a device lives. If the shard is gone, `done` gets
/// [`IoError::Gone`].
pub trait Submit: Send + Sync {
    /// Sends a request; it must have passed [`Portal::shape`]'s `check`.
    fn submit(&self, io: Io, done: Done<Outcome>);
    /// Asks which parts of `extent` hold data.
    fn status(&self, extent: Extent, done: Done<Result<Vec<StatusRun>, IoError>>);
}

/// A door onto a device of another thread.
#[derive(Clone)]
pub struct Portal {
    shape: Shape,
    submit: Arc<dyn Submit>,
}

impl Portal {
    /// Wraps a channel to a device of shape `shape`.
    pub fn new(shape: Shape, submit: Arc<dyn Submit>) -> Self {
        Self { shape, submit }
    }

    /// The device's shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Sends a request; `done` is called with the answer on the device's thread.
    pub fn submit(&self, io: Io, done: impl FnOnce(Outcome) + Send + 'static) {
        self.submit.submit(io, Box::new(done));
    }

    /// Asks which parts of `extent` hold data.
    pub fn status(
        &self,
        extent: Extent,
        done: impl FnOnce(Result<Vec<StatusRun>, IoError>) + Send + 'static,
    ) {
        self.submit.status(extent, Box::new(done));
    }
}
