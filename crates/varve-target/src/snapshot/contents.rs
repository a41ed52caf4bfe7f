//! The snapshots of a store, as its table and its log say; and what one entry does, to them or to the maps.
//!
//! One function applies an entry, whether it has just become durable or is replayed after a crash; so what is in
//! memory and what the log says are the same by construction.
//!
//! Invariants:
//! - CONTENTS1. Every mapping belongs to a snapshot that exists and is inside it.
//! - CONTENTS2. Ids grow with time and none is used twice.
//! - CONTENTS3. A table names a snapshot only once the log has said that it exists, and it is not visible before: what was
//!   refused never comes back.

use super::StoreError;
use super::map::{Map, NextOlder, SnapshotBytes};
use super::rollback::Rollback;
use crate::pdata::AllocClass;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use varve_block::Extent;
use varve_format::store::{Descriptor, ENTRY_CAPACITY, ENTRY_LENGTH_MAX, Entry, PART_SIZE, RESTORED_LENGTH};

/// What a table and a log say besides the maps.
pub(super) struct Contents {
    pub snapshots: BTreeMap<u64, Descriptor>,
    /// Those of them of which the log has not said so yet: what changes is preserved for them already (CONTENTS3).
    announced: BTreeSet<u64>,
    /// The snapshots that were removed and still have entries.
    pub deleting: BTreeMap<u64, Deleting>,
    /// The id of the next snapshot.
    pub next_snapshot: u64,
    /// The rollback of the origin that is under way.
    pub rollback: Option<Rollback>,
    /// Bytes of the origin; 0 where that is not there.
    origin_size: u64,
    /// Do not merge what an older snapshot needs; for the tests of the oracle only.
    pub skip_merge: bool,
    /// Let the table name what was only announced; for the tests of the oracle only.
    pub name_announced: bool,
}

/// A snapshot that was removed and still has entries.
pub(super) struct Deleting {
    pub descriptor: Descriptor,
    /// The first key of preserved content that was not looked at yet.
    pub next: u128,
}

/// Applies `entry`, which is durable. What is no longer needed is freed.
pub(super) async fn apply(
    map: &Map,
    contents: &RefCell<Contents>,
    class: AllocClass,
    entry: &Entry,
) -> Result<(), StoreError> {
    match entry {
        Entry::Preserved { mapping, .. } => {
            // The snapshot may have been removed while the content was on its way: then an older one needs it.
            map.keep(*mapping, class, || contents.borrow().next_older(mapping.snapshot + 1)).await?;
            Ok(())
        }
        Entry::Written(mapping) => {
            if !contents.borrow().holds(mapping.snapshot, mapping.extent) {
                return Err(StoreError::Corrupt(
                    "CONTENTS1: a snapshot that does not exist was written, or one beyond its end",
                ));
            }
            map.write(*mapping, class).await?;
            Ok(())
        }
        Entry::Dropped { snapshot, extent } => {
            if !contents.borrow().holds(*snapshot, *extent) {
                return Err(StoreError::Corrupt(
                    "CONTENTS1: what was preserved for a snapshot that does not exist was dropped, or beyond its end",
                ));
            }
            map.drop_preserved(*snapshot, *extent, class).await?;
            Ok(())
        }
        Entry::Bytes { snapshot, preserved, written } => {
            let known = contents.borrow();
            if !known.snapshots.contains_key(snapshot) && !known.deleting.contains_key(snapshot) {
                return Err(StoreError::Corrupt("bytes are counted for a snapshot that does not exist"));
            }
            map.set_bytes(*snapshot, SnapshotBytes { preserved: *preserved, written: *written });
            Ok(())
        }
        _ => contents.borrow_mut().apply(entry),
    }
}

impl Contents {
    pub(super) fn new(next_snapshot: u64) -> Self {
        Self {
            snapshots: BTreeMap::new(),
            announced: BTreeSet::new(),
            deleting: BTreeMap::new(),
            next_snapshot,
            rollback: None,
            origin_size: 0,
            skip_merge: false,
            name_announced: false,
        }
    }

    /// The origin has so many bytes (ROLLBACK7 of `rollback.rs`).
    pub(super) fn set_origin_size(&mut self, bytes: u64) {
        assert!(bytes.is_multiple_of(PART_SIZE), "an origin is made of whole parts");
        self.origin_size = bytes;
        self.rollback.iter_mut().for_each(|rollback| rollback.resize_origin(bytes));
    }

