//! Walks over the maps of a store, leaf by leaf, so that memory stays bounded however much there is.
//!
//! A walk is not of one instant: what changes while it goes on may or may not be seen. It never misses content that
//! is there all the time, though a removal may move it to an older snapshot: those who care look at whole chunks.

use super::preserved::decode;
use super::run::Found;
use super::{Heir, Map, report, short, written};
use crate::pdata::{Leaf, Tree};
use std::ops::Range;
use varve_block::{Extent, IoError};
use varve_format::pdata::exception::exception_key;
use varve_format::pdata::node::{Entries, Key};
use varve_format::pdata::written::{NO_PLACE, written_key};
use varve_format::store::{Mapping, PART_SIZE, ZEROS};

/// What a walk over differences does next.
pub(in crate::snapshot) struct Window {
    /// Extents, in order, in which two snapshots can differ; the bytes between them are the same.
    pub touched: Vec<Extent>,
    /// The key at which to go on.
    pub next: Option<Key>,
}

impl Map {
    async fn leaf(&self, tree: impl Fn() -> Tree, from: Key) -> Result<Leaf, IoError> {
        self.blocks.run(|pages| tree().leaf(pages, from)).await.map_err(report)
    }

    /// What was preserved, in the order of the map, from `from` on: some mappings, and the key at which to go on.
    pub(in crate::snapshot) async fn preserved_from(
        &self,
        from: Key,
    ) -> Result<(Vec<Mapping>, Option<Key>), IoError> {
        let leaf = self.leaf(|| self.preserved.get().tree, from).await?;
        let mapping = |entry| {
            let entry = decode(entry);
            mapping(entry.snapshot, self.preserved.get().of_entry(entry))
        };
        Ok((leaf.entries.into_iter().map(mapping).collect(), leaf.next))
    }

    /// As [`Map::preserved_from`], of what was written.
    pub(in crate::snapshot) async fn written_from(
        &self,
        from: Key,
    ) -> Result<(Vec<Mapping>, Option<Key>), IoError> {
        let leaf = self.leaf(|| self.written.get().tree, from).await?;
        let mapping = |entry| {
            let entry = written::decode(entry);
            mapping(entry.snapshot, written::of(entry))
        };
        Ok((leaf.entries.into_iter().map(mapping).collect(), leaf.next))
    }

    /// What was preserved for one of `snapshots` or written to one of `writers`, in the part of the map that begins
    /// at `from` and ends with a leaf. Neighbours may come twice.
    pub(in crate::snapshot) async fn touched(
        &self,
        snapshots: Range<u64>,
        writers: &[u64],
        from: Key,
    ) -> Result<Window, IoError> {
        assert!(snapshots.start <= snapshots.end, "snapshots are ordered by age");
        let leaf = self.leaf(|| self.preserved.get().tree, from).await?;
        let parts = u64::from(self.preserved.get().parts);
        let chunks =
            |entry: &varve_format::pdata::exception::Exception| entry.chunk * parts..entry.end() * parts;
        let entries = leaf.entries.into_iter().map(decode);
        let between = entries.filter(|entry| snapshots.contains(&u64::from(entry.snapshot)));
        let mut touched: Vec<Range<u64>> = between.map(|entry| chunks(&entry)).collect();
        // The chunk on the border is looked at in any case: what a removal moves meanwhile does not leave it.
        let end = leaf.next.map_or(u64::MAX / PART_SIZE, |next| ((next >> 64) as u64 + 1) * parts);
        if leaf.next.is_some() {
            touched.push(end - parts..end);
        }
        let first = (from >> 64) as u64 * parts;
        for snapshot in writers.iter().copied().filter(|id| *id <= u64::from(u32::MAX)) {
            let own = self.blocks.run(|pages| self.written.get().find(pages, short(snapshot), first, end));
            let own = own.await.map_err(report)?.into_iter().filter(|found| found.place.is_some());
            touched.extend(own.map(|found| found.first..found.end()));
        }
        touched.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in touched {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        let extent = |range: Range<u64>| Extent::between(range.start * PART_SIZE, range.end * PART_SIZE);
        Ok(Window { touched: joined.into_iter().map(extent).collect(), next: leaf.next })
    }

    /// How many bytes of the store a removal of `snapshot` would find to be no longer needed.
    pub(in crate::snapshot) async fn frees(&self, snapshot: u64, heir: Heir) -> Result<u64, IoError> {
        let own = self.bytes.borrow().get(&snapshot).copied().unwrap_or_default();
        let (leaving, mut needed, mut from) = (short(snapshot), 0, Some(exception_key(0, 0, 0)));
        let Some((heir, size)) = heir.map(|(heir, size)| (short(heir), size / PART_SIZE)) else {
            return Ok(own.preserved + own.written);
        };
        while let Some(key) = from {
            let leaf = self.leaf(|| self.preserved.get().tree, key).await?;
            for entry in leaf.entries.into_iter().map(decode).filter(|entry| entry.snapshot == leaving) {
                let preserved = self.preserved.get();
                let Some(inside) = preserved.of_entry(entry).clip(0, size) else { continue };
                let found = self
                    .run(|pages| {
                        self.preserved.get().find(pages, heir..=leaving - 1, inside.first, inside.end())
                    })
                    .await?;
                let holes = found.into_iter().filter(|found| found.place.is_none());
                needed += holes.map(|hole| hole.count).sum::<u64>();
            }
            from = leaf.next;
        }
        Ok((own.preserved + own.written).saturating_sub(needed * PART_SIZE))
    }

    /// Visits every block that the maps lead to: nodes, then content. For checks.
    pub(in crate::snapshot) async fn visit_blocks(
        &self,
        mut visit: impl FnMut(Extent),
    ) -> Result<u64, IoError> {
        let mut nodes = 0;
        let mut stack = vec![self.preserved.get().tree.root, self.written.get().tree.root];
        while let Some(address) = stack.pop() {
            if address == 0 {
                continue;
            }
            let node = self.run(|pages| pages.node(address)).await?;
            nodes += 1;
            visit(Extent::new(address * PART_SIZE, PART_SIZE));
            if let Entries::Branch(children) = &node.entries {
                stack.extend(children.iter().rev().map(|child| child.1));
            }
        }
        for written in [false, true] {
            let mut from = Some(if written { written_key(0, 0) } else { exception_key(0, 0, 0) });
            while let Some(key) = from {
                let (mappings, next) =
                    if written { self.written_from(key).await? } else { self.preserved_from(key).await? };
                let stored = mappings.into_iter().filter(|mapping| mapping.place != ZEROS);
                stored.for_each(|mapping| visit(Extent::new(mapping.place, mapping.extent.length)));
                from = next;
            }
        }
        Ok(nodes)
    }
}

fn mapping(snapshot: u32, found: Found) -> Mapping {
    let place = found.place.unwrap_or(NO_PLACE) * PART_SIZE;
    Mapping {
        snapshot: u64::from(snapshot),
        extent: Extent::new(found.first * PART_SIZE, found.count * PART_SIZE),
        place,
    }
}
