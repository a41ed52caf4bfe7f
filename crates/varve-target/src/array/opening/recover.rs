//! An array is made, and taken into use: superblocks are compared, the log is read, and what it says is made good.

use super::super::checksums::{Checksums, block_size};
use super::super::counters::Counters;
use super::super::dirty_log::log::Log;
use super::super::dirty_log::log_change;
use super::super::dirty_log::log_copy::Records;
use super::super::dirty_log::log_disk::{self, LogDisk};
use super::super::dirty_log::replay::{Replayed, read_log};
use super::super::dirty_log::stamps::Stamps;
use super::super::geometry::kind_of;
use super::super::members::Members;
use super::super::publish::put_superblock;
use super::super::region_set::RegionSet;
use super::super::regions::{Regions, region_size_for};
use super::super::upkeep::lost_regions::Lost;
use super::super::upkeep::pace::Pace;
use super::super::{
    Array, ArrayError, ArrayLayout, ArrayOptions, ArraySpec, InjectedBug, METADATA_SIZE_MIN, Member, Uuid,
};
use super::election::{Election, Found, Worth, called_in_sync};
use super::find::FoundMembers;
use crate::journal::Latch;
use futures_util::future::join_all;
use std::cell::Cell;
use std::rc::Rc;
use varve_block::{Access, Arena, Device, Durability, Extent, Gate, Io, IoError, Notify, RangeLock, Shape};
use varve_format::array::{BLOCK_SIZE, Change, Epoch, MemberEntry, MemberState, SLOT_SIZE, Superblock};

impl Array {
    /// Makes the array `spec` of `members`, all of which must be there. What is behind their metadata is anything: the array is to
    /// be zeroed before it is read.
    pub async fn create(spec: &ArraySpec, members: &[Member], arena: &Arena) -> Result<(), ArrayError> {
        check(spec, members.len())?;
        let mut superblock = first_superblock(spec, members);
        for (place, member) in members.iter().enumerate() {
            let device =
                member.device.as_ref().ok_or(ArrayError::Member { place, problem: "it is missing" })?;
            if let Some(problem) = unfit(spec, device) {
                return Err(ArrayError::Member { place, problem });
            }
            superblock.place = u32::try_from(place).expect("ARRAY3: members are few");
            // A slot of an array that was here before must not count.
            let nothing = arena.take_zeroed(index(BLOCK_SIZE)).freeze();
            device.write(SLOT_SIZE - superblock.slot(), nothing, Durability::Volatile).await?;
            put_superblock(device, &superblock, arena).await?;
            device.flush().await?;
        }
        Ok(())
    }

    /// Takes the array `spec` into use on `members`, each in its place. It may have become larger or smaller since. Members that
    /// are here and not in sync begin to catch up; [`Array::background`] does the work. One that cannot be a member is missing, and so
    /// is one that takes too long to answer when its superblocks are read, if the others can do without it.
    pub async fn open(
        spec: ArraySpec,
        mut members: Vec<Member>,
        mut options: ArrayOptions,
    ) -> Result<Rc<Self>, ArrayError> {
        check(&spec, members.len())?;
        let problem = leave_out_unfit(&spec, &mut members);
        let mut log = options.log_disk.take();
        log_disk::leave_out_unfit(&spec, &mut log);
        let found = FoundMembers::look(&spec, &mut members, &mut log, &options).await?;
        let election = found.elect(&spec, &options).map_err(|error| problem.unwrap_or(error))?;
        let opened = Self::open_found(spec, (members, log), options, &election, &found).await;
        if opened.is_err() {
            join_all(found.watch.take_late()).await; // SLOW1
        }
        opened
    }

    async fn open_found(
        spec: ArraySpec,
        (members, mut log): (Vec<Member>, Option<Member>),
        options: ArrayOptions,
        election: &Election,
        found: &FoundMembers,
    ) -> Result<Rc<Self>, ArrayError> {
        let records = read_log(&spec, election, (&members, log.as_ref()), (found, &options)).await?;
        if records.is_none() && lacks_data_member(spec.layout, election) && !options.accept_missing {
            return Err(ArrayError::LogUnknown); // ARRAYOPEN3
        }
        let replayed = Replayed::of(&spec, election, &records, &found.log)?;
        log_change::prepare(&spec, &mut log, found).await;
        // LOGDISK4: a disk that has lost the log gets it when members know that it has.
        let later = log.clone().filter(|log| records.is_none() && log.device.is_some());
        if let (Some(log), Some(_)) = (&mut log, &later) {
            log.device = None;
        }
        let array = Rc::new(Self::build(spec, (&members, log), options, (election, found), replayed));
        array.write_again(&records).await?;
        array.acknowledge_shown(election).await?;
        array.complete(election, found).await?;
        array.reconfigure().await?;
        if let Some(log) = later
            && let Err(error) = array.attach_log(log).await
        {
            array.latch.check()?;
            tracing::warn!(array = %spec.id, %error, "the log disk cannot return");
        }
        for (place, member) in members.into_iter().enumerate() {
            if array.members.state(place) == MemberState::Away
                && member.device.is_some()
                && let Err(error) = array.attach(place, member).await
            {
                array.latch.check()?;
                tracing::warn!(array = %spec.id, member = place, %error, "a member cannot return");
            }
        }
        Ok(array)
    }

