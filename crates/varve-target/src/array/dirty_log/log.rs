//! The log of an array: what has to be durable before members are written, and what no longer is dirty.
//!
//! It stands on the house's journal: commits are shared, records lie in a ring, and a superblock begins it anew. The ring is
//! on two members, or on a log disk; all other members get a record as a stamp (STAMP1). A record that only one of two took is valid once it is durable that the other one is away.
//!
//! Invariants:
//! - ARRAYLOG4. A region is marked in memory when a record that says so is durable on all that have the log and are not away.
//! - ARRAYLOG5. The ring never forgets: when it is tight the commit does not begin, and a superblock is written first.

use super::super::members::Members;
use super::super::regions::{Regions, runs};
use super::log_copy::regions_of;
use super::log_disk::LogDisk;
use super::stamps::Stamps;
use crate::journal::{GroupCommit, LogStart, Ring};
use futures_util::future::join;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{
    Arena, BlockDevice, Buffer, Bytes, Checked, Completion, Device, Durability, Io, IoError, Shape,
};
use varve_format::array::{
    BLOCK_SIZE, Change, RECORD_BLOCKS_MAX, RING_OFFSET, Record, STAMP_ENTRIES_MAX, record_blocks,
};

/// Members that have the log at most.
pub(in crate::array) const LOG_COPIES: usize = 2;

/// The log.
pub(in crate::array) struct Log {
    pub(in crate::array) group: GroupCommit,
    pub(in crate::array) ring: Ring,
    array: u64,
    arena: Arena,
    pending: RefCell<Pending>,
    copies: RefCell<Rc<Copies>>,
    records: Cell<u64>,
    stamps: Stamps,
    /// The number of the first record that holders may lack.
    next: Cell<u64>,
}

/// A holder of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::array) enum Holder {
    /// The member in this place.
    Member(usize),
    /// The disk that is for it.
    LogDisk,
}

/// What the next commit says.
#[derive(Default)]
struct Pending {
    /// Regions that are about to be changed, and whether they are written.
    marks: BTreeMap<u64, bool>,
    content: Vec<PendingContent>,
}

/// Bytes that are about to be written.
struct PendingContent {
    offset: u64,
    data: Bytes,
    is_durable: Rc<Cell<bool>>,
}

/// A commit has not been made: members have failed, or the ring is tight, and a superblock comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::array) struct Stop;

impl Log {
    /// A log that goes on at `begin`; `next` is the number of the first record that it lacks.
    pub(in crate::array) fn new(
        array: u64,
        ring_size: u64,
        (begin, next): (LogStart, u64),
        stamps: Stamps,
        arena: Arena,
    ) -> Self {
        let (first, blocks) = (RING_OFFSET / BLOCK_SIZE, ring_size / BLOCK_SIZE);
        Self {
            group: GroupCommit::default(),
            ring: Ring::new(first, blocks, begin, RECORD_BLOCKS_MAX),
            array,
            arena,
            pending: RefCell::default(),
            copies: RefCell::default(),
            records: Cell::new(0),
            stamps,
            next: Cell::new(next),
        }
    }

    /// How many records were written since the array was opened.
    pub(in crate::array) fn records(&self) -> u64 {
        self.records.get()
    }

    /// How new members are.
    pub(in crate::array) fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    /// The log is there from now on, and is empty: a superblock that says so is durable.
    pub(in crate::array) fn begin_anew(&self, copies: Vec<(Holder, Device)>) {
        let is_alone = copies.len() == 1 || copies.iter().all(|(holder, _)| *holder != Holder::LogDisk);
        assert!(is_alone, "LOGDISK1: the log disk has the log alone");
        assert!((1..=LOG_COPIES).contains(&copies.len()), "ARRAYLOG4: {} copies of the log", copies.len());
        assert!(!self.group.is_under_way(), "ARRAYLOG5: a record is being written");
        self.ring.release();
        self.next.set(self.ring.sequence());
        let end = (self.ring.first() + self.ring.blocks()) * BLOCK_SIZE;
        self.copies.replace(Rc::new(Copies { copies, failed: RefCell::default(), end }));
    }

    /// The holders of the log.
    pub(in crate::array) fn holders(&self) -> Vec<Holder> {
        self.copies.borrow().copies.iter().map(|(holder, _)| *holder).collect()
    }

    /// Whether the log disk has it.
    pub(in crate::array) fn is_on_log_disk(&self) -> bool {
        self.copies.borrow().copies.iter().any(|(holder, _)| *holder == Holder::LogDisk)
    }

