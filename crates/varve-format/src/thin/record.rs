//! A record of a pool's log: what has changed since the record before, in order, durable all at once.
//!
//! Records lie in a ring, each in whole blocks and in one piece: directly behind the one before it, or at the ring's
//! start. The next record has the next number; where there is none with that number, the log ends. Then none with a
//! higher number is anywhere in the ring: a record is begun only when the one before it is durable. Where one does,
//! the log is damaged. The byte tables are [`RECORD_LAYOUT`] and [`ENTRY_LAYOUT`].
//!
//! Invariants:
//! - RECORD1. The checksum covers all blocks of the record, with its number and the pool's id.
//! - RECORD2. A record has at least one entry and at most [`RECORD_BLOCKS_MAX`] blocks.
//! - RECORD3. No record has a number above [`NUMBER_MAX`].

use super::{NUMBER_MAX, ORIGIN_LAYOUT, Origin, PoolFormatError, SIZE, checksum_without, require};
use crate::epoch::{Epoch, EpochFields};
use crate::layout::{Field, Layout};
use crate::pdata::Block;
use varve_block::is_zero;

const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"VREC");

const MAGIC: Field = Field::new(0, 4, "magic", "`VREC`");
const CHECKSUM: Field = Field::new(4, 4, "checksum", "CRC32C of the whole record with this field zero");
const SEQUENCE: Field = Field::new(8, 8, "sequence", "number of this record");
const POOL: Field = Field::new(16, 8, "pool", "first half of the pool's id");
const BLOCKS: Field = Field::new(24, 4, "blocks", "number of blocks of 4 KiB");
const COUNT: Field = Field::new(28, 4, "count", "number of entries");
const EPOCH: EpochFields = EpochFields::followed(32);
const RESERVED: Field = Field::new(48, 16, "reserved", "zero");
const ENTRIES: Field =
    Field::new(64, 4032, "entries", "`count` entries, on to the end of the blocks; then zeros");

/// The byte table of a record.
pub const RECORD_LAYOUT: Layout = Layout::new(
    "Thin pool: record of the log",
    "What has changed, in order. In the ring behind the superblocks.",
    SIZE,
    &[MAGIC, CHECKSUM, SEQUENCE, POOL, BLOCKS, COUNT, EPOCH.generation, EPOCH.revision, RESERVED, ENTRIES],
);

const KIND: Field = Field::new(
    0,
    1,
    "kind",
    "1 map, 2 unmap, 3 zero, 4 create, 5 snapshot, 6 roll back, 7 remove, 8 forget, 9 resize, 10 set flags, 11 rename, 12 empty, 13 create over an origin, 14 show less of it",
);
const NAME_LENGTH: Field =
    Field::new(1, 1, "name_length", "bytes behind the entry: of the name; of an origin and the name (13)");
const RESERVED_2: Field = Field::new(2, 2, "reserved", "zero");
const NUMBER: Field = Field::new(4, 4, "number", "parts (map); flags (create, clone, set flags)");
const VOLUME: Field = Field::new(8, 8, "volume", "id of the volume");
const ONE: Field = Field::new(
    16,
    8,
    "first",
    "first part (map, unmap, zero); bytes (create, resize, show less); volume (clone, roll back)",
);
const TWO: Field = Field::new(
    24,
    8,
    "second",
    "place (map); end (unmap, zero); volume that keeps the rest (roll back, empty); date",
);

/// The byte table of an entry.
pub const ENTRY_LAYOUT: Layout = Layout::new(
    "Thin pool: entry of a record",
    "One change. A name follows the entries that have one, filled up with zeros to a multiple of 8 bytes.",
    32,
    &[KIND, NAME_LENGTH, RESERVED_2, NUMBER, VOLUME, ONE, TWO],
);

/// The most blocks that a record has.
pub const RECORD_BLOCKS_MAX: u64 = 64;

