//! Writing the log: a batch becomes records, each one block of entries and the preserved data behind it.
//!
//! A record is one sequential write where the free space allows it. Where it does not, the data goes wherever there
//! is space, for entries say where their data is; the record's block alone is where the record before said.

use super::batch::{Sealed, Work};
use super::contents::apply;
use super::{InjectedBug, MetadataOrder, SnapshotStore, StoreError, index, of_device};
use crate::fan_out::fan_out;
use crate::pdata::{AllocClass, Pace};
use std::collections::VecDeque;
use varve_block::{Buffer, Durability, Extent, Io, IoError, LockMode};
use varve_format::pdata::{Block, BlockRun};
use varve_format::store::{BlockKind, ENTRY_CAPACITY, Entry, EntryBlock, Mapping, PART_SIZE, data_checksum};

/// Bytes of the entry of a mapping.
const MAPPING_LENGTH: usize = 40;
/// Something that has to get into the log.
enum Unit {
    Entry {
        /// The member that wants it; none for data that was written to snapshots.
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
    /// The members that have something in it.
    members: Vec<Option<usize>>,
}

/// How the members of a batch fare.
struct Outcomes {
    outcomes: Vec<Result<(), IoError>>,
    /// Those that want what was written to snapshots in the log.
    flushing: Vec<usize>,
}

impl Outcomes {
    /// A member's wish is not fulfilled; none stands for those that flush.
    fn fail(&mut self, member: Option<usize>, error: IoError) {
        assert!(member.is_none_or(|member| member < self.outcomes.len()), "BATCH2: a member of this batch");
        match member {
            Some(member) => self.outcomes[member] = Err(error),
            None => self.flushing.iter().for_each(|member| self.outcomes[*member] = Err(error)),
        }
    }
}

impl SnapshotStore {
    /// Sees `ticket`'s batch through, as its leader or not.
    pub(super) async fn await_commit(&self, ticket: super::batch::Ticket) -> Result<(), IoError> {
        if let Some(batch) = self.pipeline.turn(&ticket).await {
            self.lead(batch).await;
        }
        ticket.outcome()
    }

    /// Puts `entry` into the log.
    pub(super) async fn log_entry(&self, entry: Entry) -> Result<(), IoError> {
        let ticket = self.pipeline.join(Work::Entry(entry));
        self.await_commit(ticket).await
    }

    async fn lead(&self, batch: Sealed<'_>) {
        let works = batch.works().await;
        let through = self.metadata.get() == MetadataOrder::WriteThrough;
        let asked: Vec<bool> = works.iter().map(|work| matches!(work, Work::Checkpoint)).collect();
        let wants_checkpoint = through || asked.contains(&true);
        let mut outcomes = self.commit(works).await;
        self.blocks.pages().set_reservation(0);
        if wants_checkpoint && let Err(error) = self.checkpoint().await {
            // The others have what they want: their records are durable. If the store has failed the next ones hear.
            let asked = outcomes.iter_mut().zip(asked).filter(|(outcome, asked)| *asked && outcome.is_ok());
            asked.for_each(|(outcome, _)| *outcome = Err(error));
        }
        batch.finish(outcomes);
        if !wants_checkpoint && self.checkpoint_is_due() {
            // No member asked for it: if it fails, the next request that needs it gets the error.
            let _ = self.checkpoint().await;
        }
        self.notify_space();
    }

    /// Carries out a batch; returns each member's outcome.
    async fn commit(&self, works: Vec<Work>) -> Vec<Result<(), IoError>> {
        if let Err(error) = self.take_in_growth().await {
            return self.refuse_all(&works, error);
        }
        let mut outcomes = Outcomes { outcomes: vec![Ok(()); works.len()], flushing: Vec::new() };
        let mut units = VecDeque::new();
        if works.iter().any(|work| matches!(work, Work::LogWritten)) {
            match self.collect_written().await {
                Ok(written) => units.extend(written),
                Err(error) => return self.refuse_all(&works, error),
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
                Work::Preserve { data: None, .. } => outcomes.fail(Some(member), IoError::Medium),
                Work::Entry(entry) => units.push_back(Unit::Entry { member: Some(member), entry }),
                Work::LogWritten => outcomes.flushing.push(member),
                Work::Checkpoint => {}
            }
            data.push(held);
        }
        let mut tried_checkpoint = false;
        while !units.is_empty() {
            if let Err(error) = self.step(&mut units, &data, &mut outcomes, &mut tried_checkpoint).await {
                self.refuse(units, error, &mut outcomes);
                break;
            }
        }
        outcomes.outcomes
    }

