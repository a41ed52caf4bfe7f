//! What jobs work on: no other job, and no command that would get in its way, takes it meanwhile.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_vg::model::PvName;

/// By kinds of work.
#[derive(Default)]
pub(crate) struct JobTargets {
    /// Volumes on which a job works, and which one.
    pub(crate) busy: RefCell<BTreeMap<Uuid, u64>>,
    /// Disks of groups that are being emptied, and by which job.
    pub(crate) moving: RefCell<BTreeMap<(Uuid, PvName), u64>>,
    /// Volumes and pools that jobs convert.
    pub(crate) converting: RefCell<BTreeSet<Uuid>>,
}