/// One change of a pool. Volumes are named by their ids, places are blocks of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the byte table")]
pub enum Change {
    /// Parts of a volume lie somewhere.
    Map { volume: u64, start: u64, count: u64, place: Block },
    /// Parts of a volume are mapped no more.
    Unmap { volume: u64, start: u64, end: u64 },
    /// Parts of a volume are zeros, whatever is below it.
    Zero { volume: u64, start: u64, end: u64 },
    /// A volume was created, over an origin or not.
    Create { volume: u64, bytes: u64, created: u64, flags: u32, origin: Option<Origin>, name: String },
    /// A snapshot was created with all that `source` holds: of that volume, or of the one that `source` is a snapshot of.
    Clone { volume: u64, source: u64, created: u64, flags: u32, name: String },
    /// A volume holds what `source` holds; what it held is `rest`'s, which is being removed.
    RollBack { volume: u64, source: u64, rest: u64 },
    /// A volume is being removed.
    Remove { volume: u64 },
    /// A volume has been removed.
    Forget { volume: u64 },
    /// A volume has another size.
    Resize { volume: u64, bytes: u64 },
    /// A volume has other flags.
    SetFlags { volume: u64, flags: u32 },
    /// A volume has another name.
    Rename { volume: u64, name: String },
    /// At most so many bytes of its origin show in a volume.
    ShowLess { volume: u64, bytes: u64 },
    /// A volume holds nothing; what it held is `rest`'s, which is being removed.
    Empty { volume: u64, rest: u64 },
}

/// Bytes that `change` takes in a record.
pub fn change_length(change: &Change) -> usize {
    let name = match change {
        Change::Create { name, .. } | Change::Clone { name, .. } | Change::Rename { name, .. } => name.len(),
        _ => 0,
    };
    ENTRY_LAYOUT.size + (origin_of(change).map_or(0, |_| ORIGIN_LAYOUT.size) + name).next_multiple_of(8)
}

