//! Writing the log: a batch becomes records, each one block of entries and the preserved data behind it.
//!
//! A record is one sequential write where the free space allows it. Where it does not, the data goes wherever there
//! is space, for entries say where their data is; the record's block alone lies where the record before said.

use super::batch::{Lead, Turn, Work};
use super::space::Space;
use super::{Sabotage, SnapshotStore, index, reserve_bytes};
use crate::fan_out::fan_out;
use std::collections::VecDeque;
use varve_block::{Buffer, Durability, Extent, Io, IoError, LockMode};
use varve_format::store::{BlockKind, ENTRY_CAPACITY, Entry, EntryBlock, Mapping, PART_SIZE, data_checksum};

/// Bytes of the entry of a mapping.
const MAPPING_LENGTH: usize = 40;
/// How many records without data may be written into the reserve before a checkpoint must give space back.
const RECORDS_BELOW_RESERVE: u64 = 6;

/// Something that has to get into the log.
enum Unit {
    Entry {
        /// Who wants it; none for data that was written to snapshots.
        member: Option<usize>,
        entry: Entry,
    },
    Copy {
        member: usize,
        snapshot: u64,
        /// What is still to be copied, and where that begins in the member's data.
        extent: Extent,
        at: usize,
    },
}

/// Data of a member, and where in it.
struct Slice {
    member: usize,
    at: usize,
    length: usize,
}

/// One record, planned.
struct Record {
    block: EntryBlock,
    /// Contiguous runs of the store and what goes there; the first begins with the block.
    runs: Vec<(Extent, Vec<Slice>)>,
    /// Members for whose data there is no space.
    refused: Vec<usize>,
}

impl SnapshotStore {
    /// Sees `ticket`'s batch through, as its leader or not.
    pub(super) async fn settle(&self, ticket: super::batch::Ticket) -> Result<(), IoError> {
        if let Turn::Lead(lead) = self.pipeline.turn(&ticket).await {
            self.lead(lead).await;
        }
        ticket.outcome()
    }

    /// Puts `entry` into the log.
    pub(super) async fn log_entry(&self, entry: Entry) -> Result<(), IoError> {
        let ticket = self.pipeline.join(Work::Entry(entry));
        self.settle(ticket).await
    }

    async fn lead(&self, lead: Lead) {
        lead.all_read().await;
        let works = lead.batch.take_works();
        let wants_checkpoint = works.iter().any(|work| matches!(work, Work::Checkpoint));
        let mut outcomes = self.commit(works).await;
        if wants_checkpoint && let Err(error) = self.checkpoint().await {
            outcomes.iter_mut().filter(|outcome| outcome.is_ok()).for_each(|outcome| *outcome = Err(error));
        }
        lead.batch.finish(outcomes);
        if !wants_checkpoint && self.checkpoint_is_due() {
            // Nobody asked for it: if it fails, the next one who needs it is told.
            let _ = self.checkpoint().await;
        }
        self.notify_space();
    }

    /// Carries out a batch; returns each member's outcome.
    async fn commit(&self, works: Vec<Work>) -> Vec<Result<(), IoError>> {
        if let Some(error) = self.failed.get() {
            return vec![Err(error); works.len()];
        }
        let mut outcomes: Vec<Result<(), IoError>> = vec![Ok(()); works.len()];
        let mut units = VecDeque::new();
        if works.iter().any(|work| matches!(work, Work::LogWritten)) {
            match self.collect_written().await {
                Ok(written) => units.extend(written),
                Err(error) => return vec![Err(error); works.len()],
            }
        }
        let mut data = Vec::with_capacity(works.len());
        for (member, work) in works.into_iter().enumerate() {
            let mut held = None;
            match work {
                Work::Preserve { snapshot, extent, data: Some(content) } => {
                    units.push_back(Unit::Copy { member, snapshot, extent, at: 0 });
                    held = Some(content);
                }
                Work::Preserve { data: None, .. } => outcomes[member] = Err(IoError::Medium),
                Work::Entry(entry) => units.push_back(Unit::Entry { member: Some(member), entry }),
                Work::LogWritten | Work::Checkpoint => {}
            }
            data.push(held);
        }
        let mut tried_checkpoint = false;
        while !units.is_empty() {
            if let Err(error) = self.step(&mut units, &data, &mut outcomes, &mut tried_checkpoint).await {
                self.refuse(units, error, &mut outcomes);
                if self.failed.get().is_some() {
                    // Nobody knows what the log says now: not even of the record that was being written.
                    outcomes.fill(Err(error));
                }
                break;
            }
        }
        outcomes
    }

