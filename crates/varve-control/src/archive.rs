//! The archive: after each change of a group its text becomes a file of the host, since a disk can lose all copies that lie on it.
//!
//! Invariants:
//! - ARCHIVE1. A text that is known to be valid is archived once, after those before it, unless more than `WAITING_MAX` wait.
//! - ARCHIVE2. No command and no client waits for the archive, or fails by it: one task writes, and what failed is tried again.

use super::{Control, state_unusable};
use futures_util::lock::Mutex;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use uuid::Uuid;
use varve_api::Failure;
use varve_format::version_of;
use varve_volume::world::{ArchiveEntry, ArchivedText};

/// So many texts wait at most while the state directory cannot be written: the oldest ones are dropped.
const WAITING_MAX: usize = 256;

/// What the archive lacks.
#[derive(Default)]
pub(super) struct Archive {
    /// The last text of each group (ARCHIVE1).
    last: RefCell<BTreeMap<Uuid, Uuid>>,
    waiting: RefCell<VecDeque<ArchiveEntry>>,
    /// Held by the one that writes (ARCHIVE2).
    writing: Mutex<()>,
    /// Why the first one that waits could not be written, if so.
    pub(super) failure: RefCell<Option<Failure>>,
}

impl Archive {
    fn push(&self, entry: ArchiveEntry) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.push_back(entry);
        if waiting.len() > WAITING_MAX {
            waiting.pop_front();
        }
    }
}

impl Control {
    /// Archives the text of a group soon, if it is another one than before and no other may be valid instead.
    pub(super) fn archive_soon(&self, group: Uuid) {
        let found = self.with_group(group, |known| {
            let (name, text) = (known.group.name().to_owned(), known.group.text());
            let sequence = known.group.entry().sequence;
            let version = version_of(group, sequence, None, &text);
            known.undecided.is_none().then_some(ArchivedText { name, sequence, version, text })
        });
        let Ok(Some(text)) = found else { return };
        if self.archive.last.borrow_mut().insert(group, text.version) != Some(text.version) {
            self.archive.push(ArchiveEntry { group, date: self.now(), text: Some(text) });
            self.write_archive_soon();
        }
    }

    /// The texts of a group that was removed are kept for a while only.
    pub(super) fn archive_removal(&self, group: Uuid) {
        self.archive.last.borrow_mut().remove(&group);
        self.archive.push(ArchiveEntry { group, date: self.now(), text: None });
        self.write_archive_soon();
    }

    fn write_archive_soon(&self) {
        let me = self.weak();
        self.context.spawner().spawn(async move {
            if let Some(control) = me.upgrade() {
                control.write_archive().await;
            }
        });
    }

    /// Tries again what failed, unless that is under way.
    pub(super) fn retry_archive(&self) {
        if self.archive.failure.borrow().is_some() && self.archive.writing.try_lock().is_some() {
            self.write_archive_soon();
        }
    }

    /// Writes what waits, until something fails.
    pub(super) async fn write_archive(&self) {
        let _alone = self.archive.writing.lock().await; // ARCHIVE2
        loop {
            let Some(entry) = self.archive.waiting.borrow().front().cloned() else { return };
            let next = entry.clone();
            let written = self.context.files_at(&self.state_dir, move |files| files.archive(&next)).await;
            let written =
                written.and_then(|written| written.map_err(|error| state_unusable(&self.state_dir, &error)));
            let failure = written.err();
            let has_failed = failure.is_some();
            let before = self.archive.failure.replace(failure.clone());
            if let Some(failure) = failure.filter(|failure| before.as_ref() != Some(failure)) {
                tracing::warn!(group = %entry.group, %failure, "the text of a group could not be archived");
            }
            if has_failed {
                return;
            }
            // While it was written the front may have been dropped.
            let mut waiting = self.archive.waiting.borrow_mut();
            if waiting.front() == Some(&entry) {
                waiting.pop_front();
            }
        }
    }
}
