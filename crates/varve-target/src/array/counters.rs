//! What is counted of an array while it is open.

use std::cell::Cell;

/// What was counted of an array since it was opened.
#[derive(Default)]
pub(super) struct Counters {
    /// Requests to regions whose content cannot be known.
    pub(super) refused: Cell<u64>,
    /// Reads and blocks that were scrubbed whose members did not fit each other.
    pub(super) mismatches: Cell<u64>,
    /// Requests that have come.
    pub(super) requests: Cell<u64>,
}
