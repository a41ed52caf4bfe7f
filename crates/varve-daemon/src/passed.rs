//! Descriptors that an earlier process has passed here, until what they belong to is opened.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use varve_block::host::FileIdentity;
use varve_os::disk_identity;
use varve_volume::world::Place;

/// They, each taken once.
#[derive(Default)]
pub(crate) struct PassedDescriptors {
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    disks: BTreeMap<FileIdentity, OwnedFd>,
    /// By the addresses of exports.
    listeners: BTreeMap<String, OwnedFd>,
}

impl PassedDescriptors {
    /// Holds these disks and listening sockets.
    pub(crate) fn new(
        disks: impl IntoIterator<Item = OwnedFd>,
        listeners: impl IntoIterator<Item = (String, OwnedFd)>,
    ) -> Self {
        let identified = disks.into_iter().filter_map(|disk| {
            let file = std::fs::File::from(disk);
            let identity = disk_identity(&file.metadata().ok()?);
            Some((identity, file.into()))
        });
        let all = All { disks: identified.collect(), listeners: listeners.into_iter().collect() };
        Self { all: Mutex::new(all) }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk at `path`; may wait for the file system.
    pub(crate) fn disk(&self, path: &Path) -> Option<OwnedFd> {
        if self.all().disks.is_empty() {
            return None;
        }
        let found = std::fs::metadata(path).ok()?;
        self.all().disks.remove(&disk_identity(&found))
    }

    /// The socket that listens at `place`.
    pub(crate) fn listener(&self, place: &Place) -> Option<OwnedFd> {
        self.all().listeners.remove(&place.to_string())
    }

    /// Closes what nothing was opened with.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.all());
        drop(all);
    }
}
