//! Walks over the maps of a store, leaf by leaf, so that memory stays bounded however much there is.
//!
//! A walk is not of one instant: what changes while it goes on may or may not be seen. It never misses content that
//! is there all the time, though a removal may move it to an older snapshot: where that matters, callers look at whole chunks.

use super::run::Found;
use super::{Map, NextOlder, SnapshotBytes, short, written};
use crate::pdata::{Down, Pages, Stop};
use std::collections::BTreeMap;
use std::ops::Range;
use varve_block::{Extent, IoError};
use varve_format::pdata::BlockRun;
use varve_format::pdata::exception::{Exception, exception_key};
use varve_format::pdata::node::{Entries, Key, Value};
use varve_format::pdata::written::{NO_PLACE, Written, written_key};
use varve_format::store::{Mapping, PART_SIZE};

/// What a walk over differences does next.
pub(in crate::snapshot) struct Window {
    /// Extents, in order, in which two snapshots can differ; the bytes between them are the same.
    pub touched: Vec<Extent>,
    /// The key at which to go on.
    pub next: Option<Key>,
}

/// Part of a map that may be damaged.
#[derive(Clone, Copy, Debug)]
pub(in crate::snapshot) enum Readable {
    /// An entry.
    Found {
        /// What it says.
        mapping: Mapping,
        /// Its key.
        key: Key,
        /// The last key that it stands for: no other entry's key is between.
        last_key: Key,
    },
    /// Nothing is known of the keys from the first one on, up to the other.
    Lost(Key, Option<Key>),
}

/// What a walk over all blocks came across.
#[derive(Debug, Default)]
pub(in crate::snapshot) struct Visited {
    /// Nodes of the maps.
    pub nodes: u64,
    /// Bytes of each snapshot.
    pub bytes: BTreeMap<u64, SnapshotBytes>,
}

impl Map {
    /// The entries at or after `from` of its leaf, and where the next leaf begins.
    pub(super) async fn preserved_leaf(&self, from: Key) -> Result<(Vec<Exception>, Option<Key>), IoError> {
        self.run(|pages| {
            let preserved = self.preserved.get();
            let leaf = preserved.tree.leaf(pages, from)?;
            Ok((preserved.decode_all(pages, &leaf.entries)?, leaf.next))
        })
        .await
    }

    /// As [`Map::preserved_leaf`], of what was written.
    async fn written_leaf(&self, from: Key) -> Result<(Vec<Written>, Option<Key>), IoError> {
        self.run(|pages| {
            let written = self.written.get();
            let leaf = written.tree.leaf(pages, from)?;
            Ok((written.decode_all(pages, &leaf.entries)?, leaf.next))
        })
        .await
    }

    /// What was preserved, in the order of the map, from `from` on: some mappings, and the key at which to go on.
    pub(in crate::snapshot) async fn preserved_from(
        &self,
        from: Key,
    ) -> Result<(Vec<Mapping>, Option<Key>), IoError> {
        let (entries, next) = self.preserved_leaf(from).await?;
        assert!(next.is_none_or(|next| next > from), "NODE4: leaves follow each other");
        let mapping = |entry: Exception| mapping(entry.snapshot, self.preserved.get().of_entry(entry));
        Ok((entries.into_iter().map(mapping).collect(), next))
    }

