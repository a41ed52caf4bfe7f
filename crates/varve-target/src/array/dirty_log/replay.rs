//! What the superblock and the log say together when an array is taken into use.
//!
//! Invariants:
//! - ARRAYOPEN1. What was marked since the superblock and is not clean is dirty: it is made equal again, or not read.
//! - ARRAYOPEN2. Where a data member of ddraid was missing already, the log has what was written, which is written again; no block
//!   is torn there.
//! - ARRAYOPEN3. Of two copies of the log the longer one is authoritative: what only one has was never acknowledged. If there is none, it
//!   is unknown where members differ, or what was written: all regions are dirty, and written. Then the array is not opened where
//!   a data member of ddraid is not in sync, for nothing could be read.
//! - ARRAYOPEN4. The log goes on with a number that no record has that is not known.

use super::super::opening::election::{Election, Found, Worth};
use super::super::opening::find::FoundMembers;
use super::super::region_set::RegionSet;
use super::super::regions::region_size_for;
use super::super::{ArrayError, ArrayLayout, ArrayOptions, ArraySpec, InjectedBug, Member};
use super::log_copy::{LogCopy, Records, next_of, regions_of};
use super::log_disk;
use crate::journal::LogStart;
use crate::ranges::Ranges;
use varve_block::Extent;
use varve_format::array::{BLOCK_SIZE, Change, KNOWN_MAX, MemberState, Record, Superblock};

/// Reads the log: of the log disk if it has it, else of the members that have it and are in sync.
pub(in crate::array) async fn read_log(
    spec: &ArraySpec,
    election: &Election,
    (members, log): (&[Member], Option<&Member>),
    (found, options): (&FoundMembers, &ArrayOptions),
) -> Result<Records, ArrayError> {
    let arena = &options.arena;
    let own = match &found.log {
        Found::Superblock(own) => Some(own),
        Found::Missing | Found::Blank => None,
    };
    let (has_bug, counts) = (|bug| options.injected_bug == Some(bug), &election.superblock);
    let is_believed = |own: &&Superblock| {
        own.log_disk == counts.log_disk && log_disk::is_current(own, counts, options.accept_missing)
    };
    let device = log.and_then(|log| log.device.as_ref());
    let on_log_disk = match (own.filter(is_believed), own, device) {
        (Some(_), _, Some(device)) => Some(LogCopy::new(spec, counts, device, arena)), // LOGDISK1
        (None, Some(own), Some(device)) if has_bug(InjectedBug::BelieveStaleLog) => {
            Some(LogCopy::new(spec, own, device, arena))
        }
        _ => None,
    };
    match on_log_disk {
        Some(copy) => {
            let records = copy.read(spec, "the log disk").await;
            let is_old = next_of(counts, &records) < election.newest.sequence
                && !has_bug(InjectedBug::BelieveStaleLog);
            if is_old {
                tracing::error!(array = %spec.id, log = %counts.log_disk, "the log disk is older than the members");
            }
            return Ok(records.filter(|_| !is_old)); // LOGDISK7
        }
        None if counts.log_disk.is_nil() => {}
        None if found.is_cut_short(election) => return Ok(Some(Vec::new())), // LOGDISK5
        None if has_bug(InjectedBug::ForgetLostLog) => return Ok(Some(Vec::new())),
        None => {
            tracing::error!(array = %spec.id, log = %counts.log_disk, "the disk that has the log is missing, or older than the members");
            return Ok(None); // LOGDISK3
        }
    }
    let mut longest: Records = None;
    let places = (0..members.len()).filter(|place| election.superblock.log_members >> place & 1 == 1);
    for place in places.filter(|place| election.members[*place] == Worth::InSync) {
        let Some(device) = &members[place].device else { continue };
        let copy = LogCopy::new(spec, counts, device, arena);
        if let Some(records) = copy.read(spec, &format!("member {place}")).await
            && longest.as_ref().is_none_or(|known| known.len() < records.len())
        {
            longest = Some(records); // ARRAYOPEN3
        }
    }
    Ok(longest)
}

/// The sets of regions and the place of the log, for the size that the array has now.
pub(in crate::array) struct Replayed {
    pub(in crate::array) region_size: u64,
    /// Number of regions.
    pub(in crate::array) regions: u64,
    /// Regions in which members differ, or may.
    pub(in crate::array) dirty: RegionSet,
    /// Regions that were dirty, in which one member has all that is authoritative.
    pub(in crate::array) reconciled: RegionSet,
    pub(in crate::array) written: RegionSet,
    /// What each member lacks.
    pub(in crate::array) lacks: Vec<RegionSet>,
    /// Whether the pages of checksums of all regions in `dirty` are at least as new as the last flush (ARRAYLOST1).
    pub(in crate::array) pages_current: bool,
    /// What was written to regions that were lost already (ARRAYLOST4).
    pub(in crate::array) known: Ranges,
    /// Regions of which stamps say something that not all members are known to have (STAMP5).
    pub(in crate::array) named: RegionSet,
    /// Where the log goes on, and the number of the first record that it may lack: one that was found may not be durable.
    pub(in crate::array) begin: LogStart,
    pub(in crate::array) next: u64,
}

