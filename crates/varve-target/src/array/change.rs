//! Changes: the log first, then all members, then the acknowledgement.

use super::dirty_log::log::Stop;
use super::{Array, InjectedBug, combine, lost};
use crate::journal::Turn;
use futures_util::future::join;
use std::ops::Range;
use varve_block::{
    Buffer, Bytes, Completion, Durability, Extent, Io, IoError, LockMode, Outcome, ZeroOptions,
};

/// What is done to an extent.
pub(super) enum Change {
    /// These bytes are written.
    Write(Bytes),
    /// So many bytes become zeros.
    Zero(u64, ZeroOptions),
}

impl Change {
    fn length(&self) -> u64 {
        match self {
            Change::Write(data) => data.len() as u64,
            Change::Zero(length, _) => *length,
        }
    }

    fn writes(&self) -> bool {
        matches!(self, Change::Write(_))
    }

    /// Whether it is to be refused rather than take time.
    fn is_fast(&self) -> bool {
        matches!(self, Change::Zero(_, ZeroOptions { fast: true, .. }))
    }
}

/// What members answered: the places of those that failed, and with what.
type Failed = Vec<(usize, IoError)>;

impl Array {
    /// Changes whole blocks from `offset` on.
    pub(super) async fn change(&self, offset: u64, change: Change, durability: Durability) -> Outcome {
        let extent = Extent::new(offset, change.length());
        let _range = self.range.lock(extent, LockMode::Exclusive).await;
        self.change_held(offset, &change, durability).await
    }

    /// Changes whole blocks from `offset` on, which the caller holds alone.
    async fn change_held(&self, offset: u64, change: &Change, durability: Durability) -> Outcome {
        let mut done = 0;
        while done < change.length() {
            done += self.change_next(offset, change, done, durability).await?;
        }
        assert_eq!(done, change.length(), "ARRAYIO6: pieces are of the change");
        Ok(Buffer::empty())
    }

    /// Changes what is behind the first `done` bytes of the change at `offset`: all of it or a piece. Returns how many bytes. The
    /// caller holds the extent alone.
    async fn change_next(
        &self,
        offset: u64,
        change: &Change,
        done: u64,
        durability: Durability,
    ) -> Result<u64, IoError> {
        loop {
            self.latch.check()?;
            let inside = self.gate.enter().await; // No member leaves or returns until the gate is left.
            let piece = self.piece_of(change, done)?;
            let extent = Extent::new(offset + done, piece.length());
            let regions = self.regions.of(extent);
            let is_lost = self.is_lost(regions.clone());
            let room = is_lost.then(|| self.lost.room_for(extent)).flatten();
            if is_lost && room.is_none() {
                return Err(self.refuse()); // ARRAYLOST4
            }
            self.regions.enter(regions.clone());
            let logged = self.log_first(regions.clone(), extent.offset, &piece).await;
            if is_lost && logged == Ok(()) {
                self.know_written(regions.clone(), extent);
            }
            let mut failed = match logged {
                Ok(()) => self.send(extent, &piece, durability).await,
                Err(Stop) => Vec::new(),
            };
            self.regions.leave(regions.clone(), self.options.clock.now());
            let is_refused = piece.is_fast() && take_refusals(&mut failed);
            if is_refused {
                self.set_apart(regions.clone()); // Some may have done it, or a part of it.
            }
            let handled = self.handle_failures(&failed, regions.clone());
            if (handled.is_err() || is_refused)
                && let Some(checksums) = &self.checksums
            {
                checksums.forget(extent);
            }
            drop(inside);
            if logged == Ok(()) && failed.is_empty() && !is_refused {
                return Ok(extent.length);
            }
            handled?;
            Box::pin(self.reconfigure()).await?; // ARRAYIO3
            if is_refused {
                return Err(IoError::Unsupported);
            }
            if logged == Ok(()) {
                return Ok(extent.length);
            }
        }
    }

    /// What is changed at once of the change behind its first `done` bytes: all of it, or what fits into a record of the log if
    /// that is to have it (ARRAYIO6). Zeros are written then.
    fn piece_of(&self, change: &Change, done: u64) -> Result<Change, IoError> {
        let rest = change.length() - done;
        if change.is_fast() && !self.zeroes_fast() {
            return Err(IoError::Unsupported);
        }
        let index = |bytes: u64| usize::try_from(bytes).expect("a request is in memory");
        if !self.lacks_data_member() {
            return Ok(match change {
                Change::Write(data) => Change::Write(data.slice(index(done), index(rest))),
                Change::Zero(_, options) => Change::Zero(rest, *options),
            });
        }
        let length = index(rest.min(self.piece_max()));
        Ok(Change::Write(match change {
            Change::Write(data) => data.slice(index(done), length),
            Change::Zero(..) => self.options.arena.take_zeroed(length).freeze(),
        }))
    }

