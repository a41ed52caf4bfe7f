//! A disk, as the control knows it.

use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Cache, PhysicalVolumeState};
use varve_block::host::{DiskMark, DiskPlacement, DiskState};
use varve_format::Label;
use varve_vg::size::format_size;
use varve_volume::world::DiskRef;

/// For how long none of the requests to a disk or a mapper is answered before that is a problem.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(3);

/// A disk that is open and locked.
pub(crate) struct KnownDisk {
    pub(crate) file: DiskRef,
    pub(crate) cache: Cache,
    /// What it says of itself, if that can be believed.
    pub(crate) label: Option<Label>,
    /// What is wrong with it.
    pub(crate) problem: Option<(PhysicalVolumeState, String)>,
    /// Arrays that fill their members on it anew (REFILL2 of `rebuild.rs`).
    pub(crate) disowned: BTreeSet<Uuid>,
    /// Whether its path led to it when that was last looked at.
    pub(crate) placement: DiskPlacement,
}

/// A disk that was in use and is not any more.
pub(crate) struct DepartedDisk {
    /// Its group.
    pub(crate) vg: Option<Uuid>,
    /// What it held, and holds if it is as new as when it left.
    pub(crate) marks: Vec<DiskMark>,
}

impl KnownDisk {
    /// One that was just opened. Where one of a group ends its text says (PVRESIZE2 of `resize.rs`).
    pub(crate) fn new(file: DiskRef, cache: Cache, label: Option<Label>) -> Self {
        Self {
            file,
            cache,
            label,
            problem: None,
            disowned: BTreeSet::new(),
            placement: DiskPlacement::AtPath,
        }
    }

    /// Why the next start does not find it, if so.
    pub(crate) fn why_unlinked(&self) -> Option<String> {
        let path = self.file.path().display();
        match self.placement {
            DiskPlacement::AtPath => None,
            DiskPlacement::Deleted => Some(format!(
                "its file was deleted while it is in use, and is lost when the daemon ends; what is on it can still be saved: varve \
                 pv move {path}"
            )),
            DiskPlacement::Elsewhere => Some(
                "its path leads to it no more, and the daemon does not find it there when it starts again; if its file has another path \
                 now: varve pv scan PATH"
                    .to_owned(),
            ),
        }
    }

    /// Whether its requests wait, and none was answered lately.
    pub(crate) fn is_stalled(&self) -> bool {
        self.file.silence() >= SILENCE_MAX
    }
}

/// Why a disk is out of use, if it is, and what brings it back.
pub(crate) fn why_failed(state: DiskState) -> Option<String> {
    match state {
        DiskState::InUse => None,
        DiskState::WritesLost => {
            let reason = "a write or flush failed; it takes no writes until varve pv scan opens it anew";
            Some(reason.to_owned())
        }
        DiskState::CutOff { lost } => {
            let lost = format_size(lost);
            Some(format!(
                "another program has cut it short and made it longer again, and {lost} of what it held are lost; it is not used until \
                 it has its content again and varve pv scan opens it anew"
            ))
        }
        DiskState::Shrunk { expected, found } => {
            let (expected, found) = (format_size(expected), format_size(found));
            Some(format!(
                "it was cut short: it had {expected} and has {found}; it is not used until it has its size again and varve \
                 pv scan opens it anew"
            ))
        }
    }
}
