//! The front of a volume: what its client reads, writes, zeroes and discards.
//!
//! A write to parts that the volume does not own alone goes to fresh blocks; only when it is done the parts are mapped to
//! them. So nothing is ever read, copied or zeroed first, and what is not written is not there.

use super::lifecycle::volume::Volume;
use super::maps::mapping::Target;
use super::maps::places::{Found, Places, parts};
use super::space::Attempt;
use super::{InjectedBug, Pool, index};
use crate::fan_out::{fan_out, read_pieces, submit_reads};
use crate::pdata::{MapError, Pages, Stop};
use futures_util::future::join_all;
use std::rc::Rc;
use varve_block::{
    Access, BlockDevice, Buffer, Bytes, Checked, Completion, Durability, Extent, Io, IoError, MapFuture,
    MapIntent, Outcome, Shape, ZeroOptions,
};
use varve_format::pdata::BlockRun;
use varve_format::text::Discards;
use varve_format::thin::{Mapping, PART_SIZE, VolumeFlags};

/// A volume as a device.
pub(super) struct Front {
    pub(super) pool: Rc<Pool>,
    pub(super) volume: Rc<Volume>,
    pub(super) shape: Shape,
}

/// A run of parts of a write, and where it goes.
struct Piece {
    start: u64,
    blocks: BlockRun,
    fresh: bool,
}

impl Front {
    pub(super) fn new(pool: Rc<Pool>, volume: Rc<Volume>) -> Self {
        let read_only = volume.has(VolumeFlags::READ_ONLY);
        let shape = Shape {
            optimal_size: u32::try_from(pool.block_size()).expect("a block is at most 1 MiB"),
            access: if read_only { Access::ReadOnly } else { Access::ReadWrite },
            discard: true,
            fast_zero: true,
            ..Shape::new(volume.bytes.get(), PART_SIZE as u32)
        };
        Self { pool, volume, shape }
    }

