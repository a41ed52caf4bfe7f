//! What is counted of an array while it is open.

use std::cell::Cell;

/// What was counted of an array since it was opened.
#[derive(Default)]
pub(super) struct Counters {
    /// Requests to regions whose content cannot be known.
    pub(super) refused: Cell<u64>,
    /// Reads whose parity did not fit.
    pub(super) mismatches: Cell<u64>,
}
