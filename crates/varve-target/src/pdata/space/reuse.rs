//! Freed space is taken again before space that was never used, the lowest first, where it is long enough for what is
//! written in sequence: else a sparse device would come to hold the whole store, however little of that is in use.
//!
//! Groups in which blocks were freed are noted, and searched when space is wanted; one that has nothing long enough is
//! not searched again before more of it is freed. So searches cost in proportion to what was freed. Shorter runs are left
//! to the search that goes round the store ([`Space::take`]).
//!
//! Invariant REUSE1: a run that is taken again is free as a whole, and does not reach over the block where the search round the
//! store goes on: what is behind that block may never have been used.

use super::freed::{Freed, Wanted};
use super::{Block, BlockRun, Side, Space};

/// Blocks of the shortest run that is worth leaving a place where others follow: 1 MiB near, where data is, and 64 KiB
/// far, where nodes do.
const LEAST: [u64; 2] = [256, 16];

impl Space {
    /// Where the next search round the store begins on a side.
    pub(super) fn goes_on(&self, side: Side) -> Block {
        self.next[side as usize].clamp(self.base, self.end - 1)
    }

    /// The blocks of `run` are free from now on.
    pub(super) fn note_freed(&mut self, run: BlockRun) {
        let far = self.group_of(self.base + (self.end - self.base) / 2);
        for group in self.groups_of(run) {
            let (_, index) = self.locate(run.first.max(self.first_of(group)));
            self.freed_units.note(group, index);
            self.freed_on[Side::Near as usize].note(group, index);
            if group >= far {
                self.freed_on[Side::Far as usize].note(group, index);
            }
        }
    }

    /// A long run of freed blocks on one side: what is left of the last one, or the lowest. `Err(group)` asks for that
    /// group's page.
    pub(super) fn freed_run(&mut self, side: Side) -> Result<Option<BlockRun>, u64> {
        let left = self.freed_on[side as usize].run;
        if left.count > 0 {
            let (group, index) = self.locate(left.first);
            let Some(page) = self.pages.get(&group) else { return Err(group) };
            // Others may have taken some of it.
            if let Some((_, length)) =
                page.free_run(index, index + left.count, left.count).filter(|run| run.0 == index)
            {
                return Ok(Some(BlockRun::new(left.first, length)));
            }
        }
        let least = LEAST[side as usize];
        let mut freed = std::mem::take(&mut self.freed_on[side as usize]);
        let found = self.lowest(&mut freed, side, Wanted { align: 1, least, enough: 4 * least });
        freed.run = found.ok().flatten().unwrap_or_default();
        self.freed_on[side as usize] = freed;
        found
    }

    /// Takes at most `limit` blocks of a long run of freed blocks on one side.
    pub(super) fn take_freed(&mut self, limit: u64, side: Side) -> Result<Option<BlockRun>, u64> {
        let Some(found) = self.freed_run(side)? else { return Ok(None) };
        let run = BlockRun::new(found.first, found.count.min(limit));
        assert!(run.count > 0, "REUSE1: a run has blocks");
        self.mark(run, true);
        self.freed_on[side as usize].run = BlockRun::between(run.end(), found.end());
        Ok(Some(run))
    }

    /// The lowest unit, as it is wanted, in a group of which blocks were freed.
    pub(super) fn freed_unit(&mut self, unit: Wanted) -> Result<Option<BlockRun>, u64> {
        let mut freed = std::mem::take(&mut self.freed_units);
        let found = self.lowest(&mut freed, Side::Near, unit);
        self.freed_units = freed;
        found
    }

    fn lowest(&self, freed: &mut Freed, side: Side, wanted: Wanted) -> Result<Option<BlockRun>, u64> {
        let (edge, edge_index) = self.locate(self.goes_on(side));
        while let Some((group, from)) = freed.groups.first_key_value().map(|(group, from)| (*group, *from)) {
            if self.may_have(group, wanted.least) {
                let Some(page) = self.pages.get(&group) else { return Err(group) };
                let (first, length) = (self.first_of(group), self.group_length(group));
                // REUSE1; and the blocks before may have been free already.
                let end = if group == edge { edge_index } else { length };
                let from = from.saturating_sub(wanted.least + wanted.align);
                if let Some(run) = wanted.find(page, first, from, end) {
                    assert!(run.end() <= first + end, "REUSE1: what may never have been used is left");
                    freed.groups.insert(group, run.first - first);
                    return Ok(Some(run));
                }
            }
            freed.groups.remove(&group);
        }
        Ok(None)
    }
}
