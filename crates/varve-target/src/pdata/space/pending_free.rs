//! Blocks that were freed and cannot be taken yet (SPACE1, SPACE3, SPACE5): which in which transaction, and how many of
//! each group.

use std::collections::BTreeMap;
use varve_format::pdata::BlockRun;

/// With more runs freed than these in one transaction its owner ends it: until then each takes a little memory, and
/// the end of the transaction a little time, a millisecond for all of them, in which nothing else is done.
pub const FREED_RUNS_MAX: usize = 4 << 10;

/// What is freed in one transaction, by whether it may still be read.
#[derive(Default)]
pub(super) struct PendingFree {
    /// Blocks that a request may be reading.
    pub(super) read: Vec<BlockRun>,
    /// Blocks that no request reads.
    pub(super) unread: Vec<BlockRun>,
    /// Number of blocks of both.
    blocks: u64,
}

impl PendingFree {
    pub(super) fn add(&mut self, run: BlockRun, is_read: bool) {
        assert!(run.count > 0, "SPACE1: a run has blocks");
        if is_read {
            self.read.push(run);
        } else {
            self.unread.push(run);
        }
        self.blocks += run.count;
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = &BlockRun> {
        self.read.iter().chain(self.unread.iter())
    }
}

/// Numbers of blocks, in all and of each group that has some.
#[derive(Default)]
pub(super) struct ByGroup {
    blocks: u64,
    of: BTreeMap<u64, u64>,
}

impl ByGroup {
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The groups that have some, in order.
    pub(super) fn groups(&self) -> impl Iterator<Item = u64> {
        self.of.keys().copied()
    }

    /// Whether the total equals the sum of the groups.
    pub(super) fn is_counted(&self) -> bool {
        self.of.values().sum::<u64>() == self.blocks
    }

    pub(super) fn add(&mut self, group: u64, blocks: u64) {
        assert!(blocks > 0, "SPACE1: a run has blocks in each of its groups");
        self.blocks += blocks;
        *self.of.entry(group).or_default() += blocks;
    }

    pub(super) fn subtract(&mut self, group: u64, blocks: u64) {
        let known = self.of.get(&group).copied().unwrap_or(0);
        assert!(blocks <= known, "SPACE1: what is free now was freed");
        self.blocks -= blocks;
        if blocks < known {
            self.of.insert(group, known - blocks)
        } else {
            self.of.remove(&group)
        };
    }
}
