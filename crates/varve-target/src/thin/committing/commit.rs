//! Commits: the changes that the next one will carry, and when it is a checkpoint.
//!
//! A request that needs a commit waits for one that begins after now (`journal/group_commit.rs`).
//!
//! Invariants: THIN1 to THIN3 of the module, and
//! - POOLCOMMIT1. Everything in a commit and a checkpoint is the leader's (LEADER1).

use super::super::{InjectedBug, Pool, PoolError, index};
use super::commits::{DIFFERENCES_MAX, PENDING_BYTES_FULL, PENDING_BYTES_MAX};
use crate::journal::Turn;
use crate::pdata::MetadataOrder;
use std::time::Duration;
use varve_block::{Durability, IoError, Moment};
use varve_format::text::Discards;
use varve_format::thin::{Change, NUMBER_MAX, PART_SIZE, Record, change_length};

impl Pool {
    /// Something has changed, in this very instant. Blocks may have been freed: writes that wait for room ask for the
    /// checkpoint that brings them back (POOLFULL4 of `full.rs`).
    pub(in crate::thin) fn log(&self, change: Change) {
        self.waiters.notify_if_waiting();
        self.commits.changes.set(self.commits.changes.get() + 1);
        let mut pending = self.commits.pending.borrow_mut();
        pending.since.get_or_insert_with(|| self.clock.now());
        pending.push(change);
    }

    /// Makes durable everything that was acknowledged before (THIN2).
    pub async fn commit(&self) -> Result<(), PoolError> {
        Ok(self.join_commit(false).await?)
    }

    /// As [`Pool::commit`], and begins the log anew: what was freed before is free then unless a reader needs it still,
    /// and if discards are passed down, what is free was discarded.
    pub async fn checkpoint(&self) -> Result<(), PoolError> {
        self.join_commit(true).await?;
        if self.discards() == Discards::PassDown {
            self.free_pending().await;
        }
        Ok(())
    }

    pub(in crate::thin) async fn join_commit(&self, checkpoint: bool) -> Result<(), IoError> {
        let number = self.commits.group.next();
        if checkpoint {
            self.commits.wants_checkpoint.set(true);
        }
        loop {
            self.is_sound()?;
            let Turn::Lead(_lead) = self.commits.group.turn(number).await else { return self.is_sound() };
            self.is_sound()?;
            self.lead().await?;
        }
    }

    /// POOLCOMMIT1: one commit, with a checkpoint if it is time for one.
    async fn lead(&self) -> Result<(), IoError> {
        let asked = self.commits.wants_checkpoint.replace(false);
        if asked || self.is_log_tight() || self.has_grown() || self.wants_checkpoint() {
            if self.write_checkpoint().await? {
                return Ok(());
            }
            // Nothing has begun: without a checkpoint nothing is lost, unless the log has no room, or may not lead to what came.
            if self.is_log_tight() || self.has_grown() {
                return Err(IoError::NoSpace);
            }
        }
        assert!(!self.commits.group.is_under_way(), "POOLCOMMIT1: one commit at a time");
        self.ref_counts.commit_begins();
        let changes = self.commits.begin();
        let outcome = self.append(changes).await.map_err(|error| self.fail(error));
        if outcome.is_ok() {
            self.ref_counts.commit_ended(); // REFCOUNT4: else what was released is held still, on the disk
        }
        self.commits.group.end();
        outcome
    }

    /// THIN10: whether the pool has more than its superblock says.
    fn has_grown(&self) -> bool {
        let (end, described) = (self.end_block.get(), self.commits.described_end.get());
        assert!(described <= end, "THIN10: a pool does not shrink");
        described < end && !self.has_bug(InjectedBug::GrowthUndescribed)
    }

    fn is_log_tight(&self) -> bool {
        let longest = Record::capacity(self.commits.ring.record_blocks_max());
        // A change may not fit into the rest of a record.
        let records = self.commits.pending.borrow().bytes / (longest - 512) + 1;
        self.commits.ring.is_tight(records as u64)
    }

    fn wants_checkpoint(&self) -> bool {
        let wants_map = self.map.pages().wants_commit() || self.map.pages().turns_over_much();
        let are_counts_many = self.ref_counts.differences() > DIFFERENCES_MAX;
        let is_log_long = self.commits.ring.is_long();
        is_log_long || wants_map || are_counts_many || self.writes_through() || self.is_metadata_tight()
    }

    /// Whether the next commit is to be a checkpoint because every one is that says something.
    fn writes_through(&self) -> bool {
        self.metadata.get() == MetadataOrder::WriteThrough && !self.commits.pending.borrow().is_empty()
    }