    fn build(
        spec: ArraySpec,
        (members, log_disk): (&[Member], Option<Member>),
        options: ArrayOptions,
        (election, found): (&Election, &FoundMembers),
        replayed: Replayed,
    ) -> Self {
        let number = election.superblock.number;
        let stamps = Stamps::new(&election.newest, replayed.named.iter(), options.injected_bug);
        let worths = election.members.iter().zip(&election.behind);
        let slots = members.iter().zip(worths).zip(&election.superblock.members).zip(replayed.lacks);
        let slots: Vec<(MemberEntry, Option<Device>, RegionSet)> = slots
            .map(|(((member, worth), before), lacks)| {
                let entry = entry_of(*before, worth, (number + 1, stamps.acknowledged()));
                (entry, member.device.clone().filter(|_| entry.state != MemberState::Away), lacks)
            })
            .collect();
        assert_eq!(slots.len(), spec.layout.members(), "ARRAY3: an entry for each member");
        let shape = shape(&spec, &slots);
        let own = spec.id.as_u64_pair().0;
        let log_start = (replayed.begin, replayed.next);
        let log = Log::new(own, spec.ring_size(), log_start, stamps, options.arena.clone());
        let has_pages = spec.checksums && options.injected_bug != Some(InjectedBug::ClearBeforePages);
        let requests = &found.requests;
        assert_eq!(requests.len(), slots.len() + 1, "ARRAY3: those of each member, and of the log disk");
        let members = Members::new(
            slots,
            requests,
            &found.watch,
            (spec.metadata_size, options.injected_bug == Some(InjectedBug::ResyncFromBehind)),
            called_in_sync(election, &found.found, options.accept_missing),
        );
        let is_content_lost = lacks_data_member(spec.layout, election);
        let array = Self {
            shape: Cell::new(shape),
            log_disk: LogDisk::new(log_disk, &requests[members.count()], &members),
            members,
            regions: Regions::new(
                replayed.region_size,
                replayed.dirty,
                replayed.written,
                replayed.regions,
                has_pages,
            ),
            log,
            checksums: spec.checksums.then(|| Checksums::new(spec.layout, own, options.checksum_cache)),
            lost: Lost::new(replayed.pages_current && is_content_lost, replayed.known),
            paging: RangeLock::new(),
            range: RangeLock::new(),
            gate: Gate::default(),
            publishing: RangeLock::new(),
            attaching: RangeLock::new(),
            number: Cell::new(number),
            identity: Cell::new(election.superblock.identity()),
            latch: Latch::default(),
            wants_superblock: Cell::new(true),
            slow_after: Cell::new(options.slow_after),
            release_delay: Cell::new(options.release_delay),
            pace: Pace::new(options.rates),
            is_closed: Cell::new(false),
            changed: Notify::default(),
            changes: Cell::new(0),
            counters: Counters::default(),
            spec,
            options,
        };
        array.forget_checksums(replayed.reconciled.iter());
        array.assert_consistent();
        array
    }

    /// Writes the authoritative superblock to the members that have the one before: they must not fall behind by two (ELECTION2). And
    /// clears the `damaged` slots of members: one that is torn could become whole again when the next superblock is torn, too,
    /// for most of its sectors are the same.
    async fn complete(&self, election: &Election, found: &FoundMembers) -> Result<(), ArrayError> {
        for (place, slot) in found.damaged.iter().filter(|(place, _)| self.members.written().contains(place))
        {
            clear_slot(&self.members.device(*place), *slot, &self.options.arena).await?;
        }
        self.complete_log(election, found).await;
        for (place, found) in found.found.iter().enumerate() {
            let Found::Superblock(own) = found else { continue };
            let is_member = matches!(election.members[place], Worth::InSync | Worth::CatchingUp);
            if is_member && own.number < election.superblock.number {
                let place_number = u32::try_from(place).expect("ARRAY3: members are few");
                let superblock = Superblock { place: place_number, ..election.superblock.clone() };
                put_superblock(&self.members.device(place), &superblock, &self.options.arena).await?;
            }
        }
        Ok(())
    }