    /// Writes one record of what waits in `units`.
    async fn step(
        &self,
        units: &mut VecDeque<Unit>,
        data: &[Option<Buffer>],
        outcomes: &mut Outcomes,
        tried_checkpoint: &mut bool,
    ) -> Result<(), IoError> {
        self.blocks.pages().reclaim();
        if !self.has_room(units) && (!*tried_checkpoint || !self.log_has_room(growth(units))) {
            *tried_checkpoint = true;
            let generation = self.generation();
            let made_free = match self.reclaim_all().await {
                Ok(()) => self.checkpoint().await,
                failed => failed,
            };
            if self.generation() != generation {
                // What was written to snapshots is in the checkpoint, as it is now: logged again it could be stale.
                units.retain(|unit| !matches!(unit, Unit::Entry { entry: Entry::Written(_), .. }));
            }
            if let Err(error) = made_free
                && error != IoError::NoSpace
            {
                return Err(error);
            }
        }
        if !self.log_has_room(growth(units)) && growth(units) > 0 {
            // SNAPSHOT9: what makes room must find some.
            let (enlarging, others) = std::mem::take(units).into_iter().partition(Unit::enlarges_table);
            *units = others;
            self.refuse(enlarging, IoError::NoSpace, outcomes);
            return Ok(());
        }
        if !self.log_has_room(0) {
            return Err(IoError::NoSpace); // SNAPSHOT9: the next checkpoint needs what is left.
        }
        let waiting: u64 = units.iter().map(Unit::bytes).sum();
        if units.iter().any(Unit::drops) && !self.has_room_for_nodes(units.len(), waiting) {
            // SNAPSHOT9: what it would free comes too late for the nodes that it changes.
            let (drops, others) = std::mem::take(units).into_iter().partition(Unit::drops);
            *units = others;
            self.refuse(drops, IoError::NoSpace, outcomes);
            return Ok(());
        }
        let record = self.plan(units, data).await?;
        record.refused.iter().for_each(|member| outcomes.fail(Some(*member), IoError::NoSpace));
        if record.block.entries.is_empty() {
            self.unplan(&record);
            return Ok(());
        }
        let sequence = record.block.sequence;
        let mut entered = self.append(&record, data).await;
        if let Err(error) = entered {
            tracing::error!(store = %self.id, %error, sequence, "the log cannot be written");
        } else {
            entered = self.adopt(record.block).await; // SNAPSHOT8
        }
        if let Err(error) = entered {
            // It is unknown what the log says of this record, or the maps do not say what it does. Those before are sound.
            tracing::error!(store = %self.id, %error, sequence, "nothing is written to the log any more");
            let error = self.failed.shut(error);
            record.members.into_iter().for_each(|member| outcomes.fail(member, error));
        }
        entered
    }

    /// Flushes what was written to snapshots and says what the log must know of it (SNAPSHOT4).
    async fn collect_written(&self) -> Result<Vec<Unit>, IoError> {
        let written = std::mem::take(&mut self.state.borrow_mut().unlogged);
        if let Err(error) = self.store_device().flush().await.map_err(of_device) {
            return Err(self.failed.shut(error));
        }
        let unit = |mapping| Unit::Entry { member: None, entry: Entry::Written(mapping) };
        Ok(written.into_iter().map(unit).collect())
    }

    /// Whether there is space for all of `units`, or a checkpoint would not make any.
    fn has_room(&self, units: &VecDeque<Unit>) -> bool {
        let wanted: u64 = units.iter().map(Unit::bytes).sum();
        let room = self.available(units.len(), wanted) >= wanted;
        (room && self.log_has_room(growth(units))) || !self.checkpoint_gains()
    }