impl Replayed {
    /// What `records` say behind the authoritative superblock; `log` is what was found on the log disk.
    pub(in crate::array) fn of(
        spec: &ArraySpec,
        election: &Election,
        records: &Records,
        log: &Found,
    ) -> Result<Self, ArrayError> {
        let superblock = &election.superblock;
        let mut sets = Sets::of(superblock, has_data_member_missing(spec.layout, superblock));
        sets.replay(records, superblock.region_size, election)?;
        if has_data_member_missing(spec.layout, superblock) && records.is_some() {
            sets.marked.clear(); // ARRAYOPEN2
        }
        // ARRAYLOST1: what was dirty when the superblock was written may have been changed since, and its pages not.
        let pages_current = records.is_some() && (superblock.pages_current || sets.dirty.is_empty());
        let mut dirty = sets.dirty;
        dirty.insert_all(&sets.marked); // ARRAYOPEN1
        let mut missed = sets.missed;
        if superblock.members.iter().any(|member| member.state != MemberState::InSync) {
            missed.insert_all(&sets.ever_marked);
        }
        let parity = spec.layout.members() - 1;
        let is_copy = |place: usize| matches!(spec.layout, ArrayLayout::Mirror { .. }) || place == parity;
        let region_size = superblock.region_size.max(region_size_for(spec.size));
        let (doublings, regions) =
            ((region_size / superblock.region_size).ilog2(), spec.size.div_ceil(region_size));
        let mut apart = missed.clone();
        apart.insert_all(&sets.named); // STAMP3
        let lacks = election.members.iter().enumerate().map(|(place, worth)| {
            let mut lacks = apart.clone();
            match worth {
                Worth::InSync => return RegionSet::new(regions),
                _ if is_copy(place) => lacks.insert_all(&dirty),
                // What it has of dirty blocks is as good as what the others have (ARRAYIO5).
                _ => dirty.iter().filter(|region| !missed.contains(*region)).for_each(|region| {
                    lacks.remove(region);
                }),
            }
            lacks.folded(doublings, regions)
        });
        let lacks: Vec<RegionSet> = lacks.collect();
        assert_eq!(lacks.len(), spec.layout.members(), "ARRAY3: a set for each member");
        let in_sync = election.members.iter().filter(|worth| **worth == Worth::InSync).count();
        let is_reconciled = match spec.layout {
            ArrayLayout::Mirror { .. } => in_sync == 1,
            ArrayLayout::Ddraid { .. } => election.members[parity] != Worth::InSync,
        };
        let mut reconciled = RegionSet::new(superblock.regions());
        if is_reconciled {
            reconciled.insert_all(&dirty);
            dirty.clear();
            sets.known = Ranges::default();
        }
        Ok(Self {
            region_size,
            regions,
            dirty: dirty.folded(doublings, regions),
            reconciled: reconciled.folded(doublings, regions),
            written: sets.written.folded(doublings, regions),
            lacks,
            pages_current: pages_current && spec.checksums,
            known: known_before(spec.size, sets.known)?,
            named: sets.named.folded(doublings, regions),
            next: election.newest.sequence,
            begin: past_log_disk(log, go_on(spec, superblock, records)),
        })
    }
}

/// What is known of lost regions of an array that has `size` bytes now.
fn known_before(size: u64, mut known: Ranges) -> Result<Ranges, ArrayError> {
    known.remove(Extent::between(size, u64::MAX));
    match known.count() <= KNOWN_MAX {
        true => Ok(known),
        false => Err(ArrayError::Mismatch("the log says more of lost regions than a superblock can")),
    }
}

/// Where the log goes on behind `records` (ARRAYOPEN4).
fn go_on(spec: &ArraySpec, superblock: &Superblock, records: &Records) -> LogStart {
    if records.is_none() {
        let sequence = superblock.sequence + spec.ring_size() / BLOCK_SIZE + 1; // A record has a block at least.
        assert!(sequence > superblock.sequence, "ARRAYOPEN4");
        return LogStart { head: superblock.head, sequence, epoch: superblock.epoch };
    }
    let last = records.as_ref().and_then(|records| records.last());
    let head = last.map_or(superblock.head, |last| last.start + last.blocks);
    LogStart { head, sequence: next_of(superblock, records) + 1, epoch: superblock.epoch }
}

/// LOGDISK6: `begin` with a number higher than the one in the superblock that the log disk has.
fn past_log_disk(log: &Found, begin: LogStart) -> LogStart {
    let own = log.superblock().map_or(0, |own| own.sequence);
    let begin = LogStart { sequence: begin.sequence.max(own + 1), ..begin };
    assert!(begin.sequence > own, "LOGDISK6: {} is not behind {own}", begin.sequence);
    begin
}

