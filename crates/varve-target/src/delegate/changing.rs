//! Ranges of which no answer is kept: where they lie is about to change.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use varve_block::Extent;

/// The ranges. Cloning shares them.
#[derive(Clone, Default)]
pub(super) struct Changing(Rc<RefCell<Vec<Entry>>>);

struct Entry {
    extent: Extent,
    is_invalid: Rc<Cell<bool>>,
}

/// One of them, until it is dropped.
pub(super) struct ChangingRange {
    all: Changing,
    is_invalid: Rc<Cell<bool>>,
}

impl Changing {
    pub(super) fn add(&self, extent: Extent) -> ChangingRange {
        let is_invalid = Rc::new(Cell::new(false));
        self.0.borrow_mut().push(Entry { extent, is_invalid: Rc::clone(&is_invalid) });
        ChangingRange { all: self.clone(), is_invalid }
    }

    /// Whether the byte at `at` is in one.
    pub(super) fn has(&self, at: u64) -> bool {
        self.0.borrow().iter().any(|entry| entry.extent.contains(Extent::new(at, 1)))
    }

    /// What of `extent` is in none.
    pub(super) fn unchanging(&self, extent: Extent) -> Vec<Extent> {
        let mut ranges: Vec<Extent> = self.0.borrow().iter().map(|entry| entry.extent).collect();
        ranges.sort_unstable();
        extent.without(&ranges)
    }

    /// What was to be known of ranges that overlap `extent` will not be.
    pub(super) fn invalidate(&self, extent: Extent) {
        let ranges = self.0.borrow();
        ranges
            .iter()
            .filter(|entry| entry.extent.overlaps(extent))
            .for_each(|entry| entry.is_invalid.set(true));
    }
}

impl ChangingRange {
    /// Where the range is may be kept from now on, unless it was invalidated since it was added.
    pub(super) fn end(self) -> bool {
        !self.is_invalid.get()
    }
}

impl Drop for ChangingRange {
    fn drop(&mut self) {
        let mut ranges = self.all.0.borrow_mut();
        let at = ranges.iter().position(|entry| Rc::ptr_eq(&entry.is_invalid, &self.is_invalid));
        ranges.swap_remove(at.expect("it was put there"));
    }
}
