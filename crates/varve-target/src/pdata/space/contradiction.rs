//! Blocks of which maps and space map say different things (SPACE6): both were read, each with a sound checksum.

use super::{Block, BlockRun, GROUP_BLOCKS, PAGE_PLACES, Space};

impl Space {
    /// Whether a node or data can lie there.
    pub(in super::super) fn is_inside(&self, block: Block) -> bool {
        (self.base..self.end).contains(&block)
    }

    /// Whether all of these blocks are inside.
    pub(super) fn contains(&self, run: BlockRun) -> bool {
        run.first >= self.base && run.checked_end().is_some_and(|end| end <= self.end)
    }

    /// What is known of `block` contradicts itself.
    pub(in super::super) fn contradicts(&mut self, block: Block) {
        self.contradiction.get_or_insert(block);
    }

    /// Whether these blocks may be freed: they lie in one group, behind its page, and are in use as far as is known.
    pub(super) fn may_be_freed(&self, run: BlockRun) -> bool {
        if run.count == 0 || !self.contains(run) {
            return false;
        }
        let (group, index) = self.locate(run.first);
        let is_behind_page = index >= PAGE_PLACES && index + run.count <= GROUP_BLOCKS;
        is_behind_page
            && self.pages.get(&group).is_none_or(|page| page.free_run(index, index + run.count, 1).is_none())
    }

    /// SPACE6: a block that was freed and is free, or was freed before, or is unpublished. All pages that a
    /// commit needs are in memory.
    pub(in super::super) fn contradiction(&self) -> Option<Block> {
        if self.contradiction.is_some() {
            return self.contradiction;
        }
        let is_wrong = |run: &&BlockRun| !self.may_be_freed(**run);
        if let Some(run) = self.freed.runs().find(is_wrong) {
            return Some(run.first);
        }
        let unpublished = self.unpublished_runs();
        let freed = self.freed.runs().chain(self.free_on_disk()).copied();
        let mut runs: Vec<BlockRun> = freed.chain(unpublished).collect();
        runs.sort_unstable();
        runs.windows(2).find(|pair| pair[0].end() > pair[1].first).map(|pair| pair[1].first)
    }
}
