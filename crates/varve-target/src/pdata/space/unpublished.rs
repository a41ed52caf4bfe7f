//! Unpublished blocks for content that is laid out in units: beside its neighbours, or in a unit that is free as a
//! whole.

use super::freed::Wanted;
use super::{Block, BlockRun, PAGE_PLACES, Place, Side, Space};

impl Space {
    /// SPACE4: nothing leads to these blocks yet.
    pub(in super::super) fn mark_unpublished(&mut self, run: BlockRun) {
        assert!(self.unpublished.insert(run.first, run.count).is_none(), "SPACE4");
    }

    /// SPACE4: from now on something leads to these blocks, or they are freed.
    pub(in super::super) fn publish(&mut self, run: BlockRun) {
        let (first, length) = self
            .unpublished
            .range(..=run.first)
            .next_back()
            .map(|(first, length)| (*first, *length))
            .expect("SPACE4: what is published was unpublished");
        let (end, run_end) = (first + length, run.end());
        assert!(run_end <= end, "SPACE4: what is published was unpublished");
        self.unpublished.remove(&first);
        if first < run.first {
            self.unpublished.insert(first, run.first - first);
        }
        if run_end < end {
            self.unpublished.insert(run_end, end - run_end);
        }
        self.changed.extend(self.groups_of(run));
    }

    /// Takes an unpublished run of at most `limit` blocks that begins at `start`, if that is free, and not if it was
    /// never used while a long run of freed blocks is there (REUSE1).
    pub(in super::super) fn take_unpublished_at(
        &mut self,
        start: Block,
        limit: u64,
    ) -> Result<Option<BlockRun>, u64> {
        let run = self.take_at(start, limit)?;
        if run.count > 0 {
            self.mark_unpublished(run);
        }
        Ok(Some(run).filter(|run| run.count > 0))
    }

    /// Takes an unpublished run of at most `limit` blocks that begins `slot` blocks within a unit of `unit` blocks, a
    /// power of two, that is free as a whole: the lowest of which something was freed, else the next.
    pub(in super::super) fn take_in_unit(
        &mut self,
        unit: u64,
        slot: u64,
        limit: u64,
    ) -> Result<Option<BlockRun>, u64> {
        assert!(slot < unit && limit > 0);
        if self.no_unit || self.free < unit {
            return Ok(None);
        }
        // A run of this length has what is wanted in it, wherever it begins: it need not be looked at to its end.
        let wanted = Wanted { align: unit, least: unit, enough: unit + limit };
        let within = |free: BlockRun| BlockRun::new(free.first + slot, limit.min(free.count - slot));
        if let Some(free) = self.freed_unit(wanted)? {
            return Ok(Some(self.take_as_unpublished(within(free))));
        }
        let (start, groups) = (self.goes_on(Side::Near), self.groups());
        let (first_group, start_index) = self.locate(start);
        for step in 0..=groups {
            let group = (first_group + step) % groups;
            if !self.may_have(group, unit) {
                continue;
            }
            let Some(page) = self.pages.get(&group) else { return Err(group) };
            let from = if step == 0 { start_index } else { 0 };
            if let Some(free) = wanted.find(page, self.first_of(group), from, self.group_length(group)) {
                let run = self.take_as_unpublished(within(free));
                self.next[Side::Near as usize] = run.end().align_up(unit);
                return Ok(Some(run));
            }
        }
        self.no_unit = true;
        Ok(None)
    }

    /// What is taken unpublished.
    pub(super) fn unpublished_runs(&self) -> impl Iterator<Item = BlockRun> {
        self.unpublished.iter().map(|(first, count)| BlockRun::new(*first, *count))
    }

    fn take_as_unpublished(&mut self, run: BlockRun) -> BlockRun {
        self.mark(run, true);
        self.mark_unpublished(run);
        run
    }

    /// Begins with fresh pages in place of all that were ever written.
    pub(in super::super) fn forget_all_use(&mut self) {
        assert!(self.pages.is_empty() && self.unpublished.is_empty(), "nothing was read or taken yet");
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

    /// Every run that is marked as in use and to which nothing leads: freed or unpublished.
    pub(in super::super) fn unreachable_runs(&self) -> Vec<BlockRun> {
        let unpublished = self.unpublished_runs();
        let pending_free = self.freed.runs().chain(self.freezing.runs()).chain(self.free_on_disk());
        pending_free.copied().chain(unpublished).collect()
    }
}
