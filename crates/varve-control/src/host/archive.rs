//! The archive: after each change of a group its text becomes a file of the host, since a disk can lose all copies that are on it.
//!
//! Invariants:
//! - ARCHIVE1. A text that is known to be valid is archived once, after those before it, unless more than `WAITING_MAX` wait.
//! - ARCHIVE2. No command and no client waits for the archive, or fails by it: one task writes, and what failed is tried again.

use crate::failures::state_unusable;
use futures_util::lock::Mutex;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use uuid::Uuid;
use varve_api::Failure;
use varve_volume::Host;
use varve_volume::world::{ArchiveEntry, ArchivedText};

/// So many texts wait at most while the state directory cannot be written: the oldest ones are dropped.
const WAITING_MAX: usize = 256;

/// The files of the archive, and what they lack.
pub(crate) struct Archive {
    host: Host,
    state_dir: PathBuf,
    /// The version of the last text of each group (ARCHIVE1).
    last: RefCell<BTreeMap<Uuid, Uuid>>,
    waiting: RefCell<VecDeque<ArchiveEntry>>,
    /// Held by the one that writes (ARCHIVE2).
    writing: Mutex<()>,
    /// Why the first entry that waits could not be written, if so.
    failure: RefCell<Option<Failure>>,
}

impl Archive {
    pub(crate) fn new(host: Host, state_dir: PathBuf) -> Rc<Self> {
        let (last, waiting) = (RefCell::default(), RefCell::default());
        Rc::new(Self { host, state_dir, last, waiting, writing: Mutex::new(()), failure: RefCell::default() })
    }

    /// Archives the text of a group soon, unless it is archived already.
    pub(crate) fn keep(self: &Rc<Self>, group: Uuid, text: ArchivedText) {
        if self.last.borrow_mut().insert(group, text.version) != Some(text.version) {
            self.push(group, Some(text));
        }
    }

    /// The texts of a group that was removed are kept for a while only.
    pub(crate) fn note_removal(self: &Rc<Self>, group: Uuid) {
        self.last.borrow_mut().remove(&group);
        self.push(group, None);
    }

    fn push(self: &Rc<Self>, group: Uuid, text: Option<ArchivedText>) {
        let date = self.host.clock().date().0;
        let mut waiting = self.waiting.borrow_mut();
        waiting.push_back(ArchiveEntry { group, date, text });
        if waiting.len() > WAITING_MAX {
            waiting.pop_front();
        }
        drop(waiting);
        self.write_soon();
    }

    fn write_soon(self: &Rc<Self>) {
        let archive = Rc::clone(self);
        self.host.spawner().spawn(async move { archive.write().await });
    }

    /// Why the first entry that waits could not be written, if so.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }

    /// Tries again what failed, unless that is under way.
    pub(crate) fn retry(self: &Rc<Self>) {
        if self.failure.borrow().is_some() && self.writing.try_lock().is_some() {
            self.write_soon();
        }
    }

    /// Writes what waits, until something fails.
    pub(crate) async fn write(&self) {
        let _alone = self.writing.lock().await; // ARCHIVE2
        loop {
            let Some(entry) = self.waiting.borrow().front().cloned() else { return };
            let failure = self.write_entry(entry.clone()).await.err();
            let has_failed = failure.is_some();
            let before = self.failure.replace(failure.clone());
            if let Some(failure) = failure.filter(|failure| before.as_ref() != Some(failure)) {
                tracing::warn!(group = %entry.group, %failure, "the text of a group could not be archived");
            }
            if has_failed {
                return;
            }
            // While it was written the front may have been dropped.
            let mut waiting = self.waiting.borrow_mut();
            if waiting.front() == Some(&entry) {
                waiting.pop_front();
            }
        }
    }

    async fn write_entry(&self, entry: ArchiveEntry) -> Result<(), Failure> {
        let written = self.host.files_at(&self.state_dir, move |files| files.archive(&entry)).await?;
        written.map_err(|error| state_unusable(&self.state_dir, &error))
    }
}