/// Whether a data member of ddraid was not in sync when `superblock` was written.
fn has_data_member_missing(layout: ArrayLayout, superblock: &Superblock) -> bool {
    let ArrayLayout::Ddraid { .. } = layout else { return false };
    let data_members = &superblock.members[..superblock.members.len() - 1];
    data_members.iter().any(|member| member.state != MemberState::InSync)
}

/// The sets of the superblock, and what the log adds to them.
struct Sets {
    regions: u64,
    dirty: RegionSet,
    missed: RegionSet,
    written: RegionSet,
    /// Marked since the superblock, and not clean; and whether clean or not.
    marked: RegionSet,
    ever_marked: RegionSet,
    /// Of which stamps say something that not all members are known to have.
    named: RegionSet,
    /// Dirty ones that were lost when the superblock was written, and what was written to them since.
    lost: RegionSet,
    known: Ranges,
}

impl Sets {
    fn of(superblock: &Superblock, are_dirty_lost: bool) -> Self {
        let regions = superblock.regions();
        let dirty = RegionSet::of(&superblock.dirty, regions);
        let mut known = Ranges::default();
        superblock.known.iter().for_each(|run| known.insert(*run));
        Self {
            regions,
            lost: if are_dirty_lost { dirty.clone() } else { RegionSet::new(regions) },
            known,
            dirty,
            missed: RegionSet::of(&superblock.missed, regions),
            written: RegionSet::of(&superblock.written, regions),
            marked: RegionSet::new(regions),
            ever_marked: RegionSet::new(regions),
            named: RegionSet::new(regions),
        }
    }

    fn replay(&mut self, records: &Records, region_size: u64, election: &Election) -> Result<(), ArrayError> {
        let Some(records) = records else {
            self.know_nothing();
            return Ok(());
        };
        let newest = &election.newest;
        for Record { stamp, changes, .. } in records.iter().map(|placed| &placed.record) {
            let is_open = *stamp > newest.acknowledged;
            self.apply_all(changes, region_size, (is_open, election.voids_cleans(*stamp)))?;
        }
        let is_in_log = records.last().is_some_and(|last| last.record.stamp >= newest.stamp);
        // What only a stamp calls clean may have been written again, for the log does not.
        let marks = newest.changes.iter().filter(|change| !is_in_log && !matches!(change, Change::Clean(..)));
        self.apply_all(marks, region_size, (true, false))
    }

    /// ARRAYOPEN3: the log is unknown.
    fn know_nothing(&mut self) {
        self.known = Ranges::default();
        for set in [&mut self.written, &mut self.marked, &mut self.ever_marked] {
            set.fill();
        }
    }

    /// Applies `changes`. `is_open`: not all members have acknowledged their stamp. `voids_cleans`: one may lack it, so that what they call
    /// clean is not (STAMP5).
    fn apply_all<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change>,
        region_size: u64,
        (is_open, voids_cleans): (bool, bool),
    ) -> Result<(), ArrayError> {
        for change in changes {
            let regions = regions_of(change, region_size);
            if regions.end > self.regions {
                return Err(ArrayError::Mismatch("the log names a region that is not there"));
            }
            if is_open {
                regions.clone().for_each(|region| {
                    self.named.insert(region);
                });
            }
            let is_void = voids_cleans && matches!(change, Change::Clean(..));
            for region in regions.filter(|_| !is_void) {
                match self.lost.contains(region) {
                    true => self.apply_lost(change, region, region_size),
                    false => self.apply(change, region),
                }
            }
        }
        Ok(())
    }

    /// ARRAYLOST4, ARRAYLOST5: only content is authoritative in a region that was lost.
    fn apply_lost(&mut self, change: &Change, region: u64, region_size: u64) {
        let Change::Content(offset, data) = change else { return };
        let content = Extent::checked(*offset, data.len() as u64);
        let whole = Extent::new(region * region_size, region_size);
        self.known.insert(content.and_then(|content| content.intersect(whole)).unwrap_or_default());
    }

    fn apply(&mut self, change: &Change, region: u64) {
        match change {
            Change::Clean(..) => {
                self.marked.remove(region);
                self.dirty.remove(region);
            }
            Change::Zero(..) => {
                self.marked.insert(region);
                self.ever_marked.insert(region);
            }
            Change::Write(..) | Change::Content(..) => {
                self.marked.insert(region);
                self.ever_marked.insert(region);
                self.written.insert(region);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_log_every_region_is_dirty_and_counts_as_written() {
        let empty = || RegionSet::new(4);
        let (dirty, missed, written, marked, ever_marked) = (empty(), empty(), empty(), empty(), empty());
        let known = Ranges::default();
        let (lost, named) = (empty(), empty());
        let mut sets = Sets { regions: 4, dirty, missed, written, marked, ever_marked, named, lost, known };
        sets.know_nothing();
        for set in [&sets.written, &sets.marked, &sets.ever_marked] {
            assert!((0..4).all(|region| set.contains(region)), "ARRAYOPEN3");
        }
        assert!(!sets.missed.contains(0), "ARRAYOPEN3: what a member missed stands in the superblock");
    }
}
