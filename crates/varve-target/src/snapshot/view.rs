//! A snapshot as a device: reads find the newest content that is old enough, writes go to space of its own.

use super::batch::Work;
use super::map::{Run, Source};
use super::places::first_of;
use super::removal::RECLAIM_ENTRIES;
use super::{SnapshotStore, StoreError, ViewState, index, of_device};
use crate::fan_out::read_pieces;
use crate::pdata::{AllocClass, Pace, Pages, Stop};
use futures_util::future::join_all;
use std::rc::Rc;
use varve_block::yield_now;
use varve_block::{
    Access, BlockDevice, Buffer, Bytes, Checked, Completion, Device, Durability, Extent, Io, IoError,
    LockMode, MapAnswer, MapFuture, MapGuard, MapIntent, MapPiece, Outcome, Shape,
};
use varve_format::pdata::BlockRun;
use varve_format::store::{Mapping, PART_SIZE, ZEROS};

/// The most mappings that may be unlogged: a request that goes beyond it logs them, as a flush does.
const UNLOGGED_MAX: usize = 1000;

struct View {
    store: Rc<SnapshotStore>,
    id: u64,
    state: Rc<ViewState>,
    shape: Shape,
}

impl SnapshotStore {
    /// The device of snapshot `id`, for any client. Its access is the present one; ask again after a change of flags.
    pub fn snapshot(self: &Rc<Self>, id: u64) -> Result<Device, StoreError> {
        let contents = self.contents.borrow();
        let descriptor = contents.visible_one(id).ok_or(StoreError::NotFound)?;
        let below = [self.origin_device().shape(), self.store_device().shape()];
        let block_size = below[0].block_size.max(below[1].block_size);
        let mut shape = Shape::new(descriptor.size, block_size);
        shape.optimal_size = shape.optimal_size.max(u32::try_from(PART_SIZE).expect("a part is small"));
        shape.access = if descriptor.read_only { Access::ReadOnly } else { Access::ReadWrite };
        shape.discard = true;
        shape.fast_zero = true;
        let view = self.view_state(id).ok_or(StoreError::NotFound)?;
        Ok(Device::new(View { store: Rc::clone(self), id, state: view, shape }))
    }

    pub(super) fn view_state(&self, id: u64) -> Option<Rc<ViewState>> {
        self.views.borrow().get(&id).filter(|view| !view.gone.get()).map(Rc::clone)
    }

    /// Reads what snapshot `id` shows from `offset` on.
    pub(super) async fn read_snapshot(&self, id: u64, offset: u64, buffer: Buffer) -> Outcome {
        let found = self.find_snapshot(id, Extent::new(offset, buffer.len() as u64)).await?;
        read_pieces(&found.pieces, buffer).await.map_err(of_device)
    }

    /// Makes durable what was written to any snapshot.
    pub(super) async fn flush_written(&self) -> Result<(), IoError> {
        self.failed.check()?;
        if self.state.borrow().unlogged.is_empty() && self.pipeline.is_idle() {
            return self.store_device().flush().await.map(|_| ()).map_err(of_device);
        }
        let ticket = self.pipeline.join(Work::LogWritten);
        self.await_commit(ticket).await
    }

    /// Takes space for up to `length` bytes that are written to a snapshot.
    async fn take_for_snapshot(&self, length: u64) -> Result<Extent, IoError> {
        for last in [false, true] {
            self.failed.check()?;
            self.blocks.pages().reclaim();
            let take = |pages: &mut Pages| match length.min(self.available_of(pages, 1, length)) / PART_SIZE {
                0 => Err(Stop::Full),
                wanted => pages.take_unpublished(wanted),
            };
            match self.blocks.run(take).await.map_err(|error| self.map.report(error)) {
                Ok(run) => {
                    self.notify_space();
                    return Ok(run.extent());
                }
                Err(IoError::NoSpace) => {}
                Err(error) => return Err(error),
            }
            if last {
                break;
            }
            self.make_blocks_free().await?;
        }
        Err(IoError::NoSpace)
    }

    /// Gives back what removed snapshots had, and makes it free.
    async fn make_blocks_free(&self) -> Result<(), IoError> {
        let reclaimed = loop {
            match self.reclaim(RECLAIM_ENTRIES).await {
                Ok(true) => yield_now().await,
                Ok(false) | Err(StoreError::NoSpace) => break Ok(()),
                Err(StoreError::Io(error)) => break Err(error),
                Err(_) => break Err(IoError::Corrupt),
            }
        };
        reclaimed?;
        let ticket = self.pipeline.join(Work::Checkpoint);
        self.await_commit(ticket).await
    }

