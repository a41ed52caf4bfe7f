//! Files that are open to be read as images: what is committed into a backing image must not be one that something else reads. And
//! files of images that were cut short while they were in use.
//!
//! Invariant READFILES1: a file that was found cut short while it was read is not read as an image before it is as long as it was, as long
//! as the daemon lives: what lay beyond its end would read as zeros.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use varve_api::{Code, Failure};
use varve_block::host::MediumExtent;
use varve_vg::size::format_size;
use varve_volume::world::{DiskRef, Opening, opening_of};

/// Files that are open to be read as images, or as parts of them.
#[derive(Default)]
pub(crate) struct ReadFiles {
    open: RefCell<Vec<(MediumExtent, Opening)>>,
    /// The lengths, in bytes, that files had which were cut short.
    cut: RefCell<BTreeMap<PathBuf, u64>>,
}

impl ReadFiles {
    /// One more is open.
    pub(crate) fn add(&self, file: &DiskRef) {
        let mut known = self.open.borrow_mut();
        known.retain(|(_, opening)| opening.strong_count() > 0);
        known.push((file.medium(), opening_of(file)));
    }

    /// How often bytes of `file` are open to be read, itself included.
    pub(crate) fn count(&self, file: &DiskRef) -> usize {
        let (known, medium) = (self.open.borrow(), file.medium());
        known.iter().filter(|(of, opening)| opening.strong_count() > 0 && of.overlaps(&medium)).count()
    }

    /// `file` was found cut short, and had so many bytes. One that is written is as long as its image may become.
    pub(crate) fn note_cut(&self, file: &DiskRef, expected: u64) {
        if self.count(file) > 0 {
            self.cut.borrow_mut().insert(file.path().to_owned(), expected);
        }
    }

    /// Refuses a file that has been cut short and is not as long as it was (READFILES1).
    pub(crate) fn refuse_cut(&self, file: &DiskRef) -> Result<(), Failure> {
        let (path, found) = (file.path(), file.length());
        let Some(expected) = self.cut.borrow().get(path).copied() else { return Ok(()) };
        if found >= expected {
            self.cut.borrow_mut().remove(path);
            return Ok(());
        }
        let (expected, found) = (format_size(expected), format_size(found));
        let message = format!(
            "{} was cut short while it was in use: it had {expected} and has {found}",
            path.display()
        );
        Err(Failure::new(Code::VolumeUnusable, message).help(format!(
            "give {} its content back, then varve pv scan; a daemon that starts anew takes it as it is",
            path.display()
        )))
    }
}
