//! The map of an exception store: which bytes of which snapshot lie where in the store.
//!
//! Two maps in one space. What was *preserved* for snapshots is found by (chunk, snapshot), so that the content of
//! snapshot S is the first entry at or after (chunk, S) that covers a part. What was *written* to a snapshot is found
//! by (snapshot, part) and seen by no other snapshot.
//!
//! Both lie in the persistent tree and are in memory as far as the cache has room for them. A question comes in two
//! forms: an attempt, which answers at once if what it needs is in memory ([`Stop`] otherwise), and a method of the
//! same name that loads what is missing, one node after the other, and asks again. Nothing is locked meanwhile. What
//! an entry of the log does to the maps is a series of steps; each changes maps, marks of space and counts at once.
//!
//! Invariants:
//! - STOREMAP1. What is preserved or written consists of whole parts.
//! - STOREMAP2. No block of the store belongs to two pieces of content.
//! - STOREMAP3. The bytes of a snapshot are counted with every step.

mod preserved;
mod run;
mod walk;
mod written;

pub(super) use run::{Run, Source, push_extent};
pub(super) use walk::Readable;

use super::repair::report::report;
use crate::pdata::{self, AllocClass, Alone, MapError, Pages, Stop, Tree};
use preserved::Preserved;
use run::{Found, push_run};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::yield_now;
use varve_block::{Extent, IoError};
use varve_format::pdata::Block;
use varve_format::pdata::written::NO_PLACE;
use varve_format::store::{Mapping, PART_SIZE, Roots, STORE_SIZE_MAX, Uuid, ZEROS};
use written::WrittenMap;

/// How many bytes of the store belong to a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotBytes {
    /// What was preserved while it was the newest, and older snapshots may share.
    pub preserved: u64,
    /// What was written to it.
    pub written: u64,
}

/// A snapshot that gets what another one leaves behind: its id and its size.
pub(super) type NextOlder = Option<(u64, u64)>;

/// The maps of a store.
pub(super) struct Map {
    /// The id of the store.
    store: Uuid,
    /// The blocks of the store.
    blocks: Rc<pdata::Map>,
    chunk_size: u64,
    preserved: Cell<Preserved>,
    written: Cell<WrittenMap>,
    bytes: RefCell<BTreeMap<u64, SnapshotBytes>>,
}

/// How many entries a write replaces before others get their turn.
const WRITE_STEPS: usize = 256;

/// Whose number of bytes changes, and how.
#[derive(Clone, Copy)]
enum Count {
    Preserved(u32, i64),
    Written(u32, i64),
}

impl Map {
    pub(super) fn new(store: Uuid, blocks: Rc<pdata::Map>, roots: Roots, chunk_size: u64) -> Self {
        assert!(chunk_size.is_power_of_two() && chunk_size >= PART_SIZE);
        let parts = u32::try_from(chunk_size / PART_SIZE).expect("a chunk has few parts");
        Self {
            store,
            blocks,
            chunk_size,
            preserved: Cell::new(Preserved { tree: Tree { root: roots.preserved }, parts }),
            written: Cell::new(WrittenMap { tree: Tree { root: roots.written } }),
            bytes: RefCell::default(),
        }
    }

    /// The roots as they are now, for a superblock.
    pub(super) fn roots(&self) -> Roots {
        Roots { preserved: self.preserved.get().tree.root, written: self.written.get().tree.root }
    }

    /// Bytes of a chunk.
    pub(super) fn chunk_size(&self) -> u64 {
        self.chunk_size
    }

    /// The parts of `extent` of which the origin's content must be preserved for `snapshot`, the newest one, before
    /// they change: those that nothing is preserved of since it was taken, be it for one that is being deleted.
    pub(super) fn missing_if_loaded(&self, snapshot: u64, extent: Extent) -> Result<Vec<Extent>, Stop> {
        self.try_missing(&mut self.blocks.pages(), snapshot, extent)
    }

