//! Blocks that were freed and cannot be taken yet: what the next commit makes free, and what becomes free only after
//! a discard of it on the device below, if the owner wants that (SPACE5 of `space.rs`).

use super::{BlockRun, Pages};

impl Pages {
    /// Frees blocks of data; they are free once this transaction is committed (PDATA2) and every reader that may have found
    /// them before has ended (PDATA5).
    pub fn free_run(&mut self, run: BlockRun) {
        self.data_freed += run.count;
        self.space.free_run(run, true);
    }

    /// Frees blocks that no request reads: they are free once this transaction is committed (PDATA2).
    pub fn free_unread(&mut self, run: BlockRun) {
        self.space.free_run(run, false);
    }

    /// Blocks that were freed and become free with the next commits.
    pub fn reclaimable_blocks(&self) -> u64 {
        self.space.reclaimable()
    }

    /// Makes free what is no longer read (PDATA5).
    pub fn reclaim(&mut self) {
        self.space.reclaim();
    }

    /// Of the blocks that were freed, those that a commit has set free and that may still be read.
    pub fn held_blocks(&self) -> u64 {
        self.space.held_blocks()
    }

    /// How many blocks of data were freed so.
    pub fn data_freed(&self) -> u64 {
        self.data_freed
    }

    /// Whether this transaction should be committed because it takes much though what it freed would do.
    pub fn turns_over_much(&self) -> bool {
        self.space.turns_over_much()
    }

    /// Runs freed in this transaction: what they need in memory, until it is committed.
    pub fn freed_runs(&self) -> usize {
        self.space.freed_runs()
    }

    /// Has freed blocks wait for [`Pages::take_discards`] and [`Pages::discarded`] from now on, or not any more.
    pub fn queue_discards(&mut self, enabled: bool) {
        self.space.queue_discards(enabled);
    }

    /// Freed blocks that are to be discarded on the device now; they are free after [`Pages::discarded`].
    pub fn take_discards(&mut self) -> Vec<BlockRun> {
        self.space.take_discards()
    }

    /// Of the blocks that were freed, those that the next commit makes free: they are not being read.
    pub fn pending_free_blocks(&self) -> u64 {
        self.space.reclaimable().saturating_sub(self.space.read_blocks())
    }

    /// As [`Pages::free_blocks_after_commit`], without what readers still keep then.
    pub fn free_blocks_with_next_commit(&self) -> u64 {
        (self.space.free() + self.pending_free_blocks()).saturating_sub(self.floor)
    }

    /// The device knows of all that was taken so.
    pub fn discarded(&mut self) {
        self.space.discarded();
    }
}
