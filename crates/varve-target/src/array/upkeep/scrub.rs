//! Scrub: what was ever written is read from all members and compared.
//!
//! Invariants: ARRAYIO4 and ARRAYREAD1 of the module, and
//! - SCRUB1. Members are made equal by durable writes to those that differ from the authoritative one, and no region becomes dirty: after a crash
//!   in between the same one is authoritative.
//! - SCRUB2. All members are in sync when they are compared.

use super::super::checksums::block_size;
use super::super::options::Rates;
use super::super::read::Unread;
use super::super::sound::Unsound;
use super::super::{Array, InjectedBug};
use super::mend::Unmended;
use super::pace::Pace;
use varve_block::{Extent, IoError, KIB, LockMode, RangeGuard, align_down};
use varve_format::array::SPAN_SIZE;

/// Bytes of the array that are compared at a time.
const CHUNK: u64 = 256 * KIB;
/// So many of the blocks that differ are named.
const NAMED_MAX: usize = 16;

/// How an array is scrubbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// How fast, in bytes of the array.
    pub rates: Rates,
    /// Nothing is written: what differs, and what a member cannot read, is only counted.
    pub check_only: bool,
}

/// What a scrub has found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes of the array that were compared, or could not be.
    pub done: u64,
    /// Bytes that were ever written, and are to be compared.
    pub total: u64,
    /// Blocks of which the members did not fit each other. They do now, unless nothing was to be written.
    pub mismatches: u64,
    /// The first of them.
    pub named: Vec<Extent>,
    /// Blocks that a member could not read, or whose checksums did not match, and that were written again.
    pub healed: u64,
    /// Bytes that could not be compared: members cannot read them.
    pub unread: u64,
    /// Where in the array the rest begins.
    pub at: u64,
}

/// Why a scrub has not compared everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubError {
    /// A member is not in sync: what it has does not count.
    Degraded {
        /// The member's place.
        place: usize,
    },
    /// Its caller has stopped it.
    Stopped,
    /// The array is out of use, or could not write what it found.
    Io(IoError),
}

impl From<IoError> for ScrubError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

/// What members say of an extent.
enum Compared {
    Fits,
    /// They do not fit each other.
    Differs,
    Unread(usize, IoError),
    /// They may differ since a crash, and cannot be made equal now.
    Unknown,
}

impl Array {
    /// Reads everything that was ever written from all members and compares it. Where members do not fit each other, the data of
    /// ddraid is authoritative, and the first member of a mirror. `goes_on` receives the progress, and says whether it goes on.
    pub async fn scrub(
        &self,
        options: ScrubOptions,
        goes_on: impl FnMut(&ScrubReport) -> bool,
    ) -> (ScrubReport, Result<(), ScrubError>) {
        self.scrub_on(options, ScrubReport::default(), goes_on).await
    }

    /// As [`Array::scrub`], from where that ended with `report`.
    pub async fn scrub_on(
        &self,
        options: ScrubOptions,
        mut report: ScrubReport,
        mut goes_on: impl FnMut(&ScrubReport) -> bool,
    ) -> (ScrubReport, Result<(), ScrubError>) {
        let pace = Pace::new(options.rates);
        report.at = align_down(report.at, block_size(self.spec.layout)); // It may come from a text.
        while let Some(chunk) = self.next_written(report.at) {
            report.total =
                report.done.max((self.regions.written().count() * self.regions.size()).min(self.size()));
            let mut is_wanted = goes_on(&report);
            if is_wanted {
                let (clock, requests) = (&self.options.clock, &self.counters.requests);
                let asks = || {
                    is_wanted = goes_on(&report);
                    is_wanted
                };
                pace.keep(clock, requests, chunk.length, asks).await;
            }
            if !is_wanted {
                return (report, Err(ScrubError::Stopped));
            }
            if let Err(error) = self.scrub_chunk(chunk, options.check_only, &mut report).await {
                return (report, Err(error));
            }
            report.done += chunk.length;
            report.at = chunk.end();
        }
        report.total = report.done;
        (report, Ok(()))
    }

    /// The next bytes from `at` on that were ever written. Regions may become larger meanwhile, offsets stay.
    fn next_written(&self, at: u64) -> Option<Extent> {
        if at >= self.size() {
            return None;
        }
        let region = self.regions.written().next(at / self.regions.size())?;
        let written = self.regions.extent(region, self.size());
        let rest = Extent::between(written.offset.max(at), written.end());
        assert!(!rest.is_empty(), "SCRUB2: region {region} lies behind {at}");
        rest.pieces(CHUNK).next().map(|(_, chunk)| chunk)
    }

