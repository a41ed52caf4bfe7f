//! Lost regions: those that were dirty when the power failed and a data member of ddraid was lost with it.
//!
//! What the others hold there need not belong together, so nothing is computed from it. With checksums a block is known all the
//! same if nothing that counts has been changed since the last flush:
//!
//! ```text
//!   flush ─► pages of all that was written since the last one ─► all members flush ─► acknowledged
//!
//!   crash, data member lost ─► the other fragments of a block, and the one computed from them, match pages of one time: it is read
//!                              all blocks of a region do: it is lost no more, and can be written
//!                              else: EIO, until the member returns or the loss is accepted
//! ```
//!
//! Invariants:
//! - ARRAYLOST1. Pages count where they are at least as new as the last flush: in regions that were marked since the superblock, and in those of
//!   which the superblock says so. They do not where a region was dirty before, since it may have been changed and its pages not; nor
//!   again once all data members are in sync.
//! - ARRAYLOST2. A block is returned if the checksums of all members are known, were written at one time, and match what the members hold and
//!   what is computed from it. It is then what was written at that time: no older than the last flush. One that had never been written at
//!   that time is returned if it is zeros.
//! - ARRAYLOST3. What was returned stays: the missing member gets it when it returns, before what it holds counts.
//! - ACCEPT1. When a region is accepted it is durable that every member that is not in sync lacks it: what a member has there that
//!   returns is never believed.
//! - ACCEPT2. A region is not accepted that comes back by itself: the member has returned, and has what belongs there.

use super::super::region_set::RegionSet;
use super::super::{Array, ArrayError, InjectedBug, combine};
use super::region_work::RegionWork;
use super::resync::Step;
use futures_util::future::join;
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
        match self.read_verified(extent).await {
            Some(runs) => Ok(runs),
            None => Err(self.refuse()),
        }
    }

    /// The runs of all members for `extent` in a lost region, one of them computed; none if they do not match their checksums, or a
    /// member cannot be read.
    async fn read_verified(&self, extent: Extent) -> Option<Vec<Buffer>> {
        let checksums = self.checksums.as_ref().filter(|_| self.lost.are_pages_current())?;
        let absent = (0..self.members.count()).find(|place| !self.members.is_in_sync(*place))?;
        let others: Vec<usize> = (0..self.members.count()).filter(|place| *place != absent).collect();
        let read = self.read_members(extent, &others);
        let mut runs = join(read, self.read_pages_below(checksums, extent)).await.0.ok()?;
        let slices: Vec<&[u8]> = runs.iter().map(|run| &run[..]).collect();
        let computed = combine::xor_all(&slices, &self.options.arena);
        runs.insert(absent, computed);
        let held: Vec<(usize, &[u8])> = runs.iter().map(|run| &run[..]).enumerate().collect();
        checksums.match_all(extent, &held).then_some(runs)
    }

    /// Whether there are lost regions that were not verified.
    pub(in crate::array) fn has_unverified(&self) -> bool {
        self.lost.are_pages_current() && self.regions.unsynced().next(self.lost.verified.get()).is_some()
    }

    /// Verifies lost regions. Those of which all blocks match their checksums are lost no more.
    pub(in crate::array) async fn verify_lost(&self) -> Result<(), IoError> {
        let is_next = |region: &u64| *region >= self.lost.verified.get();
        let works: Vec<Rc<RegionWork>> = {
            let unsynced = self.regions.unsynced();
            let next = unsynced.iter().filter(is_next).take(REGIONS_AT_ONCE);
            next.map(|region| self.regions.begin_work(region, self.size())).collect()
        };
        let mut whole = Vec::new();
        for work in works {
            if self.is_closed.get() {
                return Ok(());
            }
            let matches = self.matches_checksums(work.extent()).await;
            if !work.counts() {
                break; // RESYNC5
            }
            self.lost.verified.set(work.region() + 1);
            if matches {
                whole.push(work);
            }
        }
        if whole.is_empty() {
            return Ok(());
        }
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        self.publish(|| {
            if self.lost.are_pages_current() {
                whole.retain(|work| work.counts() && self.regions.unsynced().contains(work.region()));
                let whole: Vec<u64> = whole.iter().map(|work| work.region()).collect();
                self.accept_regions(&whole);
                tracing::info!(array = %self.spec.id, regions = whole.len(), "dirty regions match their checksums");
            }
        })
        .await
    }

    async fn matches_checksums(&self, extent: Extent) -> bool {
        for (_, chunk) in extent.pieces(CHUNK) {
            let (clock, requests) = (&self.options.clock, &self.counters.requests);
            self.pace.keep(clock, requests, chunk.length, || !self.is_closed.get()).await;
            if self.read_verified(chunk).await.is_none() {
                return false;
            }
        }
        true
    }

    /// Member `place`, which lacks nothing else, gets the blocks of lost regions that could be read without it (ARRAYLOST3).
    pub(in crate::array) async fn restore_verified(&self, place: usize) -> Result<Step, IoError> {
        let Some(checksums) = self.checksums.as_ref().filter(|_| self.lost.are_pages_current()) else {
            return Ok(Step::Done);
        };
        if self.has_bug(InjectedBug::ForgetReadBlocks) {
            return Ok(Step::Done);
        }
        let extent = |region| self.regions.extent(region, self.size());
        let lost: Vec<Extent> = self.regions.unsynced().iter().map(extent).collect(); // Their numbers may become others (RESYNC5).
        for extent in lost {
            for (_, block) in extent.pieces(checksums.block_size()) {
                let Some(mut runs) = self.read_verified(block).await else { continue };
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
        self.regions.accept(regions);
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
