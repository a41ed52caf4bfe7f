//! The superblock of an exception store: where its maps and its table of snapshots lie and where the log goes on.
//!
//! Two slots, at 0 and at 4 KiB. Generation `g` is written to slot `g % 2`, when everything that it points to is durable,
//! and then to the other slot, so that one of them is whole at any moment; the higher generation is valid.
//!
//! Invariants:
//! - STORE1. The checksum covers the whole block, with its own address and its generation.
//! - STORE2. The address is that of the slot in which this copy is.
//! - STORE3. The chunk size is a power of two between [`CHUNK_SIZE_MIN`] and [`CHUNK_SIZE_MAX`].
//! - STORE4. The table, if there is one, the roots, if there are any, and the log lie behind the slots, in the store.
//! - STORE5. Which place of the space map's page is valid is known for every group of the store, and for no other.
//! - STORE6. Neither the generation nor the number of the next record is so high that it cannot be counted on.

use super::{FIRST_ADDRESS, NUMBER_MAX, PART_SIZE, SIZE, STORE_VERSION, StoreFormatError};
use crate::layout::{Field, Layout};
use crate::pdata::Block;
use crate::pdata::link::Link;
use crate::pdata::space_page::{GROUP_BLOCKS, Place, pack_places, unpack_places};
use uuid::Uuid;
use varve_block::is_aligned;

/// Where the two slots lie.
pub const SLOT_ADDRESSES: [u64; 2] = [0, PART_SIZE];
/// The smallest chunk.
pub const CHUNK_SIZE_MIN: u64 = PART_SIZE;
/// The largest chunk.
pub const CHUNK_SIZE_MAX: u64 = 1 << 20;

const MAGIC_VALUE: &[u8; 8] = b"VARVE\xffSS";

const MAGIC: Field = Field::new(0, 8, "magic", "`VARVE`, byte 255, `SS`");
const VERSION: Field = Field::new(8, 4, "version", "of this layout: 5");
const EPOCH: Field =
    Field::new(12, 4, "epoch", "term of the host that wrote it; 0 without a group of several hosts");
const ADDRESS: Field = Field::new(16, 8, "address", "where in the store this block lies, in bytes");
const GENERATION: Field = Field::new(24, 8, "generation", "number of times that a superblock was written");
const STORE: Field = Field::new(32, 16, "store", "UUID of this exception store");
const CHUNK_SIZE: Field = Field::new(48, 8, "chunk_size", "bytes of a chunk, the unit of the map");
const STORE_SIZE: Field = Field::new(56, 8, "store_size", "bytes of the store when this was written");
const TABLE: Field = Field::new(64, 8, "table", "first block of the table of snapshots; 0 for none");
const TABLE_BLOCKS: Field = Field::new(72, 8, "table_blocks", "blocks of the table");
const LOG: Field = Field::new(80, 8, "log", "where the next record of the log will lie");
const SEQUENCE: Field = Field::new(88, 8, "sequence", "the number of that record");
const NEXT_SNAPSHOT: Field = Field::new(96, 8, "next_snapshot", "the id that no snapshot has had yet");
const PRESERVED: Field =
    Field::new(104, 8, "preserved", "link to the root of the map of what was preserved; 0 for an empty map");
const WRITTEN: Field = Field::new(
    112,
    8,
    "written",
    "link to the root of the map of what was written to snapshots; 0 for an empty map",
);
const NODES: Field = Field::new(120, 8, "nodes", "number of nodes of both maps");
const FREE: Field = Field::new(128, 8, "free", "number of blocks that are not in use");
const PLACES: Field = Field::new(
    136,
    3956,
    "places",
    "two bits a group, lowest first: which place of its space map page is valid, 0 none",
);
const CHECKSUM: Field = Field::new(4092, 4, "checksum", "CRC32C of all bytes before it");

/// The byte table of a superblock.
pub const SUPERBLOCK_LAYOUT: Layout = Layout::new(
    "Exception store: superblock",
    "Says where maps and table lie and where the log goes on. At 0 and at 4 KiB.",
    SIZE,
    &[
        MAGIC,
        VERSION,
        EPOCH,
        ADDRESS,
        GENERATION,
        STORE,
        CHUNK_SIZE,
        STORE_SIZE,
        TABLE,
        TABLE_BLOCKS,
        LOG,
        SEQUENCE,
        NEXT_SNAPSHOT,
        PRESERVED,
        WRITTEN,
        NODES,
        FREE,
        PLACES,
        CHECKSUM,
    ],
);
const _: () = assert!(SUPERBLOCK_LAYOUT.size == 4096 && CHECKSUM.end() == SIZE);