    /// Takes from `units` what fits into one record, and space for it.
    async fn plan(&self, units: &mut VecDeque<Unit>, data: &[Option<Buffer>]) -> Result<Record, IoError> {
        let (start, generation, epoch, sequence) = {
            let log = &self.state.borrow().log;
            (log.next, log.generation, log.epoch, log.sequence)
        };
        let waiting: u64 = units.iter().map(Unit::bytes).sum();
        let wanted = waiting.min(self.options.batch_bytes).min(self.available(units.len(), waiting));
        // What is durable in the log can always be entered into the maps (SNAPSHOT9).
        let nodes = self.blocks_for_nodes(&self.blocks.pages(), units.len(), wanted);
        self.blocks.pages().set_reservation(nodes);
        let own = BlockRun::one(Block::at(start));
        let mut places = self.take_for_record(own.end(), wanted / PART_SIZE, AllocClass::Normal).await?;
        let behind = places.last().unwrap_or(&own).end();
        let next = match self.take_for_record(behind, 1, AllocClass::Reserve).await {
            Ok(next) => next.first().copied(),
            Err(error) => {
                self.untake(places);
                return Err(error);
            }
        };
        let Some(next) = next else {
            self.untake(places);
            return Err(IoError::NoSpace);
        };
        places.reverse();
        let mut planner = Planner {
            places,
            cursor: Extent::default(),
            runs: vec![(own.extent(), Vec::new())],
            entries: Vec::new(),
            entry_bytes: 0,
            refused: Vec::new(),
            members: Vec::new(),
        };
        while let Some(unit) = units.pop_front() {
            if let Some(rest) = planner.add(unit, data) {
                let full = planner.entry_bytes + rest.entry_length() > ENTRY_CAPACITY;
                units.push_front(rest);
                if full {
                    break;
                }
            }
        }
        let Planner { places, cursor, runs, entries, refused, members, .. } = planner;
        self.untake(places);
        if !cursor.is_empty() {
            self.untake([BlockRun::of(cursor)]);
        }
        let next = next.first.offset();
        let block = EntryBlock {
            kind: BlockKind::Log,
            store: self.id,
            generation,
            epoch,
            address: start,
            sequence,
            next,
            entries,
        };
        Ok(Record { block, runs, refused, members })
    }

    fn untake(&self, places: impl IntoIterator<Item = BlockRun>) {
        let mut pages = self.blocks.pages();
        places.into_iter().for_each(|run| pages.untake(run));
    }

    /// Gives back what an empty record took.
    fn unplan(&self, record: &Record) {
        assert_eq!(record.runs.len(), 1, "an empty record has no data");
        self.untake([BlockRun::one(Block::at(record.block.next))]);
    }

    /// Writes a record, durably.
    async fn append(&self, record: &Record, data: &[Option<Buffer>]) -> Result<(), IoError> {
        let ends = record.runs.iter().map(|(extent, _)| extent.end()).chain([record.block.next + PART_SIZE]);
        assert!(ends.max() <= Some(self.state.borrow().described), "SNAPSHOT10: described before it is used");
        assert_eq!(self.state.borrow().log.sequence, record.block.sequence, "SNAPSHOT3: in turn");
        let durability =
            if self.has_bug(InjectedBug::SkipFlush) { Durability::Volatile } else { Durability::Durable };
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
        fan_out(writes).await.map_err(of_device)?;
        Ok(())
    }

    /// Refuses a batch of which nothing was begun.
    fn refuse_all(&self, works: &[Work], error: IoError) -> Vec<Result<(), IoError>> {
        for work in works {
            if let Work::Entry(Entry::Created(descriptor)) = work {
                self.withdraw(descriptor.id); // CONTENTS3
            }
        }
        vec![Err(error); works.len()]
    }

    /// Refuses what is left of a batch.
    fn refuse(&self, units: VecDeque<Unit>, error: IoError, outcomes: &mut Outcomes) {
        let mut written = Vec::new();
        for unit in units {
            outcomes.fail(unit.member(), error);
            match unit {
                Unit::Entry { entry: Entry::Written(mapping), .. } => written.push(mapping),
                // CONTENTS3: before any member is notified, so that no table ever names it.
                Unit::Entry { entry: Entry::Created(descriptor), .. } => self.withdraw(descriptor.id),
                Unit::Entry { .. } | Unit::Copy { .. } => {}
            }
        }
        self.refuse_written(written);
    }