    /// As [`Map::missing_if_loaded`], loading what it needs.
    pub(super) async fn missing(&self, snapshot: u64, extent: Extent) -> Result<Vec<Extent>, IoError> {
        self.run(|pages| self.try_missing(pages, snapshot, extent)).await
    }

    pub(super) fn try_missing(
        &self,
        pages: &mut Pages,
        snapshot: u64,
        extent: Extent,
    ) -> Result<Vec<Extent>, Stop> {
        let (first, end) = parts_of(extent);
        let found = self.preserved.get().find(pages, short(snapshot)..=u32::MAX, first, end)?;
        let mut missing: Vec<Extent> = Vec::new();
        let holes = found.into_iter().filter(|found| found.place.is_none());
        holes.for_each(|hole| push_extent(&mut missing, hole.run().extent));
        Ok(missing)
    }

    /// Where the bytes of `extent` of `snapshot` are, in order, and what keeps them there while it is held.
    #[cfg(test)]
    pub(super) async fn resolve(
        &self,
        snapshot: u64,
        extent: Extent,
    ) -> Result<(Vec<Run>, pdata::InUse), IoError> {
        self.run(|pages| Ok((self.try_resolve(pages, snapshot, extent)?, pages.in_use()))).await
    }

    /// Where the bytes of `extent` of `snapshot` are, in order.
    pub(super) fn try_resolve(
        &self,
        pages: &mut Pages,
        snapshot: u64,
        extent: Extent,
    ) -> Result<Vec<Run>, Stop> {
        let mut runs = Vec::new();
        let (first, end) = parts_of(extent);
        let Ok(snapshot) = u32::try_from(snapshot) else {
            return Ok(vec![Run { extent, source: Source::Below }]); // The origin.
        };
        for own in self.written.get().find(pages, snapshot, first, end)? {
            match own.place {
                Some(_) => push_run(&mut runs, own.run()),
                None => self
                    .preserved
                    .get()
                    .find(pages, snapshot..=u32::MAX, own.first, own.end())?
                    .into_iter()
                    .for_each(|found| push_run(&mut runs, found.run())),
            }
        }
        assert_eq!(
            runs.iter().map(|run| run.extent.length).sum::<u64>(),
            extent.length,
            "STOREMAP1: every byte has a source"
        );
        Ok(runs)
    }

    /// Where the bytes of `extent` are that were written to `snapshot`; [`Source::Below`] where it was not.
    pub(super) async fn resolve_written(&self, snapshot: u64, extent: Extent) -> Result<Vec<Run>, IoError> {
        let (first, end) = parts_of(extent);
        let found = self.run(|pages| self.written.get().find(pages, short(snapshot), first, end)).await?;
        let mut runs = Vec::new();
        found.into_iter().for_each(|found| push_run(&mut runs, found.run()));
        Ok(runs)
    }

    /// A wrong [`Map::try_resolve`], for the tests of the oracle: what was written to newer snapshots, `all`, is
    /// taken for what was preserved.
    pub(super) fn try_resolve_confused(
        &self,
        pages: &mut Pages,
        all: impl Iterator<Item = u64>,
        snapshot: u64,
        extent: Extent,
    ) -> Result<Vec<Run>, Stop> {
        let (first, end) = parts_of(extent);
        let mut search = run::Search::new(first, end);
        for id in all.filter(|id| *id >= snapshot).map(short) {
            let own = self.written.get().find(pages, id, first, end)?;
            let kept = self.preserved.get().find(pages, id..=id, first, end)?;
            own.into_iter()
                .chain(kept)
                .filter(|found| found.place.is_some())
                .for_each(|found| search.fill(found));
        }
        let mut runs = Vec::new();
        search.finish().into_iter().for_each(|found| push_run(&mut runs, found.run()));
        Ok(runs)
    }