    /// The log is about to lie there: its next record has a number that none has that may lie there (LOGDISK2).
    pub(in crate::array) fn prepare(&self, copies: &[(Holder, Device)]) {
        assert!(!self.group.is_under_way(), "LOGDISK2: a record is being written");
        if !copies.iter().map(|(holder, _)| *holder).eq(self.holders()) {
            self.ring.skip_to(self.ring.sequence() + 1); // A record of this number may have failed.
        }
    }

    /// The next record is to say that `region` is changed.
    pub(in crate::array) fn ask(&self, region: u64, writes: bool) {
        *self.pending.borrow_mut().marks.entry(region).or_default() |= writes;
    }

    /// The next record is to hold `data`, which is about to be written at `offset`. The flag says when it is durable.
    pub(in crate::array) fn ask_content(&self, offset: u64, data: Bytes) -> Rc<Cell<bool>> {
        assert!(data.len() as u64 <= self.content_max(), "ARRAYLOG2: {} bytes of content", data.len());
        let is_durable = Rc::new(Cell::new(false));
        let content = PendingContent { offset, data, is_durable: Rc::clone(&is_durable) };
        self.pending.borrow_mut().content.push(content);
        is_durable
    }

    /// The most bytes of content of one record.
    pub(in crate::array) fn content_max(&self) -> u64 {
        (self.ring.record_blocks_max() - 8) / 2 * BLOCK_SIZE
    }

    /// All of what was asked for is forgotten: the tasks that asked ask again.
    pub(in crate::array) fn forget(&self) {
        self.pending.take();
    }

    /// Writes one record with what is pending, led by the caller. Marks what it says in `regions` and `members`. Returns the regions
    /// that are written for the first time.
    pub(in crate::array) async fn commit(
        &self,
        regions: &Regions,
        members: &Members,
        log_disk: &LogDisk,
    ) -> Result<Vec<u64>, Stop> {
        if self.ring.is_tight(1) {
            return Err(Stop); // ARRAYLOG5
        }
        self.group.begin();
        let batch = self.take_batch(regions);
        let failed = self.append(&batch, regions, members).await;
        self.group.end();
        if !failed.is_empty() {
            for holder in failed {
                match holder {
                    Holder::Member(place) => members.leave([place]),
                    Holder::LogDisk => log_disk.leave(),
                }
            }
            return Err(Stop);
        }
        let mut new = Vec::new();
        for (region, writes) in &batch.marks {
            if regions.mark(*region, *writes) {
                new.push(*region); // ARRAYLOG4
            }
            members.miss(*region);
        }
        batch.content.iter().for_each(|flag| flag.set(true));
        Ok(new)
    }

    /// What fits into one record.
    fn take_batch(&self, regions: &Regions) -> Batch {
        let mut pending = self.pending.borrow_mut();
        let blocks_max = self.ring.record_blocks_max();
        let entries_max = STAMP_ENTRIES_MAX.min(((blocks_max - 1) / 2 * (BLOCK_SIZE / 16)) as usize);
        let mut batch = Batch::default();
        while batch.marks.len() < entries_max / 2
            && let Some((region, writes)) = pending.marks.pop_first()
        {
            batch.marks.push((region, writes));
        }
        let of = |writes| {
            batch.marks.iter().filter(move |mark| mark.1 == writes).map(|mark| mark.0).collect::<Vec<_>>()
        };
        batch.changes.extend(runs(&of(true), Change::Write));
        batch.changes.extend(runs(&of(false), Change::Zero));
        let cleans = regions.take_clean(entries_max / 4, self.is_on_log_disk());
        batch.changes.extend(runs(&cleans, Change::Clean));
        let mut bytes = 0;
        let mut rest = std::mem::take(&mut pending.content).into_iter().peekable();
        while let Some(content) = rest.next_if(|next| {
            record_blocks(batch.changes.len() + 1, bytes + next.data.len()) <= blocks_max
                && batch.changes.len() < entries_max
        }) {
            bytes += content.data.len();
            batch.changes.push(Change::Content(content.offset, content.data));
            batch.content.push(content.is_durable);
        }
        pending.content = rest.collect();
        assert!(batch.changes.len() <= entries_max, "ARRAYLOG2: {} entries", batch.changes.len());
        batch
    }

