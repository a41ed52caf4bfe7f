//! An export, as the control knows it.

use crate::host::remembered::RememberedExport;
use std::path::{Path, PathBuf};
use varve_api::{Door, Failure};
use varve_block::host::FileIdentity;
use varve_vg::names::VolumeName;
use varve_volume::ShardHandle;
use varve_volume::world::FileDoor;

/// An export that the daemon is to serve.
pub(crate) struct KnownExport {
    /// What brings it back.
    pub(crate) remembered: RememberedExport,
    /// `VG/LV` or `VG/LV@SNAP` as it is called now.
    pub(crate) name: VolumeName,
    /// How it is served now.
    pub(crate) open: Open,
    /// The file of its socket, or where it is mounted, as that was when it was opened.
    pub(crate) file: Option<FileIdentity>,
    /// Why clients do not find it although it is served, if so.
    pub(crate) away: Option<Failure>,
    /// Whether a task tries to serve it again.
    pub(crate) is_recovering: bool,
}

impl KnownExport {
    /// Where its file is, if it has one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let address = &self.remembered.address;
        match self.remembered.door {
            Door::Nbd => address.strip_prefix("unix:").map(PathBuf::from),
            Door::Fuse => Some(PathBuf::from(address)),
            Door::Ublk | Door::VhostUser => None,
        }
    }

    /// The folder of its file.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.path()?.parent().map(Path::to_owned)
    }

    /// Whether requests are served, as far as this process can tell.
    pub(crate) fn is_open(&self) -> bool {
        match &self.open {
            Open::Nbd(_) => true,
            Open::Fuse(door) => door.is_serving(),
            Open::Down(_) | Open::Moving => false,
        }
    }
}

/// How an export is served.
pub(crate) enum Open {
    /// A name behind a socket of a shard.
    Nbd(ShardHandle),
    /// A file.
    Fuse(Box<dyn FileDoor>),
    /// Not at all, for this reason.
    Down(Failure),
    /// Being opened or closed.
    Moving,
}