    /// As [`Array::complete`], of the log disk: it is away if that fails.
    async fn complete_log(&self, election: &Election, found: &FoundMembers) {
        let Some((id, device)) = self.log_disk.usable() else { return };
        let (mut outcome, counts) = (Ok(()), &election.superblock);
        for (_, slot) in found.damaged.iter().filter(|(place, _)| *place == self.members.count()) {
            outcome = outcome.and(clear_slot(&device, *slot, &self.options.arena).await);
        }
        if counts.log_disk == id && found.is_cut_short(election) {
            // Members are about to have it, and must find it there (LOGDISK4).
            let place = u32::try_from(self.members.count()).expect("ARRAY3: members are few");
            let superblock = Superblock { place, ..counts.clone() };
            outcome = outcome.and(put_superblock(&device, &superblock, &self.options.arena).await);
        }
        if outcome.is_err() {
            self.log_disk.leave();
        }
    }

    /// The stamps that all members show are acknowledged from now on, if all members are here (STAMP6). After a clean stop they have been.
    async fn acknowledge_shown(&self, election: &Election) -> Result<(), ArrayError> {
        let are_all_here = self.members.written().len() == self.members.count();
        if election.had_by_all == election.newest.acknowledged || !are_all_here {
            return Ok(());
        }
        let failed = self.on_members(|_| Io::Flush).await; // After the end of a process they may lie in caches alone.
        if failed.is_empty() {
            self.log.stamps().acknowledge(election.had_by_all);
        }
        Ok(self.handle_failures(&failed, 0..0)?)
    }

    /// Writes the content that the log has once more, in its order (ARRAYOPEN2).
    async fn write_again(&self, records: &Records) -> Result<(), ArrayError> {
        let records = records.iter().flatten();
        let has_content = |change: &Change| matches!(change, Change::Content(..));
        if records.clone().any(|placed| placed.record.changes.iter().any(has_content)) {
            // Records may lie in caches alone: they are to outlive a crash that tears what is written again.
            let failed = self.on_members(|_| Io::Flush).await;
            self.handle_failures(&failed, 0..0)?;
        }
        for change in records.flat_map(|placed| &placed.record.changes) {
            let Change::Content(offset, data) = change else { continue };
            let extent = Extent::checked(*offset, data.len() as u64)
                .filter(|extent| self.shape.get().extent().contains(*extent))
                .filter(|extent| extent.is_aligned(self.shape.get().block_size.into()))
                .ok_or(ArrayError::Mismatch("the log has content that is not made of blocks of the array"))?;
            self.send_again(extent, data.clone()).await?;
        }
        Ok(())
    }
}

/// Whether a data member of ddraid is not in sync: what dirty blocks hold cannot be known.
fn lacks_data_member(layout: ArrayLayout, election: &Election) -> bool {
    let ArrayLayout::Ddraid { .. } = layout else { return false };
    let data_members = &election.members[..election.members.len() - 1];
    data_members.iter().any(|worth| *worth != Worth::InSync)
}

/// What is known of a member that was found to be worth so much, and behind or not, by superblock `number`; all in use had
/// stamp `acknowledged`.
fn entry_of(
    before: MemberEntry,
    (worth, behind): (&Worth, &bool),
    (number, acknowledged): (u64, u64),
) -> MemberEntry {
    let away_since = if before.away_since == 0 { number } else { before.away_since };
    let (state, away_since, left_at) = match worth {
        Worth::InSync => (MemberState::InSync, 0, 0),
        Worth::CatchingUp => (MemberState::CatchingUp, away_since, 0),
        Worth::Absent | Worth::Returned if before.state == MemberState::Away => {
            (MemberState::Away, away_since, before.left_at)
        }
        // One that was in use goes on from where it was, if it returns.
        Worth::Absent | Worth::Returned => (MemberState::Away, number, acknowledged),
    };
    let is_behind = *behind && state == MemberState::InSync;
    MemberEntry { id: before.id, state, away_since, left_at, is_behind }
}

