//! An open image: where the bytes of its disk lie, and what was answered since the last flush.
//!
//! Invariants:
//! - COWD1. The image leads to a place only after a flush of the volume, when all that answers refer to is durable.
//! - COWD2. A place that was freed is used again only after the next flush of the volume.
//! - COWD3. A cluster is put together in the scratch file only while none of it is where the engine may write.

use crate::chain::{Run, Source};
use crate::files::Opened;
use crate::pending::{Pending, Place};
use crate::scratch::Scratch;
use std::io;
use varve_block::{Durability, Extent as Bytes, IoError, ZeroOptions, align_down};
use varve_mapper::Session;
use varve_mapper::wire::{self, Access, COPY_LENGTH_MAX, DEVICES_MAX, EXTENTS_MAX, Extent};
use varve_target::qcow2::Image;

/// Tells why this image cannot serve a volume of `size` bytes in such blocks.
pub(crate) fn refuse_unfit(image: &Image, size: u64, block_size: u64) -> io::Result<()> {
    if size > image.size() {
        let why = format!("the volume has {size} bytes, and the image {}", image.size());
        return Err(io::Error::other(format!("{why}; qemu-img resize makes the image larger")));
    }
    refuse_small_clusters(image.header().cluster_size(), block_size)
}

/// An open image, and what was answered since the last flush.
pub(crate) struct OpenImage {
    pub(crate) files: Opened,
    pub(crate) scratch: Scratch,
    /// Bytes of the volume, and of its blocks.
    pub(crate) size: u64,
    pub(crate) block_size: u64,
    pub(crate) cluster_size: u64,
    pub(crate) pending: Pending,
}

impl OpenImage {
    /// Numbers the files from `given` on, and sends them.
    pub(crate) fn register(&mut self, given: usize, session: &Session) -> io::Result<()> {
        let first = u32::try_from(given).map_err(io::Error::other)?;
        let files = self.files.files.len();
        if given + files + 1 > DEVICES_MAX as usize {
            return Err(io::Error::other(format!(
                "the chain has {files} images, and a mapper may name {DEVICES_MAX} devices; qemu-img commit makes it shorter"
            )));
        }
        let chain = &mut self.files.chain;
        for ((number, layer), held) in (first..).zip(&mut chain.layers).zip(&self.files.files) {
            layer.number = number;
            session.add_file(number, number == first, held.open_again(number == first)?)?;
        }
        session.add_file(self.scratch_number(), false, self.scratch.file())
    }

    fn own_number(&self) -> u32 {
        self.files.chain.layers[0].number
    }

    fn scratch_number(&self) -> u32 {
        self.own_number() + u32::try_from(self.files.chain.layers.len()).expect("few layers")
    }

    /// The end of the cluster at `at`, or the disk's.
    fn cluster_end(&self, at: u64) -> u64 {
        (align_down(at, self.cluster_size) + self.cluster_size).min(self.files.chain.image.size())
    }

    /// Where the bytes from `at` to `end` lie, in at most `count_max` extents.
    pub(crate) async fn map_reads(
        &mut self,
        at: u64,
        end: u64,
        count_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        let mut extents = Vec::new();
        let mut at = at;
        while at < end && extents.len() < count_max {
            let extent = self.extent_at(at, end).await?;
            at += extent.length;
            extents.push(extent);
        }
        Ok(extents)
    }

    /// Where the bytes from `at` on lie, which is the first of a block; some of those up to `end`.
    async fn extent_at(&mut self, at: u64, end: u64) -> Result<Extent, IoError> {
        let cluster = align_down(at, self.cluster_size);
        let length = self.cluster_end(at).min(end) - at;
        match self.pending.get(cluster) {
            Some(Place::At(place)) => return Ok(self.own(at, length, place + (at - cluster))),
            Some(Place::Zero) => return Ok(Extent::new(at, length, wire::Place::Zero)),
            None => {}
        }
        let limit = self.pending.next_after(cluster).unwrap_or(u64::MAX).min(end).min(self.size);
        let run = self.files.chain.run_at(at, limit - at).await?;
        match self.whole_blocks(run, limit) {
            Some(run) => Ok(self.extent_of(run)),
            None => self.put_together(at, length).await,
        }
    }

    /// The part of `run` that is made of whole blocks on both sides; none if that is not its first block.
    fn whole_blocks(&self, run: Run, limit: u64) -> Option<Run> {
        let reaches_end = run.at + run.length == limit && limit == self.size;
        let length = if reaches_end { run.length } else { align_down(run.length, self.block_size) };
        let is_aligned = |there: u64| there.is_multiple_of(self.block_size);
        let fits = match run.source {
            Source::Own(there) | Source::Device(_, there) => is_aligned(there),
            Source::Zero => true,
            Source::Compressed => false,
        };
        (fits && length > 0).then_some(Run { length, ..run })
    }

