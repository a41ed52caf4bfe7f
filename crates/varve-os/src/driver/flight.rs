//! An operation under way: what the kernel or a helper works on, and what awaits the answer.

use crate::disks::lane::Lane;
use crate::disks::operation::{Answer, Operation};
use std::rc::Rc;
use std::task::Waker;

/// An operation under way.
pub(crate) struct Flight {
    /// Absent while a helper thread has it.
    pub(crate) operation: Option<Operation>,
    pub(crate) state: FlightState,
    /// That of its disk.
    pub(crate) lane: Option<Rc<Lane>>,
}

/// How far it is.
pub(crate) enum FlightState {
    Waiting(Option<Waker>),
    Finished(Answer),
    /// The answer is awaited no more (URING2 of `ring.rs`).
    Orphan,
}
