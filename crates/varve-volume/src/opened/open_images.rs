//! The image in which a volume is, while it is open.
//!
//! Invariant IMAGE1: the image of a volume is open once, for writing; meanwhile no other program that asks for locks
//! has it open.

use crate::world::DiskRef;
use std::rc::Rc;
use varve_block::host::DiskState;
use varve_block::{Device, IoError, Tracker};
use varve_target::qcow2;

/// An image in which a volume is, or one directly below it that is written.
pub(crate) struct OpenImage {
    pub(crate) file: DiskRef,
    /// None of a raw image.
    pub(crate) image: Option<Rc<qcow2::Image>>,
    pub(crate) device: Device,
    /// The files of the images below that are only read.
    pub(crate) below: Vec<DiskRef>,
    /// The image directly below, if that is written too.
    pub(crate) lower: Option<Box<OpenImage>>,
    /// Work on the image past its volume.
    pub(crate) work: Tracker,
}

impl OpenImage {
    /// Its file, and those below that are only read.
    pub(super) fn own_files(&self) -> impl Iterator<Item = &DiskRef> {
        std::iter::once(&self.file).chain(&self.below)
    }

    pub(super) fn failure(&self) -> Option<IoError> {
        let is_lost = self.own_files().any(|file| file.state() != DiskState::InUse);
        let lost = is_lost.then_some(IoError::Medium);
        let own = self.image.as_ref().and_then(|image| image.failure()).or(lost);
        own.or_else(|| self.lower.as_ref().and_then(|lower| lower.failure()))
    }
}
