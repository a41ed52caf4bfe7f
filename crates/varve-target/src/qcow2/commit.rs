//! Making an image durable: counts and data first, then the entries that lead to them, then what they led to before is free.
//!
//! Invariants:
//! - QCOMMIT1. An entry is written only after the count of what it leads to, and what is there, are durable.
//! - QCOMMIT2. A commit writes tables as they were when it began: what comes later is in the next one.
//! - QCOMMIT3. After an error of a commit the image is not written any more.

use super::cache::Kind;
use super::{Image, InjectedBug};
use std::mem::take;
use varve_block::{Bytes, Extent, IoError, LockMode};
use varve_format::qcow2::Header;

/// What a commit writes (QCOMMIT2).
struct Changes {
    counts: Vec<(u64, Bytes)>,
    count_table: Vec<(u64, Bytes)>,
    tables: Vec<(u64, Bytes)>,
    l1: Vec<(u64, Bytes)>,
    freed: Vec<u64>,
}

impl Image {
    /// Makes all that was acknowledged before durable. Two flushes if anything was allocated, else one.
    pub(super) async fn commit(&self) -> Result<(), IoError> {
        let wanted = self.commits.get() + 1;
        let _alone = self.committing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        self.check_failed()?;
        if self.committed.get() >= wanted {
            return Ok(());
        }
        self.commits.set(self.commits.get() + 1);
        let changes = self.changes();
        assert!(
            self.cache.is_clean(),
            "QCOMMIT2: a commit has all that was changed before it, and nothing else"
        );
        if self.has_bug(InjectedBug::FreeBeforeEntries) {
            self.release(&changes.freed).await?;
        }
        if let Err(error) = self.write_changes(&changes).await {
            return Err(self.refuse_writes(error, "its changes could not be made durable").await);
        }
        self.cache.written(&changes.counts);
        self.cache.written(&changes.tables);
        self.committed.set(self.commits.get());
        self.assert_consistent();
        if changes.freed.is_empty() || self.has_bug(InjectedBug::FreeBeforeEntries) {
            return Ok(());
        }
        let mark = self.readers.mark();
        self.readers.ended(mark).await;
        match self.release(&changes.freed).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.refuse_writes(error, "a reference count could not be read").await),
        }
    }

    fn changes(&self) -> Changes {
        Changes {
            counts: self.cache.take_dirty(Kind::Refcounts),
            count_table: self.refcount_table.borrow_mut().take_dirty(&self.file),
            tables: self.cache.take_dirty(Kind::Table),
            l1: self.l1.borrow_mut().take_dirty(&self.file),
            freed: take(&mut *self.freed.borrow_mut()),
        }
    }

    async fn write_changes(&self, changes: &Changes) -> Result<(), IoError> {
        assert_eq!(self.failed.get(), None, "QCOMMIT3");
        if self.has_bug(InjectedBug::EntriesBeforeBelow) {
            self.write_own(changes).await?;
            return self.flush_below().await;
        }
        self.flush_below().await?; // QPUSH1
        self.write_own(changes).await
    }

    async fn write_own(&self, changes: &Changes) -> Result<(), IoError> {
        let entries = changes.tables.iter().chain(&changes.l1);
        if self.has_bug(InjectedBug::EntriesBeforeCounts) {
            self.write_all(entries.clone()).await?;
            self.file.flush().await?;
        }
        self.write_all(&changes.counts).await?;
        if !changes.count_table.is_empty() {
            self.file.flush().await?; // QCOUNT2
            self.write_all(&changes.count_table).await?;
        }
        let without = changes.tables.is_empty() && changes.l1.is_empty();
        if without || !self.has_bug(InjectedBug::EntriesBeforeData) {
            self.file.flush().await?;
        }
        if without {
            return Ok(());
        }
        self.write_all(entries).await?; // QCOMMIT1
        self.file.flush().await
    }

    async fn write_all(&self, pieces: impl IntoIterator<Item = &(u64, Bytes)>) -> Result<(), IoError> {
        let writes = pieces.into_iter().map(|(offset, bytes)| self.file.write(*offset, bytes.clone()));
        futures_util::future::join_all(writes).await.into_iter().collect()
    }

    /// The image is not written any more, because of `error`; says so in its header where metadata contradicted itself.
    pub(super) async fn refuse_writes(&self, error: IoError, why: &str) -> IoError {
        if self.failed.replace(Some(error)).is_none() {
            tracing::error!(%error, why, "a qcow2 image is not written any more");
            if error == IoError::Corrupt && self.header.version > 2 {
                Header::put_corrupt(&mut self.first_sector.borrow_mut());
                // The image is refused already; whether the header can say so changes nothing.
                let _ = self.write_first_sector().await;
            }
        }
        error
    }
}
