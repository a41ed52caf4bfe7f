//! Giving what an image holds to what is below it, while it is read and written.
//!
//! Invariants:
//! - QPUSH1. Entries of what was given away are written only after it is durable below.
//! - QPUSH2. An image that gives away takes nothing in: what is written to a cluster is written below, after what the cluster held. So it
//!   ends, whatever is written meanwhile.
//! - QPUSH3. Clusters that have entries are held alone while what they hold is given away.

use super::file::index;
use super::tables::mapping::Mapping;
use super::{Image, InjectedBug, OpenError};
use varve_block::{Access, Bytes, Device, Durability, Extent, IoError, KIB, LockMode, ZeroOptions};
use varve_format::qcow2::{Cluster, Entry, Subclusters};

/// Bytes that are given away at once, but for large clusters.
const PIECE: u64 = 256 * KIB;

/// How far a step has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pushed {
    /// Bytes of which the image holds nothing any more.
    pub length: u64,
    /// Bytes of them that were written below.
    pub written: u64,
}

impl Image {
    /// Refuses to give anything away to something that cannot take it, or while internal snapshots would change with it.
    pub(super) fn check_pushes(&self) -> Result<(), OpenError> {
        let Some(below) = self.backing.as_ref().map(Device::shape) else {
            return Err(OpenError::Invalid("the image has no backing image that it could be committed to"));
        };
        if below.access == Access::ReadOnly {
            return Err(OpenError::Io(IoError::ReadOnly));
        }
        if below.size < self.size() {
            return Err(OpenError::Invalid("what lies below the image is smaller than the image"));
        }
        if !self.snapshots.is_empty() {
            return Err(OpenError::Invalid(
                "the image has internal snapshots, which need what lies below it",
            ));
        }
        Ok(())
    }

    /// What the image gives away to, if it does.
    pub(super) fn taker(&self) -> Option<&Device> {
        self.backing.as_ref().filter(|_| self.pushes)
    }

    /// Gives away what the image holds from `at` on, as far as one step goes. After steps from the beginning to the end it holds nothing.
    pub async fn push(&self, at: u64) -> Result<Pushed, IoError> {
        self.check_writable()?;
        assert!(at < self.size() && self.pushes, "a step begins inside an image that gives away");
        let here = self.lookup(at, self.size() - at).await?;
        if here.mapping == Mapping::Unallocated {
            return Ok(Pushed { length: here.length, written: 0 });
        }
        let piece = PIECE.max(self.header.cluster_size());
        assert!(piece.is_multiple_of(self.header.cluster_size()), "a step is made of clusters");
        let extent = Extent::new(at, (piece - at % piece).min(self.size() - at));
        let written = self.push_all(extent).await?;
        Ok(Pushed { length: extent.length, written })
    }

    /// Whether the image holds nothing, so that it shows what is below it.
    pub async fn holds_nothing(&self) -> Result<bool, IoError> {
        let mut at = 0;
        while at < self.size() {
            let here = self.lookup(at, self.size() - at).await?;
            if here.mapping != Mapping::Unallocated {
                return Ok(false);
            }
            at += here.length;
        }
        Ok(true)
    }

    /// Makes what was given away durable.
    pub(super) async fn flush_below(&self) -> Result<(), IoError> {
        match self.taker() {
            Some(below) => below.flush().await.map(drop),
            None => Ok(()),
        }
    }

    /// Writes to the image below, as long as this one gives to it what it holds (QPUSH2).
    pub(super) async fn write_below(&self, below: &Device, offset: u64, data: Bytes) -> Result<(), IoError> {
        self.push_all(Extent::new(offset, data.len() as u64)).await?;
        below.write(offset, data, Durability::Volatile).await.map(drop)
    }

    /// Zeroes the image below, as long as this one gives to it what it holds (QPUSH2).
    pub(super) async fn zero_below(
        &self,
        below: &Device,
        extent: Extent,
        options: ZeroOptions,
    ) -> Result<(), IoError> {
        self.push_all(extent).await?;
        let options = ZeroOptions { durability: Durability::Volatile, ..options };
        below.zero(extent, options).await.map(drop)
    }

    /// Discards in the image below, as long as this one gives to it what it holds (QPUSH2).
    pub(super) async fn discard_below(&self, below: &Device, extent: Extent) -> Result<(), IoError> {
        self.push_all(extent).await?;
        below.discard(extent).await.map(drop)
    }

    /// Gives away what the clusters of `extent` hold; how many bytes were written below.
    async fn push_all(&self, extent: Extent) -> Result<u64, IoError> {
        let clusters = extent.align_out(self.header.cluster_size());
        let mut written = 0;
        for (_, piece) in clusters.pieces(self.step_length_max()) {
            if self.cache.is_over_budget() {
                self.commit().await?;
            }
            if self.is_unallocated(piece).await? {
                continue;
            }
            let _alone = match self.has_bug(InjectedBug::PushUnheld) {
                true => None,
                false => Some(self.ranges.lock(piece, LockMode::Exclusive).await), // QPUSH3
            };
            written += self.push_held(piece).await?;
        }
        Ok(written)
    }

    async fn is_unallocated(&self, clusters: Extent) -> Result<bool, IoError> {
        let end = clusters.end().min(self.size());
        let here = self.lookup(clusters.offset, end - clusters.offset).await?;
        Ok(here.mapping == Mapping::Unallocated && here.length == end - clusters.offset)
    }

    /// Gives away what `clusters` hold, which have entries in one slice.
    async fn push_held(&self, clusters: Extent) -> Result<u64, IoError> {
        let below = self.taker().expect("QPUSH2: something takes what is given away");
        let end = clusters.end().min(self.size());
        assert!(
            clusters.is_aligned(self.header.cluster_size()) && clusters.offset < end,
            "QPUSH3: whole clusters"
        );
        let (mut at, mut written, mut held) = (clusters.offset, 0, false);
        while at < end {
            let here = self.lookup(at, end - at).await?;
            match here.mapping {
                Mapping::Unallocated => {}
                Mapping::Zero => {
                    let options = ZeroOptions { unmap: true, ..ZeroOptions::default() };
                    below.zero(Extent::new(at, here.length), options).await?;
                }
                Mapping::Data { .. } | Mapping::Compressed { .. } => {
                    let data = self.read(at, self.arena().take(index(here.length))).await?.freeze();
                    below.write(at, data, Durability::Volatile).await?;
                    written += here.length;
                }
            }
            held |= here.mapping != Mapping::Unallocated;
            at += here.length;
        }
        if held {
            let count = clusters.length / self.header.cluster_size();
            let (slice, first, old) = self.entries(clusters.offset, count).await?;
            assert!(at == end && old.len() as u64 == count, "QPUSH1: all of it is below");
            let nothing =
                Entry { cluster: Cluster::Absent, subclusters: Subclusters { allocated: 0, zero: 0 } };
            self.set_entries(slice, first, &old, &vec![nothing; old.len()]).await?;
        }
        Ok(written)
    }
}
