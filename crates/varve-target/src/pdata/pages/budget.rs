//! What stays in memory: nodes and pages of the space map under one budget.

use super::{CachePolicy, Needed, Pages};

/// Pages of the space map may take this part of the budget, one in so many; a page tells of 126 MiB of store. What they
/// leave is for nodes.
const PAGES_SHARE: usize = 4;

impl Pages {
    /// From now on there is another budget, and nodes are evicted in another way. What is too much goes at once, but
    /// for what is not written yet.
    pub fn set_cache(&mut self, budget_bytes: u64, policy: CachePolicy) {
        self.cache.set(budget_bytes, policy);
        self.shrink_pages();
        self.cache.shrink_all();
    }

    /// Nodes that were evicted so far.
    pub(in super::super) fn evictions(&self) -> u64 {
        self.cache.evictions()
    }

    /// Evicts pages beyond their part of the budget.
    pub(super) fn shrink_pages(&mut self) {
        self.space.shrink(self.cache.budget_whole() / PAGES_SHARE);
        self.cache.has_pages(self.space.resident());
    }

    pub(in super::super) fn pin(&mut self, needed: Needed) {
        match needed {
            Needed::Node(address) => self.cache.pin(address),
            Needed::Page(group) => self.space.pin(group),
        }
    }

    pub(in super::super) fn unpin(&mut self, needed: Needed) {
        match needed {
            Needed::Node(address) => self.cache.unpin(address),
            Needed::Page(group) => self.space.unpin(group),
        }
    }
}
