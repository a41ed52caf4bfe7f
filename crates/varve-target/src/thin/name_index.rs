//! Volumes by their names.

use std::collections::BTreeSet;

/// Names and the numbers of their volumes. A name is there twice only in a pool that is damaged.
#[derive(Default)]
pub(super) struct Names {
    pub(super) entries: BTreeSet<(String, u64)>,
}

impl Names {
    /// The names from `start` on, in their order.
    pub(super) fn starting_at(&self, start: &str) -> impl Iterator<Item = &(String, u64)> {
        self.entries.range((start.to_owned(), 0)..)
    }

    pub(super) fn find(&self, name: &str) -> Option<u64> {
        self.starting_at(name).next().filter(|(known, _)| known == name).map(|(_, volume)| *volume)
    }
}
