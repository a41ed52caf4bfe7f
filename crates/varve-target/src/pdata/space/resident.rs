//! Which pages stay in memory. A page goes only while the disk says the same, and what is left of it is how long its
//! longest free run is: that decides whether it is worth reading again.
//!
//! Invariant RESIDENT1: a page is not evicted while its marks in memory differ from those on the disk that count: while
//! it is changed, while a commit that holds it is being written, and while blocks of it are freed or unpublished
//! (SPACE1, SPACE3, SPACE4, SPACE5).

#[cfg(test)]
mod tests;

use super::{GROUP_BLOCKS, Space};
use std::collections::BTreeSet;

/// However small the budget is, so many pages stay: searches go on in two of them.
const PAGES_MIN: usize = 2;

impl Space {
    /// Pages in memory.
    pub(in super::super) fn resident(&self) -> usize {
        self.pages.len()
    }

    /// Keeps the page of a group in memory until [`Space::unpin`].
    pub(in super::super) fn pin(&mut self, group: u64) {
        *self.pins.entry(group).or_default() += 1;
    }

    pub(in super::super) fn unpin(&mut self, group: u64) {
        let count = self.pins.get_mut(&group).expect("a pin is taken once");
        assert!(*count > 0, "a pin that is over is forgotten");
        *count -= 1;
        if *count == 0 {
            self.pins.remove(&group);
        }
    }

    /// Evicts pages beyond `most`, in turn, as far as RESIDENT1 allows; and some more, so that what RESIDENT1 keeps is
    /// found out once for many pages.
    pub(in super::super) fn shrink(&mut self, most: usize) {
        let most = most.max(PAGES_MIN);
        if self.pages.len() <= most {
            return;
        }
        let kept = self.kept_groups();
        let left = (most - most / 8).max(PAGES_MIN);
        let (from, excess) = (self.hand, self.pages.len() - left);
        let behind = self.pages.range(from..).chain(self.pages.range(..from));
        let may_go = |group: &u64| !kept.contains(group) && !self.pins.contains_key(group);
        let victims: Vec<u64> = behind.map(|(group, _)| *group).filter(may_go).take(excess).collect();
        for group in victims {
            let longest = self.longest_free(group);
            assert!(!self.changed.contains(&group), "RESIDENT1");
            self.pages.remove(&group);
            self.summaries.insert(group, longest);
            self.hand = group + 1;
        }
    }

    /// Pages that have to stay in memory (RESIDENT1).
    fn kept_groups(&self) -> BTreeSet<u64> {
        let unpublished = self.unpublished_runs().flat_map(|run| self.groups_of(run));
        let mut kept: BTreeSet<u64> = unpublished.chain(self.pending_free.groups()).collect();
        kept.extend(self.changed.iter().chain(&self.committing));
        kept
    }

    /// Whether the page of `group` has to be read to know whether it has a free run of `length` blocks.
    pub(super) fn may_have(&self, group: u64, length: u64) -> bool {
        self.summaries.get(&group).is_none_or(|longest| *longest >= length)
    }

    /// Blocks of the longest free run of a page in memory.
    fn longest_free(&self, group: u64) -> u64 {
        let (page, end) = (&self.pages[&group], self.group_length(group));
        let (mut at, mut longest) = (0, 0);
        while let Some((first, length)) = page.free_run(at, end, GROUP_BLOCKS) {
            longest = longest.max(length);
            at = first + length;
        }
        longest
    }
}
