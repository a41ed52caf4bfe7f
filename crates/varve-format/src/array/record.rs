//! A record of an array's log: which regions are about to be written, which are clean again, and while a data member is
//! missing what is written.
//!
//! Records lie in a ring, each in whole blocks and in one piece: directly behind the one before it, or at the ring's start. The
//! next record has the next number; where there is none with that number, the log ends. A stamp is a record without content, outside
//! of the ring: it says how new a member is. The byte tables are [`RECORD_LAYOUT`]
//! and [`ENTRY_LAYOUT`].
//!
//! Invariants:
//! - ARRAYLOG1. The checksum covers all blocks of the record, with its number and the array's id.
//! - ARRAYLOG2. A record has at most [`RECORD_BLOCKS_MAX`] blocks, a stamp one; in a ring it has at least one entry.
//! - ARRAYLOG3. Content begins in the block behind the last entry, in the order of the entries, whole blocks each.

use super::{ArrayFormatError, BLOCK_SIZE, NUMBER_MAX, SLOT_SIZE, checksum_without, require};
use crate::epoch::{Epoch, EpochFields};
use crate::layout::{Field, Layout};
use varve_block::{Arena, Bytes, Extent, is_zero};

const SIZE: usize = BLOCK_SIZE as usize;
const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"VARR");

const MAGIC: Field = Field::new(0, 4, "magic", "`VARR`");
const CHECKSUM: Field = Field::new(4, 4, "checksum", "CRC32C of the whole record with this field zero");
const SEQUENCE: Field =
    Field::new(8, 8, "sequence", "number of this record; in a stamp, of the first one that the log may lack");
const ARRAY: Field = Field::new(16, 8, "array", "first half of the array's id");
const BLOCKS: Field = Field::new(24, 4, "blocks", "number of blocks of 4 KiB");
const COUNT: Field = Field::new(28, 4, "count", "number of entries");
const EPOCH: EpochFields = EpochFields::followed(32);
const STAMP: Field = Field::new(48, 8, "stamp", "number of the newest stamp");
const UNACKNOWLEDGED: Field = Field::new(
    56,
    4,
    "unacknowledged",
    "number of stamps up to the newest that not all members are known to have",
);
const BEHIND: Field = Field::new(
    60,
    4,
    "behind",
    "1 if others count in dirty regions: this member lacked the newest stamp at an opening; else 0",
);
const ENTRIES: Field = Field::new(
    64,
    4032,
    "entries",
    "`count` entries of 16 bytes, zeros to the end of the block, then the content of those that have some",
);

/// The byte table of a record.
pub const RECORD_LAYOUT: Layout = Layout::new(
    "Array: record of the log",
    "What is about to be written. In the ring behind the superblocks of two members.",
    SIZE,
    &[
        MAGIC,
        CHECKSUM,
        SEQUENCE,
        ARRAY,
        BLOCKS,
        COUNT,
        EPOCH.generation,
        EPOCH.revision,
        STAMP,
        UNACKNOWLEDGED,
        BEHIND,
        ENTRIES,
    ],
);

const KIND: Field = Field::new(
    0,
    4,
    "kind",
    "1 regions are written, 2 regions are zeroed or discarded, 3 regions are clean, 4 bytes are written, which follow",
);
const LENGTH: Field = Field::new(4, 4, "length", "number of regions; bytes (4)");
const START: Field = Field::new(8, 8, "start", "first region; first byte of the array (4)");

/// The byte table of an entry.
pub const ENTRY_LAYOUT: Layout =
    Layout::new("Array: entry of a record", "One run of regions, or of bytes.", 16, &[KIND, LENGTH, START]);

/// The most blocks that a record has.
pub const RECORD_BLOCKS_MAX: u64 = 64;
/// The most entries of a record that is a stamp.
pub const STAMP_ENTRIES_MAX: usize = ENTRIES.size / ENTRY_LAYOUT.size;

/// One change of what the log knows. Runs of regions are `(first, number)`.
#[derive(Clone, Debug)]
pub enum Change {
    /// These regions are written from now on.
    Write(u64, u32),
    /// These regions are zeroed or discarded in part from now on.
    Zero(u64, u32),
    /// All members have the same there, durably.
    Clean(u64, u32),
    /// These bytes are written from this byte on.
    Content(u64, Bytes),
}

impl PartialEq for Change {
    fn eq(&self, other: &Self) -> bool {
        fields(self) == fields(other) && content(self) == content(other)
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its number.
    pub sequence: u64,
    /// First half of the array's id.
    pub array: u64,
    /// Term of the host that wrote it; that of the superblock that it follows.
    pub epoch: Epoch,
    /// Number of the newest stamp, which it is on a member that has it.
    pub stamp: u64,
    /// The newest stamp that all members are known to have.
    pub acknowledged: u64,
    /// As [`MemberEntry::is_behind`](super::MemberEntry) of the member that has the stamp.
    pub is_behind: bool,
    /// What it says.
    pub changes: Vec<Change>,
}

/// Blocks of a record with so many entries and so many bytes of content, a multiple of 4 KiB.
pub const fn record_blocks(entries: usize, content: usize) -> u64 {
    ((ENTRIES.offset + entries * ENTRY_LAYOUT.size).div_ceil(SIZE) + content / SIZE) as u64
}

impl Record {
    /// Blocks that the record needs.
    pub fn blocks(&self) -> u64 {
        record_blocks(self.changes.len(), self.changes.iter().map(|change| content(change).len()).sum())
    }

