//! Taking into an image what it shows of what is below it, while it is read and written.
//!
//! Invariants:
//! - QFLAT1. What is copied is held alone, and looked at again then: nothing that was written meanwhile is overwritten.
//! - QFLAT2. The header says that nothing is below only after all of it that is not zeros is durable in the image. A write, a discard or
//!   zeros never lead to what is below again.
//! - QFLAT3. The first sector is changed in memory, and written from there: neither the name of what lay below comes back with a later
//!   change, nor is a change lost that is made while the name is being removed.

use super::file::index;
use super::tables::mapping::Mapping;
use super::{Image, InjectedBug};
use varve_block::{Allocation, Device, Durability, Extent, IoError, KIB, LockMode, is_zero};
use varve_format::qcow2::Header;

/// Bytes that are looked at at once, but for large clusters.
const PIECE: u64 = 256 * KIB;

/// How far a step has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pulled {
    /// Bytes that the image needs from below no more.
    pub length: u64,
    /// Bytes of them that were copied.
    pub copied: u64,
}

impl Pulled {
    fn nothing(length: u64) -> Self {
        Self { length, copied: 0 }
    }
}

impl Image {
    /// Copies what the image shows of what is below it from `at` on, as far as one step goes. All of it is called for from the
    /// beginning to the end of the image, and then [`Image::forget_backing`].
    pub async fn pull(&self, at: u64) -> Result<Pulled, IoError> {
        self.check_writable()?;
        assert!(at < self.size(), "a step begins inside the image");
        let end = self.backing.as_ref().map_or(0, |below| below.shape().size).min(self.size());
        let Some(below) = self.backing.as_ref().filter(|_| at < end) else {
            return Ok(Pulled::nothing(self.size() - at));
        };
        if self.cache.is_over_budget() {
            self.commit().await?;
        }
        let piece = PIECE.max(self.header.cluster_size());
        let extent = Extent::new(at, self.step_length(at, (piece - at % piece).min(end - at)));
        if let Some(length) = self.needs_nothing(below, extent).await? {
            return Ok(Pulled::nothing(length));
        }
        if self.has_bug(InjectedBug::PullUnseen) {
            let data = self.read(at, self.arena().take(index(extent.length))).await?.freeze();
            self.write(at, data, Durability::Volatile).await?;
            return Ok(Pulled { length: extent.length, copied: extent.length });
        }
        let clusters = extent.align_out(self.header.cluster_size());
        let _alone = self.ranges.lock(clusters, LockMode::Exclusive).await;
        self.pull_held(extent).await
    }

    /// How many bytes from the beginning of `extent` on are in the image, or zeros below, if any.
    async fn needs_nothing(&self, below: &Device, extent: Extent) -> Result<Option<u64>, IoError> {
        let here = self.lookup(extent.offset, extent.length).await?;
        if here.mapping != Mapping::Unallocated {
            return Ok(Some(here.length));
        }
        let status = below.status(Extent::new(extent.offset, here.length)).await?;
        let zeros = status.first().filter(|run| run.allocation != Allocation::Data);
        Ok(zeros.map(|run| run.length.min(here.length)))
    }

    /// Copies what is nowhere in the image, looked at again while it is held alone (QFLAT1).
    async fn pull_held(&self, extent: Extent) -> Result<Pulled, IoError> {
        let here = self.lookup(extent.offset, extent.length).await?;
        if here.mapping != Mapping::Unallocated {
            return Ok(Pulled::nothing(here.length));
        }
        let data = self.read(extent.offset, self.arena().take(index(here.length))).await?.freeze();
        let (zeros, length) = self.first_run(extent.offset, &data);
        if zeros {
            return Ok(Pulled::nothing(length));
        }
        let copied = self.write_new(extent.offset, &data.slice(0, index(length))).await?;
        Ok(Pulled { length: copied, copied })
    }

    /// Whether the cluster in which `data` begins is zeros as far as `data` has it, and for how many bytes that, or the opposite, holds.
    fn first_run(&self, at: u64, data: &[u8]) -> (bool, u64) {
        let size = self.header.cluster_size();
        let all = Extent::new(at, data.len() as u64);
        let is_zero = |part: Extent| {
            let start = index(part.offset - at);
            is_zero(&data[start..start + index(part.length)])
        };
        let mut parts = all.align_out(size).pieces(size).filter_map(|(_, cluster)| cluster.intersect(all));
        let first = parts.next().expect("there is something to copy");
        let zeros = is_zero(first);
        let end = parts.take_while(|part| is_zero(*part) == zeros).last().unwrap_or(first).end();
        (zeros, end - at)
    }

    /// Makes everything durable, then says in the header that nothing is below the image (QFLAT2). What is not in it reads as zeros
    /// from the next time on when it is opened.
    pub async fn forget_backing(&self) -> Result<(), IoError> {
        let early = self.has_bug(InjectedBug::ForgetBeforeData);
        if !early {
            self.check_writable()?;
            self.commit().await?;
        }
        Header::clear_backing(&mut self.first_sector.borrow_mut());
        self.write_first_sector().await?;
        self.file.flush().await?;
        if early { self.commit().await } else { Ok(()) }
    }
}