    /// Flushes the data and writes the records that make it part of the volumes (THIN1, THIN3).
    async fn append(&self, changes: Vec<Change>) -> Result<(), IoError> {
        let device = self.device();
        if changes.is_empty() || !self.has_bug(InjectedBug::MetadataBeforeData) {
            device.flush().await?; // THIN1
        }
        let longest = self.commits.ring.record_blocks_max();
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let (mut length, mut some) = (0, Vec::new());
            while let Some(change) =
                changes.next_if(|change| length + change_length(change) <= Record::capacity(longest))
            {
                length += change_length(&change);
                some.push(change);
            }
            assert!(length <= Record::capacity(longest), "RECORD2: a record has room for what it says");
            self.append_record(some).await?;
        }
        Ok(())
    }

    async fn append_record(&self, changes: Vec<Change>) -> Result<(), IoError> {
        assert!(!changes.is_empty(), "RECORD2: a record says something");
        let described = self.commits.described_end.get();
        let is_inside = |change: &Change| match change {
            Change::Map { count, place, .. } => *place + *count <= described,
            _ => true,
        };
        assert!(changes.iter().all(is_inside), "THIN10: the pool is described up to block {described}");
        let sequence = self.commits.ring.sequence();
        if sequence > NUMBER_MAX {
            // Only a log that was read from a disk is numbered so high (RECORD3).
            tracing::error!(pool = %self.id, sequence, "the log of a pool contradicts itself");
            return Err(IoError::Corrupt);
        }
        let (pool, epoch) = (self.store_id(), self.commits.ring.epoch());
        let record = Record { sequence, pool, epoch, changes };
        let mut bytes = self.arena.take(index(record.blocks() * PART_SIZE));
        record.encode(&mut bytes);
        self.commits.ring.append(&self.device(), sequence, bytes, Durability::Durable).await // THIN3
    }

    /// Nothing is changed any more: what is on the disk is not known. Returns the error of requests from now on: only a
    /// pool that has no room says `NoSpace`, and one whose disk has none has failed.
    pub(in crate::thin) fn fail(&self, error: IoError) -> IoError {
        tracing::error!(pool = %self.id, %error, "a commit of the pool failed; it is not changed any more");
        let told = self.commits.latch.shut(error);
        assert!(self.last_failure().is_some(), "THIN2: nothing is acknowledged any more");
        self.waiters.notify();
        told
    }

    /// First half of the pool's id, which all of its metadata carries.
    pub(in crate::thin) fn store_id(&self) -> u64 {
        self.id.as_u64_pair().0
    }

    /// Whether what waits for a commit has waited long enough, or is enough, or memory is: nodes that are not written
    /// cannot be evicted.
    pub(in crate::thin) fn is_commit_due(&self) -> bool {
        let pending = self.commits.pending.borrow();
        let since = |since: Moment| self.clock.now().since(since) >= self.options.commit_interval;
        let is_enough = || pending.bytes > PENDING_BYTES_MAX || self.map.pages().wants_commit();
        self.commits.group.at_rest().is_some() && (pending.since.is_some_and(since) || is_enough())
    }

    /// Whether a task that changes the maps faster than they are written is to wait for that: memory has a bound.
    pub(in crate::thin) fn is_memory_short(&self) -> bool {
        self.commits.pending.borrow().bytes > PENDING_BYTES_FULL || self.map.pages().is_full_of_dirty()
    }

    /// Commits what waits too long, for ever; to be run by the pool's owner. Ends with the error that ends the pool.
    pub async fn keep_committing(&self) -> PoolError {
        loop {
            self.clock.sleep(self.options.commit_interval).await;
            if let Err(error) = self.commit_if_due().await {
                return error;
            }
        }
    }

    /// How long what is acknowledged waits for a commit.
    pub fn commit_interval(&self) -> Duration {
        self.options.commit_interval
    }

    /// Commits what waits too long, and sends the disks the discards that have waited long enough, if there are any; an
    /// error ends the pool.
    pub async fn commit_if_due(&self) -> Result<(), PoolError> {
        self.is_sound()?; // Nothing is due any more, and the pool's owner must be notified.
        if self.is_commit_due() {
            match self.commit().await {
                Err(PoolError::NoSpace) => return Ok(()), // Nothing has begun: the next one is tried in its time.
                done => done?,
            }
        }
        match self.pass_down_in_time().await {
            Err(PoolError::NoSpace) => Ok(()),
            told => told,
        }
    }
}