    /// As [`Map::preserved_from`], of what was written.
    pub(in crate::snapshot) async fn written_from(
        &self,
        from: Key,
    ) -> Result<(Vec<Mapping>, Option<Key>), IoError> {
        let (entries, next) = self.written_leaf(from).await?;
        assert!(next.is_none_or(|next| next > from), "NODE4: leaves follow each other");
        let mapping = |entry: Written| mapping(entry.snapshot, written::of(entry));
        Ok((entries.into_iter().map(mapping).collect(), next))
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
        let (entries, next) = self.preserved_leaf(from).await?;
        let parts = u64::from(self.preserved.get().parts);
        let chunks = |entry: &Exception| entry.chunk * parts..entry.end() * parts;
        let between = entries.into_iter().filter(|entry| snapshots.contains(&u64::from(entry.snapshot)));
        let mut touched: Vec<Range<u64>> = between.map(|entry| chunks(&entry)).collect();
        // The chunk on the border is looked at in any case: what a removal moves meanwhile does not leave it.
        let end = next.map_or(u64::MAX / PART_SIZE, |next| {
            ((next >> 64) as u64).saturating_add(1).saturating_mul(parts)
        });
        let end = end.min(u64::MAX / PART_SIZE);
        if next.is_some() {
            touched.push(end - parts..end);
        }
        let first = ((from >> 64) as u64).saturating_mul(parts).min(end);
        for snapshot in writers.iter().copied().filter(|id| *id <= u64::from(u32::MAX)) {
            let own = self.blocks.run(|pages| self.written.get().find(pages, short(snapshot), first, end));
            let own = own
                .await
                .map_err(|error| self.report(error))?
                .into_iter()
                .filter(|found| found.place.is_some());
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
        Ok(Window { touched: joined.into_iter().map(extent).collect(), next })
    }

    /// How many bytes of the store a removal of `snapshot` would find to be no longer needed.
    pub(in crate::snapshot) async fn frees(
        &self,
        snapshot: u64,
        next_older: NextOlder,
    ) -> Result<u64, IoError> {
        let own = self.bytes.borrow().get(&snapshot).copied().unwrap_or_default();
        let (deleting, mut needed, mut from) = (short(snapshot), 0, Some(exception_key(0, 0, 0)));
        let Some((next_older, size)) =
            next_older.map(|(next_older, size)| (short(next_older), size / PART_SIZE))
        else {
            return Ok(own.preserved + own.written);
        };
        while let Some(key) = from {
            let (entries, next) = self.preserved_leaf(key).await?;
            for entry in entries.into_iter().filter(|entry| entry.snapshot == deleting) {
                let preserved = self.preserved.get();
                let Some(inside) = preserved.of_entry(entry).clip(0, size) else { continue };
                let found = self
                    .run(|pages| {
                        self.preserved.get().find(
                            pages,
                            next_older..=deleting - 1,
                            inside.first,
                            inside.end(),
                        )
                    })
                    .await?;
                let holes = found.into_iter().filter(|found| found.place.is_none());
                needed += holes.map(|hole| hole.count).sum::<u64>();
            }
            from = next;
        }
        Ok((own.preserved + own.written).saturating_sub(needed * PART_SIZE))
    }

    /// Everything that can be read of a map, in its order, and between it the keys of which nothing is known. An error only
    /// if the device is gone.
    pub(in crate::snapshot) async fn readable(
        &self,
        written: bool,
        mut visit: impl FnMut(Readable),
    ) -> Result<(), IoError> {
        let root = if written { self.written.get().tree.root } else { self.preserved.get().tree.root };
        let mut stack = if root.is_none() { Vec::new() } else { vec![Down::root(root)] };
        while let Some(down) = stack.pop() {
            let read = self.run(|pages| {
                let node = down.node(pages)?;
                let mappings = match &node.entries {
                    Entries::Leaf(entries) => self.readable_leaf(pages, entries, written)?,
                    Entries::Branch(_) => Vec::new(),
                };
                Ok((node, mappings))
            });
            match read.await {
                Err(IoError::Gone) => return Err(IoError::Gone),
                Err(_) => visit(Readable::Lost(down.low, down.high)),
                Ok((node, mappings)) => {
                    mappings.into_iter().for_each(&mut visit);
                    if let Entries::Branch(children) = &node.entries {
                        let below = (0..children.len()).rev();
                        stack.extend(below.map(|index| down.to_child(&node, children, index)));
                    }
                }
            }
        }
        Ok(())
    }

    fn readable_leaf(
        &self,
        pages: &mut Pages,
        entries: &[(Key, Value)],
        written: bool,
    ) -> Result<Vec<Readable>, Stop> {
        if written {
            let entries = self.written.get().decode_all(pages, entries)?.into_iter();
            let found = |entry: Written| Readable::Found {
                mapping: mapping(entry.snapshot, written::of(entry)),
                key: entry.key(),
                last_key: written_key(entry.snapshot, entry.end() - 1),
            };
            return Ok(entries.map(found).collect());
        }
        let preserved = self.preserved.get();
        let found = |entry: Exception| Readable::Found {
            mapping: mapping(entry.snapshot, preserved.of_entry(entry)),
            key: entry.key(),
            last_key: entry.last_key(),
        };
        Ok(preserved.decode_all(pages, entries)?.into_iter().map(found).collect())
    }

    /// Visits every block that the maps lead to: nodes, then content, until `visit` says that there is no sense in going
    /// on: what shares a place with something else leads anywhere. How much it came across. For checks.
    pub(in crate::snapshot) async fn visit_blocks(
        &self,
        mut visit: impl FnMut(BlockRun) -> bool,
    ) -> Result<Visited, IoError> {
        let mut visited = Visited::default();
        for root in [self.preserved.get().tree.root, self.written.get().tree.root] {
            let mut stack = if root.is_none() { Vec::new() } else { vec![Down::root(root)] };
            while let Some(down) = stack.pop() {
                let node = self.run(|pages| down.node(pages)).await?;
                visited.nodes += 1;
                if !visit(BlockRun::one(down.address())) {
                    return Ok(visited);
                }
                if let Entries::Branch(children) = &node.entries {
                    let below = (0..children.len()).rev().map(|index| down.to_child(&node, children, index));
                    stack.extend(below);
                }
            }
        }
        for written in [false, true] {
            let mut from = Some(if written { written_key(0, 0) } else { exception_key(0, 0, 0) });
            while let Some(key) = from {
                let (mappings, next) =
                    if written { self.written_from(key).await? } else { self.preserved_from(key).await? };
                for (mapping, stored) in
                    mappings.iter().filter_map(|mapping| Some((mapping, mapping.stored()?)))
                {
                    let bytes = visited.bytes.entry(mapping.snapshot).or_default();
                    let of_kind = if written { &mut bytes.written } else { &mut bytes.preserved };
                    *of_kind += mapping.extent.length;
                    if !visit(BlockRun::of(stored)) {
                        return Ok(visited);
                    }
                }
                from = next;
            }
        }
        Ok(visited)
    }
}

fn mapping(snapshot: u32, found: Found) -> Mapping {
    let place = found.place.unwrap_or(NO_PLACE).offset();
    Mapping {
        snapshot: u64::from(snapshot),
        extent: Extent::new(found.first * PART_SIZE, found.count * PART_SIZE),
        place,
    }
}
