//! How many references each cluster of an image has, counted from its tables.

use super::super::Image;
use super::super::file::index;
use super::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use varve_block::{Extent, IoError};
use varve_format::qcow2::{COPIED, Cluster, Entry, OFFSET_MASK, SECTOR, bitmap_cluster, table_offset};

/// Counts of a page.
const PAGE: u64 = 1024;
/// Findings that are reported in words; more are counted.
const TOLD_MAX: usize = 50;

/// References by cluster.
#[derive(Default)]
pub(in crate::qcow2) struct Counts {
    pages: BTreeMap<u64, Box<[u32]>>,
}

impl Counts {
    pub(in crate::qcow2) fn add(&mut self, cluster: u64) {
        let page = self.pages.entry(cluster / PAGE).or_insert_with(|| vec![0; index(PAGE)].into());
        let count = &mut page[index(cluster % PAGE)];
        *count = count.saturating_add(1);
    }

    pub(in crate::qcow2) fn get(&self, cluster: u64) -> u64 {
        self.pages.get(&(cluster / PAGE)).map_or(0, |page| page[index(cluster % PAGE)].into())
    }

    /// Clusters that have references, in order.
    pub(in crate::qcow2) fn used(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.pages.iter().flat_map(|(page, counts)| {
            let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
            used.map(move |(at, _)| page * PAGE + at as u64)
        })
    }
}

/// What a walk over all tables found.
#[derive(Default)]
pub(in crate::qcow2) struct Walk {
    pub(in crate::qcow2) counts: Counts,
    /// Entries of the disk that say of what they lead to that it has one reference, or more: by cluster.
    pub(in crate::qcow2) copied: Vec<(u64, bool)>,
    pub(in crate::qcow2) corruptions: u64,
    pub(in crate::qcow2) told: Vec<String>,
    /// What is not all in the file, and where it should be: the last of that (QEND1).
    pub(in crate::qcow2) missing: Option<(String, Extent)>,
    /// Clusters of the disk that have a place.
    pub(in crate::qcow2) allocated: u64,
    pub(in crate::qcow2) compressed: u64,
}

impl Walk {
    pub(in crate::qcow2) fn corrupt(&mut self, what: String) {
        self.corruptions += 1;
        assert!(self.told.len() <= TOLD_MAX, "what is told is bounded");
        if self.told.len() < TOLD_MAX {
            self.told.push(what);
        }
    }
}

impl Walk {
    /// QEND1: `what` should be in `extent`, and the file ends before that does.
    fn miss(&mut self, what: &str, extent: Extent) {
        self.corrupt(format!("{what} at byte {} lies behind the file's end", extent.offset));
        if self.missing.as_ref().is_none_or(|(_, last)| last.end() < extent.end()) {
            self.missing = Some((what.to_owned(), extent));
        }
    }
}

impl Image {
    /// Counts the references of all tables but the refcount table and its blocks.
    pub(in crate::qcow2) async fn walk(&self) -> Result<Walk, IoError> {
        let mut walk = Walk::default();
        walk.counts.add(0); // The header.
        let shown = Root::new(self.l1.borrow().offset(), self.l1.borrow().entries().to_vec());
        self.walk_l1(&mut walk, &shown, Some(self.header.size), true).await?;
        if self.header.snapshots > 0 {
            let length = self.snapshot_table_length().await?;
            // It is padded to 8 bytes, of which the file need not have the last ones.
            let (table, needed) =
                (Extent::new(self.header.snapshots_offset, length), length.saturating_sub(7));
            self.refer_to_part(&mut walk, table, needed, "the table of snapshots");
        }
        self.walk_bitmaps(&mut walk).await?;
        for snapshot in &self.snapshots {
            let length = u64::from(snapshot.l1_entries) * 8;
            if snapshot.l1_offset + length > self.data_end.get() {
                let what = format!("the L1 table of snapshot {}", snapshot.name);
                walk.miss(&what, Extent::new(snapshot.l1_offset, length));
                continue;
            }
            let l1 = Root::read(&self.file, snapshot.l1_offset, snapshot.l1_entries.into()).await?;
            self.walk_l1(&mut walk, &l1, snapshot.size, false).await?;
        }
        Ok(walk)
    }

    /// Counts what persistent bitmaps take.
    async fn walk_bitmaps(&self, walk: &mut Walk) -> Result<(), IoError> {
        let Some(directory) = self.header.bitmaps else { return Ok(()) };
        self.refer(walk, Extent::new(directory.offset, directory.length), "the directory of bitmaps");
        for bitmap in self.bitmaps() {
            let table = Extent::new(bitmap.table_offset, u64::from(bitmap.table_entries) * 8);
            if table.end() > self.data_end.get() {
                walk.miss("the table of a bitmap", table);
                continue;
            }
            self.refer(walk, table, "the table of a bitmap");
            let entries = Root::read(&self.file, table.offset, bitmap.table_entries.into()).await?;
            for &entry in entries.entries() {
                match bitmap_cluster(entry, self.header.cluster_size()) {
                    Ok(None) => {}
                    Ok(Some(offset)) => {
                        self.refer(walk, Extent::new(offset, self.header.cluster_size()), "bits");
                    }
                    Err(error) => walk.corrupt(format!("bitmap {}: {error}", bitmap.name)),
                }
            }
        }
        Ok(())
    }

    async fn snapshot_table_length(&self) -> Result<u64, IoError> {
        let there = self.file.size().saturating_sub(self.header.snapshots_offset);
        let bytes =
            self.file.read(self.header.snapshots_offset, there.min(super::super::SNAPSHOT_TABLE_MAX)).await?;
        let decoded = varve_format::qcow2::decode_snapshots(&bytes, &self.header);
        decoded.map(|(_, length)| length as u64).map_err(|_| IoError::Corrupt)
    }

