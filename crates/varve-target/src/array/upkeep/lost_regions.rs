//! What an array knows of its lost regions as a whole.

use std::cell::Cell;

/// What is known of an array's lost regions.
pub(in crate::array) struct Lost {
    /// Whether pages of checksums are as new as the last flush (ARRAYLOST1).
    pages_current: Cell<bool>,
    /// Regions before this one were verified: those of them that are lost have blocks that do not match their checksums.
    pub(in crate::array) verified: Cell<u64>,
}

impl Lost {
    pub(in crate::array) fn new(pages_current: bool) -> Self {
        Self { pages_current: Cell::new(pages_current), verified: Cell::new(0) }
    }

    /// Whether pages of checksums say what was flushed in lost regions.
    pub(in crate::array) fn are_pages_current(&self) -> bool {
        self.pages_current.get()
    }

    /// Regions have become larger: what was verified are others.
    pub(in crate::array) fn verify_anew(&self) {
        self.verified.set(0);
    }

    /// All data members are in sync: what they hold in lost regions counts, and is changed from now on.
    pub(in crate::array) fn end(&self) {
        self.pages_current.set(false);
    }
}
