//! The disks that the control knows.

use super::known_disk::{DepartedDisk, KnownDisk};
use super::limited::Limits;
use super::lost_disks::LostDisks;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;
use varve_api::Failure;

/// By their paths, or by what their labels say.
pub(crate) struct Disks {
    pub(crate) known: RefCell<BTreeMap<PathBuf, KnownDisk>>,
    /// Disks that were in use since the daemon started, by what their labels say (RESCAN4 of `rescan.rs`).
    pub(crate) departed: RefCell<BTreeMap<Uuid, DepartedDisk>>,
    pub(crate) limits: Limits,
    /// Remembered disks that cannot be opened.
    pub(crate) unopened: RefCell<BTreeMap<PathBuf, Failure>>,
    pub(crate) lost: LostDisks,
}

impl Disks {
    /// A spare takes the place of a disk that was lost for `spare_after`.
    pub(crate) fn new(spare_after: Duration) -> Self {
        Self {
            known: RefCell::default(),
            departed: RefCell::default(),
            limits: Limits::default(),
            unopened: RefCell::default(),
            lost: LostDisks::new(spare_after),
        }
    }
}
