//! The oracle: a plain model of a volume that knows, for every sector, which contents may be read.
//!
//! It is notified when writes and flushes start and end, and asked whether what was read is allowed. It never touches a
//! device; [`crate::Client`] does both.

mod block;
mod past;
#[cfg(test)]
mod tests;

use crate::SECTOR_SIZE;
use crate::pattern::{Found, Stamp, identify, patterned};
use block::{Block, End};
use past::Past;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use varve_block::{Arena, Bytes, Durability, Extent};

/// The model of one volume. Cheap to copy: a snapshot is a copy.
pub struct Oracle {
    volume: u16,
    blocks: Vec<Block>,
    /// What each block has ever held (ORACLE4).
    pasts: Vec<Past>,
    /// The blocks that are not settled.
    open: BTreeSet<usize>,
    versions: u64,
    /// Shared among the volumes of a family, so that their times can be compared.
    ticks: Rc<Cell<u64>>,
    /// Starts of the reads under way.
    reads: BTreeSet<u64>,
}

/// A write, zero or discard that has started.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct WriteToken {
    /// The bytes that it touches.
    pub extent: Extent,
    /// What it writes.
    pub stamp: Stamp,
    started: u64,
}

/// A flush that has started.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct FlushToken {
    started: u64,
}

/// A read that has started.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct ReadToken {
    started: u64,
}

/// A rollback that has started.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct RollbackToken {
    sectors: usize,
    started: u64,
}

/// Something was read that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The volume.
    pub volume: u16,
    /// The first byte of the sector.
    pub offset: u64,
    /// What was read.
    pub found: Found,
    /// What may be read now.
    pub allowed: Vec<Stamp>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { volume, offset, found, allowed } = self;
        write!(f, "volume {volume}, byte {offset:#x} (sector {}): ", offset / SECTOR_SIZE as u64)?;
        match found {
            Found::Garbage => f.write_str("read garbage")?,
            Found::Pattern { stamp: Stamp::ZEROS, .. } => f.write_str("read zeros")?,
            Found::Pattern { stamp, sector } if sector * SECTOR_SIZE as u64 != *offset => {
                write!(f, "read {stamp:?} of sector {sector}")?;
            }
            Found::Pattern { stamp, .. } => write!(f, "read {stamp:?}")?,
        }
        write!(f, ", allowed: {allowed:?}")
    }
}

impl std::error::Error for Mismatch {}

impl Oracle {
    /// A volume of `size` bytes, all zeros, durably. `volume` is part of everything that is written to it.
    pub fn new(volume: u16, size: u64) -> Self {
        let count = index(size / SECTOR_SIZE as u64);
        assert!(size.is_multiple_of(SECTOR_SIZE as u64), "a volume is made of sectors");
        Self {
            volume,
            blocks: vec![Block::Settled(Stamp::ZEROS); count],
            pasts: vec![Past::default(); count],
            open: BTreeSet::new(),
            versions: 0,
            ticks: Rc::new(Cell::new(1)),
            reads: BTreeSet::new(),
        }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        (self.blocks.len() * SECTOR_SIZE) as u64
    }

    /// A write of a new version starts; [`Oracle::data`] is what it writes.
    pub fn write_started(&mut self, extent: Extent) -> WriteToken {
        self.versions += 1;
        self.start(extent, Stamp::new(self.volume, self.versions))
    }

    /// Zeros are about to be written.
    pub fn zero_started(&mut self, extent: Extent) -> WriteToken {
        self.start(extent, Stamp::ZEROS)
    }

    /// The content is about to be freed: it may then read as zeros, or as anything that this volume has had there.
    pub fn discard_started(&mut self, extent: Extent) -> WriteToken {
        self.start(extent, Stamp::ANYTHING)
    }

    /// What `write` writes.
    pub fn data(arena: &Arena, write: &WriteToken) -> Bytes {
        patterned(arena, write.extent, write.stamp)
    }

    /// A write, zero or discard was acknowledged.
    pub fn write_finished(&mut self, write: WriteToken, durability: Durability) {
        let end = match durability {
            Durability::Volatile => End::Volatile,
            Durability::Durable => End::Durable,
        };
        self.finish(write, end);
    }

    /// A write, zero or discard failed: it may have happened, all or in part.
    pub fn write_failed(&mut self, write: WriteToken) {
        self.finish(write, End::Failed);
    }

    /// A flush starts.
    pub fn flush_started(&mut self) -> FlushToken {
        FlushToken { started: self.tick() }
    }