/// The origin that stands in front of the name of a change.
fn origin_of(change: &Change) -> Option<&Origin> {
    match change {
        Change::Create { origin, .. } => origin.as_ref(),
        _ => None,
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub sequence: u64,
    /// First half of the pool's id.
    pub pool: u64,
    /// Term of the host that wrote it; that of the superblock that it follows.
    pub epoch: Epoch,
    /// What it says.
    pub changes: Vec<Change>,
}

impl Record {
    /// Bytes of changes that fit into `blocks` blocks.
    pub const fn capacity(blocks: u64) -> usize {
        blocks as usize * SIZE - ENTRIES.offset
    }

    /// Blocks that the record needs.
    pub fn blocks(&self) -> u64 {
        let bytes = ENTRIES.offset + self.changes.iter().map(change_length).sum::<usize>();
        bytes.div_ceil(SIZE) as u64
    }

    /// Writes the record into `bytes`, which is as long as its blocks.
    pub fn encode(&self, bytes: &mut [u8]) {
        let blocks = self.blocks();
        assert!((1..=RECORD_BLOCKS_MAX).contains(&blocks) && !self.changes.is_empty(), "RECORD2");
        assert!(self.sequence <= NUMBER_MAX, "RECORD3");
        assert_eq!(bytes.len() as u64, blocks * SIZE as u64);
        bytes.fill(0);
        MAGIC.put_u32(bytes, MAGIC_VALUE);
        SEQUENCE.put_u64(bytes, self.sequence);
        POOL.put_u64(bytes, self.pool);
        EPOCH.put(bytes, self.epoch);
        BLOCKS.put_u32(bytes, u32::try_from(blocks).expect("RECORD2: a record has few blocks"));
        COUNT.put_u32(bytes, u32::try_from(self.changes.len()).expect("RECORD2: a record has few blocks"));
        let mut at = ENTRIES.offset;
        for change in &self.changes {
            let length = change_length(change);
            encode_change(change, &mut bytes[at..at + length]);
            at += length;
        }
        let checksum = checksum_without(bytes, CHECKSUM);
        CHECKSUM.put_u32(bytes, checksum);
    }

    /// How many blocks the record has whose first block is `block`, if it may be record `sequence` of `pool`.
    pub fn length(block: &[u8], sequence: u64, pool: u64) -> Option<u64> {
        Record::claims(block, pool).filter(|(found, _)| *found == sequence).map(|(_, blocks)| blocks)
    }

    /// The number and the blocks of the record whose first block is `block`, if it may be one of `pool`.
    pub fn claims(block: &[u8], pool: u64) -> Option<(u64, u64)> {
        let blocks = u64::from(BLOCKS.u32(block));
        let sound = MAGIC.u32(block) == MAGIC_VALUE && POOL.u64(block) == pool;
        let is_one = sound && (1..=RECORD_BLOCKS_MAX).contains(&blocks) && SEQUENCE.u64(block) <= NUMBER_MAX;
        is_one.then(|| (SEQUENCE.u64(block), blocks))
    }

    /// The record in `bytes`, all of its blocks.
    pub fn decode(bytes: &[u8]) -> Result<Record, PoolFormatError> {
        if MAGIC.u32(bytes) != MAGIC_VALUE || CHECKSUM.u32(bytes) != checksum_without(bytes, CHECKSUM) {
            return Err(PoolFormatError::Checksum);
        }
        require(RESERVED.is_zero(bytes), "reserved bytes are not zero")?;
        require(
            u64::from(BLOCKS.u32(bytes)) * SIZE as u64 == bytes.len() as u64,
            "RECORD2: the number of blocks",
        )?;
        require(SEQUENCE.u64(bytes) <= NUMBER_MAX, "RECORD3: the number of the record")?;
        let (mut changes, mut at) = (Vec::new(), ENTRIES.offset);
        for _ in 0..COUNT.u32(bytes) {
            let rest =
                bytes.get(at..at + ENTRY_LAYOUT.size).ok_or(PoolFormatError::Invalid("RECORD2: entries"))?;
            let length = ENTRY_LAYOUT.size + usize::from(rest[NAME_LENGTH.offset]).next_multiple_of(8);
            let entry = bytes.get(at..at + length).ok_or(PoolFormatError::Invalid("RECORD2: entries"))?;
            changes.push(decode_change(entry)?);
            at += length;
        }
        require(!changes.is_empty(), "RECORD2: no entry")?;
        require(is_zero(&bytes[at..]), "bytes behind the entries are not zero")?;
        let (sequence, pool) = (SEQUENCE.u64(bytes), POOL.u64(bytes));
        let epoch = EPOCH.get(bytes);
        Ok(Record { sequence, pool, epoch, changes })
    }
}

/// Kind, volume, number, first and second field, name.
fn fields(change: &Change) -> (u8, u64, u64, u64, u64, &str) {
    match change {
        Change::Map { volume, start, count, place } => (1, *volume, *count, *start, place.number(), ""),
        Change::Unmap { volume, start, end } => (2, *volume, 0, *start, *end, ""),
        Change::Zero { volume, start, end } => (3, *volume, 0, *start, *end, ""),
        Change::Create { volume, bytes, created, flags, origin, name } => {
            let kind = if origin.is_some() { 13 } else { 4 };
            (kind, *volume, u64::from(*flags), *bytes, *created, name)
        }
        Change::Clone { volume, source, created, flags, name } => {
            (5, *volume, u64::from(*flags), *source, *created, name)
        }
        Change::RollBack { volume, source, rest } => (6, *volume, 0, *source, *rest, ""),
        Change::Remove { volume } => (7, *volume, 0, 0, 0, ""),
        Change::Forget { volume } => (8, *volume, 0, 0, 0, ""),
        Change::Resize { volume, bytes } => (9, *volume, 0, *bytes, 0, ""),
        Change::SetFlags { volume, flags } => (10, *volume, u64::from(*flags), 0, 0, ""),
        Change::Rename { volume, name } => (11, *volume, 0, 0, 0, name),
        Change::Empty { volume, rest } => (12, *volume, 0, 0, *rest, ""),
        Change::ShowLess { volume, bytes } => (14, *volume, 0, *bytes, 0, ""),
    }
}

fn encode_change(change: &Change, entry: &mut [u8]) {
    let (kind, volume, number, one, two, name) = fields(change);
    let mut behind: Vec<u8> = origin_of(change).iter().flat_map(|origin| origin.encode()).collect();
    behind.extend_from_slice(name.as_bytes());
    entry[KIND.offset] = kind;
    entry[NAME_LENGTH.offset] = u8::try_from(behind.len()).expect("names are checked before they are stored");
    NUMBER.put_u32(entry, u32::try_from(number).expect("a run is no longer than a mapping"));
    VOLUME.put_u64(entry, volume);
    ONE.put_u64(entry, one);
    TWO.put_u64(entry, two);
    entry[ENTRY_LAYOUT.size..ENTRY_LAYOUT.size + behind.len()].copy_from_slice(&behind);
}

fn decode_change(entry: &[u8]) -> Result<Change, PoolFormatError> {
    let (volume, number, one, two) = (VOLUME.u64(entry), NUMBER.u32(entry), ONE.u64(entry), TWO.u64(entry));
    let (behind, padding) = entry[ENTRY_LAYOUT.size..].split_at(usize::from(entry[NAME_LENGTH.offset]));
    let sound = RESERVED_2.is_zero(entry) && is_zero(padding);
    require(sound, "reserved bytes are not zero")?;
    let of_origin = if entry[KIND.offset] == 13 { ORIGIN_LAYOUT.size } else { 0 };
    require(behind.len() >= of_origin, "an origin is cut short")?;
    let (origin, name) = behind.split_at(of_origin);
    let name = String::from_utf8(name.to_vec()).map_err(|_| PoolFormatError::Invalid("a name"))?;
    let change = match entry[KIND.offset] {
        1 => Change::Map { volume, start: one, count: u64::from(number), place: Block::new(two) },
        2 => Change::Unmap { volume, start: one, end: two },
        3 => Change::Zero { volume, start: one, end: two },
        4 => Change::Create { volume, bytes: one, created: two, flags: number, origin: None, name },
        5 => Change::Clone { volume, source: one, created: two, flags: number, name },
        6 => Change::RollBack { volume, source: one, rest: two },
        7 => Change::Remove { volume },
        8 => Change::Forget { volume },
        9 => Change::Resize { volume, bytes: one },
        10 => Change::SetFlags { volume, flags: number },
        11 => Change::Rename { volume, name },
        12 => Change::Empty { volume, rest: two },
        13 => {
            let origin = Some(Origin::decode(origin)?);
            Change::Create { volume, bytes: one, created: two, flags: number, origin, name }
        }
        14 => Change::ShowLess { volume, bytes: one },
        _ => return Err(PoolFormatError::Invalid("a kind of change that there is not")),
    };
    let mut again = vec![0; entry.len()];
    require(change_length(&change) == entry.len(), "a name where there is none")?;
    encode_change(&change, &mut again);
    require(again == entry, "a field that is not used is not zero")?;
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        let name = "büro".to_owned();
        let backing =
            super::super::Backing::Snapshot { store: uuid::Uuid::from_u128(1), number: 2, created: 3 };
        let origin = Some(Origin { backing, bytes: 4096 });
        let changes = vec![
            Change::Map { volume: 1, start: 2, count: 3, place: Block::new(4) },
            Change::Unmap { volume: 1, start: 2, end: 3 },
            Change::Zero { volume: 1, start: 2, end: 3 },
            Change::Create { volume: 1, bytes: 8192, created: 9, flags: 1, origin: None, name: name.clone() },
            Change::Clone { volume: 2, source: 1, created: 9, flags: 0, name: name.clone() },
            Change::RollBack { volume: 1, source: 2, rest: 3 },
            Change::Remove { volume: 1 },
            Change::Forget { volume: 1 },
            Change::Resize { volume: 1, bytes: 4096 },
            Change::SetFlags { volume: 1, flags: 3 },
            Change::Rename { volume: 1, name: name.clone() },
            Change::Empty { volume: 1, rest: 3 },
            Change::Create { volume: 1, bytes: 8192, created: 9, flags: 4, origin, name },
            Change::ShowLess { volume: 1, bytes: 4096 },
        ];
        Record { sequence: 5, pool: 6, epoch: Epoch { generation: 7, revision: 8 }, changes }
    }

    fn bytes(record: &Record) -> Vec<u8> {
        let mut bytes = vec![0xff; usize::try_from(record.blocks()).expect("small") * SIZE];
        record.encode(&mut bytes);
        bytes
    }

    #[test]
    fn golden_bytes_and_round_trip() {
        let block = bytes(&sample());
        assert_eq!(&block[..4], b"VREC");
        assert_eq!((block[8], block[16], block[24], block[28], block[32], block[40]), (5, 6, 1, 14, 7, 8));
        assert_eq!(
            block[64..96],
            [1, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(Record::length(&block, 5, 6), Some(1));
        assert_eq!((Record::claims(&block, 6), Record::claims(&block, 7)), (Some((5, 1)), None));
        assert_eq!(Record::decode(&block), Ok(sample()));
        let many = Record { changes: vec![sample().changes[0].clone(); 1000], ..sample() };
        assert_eq!(Record::decode(&bytes(&many)), Ok(many));
    }

    #[test]
    fn a_number_that_none_can_follow_is_refused() {
        let mut block = bytes(&Record { sequence: NUMBER_MAX, ..sample() });
        assert!(Record::decode(&block).is_ok());
        SEQUENCE.put_u64(&mut block, NUMBER_MAX + 1);
        let checksum = checksum_without(&block, CHECKSUM);
        CHECKSUM.put_u32(&mut block, checksum);
        assert_eq!(
            Record::decode(&block),
            Err(PoolFormatError::Invalid("RECORD3: the number of the record"))
        );
    }

    #[test]
    fn every_single_bit_of_damage_is_refused() {
        let block = bytes(&sample());
        for bit in 0..block.len() * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&damaged).is_err(), "RECORD1: bit {bit}");
        }
    }
}
