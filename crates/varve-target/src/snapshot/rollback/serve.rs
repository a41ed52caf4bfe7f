//! The origin in use while it is rolled back: what it shows, and how its parts are changed.

use super::Rollback;
use crate::fan_out::read_pieces;
use crate::pdata::{InUse, Pages, Stop, of_device};
use crate::snapshot::map::{Run, Source, push_extent};
use crate::snapshot::{InjectedBug, SnapshotStore};
use varve_block::{
    Buffer, Device, Durability, Extent, Io, IoError, LockMode, Outcome, RangeGuard, ZeroOptions,
};
use varve_format::store::PART_SIZE;

/// Stands for the origin in the order of snapshots: newer than all of them.
pub(in crate::snapshot) const ORIGIN: u64 = u64::MAX;
/// How much a change restores at least when many ranges are restored ahead of the batches, in chunks.
const REGION_CHUNKS: u64 = 16;

/// A change that is about to replace pending parts whole.
pub(in crate::snapshot) struct Overwriting {
    /// ROLLBACK5: held until the log says that the parts are restored.
    _source: RangeGuard,
    _copying: RangeGuard,
    /// What is restored once the change is durable.
    replaced: Vec<Extent>,
}

impl SnapshotStore {
    /// Where the bytes of `extent` of snapshot `id`, or of [`ORIGIN`], are found now (ROLLBACK1), and what keeps them there
    /// while it is held. [`Source::Below`] is the origin's device.
    pub(in crate::snapshot) async fn shown(
        &self,
        id: u64,
        extent: Extent,
    ) -> Result<(Vec<Run>, InUse), IoError> {
        self.map.run(|pages| Ok((self.try_shown(pages, id, extent)?, pages.in_use()))).await
    }

    /// Where the bytes of `extent` of two snapshots are found, at one instant.
    pub(in crate::snapshot) async fn shown_both(
        &self,
        one: u64,
        two: u64,
        extent: Extent,
    ) -> Result<(Vec<Run>, Vec<Run>), IoError> {
        let attempt = |pages: &mut Pages| {
            Ok((self.try_shown(pages, one, extent)?, self.try_shown(pages, two, extent)?))
        };
        self.map.run(attempt).await
    }

    fn try_shown(&self, pages: &mut Pages, id: u64, extent: Extent) -> Result<Vec<Run>, Stop> {
        let parts = extent.align_out(PART_SIZE);
        let contents = self.contents.borrow();
        let runs = if self.has_bug(InjectedBug::WrittenAsPreserved) {
            self.map.try_resolve_confused(pages, contents.snapshots.keys().copied(), id, parts)?
        } else {
            self.map.try_resolve(pages, id, parts)?
        };
        let mut shown = Vec::with_capacity(runs.len());
        let rollback = contents.rollback.as_ref().filter(|rollback| id >= rollback.boundary);
        for run in runs {
            let Some(rollback) = rollback.filter(|_| run.source == Source::Below) else {
                shown.push(run);
                continue;
            };
            let mut at = run.extent.offset;
            for gap in rollback.unrestored(run.extent) {
                push_below(&mut shown, Extent::between(at, gap.offset));
                shown.extend(self.try_target(pages, rollback, gap)?);
                at = gap.end();
            }
            push_below(&mut shown, Extent::between(at, run.extent.end()));
        }
        let shown: Vec<Run> = shown.into_iter().filter_map(|run| run.clip(extent)).collect();
        let covered: u64 = shown.iter().map(|run| run.extent.length).sum();
        assert_eq!(covered, extent.length, "ROLLBACK1: every byte is somewhere");
        Ok(shown)
    }

