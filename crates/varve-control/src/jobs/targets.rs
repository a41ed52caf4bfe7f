//! What jobs work on: no other job, and no command that would get in its way, takes it meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use uuid::Uuid;

/// By volumes.
#[derive(Default)]
pub(crate) struct JobTargets {
    /// Volumes on which a job works, and which one.
    pub(crate) busy: RefCell<BTreeMap<Uuid, u64>>,
    /// What an array does by itself, by the kind of job and by its volume, with the job that observes it.
    pub(crate) observed: RefCell<BTreeMap<(&'static str, Uuid), u64>>,
}

impl JobTargets {
    /// The job of this kind that observes the arrays of a volume.
    pub(crate) fn job_of(&self, kind: &'static str, volume: Uuid) -> Option<u64> {
        self.observed.borrow().get(&(kind, volume)).copied()
    }
}