    /// Whether an origin of `origin_size` bytes can be that of these snapshots: none is larger, for an origin never becomes
    /// smaller than its newest.
    pub(super) fn check_sizes(&self, origin_size: u64) -> Result<(), StoreError> {
        if self.snapshots.values().any(|descriptor| descriptor.size > origin_size) {
            return Err(StoreError::Misfit("the origin is smaller than one of its snapshots"));
        }
        if self.rollback.as_ref().is_some_and(|known| known.target_size > origin_size) {
            return Err(StoreError::Misfit(
                "the origin is smaller than the snapshot to which it is rolled back",
            ));
        }
        Ok(())
    }

    /// What a table and a log say of snapshots when all of it was applied: two do not have one name.
    pub(super) fn check_names(&self) -> Result<(), StoreError> {
        let names: BTreeSet<&str> =
            self.snapshots.values().map(|descriptor| descriptor.name.as_str()).collect();
        match names.len() == self.snapshots.len() {
            true => Ok(()),
            false => Err(StoreError::Corrupt("two snapshots have one name")),
        }
    }

    /// A snapshot is about to be logged: from now on what changes is preserved for it.
    pub(super) fn announce(&mut self, descriptor: Descriptor) {
        assert!(self.snapshots.keys().all(|known| *known < descriptor.id), "CONTENTS2: ids grow");
        self.next_snapshot = self.next_snapshot.max(descriptor.id + 1);
        self.announced.insert(descriptor.id);
        self.snapshots.insert(descriptor.id, descriptor);
        self.assert_consistent();
    }

    /// Ids are below the next one, and what is announced or rolled back to is there; where debug assertions are compiled in,
    /// nothing is there and gone at once.
    pub(super) fn assert_consistent(&self) {
        let last = self.snapshots.last_key_value().map(|(id, _)| *id);
        assert!(last.is_none_or(|id| id < self.next_snapshot), "CONTENTS2: ids grow");
        let is_gone = |id: &u64| !self.snapshots.contains_key(id);
        debug_assert!(self.deleting.keys().all(is_gone), "SNAPREMOVE1: what is being deleted is not there");
        assert!(!self.announced.iter().any(is_gone), "CONTENTS3: what is announced is there");
        let target = self.rollback.as_ref().map(|rollback| rollback.snapshot);
        assert!(!target.iter().any(is_gone), "ROLLBACK2: the target is there");
    }

    /// A snapshot that was announced is not in the log and will not be. Nothing has been entered for it (CONTENTS3).
    pub(super) fn withdraw(&mut self, id: u64) {
        assert!(self.announced.remove(&id), "CONTENTS3: what is withdrawn was announced");
        self.snapshots.remove(&id);
        self.assert_consistent();
    }

    /// The visible snapshots, the oldest first.
    pub(super) fn visible(&self) -> impl Iterator<Item = &Descriptor> {
        self.snapshots.values().filter(|descriptor| !self.announced.contains(&descriptor.id))
    }

    /// The snapshot `id`, if it is visible.
    pub(super) fn visible_one(&self, id: u64) -> Option<&Descriptor> {
        self.snapshots.get(&id).filter(|_| !self.announced.contains(&id))
    }

    /// CONTENTS1: whether `snapshot` exists and `extent` is inside it.
    pub(super) fn holds(&self, snapshot: u64, extent: Extent) -> bool {
        self.snapshots.get(&snapshot).is_some_and(|descriptor| extent.end() <= descriptor.size)
    }

    /// The snapshot for which the origin's content is preserved now: its id and size.
    pub(super) fn newest(&self) -> Option<(u64, u64)> {
        self.snapshots.last_key_value().map(|(id, descriptor)| (*id, descriptor.size))
    }

    /// The next snapshot older than `snapshot`, which gets what was preserved for that: its id and size.
    pub(super) fn next_older(&self, snapshot: u64) -> NextOlder {
        self.snapshots.range(..snapshot).next_back().map(|(id, descriptor)| (*id, descriptor.size))
    }

    /// The most blocks that a table takes, if one more snapshot is made, or one more part is restored.
    pub(super) fn table_blocks(&self) -> u64 {
        // A removed snapshot has an entry more, and each has one for its bytes.
        const OTHERS: usize = 64;
        let all = self.snapshots.values().chain(self.deleting.values().map(|deleting| &deleting.descriptor));
        let lengths = all.map(|descriptor| descriptor.entry_length() + OTHERS);
        let marks = self.rollback.as_ref().map_or(0, |rollback| (rollback.marks() + 2) * RESTORED_LENGTH);
        let bytes: usize = lengths.sum::<usize>() + marks + ENTRY_LENGTH_MAX + OTHERS;
        bytes.div_ceil(ENTRY_CAPACITY - ENTRY_LENGTH_MAX) as u64
    }