    /// Where the bytes of `extent` are that the target of `rollback` shows, and zeros behind its end (ROLLBACK7).
    fn try_target(&self, pages: &mut Pages, rollback: &Rollback, extent: Extent) -> Result<Vec<Run>, Stop> {
        let target = Extent::new(0, rollback.target_size);
        let mut runs = match extent.intersect(target) {
            Some(inside) => self.map.try_resolve(pages, rollback.snapshot, inside)?,
            None => Vec::new(),
        };
        let behind = Extent::between(extent.offset.max(target.end()), extent.end().max(target.end()));
        runs.extend((!behind.is_empty()).then_some(Run { extent: behind, source: Source::Zeros }));
        let covered: u64 = runs.iter().map(|run| run.extent.length).sum();
        assert_eq!(covered, extent.length, "ROLLBACK7: every byte is somewhere");
        Ok(runs)
    }

    /// As [`SnapshotStore::try_target`], of the rollback under way, and what keeps the bytes there while it is held.
    pub(super) async fn target_shows(&self, extent: Extent) -> Result<(Vec<Run>, InUse), IoError> {
        let attempt = |pages: &mut Pages| {
            let contents = self.contents.borrow();
            let runs = match &contents.rollback {
                Some(rollback) => self.try_target(pages, rollback, extent)?,
                None => Vec::new(),
            };
            Ok((runs, pages.in_use()))
        };
        self.map.run(attempt).await
    }

    /// Whether all of `extent` of the origin is on its device.
    pub(in crate::snapshot) fn shows_device(&self, extent: Extent) -> bool {
        let contents = self.contents.borrow();
        let Some(rollback) = &contents.rollback else { return true };
        rollback.requests.set(rollback.requests.get().wrapping_add(1));
        rollback.unrestored(extent).is_empty()
    }

    /// ROLLBACK2: keeps the target as it is in `extent` while that is read for snapshot `id`, or changed for [`ORIGIN`].
    /// None if nothing of it is found by the target.
    pub(in crate::snapshot) async fn hold_target(&self, id: u64, extent: Extent) -> Option<RangeGuard> {
        loop {
            let (target, boundary) = self.target().filter(|(_, boundary)| id >= *boundary)?;
            if self.shows_device(extent) {
                return None;
            }
            let view = self.view_state(target).expect("ROLLBACK2: the target is not removed");
            let held = view.lock.lock(extent.align_out(PART_SIZE), LockMode::Shared).await;
            // While we waited the rollback may have ended, and another one begun.
            if self.target().is_none_or(|now| now == (target, boundary)) {
                return Some(held);
            }
        }
    }

    /// Reads what the origin shows.
    pub(in crate::snapshot) async fn read_origin(&self, offset: u64, buffer: Buffer) -> Outcome {
        let found = self.find_origin(Extent::new(offset, buffer.len() as u64)).await?;
        read_pieces(&found.pieces, buffer).await.map_err(of_device)
    }

    /// Whether snapshot `id` is what the origin is rolled back to.
    pub(in crate::snapshot) fn is_target(&self, id: u64) -> bool {
        self.target().is_some_and(|(target, _)| target == id)
    }

    /// What of `extent` is not restored: what is pending, and what the target does not have either.
    pub(super) async fn unrestored(&self, extent: Extent) -> Result<(Vec<Extent>, Vec<Extent>), IoError> {
        let (pending, plain) = self.map.run(|pages| self.try_unrestored(pages, extent)).await?;
        assert!(
            pending.iter().chain(&plain).all(|part| part.is_aligned(PART_SIZE)),
            "whole parts are restored"
        );
        Ok((pending, plain))
    }

    fn try_unrestored(&self, pages: &mut Pages, extent: Extent) -> Result<(Vec<Extent>, Vec<Extent>), Stop> {
        let (mut pending, mut plain) = (Vec::new(), Vec::new());
        let contents = self.contents.borrow();
        let Some(rollback) = &contents.rollback else { return Ok((pending, plain)) };
        for gap in rollback.unrestored(extent) {
            for run in self.try_target(pages, rollback, gap)? {
                let kind = if run.source == Source::Below { &mut plain } else { &mut pending };
                push_extent(kind, run.extent);
            }
        }
        Ok((pending, plain))
    }

