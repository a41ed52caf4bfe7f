//! Blocks taken for content to which nothing leads yet, and where nodes and content are looked for.
//!
//! Who writes content first and enters it into a map later takes blocks *loose*: a commit in between writes pages that
//! say that they are free, for after a crash nobody will know them.

use super::{GROUP_BLOCKS, Run, Space, SpacePage};
use std::collections::BTreeMap;
use varve_block::align_up;

impl Space {
    /// Nodes are looked for from `block` on, away from data.
    pub(in super::super) fn place_nodes_from(&mut self, block: u64) {
        self.next_node = Some(block);
    }

    /// As [`Space::take`], for nodes.
    pub(in super::super) fn take_for_nodes(&mut self, limit: u64) -> Result<Option<Run>, u64> {
        let Some(start) = self.next_node else { return self.take(limit) };
        let data = std::mem::replace(&mut self.next, start);
        let taken = self.take(limit);
        self.next_node = Some(std::mem::replace(&mut self.next, data));
        taken
    }

    /// Takes a loose run of at most `limit` blocks that begins at `start`, if that is free.
    pub(in super::super) fn take_at(&mut self, start: u64, limit: u64) -> Result<Option<Run>, u64> {
        if !(self.base..self.end).contains(&start) {
            return Ok(None);
        }
        let (group, index) = self.locate(start);
        let Some(page) = self.pages.get(&group) else { return Err(group) };
        let found = page.free_run(index, self.group_length(group), limit);
        Ok(found.filter(|(first, _)| *first == index).map(|(_, length)| self.loosen((start, length))))
    }

    /// Takes a loose run of at most `limit` blocks that begins `slot` blocks within a unit of `unit` blocks, a power
    /// of two, that is free as a whole.
    pub(in super::super) fn take_in_unit(
        &mut self,
        unit: u64,
        slot: u64,
        limit: u64,
    ) -> Result<Option<Run>, u64> {
        assert!(slot < unit && limit > 0);
        if self.no_unit || self.free < unit {
            return Ok(None);
        }
        let (start, groups) = (self.next.clamp(self.base, self.end - 1), self.groups());
        let first = (start - self.base) / GROUP_BLOCKS;
        for step in 0..=groups {
            let group = (first + step) % groups;
            let Some(page) = self.pages.get(&group) else { return Err(group) };
            let mut from = if step == 0 { (start - self.base) % GROUP_BLOCKS } else { 0 };
            while let Some((index, length)) = page.free_run(from, self.group_length(group), GROUP_BLOCKS) {
                let begin = self.base + group * GROUP_BLOCKS + index;
                let (aligned, end) = (align_up(begin, unit), begin + length);
                if aligned + unit <= end {
                    let run = self.loosen((aligned + slot, limit.min(end - aligned - slot)));
                    self.next = align_up(run.0 + run.1, unit);
                    return Ok(Some(run));
                }
                from = index + length;
            }
        }
        self.no_unit = true;
        Ok(None)
    }

    /// Takes any loose run of at most `limit` blocks.
    pub(in super::super) fn take_loose(&mut self, limit: u64) -> Result<Option<Run>, u64> {
        let taken = self.take(limit)?;
        if let Some((first, length)) = taken {
            self.loose.insert(first, length);
        }
        Ok(taken)
    }

    /// Takes just these blocks, loose; `false` if that cannot be.
    pub(in super::super) fn claim_loose(&mut self, run: Run) -> Result<bool, u64> {
        let end = run.0.checked_add(run.1);
        if run.0 < self.base || run.1 == 0 || end.is_none_or(|end| end > self.end) {
            return Ok(false);
        }
        self.require(run)?;
        if (run.0..run.0 + run.1).any(|block| self.is_used(block) != Some(false)) {
            return Ok(false);
        }
        self.loosen(run);
        Ok(true)
    }

    fn loosen(&mut self, run: Run) -> Run {
        self.mark(run, true);
        self.loose.insert(run.0, run.1);
        run
    }

    /// F3: from now on something leads to these blocks, which were taken loose.
    pub(in super::super) fn settle(&mut self, run: Run) {
        let found = self.loose.range(..=run.0).next_back().map(|(first, length)| (*first, *length));
        let (first, length) = found.expect("F3: what is settled was loose");
        let (end, run_end) = (first + length, run.0 + run.1);
        assert!(run_end <= end, "F3: what is settled was loose");
        self.loose.remove(&first);
        if first < run.0 {
            self.loose.insert(first, run.0 - first);
        }
        if run_end < end {
            self.loose.insert(run_end, end - run_end);
        }
        let groups = self.groups_of(run);
        self.changed.extend(groups);
    }

    /// Gives back loose blocks: nothing will lead to them.
    pub(in super::super) fn untake_loose(&mut self, run: Run) {
        self.settle(run);
        self.untake(run);
    }

    /// Blocks taken loose.
    pub(in super::super) fn loose_blocks(&self) -> u64 {
        self.loose.values().sum()
    }

    /// F3: the pages of a commit say that loose blocks are free. A page that is not written says so already.
    pub(super) fn free_loose(&self, images: &mut BTreeMap<u64, SpacePage>) {
        for block in self.loose.iter().flat_map(|(first, length)| *first..first + length) {
            let (group, index) = self.locate(block);
            if let Some(page) = images.get_mut(&group) {
                page.set(index, false);
            }
        }
    }

    /// Every run that is marked as in use and to which nothing leads: given up or loose.
    pub(in super::super) fn unreachable_runs(&self) -> Vec<Run> {
        let loose = self.loose.iter().map(|(first, length)| (*first, *length));
        self.freed.iter().chain(&self.freezing).copied().chain(loose).collect()
    }
}