    /// A flush failed: no earlier write that is not durable by now need ever be, and reads may go back behind it.
    pub fn flush_failed(&mut self) {
        for index in &self.open {
            self.blocks[*index].flush_failed();
        }
    }

    /// A flush was acknowledged.
    pub fn flush_finished(&mut self, flush: FlushToken) {
        let oldest_read = self.oldest_read();
        let blocks = &mut self.blocks;
        self.open.retain(|index| {
            blocks[*index].flushed(flush.started, oldest_read);
            !blocks[*index].is_settled()
        });
    }

    /// A read starts; it is to end with [`Oracle::check_read`] or [`Oracle::read_failed`].
    pub fn read_started(&mut self) -> ReadToken {
        let started = self.tick();
        self.reads.insert(started);
        ReadToken { started }
    }

    /// Checks what a read returned, and remembers what it saw.
    pub fn check_read(&mut self, read: ReadToken, offset: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        self.reads.remove(&read.started);
        let oldest_read = self.oldest_read();
        let extent = Extent::new(offset, bytes.len() as u64);
        for (sector, bytes) in self.sectors(extent).zip(bytes.chunks(SECTOR_SIZE)) {
            let found = identify(bytes);
            let stamp = match found {
                Found::Pattern { stamp: Stamp::ZEROS, .. } => Some(Stamp::ZEROS),
                Found::Pattern { stamp, sector: place } => (place == sector as u64).then_some(stamp),
                Found::Garbage => None,
            };
            let block = &mut self.blocks[sector];
            let allowed =
                stamp.is_some_and(|stamp| block.see(stamp, &self.pasts[sector], read.started, oldest_read));
            if !allowed {
                return Err(self.mismatch(sector, found));
            }
            if self.blocks[sector].is_settled() {
                self.open.remove(&sector);
            }
        }
        Ok(())
    }

    /// A read failed.
    pub fn read_failed(&mut self, read: ReadToken) {
        self.reads.remove(&read.started);
    }

    /// Checks what was read while nothing else was under way.
    pub fn check(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let read = self.read_started();
        self.check_read(read, offset, bytes)
    }

    /// The power failed: everything under way is over, and what was not flushed may be lost, sector by sector.
    /// What is then read for the first time is what was left.
    pub fn crashed(&mut self) {
        self.reads.clear();
        for index in std::mem::take(&mut self.open) {
            self.blocks[index].crash();
            self.remember(index);
        }
    }

    /// The process ended, but the disks kept their power: what was acknowledged is there; what was under way may
    /// have happened.
    pub fn killed(&mut self) {
        self.reads.clear();
        self.cut_short();
    }

    /// A copy of the volume as it is now, as volume `volume`: what a snapshot taken at once holds. Writes under way
    /// may be in it or not.
    pub fn snapshot(&self, volume: u16) -> Oracle {
        let mut copy = Oracle {
            volume,
            blocks: self.blocks.clone(),
            pasts: self.pasts.clone(),
            open: self.open.clone(),
            versions: 0,
            ticks: Rc::clone(&self.ticks),
            reads: BTreeSet::new(),
        };
        copy.cut_short();
        copy
    }

    /// The volume becomes what `other`, of its family, is now: a rollback. Writes to this volume that are under way have
    /// not happened yet, and go on.
    pub fn restore(&mut self, other: &Oracle) {
        assert!(Rc::ptr_eq(&self.ticks, &other.ticks), "a volume is rolled back to one of its own family");
        let blocks = std::mem::replace(&mut self.blocks, other.blocks.clone());
        self.pasts.clone_from(&other.pasts);
        let open = std::mem::replace(&mut self.open, other.open.clone());
        self.cut_short();
        let count = self.blocks.len();
        for index in open.into_iter().filter(|index| *index < count) {
            for (stamp, started) in blocks[index].under_way() {
                self.blocks[index].start(stamp, started);
                self.pasts[index].add(stamp);
                self.open.insert(index);
            }
        }
    }

    /// A rollback to `other`, of its family, starts, while the volume is in use: at one instant until it ends all of
    /// `other` is written, as it is now, and zeros behind its end. Where it is not known what a sector of that holds, it
    /// may be anything that either has had there.
    pub fn rollback_started(&mut self, other: &Oracle) -> RollbackToken {
        assert!(Rc::ptr_eq(&self.ticks, &other.ticks), "a volume is rolled back to one of its own family");
        let started = self.tick();
        for (index, block) in other.blocks.iter().enumerate().take(self.blocks.len()) {
            let stamps = block.stamps();
            if stamps.contains(&Stamp::ANYTHING) {
                self.pasts[index].absorb(&other.pasts[index]);
            }
            stamps.into_iter().for_each(|stamp| self.pasts[index].add(stamp));
            self.blocks[index].start(block.settled().unwrap_or(Stamp::ANYTHING), started);
            self.open.insert(index);
        }
        for index in other.blocks.len()..self.blocks.len() {
            self.blocks[index].start(Stamp::ZEROS, started);
            self.pasts[index].add(Stamp::ZEROS);
            self.open.insert(index);
        }
        RollbackToken { sectors: self.blocks.len(), started }
    }