    fn extent_of(&self, run: Run) -> Extent {
        match run.source {
            Source::Own(there) => self.own(run.at, run.length, there),
            Source::Device(number, there) => read_only(run.at, run.length, number, there),
            Source::Zero => Extent::new(run.at, run.length, wire::Place::Zero),
            Source::Compressed => unreachable!("what is compressed is put together"),
        }
    }

    /// Bytes in the image's own file, that may be written there.
    fn own(&self, at: u64, length: u64, there: u64) -> Extent {
        Extent::new(at, length, wire::Place::Data { device: self.own_number(), offset: there })
    }

    /// Puts the cluster of `at` together, whose parts lie in several places: in its own, if it has one, else in the scratch file.
    async fn put_together(&mut self, at: u64, length: u64) -> Result<Extent, IoError> {
        let cluster = align_down(at, self.cluster_size);
        if let Some(place) = self.files.chain.image.own_place(cluster).await? {
            self.complete(cluster, place).await?;
            return Ok(self.own(at, length, place + (at - cluster)));
        }
        self.scratch(cluster).await?;
        Ok(read_only(at, length, self.scratch_number(), at))
    }

    /// COWD3: the cluster has no place of its own.
    async fn scratch(&mut self, cluster: u64) -> Result<(), IoError> {
        assert!(self.pending.get(cluster).is_none(), "COWD3: the engine writes it elsewhere");
        if self.scratch.has(cluster) {
            return Ok(());
        }
        let content = self.content(cluster, self.cluster_end(cluster)).await?;
        self.scratch.put(cluster, &content).map_err(|_| IoError::NoSpace)
    }

    /// What the disk holds from `start` to `end`, as far as the image knows.
    async fn content(&self, start: u64, end: u64) -> Result<Vec<u8>, IoError> {
        let length = usize::try_from(end - start).expect("at most a cluster");
        let buffer = self.files.arena.take(length);
        Ok(self.files.chain.device.read(start, buffer).await?.to_vec())
    }

    /// Fills the parts of a cluster that do not lie in its own place.
    async fn complete(&mut self, cluster: u64, place: u64) -> Result<(), IoError> {
        let end = self.cluster_end(cluster);
        for run in self.files.chain.runs(cluster, end).await? {
            if !matches!(run.source, Source::Own(_)) {
                let content = self.content(run.at, run.at + run.length).await?;
                self.put(place + (run.at - cluster), &content).await?;
            }
        }
        self.pending.complete(cluster, place);
        Ok(())
    }

    /// Writes to the image's file where no engine does.
    async fn put(&self, at: u64, content: &[u8]) -> Result<(), IoError> {
        let data = self.files.arena.copy(content);
        self.files.own_file.write(at, data, Durability::Volatile).await.map(drop)
    }

    /// Where the bytes between two may be written: clusters get places, with what was there before.
    pub(crate) async fn map_writes(&mut self, start: u64, end: u64) -> Result<Vec<Extent>, IoError> {
        let mut extents = Vec::new();
        let mut cluster = align_down(start, self.cluster_size);
        let mut copied = 0;
        while cluster < end && extents.len() < EXTENTS_MAX && copied + self.cluster_size <= COPY_LENGTH_MAX {
            let extent = self.cluster_to_write(cluster).await?;
            if matches!(extent.place, wire::Place::Copy { .. }) {
                copied += extent.length;
            }
            extents.push(extent);
            cluster += self.cluster_size;
        }
        Ok(extents)
    }

    async fn cluster_to_write(&mut self, cluster: u64) -> Result<Extent, IoError> {
        let length = self.cluster_end(cluster).min(self.size) - cluster;
        let from = match self.pending.get(cluster) {
            Some(Place::At(place)) => return Ok(self.own(cluster, length, place)),
            Some(Place::Zero) => None,
            None => match self.files.chain.image.own_place(cluster).await? {
                Some(place) => {
                    let end = cluster + length;
                    let runs = self.files.chain.runs(cluster, end).await?;
                    if !runs.iter().all(|run| matches!(run.source, Source::Own(_))) {
                        self.complete(cluster, place).await?;
                    }
                    return Ok(self.own(cluster, length, place));
                }
                None => self.copied_from(cluster, length).await?,
            },
        };
        let place = self.files.chain.image.take_places(1).await?.offset;
        self.clear_tail(place, length).await?;
        self.pending.take(cluster, place);
        let device = self.own_number();
        Ok(Extent::new(cluster, length, wire::Place::Copy { device, offset: place, from }))
    }

