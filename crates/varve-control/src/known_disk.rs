//! A disk, as the control knows it.

use std::time::Duration;
use varve_api::{Cache, PhysicalVolumeState};
use varve_format::Label;
use varve_volume::world::DiskRef;

/// For how long none of the requests to a disk or a mapper is answered before that is a problem.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(3);

/// A disk that is open and locked.
pub(super) struct KnownDisk {
    pub(super) file: DiskRef,
    pub(super) cache: Cache,
    /// What it says of itself, if that can be believed.
    pub(super) label: Option<Label>,
    /// What is wrong with it.
    pub(super) problem: Option<(PhysicalVolumeState, String)>,
}

impl KnownDisk {
    /// Whether its requests wait, and none was answered lately.
    pub(super) fn is_stalled(&self) -> bool {
        self.file.silence() >= SILENCE_MAX
    }
}