    fn places(&self) -> Places<'_> {
        Places { pool: &self.pool, volume: &self.volume }
    }

    fn told(&self, error: MapError) -> IoError {
        self.pool.told(&self.volume, error)
    }

    fn is_gone(&self) -> bool {
        self.volume.has(VolumeFlags::REMOVING)
    }

    async fn read(&self, offset: u64, buffer: Buffer) -> Outcome {
        let found = self.places().find(parts(Extent::new(offset, buffer.len() as u64))).await?;
        if found.pieces.iter().any(|piece| found.is_below(piece)) {
            return self.read_apart(found, buffer).await;
        }
        let outcome = read_pieces(&found.pieces, buffer).await;
        drop(found.guard);
        outcome
    }

    /// Reads pieces of which some lie below: these hold no epoch guard of the pool, but one of the origin's readers
    /// (FLATTEN2 and FLATTEN3).
    async fn read_apart(&self, found: Found, buffer: Buffer) -> Outcome {
        let reads = submit_reads(&found.pieces, buffer);
        assert_eq!(reads.len(), found.pieces.len(), "of each piece it is known where it is read");
        let below: Vec<bool> = found.pieces.iter().map(|piece| found.is_below(piece)).collect();
        let (guard, reader) = (Rc::new(found.guard), Rc::new(self.volume.readers.enter()));
        let held = below.iter().map(|below| if *below { Rc::clone(&reader) } else { Rc::clone(&guard) });
        let reads = reads.into_iter().zip(held).map(|(read, held)| async move {
            let outcome = read.await;
            drop(held);
            outcome
        });
        let reads: Vec<_> = reads.collect();
        drop((guard, reader));
        let mut whole = Buffer::empty();
        for read in join_all(reads).await {
            whole.join(read?);
        }
        Ok(whole)
    }

    async fn write(&self, offset: u64, data: Bytes, durability: Durability) -> Outcome {
        let mut attempt = Attempt::default();
        let (from, to) = parts(Extent::new(offset, data.len() as u64));
        loop {
            self.pool.is_sound()?;
            self.pool.keep_metadata_room().await?;
            self.pool.begin_try(&mut attempt);
            let inside = self.volume.gate.enter().await;
            if self.is_gone() {
                return Err(IoError::Gone);
            }
            let guard = self.pool.readers.enter();
            let targets = self.places().plan((from, to)).await?;
            attempt.needed = needed(&targets);
            match self.place(&targets).await {
                Ok(pieces) => {
                    let written = self.write_pieces(from, &data, durability, &pieces).await;
                    drop((guard, inside)); // POOLFULL1, and a checkpoint waits for readers
                    return self.finish(written?, durability).await;
                }
                Err(MapError::Full) => {
                    drop((guard, inside)); // POOLFULL1
                    self.pool.make_room(&mut attempt).await?;
                }
                Err(error) => return Err(self.told(error)),
            }
        }
    }

    /// Takes blocks for what needs some: all or none, in one instant, so that an attempt without success takes nothing
    /// from others and has nothing to give back (POOLFULL5).
    async fn place(&self, targets: &[(u64, u64, Target)]) -> Result<Vec<Piece>, MapError> {
        let pieces = self.pool.map.run(|pages| self.try_place(pages, targets)).await?;
        if pieces.iter().any(|piece| piece.fresh) {
            self.pool.notify_space();
            self.pool.waiters.queue.found_room(); // WAITERS3
        }
        Ok(pieces)
    }

    fn try_place(&self, pages: &mut Pages, targets: &[(u64, u64, Target)]) -> Result<Vec<Piece>, Stop> {
        if needed(targets) > pages.free_blocks() {
            return Err(Stop::Full);
        }
        let mut pieces = Vec::with_capacity(targets.len());
        let unit = self.pool.unit();
        for (start, count, target) in targets {
            let (mut start, mut count, mut hint) = match target {
                Target::Own(place) => {
                    let blocks = BlockRun::new(*place, *count);
                    pieces.push(Piece { start: *start, blocks, fresh: false });
                    continue;
                }
                Target::Fresh(hint) => (*start, *count, hint.place),
            };
            while count > 0 {
                let run = match pages.take_unpublished_near(hint, unit, start % unit, count) {
                    Ok(run) => run,
                    Err(stop) => {
                        untake(pages, &pieces);
                        return Err(stop);
                    }
                };
                assert!((1..=count).contains(&run.count), "THIN1: a piece has what is needed, or less");
                pieces.push(Piece { start, blocks: run, fresh: true });
                (start, count, hint) = (start + run.count, count - run.count, Some(run.end()));
            }
        }
        Ok(pieces)
    }

    /// Gives back what was taken for a write that failed.
    fn untake(&self, pieces: &[Piece]) {
        if untake(&mut self.pool.map.pages(), pieces) {
            self.pool.waiters.notify_if_waiting(); // POOLFULL4
        }
    }

    /// Writes the data and maps what is fresh (THIN1). Whether there is still something to commit for a durable write.
    async fn write_pieces(
        &self,
        from: u64,
        data: &Bytes,
        durability: Durability,
        pieces: &[Piece],
    ) -> Result<bool, IoError> {
        let behind = pieces.iter().any(|piece| piece.fresh) || self.pool.commits.is_behind();
        let below = if behind { Durability::Volatile } else { durability };
        let count: u64 = pieces.iter().map(|piece| piece.blocks.count).sum();
        assert_eq!(count * PART_SIZE, data.len() as u64, "every part is written once");
        let device = self.pool.device();
        let writes = pieces.iter().map(|piece| {
            let at = index((piece.start - from) * PART_SIZE);
            let extent = piece.blocks.extent();
            let data = data.slice(at, index(extent.length));
            (&device, Io::Write { offset: extent.offset, data, durability: below })
        });
        if let Err(error) = fan_out(writes).await {
            self.untake(pieces);
            return Err(error);
        }
        for (number, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.fresh) {
            let mapped = self.pool.map(&self.volume, Mapping::of(piece.start, piece.blocks)).await;
            if let Err((error, rest)) = mapped {
                let left = rest.blocks().expect("MAPPING2: only zeros lie nowhere");
                self.pool.map.pages().return_unpublished(left);
                self.pool.waiters.notify_if_waiting(); // POOLFULL4
                self.untake(&pieces[number + 1..]);
                return Err(self.told(error));
            }
        }
        Ok(behind)
    }

    /// THIN2: what a durable change still needs; and the commit that is due in any case.
    async fn finish(&self, behind: bool, durability: Durability) -> Outcome {
        let has_bug = self.pool.has_bug(InjectedBug::DurableBeforeCommit);
        let needed = behind && durability == Durability::Durable && !has_bug;
        if needed {
            self.pool.join_commit(false).await?;
        } else if self.pool.is_commit_due() {
            // This request does not need it: if it fails, the next one that needs it returns the error.
            let _ = self.pool.join_commit(false).await;
        }
        Ok(Buffer::empty())
    }

    /// Makes parts read as zeros, without any data.
    async fn zero(&self, extent: Extent, options: ZeroOptions) -> Outcome {
        let (from, to) = parts(extent);
        self.clear(from, to).await?;
        self.finish(true, options.durability).await
    }

    /// A hint: what cannot be done is left.
    async fn discard(&self, extent: Extent) -> Outcome {
        if self.pool.discards() == Discards::Ignore {
            return if self.is_gone() { Err(IoError::Gone) } else { Ok(Buffer::empty()) };
        }
        let (from, to) = parts(extent);
        match self.clear(from, to).await {
            Ok(()) | Err(IoError::NoSpace) => self.finish(true, Durability::Volatile).await,
            Err(error) => Err(error),
        }
    }

    async fn clear(&self, from: u64, to: u64) -> Result<(), IoError> {
        let mut at = from;
        while at < to {
            self.pool.is_sound()?;
            self.pool.keep_metadata_room().await?;
            let _inside = self.volume.gate.enter().await;
            if self.is_gone() {
                return Err(IoError::Gone);
            }
            let _guard = self.pool.readers.enter();
            let shown = self.volume.origin_parts();
            if at < shown && !self.pool.has_bug(InjectedBug::UnmapOverOrigin) {
                let count = (to.min(shown) - at).min(Mapping::COUNT_MAX);
                let zeros = Mapping { start: at, count, place: None, birth: 0 };
                self.pool.map(&self.volume, zeros).await.map_err(|(error, _)| self.told(error))?;
                at += count;
            } else {
                let next = self.pool.unmap_some(&self.volume, at, to).await;
                at = next.map_err(|error| self.told(error))?;
            }
            assert!(at > from, "THIN6: each step goes on");
        }
        Ok(())
    }

    async fn flush(&self) -> Outcome {
        if self.pool.commits.is_behind() {
            self.pool.join_commit(false).await?; // THIN2
            return Ok(Buffer::empty());
        }
        self.pool.is_sound()?;
        self.pool.device().flush().await
    }
}

/// How many blocks are to be taken.
fn needed(targets: &[(u64, u64, Target)]) -> u64 {
    targets.iter().filter(|target| matches!(target.2, Target::Fresh(_))).map(|target| target.1).sum()
}

/// Gives back what is fresh; whether anything is.
fn untake(pages: &mut Pages, pieces: &[Piece]) -> bool {
    let fresh = pieces.iter().filter(|piece| piece.fresh);
    fresh.map(|piece| pages.return_unpublished(piece.blocks)).count() > 0
}

impl BlockDevice for Front {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { offset, buffer } => Completion::pending(self.read(offset, buffer)),
            Io::Write { offset, data, durability } => {
                Completion::pending(self.write(offset, data, durability))
            }
            Io::Zero { extent, options } => Completion::pending(self.zero(extent, options)),
            Io::Discard { extent } => Completion::pending(self.discard(extent)),
            Io::Flush => Completion::pending(self.flush()),
        }
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        Box::pin(self.places().lead(extent, intent))
    }
}