/// The number of the first block behind the slots, where the space map's groups begin.
pub const FIRST_BLOCK: Block = Block::at(FIRST_ADDRESS);
/// Bytes of the largest store: as many groups as a superblock has places for.
pub const STORE_SIZE_MAX: u64 = (FIRST_BLOCK.number() + PLACES.size as u64 * 4 * GROUP_BLOCKS) * PART_SIZE;

/// What leads to the roots of the maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    /// Of what was preserved for snapshots.
    pub preserved: Link,
    /// Of what was written to snapshots.
    pub written: Link,
}

/// What a superblock says. Addresses are bytes in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Number of times that a superblock was written; the higher of two is valid.
    pub generation: u64,
    /// This store.
    pub store: Uuid,
    /// Bytes of a chunk.
    pub chunk_size: u64,
    /// Bytes of the store when this was written.
    pub store_size: u64,
    /// First block of the table of snapshots, 0 if there is none.
    pub table: u64,
    /// Number of its blocks.
    pub table_blocks: u64,
    /// Where the next record of the log will lie.
    pub log: u64,
    /// The number of that record.
    pub sequence: u64,
    /// The id that no snapshot has had yet; ids start at 1.
    pub next_snapshot: u64,
    /// The maps.
    pub roots: Roots,
    /// Number of their nodes.
    pub nodes: u64,
    /// Number of blocks that are not in use.
    pub free_blocks: u64,
    /// Term of the host that wrote it; 0 without a group of several hosts. Records of the log repeat it.
    pub epoch: u32,
    /// Where the pages of the space map lie, one for each group.
    pub places: Vec<Place>,
}

/// The number of groups of the space map of a store of `size` bytes.
fn groups(size: u64) -> u64 {
    (size / PART_SIZE).saturating_sub(FIRST_BLOCK.number()).div_ceil(GROUP_BLOCKS)
}

impl Superblock {
    /// The slots: the one to which this generation is written first, and the other.
    pub const fn slots(&self) -> [u64; 2] {
        let first = (self.generation % 2) as usize;
        [SLOT_ADDRESSES[first], SLOT_ADDRESSES[1 - first]]
    }

    /// Whether STORE3 to STORE6 hold; else which does not.
    pub fn check(&self) -> Result<(), StoreFormatError> {
        let sound = (CHUNK_SIZE_MIN..=CHUNK_SIZE_MAX).contains(&self.chunk_size);
        if !sound || !self.chunk_size.is_power_of_two() {
            return Err(StoreFormatError::Invalid("STORE3: the chunk size"));
        }
        let place = |address: u64| address >= FIRST_ADDRESS && is_aligned(address, PART_SIZE);
        let none = self.table == 0 && self.table_blocks == 0;
        if !none && (!place(self.table) || self.table_blocks == 0) {
            return Err(StoreFormatError::Invalid("STORE4: the table of snapshots"));
        }
        let end = Block::end_of(self.store_size);
        let root = |link: Link| link.is_none() || (FIRST_BLOCK..end).contains(&link.block());
        if !root(self.roots.preserved) || !root(self.roots.written) {
            return Err(StoreFormatError::Invalid("STORE4: the root of a map"));
        }
        if self.nodes.max(self.free_blocks) > end.number() {
            return Err(StoreFormatError::Invalid("STORE4: more blocks than there are"));
        }
        if self.store_size > STORE_SIZE_MAX || self.places.len() as u64 != groups(self.store_size) {
            return Err(StoreFormatError::Invalid("STORE5: the places of the space map"));
        }
        if !place(self.log) || !is_aligned(self.store_size, PART_SIZE) || self.log >= self.store_size {
            return Err(StoreFormatError::Invalid("STORE4: the log"));
        }
        if self.generation > NUMBER_MAX || self.sequence > NUMBER_MAX {
            return Err(StoreFormatError::Invalid("STORE6: a number that no store has lived to see"));
        }
        if self.store.is_nil() || self.next_snapshot == 0 || self.next_snapshot > 1 << 32 {
            return Err(StoreFormatError::Invalid("an id is nil"));
        }
        Ok(())
    }

