//! What jobs work on: no other job, and no command that would get in its way, takes it meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_vg::model::PvName;

/// Work that the text of a group or the superblocks of an array ask for, by what it is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkKey {
    /// A disk of a group is emptied.
    Move(Uuid, PvName),
    /// A volume or pool gets another layout.
    Conversion(Uuid),
    /// What others wrote to the extents of a volume is cleared.
    Clearing(Uuid),
    /// Members of the arrays of a volume or pool are filled.
    Rebuild(Uuid),
    /// They are made equal.
    Resync(Uuid),
}

/// By kinds of work.
#[derive(Default)]
pub(crate) struct JobTargets {
    /// Volumes on which a job works, and which one.
    pub(crate) busy: RefCell<BTreeMap<Uuid, u64>>,
    /// Such work on which a task works, with its job.
    pub(crate) running: RefCell<BTreeMap<WorkKey, u64>>,
}

impl JobTargets {
    /// Whether a task does this.
    pub(crate) fn is_running(&self, work: &WorkKey) -> bool {
        self.job_of(work).is_some()
    }

    /// The job that does this.
    pub(crate) fn job_of(&self, work: &WorkKey) -> Option<u64> {
        self.running.borrow().get(work).copied()
    }
}
