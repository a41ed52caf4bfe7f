//! The life of the daemon: when it began, and how it ends.

use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// From the start to the stop.
pub(crate) struct Life {
    /// In seconds since 1970; none before all that is remembered is served.
    pub(crate) started: Cell<Option<u64>>,
    pub(crate) stopping: Cell<bool>,
    /// Dropped, it ends the control: nothing reaches it any more.
    pub(crate) serving: RefCell<Option<oneshot::Sender<()>>>,
    /// Dropped, it ends the watch over the disks.
    pub(crate) watching: RefCell<Vec<oneshot::Sender<()>>>,
    /// How long a stop may take.
    pub(crate) stop_max: Duration,
    /// Why the exit status is to be that of a failure.
    pub(crate) faults: RefCell<Vec<String>>,
}

impl Life {
    pub(crate) fn new(serving: oneshot::Sender<()>, stop_max: Duration) -> Self {
        Self {
            started: Cell::new(None),
            stopping: Cell::new(false),
            serving: RefCell::new(Some(serving)),
            watching: RefCell::default(),
            stop_max,
            faults: RefCell::default(),
        }
    }
}