/// Lets the slot of a superblock at `address` count no more, durably.
pub(in crate::array) async fn clear_slot(
    device: &Device,
    address: u64,
    arena: &Arena,
) -> Result<(), IoError> {
    assert!(address.is_multiple_of(SLOT_SIZE), "ARRAY2: {address} is no slot");
    let nothing = arena.take_zeroed(index(BLOCK_SIZE)).freeze();
    device.write(address, nothing, Durability::Durable).await.map(drop)
}

/// Whether so many `members` can be an array as `spec` says.
fn check(spec: &ArraySpec, members: usize) -> Result<(), ArrayError> {
    if let Some(problem) = spec.layout.problem() {
        return Err(ArrayError::Mismatch(problem));
    }
    if members != spec.layout.members() {
        return Err(ArrayError::Mismatch("the number of members"));
    }
    let block = spec.layout.block_size().max(BLOCK_SIZE);
    if spec.size > spec.size_max() {
        return Err(ArrayError::Mismatch("it has no room for the checksums of so many bytes"));
    }
    if spec.size == 0 || !spec.size.is_multiple_of(block) || spec.metadata_size < METADATA_SIZE_MIN {
        return Err(ArrayError::Mismatch("the size"));
    }
    Ok(())
}

/// Why `device` cannot be a member of the array `spec`.
pub(in crate::array) fn unfit(spec: &ArraySpec, device: &Device) -> Option<&'static str> {
    let size = spec.metadata_size + spec.layout.on_members(Extent::new(0, spec.size)).length;
    let shape = device.shape();
    if shape.size < size {
        Some("it is too small")
    } else if shape.access == Access::ReadOnly {
        Some("it is read-only")
    } else if u64::from(shape.block_size) > BLOCK_SIZE {
        Some("its sectors are larger than 4 KiB")
    } else if !is_fragment(spec.layout, u64::from(shape.block_size)) {
        Some("its sectors are larger than the fragment of a block")
    } else {
        None
    }
}

/// Members that cannot be members are missing from now on. Returns what is wrong with one of them.
fn leave_out_unfit(spec: &ArraySpec, members: &mut [Member]) -> Option<ArrayError> {
    let mut first = None;
    for (place, member) in members.iter_mut().enumerate() {
        if let Some(problem) = member.device.as_ref().and_then(|device| unfit(spec, device)) {
            tracing::warn!(array = %spec.id, member = place, problem, "a member is left out");
            first.get_or_insert(ArrayError::Member { place, problem });
            member.device = None;
        }
    }
    first
}

/// Whether a fragment of `layout` is made of whole sectors.
pub(in crate::array) fn is_fragment(layout: ArrayLayout, sector: u64) -> bool {
    matches!(layout, ArrayLayout::Mirror { .. }) || layout.fragment_size().is_multiple_of(sector)
}

fn first_superblock(spec: &ArraySpec, members: &[Member]) -> Superblock {
    let (kind, block_size) = kind_of(spec.layout);
    let region_size = region_size_for(spec.size);
    let empty = RegionSet::new(spec.size.div_ceil(region_size)).bits();
    let entry = |member: &Member| MemberEntry {
        id: member.id,
        state: MemberState::InSync,
        away_since: 0,
        left_at: 0,
        is_behind: false,
    };
    Superblock {
        number: 1,
        array: spec.id,
        place: 0,
        kind,
        block_size,
        size: spec.size,
        metadata_size: spec.metadata_size,
        region_size,
        head: 0,
        sequence: 1,
        epoch: Epoch::default(),
        log_members: 0b11,
        log_disk: Uuid::nil(),
        previous: 0,
        checksums: spec.checksums,
        pages_current: false,
        stamp: 0,
        members: members.iter().map(entry).collect(),
        dirty: empty.clone(),
        missed: empty.clone(),
        written: empty,
        known: Vec::new(),
    }
}

/// What the array is like on its `devices`.
fn shape(spec: &ArraySpec, slots: &[(MemberEntry, Option<Device>, RegionSet)]) -> Shape {
    let devices = slots.iter().filter_map(|(_, device, _)| device.as_ref());
    let sector = devices.clone().map(|device| device.shape().block_size).max().unwrap_or(512);
    let unit = if spec.checksums { block_size(spec.layout) } else { spec.layout.block_size() };
    let block = u32::try_from(unit).expect("a block is small").max(sector);
    let optimal = devices.clone().map(|device| device.shape().optimal_size).max().unwrap_or(block);
    let fast_zero = { devices }.all(|device| device.shape().fast_zero);
    Shape { optimal_size: optimal.max(block), discard: fast_zero, fast_zero, ..Shape::new(spec.size, block) }
}

fn index(length: u64) -> usize {
    usize::try_from(length).expect("a block is small")
}
