//! What jobs work on: no other job, and no command that would get in its way, takes it meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_vg::model::PvName;

/// Work that the text of a group asks for, by what it is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TextWorkKey {
    /// A disk of a group is emptied.
    Move(Uuid, PvName),
    /// A volume or pool gets another layout.
    Conversion(Uuid),
    /// What others wrote to the extents of a volume is cleared.
    Clearing(Uuid),
}

/// By kinds of work.
#[derive(Default)]
pub(crate) struct JobTargets {
    /// Volumes on which a job works, and which one.
    pub(crate) busy: RefCell<BTreeMap<Uuid, u64>>,
    /// Work that texts ask for and on which a task works, with its job.
    pub(crate) running: RefCell<BTreeMap<TextWorkKey, u64>>,
}

impl JobTargets {
    /// Whether a task does this.
    pub(crate) fn is_running(&self, work: &TextWorkKey) -> bool {
        self.running.borrow().contains_key(work)
    }
}