    /// Enters the content of `mapping`, which was preserved for its snapshot, for `next_older`, the newest that is
    /// there and not newer, as far as no snapshot between has it (SNAPREMOVE3). What is not needed is freed.
    pub(super) async fn keep(
        &self,
        mapping: Mapping,
        class: AllocClass,
        next_older: impl Fn() -> NextOlder,
    ) -> Result<(), IoError> {
        assert!(mapping.extent.is_aligned(PART_SIZE) && mapping.place != ZEROS, "STOREMAP1: {mapping:?}");
        let (mut content, owner) = (content_of(mapping), short(mapping.snapshot));
        while content.count > 0 {
            let step = |pages: &mut Pages| {
                let mut preserved = self.preserved.get();
                let next_older = next_older().map(|(next_older, size)| (short(next_older), size / PART_SIZE));
                let needed =
                    next_older.and_then(|(next_older, size)| Some((next_older, content.clip(0, size)?)));
                let Some((next_older, needed)) = needed else {
                    free_run(pages, content);
                    return Ok(content.count);
                };
                let step = preserved.insert(pages, class, next_older..=owner.max(next_older), needed)?;
                if step.entered {
                    self.count(Count::Preserved(next_older, bytes(step.count)));
                } else {
                    free_run(pages, Found { count: step.count, ..content });
                }
                self.preserved.set(preserved);
                Ok(step.count)
            };
            let done = self.run(step).await?;
            content = behind(content, done);
        }
        Ok(())
    }

    /// Notes that `mapping`'s snapshot was written, yielding to other tasks now and then.
    pub(super) async fn write(&self, mapping: Mapping, class: AllocClass) -> Result<(), IoError> {
        let mut left = mapping;
        loop {
            left = self.write_some(left, class, false, |_| ()).await.map_err(|(_, error)| error)?;
            if left.extent.is_empty() {
                return Ok(());
            }
            yield_now().await;
        }
    }

    /// Notes that the beginning of `mapping`'s snapshot was written, in [`WRITE_STEPS`] steps at most; `noted` is called
    /// for each. What it had there is freed. What is left to be noted; an error comes with it too.
    pub(super) async fn write_some(
        &self,
        mapping: Mapping,
        class: AllocClass,
        unpublished: bool,
        noted: impl Fn(Mapping),
    ) -> Result<Mapping, (Mapping, IoError)> {
        assert!(mapping.extent.is_aligned(PART_SIZE), "STOREMAP1: {mapping:?}");
        let (mut content, mut steps, snapshot) = (content_of(mapping), WRITE_STEPS, short(mapping.snapshot));
        let mapping_of = |content: Found| Mapping {
            snapshot: mapping.snapshot,
            extent: run::extent_of(content.first, content.count),
            place: content.place.unwrap_or(NO_PLACE).offset(),
        };
        while content.count > 0 && steps > 0 {
            let step = |pages: &mut Pages| {
                let mut written = self.written.get();
                let old = written.insert(pages, class, snapshot, content)?;
                let now = Found { count: old.count, ..content };
                let stored = |found: Found| found.blocks().map_or(0, |run| bytes(run.count));
                self.count(Count::Written(snapshot, stored(now) - stored(old)));
                free_run(pages, old);
                if let Some(run) = now.blocks().filter(|_| unpublished) {
                    pages.publish(run);
                }
                self.written.set(written);
                noted(mapping_of(now));
                Ok(now.count)
            };
            match self.run(step).await {
                Ok(done) => (content, steps) = (behind(content, done), steps - 1),
                Err(error) => return Err((mapping_of(content), error)),
            }
        }
        Ok(mapping_of(content))
    }