    /// What of `extent` must be preserved for the newest snapshot of before the boundary, and for which. The parts
    /// are pending, or the newest of after the boundary has none of them (ROLLBACK4).
    pub(super) async fn missing_before_boundary(
        &self,
        extent: Extent,
    ) -> Result<Option<(u64, Vec<Extent>)>, IoError> {
        self.map.run(|pages| self.try_missing_before_boundary(pages, extent)).await
    }

    fn try_missing_before_boundary(
        &self,
        pages: &mut Pages,
        extent: Extent,
    ) -> Result<Option<(u64, Vec<Extent>)>, Stop> {
        let contents = self.contents.borrow();
        let Some(rollback) = &contents.rollback else { return Ok(None) };
        let Some((newest, descriptor)) = contents.snapshots.range(..rollback.boundary).next_back() else {
            return Ok(None);
        };
        let Some(inside) = extent.intersect(Extent::new(0, descriptor.size)) else { return Ok(None) };
        let missing = self.map.try_missing(pages, *newest, inside)?;
        Ok((!missing.is_empty()).then_some((*newest, missing)))
    }

    /// Preserves `pending` parts for the snapshots of before the boundary (ROLLBACK4). The caller holds `copies`.
    pub(super) async fn preserve_pending(&self, pending: &[Extent]) -> Result<(), IoError> {
        if self.has_bug(InjectedBug::RestoreUnpreserved) {
            return Ok(());
        }
        let mut snapshot = 0;
        let mut runs = Vec::new();
        for extent in pending {
            if let Some((newest, missing)) = self.missing_before_boundary(*extent).await? {
                snapshot = newest;
                runs.extend(missing);
            }
        }
        self.preserve_runs(snapshot, runs, &async || Ok(())).await?;
        for extent in pending {
            if let Some((snapshot, found)) = self.missing_before_boundary(*extent).await? {
                return Err(self.contradicts(snapshot, *extent, "ROLLBACK4: all of it is preserved", &found));
            }
        }
        Ok(())
    }

    /// Sees to all that stands between a change of `extent` and the device while the origin is rolled back; the
    /// caller is inside the gate for changes, and hands what comes back to [`SnapshotStore::carry_out`]. None if all
    /// of it is restored.
    pub(in crate::snapshot) async fn prepare_unrestored(
        &self,
        extent: Extent,
    ) -> Result<Option<Overwriting>, IoError> {
        let scope = self.scope(extent);
        let Some(source) = self.hold_target(ORIGIN, scope).await else { return Ok(None) };
        let copying = self.copies.lock(scope, LockMode::Exclusive).await;
        let (pending, plain) = self.unrestored(scope).await?;
        if pending.is_empty() && plain.is_empty() {
            return Ok(None);
        }
        self.failed.check()?;
        let since = self.target().map_or(ORIGIN, |(_, boundary)| boundary);
        let newest_is_since = self.contents.borrow().newest().is_some_and(|(newest, _)| newest >= since);
        // ROLLBACK4: a snapshot of after the instant needs what the origin shows, so that goes to the device first.
        let whole = if newest_is_since { Extent::default() } else { extent.align_in(PART_SIZE) };
        let (replaced, kept) = divide(&pending, whole);
        self.restore(&kept, Durability::Durable).await?;
        // What is about to change is preserved again at once, so that is not dropped.
        let unchanged: Vec<Extent> =
            kept.iter().flat_map(|kept| kept.without(&[extent.align_out(PART_SIZE)])).collect();
        let drops = self.join_drops(&unchanged).await?;
        // They get into the log before what is preserved now, or with it (ROLLBACK4).
        let marks = self.join_marks(varve_block::joined([kept, plain].concat()));
        let parts = extent.align_out(PART_SIZE);
        let preserve = self.preserve_held(parts, &async || Ok(()));
        let (dropped, preserved, marked) =
            futures_util::join!(self.await_drops(drops), preserve, self.await_commits(marks));
        dropped.and(preserved).and(marked)?;
        if self.has_bug(InjectedBug::MarkBeforeReplacing) {
            self.mark(replaced.clone()).await?;
        }
        Ok(Some(Overwriting { _source: source, _copying: copying, replaced }))
    }

