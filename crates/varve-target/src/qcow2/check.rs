//! Whether an image's tables agree with each other, checked as `qemu-img check` does.

use super::Image;
use varve_block::IoError;
use varve_format::qcow2::refcount;

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
