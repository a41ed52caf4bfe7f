//! Blocks of which maps and space map say different things (SPACE6): both were read, each with a sound checksum.

use super::{GROUP_BLOCKS, PAGE_PLACES, Run, Space};

impl Space {
    /// Whether a node or data can lie there.
    pub(in super::super) fn is_inside(&self, block: u64) -> bool {
        (self.base..self.end).contains(&block)
    }

    /// What is known of `block` contradicts itself.
    pub(in super::super) fn contradicts(&mut self, block: u64) {
        self.contradiction.get_or_insert(block);
    }

    /// Whether these blocks may be given up: they lie in one group, behind its page, and are in use as far as is known.
    pub(super) fn may_be_given_up(&self, run: Run) -> bool {
        let is_inside = run.0.checked_add(run.1).is_some_and(|end| end <= self.end) && run.0 >= self.base;
        if run.1 == 0 || !is_inside {
            return false;
        }
        let (group, index) = self.locate(run.0);
        let is_behind_page = index >= PAGE_PLACES && index + run.1 <= GROUP_BLOCKS;
        is_behind_page
            && self.pages.get(&group).is_none_or(|page| page.free_run(index, index + run.1, 1).is_none())
    }

    /// SPACE6: a block that was given up and is free, or was given up before, or is loose. All pages that a commit needs are in
    /// memory.
    pub(in super::super) fn contradiction(&self) -> Option<u64> {
        if self.contradiction.is_some() {
            return self.contradiction;
        }
        let is_wrong = |run: &&Run| !self.may_be_given_up(**run);
        if let Some(run) = self.freed.runs().find(is_wrong) {
            return Some(run.0);
        }
        let loose = self.loose.iter().map(|(first, length)| (*first, *length));
        let freed = self.freed.runs().chain(self.free_on_disk()).copied();
        let mut runs: Vec<Run> = freed.chain(loose).collect();
        runs.sort_unstable();
        runs.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0).map(|pair| pair[1].0)
    }
}
