//! An export, as the control knows it.

use crate::remembered::RememberedExport;
use varve_api::Failure;
use varve_vg::names::VolumeName;
use varve_volume::ShardHandle;
use varve_volume::world::FileDoor;

/// An export that the daemon is to serve.
pub(super) struct KnownExport {
    /// What brings it back.
    pub(super) remembered: RememberedExport,
    /// `VG/LV` or `VG/LV@SNAP` as it is called now.
    pub(super) name: VolumeName,
    /// How it is served now.
    pub(super) open: Open,
}

/// How an export is served.
pub(super) enum Open {
    /// A name behind a socket of a shard.
    Nbd(ShardHandle),
    /// A file.
    Fuse(Box<dyn FileDoor>),
    /// Not at all, for this reason.
    Down(Failure),
    /// Being opened or closed.
    Moving,
}