    /// Writes one record of what waits in `units`.
    async fn step(
        &self,
        units: &mut VecDeque<Unit>,
        data: &[Option<Buffer>],
        outcomes: &mut [Result<(), IoError>],
        tried_checkpoint: &mut bool,
    ) -> Result<(), IoError> {
        if !self.has_room(units) && !std::mem::replace(tried_checkpoint, true) {
            self.reclaim_all();
            match self.checkpoint().await {
                // What was written to snapshots is in the checkpoint, as it is now: logged again it could be stale.
                Ok(()) => units.retain(|unit| !matches!(unit, Unit::Entry { entry: Entry::Written(_), .. })),
                Err(IoError::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        let record = self.plan(units, data)?;
        record.refused.iter().for_each(|member| outcomes[*member] = Err(IoError::NoSpace));
        if record.block.entries.is_empty() {
            self.unplan(&record);
            return Ok(());
        }
        let append = self.append(&record, data).await;
        if let Err(error) = append {
            tracing::error!(store = %self.id, %error, sequence = record.block.sequence, "the log cannot be written");
            self.failed.set(Some(error));
            return Err(error);
        }
        self.adopt(record.block).await
    }

    /// Flushes what was written to snapshots and says what the log must know of it (S4).
    async fn collect_written(&self) -> Result<Vec<Unit>, IoError> {
        let written = std::mem::take(&mut self.state.borrow_mut().unlogged);
        if let Err(error) = self.store_device().flush().await {
            self.failed.set(Some(error));
            return Err(error);
        }
        let unit = |mapping| Unit::Entry { member: None, entry: Entry::Written(mapping) };
        Ok(written.into_iter().map(unit).collect())
    }

    /// Whether there is space for all of `units`, or a checkpoint would not make any.
    fn has_room(&self, units: &VecDeque<Unit>) -> bool {
        let state = self.state.borrow();
        let wanted: u64 = units.iter().map(Unit::bytes).sum();
        let room = state.available(units.len(), wanted) >= wanted;
        let reserve = reserve_bytes(state.contents.map.pieces(), state.contents.descriptions());
        let log_room = state.space.free_bytes() + RECORDS_BELOW_RESERVE * PART_SIZE >= reserve;
        let gain = state.space.pending_bytes() + state.log.blocks.len() as u64 * PART_SIZE;
        (room && log_room) || (gain == 0 && state.contents.leaving.is_empty())
    }

    /// Takes from `units` what fits into one record, and space for it.
    fn plan(&self, units: &mut VecDeque<Unit>, data: &[Option<Buffer>]) -> Result<Record, IoError> {
        let mut state = self.state.borrow_mut();
        if state.space.free_bytes() < PART_SIZE {
            return Err(IoError::NoSpace);
        }
        let wanted: u64 = units.iter().map(Unit::bytes).sum();
        let available = state.available(units.len(), wanted);
        let start = state.log.next;
        let cursor = state.space.take_at(start + PART_SIZE, wanted.min(available));
        let runs = vec![(Extent::new(start, PART_SIZE), Vec::new())];
        let mut planner = Planner {
            space: &mut state.space,
            available,
            cursor,
            runs,
            entries: Vec::new(),
            entry_bytes: 0,
            refused: Vec::new(),
        };
        while let Some(unit) = units.pop_front() {
            let left: u64 = units.iter().map(Unit::bytes).sum();
            if let Some(rest) = planner.add(unit, left, data) {
                let full = planner.entry_bytes + rest.entry_length() > ENTRY_CAPACITY;
                units.push_front(rest);
                if full {
                    break;
                }
            }
        }
        let Planner { cursor, runs, entries, refused, .. } = planner;
        state.space.add(cursor);
        let end = runs.last().expect("the block's run is there").0.end();
        let next = Some(state.space.take_at(end, PART_SIZE)).filter(|block| !block.is_empty());
        let next = next.map(|block| block.offset).or_else(|| state.space.take_log_block());
        let block = EntryBlock {
            kind: BlockKind::Log,
            store: self.id,
            generation: state.log.generation,
            address: start,
            sequence: state.log.sequence,
            next: next.expect("a block was free and the reserve keeps data from taking it"),
            entries,
        };
        Ok(Record { block, runs, refused })
    }

    /// Gives back what an empty record took.
    fn unplan(&self, record: &Record) {
        assert_eq!(record.runs.len(), 1, "an empty record has no data");
        self.state.borrow_mut().space.add(Extent::new(record.block.next, PART_SIZE));
    }

    /// Writes a record, durably.
    async fn append(&self, record: &Record, data: &[Option<Buffer>]) -> Result<(), IoError> {
        assert_eq!(self.state.borrow().log.sequence, record.block.sequence, "S3: one record at a time");
        let durability =
            if self.sabotaged(Sabotage::SkipFlush) { Durability::Volatile } else { Durability::Durable };
        let device = self.store_device();
        let mut writes = Vec::with_capacity(record.runs.len());
        for (number, (extent, slices)) in record.runs.iter().enumerate() {
            let mut buffer = self.arena.take(index(extent.length));
            let mut at = 0;
            if number == 0 {
                at = index(PART_SIZE);
                record.block.encode(&mut buffer[..at]);
            }
            for slice in slices {
                let content = data[slice.member].as_ref().expect("a copy's content was delivered");
                buffer[at..at + slice.length].copy_from_slice(&content[slice.at..slice.at + slice.length]);
                at += slice.length;
            }
            assert_eq!(at, buffer.len(), "a run is filled");
            writes.push((&device, Io::Write { offset: extent.offset, data: buffer.freeze(), durability }));
        }
        fan_out(writes).await?;
        Ok(())
    }

    /// Gives up on what is left of a batch.
    fn refuse(&self, units: VecDeque<Unit>, error: IoError, outcomes: &mut [Result<(), IoError>]) {
        for unit in units {
            match unit {
                Unit::Entry { member: Some(member), .. } | Unit::Copy { member, .. } => {
                    outcomes[member] = Err(error);
                }
                Unit::Entry { member: None, entry } => {
                    outcomes.fill(Err(error));
                    if let Entry::Written(mapping) = entry {
                        self.state.borrow_mut().unlogged.push(mapping);
                    }
                }
            }
        }
    }

    /// Applies a record that is durable now.
    async fn adopt(&self, block: EntryBlock) -> Result<(), IoError> {
        {
            let log = &mut self.state.borrow_mut().log;
            assert_eq!((block.sequence, block.address), (log.sequence, log.next), "S3: one record at a time");
            log.sequence += 1;
            log.next = block.next;
            log.blocks.push(Extent::new(block.address, PART_SIZE));
        }
        for entry in &block.entries {
            if matches!(entry, Entry::Written(_)) {
                continue; // It is in the map since it was written.
            }
            let _alone = match entry {
                // S2
                Entry::Preserved { mapping, .. } => {
                    Some(self.falls.lock(mapping.extent, LockMode::Exclusive).await)
                }
                _ => None,
            };
            let mut state = self.state.borrow_mut();
            let freed = state.contents.apply(entry).map_err(|_| IoError::Corrupt)?;
            state.space.release(freed);
            if let Entry::Removed(id) = entry {
                state.unlogged.retain(|mapping| mapping.snapshot != *id);
            }
        }
        Ok(())
    }
}

/// A record in the making.
struct Planner<'a> {
    space: &'a mut Space,
    /// Bytes that data may still take.
    available: u64,
    /// Space that was taken and is not used yet.
    cursor: Extent,
    runs: Vec<(Extent, Vec<Slice>)>,
    entries: Vec<Entry>,
    entry_bytes: usize,
    refused: Vec<usize>,
}

impl Planner<'_> {
    /// Adds `unit`, behind which `left` bytes of others wait. Returns what did not fit.
    fn add(&mut self, unit: Unit, left: u64, data: &[Option<Buffer>]) -> Option<Unit> {
        if self.entry_bytes + unit.entry_length() > ENTRY_CAPACITY {
            return Some(unit);
        }
        match unit {
            Unit::Entry { entry, .. } => {
                self.entry_bytes += entry.length();
                self.entries.push(entry);
                None
            }
            Unit::Copy { member, snapshot, extent, at } => {
                if self.cursor.is_empty() {
                    let wanted = (extent.length + left).min(self.available);
                    self.cursor = self.space.take_front(wanted).unwrap_or_default();
                }
                if self.cursor.is_empty() {
                    self.refused.push(member);
                    return None;
                }
                let length = extent.length.min(self.cursor.length);
                let (place, rest) = self.cursor.split_at(length);
                (self.cursor, self.available) = (rest, self.available - length);
                let (now, later) = extent.split_at(length);
                assert!(length > 0 && place.length == length, "something is copied somewhere");
                let slice = Slice { member, at, length: index(length) };
                let content = data[member].as_ref().expect("a copy's content was delivered");
                let checksum = data_checksum(&content[at..at + slice.length]);
                let mapping = Mapping { snapshot, extent: now, place: place.offset };
                let entry = Entry::Preserved { mapping, checksum };
                assert_eq!(entry.length(), MAPPING_LENGTH, "the length was foreseen");
                self.entries.push(entry);
                self.entry_bytes += MAPPING_LENGTH;
                let at = at + slice.length;
                push_slice(&mut self.runs, place, slice);
                (!later.is_empty()).then_some(Unit::Copy { member, snapshot, extent: later, at })
            }
        }
    }
}

impl Unit {
    fn bytes(&self) -> u64 {
        match self {
            Unit::Copy { extent, .. } => extent.length,
            Unit::Entry { .. } => 0,
        }
    }

    fn entry_length(&self) -> usize {
        match self {
            Unit::Copy { .. } => MAPPING_LENGTH,
            Unit::Entry { entry, .. } => entry.length(),
        }
    }
}

fn push_slice(runs: &mut Vec<(Extent, Vec<Slice>)>, place: Extent, slice: Slice) {
    match runs.last_mut() {
        Some((run, slices)) if run.end() == place.offset => {
            run.length += place.length;
            slices.push(slice);
        }
        _ => runs.push((place, vec![slice])),
    }
}
