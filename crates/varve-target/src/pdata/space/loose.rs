//! Loose blocks for content that is laid out in units: beside its neighbours, or in a unit that is free as a whole.

use super::freed::Wanted;
use super::{GROUP_BLOCKS, PAGE_PLACES, Place, Run, Side, Space};
use varve_block::align_up;

impl Space {
    /// SPACE4: nothing leads to these blocks yet.
    pub(in super::super) fn loosen(&mut self, run: Run) {
        assert!(self.loose.insert(run.0, run.1).is_none(), "SPACE4");
    }

    /// SPACE4: from now on something leads to these blocks, or they are given up.
    pub(in super::super) fn settle(&mut self, run: Run) {
        let (first, length) = self
            .loose
            .range(..=run.0)
            .next_back()
            .map(|(first, length)| (*first, *length))
            .expect("SPACE4: what is settled was loose");
        let (end, run_end) = (first + length, run.0 + run.1);
        assert!(run_end <= end, "SPACE4: what is settled was loose");
        self.loose.remove(&first);
        if first < run.0 {
            self.loose.insert(first, run.0 - first);
        }
        if run_end < end {
            self.loose.insert(run_end, end - run_end);
        }
        self.changed.extend(self.groups_of(run));
    }

    /// Takes a loose run of at most `limit` blocks that begins at `start`, if that is free, and not if it was never used
    /// while a long run of freed blocks is there (REUSE1).
    pub(in super::super) fn take_loose_at(&mut self, start: u64, limit: u64) -> Result<Option<Run>, u64> {
        let run = self.take_at(start, limit)?;
        if run.1 > 0 {
            self.loosen(run);
        }
        Ok(Some(run).filter(|run| run.1 > 0))
    }

    /// Takes a loose run of at most `limit` blocks that begins `slot` blocks within a unit of `unit` blocks, a power
    /// of two, that is free as a whole: the lowest of which something was freed, else the next.
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
        // A run of this length has what is wanted in it, wherever it begins: it need not be looked at to its end.
        let wanted = Wanted { align: unit, least: unit, enough: unit + limit };
        let within = |(first, length): Run| (first + slot, limit.min(length - slot));
        if let Some(free) = self.freed_unit(wanted)? {
            return Ok(Some(self.take_as_loose(within(free))));
        }
        let (start, groups) = (self.next[Side::Near as usize].clamp(self.base, self.end - 1), self.groups());
        let group = (start - self.base) / GROUP_BLOCKS;
        for step in 0..=groups {
            let group = (group + step) % groups;
            if !self.may_have(group, unit) {
                continue;
            }
            let Some(page) = self.pages.get(&group) else { return Err(group) };
            let from = if step == 0 { (start - self.base) % GROUP_BLOCKS } else { 0 };
            let first = self.base + group * GROUP_BLOCKS;
            if let Some(free) = wanted.find(page, first, from, self.group_length(group)) {
                let run = self.take_as_loose(within(free));
                self.next[Side::Near as usize] = align_up(run.0 + run.1, unit);
                return Ok(Some(run));
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

    /// Begins with fresh pages in place of all that were ever written.
    pub(in super::super) fn forget_all_use(&mut self) {
        assert!(self.pages.is_empty() && self.loose.is_empty(), "nothing was read or taken yet");
        for group in 0..self.groups() {
            self.admit(group, None);
            if self.group_length(group) > PAGE_PLACES {
                self.changed.insert(group);
            } else {
                // There is no block behind its page's places, and perhaps not even both of these.
                self.places[super::index(group)] = Place::Never;
            }
        }
        self.free = super::fresh_blocks(self.base, self.end);
    }

    /// Every run that is marked as in use and to which nothing leads: given up or loose.
    pub(in super::super) fn unreachable_runs(&self) -> Vec<Run> {
        let loose = self.loose.iter().map(|(first, length)| (*first, *length));
        let given_up = self.freed.runs().chain(self.freezing.runs()).chain(self.free_on_disk());
        given_up.copied().chain(loose).collect()
    }
}