    /// The superblock's bytes, for the slot at `address`. Panics if [`Superblock::check`] fails.
    pub fn encode(&self, address: u64) -> Vec<u8> {
        assert!(self.check().is_ok(), "STORE3 to STORE6: {self:?}");
        assert!(SLOT_ADDRESSES.contains(&address), "STORE2: {address}");
        let mut block = vec![0; SIZE];
        MAGIC.put(&mut block, MAGIC_VALUE);
        VERSION.put_u32(&mut block, STORE_VERSION);
        EPOCH.put_u32(&mut block, self.epoch);
        ADDRESS.put_u64(&mut block, address);
        GENERATION.put_u64(&mut block, self.generation);
        STORE.put_uuid(&mut block, self.store);
        CHUNK_SIZE.put_u64(&mut block, self.chunk_size);
        STORE_SIZE.put_u64(&mut block, self.store_size);
        TABLE.put_u64(&mut block, self.table);
        TABLE_BLOCKS.put_u64(&mut block, self.table_blocks);
        LOG.put_u64(&mut block, self.log);
        SEQUENCE.put_u64(&mut block, self.sequence);
        NEXT_SNAPSHOT.put_u64(&mut block, self.next_snapshot);
        PRESERVED.put_u64(&mut block, self.roots.preserved.pack());
        WRITTEN.put_u64(&mut block, self.roots.written.pack());
        NODES.put_u64(&mut block, self.nodes);
        FREE.put_u64(&mut block, self.free_blocks);
        let places = pack_places(&self.places);
        block[PLACES.offset..PLACES.offset + places.len()].copy_from_slice(&places);
        CHECKSUM.seal(&mut block);
        block
    }

