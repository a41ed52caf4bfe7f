//! Volumes whose images give what they hold to the images below them, and what is read of images meanwhile.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use uuid::Uuid;
use varve_api::Failure;
use varve_block::host::MediumExtent;
use varve_vg::model::ImageFormat;
use varve_volume::world::DiskRef;

/// A backing image that is written because its overlay image is committed into it.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) path: String,
    pub(crate) format: ImageFormat,
}

/// The volumes, each with its base, or why that cannot be opened, as soon as it is known.
pub(crate) type Committing = RefCell<BTreeMap<Uuid, Option<Result<Base, Failure>>>>;

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