    async fn scrub_chunk(
        &self,
        chunk: Extent,
        check_only: bool,
        report: &mut ScrubReport,
    ) -> Result<(), ScrubError> {
        let region = self.regions.of(chunk).start;
        if self.regions.unsynced().contains(region) {
            self.resync(region).await?;
        }
        if let Some(checksums) = &self.checksums
            && chunk.offset.is_multiple_of(SPAN_SIZE)
        {
            checksums.drop_read(chunk); // Pages rot, too.
        }
        let shared = self.lock_to_scrub(chunk, LockMode::Shared).await;
        let compared = self.compare_members(chunk).await?;
        drop(shared);
        if let Compared::Fits = compared {
            return Ok(());
        }
        for (_, block) in chunk.pieces(block_size(self.spec.layout)) {
            self.scrub_block(block, check_only, report).await?;
        }
        Ok(())
    }

    async fn scrub_block(
        &self,
        block: Extent,
        check_only: bool,
        report: &mut ScrubReport,
    ) -> Result<(), ScrubError> {
        loop {
            let alone = self.lock_to_scrub(block, LockMode::Exclusive).await;
            match self.compare_members(block).await? {
                Compared::Fits => return Ok(()),
                Compared::Differs => {
                    if !check_only && self.scrub_wrong(block, report).await? {
                        return Ok(());
                    }
                    report.mismatches += 1;
                    if report.named.len() < NAMED_MAX {
                        report.named.push(block);
                        self.note_mismatch(block);
                    }
                    if !check_only {
                        match self.settle_block(block).await {
                            Ok(()) => {}
                            Err(Unmended::Unsound(_)) => report.unread += block.length,
                            Err(Unmended::Io(error)) => return Err(error.into()),
                        }
                    }
                    return Ok(());
                }
                Compared::Unread(place, error) if !check_only => {
                    drop(alone);
                    if self.heal(Unread::Member(place, error), block).await.is_ok() {
                        report.healed += 1;
                        continue;
                    }
                    report.unread += block.length;
                    return Ok(());
                }
                Compared::Unread(..) | Compared::Unknown => {
                    report.unread += block.length;
                    return Ok(());
                }
            }
        }
    }

    /// Writes again what is wrong in `block`, which the caller holds alone. Returns whether checksums tell what is.
    async fn scrub_wrong(&self, block: Extent, report: &mut ScrubReport) -> Result<bool, ScrubError> {
        if self.checked(block).is_none() {
            return Ok(false);
        }
        match self.mend_block(block).await {
            Ok(_) => report.healed += 1,
            Err(Unmended::Unsound(Unsound::Lost)) => report.unread += block.length,
            Err(Unmended::Unsound(Unsound::Undecided)) => return Ok(false),
            Err(Unmended::Io(error)) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Reads `extent`, which the caller holds, from all members (ARRAYREAD1).
    async fn compare_members(&self, extent: Extent) -> Result<Compared, ScrubError> {
        self.latch.check()?;
        let places: Vec<usize> = (0..self.members.count()).collect();
        if let Some(place) = places.iter().find(|place| !self.members.is_in_sync(**place)) {
            return Err(ScrubError::Degraded { place: *place }); // SCRUB2
        }
        if self.differs(extent) {
            return Ok(Compared::Unknown);
        }
        let runs = match self.read_members(extent, &places).await {
            Ok(runs) => runs,
            Err(Unread::Member(place, error)) => return Ok(Compared::Unread(place, error)),
            Err(Unread::Mismatch) => return Ok(Compared::Unknown),
        };
        assert_eq!(runs.len(), self.members.count(), "SCRUB2: all members are compared");
        let slices: Vec<&[u8]> = runs.iter().map(|run| &run[..]).collect();
        let held: Vec<(usize, &[u8])> = slices.iter().copied().enumerate().collect();
        if self.agree(&slices) && self.fit(extent, &held).await {
            self.learn(extent, &held);
            return Ok(Compared::Fits);
        }
        Ok(Compared::Differs)
    }

    /// Holds `extent`, but for a fault for tests (ARRAYIO4).
    async fn lock_to_scrub(&self, extent: Extent, mode: LockMode) -> Option<RangeGuard> {
        match self.has_bug(InjectedBug::ScrubBesideWriters) {
            true => None,
            false => Some(self.range.lock(extent, mode).await),
        }
    }
}
