//! Loose blocks for content that is laid out in units: beside its neighbours, or in a unit that is free as a whole.

use super::{GROUP_BLOCKS, Run, Side, Space};
use varve_block::align_up;

impl Space {
    /// Takes a loose run of at most `limit` blocks that begins at `start`, if that is free.
    pub(in super::super) fn take_loose_at(&mut self, start: u64, limit: u64) -> Result<Option<Run>, u64> {
        if !(self.base..self.end).contains(&start) {
            return Ok(None);
        }
        let (group, index) = self.locate(start);
        let Some(page) = self.pages.get(&group) else { return Err(group) };
        let found = page.free_run(index, self.group_length(group), limit);
        let found = found.filter(|(first, _)| *first == index);
        Ok(found.map(|(_, length)| self.take_as_loose((start, length))))
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
        let (start, groups) = (self.next[Side::Near as usize].clamp(self.base, self.end - 1), self.groups());
        let first = (start - self.base) / GROUP_BLOCKS;
        for step in 0..=groups {
            let group = (first + step) % groups;
            let Some(page) = self.pages.get(&group) else { return Err(group) };
            let mut from = if step == 0 { (start - self.base) % GROUP_BLOCKS } else { 0 };
            while let Some((index, length)) = page.free_run(from, self.group_length(group), GROUP_BLOCKS) {
                let begin = self.base + group * GROUP_BLOCKS + index;
                let (aligned, end) = (align_up(begin, unit), begin + length);
                if aligned + unit <= end {
                    let run = self.take_as_loose((aligned + slot, limit.min(end - aligned - slot)));
                    self.next[Side::Near as usize] = align_up(run.0 + run.1, unit);
                    return Ok(Some(run));
                }
                from = index + length;
            }
        }
        self.no_unit = true;
        Ok(None)
    }

    fn take_as_loose(&mut self, run: Run) -> Run {
        self.mark(run, true);
        self.loosen(run);
        run
    }

    /// Every run that is marked as in use and to which nothing leads: given up or loose.
    pub(in super::super) fn unreachable_runs(&self) -> Vec<Run> {
        let loose = self.loose.iter().map(|(first, length)| (*first, *length));
        let waiting = self.waiting.iter().flat_map(|waiting| &waiting.runs);
        self.freed.runs().chain(self.freezing.runs()).chain(waiting).copied().chain(loose).collect()
    }
}
