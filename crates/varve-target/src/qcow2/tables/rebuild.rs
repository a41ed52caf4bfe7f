//! Reference counts made anew: for images that were left dirty, whose refcount table is too short, or that are new.
//!
//! Invariant QREBUILD1: the new table and its blocks lie behind all that is in use, the old ones included, and are durable
//! before the header leads to them.

use super::super::file::{File, index};
use super::super::{Image, OpenError, read_refcount_table};
use super::counts::Counts;
use varve_block::IoError;
use varve_format::qcow2::{Header, RefcountWidth, set_refcount};

/// Where a new refcount table is.
pub(in crate::qcow2) struct NewTable {
    pub(in crate::qcow2) offset: u64,
    pub(in crate::qcow2) clusters: u32,
    /// The end of its blocks, which follow it.
    pub(in crate::qcow2) end: u64,
}

/// Writes counts for all clusters of the file that have references, behind cluster `first`, with a table for all of the file.
pub(in crate::qcow2) async fn write_counts(
    file: &File,
    width: RefcountWidth,
    cluster_size: u64,
    counts: &mut Counts,
    first: u64,
) -> Result<NewTable, IoError> {
    let per_block = width.counts_in(cluster_size);
    let entries = width.table_entries(file.size(), cluster_size);
    let clusters = (entries * 8).div_ceil(cluster_size).max(1);
    let mut used: Vec<u64> = counts.used().map(|cluster| cluster / per_block).collect();
    used.dedup();
    // The table and the blocks are counted in blocks, too.
    let mut blocks = used.len() as u64;
    let all = loop {
        let own = first / per_block..=(first + clusters + blocks - 1) / per_block;
        let mut all: Vec<u64> = used.iter().copied().chain(own).collect();
        all.sort_unstable();
        all.dedup();
        if all.len() as u64 <= blocks {
            break all;
        }
        blocks = all.len() as u64;
    };
    assert!(all.len() as u64 == blocks, "QREBUILD1: each block has its place");
    let end = first + clusters + blocks;
    if end * cluster_size > file.size() {
        return Err(IoError::NoSpace);
    }
    (first..end).for_each(|cluster| counts.add(cluster));
    let mut table = vec![0; index(clusters * cluster_size)];
    for (place, number) in (first + clusters..).zip(all) {
        let mut block = vec![0; index(cluster_size)];
        for at in 0..per_block {
            let count = counts.get(number * per_block + at);
            if count > width.count_max() {
                return Err(IoError::Corrupt);
            }
            set_refcount(&mut block, width, at, count);
        }
        let at = index(number * 8);
        let entry = table.get_mut(at..at + 8).ok_or(IoError::NoSpace)?;
        entry.copy_from_slice(&(place * cluster_size).to_be_bytes());
        file.write_table(place * cluster_size, &block).await?;
    }
    file.write_table(first * cluster_size, &table).await?;
    file.flush().await?;
    let clusters = u32::try_from(clusters).map_err(|_| IoError::NoSpace)?;
    Ok(NewTable { offset: first * cluster_size, clusters, end: end * cluster_size })
}

impl Image {
    /// Counts all references, and writes them to a new refcount table (QREBUILD1).
    pub(in crate::qcow2) async fn rebuild_refcounts(&mut self) -> Result<(), OpenError> {
        let mut walk = self.walk().await?;
        let size = self.header.cluster_size();
        let mut old = super::counts::Walk::default();
        self.refcount_blocks(&mut old).await?;
        let last = walk.counts.used().next_back().max(old.counts.used().next_back());
        let first = last.map_or(1, |last| last + 1);
        let table =
            write_counts(&self.file, self.header.refcount_width, size, &mut walk.counts, first).await?;
        assert!(table.offset >= first * size, "QREBUILD1");
        Header::put_refcount_table(self.first_sector.get_mut(), table.offset, table.clusters);
        self.write_first_sector().await?;
        self.file.flush().await?;
        self.header.refcount_table_offset = table.offset;
        self.header.refcount_table_clusters = table.clusters;
        self.header.dirty = false;
        tracing::info!("the reference counts of a qcow2 image were made anew");
        self.data_end.set(table.end.max(self.data_end.get())); // QEND2
        let table = read_refcount_table(&self.file, &self.header).await?;
        self.refcount_table.replace(table);
        Ok(())
    }
}
