//! Reference counts, and the clusters that have none: where new data goes.
//!
//! Invariants:
//! - QCOUNT1. A count in memory is at least the number of references to the cluster, on the disk and in memory: it rises before
//!   an entry is made, and falls after it is durable that an entry has gone.
//! - QCOUNT2. A refcount block is durable before the refcount table leads to it.
//! - QCOUNT3. No cluster of metadata is given to data.

use super::super::file::index;
use super::super::{Image, InjectedBug};
use super::cache::Kind;
use varve_block::{Extent, IoError, LockMode};
use varve_format::qcow2::{OFFSET_MASK, refcount, set_refcount};

/// Clusters that lie one behind the other, and belong to nothing yet.
#[derive(Clone, Copy, Debug)]
pub(in crate::qcow2) struct Allocated {
    /// The first byte in the file.
    pub(in crate::qcow2) offset: u64,
    /// Clusters.
    pub(in crate::qcow2) count: u64,
    /// The file holds zeros there.
    pub(in crate::qcow2) clean: bool,
}

impl Image {
    /// Clusters whose counts one refcount block has.
    pub(in crate::qcow2) fn counts_per_block(&self) -> u64 {
        self.header.refcount_width.counts_in(self.header.cluster_size())
    }

    /// The slice with the count of `cluster`, if there is one, and its number there.
    fn slice_of_count(&self, cluster: u64) -> Option<(u64, u64)> {
        let per_block = self.counts_per_block();
        let block = self.refcount_table.borrow().get(cluster / per_block) & OFFSET_MASK;
        let per_slice = self.header.refcount_width.counts_in(self.cache.slice_size());
        let number = cluster % per_block;
        (block > 0).then(|| (block + number / per_slice * self.cache.slice_size(), number % per_slice))
    }

    /// How many references `cluster` has.
    pub(in crate::qcow2) async fn count_of(&self, cluster: u64) -> Result<u64, IoError> {
        let width = self.header.refcount_width;
        match self.slice_of_count(cluster) {
            None => Ok(0),
            Some((slice, number)) => self.cache.get(slice, |slice| refcount(slice, width, number)).await,
        }
    }

    async fn set_count(&self, cluster: u64, count: u64) -> Result<(), IoError> {
        let width = self.header.refcount_width;
        let (slice, number) = self.slice_of_count(cluster).ok_or(IoError::Corrupt)?;
        let change = |slice: &mut [u8]| set_refcount(slice, width, number, count);
        self.cache.edit(slice, Kind::Refcounts, change).await
    }

    /// Takes up to `count` clusters that nothing refers to. If there are none, what was freed is waited for.
    pub(in crate::qcow2) async fn allocate(&self, count: u64) -> Result<Allocated, IoError> {
        match self.find_free(count).await {
            Err(IoError::NoSpace) => {
                self.commit().await?;
                self.find_free(count).await
            }
            found => found,
        }
    }

    /// Takes up to `count` clusters that nothing refers to. All counts that it looks at are read under the allocation lock.
    async fn find_free(&self, count: u64) -> Result<Allocated, IoError> {
        assert!(count > 0, "an allocation has clusters");
        let _alone = self.allocating.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        let end = self.file.size() / self.header.cluster_size();
        let (mut cluster, mut wrapped) = (self.first_free.get(), false);
        loop {
            if cluster >= end {
                if wrapped {
                    return Err(IoError::NoSpace);
                }
                (cluster, wrapped) = (0, true);
            }
            if self.slice_of_count(cluster).is_none() {
                cluster = self.new_block(cluster / self.counts_per_block()).await?;
                continue;
            }
            match self.take_in_slice(cluster, count, end).await? {
                Ok(allocated) => return Ok(allocated),
                Err(next) => cluster = next,
            }
        }
    }

    /// Takes clusters from `from` on whose counts lie in one slice; if there are none the first cluster of the next slice.
    async fn take_in_slice(
        &self,
        from: u64,
        count: u64,
        end: u64,
    ) -> Result<Result<Allocated, u64>, IoError> {
        let width = self.header.refcount_width;
        let (slice, number) = self.slice_of_count(from).ok_or(IoError::Corrupt)?;
        let numbers = width.counts_in(self.cache.slice_size()).min(number + end - from);
        let free = |slice: &[u8]| {
            let is_free = |number: &u64| refcount(slice, width, *number) == 0;
            let first = (number..numbers).find(is_free)?;
            Some((first, (first..numbers).take_while(is_free).take(index(count)).count() as u64))
        };
        let Some((first, count)) = self.cache.get(slice, free).await? else {
            return Ok(Err(from + numbers - number));
        };
        assert!(count > 0 && first + count <= numbers, "QCOUNT3: what is taken is free");
        let cluster = from + first - number;
        let extent = Extent::new(cluster * self.header.cluster_size(), count * self.header.cluster_size());
        self.refuse_metadata(extent).await?;
        let take = |slice: &mut [u8]| (first..first + count).for_each(|at| set_refcount(slice, width, at, 1));
        self.cache.edit(slice, Kind::Refcounts, take).await?;
        self.first_free.set(cluster + count);
        Ok(Ok(Allocated { offset: extent.offset, count, clean: self.take_clean(extent) }))
    }

