//! Lost regions: those that were dirty when the power failed and a data member of ddraid was lost with it.
//!
//! What the others hold there need not belong together, so nothing is computed from it. A block that is written as a whole is known
//! from then on, as it would be in any other region. With checksums a block is known, too, if nothing that is authoritative has been changed since
//! the last flush:
//!
//! ```text
//!   flush ─► pages of all that was written since the last one ─► all members flush ─► acknowledged
//!
//!   crash, data member lost ─► the other fragments of a block, and the one computed from them, match pages of one time: it is read
//!                              else: EIO, until it is written, the member returns or the loss is accepted
//!
//!   write of whole blocks ─► content in the log ─► they are known ─► members that are here ─► acknowledged
//!                                                        └──► in each superblock, when the log begins anew
//!
//!   all blocks of a region are known, or match ─► it is lost no more
//! ```
//!
//! Invariants:
//! - ARRAYLOST1. Pages count where they are at least as new as the last flush: in regions that were marked since the superblock, and in those of
//!   which the superblock says so. They do not where a region was dirty before, since it may have been changed and its pages not; nor
//!   again once all data members are in sync.
//! - ARRAYLOST2. A block is returned if the checksums of all members are known, were written at one time, and match what the members hold and
//!   what is computed from it. It is then what was written at that time: no older than the last flush. One that had never been written at
//!   that time is returned if it is zeros.
//! - ARRAYLOST3. What was returned or written stays: the missing member gets it when it returns, before what it holds is authoritative, and while
//!   no client writes it.
//! - ARRAYLOST4. What is written to a lost region is in the log with its content before it is known, and before members are written. What
//!   is known is durable: what the log does not say any more stands in the superblock. A write for which there is no room is refused.
//! - ARRAYLOST5. Nothing else changes in a lost region: pages of checksums stay what they were, so that they say of other blocks what they
//!   said; and the missing member does not lack it, so that it can bring back the others.
//! - ARRAYLOST6. A region of which blocks were written is lost no more when all of it is known durably; only then are its pages written.
//! - ACCEPT1. When a region is accepted it is durable that every member that is not in sync lacks it: what a member has there that
//!   returns is never believed.
//! - ACCEPT2. A region is not accepted that comes back by itself: the member has returned, and has what belongs there.

use super::super::checksums::{Checksums, block_size};
use super::super::region_set::RegionSet;
use super::super::{Array, ArrayError, InjectedBug, combine};
use super::region_work::RegionWork;
use super::resync::Step;
use futures_util::future::join;
use std::ops::Range;
use std::rc::Rc;
use varve_block::{Buffer, Durability, Extent, IoError, KIB, LockMode};
use varve_format::array::MemberState;

/// Bytes of the array that are read together.
const CHUNK: u64 = 256 * KIB;
/// Regions that are verified between two superblocks.
const REGIONS_AT_ONCE: usize = 256;

impl Array {
    /// The runs of the data members for `extent` in a lost region, if they match their checksums (ARRAYLOST2).
    pub(in crate::array) async fn read_lost(&self, extent: Extent) -> Result<Vec<Buffer>, IoError> {
        match self.read_known(extent).await {
            Some(runs) => Ok(runs),
            None => Err(self.refuse()),
        }
    }

    /// The runs of all members for `extent` in a lost region, one of them computed; none if some of it is neither known nor matches its
    /// checksums, or a member cannot be read.
    async fn read_known(&self, extent: Extent) -> Option<Vec<Buffer>> {
        if !self.lost.are_pages_current() && !self.lost.unknown_in(extent).is_empty() {
            return None;
        }
        let (runs, unmatched) = self.look_at_lost(extent).await?;
        unmatched.is_empty().then_some(runs)
    }

    /// The runs of all members for `extent` in a lost region, one of them computed, and what of it is neither known nor matches its
    /// checksums; none if a member cannot be read. The caller holds the extent.
    async fn look_at_lost(&self, extent: Extent) -> Option<(Vec<Buffer>, Vec<Extent>)> {
        let absent = (0..self.members.count()).find(|place| !self.members.is_in_sync(*place))?;
        let others: Vec<usize> = (0..self.members.count()).filter(|place| *place != absent).collect();
        let mut unmatched = self.lost.unknown_in(extent);
        let checksums = self.checksums.as_ref();
        let checksums = checksums.filter(|_| self.lost.are_pages_current() && !unmatched.is_empty());
        let read = self.read_members(extent, &others);
        let mut runs = match checksums {
            Some(checksums) => join(read, self.read_pages_below(checksums, extent)).await.0.ok()?,
            None => read.await.ok()?,
        };
        let slices: Vec<&[u8]> = runs.iter().map(|run| &run[..]).collect();
        let computed = combine::xor_all(&slices, &self.options.arena);
        runs.insert(absent, computed);
        if let Some(checksums) = checksums {
            let blocks = unmatched.iter().flat_map(|part| part.pieces(checksums.block_size()));
            let matches = |block: &Extent| checksums.match_all(*block, &self.held_of(&runs, extent, *block));
            unmatched = blocks.map(|(_, block)| block).filter(|block| !matches(block)).collect();
        }
        Some((runs, unmatched))
    }

