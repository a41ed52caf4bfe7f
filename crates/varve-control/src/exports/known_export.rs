//! An export, as the control knows it.

use super::address::Address;
use super::server::ExportDoor;
use crate::host::remembered::RememberedExport;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use varve_api::Failure;
use varve_block::host::FileIdentity;
use varve_vg::names::VolumeName;

/// An export that the daemon is to serve.
pub(crate) struct KnownExport {
    /// What brings it back.
    pub(crate) remembered: RememberedExport,
    /// `VG/LV` or `VG/LV@SNAP` as it is called now.
    pub(crate) name: VolumeName,
    /// Where it is reached, if that can be read.
    pub(crate) address: Option<Address>,
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
    /// One that is known from now on.
    pub(crate) fn new(
        remembered: RememberedExport,
        name: VolumeName,
        address: Option<Address>,
        open: Open,
    ) -> Self {
        Self { remembered, name, address, open, file: None, away: None, is_recovering: false }
    }

    /// Where its file is, if it has one.
    pub(crate) fn file_path(&self) -> Option<PathBuf> {
        self.address.as_ref()?.file.clone()
    }

    /// The folder of its file.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.file_path()?.parent().map(Path::to_owned)
    }

    /// Its door, if that is open.
    pub(crate) fn door(&self) -> Option<Rc<dyn ExportDoor>> {
        match &self.open {
            Open::Serving(door) => Some(Rc::clone(door)),
            Open::Down(_) | Open::Moving => None,
        }
    }

    /// Whether requests are served, as far as this process can tell.
    pub(crate) fn is_open(&self) -> bool {
        self.door().is_some_and(|door| door.ended().is_none())
    }
}

/// How an export is served.
pub(crate) enum Open {
    /// Through a door.
    Serving(Rc<dyn ExportDoor>),
    /// Not at all, for this reason.
    Down(Failure),
    /// Being opened or closed.
    Moving,
}
