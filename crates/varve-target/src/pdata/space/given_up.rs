//! Blocks that were given up and are not free yet (F1, F3, F6): which in which transaction, and how many of each group.

use super::{GROUP_BLOCKS, Run, Space};
use std::collections::BTreeMap;

/// With more runs given up than these in one transaction its owner ends it: until then each takes a little memory, and
/// the end of the transaction a little time, a millisecond for all of them, in which nothing else is done.
pub const FREED_RUNS_MAX: usize = 4 << 10;

/// When so many blocks were given up in one transaction, or this part of the store, and then as many others taken, what
/// was given up is not left to wait any longer (F8).
const MUCH_BLOCKS: u64 = 1024;
const MUCH_PART: u64 = 32;

/// What is given up in one transaction, and by whom it may be read.
#[derive(Default)]
pub(super) struct GivenUp {
    /// Blocks that somebody may be reading.
    pub(super) read: Vec<Run>,
    /// Blocks that nobody reads.
    pub(super) unread: Vec<Run>,
    /// Number of blocks of both.
    blocks: u64,
}

impl GivenUp {
    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> {
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

    /// Whether both say the same.
    pub(super) fn is_counted(&self) -> bool {
        self.of.values().sum::<u64>() == self.blocks
    }

    fn add(&mut self, group: u64, blocks: u64) {
        self.blocks += blocks;
        *self.of.entry(group).or_default() += blocks;
    }

    fn subtract(&mut self, group: u64, blocks: u64) {
        let known = self.of.get(&group).copied().unwrap_or(0);
        assert!(blocks <= known, "F1: what is free now was given up");
        self.blocks -= blocks;
        if blocks < known {
            self.of.insert(group, known - blocks)
        } else {
            self.of.remove(&group)
        };
    }
}

impl Space {
    /// Blocks given up that a commit, or the end of a request, will make free.
    pub(in super::super) fn reclaimable(&self) -> u64 {
        self.given_up.blocks()
    }

    /// Runs given up in this transaction.
    pub(in super::super) fn freed_runs(&self) -> usize {
        self.freed.read.len() + self.freed.unread.len()
    }

    /// Whether the transaction should be committed because it takes much though what it gave up would do.
    pub(in super::super) fn turns_over_much(&self) -> bool {
        self.taken_since > self.much()
    }

    /// Some blocks were taken.
    pub(super) fn note_taken(&mut self, blocks: u64) {
        if self.freed.blocks > self.much() {
            self.taken_since += blocks;
        }
    }

    fn much(&self) -> u64 {
        MUCH_BLOCKS.max(self.end / MUCH_PART)
    }

    /// Gives up blocks; they are free once this transaction is committed and nobody reads them any more (F1, F3).
    pub(in super::super) fn give_up(&mut self, run: Run) {
        if self.reuse_at_once {
            return self.mark(run, false);
        }
        if !self.may_be_given_up(run) {
            return self.contradicts(run.0); // F7
        }
        self.shares_of(run).for_each(|(group, blocks)| self.given_up.add(group, blocks));
        self.freed.read.push(run);
        self.freed.blocks += run.1;
    }

    /// Gives up blocks that nobody reads; they are free once this transaction is committed (F1).
    pub(in super::super) fn give_up_unread(&mut self, run: Run) {
        if self.reuse_at_once {
            return self.mark(run, false);
        }
        if !self.may_be_given_up(run) {
            return self.contradicts(run.0); // F7
        }
        self.shares_of(run).for_each(|(group, blocks)| self.given_up.add(group, blocks));
        self.freed.unread.push(run);
        self.freed.blocks += run.1;
    }

    /// What was given up is free.
    pub(super) fn set_free(&mut self, run: Run) {
        self.shares_of(run).for_each(|(group, blocks)| self.given_up.subtract(group, blocks));
        self.set(run, false);
    }

    /// The group of the first page that a commit needs and that is not in memory: those of what earlier transactions gave
    /// up are there (F5).
    pub(in super::super) fn missing_for_commit(&self) -> Option<u64> {
        self.given_up.groups().find(|group| !self.is_loaded(*group))
    }

    /// How many blocks of each group a run has.
    fn shares_of(&self, run: Run) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (base, end) = (self.base, run.0 + run.1);
        self.groups_of(run).map(move |group| {
            let first = base + group * GROUP_BLOCKS;
            (group, end.min(first + GROUP_BLOCKS) - run.0.max(first))
        })
    }
}