    /// What of `runs`, of all members for `extent`, is of `part`.
    fn held_of<'a>(&self, runs: &'a [Buffer], extent: Extent, part: Extent) -> Vec<(usize, &'a [u8])> {
        assert!(extent.contains(part), "GEOMETRY2: {part:?} is of {extent:?}");
        let (whole, run) = (self.spec.layout.on_members(extent), self.spec.layout.on_members(part));
        let index = |value: u64| usize::try_from(value).expect("a run is in memory");
        let range = index(run.offset - whole.offset)..index(run.end() - whole.offset);
        runs.iter().map(|run| &run[range.clone()]).enumerate().collect()
    }

    /// What of `extent` was written, in those of `regions` that are lost, is known: it is in the log, with its content (ARRAYLOST4).
    pub(in crate::array) fn know_written(&self, regions: Range<u64>, extent: Extent) {
        for region in regions.filter(|region| self.is_lost(*region..region + 1)) {
            let whole = self.regions.extent(region, self.size());
            let part = whole.intersect(extent).expect("the extent is in its regions");
            self.lost.know(part);
            if self.lost.wrote(region, whole) {
                self.tell();
            }
        }
    }

    /// Lost regions that are to be verified, at most `most`.
    fn unverified(&self, most: usize) -> Vec<u64> {
        match self.lacks_data_member() {
            true => self.lost.unverified(|from| self.regions.unsynced().next(from), most),
            false => Vec::new(),
        }
    }

    /// Whether there are lost regions that were not verified.
    pub(in crate::array) fn has_unverified(&self) -> bool {
        !self.unverified(1).is_empty()
    }

    /// Verifies lost regions. Those of which all blocks are known, or match their checksums, are lost no more.
    pub(in crate::array) async fn verify_lost(&self) -> Result<(), IoError> {
        let works: Vec<Rc<RegionWork>> = {
            let next = self.unverified(REGIONS_AT_ONCE).into_iter();
            next.map(|region| self.regions.begin_work(region, self.size())).collect()
        };
        let mut whole = Vec::new();
        for work in works {
            if self.is_closed.get() {
                return Ok(());
            }
            let unmatched = self.unmatched_in(work.extent()).await;
            if !work.counts() {
                break; // RESYNC5
            }
            if self.lost.was_verified(work.region(), work.extent(), &unmatched) {
                whole.push(work);
            }
        }
        self.know_whole(&mut whole).await?;
        if whole.is_empty() {
            return Ok(());
        }
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        self.publish(|| {
            let regions: Vec<u64> = self.still_lost(&whole).map(|work| work.region()).collect();
            self.accept_regions(&regions);
            tracing::info!(array = %self.spec.id, regions = regions.len(), "all of dirty regions is known");
        })
        .await
    }

    /// Those of `works` that are on regions which are still lost.
    fn still_lost<'a>(&self, works: &'a [Rc<RegionWork>]) -> impl Iterator<Item = &'a Rc<RegionWork>> {
        works.iter().filter(|work| work.counts() && self.is_lost(work.region()..work.region() + 1))
    }

    /// What of `extent` is not known and does not match its checksums.
    async fn unmatched_in(&self, extent: Extent) -> Vec<Extent> {
        if !self.lost.are_pages_current() {
            return self.lost.unknown_in(extent);
        }
        let mut unmatched = Vec::new();
        for (_, chunk) in extent.pieces(CHUNK) {
            let (clock, requests) = (&self.options.clock, &self.counters.requests);
            self.pace.keep(clock, requests, chunk.length, || !self.is_closed.get()).await;
            let _shared = self.range.lock(chunk, LockMode::Shared).await;
            match self.look_at_lost(chunk).await {
                Some((_, parts)) => unmatched.extend(parts),
                None => unmatched.extend(self.lost.unknown_in(chunk)),
            }
        }
        unmatched
    }

    /// All of these regions is known. With checksums those of which blocks were written get checksums of what they hold, which are
    /// written when they are lost no more (ARRAYLOST6). Those that cannot be read are taken out.
    async fn know_whole(&self, whole: &mut Vec<Rc<RegionWork>>) -> Result<(), IoError> {
        let Some(checksums) = &self.checksums else { return Ok(()) };
        let was_written = |work: &Rc<RegionWork>| self.lost.was_written(work.extent());
        if !whole.iter().any(was_written) {
            return Ok(());
        }
        {
            let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
            self.publish(|| {
                let works = self.still_lost(whole).filter(|work| was_written(work));
                works.for_each(|work| self.lost.know(work.extent()));
            })
            .await?;
        }
        let mut readable = Vec::new();
        for work in whole.drain(..) {
            if !was_written(&work) || self.take_checksums(checksums, &work).await {
                readable.push(work);
            }
        }
        *whole = readable;
        Ok(())
    }

    /// What is held and computed of a lost region, all of which is known, is what is expected there. Returns whether it could be read.
    async fn take_checksums(&self, checksums: &Checksums, work: &RegionWork) -> bool {
        for (_, chunk) in work.extent().pieces(CHUNK) {
            let _shared = self.range.lock(chunk, LockMode::Shared).await;
            let Some(runs) = self.read_known(chunk).await.filter(|_| work.counts()) else { return false };
            let held = self.held_of(&runs, chunk, chunk);
            held.into_iter().for_each(|(place, run)| checksums.set(place, chunk, run));
        }
        true
    }

    /// Member `place`, which lacks nothing else, gets the blocks of lost regions that could be read without it, or were written
    /// (ARRAYLOST3).
    pub(in crate::array) async fn restore_known(&self, place: usize) -> Result<Step, IoError> {
        if self.lost.is_nothing_known() || self.has_bug(InjectedBug::ForgetReadBlocks) {
            return Ok(Step::Done);
        }
        let extent = |region| self.regions.extent(region, self.size());
        let lost: Vec<Extent> = self.regions.unsynced().iter().map(extent).collect(); // Their numbers may become others (RESYNC5).
        for extent in lost {
            for (_, block) in extent.pieces(block_size(self.spec.layout)) {
                let _alone = self.lock_alone(block).await; // ARRAYIO4
                let Some(mut runs) = self.read_known(block).await else { continue };
                let inside = self.gate.enter().await;
                if self.members.state(place) != MemberState::CatchingUp {
                    return Ok(Step::Stuck);
                }
                let at = self.members.on_device(self.spec.layout.on_members(block));
                let (device, run) = (self.members.device(place), runs.swap_remove(place).freeze());
                let written = device.write(at, run, Durability::Volatile);
                if self.change_member(place, written, inside).await? == Step::Stuck {
                    return Ok(Step::Stuck);
                }
            }
        }
        Ok(Step::Done)
    }

    /// What the members that are here make of these lost regions is what they hold from now on: every member that is not in sync
    /// lacks them (ACCEPT1).
    fn accept_regions(&self, regions: &[u64]) {
        let is_lost = |region: &u64| self.regions.unsynced().contains(*region);
        assert!(regions.iter().all(is_lost), "ACCEPT1: a region whose members agree is not accepted");
        let others = (0..self.members.count()).filter(|place| !self.members.is_in_sync(*place));
        for place in others.filter(|_| !self.has_bug(InjectedBug::AcceptUnrecorded)) {
            regions.iter().for_each(|region| self.members.lack(place, *region));
        }
        self.mark_written(regions.iter().copied());
        self.regions.accept(regions);
        self.lost.keep_known(|run| self.regions.unsynced().has_any(self.regions.of(run)));
    }

    /// Those of these regions that were written while they were lost hold something from now on.
    fn mark_written(&self, regions: impl Iterator<Item = u64>) {
        let was_written = |region: &u64| self.lost.was_written(self.regions.extent(*region, self.size()));
        for region in regions.filter(was_written) {
            self.regions.mark(region, true);
        }
    }

    /// All data members are in sync: no region is lost any more.
    pub(in crate::array) fn end_lost(&self) {
        assert!(!self.lacks_data_member(), "ARRAYLOST1: a data member is missing");
        let unsynced = self.regions.unsynced().clone();
        self.mark_written(unsynced.iter());
        self.lost.end();
    }

    /// The regions that answer errors until the missing data member returns, or their loss is accepted; in order.
    pub fn lost_regions(&self) -> Vec<u64> {
        if !self.lacks_data_member() {
            return Vec::new();
        }
        let returned = self.members.in_state(MemberState::CatchingUp);
        let lacks: Vec<RegionSet> = returned.iter().map(|place| self.members.lacks(*place)).collect();
        let unsynced = self.regions.unsynced();
        unsynced.iter().filter(|region| lacks.iter().all(|lacks| lacks.contains(*region))).collect() // ACCEPT2
    }

    /// Of the regions that cannot be known those that `is_accepted` names are from now on what the members that are here make of them.
    /// What was being written there when the power failed is lost, and what shared a block of the array with it. Returns them.
    pub async fn accept_loss(&self, is_accepted: impl Fn(u64) -> bool) -> Result<Vec<u64>, ArrayError> {
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        let mut accepted = Vec::new();
        self.publish(|| {
            accepted = self.lost_regions().into_iter().filter(|region| is_accepted(*region)).collect();
            self.accept_regions(&accepted);
            self.forget_checksums(accepted.iter().copied());
        })
        .await?;
        if !accepted.is_empty() {
            tracing::warn!(array = %self.spec.id, regions = accepted.len(), "the loss of regions was accepted");
        }
        Ok(accepted)
    }
}
