//! Zeros and discards: whole subclusters are marked, the rest is written.

use super::Image;
use super::tables::mapping::subclusters;
use varve_block::{Durability, Extent, IoError, KIB, LockMode, MIB, ZeroOptions, align_up};
use varve_format::qcow2::{Cluster, Entry, Subclusters};

/// Bytes of zeros that are written at once.
const ZEROS_MAX: u64 = 256 * KIB;
/// The most bytes that are marked at once, but for large clusters.
const STEP: u64 = 256 * MIB;

impl Image {
    pub(super) async fn zero(&self, extent: Extent, options: ZeroOptions) -> Result<(), IoError> {
        self.check_writable()?;
        match self.taker() {
            Some(below) => self.zero_below(below, extent, options).await?,
            None => self.zero_here(extent, options).await?,
        }
        match options.durability {
            Durability::Volatile => Ok(()),
            Durability::Durable => self.commit().await,
        }
    }

    async fn zero_here(&self, extent: Extent, options: ZeroOptions) -> Result<(), IoError> {
        let marks = self.header.version > 2 || self.header.backing.is_none();
        let middle = if marks { self.whole_parts(extent) } else { Extent::new(extent.offset, 0) };
        if options.fast && !marks {
            return Err(IoError::Unsupported);
        }
        self.write_zeros(Extent::between(extent.offset, middle.offset)).await?;
        self.mark(middle, options.unmap).await?;
        if self.header.extended_l2 {
            self.write_zeros(middle).await?; // Parts of compressed clusters cannot be marked.
        }
        self.write_zeros(Extent::between(middle.end(), extent.end())).await
    }

    pub(super) async fn discard(&self, extent: Extent) -> Result<(), IoError> {
        self.check_writable()?;
        if let Some(below) = self.taker() {
            return self.discard_below(below, extent).await;
        }
        if self.header.version == 2 && self.header.backing.is_some() {
            return Ok(());
        }
        self.mark(self.whole_parts(extent), true).await
    }

    /// What of `extent` can be marked. The last cluster of the image ends where the image does.
    fn whole_parts(&self, extent: Extent) -> Extent {
        let reaches_end = extent.end() == self.size();
        let end = if reaches_end { align_up(extent.end(), self.header.cluster_size()) } else { extent.end() };
        let whole = Extent::between(extent.offset, end).align_in(self.header.subcluster_size());
        let whole = whole.intersect(extent).unwrap_or(Extent::new(extent.offset, 0));
        assert!(extent.contains(whole), "QWRITE1: only what was asked for is marked");
        whole
    }

    async fn write_zeros(&self, extent: Extent) -> Result<(), IoError> {
        for (_, piece) in extent.pieces(ZEROS_MAX) {
            if !self.is_zero(piece).await? {
                let zeros = self.arena().take_zeroed(super::file::index(piece.length)).freeze();
                self.write(piece.offset, zeros, Durability::Volatile).await?;
            }
        }
        Ok(())
    }

    /// Marks `extent`, which is made of whole subclusters, as zeros.
    async fn mark(&self, extent: Extent, unmap: bool) -> Result<(), IoError> {
        let size = self.header.cluster_size();
        assert!(
            extent.offset.is_multiple_of(self.header.subcluster_size()) || extent.is_empty(),
            "whole subclusters"
        );
        let per_slice = self.cache.slice_size() / self.header.l2_entry_size() * size;
        for (_, piece) in extent.pieces(per_slice.min(STEP.max(size))) {
            if self.cache.is_over_budget() {
                self.commit().await?;
            }
            if self.is_zero(piece).await? && !self.holds_space(piece, unmap).await? {
                continue;
            }
            let clusters = piece.align_out(size);
            let _alone = self.ranges.lock(clusters, LockMode::Exclusive).await;
            let (slice, first, old) = self.entries(piece.offset, clusters.length / size).await?;
            let new: Vec<Entry> = (clusters.offset / size..)
                .zip(&old)
                .map(|(number, old)| self.marked(number, old, piece, unmap))
                .collect();
            assert_eq!(new.len(), old.len(), "QWRITE1: each cluster has an entry");
            self.set_entries(slice, first, &old, &new).await?;
        }
        Ok(())
    }

    /// Whether a piece that is zeros may have places that are to be given back.
    async fn holds_space(&self, piece: Extent, unmap: bool) -> Result<bool, IoError> {
        let l1_index = piece.offset / self.header.cluster_size() / self.header.l2_entries();
        Ok(unmap && self.table_at(l1_index)?.is_some())
    }

    /// The entry of cluster `number` when `piece` has become zeros.
    fn marked(&self, number: u64, old: &Entry, piece: Extent, unmap: bool) -> Entry {
        let size = self.header.cluster_size();
        let cluster = Extent::new(number * size, size);
        let part = piece.intersect(cluster).expect("each cluster has a part");
        let all = Entry::all(&self.header);
        let end = if part.end() == self.size() { size } else { part.end() - cluster.offset };
        let bits = subclusters(&self.header, part.offset - cluster.offset, end);
        let marks = self.header.version > 2;
        let no_data = Entry {
            cluster: Cluster::Absent,
            subclusters: Subclusters {
                allocated: 0,
                zero: if self.header.backing.is_some() && marks { all } else { 0 },
            },
        };
        match old.cluster {
            Cluster::At { copied: true, .. } if bits == all && (unmap || !marks) => no_data,
            Cluster::Compressed { .. } | Cluster::At { copied: false, .. } if bits == all => no_data,
            Cluster::Compressed { .. } => *old,
            Cluster::Absent if self.header.backing.is_none() => *old,
            cluster => {
                let Subclusters { allocated, zero } = old.subclusters;
                Entry {
                    cluster,
                    subclusters: Subclusters { allocated: allocated & !bits, zero: zero | bits },
                }
            }
        }
    }
}