    /// Writes the record into `bytes`, which is as long as its blocks.
    pub fn encode(&self, bytes: &mut [u8]) {
        let blocks = self.blocks();
        assert!((1..=RECORD_BLOCKS_MAX).contains(&blocks), "ARRAYLOG2");
        assert!(self.sequence.max(self.stamp) <= NUMBER_MAX, "ARRAY5: {}", self.sequence);
        assert_eq!(bytes.len() as u64, blocks * BLOCK_SIZE);
        bytes.fill(0);
        MAGIC.put_u32(bytes, MAGIC_VALUE);
        SEQUENCE.put_u64(bytes, self.sequence);
        ARRAY.put_u64(bytes, self.array);
        EPOCH.put(bytes, self.epoch);
        STAMP.put_u64(bytes, self.stamp);
        let unacknowledged = self.stamp.checked_sub(self.acknowledged).expect("ARRAY6: stamps rise");
        UNACKNOWLEDGED.put_u32(bytes, u32::try_from(unacknowledged).unwrap_or(u32::MAX));
        BEHIND.put_u32(bytes, u32::from(self.is_behind));
        BLOCKS.put_u32(bytes, u32::try_from(blocks).expect("ARRAYLOG2: a record has few blocks"));
        COUNT.put_u32(bytes, u32::try_from(self.changes.len()).expect("ARRAYLOG2: a record has few blocks"));
        for (change, entry) in self.changes.iter().zip(bytes[ENTRIES.offset..].chunks_mut(ENTRY_LAYOUT.size))
        {
            let (kind, length, start) = fields(change);
            KIND.put_u32(entry, kind);
            LENGTH.put_u32(entry, length);
            START.put_u64(entry, start);
        }
        let mut at = entries_end(self.changes.len());
        for content in self.changes.iter().map(content) {
            assert!(content.len().is_multiple_of(SIZE), "ARRAYLOG3: whole blocks");
            bytes[at..at + content.len()].copy_from_slice(content);
            at += content.len();
        }
        let checksum = checksum_without(bytes, CHECKSUM);
        CHECKSUM.put_u32(bytes, checksum);
    }

    /// The number and the blocks of the record whose first block is `block`, if it may be one of `array`.
    pub fn claims(block: &[u8], array: u64) -> Option<(u64, u64)> {
        let blocks = u64::from(BLOCKS.u32(block));
        let is_ours = MAGIC.u32(block) == MAGIC_VALUE && ARRAY.u64(block) == array;
        let is_one =
            is_ours && (1..=RECORD_BLOCKS_MAX).contains(&blocks) && SEQUENCE.u64(block) <= NUMBER_MAX;
        is_one.then(|| (SEQUENCE.u64(block), blocks))
    }

    /// First byte of stamp `stamp` on a member (ARRAY6).
    pub const fn stamp_offset(stamp: u64) -> u64 {
        stamp % 2 * SLOT_SIZE + SLOT_SIZE - BLOCK_SIZE
    }

