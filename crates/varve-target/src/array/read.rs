//! Reads: from which members, what is computed from the others, and what is written again where a sector is bad.
//!
//! Invariants: ARRAYIO5 and ARRAYIO7 of the module, and
//! - ARRAYREAD1. Members are combined (verified, reconstructed) only under the range lock, after the regions were found to be in
//!   sync: the fragments then belong together.
//! - ARRAYREAD2. A region of a mirror in which members differ is read from one member, always the first in sync.

use super::{Array, ArrayLayout, ReadPolicy, combine, lost};
use futures_util::future::join_all;
use varve_block::{Buffer, Bytes, Completion, Durability, Extent, IoError, LockMode, MIB, Outcome};

/// Bytes of the array that one choice of members serves.
const ZONE: u64 = 4 * MIB;

/// The members that a read of ddraid uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sources {
    /// All data members.
    Data,
    /// All but one.
    Without(usize),
    /// All, to compare.
    All,
}

/// Why runs could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unread {
    /// A member failed.
    Member(usize, IoError),
    /// The parity does not fit the data, or what was read does not fit its checksums.
    Mismatch,
}

impl Unread {
    /// The error that a request receives.
    pub(super) fn error(self) -> IoError {
        match self {
            Unread::Member(_, error) => error,
            Unread::Mismatch => lost(),
        }
    }
}

