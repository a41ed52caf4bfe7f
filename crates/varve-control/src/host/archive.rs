//! The archive: after each change of a group its text becomes a file of the host, since a disk can lose all copies that lie on it.
//!
//! Invariants:
//! - ARCHIVE1. A text that is known to be valid is archived once, after those before it, unless more than `WAITING_MAX` wait.
//! - ARCHIVE2. No command and no client waits for the archive, or fails by it: one task writes, and what failed is tried again.

use futures_util::lock::Mutex;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use uuid::Uuid;
use varve_api::Failure;
use varve_volume::world::ArchiveEntry;

/// So many texts wait at most while the state directory cannot be written: the oldest ones are dropped.
const WAITING_MAX: usize = 256;

/// What the archive lacks.
#[derive(Default)]
pub(crate) struct Archive {
    /// The last text of each group (ARCHIVE1).
    pub(crate) last: RefCell<BTreeMap<Uuid, Uuid>>,
    pub(crate) waiting: RefCell<VecDeque<ArchiveEntry>>,
    /// Held by the one that writes (ARCHIVE2).
    pub(crate) writing: Mutex<()>,
    /// Why the first one that waits could not be written, if so.
    pub(crate) failure: RefCell<Option<Failure>>,
}

impl Archive {
    pub(crate) fn push(&self, entry: ArchiveEntry) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.push_back(entry);
        if waiting.len() > WAITING_MAX {
            waiting.pop_front();
        }
    }
}