    /// Applies an entry that concerns no map.
    pub(super) fn apply(&mut self, entry: &Entry) -> Result<(), StoreError> {
        match entry {
            Entry::Preserved { .. } | Entry::Written(_) | Entry::Dropped { .. } | Entry::Bytes { .. } => {
                unreachable!("this entry concerns a map")
            }
            Entry::Created(descriptor) => {
                let known = self.snapshots.get(&descriptor.id);
                let is_other = known.is_some_and(|known| known.name != descriptor.name);
                if is_other || self.deleting.contains_key(&descriptor.id) {
                    return Err(StoreError::Corrupt("CONTENTS2: two snapshots have one id"));
                }
                self.next_snapshot = self.next_snapshot.max(descriptor.id + 1);
                self.announced.remove(&descriptor.id);
                self.snapshots.insert(descriptor.id, descriptor.clone());
                Ok(())
            }
            Entry::Removed(id) => {
                let descriptor = self.known(*id)?.clone();
                if self.rollback.as_ref().is_some_and(|rollback| rollback.snapshot == *id) {
                    return Err(StoreError::Corrupt(
                        "the snapshot to which the origin is rolled back was removed",
                    ));
                }
                self.snapshots.remove(id);
                self.deleting.insert(*id, Deleting { descriptor, next: 0 });
                self.assert_consistent();
                Ok(())
            }
            Entry::Flags { snapshot, read_only, held, base } => {
                self.known(*snapshot)?;
                let descriptor = self.snapshots.get_mut(snapshot).expect("just found");
                (descriptor.read_only, descriptor.held, descriptor.base) = (*read_only, *held, *base);
                Ok(())
            }
            Entry::Renamed { snapshot, name } => {
                self.known(*snapshot)?;
                self.snapshots.get_mut(snapshot).expect("just found").name.clone_from(name);
                Ok(())
            }
            Entry::RollbackBegun { snapshot, boundary } => {
                let size = self.known(*snapshot)?.size;
                if self.rollback.is_some() {
                    return Err(StoreError::Corrupt("a rollback begins before another one has ended"));
                }
                self.next_snapshot = self.next_snapshot.max(*boundary); // CONTENTS2
                self.rollback = Some(Rollback::new(*snapshot, *boundary, size, self.origin_size));
                Ok(())
            }
            Entry::Restored { snapshot, extent } => {
                // This entry may follow the end of the rollback, which the task that restored the last part has logged.
                if let Some(rollback) = self.rollback.as_mut().filter(|known| known.snapshot == *snapshot) {
                    rollback.restore(*extent);
                }
                Ok(())
            }
            Entry::RollbackEnded(id) => match &self.rollback {
                Some(rollback) if rollback.snapshot != *id => {
                    Err(StoreError::Corrupt("a rollback ends that is not under way"))
                }
                _ => {
                    self.rollback = None;
                    Ok(())
                }
            },
        }
    }

    fn known(&self, id: u64) -> Result<&Descriptor, StoreError> {
        self.snapshots.get(&id).ok_or(StoreError::Corrupt("an entry names a snapshot that does not exist"))
    }

    /// The table of snapshots, which have so many bytes.
    pub(super) fn table(&self, bytes: &BTreeMap<u64, SnapshotBytes>) -> Vec<Entry> {
        let deleting = self.deleting.values().map(|deleting| &deleting.descriptor);
        let named = |descriptor: &&Descriptor| {
            self.name_announced || !self.announced.contains(&descriptor.id) // CONTENTS3
        };
        let created = self.snapshots.values().filter(named).chain(deleting).cloned().map(Entry::Created);
        let kept = |(snapshot, bytes): (&u64, &SnapshotBytes)| Entry::Bytes {
            snapshot: *snapshot,
            preserved: bytes.preserved,
            written: bytes.written,
        };
        created.chain(bytes.iter().map(kept)).chain(self.endings()).collect()
    }

    /// What the table says behind everything else.
    pub(super) fn endings(&self) -> impl Iterator<Item = Entry> {
        let removed = self.deleting.keys().map(|id| Entry::Removed(*id));
        removed.chain(self.rollback.iter().flat_map(Rollback::entries))
    }
}