    /// The superblock in `block`, which was read from the slot at `address`.
    pub fn decode(block: &[u8], address: u64) -> Result<Superblock, StoreFormatError> {
        assert_eq!(block.len(), SIZE, "a superblock is one block");
        if MAGIC.bytes(block) != MAGIC_VALUE {
            return Err(StoreFormatError::Absent);
        }
        if !CHECKSUM.seals(block) {
            return Err(StoreFormatError::Checksum);
        }
        match VERSION.u32(block) {
            STORE_VERSION => {}
            version => return Err(StoreFormatError::Version(version)),
        }
        let superblock = Superblock {
            generation: GENERATION.u64(block),
            store: STORE.uuid(block),
            chunk_size: CHUNK_SIZE.u64(block),
            store_size: STORE_SIZE.u64(block),
            table: TABLE.u64(block),
            table_blocks: TABLE_BLOCKS.u64(block),
            log: LOG.u64(block),
            sequence: SEQUENCE.u64(block),
            next_snapshot: NEXT_SNAPSHOT.u64(block),
            roots: Roots {
                preserved: Link::unpack(PRESERVED.u64(block)),
                written: Link::unpack(WRITTEN.u64(block)),
            },
            nodes: NODES.u64(block),
            free_blocks: FREE.u64(block),
            epoch: EPOCH.u32(block),
            places: unpack_places(PLACES.bytes(block), groups(STORE_SIZE.u64(block)))
                .map_err(|_| StoreFormatError::Invalid("STORE5: the places of the space map"))?,
        };
        // A superblock that was copied to another place is none (STORE2).
        if ADDRESS.u64(block) != address || !SLOT_ADDRESSES.contains(&address) {
            return Err(StoreFormatError::Misplaced(ADDRESS.u64(block)));
        }
        superblock.check()?;
        Ok(superblock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Superblock {
        Superblock {
            generation: 7,
            store: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
            chunk_size: 65_536,
            store_size: 1 << 30,
            table: 0x10_0000,
            table_blocks: 3,
            log: 0x2000,
            sequence: 9,
            next_snapshot: 17,
            roots: Roots {
                preserved: Link::unpack(0x2100_0000_0011),
                written: Link::unpack(0x2200_0000_0012),
            },
            nodes: 5,
            free_blocks: 0x0203,
            epoch: 0x0e,
            places: vec![
                Place::First,
                Place::Second,
                Place::Never,
                Place::Never,
                Place::First,
                Place::Never,
                Place::Never,
                Place::Never,
                Place::Second,
            ],
        }
    }

    #[test]
    fn golden_bytes() {
        let mut expected = vec![0; SIZE];
        expected[..8].copy_from_slice(b"VARVE\xffSS");
        expected[8] = 5;
        expected[12] = 0x0e;
        expected[17] = 0x10;
        expected[24] = 7;
        expected[32..48].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        expected[50] = 1;
        expected[59] = 0x40;
        expected[66] = 0x10;
        expected[72] = 3;
        expected[81] = 0x20;
        expected[88] = 9;
        expected[96] = 17;
        (expected[104], expected[112], expected[120]) = (0x11, 0x12, 5);
        (expected[109], expected[117]) = (0x21, 0x22);
        expected[128..130].copy_from_slice(&[3, 2]);
        expected[136..139].copy_from_slice(&[0b1001, 1, 2]);
        expected[4092..].copy_from_slice(&GOLDEN_CHECKSUM);
        assert!(sample().encode(4096) == expected, "the layout has changed");
    }
    const GOLDEN_CHECKSUM: [u8; 4] = [0x7f, 0x14, 0xa2, 0x4f];

    #[test]
    fn every_single_bit_of_damage_is_refused() {
        let mut block = sample().encode(4096);
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&block, 4096).is_err(), "STORE1: bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_superblock_in_the_wrong_slot_is_refused() {
        assert_eq!(
            Superblock::decode(&sample().encode(4096), 0),
            Err(StoreFormatError::Misplaced(4096)),
            "STORE2"
        );
        assert_eq!(Superblock::decode(&sample().encode(0), 0), Ok(sample()), "STORE2: in both slots");
    }

    #[test]
    fn contradictions_are_refused_with_a_sound_checksum() {
        let cases: &[(Field, u64)] = &[
            (CHUNK_SIZE, 2048),
            (CHUNK_SIZE, 65_537),
            (CHUNK_SIZE, 1 << 21),
            (TABLE, 0),
            (TABLE, 4096),
            (TABLE_BLOCKS, 0),
            (PRESERVED, 1),
            (PRESERVED, 0x2100_0000_0000),
            (WRITTEN, 1 << 18),
            (NODES, 1 << 19),
            (FREE, 1 << 19),
            (STORE_SIZE, 1 << 20),
            (STORE_SIZE, 1 << 50),
            (LOG, 0),
            (LOG, 8193),
            (LOG, 1 << 30),
            (STORE_SIZE, 4097),
            (NEXT_SNAPSHOT, 0),
            (NEXT_SNAPSHOT, (1 << 32) + 1),
            (GENERATION, u64::MAX),
            (SEQUENCE, NUMBER_MAX + 1),
        ];
        for (field, value) in cases {
            let mut block = sample().encode(4096);
            field.put_u64(&mut block, *value);
            CHECKSUM.seal(&mut block);
            let found = Superblock::decode(&block, 4096);
            assert!(
                matches!(found, Err(StoreFormatError::Invalid(_))),
                "{} = {value}: {found:?}",
                field.name
            );
        }
    }

    proptest! {
        #[test]
        fn superblocks_survive_the_round_trip(
            generation: u64, store in 1..=u128::MAX, shift in 12_u32..=20, blocks in 3_u64..STORE_SIZE_MAX / PART_SIZE,
            table in 0_u64..(1 << 40), log in 2_u64.., sequence: u64, next_snapshot in 1_u64..1 << 32, free: u64, epoch: u32,
        ) {
            let store_size = blocks * PART_SIZE;
            let place = |group: u64| if group % 3 == free % 3 { Place::First } else { Place::Second };
            let superblock = Superblock {
                generation: generation % NUMBER_MAX,
                sequence: sequence % NUMBER_MAX,
                next_snapshot, store_size,
                store: Uuid::from_u128(store),
                chunk_size: 1 << shift,
                table: if table < 2 { 0 } else { table * PART_SIZE },
                table_blocks: if table < 2 { 0 } else { table },
                log: (2 + log % (blocks - 2)) * PART_SIZE,
                roots: Roots { preserved: Link::unpack(generation << 40 | (2 + log % (blocks - 2))), written: Link::NONE },
                nodes: free % blocks,
                free_blocks: free % blocks,
                epoch,
                places: (0..groups(store_size)).map(place).collect(),
            };
            for address in superblock.slots() {
                prop_assert_eq!(Superblock::decode(&superblock.encode(address), address), Ok(superblock.clone()));
            }
        }
    }
}
