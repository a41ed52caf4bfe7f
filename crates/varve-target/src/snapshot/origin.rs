//! The origin's front: lets requests through, and preserves what a change is about to overwrite.

use super::batch::Work;
use super::places::first_of;
use super::rollback::Overwriting;
use super::{InjectedBug, SnapshotStore, index};
use crate::fan_out::fan_out;
use crate::space_waiters::SpaceWait;
use futures_util::future::join_all;
use std::rc::Rc;
use varve_block::{
    BlockDevice, Buffer, Checked, Completion, Device, Extent, Io, IoError, LockMode, MIB, MapAnswer,
    MapFuture, MapGuard, MapIntent, MapPiece, Outcome, Shape, TrackerGuard,
};
use varve_format::store::PART_SIZE;

/// The longest run that is preserved as one.
pub(super) const PIECE_BYTES: u64 = MIB;

/// What stands before the origin.
struct Origin {
    store: Rc<SnapshotStore>,
    /// The origin itself, as it was when this front was made.
    device: Device,
}

impl SnapshotStore {
    /// The device of the origin, for any client. Its shape is the present one; ask again after a resize.
    pub fn origin(self: &Rc<Self>) -> Device {
        Device::new(Origin { store: Rc::clone(self), device: self.origin_device() })
    }

    /// The snapshot for which the parts of `extent` are preserved now, and these parts.
    fn concerned(&self, extent: Extent) -> Option<(u64, Extent)> {
        let (newest, size) = self.contents.borrow().newest()?;
        Some((newest, extent.align_out(PART_SIZE).intersect(Extent::new(0, size))?))
    }

    /// Whether something of `extent` must be preserved before it may change, or that may be so: what it takes to know
    /// is not in memory.
    pub(super) fn may_miss(&self, extent: Extent) -> bool {
        self.concerned(extent).is_some_and(|(newest, parts)| {
            self.map.missing_if_loaded(newest, parts).map_or(true, |missing| !missing.is_empty())
        })
    }

    /// The runs of `extent` that must be preserved before it may change, and for which snapshot.
    pub(super) async fn missing(&self, extent: Extent) -> Result<Option<(u64, Vec<Extent>)>, IoError> {
        let Some((newest, parts)) = self.concerned(extent) else { return Ok(None) };
        let missing = self.map.missing(newest, parts).await?;
        Ok((!missing.is_empty()).then_some((newest, missing)))
    }

    /// Makes sure that the origin's content in `extent` is preserved for its snapshots. The caller is inside the
    /// gate for changes, or holds it closed.
    pub(super) async fn preserve(&self, extent: Extent) -> Result<(), IoError> {
        self.preserve_around(extent, async || Ok(())).await
    }

    /// As [`SnapshotStore::preserve`]; `between` runs after the old content was read and before it is durable, which
    /// only an injected bug has a use for.
    async fn preserve_around(
        &self,
        extent: Extent,
        between: impl AsyncFn() -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        let parts = extent.align_out(PART_SIZE);
        let _alone = self.copies.lock(parts, LockMode::Exclusive).await;
        self.preserve_held(parts, &between).await
    }

    /// As [`SnapshotStore::preserve`], for `parts` of which the caller holds `copies`.
    pub(super) async fn preserve_held(
        &self,
        parts: Extent,
        between: &impl AsyncFn() -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        let Some((snapshot, missing)) = self.missing(parts).await? else { return Ok(()) };
        self.preserve_runs(snapshot, missing, between).await?;
        // The snapshot may have been removed meanwhile: then an older one has got what it needs.
        match self.missing(parts).await? {
            None => Ok(()),
            Some((snapshot, found)) => {
                Err(self.contradicts(snapshot, parts, "SNAPSHOT1: all of it is preserved", &found))
            }
        }
    }

