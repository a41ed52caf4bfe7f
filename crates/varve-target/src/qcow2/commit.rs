//! Making an image durable: counts and data first, then the entries that lead to them, then what they led to before is free.
//!
//! Invariants:
//! - QCOMMIT1. An entry is written only after the count of what it leads to, and what is there, are durable.
//! - QCOMMIT2. A commit writes tables as they were when it began: what comes later is in the next one.
//! - QCOMMIT3. After an error of a commit the image is not written any more, unless it was that the file system had no room for a
//!   write: what the commit was to write is in the next one then, and what is freed waits for that.
//! - QCOMMIT4. Tables have their space in the file system before anything is acknowledged that needs them. So a commit writes over what
//!   is there, and a trim makes room in a file system that is full.

use super::tables::cache::Kind;
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

/// What of a commit failed.
enum Failed {
    /// A write, or what is below: what was there is there, or what was to replace it.
    Write(IoError),
    /// A flush: nothing is known of what was written before it.
    Flush(IoError),
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
        match self.write_changes(&changes).await {
            Ok(()) => {}
            Err(Failed::Write(IoError::NoSpace)) => {
                self.take_back(changes);
                return Err(IoError::NoSpace);
            }
            Err(Failed::Write(error) | Failed::Flush(error)) => {
                return Err(self.refuse_writes(error, "its changes could not be made durable").await);
            }
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

    /// What a commit could not write is in the next one (QCOMMIT3).
    fn take_back(&self, changes: Changes) {
        self.cache.not_written(Kind::Refcounts, &changes.counts);
        self.cache.not_written(Kind::Table, &changes.tables);
        self.refcount_table.borrow_mut().not_written(&changes.count_table);
        self.l1.borrow_mut().not_written(&changes.l1);
        self.freed.borrow_mut().extend(changes.freed);
        assert!(self.committed.get() < self.commits.get(), "QCOMMIT3: the commit has not succeeded");
    }

    async fn write_changes(&self, changes: &Changes) -> Result<(), Failed> {
        assert_eq!(self.failed.get(), None, "QCOMMIT3");
        if self.has_bug(InjectedBug::EntriesBeforeBelow) {
            self.write_own(changes).await?;
            return self.flush_below().await.map_err(Failed::Write);
        }
        self.flush_below().await.map_err(Failed::Write)?; // QPUSH1
        self.write_own(changes).await
    }

    async fn write_own(&self, changes: &Changes) -> Result<(), Failed> {
        let entries = changes.tables.iter().chain(&changes.l1);
        let flush = async || self.file.flush().await.map_err(Failed::Flush);
        if self.has_bug(InjectedBug::EntriesBeforeCounts) {
            self.write_all(entries.clone()).await?;
            flush().await?;
        }
        self.write_all(&changes.counts).await?;
        if !changes.count_table.is_empty() {
            flush().await?; // QCOUNT2
            self.write_all(&changes.count_table).await?;
        }
        let without = changes.tables.is_empty() && changes.l1.is_empty();
        if without || !self.has_bug(InjectedBug::EntriesBeforeData) {
            flush().await?;
        }
        if without {
            return Ok(());
        }
        self.write_all(entries).await?; // QCOMMIT1
        flush().await
    }

    /// The worst of several errors is one that leaves the image behind.
    async fn write_all(&self, pieces: impl IntoIterator<Item = &(u64, Bytes)>) -> Result<(), Failed> {
        let writes = pieces.into_iter().map(|(offset, bytes)| self.file.write(*offset, bytes.clone()));
        let written = futures_util::future::join_all(writes).await;
        let mut errors = written.into_iter().filter_map(Result::err);
        let first = errors.next();
        let worst =
            errors.find(|error| *error != IoError::NoSpace).filter(|_| first == Some(IoError::NoSpace));
        worst.or(first).map_or(Ok(()), |error| Err(Failed::Write(error)))
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
