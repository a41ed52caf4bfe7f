//! A table that is in memory as a whole, and written by sectors: L1 tables and the refcount table.

use super::super::file::{File, index};
use std::collections::BTreeSet;
use varve_block::{Bytes, Extent, IoError};
use varve_format::qcow2::SECTOR;

#[derive(Debug)]
pub(in crate::qcow2) struct Root {
    offset: u64,
    entries: Vec<u64>,
    dirty: BTreeSet<u64>,
}

impl Root {
    pub(in crate::qcow2) fn new(offset: u64, entries: Vec<u64>) -> Self {
        assert!(offset.is_multiple_of(SECTOR), "a table lies where a cluster begins");
        Self { offset, entries, dirty: BTreeSet::new() }
    }

    pub(in crate::qcow2) async fn read(file: &File, offset: u64, entries: u64) -> Result<Self, IoError> {
        let bytes = file.read(offset, entries * 8).await?;
        let entry = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
        Ok(Self::new(offset, bytes.chunks_exact(8).map(entry).collect()))
    }

    pub(in crate::qcow2) fn offset(&self) -> u64 {
        self.offset
    }

    /// Where it is, in clusters of `cluster_size` bytes.
    pub(in crate::qcow2) fn extent(&self, cluster_size: u64) -> Extent {
        Extent::new(self.offset, (self.entries.len() as u64 * 8).next_multiple_of(cluster_size))
    }

    pub(in crate::qcow2) fn entries(&self) -> &[u64] {
        &self.entries
    }

    /// Entry number `at`; 0 behind the last.
    pub(in crate::qcow2) fn get(&self, at: u64) -> u64 {
        self.entries.get(index(at)).copied().unwrap_or(0)
    }

    /// Changes entry number `at`. It is written by the next commit.
    pub(in crate::qcow2) fn set(&mut self, at: u64, entry: u64) {
        assert!(at < self.entries.len() as u64, "entry {at} is one of the table's");
        self.entries[index(at)] = entry;
        self.dirty.insert(at * 8 / SECTOR);
    }

    /// Sectors that were taken could not be written.
    pub(in crate::qcow2) fn not_written(&mut self, sectors: &[(u64, Bytes)]) {
        self.dirty.extend(sectors.iter().map(|(offset, _)| (offset - self.offset) / SECTOR));
        assert!(
            self.dirty.last().is_none_or(|last| last * SECTOR / 8 < self.entries.len() as u64),
            "they are the table's"
        );
    }

    /// The sectors of the file that changed since they were taken last.
    pub(in crate::qcow2) fn take_dirty(&mut self, file: &File) -> Vec<(u64, Bytes)> {
        let per_sector = index(SECTOR / 8);
        let sector = |number: u64| {
            let first = index(number) * per_sector;
            let entries = self.entries.iter().skip(first).take(per_sector);
            let mut bytes: Vec<u8> = entries.flat_map(|entry| entry.to_be_bytes()).collect();
            bytes.resize(index(SECTOR), 0);
            (self.offset + number * SECTOR, file.arena().copy(&bytes))
        };
        std::mem::take(&mut self.dirty).into_iter().map(sector).collect()
    }
}