    /// Preserves `missing` for `snapshot`. The caller holds `copies`.
    pub(super) async fn preserve_runs(
        &self,
        snapshot: u64,
        missing: Vec<Extent>,
        between: &impl AsyncFn() -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        let mut round = Vec::new();
        let mut bytes = 0;
        let pieces = missing.into_iter().flat_map(|run| cut(run, PIECE_BYTES));
        for piece in pieces {
            if bytes + piece.length > self.options.batch_bytes {
                self.preserve_round(snapshot, &round, between).await?;
                (round, bytes) = (Vec::new(), 0);
            }
            bytes += piece.length;
            round.push(piece);
        }
        if round.is_empty() {
            return Ok(());
        }
        self.preserve_round(snapshot, &round, between).await
    }

    /// Preserves some runs, all at the same time.
    async fn preserve_round(
        &self,
        snapshot: u64,
        runs: &[Extent],
        between: &impl AsyncFn() -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        self.failed.check()?;
        assert!(
            !runs.is_empty() && runs.iter().all(|run| run.is_aligned(PART_SIZE)),
            "whole parts are preserved"
        );
        let _spent = self.copying.spend(runs.iter().map(|run| run.length).sum()).await;
        let origin = self.origin_device();
        let read = async |run: &Extent| {
            let ticket = self.pipeline.join(Work::Preserve { snapshot, extent: *run, data: None });
            let content = origin.read(run.offset, self.arena.take(index(run.length))).await;
            ticket.deliver(content.ok());
            ticket
        };
        let tickets = join_all(runs.iter().map(read)).await;
        between().await?;
        let mut outcome = Ok(());
        for ticket in tickets {
            outcome = outcome.and(self.await_commit(ticket).await);
        }
        outcome
    }
}

/// `run`, in pieces of at most `length` bytes.
fn cut(run: Extent, length: u64) -> impl Iterator<Item = Extent> {
    assert!(length > 0 && !run.is_empty());
    let pieces = run.length.div_ceil(length);
    (0..pieces).map(move |piece| {
        let start = run.offset + piece * length;
        Extent::between(start, run.end().min(start + length))
    })
}

impl Origin {
    /// A change that has to wait for something.
    async fn change(&self, io: Io, inside: Option<TrackerGuard>) -> Outcome {
        let store = &*self.store;
        let (mut inside, mut attempt) = (inside, SpaceWait::default());
        loop {
            let entered = match inside.take() {
                Some(inside) => inside,
                None => store.changes.enter().await,
            };
            store.waiters.begin(&mut attempt);
            match self.prepare(&io).await {
                Ok(overwriting) => {
                    let outcome = store.carry_out(&self.device, io, overwriting).await;
                    drop(entered);
                    return outcome;
                }
                Err(IoError::NoSpace) => {}
                Err(error) => return Err(error),
            }
            drop(entered); // STOREFULL1
            store.make_room(&mut attempt, io.extent().align_out(PART_SIZE).length).await?;
        }
    }

    /// Frees what `extent` of the origin holds, except where a snapshot needs it: that would have to be copied first,
    /// and the copy would take the space that this gives back.
    async fn discard(&self, extent: Extent, inside: Option<TrackerGuard>) -> Outcome {
        let store = &*self.store;
        let _inside = match inside {
            Some(inside) => inside,
            None => store.changes.enter().await,
        };
        if store.half_rolled_back.get() {
            return Err(IoError::Medium); // ROLLBACK6
        }
        if !store.shows_device(extent) {
            return Ok(Buffer::empty());
        }
        let needed = store.missing(extent).await?.map(|(_, missing)| missing).unwrap_or_default();
        let spared = extent.without(&needed);
        assert!(spared.iter().all(|part| extent.contains(*part)), "SNAPSHOT1: what is needed stays");
        fan_out(spared.into_iter().map(|extent| (&self.device, Io::Discard { extent }))).await
    }

