//! Files that are open to be read as images: what is committed into a backing image must not be one that something else reads.

use std::any::Any;
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use varve_block::host::MediumExtent;
use varve_volume::world::DiskRef;

/// An opening of a file, as long as a device is made of it or is to be.
type Opening = Weak<dyn Any + Send + Sync>;

/// Files that are open to be read as images, or as parts of them.
#[derive(Default)]
pub(crate) struct ReadFiles(RefCell<Vec<(MediumExtent, Opening)>>);

impl ReadFiles {
    /// One more is open.
    pub(crate) fn add(&self, file: &DiskRef) {
        let mut known = self.0.borrow_mut();
        known.retain(|(_, opening)| opening.strong_count() > 0);
        known.push((file.medium(), Arc::downgrade(&Arc::clone(file).into_any())));
    }

    /// How often bytes of `file` are open to be read, itself included.
    pub(crate) fn count(&self, file: &DiskRef) -> usize {
        let (known, medium) = (self.0.borrow(), file.medium());
        known.iter().filter(|(of, opening)| opening.strong_count() > 0 && of.overlaps(&medium)).count()
    }
}
