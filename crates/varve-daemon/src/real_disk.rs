//! Disks of the real host: files and block devices that `varve-os` has opened.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use varve_block::Shape;
use varve_block::host::{FileLook, MediumExtent};
use varve_os::{DiskCounters, DiskFile, DiskMark, DiskState, OpenError};
use varve_volume::world::{DiskRef, OpenDisk};

/// A disk of this host.
pub(crate) struct RealDisk(Arc<DiskFile>);

impl RealDisk {
    /// The disk on an open file.
    pub(crate) fn on(file: Arc<DiskFile>) -> DiskRef {
        Arc::new(Self(file))
    }
}

impl OpenDisk for RealDisk {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn medium(&self) -> MediumExtent {
        self.0.medium()
    }

    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn sectors(&self) -> (u32, u32) {
        (self.0.sector_logical(), self.0.sector_physical())
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn length(&self) -> u64 {
        self.0.length()
    }

    fn set_length(&self, bytes: u64) -> Result<(), OpenError> {
        self.0.set_length(bytes)
    }

    fn end_at(&self, bytes: u64) -> Result<(), OpenError> {
        self.0.end_at(bytes)
    }

    fn state(&self) -> DiskState {
        self.0.state()
    }

    fn silence(&self) -> Duration {
        self.0.silence()
    }

    fn counters(&self) -> DiskCounters {
        self.0.counters()
    }

    fn look(&self, path: &Path) -> FileLook {
        self.0.look(path)
    }

    fn has_abandoned(&self) -> bool {
        self.0.has_abandoned()
    }

    fn marks(&self) -> Vec<DiskMark> {
        self.0.marks()
    }

    fn adopt_marks(&self, marks: &[DiskMark]) {
        self.0.adopt_marks(marks);
    }

    fn descriptor(&self) -> Option<OwnedFd> {
        let descriptor = self.0.descriptor();
        descriptor
            .inspect_err(
                |error| tracing::warn!(path = %self.path().display(), %error, "its lock cannot be passed on"),
            )
            .ok()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.0) as _
    }
}