    /// Counts a reference to each cluster of `extent`, all of which is needed.
    pub(in crate::qcow2) fn refer(&self, walk: &mut Walk, extent: Extent, what: &str) {
        self.refer_to_part(walk, extent, extent.length, what);
    }

    /// Counts a reference to each cluster of `extent`, of which the first `needed` bytes must be in the file (QEND1).
    fn refer_to_part(&self, walk: &mut Walk, extent: Extent, needed: u64, what: &str) {
        assert!(needed <= extent.length, "QEND1: a part is needed");
        if extent.offset + needed > self.data_end.get() {
            return walk.miss(what, extent);
        }
        if extent.offset >= self.file.size() {
            return walk.corrupt(format!("{what} at byte {} lies behind the file's end", extent.offset));
        }
        extent.pieces(self.header.cluster_size()).for_each(|(cluster, _)| walk.counts.add(cluster));
    }

    /// Of the cluster `number` of a disk of `disk` bytes, how many must be in the file.
    fn needed_of(&self, entry: &Entry, number: u64, disk: Option<u64>) -> u64 {
        let size = self.header.cluster_size();
        let parts = u64::from(u32::BITS - entry.subclusters.allocated.leading_zeros());
        let behind = disk.map_or(size, |disk| disk.saturating_sub(number * size));
        (parts * self.header.subcluster_size()).min(behind)
    }

    /// Walks a table of a disk of `disk` bytes.
    async fn walk_l1(
        &self,
        walk: &mut Walk,
        l1: &Root,
        disk: Option<u64>,
        is_active: bool,
    ) -> Result<(), IoError> {
        self.refer(walk, Extent::new(l1.offset(), l1.entries().len() as u64 * 8), "an L1 table");
        let size = self.header.cluster_size();
        let mut seen = BTreeSet::new();
        for (first, &entry) in (0..).step_by(index(self.header.l2_entries())).zip(l1.entries()) {
            match table_offset(entry, &self.header, "L1 table") {
                Ok(None) => {}
                Ok(Some(table)) if table + size > self.data_end.get() => {
                    walk.miss("an L2 table", Extent::new(table, size));
                }
                Ok(Some(table)) if !seen.insert(table) => {
                    walk.corrupt(format!("two L1 entries lead to byte {table}"));
                }
                Ok(Some(table)) => {
                    self.refer(walk, Extent::new(table, size), "an L2 table");
                    if is_active {
                        walk.copied.push((table / size, entry & COPIED != 0));
                    }
                    self.walk_l2(walk, table, (first, disk), is_active).await?;
                }
                Err(error) => walk.corrupt(error.to_string()),
            }
        }
        Ok(())
    }

    /// Walks the table at `table`, the first of whose entries is that of cluster `first` of a disk of so many bytes.
    async fn walk_l2(
        &self,
        walk: &mut Walk,
        table: u64,
        (first, disk): (u64, Option<u64>),
        is_active: bool,
    ) -> Result<(), IoError> {
        let size = self.header.cluster_size();
        let bytes = self.file.read(table, size).await?;
        assert_eq!(bytes.len() as u64, size, "QCOUNT1: all of a table is counted");
        for number in 0..self.header.l2_entries() {
            let entry = match Entry::decode(&bytes, number, &self.header) {
                Ok(entry) => entry,
                Err(error) => {
                    walk.corrupt(format!("entry {number} of the L2 table at byte {table}: {error}"));
                    continue;
                }
            };
            match entry.cluster {
                Cluster::Absent => continue,
                Cluster::At { offset, copied } => {
                    let needed = self.needed_of(&entry, first + number, disk);
                    self.refer_to_part(walk, Extent::new(offset, size), needed, "data");
                    if is_active {
                        walk.copied.push((offset / size, copied));
                    }
                }
                Cluster::Compressed { offset, length } => {
                    // Where in its last sector it ends is not known.
                    let needed = length.saturating_sub(SECTOR - 1).max(1);
                    self.refer_to_part(walk, Extent::new(offset, length), needed, "a compressed cluster");
                    walk.compressed += u64::from(is_active);
                }
            }
            walk.allocated += u64::from(is_active);
        }
        Ok(())
    }

    /// The refcount blocks that the table leads to, by number.
    pub(in crate::qcow2) async fn refcount_blocks(
        &self,
        walk: &mut Walk,
    ) -> Result<Vec<(u64, u64)>, IoError> {
        let length = u64::from(self.header.refcount_table_clusters) * self.header.cluster_size();
        let table = Root::read(&self.file, self.header.refcount_table_offset, length / 8).await?;
        self.refer(walk, Extent::new(table.offset(), length), "the refcount table");
        let mut blocks = Vec::new();
        for (number, &entry) in (0_u64..).zip(table.entries()) {
            match table_offset(entry, &self.header, "refcount table") {
                Ok(Some(block)) if block + self.header.cluster_size() > self.data_end.get() => {
                    walk.miss("a refcount block", Extent::new(block, self.header.cluster_size()));
                }
                Ok(Some(block)) => blocks.push((number, block)),
                Ok(None) => {}
                _ => walk
                    .corrupt(format!("refcount block {number} at byte {} is not there", entry & OFFSET_MASK)),
            }
        }
        assert!(blocks.is_sorted_by_key(|(number, _)| *number), "QCOUNT2: blocks stand in the table's order");
        for &(_, block) in &blocks {
            self.refer(walk, Extent::new(block, self.header.cluster_size()), "a refcount block");
        }
        Ok(blocks)
    }
}
