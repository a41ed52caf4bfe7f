//! The log of an array: what has to be durable before members are written, and what no longer is dirty.
//!
//! It stands on the house's journal: commits are shared, records lie in a ring, and a superblock begins it anew. The ring lies
//! on two members, or on a log disk. A record that only one of two took counts as written once it is durable that the other one is away.
//!
//! Invariants:
//! - ARRAYLOG4. A region is marked in memory when a record that says so is durable on all that have the log and are not away.
//! - ARRAYLOG5. The ring never forgets: when it is tight the commit does not begin, and a superblock is written first.

use super::log_disk::LogDisk;
use super::members::Members;
use super::regions::{Regions, runs};
use crate::journal::{GroupCommit, LogStart, Ring};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{
    Arena, BlockDevice, Buffer, Bytes, Checked, Completion, Device, Durability, Io, IoError, Shape,
};
use varve_format::array::{BLOCK_SIZE, Change, RECORD_BLOCKS_MAX, RING_OFFSET, Record, record_blocks};

/// The most entries of a record.
const ENTRIES_MAX: usize = 1000;
/// Members that have the log at most.
pub(super) const LOG_COPIES: usize = 2;

/// The log.
pub(super) struct Log {
    pub(super) group: GroupCommit,
    pub(super) ring: Ring,
    array: u64,
    arena: Arena,
    pending: RefCell<Pending>,
    copies: RefCell<Rc<Copies>>,
    records: Cell<u64>,
}

/// A holder of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
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
pub(super) struct Stop;

impl Log {
    pub(super) fn new(array: u64, ring_size: u64, begin: LogStart, arena: Arena) -> Self {
        let (first, blocks) = (RING_OFFSET / BLOCK_SIZE, ring_size / BLOCK_SIZE);
        Self {
            group: GroupCommit::default(),
            ring: Ring::new(first, blocks, begin, RECORD_BLOCKS_MAX),
            array,
            arena,
            pending: RefCell::default(),
            copies: RefCell::default(),
            records: Cell::new(0),
        }
    }

    /// How many records were written since the array was opened.
    pub(super) fn records(&self) -> u64 {
        self.records.get()
    }

    /// The log lies there from now on, and is empty: a superblock that says so is durable.
    pub(super) fn begin_anew(&self, copies: Vec<(Holder, Device)>) {
        let is_alone = copies.len() == 1 || copies.iter().all(|(holder, _)| *holder != Holder::LogDisk);
        assert!(is_alone, "LOGDISK1: the log disk has the log alone");
        assert!((1..=LOG_COPIES).contains(&copies.len()), "ARRAYLOG4: {} copies of the log", copies.len());
        assert!(!self.group.is_under_way(), "ARRAYLOG5: a record is being written");
        self.ring.release();
        let end = (self.ring.first() + self.ring.blocks()) * BLOCK_SIZE;
        self.copies.replace(Rc::new(Copies { copies, failed: RefCell::default(), end }));
    }

    /// The holders of the log.
    pub(super) fn holders(&self) -> Vec<Holder> {
        self.copies.borrow().copies.iter().map(|(holder, _)| *holder).collect()
    }

    /// Whether the log disk has it.
    pub(super) fn is_on_log_disk(&self) -> bool {
        self.copies.borrow().copies.iter().any(|(holder, _)| *holder == Holder::LogDisk)
    }

    /// The log is about to lie there: its next record has a number that none has that may lie there (LOGDISK2).
    pub(super) fn prepare(&self, copies: &[(Holder, Device)]) {
        assert!(!self.group.is_under_way(), "LOGDISK2: a record is being written");
        if !copies.iter().map(|(holder, _)| *holder).eq(self.holders()) {
            self.ring.skip_to(self.ring.sequence() + 1); // A record of this number may have failed.
        }
    }

    /// The next record is to say that `region` is changed.
    pub(super) fn ask(&self, region: u64, writes: bool) {
        *self.pending.borrow_mut().marks.entry(region).or_default() |= writes;
    }

    /// The next record is to hold `data`, which is about to be written at `offset`. The flag says when it is durable.
    pub(super) fn ask_content(&self, offset: u64, data: Bytes) -> Rc<Cell<bool>> {
        assert!(data.len() as u64 <= self.content_max(), "ARRAYLOG2: {} bytes of content", data.len());
        let is_durable = Rc::new(Cell::new(false));
        let content = PendingContent { offset, data, is_durable: Rc::clone(&is_durable) };
        self.pending.borrow_mut().content.push(content);
        is_durable
    }

    /// The most bytes of content of one record.
    pub(super) fn content_max(&self) -> u64 {
        (self.ring.record_blocks_max() - 8) / 2 * BLOCK_SIZE
    }

    /// All of what was asked for is forgotten: the tasks that asked ask again.
    pub(super) fn forget(&self) {
        self.pending.take();
    }

    /// Writes one record with what is pending, led by the caller. Marks what it says in `regions` and `members`. Returns the regions
    /// that are written for the first time.
    pub(super) async fn commit(
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
        let outcome = self.append(&batch.changes).await;
        self.group.end();
        let failed = outcome.unwrap_or_else(|_| self.holders());
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
        let entries_max = ENTRIES_MAX.min(((blocks_max - 1) / 2 * (BLOCK_SIZE / 16)) as usize);
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
        batch.changes.extend(runs(&regions.take_clean(entries_max / 4), Change::Clean));
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

    /// Writes `changes` to all that have the log. Returns those that failed; an error if all did.
    async fn append(&self, changes: &[Change]) -> Result<Vec<Holder>, IoError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let sequence = self.ring.sequence();
        let record =
            Record { sequence, array: self.array, epoch: self.ring.epoch(), changes: changes.to_vec() };
        let mut bytes = self.arena.take((record.blocks() * BLOCK_SIZE) as usize);
        record.encode(&mut bytes);
        let copies = Rc::clone(&self.copies.borrow());
        let device = Device::from_rc(Rc::clone(&copies) as Rc<dyn BlockDevice>);
        self.ring.append(&device, sequence, bytes, Durability::Durable).await?;
        self.records.set(self.records.get() + 1);
        Ok(copies.failed.take())
    }
}

/// What one record says.
#[derive(Default)]
struct Batch {
    changes: Vec<Change>,
    marks: Vec<(u64, bool)>,
    content: Vec<Rc<Cell<bool>>>,
}

/// The ring where it lies. A write succeeds if one of the holders took it; those that did not stand in `failed`.
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
