//! Where blocks were freed, and how a free run that is long enough is found in a page (REUSE1).

use std::collections::BTreeMap;
use varve_format::pdata::space_page::{GROUP_BLOCKS, SpacePage};
use varve_format::pdata::{Block, BlockRun};

/// A free run that is wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Its first block is a multiple of this, a power of two.
    pub(super) align: u64,
    /// It has at least so many blocks.
    pub(super) least: u64,
    /// And need not be looked at beyond so many.
    pub(super) enough: u64,
}

impl Wanted {
    /// The first such run of a page of which `first` is the first block, from index `from` on and before `end`.
    pub(super) fn find(self, page: &SpacePage, first: Block, from: u64, end: u64) -> Option<BlockRun> {
        assert!(self.align.is_power_of_two() && self.least > 0, "a run has blocks");
        let mut at = from;
        while let Some((index, length)) = page.free_run(at, end, self.enough + self.align) {
            let run = BlockRun::new(first + index, length);
            let aligned = run.first.align_up(self.align);
            if aligned + self.least <= run.end() {
                return Some(BlockRun::between(aligned, run.end()));
            }
            at = index + length;
        }
        None
    }
}

/// Freed blocks that may make up runs which are long enough for some purpose.
#[derive(Default)]
pub(super) struct Freed {
    /// The groups, and from which of their blocks on.
    pub(super) groups: BTreeMap<u64, u64>,
    /// What may be left of the run that was found last.
    pub(super) run: BlockRun,
}

impl Freed {
    /// Something was freed from this block of a group on.
    pub(super) fn note(&mut self, group: u64, index: u64) {
        assert!(index < GROUP_BLOCKS, "REUSE1: it is one of the group's blocks");
        self.groups.entry(group).and_modify(|from| *from = index.min(*from)).or_insert(index);
    }
}
