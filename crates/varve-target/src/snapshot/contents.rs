//! What a store's log says, applied: the snapshots that exist and the map of their content.
//!
//! One function applies an entry, whether it has just become durable or is replayed after a crash; so what is in
//! memory and what the log says are the same by construction.
//!
//! Invariants:
//! - C1. Every mapping belongs to a snapshot that exists and lies inside it.
//! - C2. Ids grow with time and none is used twice.

use super::StoreError;
use super::map::Map;
use super::rollback::Rollback;
use std::collections::BTreeMap;
use varve_block::Extent;
use varve_format::store::{Descriptor, Entry};

/// What a log says.
pub(super) struct Contents {
    pub map: Map,
    pub snapshots: BTreeMap<u64, Descriptor>,
    /// The snapshots that were removed and still have entries.
    pub leaving: BTreeMap<u64, Leaving>,
    /// The id of the next snapshot.
    pub next_snapshot: u64,
    /// The rollback of the origin that is under way.
    pub rollback: Option<Rollback>,
    /// Do not hand over what an older snapshot needs; for the tests of the oracle only.
    pub skip_hand_over: bool,
}

/// A snapshot that was removed and still has entries.
pub(super) struct Leaving {
    pub descriptor: Descriptor,
    /// The first key of preserved content that was not looked at yet.
    pub next: (u64, u64),
}

impl Contents {
    pub(super) fn new(chunk_size: u64, next_snapshot: u64) -> Self {
        Self {
            map: Map::new(chunk_size),
            snapshots: BTreeMap::new(),
            leaving: BTreeMap::new(),
            next_snapshot,
            rollback: None,
            skip_hand_over: false,
        }
    }

    /// C1: whether `snapshot` exists and `extent` lies inside it.
    pub(super) fn holds(&self, snapshot: u64, extent: Extent) -> bool {
        self.snapshots.get(&snapshot).is_some_and(|descriptor| extent.end() <= descriptor.size)
    }

    /// The snapshot for which the origin's content is preserved now: its id and size.
    pub(super) fn newest(&self) -> Option<(u64, u64)> {
        self.snapshots.last_key_value().map(|(id, descriptor)| (*id, descriptor.size))
    }

    /// The next snapshot older than `snapshot`, which gets what was preserved for that: its id and size.
    pub(super) fn heir(&self, snapshot: u64) -> Option<(u64, u64)> {
        self.snapshots.range(..snapshot).next_back().map(|(id, descriptor)| (*id, descriptor.size))
    }

    /// An upper bound for the number of entries that describe snapshots, or take as much room.
    pub(super) fn descriptions(&self) -> usize {
        /// What is restored is said in entries of 32 bytes: four of them are shorter than a description.
        const MARKS_A_DESCRIPTION: usize = 4;
        let marks = self.rollback.as_ref().map_or(0, |rollback| rollback.marks() / MARKS_A_DESCRIPTION + 2);
        self.snapshots.len() + 2 * self.leaving.len() + marks
    }

    /// Looks at up to `entries` entries of a snapshot that is leaving. Returns the bytes of the store that are no
    /// longer needed.
    pub(super) fn reclaim(&mut self, entries: usize) -> Vec<Extent> {
        let Some((&id, leaving)) = self.leaving.first_key_value() else { return Vec::new() };
        let heir = self.heir(id).filter(|_| !self.skip_hand_over);
        let (freed, next) = self.map.reclaim(id, heir, leaving.next, entries);
        match next {
            Some(next) => self.leaving.get_mut(&id).expect("just found").next = next,
            None => drop(self.leaving.remove(&id)),
        }
        freed
    }

    /// Applies one entry. Returns the bytes of the store that are no longer needed.
    pub(super) fn apply(&mut self, entry: &Entry) -> Result<Vec<Extent>, StoreError> {
        match entry {
            Entry::Preserved { mapping, .. } => {
                // The snapshot may have been removed while the content was on its way: then an older one needs it.
                Ok(self.map.hand_over(*mapping, self.heir(mapping.snapshot.saturating_add(1))))
            }
            Entry::Written(mapping) => {
                if !self.holds(mapping.snapshot, mapping.extent) {
                    return Err(StoreError::Corrupt(
                        "C1: a snapshot that does not exist was written, or one beyond its end",
                    ));
                }
                Ok(self.map.insert_written(*mapping))
            }
            Entry::Created(descriptor) => {
                let known = self.snapshots.get(&descriptor.id);
                if known.is_some_and(|known| known.name != descriptor.name) {
                    return Err(StoreError::Corrupt("C2: two snapshots have one id"));
                }
                self.next_snapshot = self.next_snapshot.max(descriptor.id + 1);
                self.snapshots.insert(descriptor.id, descriptor.clone());
                Ok(Vec::new())
            }
            Entry::Removed(id) => {
                let descriptor = self.known(*id)?.clone();
                if self.rollback.as_ref().is_some_and(|rollback| rollback.snapshot == *id) {
                    return Err(StoreError::Corrupt(
                        "the snapshot to which the origin is rolled back was removed",
                    ));
                }
                self.snapshots.remove(id);
                self.leaving.insert(*id, Leaving { descriptor, next: (0, 0) });
                Ok(Vec::new())
            }
            Entry::Flags { snapshot, read_only, held } => {
                self.known(*snapshot)?;
                let descriptor = self.snapshots.get_mut(snapshot).expect("just found");
                (descriptor.read_only, descriptor.held) = (*read_only, *held);
                Ok(Vec::new())
            }
            Entry::RollbackBegun { snapshot, boundary } => {
                let size = self.known(*snapshot)?.size;
                if self.rollback.is_some() {
                    return Err(StoreError::Corrupt("a rollback begins before another one has ended"));
                }
                self.next_snapshot = self.next_snapshot.max(*boundary); // C2
                self.rollback = Some(Rollback::new(*snapshot, *boundary, size));
                Ok(Vec::new())
            }
            Entry::Restored { snapshot, extent } => {
                // Who restored it may come after the one who restored the last, and said that all is done.
                if let Some(rollback) = self.rollback.as_mut().filter(|known| known.snapshot == *snapshot) {
                    rollback.restore(*extent);
                }
                Ok(Vec::new())
            }
            Entry::RollbackEnded(_) => {
                self.rollback = None;
                Ok(Vec::new())
            }
        }
    }

    fn known(&self, id: u64) -> Result<&Descriptor, StoreError> {
        self.snapshots.get(&id).ok_or(StoreError::Corrupt("an entry names a snapshot that does not exist"))
    }

    /// The shortest log that says the same.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let (preserved, written) = self.map.mappings();
        let leaving = self.leaving.values().map(|leaving| &leaving.descriptor);
        let created = self.snapshots.values().chain(leaving).cloned().map(Entry::Created);
        let preserved = preserved.into_iter().map(|mapping| Entry::Preserved { mapping, checksum: 0 });
        let written = written.into_iter().map(Entry::Written);
        let removed = self.leaving.keys().map(|id| Entry::Removed(*id));
        let rollback = self.rollback.iter().flat_map(Rollback::entries);
        created.chain(preserved).chain(written).chain(removed).chain(rollback).collect()
    }
}