impl Array {
    /// Reads whole blocks from `offset` on.
    pub(super) fn read(&self, offset: u64, buffer: Buffer) -> Completion<'_> {
        match self.spec.layout {
            ArrayLayout::Mirror { .. } => Completion::pending(self.read_mirror(offset, buffer)),
            ArrayLayout::Ddraid { .. } => Completion::pending(self.read_ddraid(offset, buffer)),
        }
    }

    async fn read_mirror(&self, offset: u64, buffer: Buffer) -> Outcome {
        self.latch.check()?;
        let extent = Extent::new(offset, buffer.len() as u64);
        if self.options.read_policy == ReadPolicy::Verify {
            return self.compare(extent, buffer).await;
        }
        let place = self.choose(extent)?;
        let counters = self.members.counters(place);
        counters.reading.set(counters.reading.get() + 1);
        let device = self.members.device(place);
        let read = device.read(self.members.on_device(extent), buffer);
        let outcome = self.beside_pages(extent, read).await;
        counters.reading.set(counters.reading.get() - 1);
        match outcome {
            Ok(buffer) if self.fit(extent, &[(place, &buffer[..])]).await => return Ok(buffer),
            Ok(_) => {} // Perhaps it is being written.
            Err(error) => self.heal(Unread::Member(place, error), extent).await?,
        }
        self.read_mended(extent).await
    }

    /// Reads `extent` of a mirror while no write changes it; what cannot be read or does not fit its checksums is written again.
    async fn read_mended(&self, extent: Extent) -> Outcome {
        loop {
            let shared = self.range.lock(extent, LockMode::Shared).await;
            let place = self.choose(extent)?;
            let outcome = self.read_fit(extent, &[place]).await;
            drop(shared);
            match outcome {
                Ok(runs) => return runs.into_iter().next().ok_or(IoError::Gone),
                Err(unread) => self.heal(unread, extent).await?,
            }
        }
    }

    /// Reads `extent` from all members of a mirror that are in sync, and compares (ARRAYREAD1).
    async fn compare(&self, extent: Extent, mut buffer: Buffer) -> Outcome {
        loop {
            let shared = self.range.lock(extent, LockMode::Shared).await;
            let mut places = self.members.sources();
            if self.differs(extent) {
                places.truncate(1); // ARRAYREAD2
            }
            let outcome = self.read_fit(extent, &places).await;
            drop(shared);
            match outcome {
                Ok(runs) if runs.windows(2).all(|pair| pair[0][..] == pair[1][..]) => {
                    buffer.copy_from_slice(runs.first().ok_or(IoError::Gone)?);
                    return Ok(buffer);
                }
                Ok(_) => self.heal(Unread::Mismatch, extent).await?,
                Err(unread) => self.heal(unread, extent).await?,
            }
        }
    }

    /// The member of a mirror that `extent` is read from.
    fn choose(&self, extent: Extent) -> Result<usize, IoError> {
        let in_sync = self.members.sources();
        let first = *in_sync.first().ok_or(IoError::Gone)?;
        assert!(self.members.is_in_sync(first), "ARRAYREAD2: it is one in sync");
        let differs = self.differs(extent);
        if differs || self.options.read_policy == ReadPolicy::Data {
            return Ok(first); // ARRAYREAD2
        }
        let turn = usize::try_from(extent.offset / MIB % in_sync.len() as u64).expect("members are few");
        let load = |index: &usize| {
            let place = in_sync[*index];
            (self.members.counters(place).reading.get(), (index + in_sync.len() - turn) % in_sync.len())
        };
        let index = (0..in_sync.len()).min_by_key(load).expect("one is in sync");
        Ok(in_sync[index])
    }

    async fn read_ddraid(&self, offset: u64, mut buffer: Buffer) -> Outcome {
        let whole = Extent::new(offset, buffer.len() as u64);
        // Some regions may be lost, and others not.
        let length = if self.lacks_data_member() { ZONE.min(self.regions.size()) } else { ZONE };
        let pieces: Vec<Extent> = whole.pieces(length).map(|(_, piece)| piece).collect();
        let reads = pieces.iter().map(|piece| self.read_zone(*piece));
        for (piece, runs) in pieces.iter().zip(join_all(reads).await) {
            let start = index(piece.offset - offset);
            self.assemble(&runs?, &mut buffer[start..start + index(piece.length)]);
        }
        Ok(buffer)
    }

    /// Puts the runs of the data members together.
    pub(super) fn assemble(&self, runs: &[Buffer], blocks: &mut [u8]) {
        let layout = self.spec.layout;
        let (data_members, fragment_size) = (index(layout.data_members()), index(layout.fragment_size()));
        assert!(runs.len() >= data_members, "COMBINE1: {} runs", runs.len());
        for (member, run) in runs.iter().take(data_members).enumerate() {
            combine::scatter(run, member, data_members, fragment_size, blocks);
        }
    }

    /// The runs of the data members, for `extent` in one zone.
    async fn read_zone(&self, extent: Extent) -> Result<Vec<Buffer>, IoError> {
        self.latch.check()?;
        if self.sources(extent)? == Sources::Data {
            match self.read_fit(extent, &self.data_places()).await {
                Ok(runs) => return Ok(runs),
                Err(Unread::Mismatch) => {} // Perhaps it is being written.
                Err(unread) => self.heal(unread, extent).await?,
            }
        }
        loop {
            let shared = self.range.lock(extent, LockMode::Shared).await;
            self.latch.check()?;
            // Regions may have become larger since the read began (RESYNC5).
            if self.is_lost(self.regions.of(extent)) {
                return self.read_lost(extent).await;
            }
            let outcome = match self.sources(extent)? {
                Sources::Data => self.read_fit(extent, &self.data_places()).await,
                Sources::Without(absent) => self.reconstruct(extent, absent).await,
                Sources::All => self.verify(extent).await,
            };
            drop(shared);
            match outcome {
                Ok(runs) => return Ok(runs),
                Err(unread) => self.heal(unread, extent).await?,
            }
        }
    }

    /// The members that `extent`, in one zone, is read from now.
    fn sources(&self, extent: Extent) -> Result<Sources, IoError> {
        let members = self.spec.layout.members();
        let mut absent = (0..members).filter(|place| !self.members.is_in_sync(*place));
        match (absent.next(), absent.next()) {
            (Some(_), Some(_)) => Err(IoError::Gone),
            (Some(absent), None) if absent + 1 == members => Ok(Sources::Data),
            (Some(absent), None) => Ok(Sources::Without(absent)),
            (None, _) if self.differs(extent) => Ok(Sources::Data), // ARRAYIO5
            (None, _) => Ok(match self.options.read_policy {
                ReadPolicy::Data => Sources::Data,
                ReadPolicy::Verify => Sources::All,
                ReadPolicy::Rotate => match self.busiest(extent) {
                    skipped if skipped + 1 == members => Sources::Data,
                    skipped => Sources::Without(skipped),
                },
            }),
        }
    }

    /// The member that a read under `rotate` does without: the one with the most reads under way, and of several the first from
    /// that of the zone on.
    fn busiest(&self, extent: Extent) -> usize {
        let members = self.spec.layout.members();
        let first = usize::try_from(extent.offset / ZONE % members as u64).expect("members are few");
        let places = (0..members).map(|step| (first + step) % members);
        // Of equals `max_by_key` takes the last.
        places.rev().max_by_key(|place| self.members.counters(*place).reading.get()).expect("it has members")
    }

    fn data_places(&self) -> Vec<usize> {
        (0..self.spec.layout.members() - 1).collect()
    }

    /// The runs of these members; else the first that failed.
    pub(super) async fn read_members(&self, extent: Extent, places: &[usize]) -> Result<Vec<Buffer>, Unread> {
        let run = self.spec.layout.on_members(extent);
        let at = self.members.on_device(run);
        let reads = places.iter().map(|place| {
            let device = self.members.device(*place);
            let buffer = self.options.arena.take(index(run.length));
            let reading = &self.members.counters(*place).reading;
            reading.set(reading.get() + 1);
            async move {
                let outcome = device.read(at, buffer).await;
                reading.set(reading.get() - 1);
                outcome.map_err(|error| Unread::Member(*place, error))
            }
        });
        join_all(reads).await.into_iter().collect()
    }

    /// The runs of these members, which fit their checksums.
    async fn read_fit(&self, extent: Extent, places: &[usize]) -> Result<Vec<Buffer>, Unread> {
        let runs = self.beside_pages(extent, self.read_members(extent, places)).await?;
        assert_eq!(runs.len(), places.len(), "ARRAYREAD1: a run of each");
        let held: Vec<(usize, &[u8])> = places.iter().copied().zip(runs.iter().map(|run| &run[..])).collect();
        match self.fit(extent, &held).await {
            true => Ok(runs),
            false => Err(Unread::Mismatch),
        }
    }

    /// The runs of the data members without reading member `absent` (ARRAYREAD1).
    pub(super) async fn reconstruct(&self, extent: Extent, absent: usize) -> Result<Vec<Buffer>, Unread> {
        let others: Vec<usize> = (0..self.spec.layout.members()).filter(|place| *place != absent).collect();
        let mut runs = self.read_fit(extent, &others).await?;
        let slices: Vec<&[u8]> = runs.iter().map(|run| &run[..]).collect();
        let computed = combine::xor_all(&slices, &self.options.arena);
        if !self.fit(extent, &[(absent, &computed[..])]).await {
            return Err(Unread::Mismatch);
        }
        runs.insert(absent, computed);
        assert_eq!(runs.len(), self.spec.layout.members(), "COMBINE1: a run of each member");
        Ok(runs)
    }

    /// The runs of all members, whose parity fits (ARRAYREAD1).
    async fn verify(&self, extent: Extent) -> Result<Vec<Buffer>, Unread> {
        let places: Vec<usize> = (0..self.spec.layout.members()).collect();
        let runs = self.read_fit(extent, &places).await?;
        let slices: Vec<&[u8]> = runs.iter().map(|run| &run[..]).collect();
        if combine::is_consistent(&slices, &self.options.arena) {
            return Ok(runs);
        }
        Err(Unread::Mismatch)
    }

    /// Counts members that do not fit each other.
    pub(super) fn note_mismatch(&self, extent: Extent) {
        self.counters.mismatches.set(self.counters.mismatches.get() + 1);
        tracing::error!(array = %self.spec.id, ?extent, "members of an array do not fit each other");
        self.tell();
    }

    /// Writes `run` of member `place` again, after it could not be read or was wrong, durably: its region is not dirty. Returns whether
    /// that succeeded.
    pub(super) async fn rewrite(&self, place: usize, run: Extent, data: Bytes, error: IoError) -> bool {
        if error == IoError::Gone {
            return false;
        }
        assert_eq!(data.len() as u64, run.length, "GEOMETRY2: all of {run:?} is written");
        let device = self.members.device(place);
        let at = self.members.on_device(run);
        let written = device.write(at, data.clone(), Durability::Durable).await.is_ok();
        let again = self.options.arena.take(index(run.length));
        written && device.read(at, again).await.is_ok_and(|again| again[..] == data[..])
    }

    pub(super) fn count_error(&self, place: usize, error: IoError) {
        let errors = &self.members.counters(place).errors;
        errors.set(errors.get() + 1);
        tracing::debug!(array = %self.spec.id, member = place, %error, "a member failed");
        self.tell();
    }
}

fn index(length: u64) -> usize {
    usize::try_from(length).expect("a request in memory is shorter than the address space")
}