    /// Which parts of `extent`, of which `snapshot` was not written, it finds where `newer` does, in the store.
    pub(super) fn try_shared(
        &self,
        pages: &mut Pages,
        (snapshot, newer): (u64, u64),
        extent: Extent,
    ) -> Result<Vec<Extent>, Stop> {
        assert!(snapshot <= newer, "the older one is asked for");
        let (preserved, (first, end)) = (self.preserved.get(), parts_of(extent));
        let mut shared = Vec::new();
        let own = self.written.get().find(pages, short(snapshot), first, end)?;
        for hole in own.into_iter().filter(|own| own.place.is_none()) {
            let one = preserved.find(pages, short(snapshot)..=u32::MAX, hole.first, hole.end())?;
            let two = preserved.find(pages, short(newer)..=u32::MAX, hole.first, hole.end())?;
            shared.extend(run::same(&one, &two).map(|found| found.run().extent));
        }
        Ok(shared)
    }

    /// Drops what is preserved of `extent` for `snapshot` and newer ones, those of the newest first: an older one never finds
    /// what was preserved for them instead (ROLLBACK8 of `rollback.rs`).
    pub(super) async fn drop_preserved(
        &self,
        snapshot: u64,
        extent: Extent,
        class: AllocClass,
    ) -> Result<(), IoError> {
        let (first, end) = parts_of(extent);
        assert!(first < end, "something is dropped");
        let step = |pages: &mut Pages| {
            let mut preserved = self.preserved.get();
            let dropped = preserved.take_newest(pages, class, short(snapshot), first, end)?;
            if let Some((owner, content)) = dropped {
                self.count(Count::Preserved(owner, -bytes(content.count)));
                free_run(pages, content);
                self.preserved.set(preserved);
            }
            Ok(dropped.is_some())
        };
        while self.run(step).await? {}
        Ok(())
    }

    /// Looks at some entries, at most `entries`, from `from` on, of `snapshot`, which is being deleted. What was
    /// preserved for it and `next_older` still needs is merged into that, the rest freed. Returns how many entries
    /// it looked at, and the key at which to go on, unless all is done.
    pub(super) async fn reclaim(
        &self,
        snapshot: u64,
        next_older: impl Fn() -> NextOlder,
        from: u128,
        entries: usize,
    ) -> Result<(usize, Option<u128>), MapError> {
        assert!(entries > 0, "a batch leads on");
        let deleting = short(snapshot);
        self.blocks
            .run(|pages| {
                let mut written = self.written.get();
                if let Some(own) = written.take_first(pages, AllocClass::Normal, deleting)? {
                    self.written.set(written);
                    if own.place != Some(NO_PLACE) {
                        self.count(Count::Written(deleting, -bytes(own.count)));
                    }
                    free_run(pages, own);
                    return Ok((1, Some(from)));
                }
                self.try_reclaim(pages, deleting, next_older(), from, entries)
            })
            .await
    }

    fn try_reclaim(
        &self,
        pages: &mut Pages,
        deleting: u32,
        next_older: NextOlder,
        from: u128,
        entries: usize,
    ) -> Result<(usize, Option<u128>), Stop> {
        let mut preserved = self.preserved.get();
        let next_older = next_older.map(|(next_older, size)| (short(next_older), size / PART_SIZE));
        let leaf = preserved.tree.span(pages, from)?;
        let entries_of_leaf = preserved.decode_all(pages, leaf.entries())?;
        let start = leaf.entries().partition_point(|entry| entry.0 < from);
        let end = leaf.entries().len().min(start.saturating_add(entries));
        let key_at = |index: usize| leaf.entries().get(index).map(|entry| entry.0).or(leaf.end);
        let reclaimed = preserved.reclaim(&entries_of_leaf, start..end, deleting, next_older);
        assert!((start..=end).contains(&reclaimed.end), "SNAPREMOVE2: a step leads on, and not too far");
        if reclaimed.changed {
            preserved.tree.edit(pages, &Alone, from, reclaimed.entries, AllocClass::Normal)?;
            let freed: u64 = reclaimed.freed.iter().map(|content| content.count).sum();
            self.count(Count::Preserved(deleting, -bytes(reclaimed.merged + freed)));
            if let Some((next_older, _)) = next_older {
                self.count(Count::Preserved(next_older, bytes(reclaimed.merged)));
            }
            reclaimed.freed.into_iter().for_each(|content| free_run(pages, content));
            self.preserved.set(preserved);
        }
        if reclaimed.end > start || start == end {
            return Ok(((reclaimed.end - start).max(1), key_at(reclaimed.end)));
        }
        // What the entries of its leaf do not tell.
        let entry = entries_of_leaf[start];
        let step = preserved.merge_into(pages, AllocClass::Normal, entry, next_older)?;
        self.count(Count::Preserved(deleting, -bytes(step.count)));
        match next_older {
            Some((next_older, _)) if step.entered => {
                self.count(Count::Preserved(next_older, bytes(step.count)));
            }
            _ => free_run(pages, Found { count: step.count, ..preserved.of_entry(entry) }),
        }
        self.preserved.set(preserved);
        Ok((1, Some(entry.key())))
    }