    /// The record in `bytes`, all of its blocks.
    pub fn decode(bytes: &[u8]) -> Result<Record, ArrayFormatError> {
        if MAGIC.u32(bytes) != MAGIC_VALUE || CHECKSUM.u32(bytes) != checksum_without(bytes, CHECKSUM) {
            return Err(ArrayFormatError::Checksum);
        }
        let (blocks, count) = (u64::from(BLOCKS.u32(bytes)), COUNT.u32(bytes) as usize);
        require(blocks * BLOCK_SIZE == bytes.len() as u64, "ARRAYLOG2: the number of blocks")?;
        let number = SEQUENCE.u64(bytes).max(STAMP.u64(bytes));
        require(number <= NUMBER_MAX, "ARRAY5: the number of the record")?;
        let acknowledged = STAMP.u64(bytes).checked_sub(u64::from(UNACKNOWLEDGED.u32(bytes)));
        let acknowledged = acknowledged.ok_or(ArrayFormatError::Invalid("ARRAY6: the stamp"))?;
        require(BEHIND.u32(bytes) <= 1, "ARRAYLOG2: whether a member is behind")?;
        require(entries_end(count) <= bytes.len(), "ARRAYLOG2: the number of entries")?;
        let (mut changes, mut at) = (Vec::with_capacity(count), entries_end(count));
        for entry in bytes[ENTRIES.offset..].chunks(ENTRY_LAYOUT.size).take(count) {
            changes.push(change_of(entry, bytes, &mut at)?);
        }
        require(at == bytes.len(), "ARRAYLOG3: the content")?;
        let padding = &bytes[ENTRIES.offset + count * ENTRY_LAYOUT.size..entries_end(count)];
        require(is_zero(padding), "bytes behind the entries are not zero")?;
        Ok(Record {
            sequence: SEQUENCE.u64(bytes),
            array: ARRAY.u64(bytes),
            epoch: EPOCH.get(bytes),
            stamp: STAMP.u64(bytes),
            acknowledged,
            is_behind: BEHIND.u32(bytes) == 1,
            changes,
        })
    }
}

/// The first byte behind the blocks with `count` entries.
fn entries_end(count: usize) -> usize {
    (ENTRIES.offset + count * ENTRY_LAYOUT.size).next_multiple_of(SIZE)
}

/// Kind, length and start.
fn fields(change: &Change) -> (u32, u32, u64) {
    match change {
        Change::Write(first, count) => (1, *count, *first),
        Change::Zero(first, count) => (2, *count, *first),
        Change::Clean(first, count) => (3, *count, *first),
        Change::Content(start, bytes) => {
            (4, u32::try_from(bytes.len()).expect("ARRAYLOG2: a record has few blocks"), *start)
        }
    }
}

fn content(change: &Change) -> &[u8] {
    match change {
        Change::Content(_, bytes) => bytes,
        Change::Write(..) | Change::Zero(..) | Change::Clean(..) => &[],
    }
}

/// The change in `entry`; its content, if it has some, begins at `at` of the record.
fn change_of(entry: &[u8], record: &[u8], at: &mut usize) -> Result<Change, ArrayFormatError> {
    let (length, start) = (LENGTH.u32(entry), START.u64(entry));
    let is_run = Extent::checked(start, u64::from(length)).is_some() && length > 0;
    require(is_run, "ARRAYLOG2: an entry of nothing")?;
    match KIND.u32(entry) {
        1 => Ok(Change::Write(start, length)),
        2 => Ok(Change::Zero(start, length)),
        3 => Ok(Change::Clean(start, length)),
        4 => {
            let length = length as usize;
            let is_there = length.is_multiple_of(SIZE) && record.len() - *at >= length;
            require(is_there, "ARRAYLOG3: the content")?;
            let content = Arena::heap(length).copy(&record[*at..*at + length]);
            *at += length;
            Ok(Change::Content(start, content))
        }
        _ => Err(ArrayFormatError::Invalid("an entry of no kind that is known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(arena: &Arena) -> Record {
        let content = arena.copy(&[0x5a; 2 * SIZE]);
        let changes = vec![
            Change::Write(5, 2),
            Change::Content(8192, content),
            Change::Zero(9, 1),
            Change::Clean(1, 3),
        ];
        let epoch = Epoch { generation: 4, revision: 5 };
        Record { sequence: 3, array: 0x0102, epoch, stamp: 6, acknowledged: 4, is_behind: true, changes }
    }

    fn bytes(record: &Record, arena: &Arena) -> Bytes {
        let mut bytes = arena.take(record.blocks() as usize * SIZE);
        record.encode(&mut bytes);
        bytes.freeze()
    }

    #[test]
    fn golden_bytes_and_round_trip() {
        let arena = Arena::heap(1 << 20);
        let block = bytes(&sample(&arena), &arena);
        assert_eq!((&block[..4], block.len()), (&b"VARR"[..], 3 * SIZE));
        assert_eq!((block[8], block[16], block[24], block[28], block[32]), (3, 2, 3, 4, 4));
        assert_eq!((block[40], block[48], block[56], block[60]), (5, 6, 2, 1));
        assert_eq!((block[64], block[68], block[72], block[80], block[SIZE]), (1, 2, 5, 4, 0x5a));
        assert_eq!(Record::claims(&block, 0x0102), Some((3, 3)));
        assert_eq!(Record::claims(&block, 0x0103), None);
        assert_eq!(Record::decode(&block), Ok(sample(&arena)));
        let stamp = Record { changes: Vec::new(), ..sample(&arena) };
        assert_eq!((Record::decode(&bytes(&stamp, &arena)), stamp.blocks()), (Ok(stamp), 1), "ARRAYLOG2");
        assert_eq!((Record::stamp_offset(4), Record::stamp_offset(5)), (0xf000, 0x1f000), "ARRAY6");
    }

    #[test]
    fn every_single_bit_of_damage_is_refused() {
        let arena = Arena::heap(1 << 20);
        let record = Record { changes: vec![Change::Write(1, 1), Change::Clean(2, 1)], ..sample(&arena) };
        let block = bytes(&record, &arena);
        for bit in 0..block.len() * 8 {
            let mut damaged = block.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&damaged).is_err(), "ARRAYLOG1: bit {bit}");
        }
    }

    #[test]
    fn content_that_is_not_there_is_refused() {
        let arena = Arena::heap(1 << 20);
        let mut block = bytes(&sample(&arena), &arena).to_vec();
        let length = ENTRIES.offset + ENTRY_LAYOUT.size + LENGTH.offset;
        block[length..length + 4].copy_from_slice(&(3 * SIZE as u32).to_le_bytes());
        let checksum = checksum_without(&block, CHECKSUM);
        CHECKSUM.put_u32(&mut block, checksum);
        let refused = Some(ArrayFormatError::Invalid("ARRAYLOG3: the content"));
        assert_eq!(Record::decode(&block).err(), refused);
    }
}
