//! Frees blocks, and makes them usable again (SPACE1, SPACE3, SPACE5).

use super::{BlockRun, GROUP_BLOCKS, Space};

/// When so many blocks were freed in one transaction, or this part of the store, and then as many others taken, what
/// was freed is not left to wait any longer (REUSE1).
const MUCH_BLOCKS: u64 = 1024;
const MUCH_PART: u64 = 32;

impl Space {
    /// Blocks freed that a commit, or the end of a request, will make free.
    pub(in super::super) fn reclaimable(&self) -> u64 {
        self.pending_free.blocks()
    }

    /// Runs freed in this transaction.
    pub(in super::super) fn freed_runs(&self) -> usize {
        self.freed.read.len() + self.freed.unread.len()
    }

    /// Whether the transaction should be committed because it takes much though what it freed would do.
    pub(in super::super) fn turns_over_much(&self) -> bool {
        self.taken_since > self.much()
    }

    /// Some blocks were taken.
    pub(super) fn note_taken(&mut self, blocks: u64) {
        if self.freed.blocks() > self.much() {
            self.taken_since += blocks;
        }
    }

    fn much(&self) -> u64 {
        MUCH_BLOCKS.max(self.end.number() / MUCH_PART)
    }

    /// Frees blocks; they are free once this transaction is committed (SPACE1) and, if they may be read now, their readers
    /// have ended (SPACE3).
    pub(in super::super) fn free_run(&mut self, run: BlockRun, is_read: bool) {
        if self.reuse_at_once {
            return self.mark(run, false);
        }
        if !self.may_be_freed(run) {
            return self.contradicts(run.first); // SPACE6
        }
        self.shares_of(run).for_each(|(group, blocks)| self.pending_free.add(group, blocks));
        self.freed.add(run, is_read);
    }

    /// Blocks are free on the disk, and no longer read.
    pub(super) fn come_back(&mut self, run: BlockRun) {
        if let Some(run) = self.discards.add(run) {
            self.set_free(run);
        }
    }

    /// Has freed blocks wait for [`Space::take_discards`] and [`Space::discarded`] from now on, or not any more (SPACE5).
    pub(in super::super) fn queue_discards(&mut self, enabled: bool) {
        self.discards.enable(enabled).into_iter().for_each(|run| self.set_free(run));
    }

    /// The blocks that are to be discarded on the device now, in order and joined. They are handed out after
    /// [`Space::discarded`] (SPACE5).
    pub(in super::super) fn take_discards(&mut self) -> Vec<BlockRun> {
        self.discards.take()
    }

    /// The device has answered for all that was taken so.
    pub(in super::super) fn discarded(&mut self) {
        self.discards.discarded().into_iter().for_each(|run| self.set_free(run));
        assert!(
            self.pending_free.blocks() >= self.freed.blocks(),
            "SPACE5: what was not committed is not free"
        );
    }

    /// What was freed is free.
    pub(super) fn set_free(&mut self, run: BlockRun) {
        self.shares_of(run).for_each(|(group, blocks)| self.pending_free.subtract(group, blocks));
        self.set(run, false);
    }

    /// The group of the first page that a commit needs and that is not in memory: those of what earlier transactions freed
    /// are there (RESIDENT1).
    pub(in super::super) fn missing_for_commit(&self) -> Option<u64> {
        self.pending_free.groups().find(|group| !self.is_loaded(*group))
    }

    /// How many blocks of each group a run has.
    fn shares_of(&self, run: BlockRun) -> impl Iterator<Item = (u64, u64)> + use<> {
        let base = self.base;
        self.groups_of(run).map(move |group| {
            let first = base + group * GROUP_BLOCKS;
            (group, run.end().min(first + GROUP_BLOCKS) - run.first.max(first))
        })
    }
}