    /// Whether zeros may be had without moving data: no member says that it cannot. One may refuse them all the same.
    fn zeroes_fast(&self) -> bool {
        let targets = self.members.targets();
        assert!(!targets.is_empty(), "MEMBERS2: a change is sent to some member");
        !self.lacks_data_member() && targets.iter().all(|(_, device)| device.shape().fast_zero)
    }

    /// Waits until the log says what is about to be changed (ARRAYIO1, ARRAYIO6).
    async fn log_first(&self, regions: Range<u64>, offset: u64, change: &Change) -> Result<(), Stop> {
        let content = match change {
            Change::Write(data) if self.lacks_data_member() && !self.has_bug(InjectedBug::SkipContent) => {
                Some(self.log.ask_content(offset, data.clone()))
            }
            _ => None,
        };
        loop {
            let is_marked = self.is_marked(regions.clone(), change.writes());
            if is_marked && content.as_ref().is_none_or(|is_durable| is_durable.get()) {
                return Ok(());
            }
            if self.is_leaving() {
                return Err(Stop);
            }
            // Of many regions a record marks the first: the next one goes on behind them.
            let unmarked =
                regions.clone().filter(|region| !self.is_marked(*region..region + 1, change.writes()));
            unmarked.for_each(|region| self.log.ask(region, change.writes()));
            if self.has_bug(InjectedBug::WriteBeforeMark) {
                return Ok(());
            }
            Box::pin(self.join_commit()).await?; // Seldom; memory for its future is not had for every change.
        }
    }

    /// Whether the log says of all `regions` that they are dirty, and as written if the change `writes`. The superblock says it of those that
    /// are lost; no mark must say that members lack them (ARRAYLOST5).
    fn is_marked(&self, regions: Range<u64>, writes: bool) -> bool {
        let is_lost = |region: u64| self.is_lost(region..region + 1);
        self.regions.is_marked(regions.clone(), writes)
            || self.is_lost(regions.clone()) && { regions }
                .all(|region| is_lost(region) || self.regions.is_marked(region..region + 1, writes))
    }

    /// Waits for a commit that begins after now, or leads it.
    pub(super) async fn join_commit(&self) -> Result<(), Stop> {
        let number = self.log.group.next();
        while let Turn::Lead(_lead) = self.log.group.turn(number).await {
            match self.log.commit(&self.regions, &self.members, &self.log_disk).await {
                Ok(new) => new.into_iter().for_each(|region| self.begin_checksums(region)),
                Err(stop) => {
                    self.wants_superblock.set(true);
                    return Err(stop);
                }
            }
            self.tell(); // Regions that are marked become clean some day.
        }
        Ok(())
    }

    /// Sends the change to all members that are written.
    async fn send(&self, extent: Extent, change: &Change, durability: Durability) -> Failed {
        let run = self.spec.layout.on_members(extent);
        let at = self.members.on_device(run);
        assert_eq!(extent.length, change.length(), "GEOMETRY2: {extent:?}");
        if let (Change::Zero(..), Some(checksums)) = (change, &self.checksums)
            && self.regions.written().has_any(self.regions.of(extent))
        {
            checksums.set_zeros(extent);
        }
        let is_mirror = self.is_mirror();
        let fragments = match change {
            Change::Write(data) if !is_mirror => self.fragments(data),
            _ => Vec::new(),
        };
        let fragments = match change {
            Change::Write(data) if is_mirror => std::slice::from_ref(data),
            _ => &fragments[..],
        };
        self.expect(extent, fragments);
        let written = self.on_members(|place| match change {
            Change::Write(_) => {
                let data = fragments[if is_mirror { 0 } else { place }].clone();
                Io::Write { offset: at, data, durability }
            }
            Change::Zero(_, options) => Io::Zero { extent: Extent::new(at, run.length), options: *options },
        });
        let Some(checksums) = self.flushed_checksums().filter(|_| durability == Durability::Durable) else {
            return written.await;
        };
        let pages = Box::pin(self.write_durable_pages(checksums, extent)); // PAGES3: they say already what is coming.
        let (mut failed, unpaged) = join(written, pages).await;
        failed.extend(unpaged);
        each_once(failed)
    }

    /// Writes what the log has, before anything else is done.
    pub(super) async fn send_again(&self, extent: Extent, data: Bytes) -> Result<(), IoError> {
        let failed = self.send(extent, &Change::Write(data), Durability::Volatile).await;
        self.handle_failures(&failed, 0..0)
    }