    /// Preserves what `io`, a change, needs preserved, and restores what it needs restored. The caller is inside the
    /// gate for changes.
    async fn prepare(&self, io: &Io) -> Result<Option<Overwriting>, IoError> {
        let store = &*self.store;
        if store.half_rolled_back.get() {
            return Err(IoError::Medium);
        }
        let extent = io.extent();
        if let Io::Zero { options, .. } = io
            && options.fast
            && (!store.shows_device(extent) || store.missing(extent).await?.is_some())
        {
            return Err(IoError::Unsupported);
        }
        if let Some(overwriting) = store.prepare_unrestored(extent).await? {
            return Ok(Some(overwriting));
        }
        if store.has_bug(InjectedBug::EntryAfterWrite)
            && let Io::Write { offset, data, durability } = io
        {
            let write = async || self.device.write(*offset, data.clone(), *durability).await.map(|_| ());
            return store.preserve_around(extent, write).await.map(|()| None);
        }
        store.preserve(extent).await.map(|()| None)
    }

    /// The device itself, or what is to be restored there.
    async fn lead_reader(&self, extent: Extent) -> Result<MapAnswer, IoError> {
        if self.store.half_rolled_back.get() {
            return Err(IoError::Medium); // ROLLBACK6
        }
        if self.store.shows_device(extent) {
            return Ok(MapAnswer::through(&self.device, extent.offset, extent.length));
        }
        Ok(self.store.find_origin(first_of(extent)).await?.answer())
    }

    /// What is preserved, or need not be, is overwritten on the device, inside the gate for changes (SNAPSHOT2).
    async fn lead_writer(&self, extent: Extent) -> Result<MapAnswer, IoError> {
        let store = &*self.store;
        let inside = store.changes.enter().await;
        if store.half_rolled_back.get() {
            return Err(IoError::Medium); // ROLLBACK6
        }
        if !store.shows_device(extent) {
            return Ok(MapAnswer::sent(extent.length));
        }
        let missing = store.missing(extent).await?.map(|(_, missing)| missing).unwrap_or_default();
        let first = missing.first().map_or(extent.end(), |missing| missing.offset.max(extent.offset));
        if first == extent.offset {
            let length = missing.first().map_or(extent.length, |missing| missing.end() - extent.offset);
            return Ok(MapAnswer::sent(length.min(extent.length)));
        }
        let piece = MapPiece::on(&self.device, extent.offset, first - extent.offset);
        Ok(MapAnswer::new(piece, MapGuard::holding(inside)))
    }

    async fn read_later(&self, io: Io) -> Outcome {
        if self.store.half_rolled_back.get() {
            return Err(IoError::Medium); // ROLLBACK6
        }
        match io {
            Io::Read { offset, buffer } => self.store.read_origin(offset, buffer).await,
            other => self.device.submit(other).await,
        }
    }
}

impl BlockDevice for Origin {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let store = &*self.store;
        let io = io.into_io();
        match &io {
            Io::Flush => return self.device.submit(io),
            Io::Read { .. } if !store.half_rolled_back.get() && store.shows_device(io.extent()) => {
                return self.device.submit(io);
            }
            Io::Read { .. } => return Completion::pending(self.read_later(io)),
            Io::Write { .. } | Io::Zero { .. } | Io::Discard { .. } => {}
        }
        let inside = store.changes.try_enter();
        let plain = !store.half_rolled_back.get() && store.shows_device(io.extent());
        if inside.is_none() || !plain || store.may_miss(io.extent()) {
            return match io {
                Io::Discard { extent } => Completion::pending(self.discard(extent, inside)),
                io => Completion::pending(self.change(io, inside)),
            };
        }
        // SNAPSHOT2: everything is preserved, so nothing is in the way.
        self.device.submit(io).keeping(inside)
    }

    fn map(&self, extent: Extent, intent: MapIntent) -> MapFuture<'_> {
        match intent {
            MapIntent::Inspect | MapIntent::Read => Box::pin(self.lead_reader(extent)),
            MapIntent::Overwrite => Box::pin(self.lead_writer(first_of(extent))),
        }
    }
}