    /// What a change of `extent` sees to while it is at it.
    fn scope(&self, extent: Extent) -> Extent {
        let contents = self.contents.borrow();
        let parts = extent.align_out(PART_SIZE);
        let many = |rollback: &&Rollback| {
            rollback.marks() > self.options.restored_ranges && rollback.size > parts.offset
        };
        match contents.rollback.as_ref().filter(many) {
            Some(rollback) => {
                let region = parts.align_out(REGION_CHUNKS * self.map.chunk_size());
                Extent::between(region.offset, region.end().min(rollback.size).max(parts.end()))
            }
            None => parts,
        }
    }

    /// Submits `io`, a change that is prepared, to `device`, the origin's, and says in the log what it has restored.
    pub(in crate::snapshot) async fn carry_out(
        &self,
        device: &Device,
        io: Io,
        overwriting: Option<Overwriting>,
    ) -> Outcome {
        let Some(overwriting) = overwriting.filter(|overwriting| !overwriting.replaced.is_empty()) else {
            return device.submit(io).await;
        };
        let outcome = device.submit(durable(io)).await?; // ROLLBACK3
        match self.mark(overwriting.replaced).await {
            Ok(()) => Ok(outcome),
            // The log has nothing of it: the parts are pending as before.
            Err(IoError::NoSpace) => Err(IoError::NoSpace),
            Err(error) => {
                self.half_rolled_back.set(true); // ROLLBACK6
                Err(error)
            }
        }
    }

    /// Restores all of `extent`, which is about to change in snapshot `id` (ROLLBACK2). The caller holds the snapshot's
    /// lock there, exclusively.
    pub(in crate::snapshot) async fn restore_before_change(
        &self,
        id: u64,
        extent: Extent,
    ) -> Result<(), IoError> {
        if !self.is_target(id) || self.shows_device(extent) {
            return Ok(());
        }
        let parts = extent.align_out(PART_SIZE);
        let _copying = self.copies.lock(parts, LockMode::Exclusive).await;
        if !self.is_target(id) {
            return Ok(()); // It has ended while we waited.
        }
        let (pending, plain) = self.unrestored(parts).await?;
        self.restore(&pending, Durability::Durable).await?;
        self.mark_dropping(&pending, varve_block::joined([pending.clone(), plain].concat())).await?;
        assert!(self.shows_device(parts), "ROLLBACK2: {parts:?} is restored");
        Ok(())
    }
}

/// The same change, acknowledged only once it is durable. (Discards replace nothing: they never come here.)
fn durable(io: Io) -> Io {
    let durability = Durability::Durable;
    match io {
        Io::Write { offset, data, .. } => Io::Write { offset, data, durability },
        Io::Zero { extent, options } => Io::Zero { extent, options: ZeroOptions { durability, ..options } },
        other => other,
    }
}

/// Which parts of `extents` lie in `whole`, and which do not.
fn divide(extents: &[Extent], whole: Extent) -> (Vec<Extent>, Vec<Extent>) {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for extent in extents {
        let Some(part) = extent.intersect(whole) else {
            outside.push(*extent);
            continue;
        };
        inside.push(part);
        let sides = [Extent::between(extent.offset, part.offset), Extent::between(part.end(), extent.end())];
        outside.extend(sides.into_iter().filter(|side| !side.is_empty()));
    }
    (inside, outside)
}

fn push_below(runs: &mut Vec<Run>, extent: Extent) {
    if !extent.is_empty() {
        runs.push(Run { extent, source: Source::Below });
    }
}