    /// A change of `regions` has failed on members that stay: they are made equal there (RESYNC4). What one member in sync has, or the
    /// data members, is authoritative if that is all; none of what members have that are catching up does.
    fn set_apart(&self, regions: Range<u64>) {
        assert!(!self.lacks_data_member(), "ARRAYIO5: what is there would be lost");
        self.regions.disturb(&regions);
        for place in (0..self.members.count()).filter(|place| !self.members.is_in_sync(*place)) {
            regions.clone().for_each(|region| self.members.lack(place, region));
        }
        if self.may_differ() {
            self.regions.desync(regions);
        }
        self.tell();
    }

    /// What is to be done about members that failed: they leave if the others have all data. If not, none leaves, and members
    /// may differ there.
    pub(super) fn handle_failures(&self, failed: &Failed, regions: Range<u64>) -> Result<(), IoError> {
        if failed.is_empty() {
            return Ok(());
        }
        let places: Vec<usize> = failed.iter().map(|(place, _)| *place).collect();
        match failed.iter().find(|(place, _)| self.members.is_in_sync(*place)) {
            Some((_, error)) if !self.members.may_lose(self.spec.layout, &places) => {
                if self.lacks_data_member() {
                    return Err(self.latch.shut(*error)); // Blocks may be torn, and only the log has them whole.
                }
                // Of a flush that failed nothing is new: the background tries again when it is due.
                if !regions.is_empty() {
                    self.set_apart(regions);
                }
                Err(*error)
            }
            _ => {
                self.members.leave(places);
                Ok(())
            }
        }
    }

    /// The most bytes of a change whose content fits into a record of the log: whole blocks.
    fn piece_max(&self) -> u64 {
        let block = self.spec.layout.block_size();
        let piece_max = self.log.content_max() / block * block;
        assert!(piece_max > 0, "ARRAYLOG2: a block of {block} bytes fits into a record");
        piece_max
    }

    /// Freed content becomes zeros where that moves no data, and stays what it is elsewhere: parity must fit.
    pub(super) fn discard(&self, extent: Extent) -> Completion<'_> {
        if !self.shape.get().fast_zero || self.lacks_data_member() {
            return Completion::done();
        }
        let change = Change::Zero(extent.length, ZeroOptions::default());
        Completion::pending(self.change(extent.offset, change, Durability::Volatile))
    }

    /// Makes everything durable that was acknowledged before.
    pub(super) async fn flush(&self) -> Outcome {
        self.latch.check()?;
        let inside = self.gate.enter().await;
        let mut failed = self.write_flushed_pages().await; // PAGES3
        let number = self.regions.flush_begins();
        failed.extend(self.on_members(|_| Io::Flush).await);
        let failed = each_once(failed);
        if failed.is_empty() {
            self.regions.flush_ended(number);
            return Ok(Buffer::empty());
        }
        let handled = self.handle_failures(&failed, 0..0);
        drop(inside);
        handled?;
        self.reconfigure().await?; // The others have flushed then.
        Ok(Buffer::empty())
    }

    /// Whether what is in `regions` cannot be known (ARRAYIO5).
    pub(super) fn is_lost(&self, regions: Range<u64>) -> bool {
        self.lacks_data_member()
            && self.regions.unsynced().has_any(regions)
            && !self.has_bug(InjectedBug::ReconstructDirty)
    }

    /// Counts a request to a region whose content cannot be known.
    pub(super) fn refuse(&self) -> IoError {
        self.counters.refused.set(self.counters.refused.get() + 1);
        lost()
    }

    /// What of `data` is on each member.
    pub(super) fn fragments(&self, data: &Bytes) -> Vec<Bytes> {
        let layout = self.spec.layout;
        let index = |value: u64| usize::try_from(value).expect("a block is small");
        combine::fragments(
            data,
            index(layout.data_members()),
            index(layout.fragment_size()),
            &self.options.arena,
        )
    }
}

/// Takes those out that have refused what they were asked for: nothing is wrong with them. Returns whether there are any.
fn take_refusals(failed: &mut Failed) -> bool {
    let before = failed.len();
    failed.retain(|(_, error)| *error != IoError::Unsupported);
    assert!(failed.len() <= before, "RESYNC4: a member fails, or refuses");
    failed.len() < before
}

/// `failed` with one error of each member.
pub(super) fn each_once(mut failed: Failed) -> Failed {
    failed.sort_by_key(|(place, _)| *place);
    failed.dedup_by_key(|(place, _)| *place);
    failed
}