    /// From where a cluster without a place of its own is copied: a device and a byte there, or zeros.
    async fn copied_from(&mut self, cluster: u64, length: u64) -> Result<Option<(u32, u64)>, IoError> {
        let runs = self.files.chain.runs(cluster, cluster + length).await?;
        match runs[..] {
            [Run { source: Source::Zero, .. }] => return Ok(None),
            [Run { source: Source::Device(number, there), .. }] if there.is_multiple_of(self.block_size) => {
                return Ok(Some((number, there)));
            }
            _ => {}
        }
        self.scratch(cluster).await?;
        Ok(Some((self.scratch_number(), cluster)))
    }

    /// Behind the disk's end, where the last cluster reaches, are zeros, should the disk grow.
    async fn clear_tail(&self, place: u64, length: u64) -> Result<(), IoError> {
        match usize::try_from(self.cluster_size - length).expect("less than a cluster") {
            0 => Ok(()),
            tail => self.put(place + length, &vec![0; tail]).await,
        }
    }

    /// What an earlier connection left (see [`Mapper::held`]).
    pub(crate) async fn held(&mut self, extents: &[Extent]) -> Result<(), IoError> {
        for extent in extents {
            let end = extent.offset.checked_add(extent.length).ok_or(IoError::Corrupt)?.min(self.size);
            let mut at = extent.offset;
            while at < end {
                let (cluster, next) = (align_down(at, self.cluster_size), self.cluster_end(at).min(end));
                match extent.place {
                    wire::Place::Data { device, offset } if device == self.own_number() => {
                        let place =
                            offset.checked_add(cluster).and_then(|sum| sum.checked_sub(extent.offset));
                        self.hold(cluster, place.ok_or(IoError::Corrupt)?, at, next).await?;
                    }
                    wire::Place::Zero => self.pending.zero(cluster),
                    _ => {}
                }
                at = next;
            }
        }
        self.pending.forget_set_aside();
        Ok(())
    }

    /// The bytes from `at` to `end` of the cluster lie in `place`, where the cluster begins.
    async fn hold(&mut self, cluster: u64, place: u64, at: u64, end: u64) -> Result<(), IoError> {
        if self.pending.hold_again(cluster, place) {
            return Ok(());
        }
        let image = &self.files.chain.image;
        if image.own_place(cluster).await? != Some(place) {
            image.take_place_again(place).await?;
            self.pending.take(cluster, place);
            return Ok(());
        }
        let runs = self.files.chain.runs(at, end).await?;
        if !runs.iter().all(|run| matches!(run.source, Source::Own(_))) {
            // It had been completed there, or it would not have been answered.
            self.pending.complete(cluster, place);
        }
        Ok(())
    }

    /// Frees whole clusters.
    pub(crate) async fn trim(&mut self, offset: u64, length: u64) -> Result<(), IoError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.size).ok_or(IoError::Corrupt)?;
        let is_whole = offset.is_multiple_of(self.cluster_size) && end.is_multiple_of(self.cluster_size);
        if !is_whole {
            return Err(IoError::Unsupported);
        }
        let mut at = offset;
        while at < end {
            let next = self.pending.next_after(at).unwrap_or(u64::MAX).min(end);
            if self.pending.get(at).is_none() {
                let run = self.files.chain.run_at(at, next - at).await?;
                if run.source == Source::Zero && run.length >= self.cluster_size {
                    at += align_down(run.length, self.cluster_size);
                    continue;
                }
            }
            self.pending.zero(at);
            at += self.cluster_size;
        }
        Ok(())
    }

    /// COWD1: what was answered is led to, durably.
    pub(crate) async fn flush(&mut self) -> Result<(), IoError> {
        let image = &self.files.chain.image;
        for (at, length, place) in self.pending.runs(self.cluster_size) {
            match place {
                Place::At(place) => image.lead_to(at, Bytes::new(place, length)).await?,
                Place::Zero => {
                    let options = ZeroOptions::default();
                    self.files.chain.device.zero(Bytes::new(at, length), options).await?;
                }
            }
        }
        image.make_durable().await?;
        // COWD2: they are given to others from now on.
        for place in self.pending.flushed() {
            image.give_back_places(Bytes::new(place, self.cluster_size)).await?;
        }
        assert!(self.pending.is_empty(), "COWD1: all that was answered is led to");
        Ok(())
    }
}

fn read_only(at: u64, length: u64, device: u32, offset: u64) -> Extent {
    Extent { access: Access::READ, ..Extent::new(at, length, wire::Place::Data { device, offset }) }
}

/// Tells why an image with such clusters cannot serve a volume with such blocks.
fn refuse_small_clusters(cluster_size: u64, block_size: u64) -> io::Result<()> {
    if cluster_size >= block_size {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the image has clusters of {cluster_size} bytes, smaller than a block of the volume ({block_size})"
    )))
}