    fn count(&self, count: Count) {
        let mut all = self.bytes.borrow_mut();
        let (id, number, change) = match count {
            Count::Preserved(id, change) => {
                (u64::from(id), &mut all.entry(u64::from(id)).or_default().preserved, change)
            }
            Count::Written(id, change) => {
                (u64::from(id), &mut all.entry(u64::from(id)).or_default().written, change)
            }
        };
        // A check reports what a damaged table counts wrong; no decision about space relies on it.
        *number = number.saturating_add_signed(change).min(STORE_SIZE_MAX);
        if all.get(&id) == Some(&SnapshotBytes::default()) {
            all.remove(&id);
        }
    }

    /// The bytes of the store that belong to each snapshot (STOREMAP3).
    pub(super) fn bytes(&self) -> BTreeMap<u64, SnapshotBytes> {
        self.bytes.borrow().clone()
    }

    /// All entries of a removed snapshot are gone: what a damaged table still counts for it is, too.
    pub(super) fn forget_bytes(&self, snapshot: u64) {
        self.bytes.borrow_mut().remove(&snapshot);
    }

    /// What the table of snapshots says of a snapshot's bytes.
    pub(super) fn set_bytes(&self, snapshot: u64, bytes: SnapshotBytes) {
        self.bytes.borrow_mut().insert(snapshot, bytes);
    }

    /// What a request receives for an error of the maps.
    pub(super) fn report(&self, error: MapError) -> IoError {
        report(self.store, error)
    }

    /// Carries out an attempt, loading what it needs.
    pub(super) async fn run<T>(
        &self,
        attempt: impl FnMut(&mut Pages) -> Result<T, Stop>,
    ) -> Result<T, IoError> {
        self.blocks.run(attempt).await.map_err(|error| self.report(error))
    }
}

/// Frees the blocks of content, if it has any.
fn free_run(pages: &mut Pages, content: Found) {
    if let Some(run) = content.blocks() {
        pages.free_run(run);
    }
}

fn content_of(mapping: Mapping) -> Found {
    let (first, end) = parts_of(mapping.extent);
    Found { first, count: end - first, place: Some(Block::at(mapping.place)) }
}

/// What is behind the first `count` parts.
fn behind(content: Found, count: u64) -> Found {
    assert!((1..=content.count).contains(&count), "a step leads on");
    let place = content.place.map(|place| run::advance(place, count));
    Found { first: content.first + count, count: content.count - count, place }
}

/// The first part of an extent, and the first behind it.
fn parts_of(extent: Extent) -> (u64, u64) {
    assert!(extent.is_aligned(PART_SIZE), "STOREMAP1: {extent:?}");
    (extent.offset / PART_SIZE, extent.end() / PART_SIZE)
}

fn bytes(parts: u64) -> i64 {
    i64::try_from(parts * PART_SIZE).expect("a store is shorter than that")
}

/// The id of a snapshot as the maps hold it.
fn short(snapshot: u64) -> u32 {
    u32::try_from(snapshot).expect("ENTRY3: ids have 32 bits")
}

#[cfg(test)]
mod tests;