    /// Notes what was written to a snapshot, or that it is zeros. Fails if there is no room for nodes; then what was
    /// not noted is never found, and its blocks are freed.
    async fn note_written(&self, mapping: Mapping) -> Result<(), IoError> {
        assert!(self.contents.borrow().holds(mapping.snapshot, mapping.extent), "CONTENTS1: {mapping:?}");
        let noted = |mapping| self.state.borrow_mut().unlogged.push(mapping);
        assert!(!mapping.extent.is_empty(), "something is noted");
        let (mut left, mut made_free) = (mapping, false);
        while !left.extent.is_empty() {
            match self.map.write_some(left, AllocClass::Normal, true, noted).await {
                Ok(rest) => {
                    (left, made_free) = (rest, false);
                    self.relieve(Pace::Prompt).await;
                    if !left.extent.is_empty() {
                        yield_now().await;
                    }
                }
                Err((rest, error)) => {
                    left = rest;
                    let full = error == IoError::NoSpace && !std::mem::replace(&mut made_free, true);
                    if full && self.make_blocks_free().await.is_ok() {
                        continue;
                    }
                    if let Some(stored) = left.stored() {
                        self.give_back(stored);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Frees blocks that were taken for content to which nothing leads.
    fn give_back(&self, extent: Extent) {
        assert!(!extent.is_empty(), "SPACE4: what was taken has blocks");
        let mut pages = self.blocks.pages();
        let run = BlockRun::of(extent);
        pages.publish(run);
        pages.free_run(run);
    }
}

impl View {
    /// Writes `data` at `offset`.
    async fn write(&self, offset: u64, data: Bytes) -> Result<(), IoError> {
        let extent = Extent::new(offset, data.len() as u64);
        let parts = extent.align_out(PART_SIZE);
        let _alone = self.state.lock.lock(parts, LockMode::Exclusive).await;
        self.store.restore_before_change(self.id, parts).await?;
        let runs = self.store.map.resolve_written(self.id, parts).await?;
        let writes = runs.into_iter().map(|run| self.write_run(run, extent, &data));
        join_all(writes).await.into_iter().collect()
    }

    /// Writes the part of `data`, which is for `extent`, that falls into `run`.
    async fn write_run(&self, run: Run, extent: Extent, data: &Bytes) -> Result<(), IoError> {
        let mine = run.clip(extent).expect("runs are made of the parts that the request touches");
        let slice = data.slice(index(mine.extent.offset - extent.offset), index(mine.extent.length));
        if let Source::Store(place) = mine.source {
            // SNAPSHOT4: its own already.
            let written = self.store.store_device().write(place, slice, Durability::Volatile).await;
            return written.map(|_| ()).map_err(of_device);
        }
        let whole = mine.extent.align_out(PART_SIZE);
        let content = if whole == mine.extent { slice } else { self.fill_edges(mine.extent, &slice).await? };
        let mut at = whole.offset;
        while at < whole.end() {
            let place = self.store.take_for_snapshot(whole.end() - at).await?;
            let bytes = content.slice(index(at - whole.offset), index(place.length));
            let written = self.store.store_device().write(place.offset, bytes, Durability::Volatile).await;
            if let Err(error) = written {
                self.store.give_back(place);
                return Err(of_device(error));
            }
            let extent = Extent::new(at, place.length);
            self.store.note_written(Mapping { snapshot: self.id, extent, place: place.offset }).await?;
            at = extent.end();
        }
        Ok(())
    }

    /// `data`, which is for `extent`, with what the snapshot shows around it in the first and the last part.
    async fn fill_edges(&self, extent: Extent, data: &[u8]) -> Result<Bytes, IoError> {
        let whole = extent.align_out(PART_SIZE);
        let mut content = self.store.arena.take(index(whole.length));
        let first = Extent::new(whole.offset, PART_SIZE);
        let last = Extent::between(whole.end() - PART_SIZE, whole.end());
        let edges = if first == last { vec![first] } else { vec![first, last] };
        for edge in edges.into_iter().filter(|edge| !extent.contains(*edge)) {
            let buffer = self.store.arena.take(index(edge.length));
            let old = self.store.read_snapshot(self.id, edge.offset, buffer).await?;
            let at = index(edge.offset - whole.offset);
            content[at..at + old.len()].copy_from_slice(&old);
        }
        let at = index(extent.offset - whole.offset);
        assert!(at + data.len() <= content.len(), "the data lies in its parts");
        content[at..at + data.len()].copy_from_slice(data);
        Ok(content.freeze())
    }

    /// Makes `extent` zeros: whole parts by a note in the map, ragged edges by writing.
    async fn zero(&self, extent: Extent) -> Result<(), IoError> {
        let inner = extent.align_in(PART_SIZE);
        if inner.is_empty() {
            return self.write_zeros(extent).await;
        }
        self.write_zeros(Extent::between(extent.offset, inner.offset)).await?;
        self.write_zeros(Extent::between(inner.end(), extent.end())).await?;
        let _alone = self.state.lock.lock(inner, LockMode::Exclusive).await;
        self.store.restore_before_change(self.id, inner).await?;
        if !self.has_room(1, inner.length).await? {
            return Err(IoError::NoSpace);
        }
        self.store.note_written(Mapping { snapshot: self.id, extent: inner, place: ZEROS }).await
    }

    /// Whether the map has room to say something of `count` runs of `bytes` in all; what the store has grown by is taken in for it.
    async fn has_room(&self, count: usize, bytes: u64) -> Result<bool, IoError> {
        if self.store.available(count, bytes) == 0 && self.store.has_grown() {
            let ticket = self.store.pipeline.join(Work::Checkpoint);
            self.store.await_commit(ticket).await?;
        }
        Ok(self.store.available(count, bytes) > 0)
    }

    async fn write_zeros(&self, extent: Extent) -> Result<(), IoError> {
        if extent.is_empty() {
            return Ok(());
        }
        let zeros = self.store.arena.take_zeroed(index(extent.length));
        self.write(extent.offset, zeros.freeze()).await
    }

    /// Frees what was written to whole parts of `extent`; what was not stays as it is.
    async fn discard(&self, extent: Extent) -> Result<(), IoError> {
        let inner = extent.align_in(PART_SIZE);
        if inner.is_empty() {
            return Ok(());
        }
        let _alone = self.state.lock.lock(inner, LockMode::Exclusive).await;
        if self.store.restore_before_change(self.id, inner).await.is_err() {
            return Ok(()); // What is discarded may stay.
        }
        let runs = self.store.map.resolve_written(self.id, inner).await?;
        if !self.has_room(runs.len(), inner.length).await? {
            return Ok(()); // What is discarded need not be forgotten, and the map has no room to say so.
        }
        for run in runs {
            if matches!(run.source, Source::Store(_)) {
                self.store
                    .note_written(Mapping { snapshot: self.id, extent: run.extent, place: ZEROS })
                    .await?;
            }
        }
        Ok(())
    }

    async fn carry_out(&self, io: Io) -> Outcome {
        assert!(!io.is_change() || self.shape.access == Access::ReadWrite, "DEVICE3");
        let _inside = self.state.gate.enter().await;
        if self.state.gone.get() {
            return Err(IoError::Gone);
        }
        let durability = match &io {
            Io::Write { durability, .. } => *durability,
            Io::Zero { options, .. } => options.durability,
            Io::Read { .. } | Io::Discard { .. } | Io::Flush => Durability::Volatile,
        };
        match io {
            Io::Read { offset, buffer } => return self.store.read_snapshot(self.id, offset, buffer).await,
            Io::Write { offset, data, .. } => self.write(offset, data).await?,
            Io::Zero { extent, .. } => self.zero(extent).await?,
            Io::Discard { extent } => self.discard(extent).await?,
            Io::Flush => self.store.flush_written().await?,
        }
        let many = self.store.state.borrow().unlogged.len() > UNLOGGED_MAX;
        if many || durability == Durability::Durable {
            self.store.flush_written().await?;
        }
        Ok(Buffer::empty())
    }

    /// The answer to a map request. While it is held it is inside the snapshot's gate, as a request is.
    async fn lead(&self, extent: Extent, intent: MapIntent) -> Result<MapAnswer, IoError> {
        let inside = self.state.gate.enter().await;
        if self.state.gone.get() {
            return Err(IoError::Gone);
        }
        let answer = match intent {
            MapIntent::Inspect | MapIntent::Read => {
                self.store.find_snapshot(self.id, first_of(extent)).await?.answer()
            }
            MapIntent::Overwrite => self.lead_writer(first_of(extent)).await?,
        };
        assert!(answer.length() <= extent.length, "MAP1: {extent:?}");
        Ok(answer.keeping(MapGuard::holding(inside)))
    }

    /// SNAPSHOT4: what is the snapshot's own is overwritten in place. What a rollback still reads in it is not (ROLLBACK2).
    async fn lead_writer(&self, extent: Extent) -> Result<MapAnswer, IoError> {
        let parts = extent.align_out(PART_SIZE);
        let alone = self.state.lock.lock(parts, LockMode::Exclusive).await;
        if self.store.is_target(self.id) && !self.store.shows_device(extent) {
            return Ok(MapAnswer::sent(extent.length));
        }
        let runs = self.store.map.resolve_written(self.id, parts).await?;
        let mut answer = MapAnswer::default();
        for run in runs.into_iter().filter_map(|run| run.clip(extent)) {
            answer.push(match run.source {
                Source::Store(_) => self.store.piece_of(run),
                Source::Below | Source::Zeros => MapPiece::sent(run.extent.length),
            });
        }
        Ok(answer.keeping(MapGuard::holding(alone)))
    }
}

impl BlockDevice for View {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        Completion::pending(self.carry_out(io.into_io()))
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        Box::pin(self.lead(extent, intent))
    }
}
