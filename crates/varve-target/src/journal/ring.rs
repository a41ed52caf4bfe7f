//! The ring of a log: where the records lie that the last durable superblock needs, and where the next one goes.
//!
//! A record is in one piece and in whole blocks: directly behind the one before it, or at the ring's start.
//!
//! Invariants:
//! - LOGRING1. A record never overlaps one that the last durable superblock needs.
//! - LOGRING2. Records are written one after the other, each durable before the next is begun.
//! - LOGRING3. Before two of the longest records might not fit, the ring is tight, and the next commit is a checkpoint.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use varve_block::{Buffer, Device, Durability, IoError, KIB};
use varve_format::epoch::Epoch;

/// Bytes of a block, in which the ring counts.
pub(super) const BLOCK_SIZE: u64 = 4 * KIB;

/// Where a log goes on, as a superblock says.
#[derive(Clone, Copy)]
pub(crate) struct LogStart {
    /// Where the next record is if there is room, in blocks from the ring's start; and its number.
    pub(crate) head: u64,
    pub(crate) sequence: u64,
    /// The superblock's epoch, which the records behind it have, too.
    pub(crate) epoch: Epoch,
}

/// A ring of blocks of a device.
pub(crate) struct Ring {
    /// Its first block, and how many there are.
    first: u64,
    blocks: u64,
    /// The most blocks of a record.
    record_blocks_max: u64,
    epoch: Epoch,
    /// Where the next record is if there is room, counted from `first`; and its number.
    head: Cell<u64>,
    sequence: Cell<u64>,
    /// Records that the last durable superblock needs: where and how long.
    live: RefCell<VecDeque<(u64, u64)>>,
}

impl Ring {
    /// The ring of `blocks` blocks from `first` on. No record has more than `record_blocks_max` blocks.
    pub(crate) fn new(first: u64, blocks: u64, begin: LogStart, record_blocks_max: u64) -> Self {
        let record_blocks_max = (blocks / 4).clamp(1, record_blocks_max);
        let LogStart { head, sequence, epoch } = begin;
        let (head, sequence, live) = (Cell::new(head), Cell::new(sequence), RefCell::default());
        Self { first, blocks, record_blocks_max, epoch, head, sequence, live }
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The epoch of the log.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Where the next record is if there is room.
    pub(crate) fn head(&self) -> u64 {
        self.head.get()
    }

    /// The number of the next record.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.get()
    }

    /// The number of the next record is `sequence` at least.
    pub(crate) fn skip_to(&self, sequence: u64) {
        self.sequence.set(self.sequence.get().max(sequence));
    }

    /// The longest record: two of them, and what a wrap wastes, always fit.
    pub(crate) fn record_blocks_max(&self) -> u64 {
        self.record_blocks_max
    }

    /// Whether more than half of the ring is in use.
    pub(crate) fn is_long(&self) -> bool {
        self.live_blocks() * 2 > self.blocks
    }

    /// LOGRING3: whether there may be no room for `records` records.
    pub(crate) fn is_tight(&self, records: u64) -> bool {
        self.live_blocks() + (records + 1) * self.record_blocks_max > self.blocks
    }

    /// A superblock is durable that needs none of the records.
    pub(crate) fn release(&self) {
        self.live.borrow_mut().clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live.borrow().is_empty()
    }

    /// Writes record `sequence`, the next one, whose bytes are whole blocks. `Corrupt` says that there is no room for it: a
    /// tight ring gets a checkpoint first, so only one that was read from a disk can be so full of holes.
    pub(crate) async fn append(
        &self,
        device: &Device,
        sequence: u64,
        record: Buffer,
        durability: Durability,
    ) -> Result<(), IoError> {
        assert_eq!(sequence, self.sequence.get(), "LOGRING2: one record at a time");
        let blocks = record.len() as u64 / BLOCK_SIZE;
        let Some(start) = self.place(blocks) else {
            tracing::error!(sequence, blocks, "the ring of a log contradicts itself");
            return Err(IoError::Corrupt);
        };
        device.write((self.first + start) * BLOCK_SIZE, record.freeze(), durability).await?;
        self.accept(start, blocks, sequence);
        Ok(())
    }

    /// Record `sequence` is at `start`: it was written just now, or was found there by a replay.
    pub(crate) fn accept(&self, start: u64, blocks: u64, sequence: u64) {
        assert!(sequence >= self.sequence.get(), "LOGRING2: numbers rise");
        self.live.borrow_mut().push_back((start, blocks));
        self.head.set(start + blocks);
        self.sequence.set(sequence + 1);
        self.assert_consistent();
    }

    /// The next record goes behind the last one, inside the ring.
    fn assert_consistent(&self) {
        let live = self.live.borrow();
        assert!(self.head.get() <= self.blocks, "LOGRING1: the head lies in the ring or at its end");
        let ends = |(start, blocks): &(u64, u64)| start + blocks;
        assert!(live.back().is_none_or(|last| ends(last) == self.head.get()), "LOGRING2: in their order");
    }

    fn live_blocks(&self) -> u64 {
        self.live.borrow().iter().map(|(_, length)| length).sum()
    }

    /// Where a record of `blocks` blocks goes (LOGRING1).
    fn place(&self, blocks: u64) -> Option<u64> {
        assert!((1..=self.record_blocks_max).contains(&blocks), "LOGRING3: a record of {blocks} blocks");
        let live = self.live.borrow();
        [self.head.get(), 0].into_iter().find(|start| {
            let end = start + blocks;
            end <= self.blocks && !live.iter().any(|(other, length)| *other < end && *start < other + length)
        })
    }
}