    /// Whether `extent` is known to be zeros in the file, which it is not any more.
    fn take_clean(&self, extent: Extent) -> bool {
        assert!(extent.is_aligned(self.header.cluster_size()), "whole clusters are taken");
        let clean = self.is_clean && extent.offset >= self.data_end.get();
        self.data_end.set(self.data_end.get().max(extent.end())); // QEND2
        clean
    }

    /// Makes the refcount block number `number`, in the first cluster of those that it counts: without a block none of them
    /// is in use. The first that is free behind it.
    async fn new_block(&self, number: u64) -> Result<u64, IoError> {
        let first = number * self.counts_per_block();
        assert!(self.slice_of_count(first).is_none(), "QCOUNT2: the block is not there yet");
        let block = Extent::new(first * self.header.cluster_size(), self.header.cluster_size());
        if number >= self.refcount_table.borrow().entries().len() as u64 {
            return Err(IoError::NoSpace);
        }
        self.refuse_metadata(block).await?;
        self.take_clean(block);
        self.file.take_space(block).await?; // QCOMMIT4
        self.cache.forget(block);
        let width = self.header.refcount_width;
        let count_itself = |slice: &mut [u8]| set_refcount(slice, width, 0, 1);
        self.cache.edit(block.offset, Kind::Refcounts, count_itself).await?;
        // Only now may a commit write the entry: it writes the count, too.
        self.refcount_table.borrow_mut().set(number, block.offset);
        let is_new = self.metadata.borrow_mut().insert(block.offset);
        assert!(is_new, "QCOUNT3: no two tables lie in one cluster");
        Ok(first + 1)
    }

    /// Sees to it that `cluster` counts a reference at least: it is in use, although nothing may say so yet.
    pub(in crate::qcow2) async fn count_once(&self, cluster: u64) -> Result<(), IoError> {
        let _alone = self.allocating.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        if self.slice_of_count(cluster).is_none() {
            self.new_block(cluster / self.counts_per_block()).await?;
        }
        let size = self.header.cluster_size();
        let extent = Extent::new(cluster * size, size);
        self.refuse_metadata(extent).await?;
        if self.count_of(cluster).await? == 0 {
            self.set_count(cluster, 1).await?;
            self.take_clean(extent);
        }
        Ok(())
    }

    /// Nothing refers to `extent`, and nothing ever did.
    pub(in crate::qcow2) async fn give_back(&self, extent: Extent) -> Result<(), IoError> {
        assert!(extent.is_aligned(self.header.cluster_size()), "whole clusters are given back");
        for (cluster, _) in extent.pieces(self.header.cluster_size()) {
            self.set_count(cluster, 0).await?;
            self.first_free.set(self.first_free.get().min(cluster));
        }
        Ok(())
    }

    /// Each of `clusters` has lost a reference, durably; those without any are free from now on (QCOUNT1).
    pub(in crate::qcow2) async fn release(&self, clusters: &[u64]) -> Result<(), IoError> {
        for &cluster in clusters {
            let count = self.count_of(cluster).await?;
            let Some(left) = count.checked_sub(1) else {
                return Err(self.refuse_writes(IoError::Corrupt, "a cluster in use has no reference").await);
            };
            if left == 0 && self.metadata.borrow().contains(&(cluster * self.header.cluster_size())) {
                continue; // QCOUNT3: it had more references than its count said.
            }
            if left == 0 {
                let extent = Extent::new(cluster * self.header.cluster_size(), self.header.cluster_size());
                self.cache.forget(extent);
                if self.file.can_discard() {
                    self.file.discard(extent).await;
                }
                self.first_free.set(self.first_free.get().min(cluster));
            }
            self.set_count(cluster, left).await?;
        }
        Ok(())
    }

    /// QCOUNT3: an error, after which the image is not written any more, if `extent` has metadata.
    pub(in crate::qcow2) async fn refuse_metadata(&self, extent: Extent) -> Result<(), IoError> {
        let start = varve_block::align_down(extent.offset, self.header.cluster_size());
        let overlaps = self.metadata.borrow().range(start..extent.end()).next().is_some();
        if !overlaps {
            return Ok(());
        }
        Err(self.refuse_writes(IoError::Corrupt, "data would be written over metadata").await)
    }

    pub(in crate::qcow2) fn has_bug(&self, bug: InjectedBug) -> bool {
        self.bug == Some(bug)
    }
}