    /// Writes `batch` to all that have the log, and as a stamp to all other members (STAMP1). Returns those that failed.
    async fn append(&self, batch: &Batch, regions: &Regions, members: &Members) -> Vec<Holder> {
        if batch.changes.is_empty() {
            return Vec::new();
        }
        let (holders, is_on_log_disk) = (self.holders(), self.is_on_log_disk());
        if !is_on_log_disk {
            self.stamps.begin(&batch.changes, regions.size());
        }
        let mut others = if is_on_log_disk { Vec::new() } else { members.written() };
        others.retain(|place| !holders.contains(&Holder::Member(*place)));
        let record = self.record(batch.changes.clone());
        let stamped = async {
            if others.is_empty() {
                return Vec::new();
            }
            let stamp = Record { changes: without_content(&batch.changes, regions.size()), ..record.clone() };
            self.stamps.put(&stamp, members, &self.arena, others).await
        };
        let (written, unstamped) = join(self.write(&record), stamped).await;
        let mut failed = written.unwrap_or(holders);
        failed.extend(unstamped.into_iter().map(Holder::Member));
        if failed.is_empty() {
            self.next.set(self.ring.sequence());
            if !is_on_log_disk {
                self.stamps.end();
            }
        }
        failed
    }

    /// The next record, with the newest stamp.
    fn record(&self, changes: Vec<Change>) -> Record {
        Record {
            sequence: self.ring.sequence(),
            array: self.array,
            epoch: self.ring.epoch(),
            stamp: self.stamps.newest(),
            acknowledged: self.stamps.acknowledged(),
            is_behind: false,
            changes,
        }
    }

    /// Writes `record` to all that have the log. Returns those that failed; an error if all did.
    async fn write(&self, record: &Record) -> Result<Vec<Holder>, IoError> {
        let mut bytes = self.arena.take((record.blocks() * BLOCK_SIZE) as usize);
        record.encode(&mut bytes);
        let copies = Rc::clone(&self.copies.borrow());
        let device = Device::from_rc(Rc::clone(&copies) as Rc<dyn BlockDevice>);
        self.ring.append(&device, record.sequence, bytes, Durability::Durable).await?;
        self.records.set(self.records.get() + 1);
        Ok(copies.failed.take())
    }

    /// Writes a stamp to all members that go on, which is of no record; it says that `cleans` are clean. Those that have failed are
    /// written no more. Returns those that fail now; if there are none, [`Stamps::end`] is next.
    pub(in crate::array) async fn stamp(
        &self,
        members: &Members,
        regions: &Regions,
        cleans: &[u64],
    ) -> Vec<usize> {
        assert!(cleans.len() <= STAMP_ENTRIES_MAX, "ARRAYLOG2: {} entries", cleans.len());
        let changes = runs(cleans, Change::Clean);
        self.stamps.begin(&changes, regions.size());
        let record = Record { sequence: self.next.get(), ..self.record(changes) };
        let leaving = members.leaving();
        let places = members.written().into_iter().filter(|place| !leaving.contains(place));
        self.stamps.put(&record, members, &self.arena, places).await
    }
}

/// `changes` as a stamp has them.
fn without_content(changes: &[Change], region_size: u64) -> Vec<Change> {
    let without = |change: &Change| match change {
        Change::Content(..) => {
            let regions = regions_of(change, region_size);
            let count = u32::try_from(regions.end - regions.start).expect("ARRAYLOG2: content is short");
            Change::Write(regions.start, count)
        }
        Change::Write(..) | Change::Zero(..) | Change::Clean(..) => change.clone(),
    };
    changes.iter().map(without).collect()
}

/// What one record says.
#[derive(Default)]
struct Batch {
    changes: Vec<Change>,
    marks: Vec<(u64, bool)>,
    content: Vec<Rc<Cell<bool>>>,
}

/// The ring where it is. A write succeeds if one of the holders took it; those that did not stand in `failed`.
#[derive(Default)]
struct Copies {
    copies: Vec<(Holder, Device)>,
    failed: RefCell<Vec<Holder>>,
    /// The first byte behind the ring.
    end: u64,
}

impl BlockDevice for Copies {
    fn shape(&self) -> Shape {
        Shape::new(self.end, BLOCK_SIZE as u32)
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        let Io::Write { offset, data, durability } = io.into_io() else {
            return Completion::failed(IoError::Unsupported); // The ring is only appended to.
        };
        Completion::pending(async move {
            let write = |(holder, device): &(Holder, Device)| {
                let (holder, device, data) = (*holder, device.clone(), data.clone());
                async move { (holder, device.write(offset, data, durability).await.err()) }
            };
            let outcomes = futures_util::future::join_all(self.copies.iter().map(write)).await;
            let failed: Vec<_> =
                outcomes.iter().filter_map(|(holder, error)| error.map(|error| (*holder, error))).collect();
            match failed.first() {
                Some((_, error)) if failed.len() == self.copies.len() => Err(*error),
                _ => {
                    self.failed.replace(failed.into_iter().map(|(holder, _)| holder).collect());
                    Ok(Buffer::empty())
                }
            }
        })
    }
}
