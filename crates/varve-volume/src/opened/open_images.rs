//! The images of a shard in which volumes lie, while they are open.
//!
//! Invariant IMAGE1: the image of a volume is open once, for writing; meanwhile no other program that asks for locks
//! has it open.

use crate::lifecycle::health::drop_quietly;
use crate::world::DiskRef;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;
use varve_block::host::DiskState;
use varve_block::{Device, IoError, Tracker, TrackerGuard};
use varve_target::qcow2;

/// The images of one shard in which volumes lie, by the ids of these.
#[derive(Default)]
pub(crate) struct Images {
    open: RefCell<BTreeMap<Uuid, OpenImage>>,
}

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
    fn own_files(&self) -> impl Iterator<Item = &DiskRef> {
        std::iter::once(&self.file).chain(&self.below)
    }

    fn failure(&self) -> Option<IoError> {
        let is_lost = self.own_files().any(|file| file.state() != DiskState::InUse);
        let lost = is_lost.then_some(IoError::Medium);
        let own = self.image.as_ref().and_then(|image| image.failure()).or(lost);
        own.or_else(|| self.lower.as_ref().and_then(|lower| lower.failure()))
    }
}

impl Images {
    /// The image of the volume `id` is open from now on.
    pub(crate) fn insert(&self, id: Uuid, open: OpenImage) {
        let replaced = self.open.borrow_mut().insert(id, open);
        assert!(replaced.is_none(), "IMAGE1: {id}");
    }

    /// The image of the volume `id`, which is open no more, if it was.
    pub(crate) fn take(&self, id: Uuid) -> Option<OpenImage> {
        self.open.borrow_mut().remove(&id)
    }

    /// The device of the image in which the volume `id` is, if it is open.
    pub(crate) fn device(&self, id: Uuid) -> Option<Device> {
        self.open.borrow().get(&id).map(|open| open.device.clone())
    }

    /// The qcow2 image of the volume `id`, if it is open; it stays open until the guard is dropped.
    pub(crate) fn enter(&self, id: Uuid) -> Option<(Rc<qcow2::Image>, TrackerGuard)> {
        let open = self.open.borrow();
        let open = open.get(&id)?;
        Some((Rc::clone(open.image.as_ref()?), open.work.enter()))
    }

    /// Why an image takes no changes any more, if so.
    pub(crate) fn failure(&self, id: Uuid) -> Option<IoError> {
        self.open.borrow().get(&id)?.failure()
    }

    /// The files of all open images and of those below, with the volumes that lie in them: that of the volume's own image comes first.
    pub(crate) fn files(&self) -> Vec<(Uuid, DiskRef)> {
        let open = self.open.borrow();
        let mut files = Vec::new();
        for (volume, image) in &*open {
            let layers = std::iter::successors(Some(image), |image| image.lower.as_deref());
            let own = layers.flat_map(OpenImage::own_files);
            files.extend(own.map(|file| (*volume, DiskRef::clone(file))));
        }
        files
    }

    /// Closes the image of a volume in which something has panicked: nothing of it is touched again.
    pub(crate) fn abandon(&self, id: Uuid) {
        drop_quietly(self.take(id));
    }
}