    /// The log has nothing of what was `written`: another flush logs it.
    pub(super) fn refuse_written(&self, written: Vec<Mapping>) {
        assert!(written.iter().all(|mapping| !mapping.extent.is_empty()), "SNAPSHOT4: something was written");
        // Before what has been written since: of two entries for one part the later one is valid.
        self.state.borrow_mut().unlogged.splice(0..0, written);
    }

    /// Applies a record that is durable now.
    async fn adopt(&self, block: EntryBlock) -> Result<(), IoError> {
        {
            let log = &mut self.state.borrow_mut().log;
            assert_eq!((block.sequence, block.address), (log.sequence, log.next), "SNAPSHOT3: in turn");
            log.sequence += 1;
            log.next = block.next;
            log.blocks.push(Extent::new(block.address, PART_SIZE));
        }
        for entry in &block.entries {
            if matches!(entry, Entry::Written(_)) {
                continue; // It is in the map since it was written.
            }
            let _alone = match entry {
                // No read of the origin is under way there when the map says that the part is preserved (SNAPSHOT2).
                Entry::Preserved { mapping, .. } => {
                    Some(self.falls.lock(mapping.extent, LockMode::Exclusive).await)
                }
                _ => None,
            };
            let applied = apply(&self.map, &self.contents, AllocClass::Reserve, entry).await;
            applied.map_err(|error| match error {
                StoreError::Io(error) => error,
                // Contradictions; and space, which was reserved (SNAPSHOT9).
                _ => IoError::Corrupt,
            })?;
            match entry {
                Entry::Preserved { .. } | Entry::Dropped { .. } => self.relieve(Pace::Prompt).await,
                Entry::Removed(id) => {
                    self.state.borrow_mut().unlogged.retain(|mapping| mapping.snapshot != *id);
                }
                _ => self.keep_for_checkpoint(),
            }
        }
        Ok(())
    }
}

/// A record in the making.
struct Planner {
    /// Space that was taken for data and is not used yet, the next run last.
    places: Vec<BlockRun>,
    /// What is left of the run in use.
    cursor: Extent,
    runs: Vec<(Extent, Vec<Slice>)>,
    entries: Vec<Entry>,
    entry_bytes: usize,
    refused: Vec<usize>,
    members: Vec<Option<usize>>,
}

impl Planner {
    /// Adds `unit`. Returns what did not fit.
    fn add(&mut self, unit: Unit, data: &[Option<Buffer>]) -> Option<Unit> {
        if self.entry_bytes + unit.entry_length() > ENTRY_CAPACITY {
            return Some(unit);
        }
        self.members.push(unit.member());
        match unit {
            Unit::Entry { entry, .. } => {
                self.entry_bytes += entry.length();
                self.entries.push(entry);
                None
            }
            Unit::Copy { member, snapshot, extent, at } => {
                if self.cursor.is_empty() {
                    self.cursor = self.places.pop().unwrap_or_default().extent();
                }
                if self.cursor.is_empty() {
                    self.refused.push(member);
                    return None;
                }
                let length = extent.length.min(self.cursor.length);
                let (place, rest) = self.cursor.split_at(length);
                self.cursor = rest;
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
    fn member(&self) -> Option<usize> {
        match self {
            Unit::Copy { member, .. } => Some(*member),
            Unit::Entry { member, .. } => *member,
        }
    }

    /// Whether the table may need a block more behind it.
    fn enlarges_table(&self) -> bool {
        matches!(self, Unit::Entry { entry: Entry::Created(_) | Entry::Renamed { .. }, .. })
    }

    /// Whether it frees what was preserved.
    fn drops(&self) -> bool {
        matches!(self, Unit::Entry { entry: Entry::Dropped { .. }, .. })
    }

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

/// By how many blocks the table may grow for what waits in `units`.
fn growth(units: &VecDeque<Unit>) -> u64 {
    u64::from(units.iter().any(Unit::enlarges_table))
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
