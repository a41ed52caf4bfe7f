//! How this daemon deals with each job that stands in the text of a group.

use std::cell::RefCell;
use std::collections::BTreeMap;
use uuid::Uuid;

/// How a job that stands in a text is dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// A task works on it.
    Runs,
    /// It has ended for now.
    Waits,
    /// It has ended, and is to be forgotten.
    Ended,
}

/// A job that this daemon has begun, or found in a text.
struct Record {
    /// Its groups; the first one decides.
    groups: Vec<Uuid>,
    state: RecordState,
}

/// Jobs of this daemon that stand in texts, by their numbers.
#[derive(Default)]
pub(crate) struct Records {
    records: RefCell<BTreeMap<u64, Record>>,
}

impl Records {
    /// A task works on a job from now on.
    pub(crate) fn insert(&self, id: u64, groups: Vec<Uuid>) {
        let record = Record { groups, state: RecordState::Runs };
        self.records.borrow_mut().insert(id, record);
    }

    /// How a job is dealt with of which `coordinator` decides.
    pub(crate) fn state(&self, id: u64, coordinator: Uuid) -> Option<RecordState> {
        let records = self.records.borrow();
        records
            .get(&id)
            .filter(|record| record.groups.first() == Some(&coordinator))
            .map(|record| record.state)
    }

    /// Deals otherwise with a job; its groups.
    pub(crate) fn set(&self, id: u64, state: RecordState) -> Option<Vec<Uuid>> {
        let mut records = self.records.borrow_mut();
        let record = records.get_mut(&id)?;
        record.state = state;
        Some(record.groups.clone())
    }

    /// Whether a job has ended, or is not known.
    pub(crate) fn is_ended(&self, id: u64) -> bool {
        self.records.borrow().get(&id).is_none_or(|record| record.state == RecordState::Ended)
    }

    /// Nothing is left to be done for a job.
    pub(crate) fn remove(&self, id: u64) {
        self.records.borrow_mut().remove(&id);
    }

    /// Jobs that have ended and are to be forgotten.
    pub(crate) fn ended(&self) -> Vec<u64> {
        let records = self.records.borrow();
        let ended = records.iter().filter(|(_, record)| record.state == RecordState::Ended);
        ended.map(|(id, _)| *id).collect()
    }

    /// The groups of a job.
    pub(crate) fn groups_of(&self, id: u64) -> Vec<Uuid> {
        self.records.borrow().get(&id).map(|record| record.groups.clone()).unwrap_or_default()
    }
}