    /// The rollback is done, durably.
    pub fn rollback_finished(&mut self, rollback: RollbackToken) {
        let whole = Extent::new(0, (rollback.sectors * SECTOR_SIZE) as u64);
        self.finish(
            WriteToken { extent: whole, stamp: Stamp::ANYTHING, started: rollback.started },
            End::Durable,
        );
    }

    /// The rollback has not happened, and will not.
    pub fn rollback_undone(&mut self, rollback: RollbackToken) {
        for index in 0..rollback.sectors {
            self.blocks[index].undo(rollback.started);
            self.remember(index);
        }
    }

    /// A copy of this model, to follow two pasts until it is known which of them has happened.
    pub fn fork(&self) -> Oracle {
        Oracle {
            volume: self.volume,
            blocks: self.blocks.clone(),
            pasts: self.pasts.clone(),
            open: self.open.clone(),
            versions: self.versions,
            ticks: Rc::clone(&self.ticks),
            reads: BTreeSet::new(),
        }
    }

    /// The volume grows to `size` bytes; the new ones read as zeros.
    pub fn grow(&mut self, size: u64) {
        assert!(size >= self.size() && size.is_multiple_of(SECTOR_SIZE as u64));
        let count = index(size / SECTOR_SIZE as u64);
        self.blocks.resize(count, Block::Settled(Stamp::ZEROS));
        self.pasts.resize(count, Past::default());
    }

    /// The volume is cut to `size` bytes. What is under way behind them is not followed further.
    pub fn cut(&mut self, size: u64) {
        assert!(size <= self.size() && size.is_multiple_of(SECTOR_SIZE as u64));
        let count = index(size / SECTOR_SIZE as u64);
        self.blocks.truncate(count);
        self.pasts.truncate(count);
        self.open.retain(|index| *index < count);
    }

    /// What a read of the sector at byte `offset` may return now.
    pub fn allowed(&self, offset: u64) -> Vec<Stamp> {
        self.blocks[index(offset / SECTOR_SIZE as u64)].readable_now(self.ticks.get() + 1)
    }

    fn start(&mut self, extent: Extent, stamp: Stamp) -> WriteToken {
        let started = self.tick();
        for index in self.sectors(extent) {
            self.blocks[index].start(stamp, started);
            self.pasts[index].add(stamp);
            self.open.insert(index);
        }
        WriteToken { extent, stamp, started }
    }

    fn finish(&mut self, write: WriteToken, end: End) {
        let (now, oldest_read) = (self.tick(), self.oldest_read());
        for index in self.sectors(write.extent) {
            self.blocks[index].finish(write.started, now, end, oldest_read);
            self.remember(index);
        }
    }

    fn cut_short(&mut self) {
        let now = self.tick();
        for index in std::mem::take(&mut self.open) {
            self.blocks[index].cut_short(now);
            self.remember(index);
        }
    }

    /// The sectors of `extent` that the volume has, which may have been cut meanwhile.
    fn sectors(&self, extent: Extent) -> std::ops::Range<usize> {
        let (all, count) = (sectors(extent), self.blocks.len());
        all.start.min(count)..all.end.min(count)
    }

    fn remember(&mut self, index: usize) {
        if self.blocks[index].is_settled() {
            self.open.remove(&index);
        } else {
            self.open.insert(index);
        }
    }

    fn mismatch(&self, sector: usize, found: Found) -> Mismatch {
        let offset = (sector * SECTOR_SIZE) as u64;
        Mismatch { volume: self.volume, offset, found, allowed: self.allowed(offset) }
    }

    fn oldest_read(&self) -> u64 {
        self.reads.first().copied().unwrap_or(u64::MAX)
    }

    fn tick(&self) -> u64 {
        let now = self.ticks.get() + 1;
        self.ticks.set(now);
        now
    }
}

fn sectors(extent: Extent) -> std::ops::Range<usize> {
    let unit = SECTOR_SIZE as u64;
    assert!(extent.is_aligned(unit), "the oracle knows whole sectors, not {extent:?}");
    index(extent.offset / unit)..index(extent.end() / unit)
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a volume of a model fits in memory")
}
