//! Volumes and snapshots by their names.

use std::collections::BTreeSet;

/// What a volume is a snapshot of, its name, and its id. Two agree in the first two only in a pool that is damaged.
#[derive(Default)]
pub(in crate::thin) struct Names {
    pub(in crate::thin) entries: BTreeSet<(Option<u64>, String, u64)>,
}

impl Names {
    /// The volume called `name`, or the snapshot of volume `of` that is.
    pub(in crate::thin) fn find(&self, of: Option<u64>, name: &str) -> Option<u64> {
        let (owner, found, volume) = self.entries.range((of, name.to_owned(), 0)..).next()?;
        (*owner == of && found == name).then_some(*volume)
    }

    /// The snapshots of volume `of`, by their names.
    pub(in crate::thin) fn snapshots_of(&self, of: u64) -> impl Iterator<Item = u64> {
        let all = self.entries.range((Some(of), String::new(), 0)..);
        all.take_while(move |(owner, ..)| *owner == Some(of)).map(|(.., volume)| *volume)
    }
}
