//! Whether an image's tables agree with each other, checked as `qemu-img check` does; and whether all that they lead to is in the file.
//!
//! Invariants:
//! - QEND1. An image is read or written only if all that its tables lead to is before the end of its file, as far as its disk shows
//!   it. An image that was cut off would show zeros, and give them to what is below it.
//! - QEND2. What is taken in the file moves `data_end` behind it, so an entry that leads there is damage.

use super::tables::mapping::{Mapped, Mapping};
use super::tables::root::Root;
use super::{Image, OpenError};
use std::cell::RefCell;
use varve_block::{Access, Extent, IoError};
use varve_format::qcow2::{OFFSET_MASK, Qcow2Error, SECTOR, refcount};

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Clusters that are counted as in use more often than they are. They cost space, and nothing else.
    pub leaks: u64,
    /// Contradictions that may cost data.
    pub corruptions: u64,
    /// The first of them in words.
    pub told: Vec<String>,
    /// Clusters of the disk that have a place in the file.
    pub allocated_clusters: u64,
    /// Those of them that are compressed.
    pub compressed_clusters: u64,
    /// Clusters that the disk has.
    pub total_clusters: u64,
    /// The end of the last cluster in use.
    pub end: u64,
}

impl Image {
    /// QEND1. All tables are walked only if counts cannot tell.
    pub(super) async fn check_end(&self) -> Result<(), OpenError> {
        let end = self.data_end.get();
        let size = self.header.cluster_size();
        for (root, what) in [(&self.l1, "an L2 table"), (&self.refcount_table, "a refcount block")] {
            if let Some(offset) = self.table_behind_end(root) {
                return Err(OpenError::cut_off(what, Extent::new(offset, size), end));
            }
        }
        let mut data_end = end;
        if self.header.dirty || self.counts_behind_end().await? {
            let walk = self.walk().await?;
            if let Some((what, extent)) = walk.missing {
                return Err(OpenError::cut_off(&what, extent, end));
            }
            let used = walk.counts.used().next_back();
            data_end = data_end.max(used.map_or(0, |last| (last + 1) * size));
        }
        let unit = if self.access() == Access::ReadWrite { size } else { SECTOR };
        self.data_end.set(data_end.next_multiple_of(unit));
        assert!(self.data_end.get() >= end, "QEND2: it never falls");
        Ok(())
    }

    /// The first table that `root` leads to and that is not all in the file.
    fn table_behind_end(&self, root: &RefCell<Root>) -> Option<u64> {
        let size = self.header.cluster_size();
        let offsets = root.borrow();
        let mut offsets = offsets.entries().iter().map(|entry| entry & OFFSET_MASK);
        // Where no cluster begins is no table: an error of who needs it.
        let end = self.data_end.get();
        offsets.find(|offset| *offset > 0 && offset.is_multiple_of(size) && offset + size > end)
    }

    /// Whether a cluster that is not all in the file counts as in use.
    async fn counts_behind_end(&self) -> Result<bool, IoError> {
        let (width, size) = (self.header.refcount_width, self.header.cluster_size());
        let (first, per_block) = (self.data_end.get() / size, self.counts_per_block());
        let blocks = self.refcount_table.borrow().entries().len() as u64;
        for number in first / per_block..blocks {
            let block = self.refcount_table.borrow().get(number) & OFFSET_MASK;
            if block == 0 || !block.is_multiple_of(size) {
                continue;
            }
            let bytes = self.file.read(block, size).await?;
            let from = first.saturating_sub(number * per_block);
            if (from..per_block).any(|at| refcount(&bytes, width, at) > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What of a run is in the file (QEND1, QEND2).
    pub(super) fn in_file(&self, here: Mapped) -> Result<Mapped, Qcow2Error> {
        let end = self.data_end.get().min(self.file.size());
        match here.mapping {
            Mapping::Data { offset, .. } | Mapping::Compressed { offset, .. } if offset >= end => {
                Err(Qcow2Error::Truncated("data"))
            }
            Mapping::Data { offset, .. } => Ok(Mapped { length: here.length.min(end - offset), ..here }),
            Mapping::Compressed { .. } | Mapping::Zero | Mapping::Unallocated => Ok(here),
        }
    }

    /// Reads all tables, as they are in the file, and compares them. For images that are not being written.
    pub async fn check(&self) -> Result<Report, IoError> {
        let mut walk = self.walk().await?;
        let blocks = self.refcount_blocks(&mut walk).await?;
        let (width, size) = (self.header.refcount_width, self.header.cluster_size());
        let per_block = self.counts_per_block();
        let mut report = Report { total_clusters: self.header.size.div_ceil(size), ..Report::default() };
        let mut copied = std::mem::take(&mut walk.copied);
        copied.sort_unstable();
        let mut counted = 0;
        for (number, block) in blocks {
            let bytes = self.file.read(block, size).await?;
            for at in 0..per_block {
                let cluster = number * per_block + at;
                let (count, references) = (refcount(&bytes, width, at), walk.counts.get(cluster));
                counted += u64::from(references > 0);
                if count > references {
                    report.leaks += 1;
                } else if count < references {
                    walk.corrupt(format!(
                        "cluster {cluster} has {references} references and a count of {count}"
                    ));
                }
                if count > 0 {
                    report.end = (cluster + 1) * size;
                }
                let first = copied.partition_point(|(other, _)| *other < cluster);
                for (_, copied) in copied[first..].iter().take_while(|(other, _)| *other == cluster) {
                    if *copied != (count == 1) {
                        walk.corrupt(format!(
                            "cluster {cluster} with a count of {count} has a wrong COPIED flag"
                        ));
                    }
                }
            }
        }
        let uncounted = (walk.counts.used().count() as u64).saturating_sub(counted);
        if uncounted > 0 {
            walk.corrupt(format!("{uncounted} clusters in use have no count"));
        }
        report.corruptions = walk.corruptions;
        report.told = walk.told;
        report.allocated_clusters = walk.allocated;
        report.compressed_clusters = walk.compressed;
        Ok(report)
    }
}
