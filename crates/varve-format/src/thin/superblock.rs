//! The superblock of a thin pool: the roots of the last checkpoint and where the log goes on from there.
//!
//! Two slots of the same size, one behind the other from block 0 on. Number `n` is written to slot `n % 2`, when everything
//! that it names is durable, and then to the other slot; the higher number is valid. A slot is a power of two of blocks, so
//! that the second one is found even when the first is torn. The byte table is [`SUPERBLOCK_LAYOUT`].
//!
//! Invariants:
//! - POOL1. The checksum covers the whole slot, with its own address and its number.
//! - POOL2. The address is that of the slot in which this copy is.
//! - POOL3. The block size is a power of two between [`BLOCK_SIZE_MIN`] and [`BLOCK_SIZE_MAX`].
//! - POOL4. The ring follows the slots, the head of the log is in it or at its end, and behind it is room for a page of the
//!   space map and more.
//! - POOL5. No more blocks are free than there are, and numbers that only rise are so small that they never end.

use super::{POOL_VERSION, PoolFormatError, SIZE, checksum_without, require};
use crate::epoch::{Epoch, EpochFields};
use crate::layout::{Field, Layout};
use crate::pdata::Block;
use crate::pdata::link::Link;
use crate::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES, Place, pack_places, unpack_places};
use uuid::Uuid;

/// The smallest block of a pool.
pub const BLOCK_SIZE_MIN: u64 = super::PART_SIZE;
/// The largest block of a pool.
pub const BLOCK_SIZE_MAX: u64 = 1 << 20;
/// The largest slot, in blocks of 4 KiB: places of two million groups, more than 240 TiB.
pub const SLOT_BLOCKS_MAX: u64 = 128;
/// The highest transaction of a checkpoint (POOL5): births of mappings have six bytes.
pub const GENERATION_MAX: u64 = 1 << 47;
/// The highest number of a superblock, a record or a volume (POOL5).
pub const NUMBER_MAX: u64 = 1 << 62;

const MAGIC_VALUE: &[u8; 8] = b"VARVE\xffTP";

const MAGIC: Field = Field::new(0, 8, "magic", "`VARVE`, byte 255, `TP`");
const VERSION: Field = Field::new(8, 4, "version", "of this layout: 5");
const CHECKSUM: Field = Field::new(12, 4, "checksum", "CRC32C of the whole slot with this field zero");
const ADDRESS: Field = Field::new(16, 8, "address", "first block of 4 KiB of this slot");
const NUMBER: Field = Field::new(24, 8, "number", "number of times that a superblock was written");
const POOL: Field = Field::new(32, 16, "pool", "UUID of this pool");
const BLOCK_SIZE: Field = Field::new(48, 8, "block_size", "bytes of a block, in which space is laid out");
const SLOT_BLOCKS: Field = Field::new(56, 8, "slot_blocks", "blocks of 4 KiB of a slot, a power of two");
const LOG_BLOCKS: Field = Field::new(64, 8, "log_blocks", "blocks of the ring of the log, behind the slots");
const END_BLOCK: Field = Field::new(72, 8, "end_block", "number of the first block behind the pool");
const GENERATION: Field = Field::new(80, 8, "generation", "transaction that the checkpoint ended");
const FREE_BLOCKS: Field = Field::new(88, 8, "free_blocks", "blocks not in use");
const SHARES: Field =
    Field::new(96, 8, "shares", "link to the root of the map of shares; 0 for an empty one");
const VOLUMES: Field =
    Field::new(104, 8, "volumes", "link to the root of the map of volumes; 0 for an empty one");
const HEAD: Field = Field::new(112, 8, "head", "where the next record lies, in blocks from the ring's start");
const SEQUENCE: Field = Field::new(120, 8, "sequence", "the number of that record");
const NEXT_VOLUME: Field = Field::new(128, 8, "next_volume", "the id that no volume has had yet");
const NODES: Field = Field::new(136, 8, "nodes", "number of nodes of all maps");
const EPOCH: EpochFields = EpochFields::own(144);
const RESERVED: Field = Field::new(160, 96, "reserved", "zero");
const PLACES: Field = Field::new(
    256,
    3840,
    "places",
    "which place of each group of the space map is valid, two bits a group; goes on to the slot's end",
);

/// The byte table of a superblock.
pub const SUPERBLOCK_LAYOUT: Layout = Layout::new(
    "Thin pool: superblock",
    "The roots of the last checkpoint and where the log goes on. In two slots from block 0 on.",
    SIZE,
    &[
        MAGIC,
        VERSION,
        CHECKSUM,
        ADDRESS,
        NUMBER,
        POOL,
        BLOCK_SIZE,
        SLOT_BLOCKS,
        LOG_BLOCKS,
        END_BLOCK,
        GENERATION,
        FREE_BLOCKS,
        SHARES,
        VOLUMES,
        HEAD,
        SEQUENCE,
        NEXT_VOLUME,
        NODES,
        EPOCH.generation,
        EPOCH.revision,
        RESERVED,
        PLACES,
    ],
);
const _: () = assert!(SUPERBLOCK_LAYOUT.size == 4096);

/// What a superblock says. Places are numbers of blocks of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Number of times that a superblock was written; the higher of two is valid.
    pub number: u64,
    /// This pool.
    pub pool: Uuid,
    /// Bytes of a block of the pool.
    pub block_size: u64,
    /// Blocks of a slot.
    pub slot_blocks: u64,
    /// Blocks of the log's ring.
    pub log_blocks: u64,
    /// The first block behind the pool.
    pub end_block: Block,
    /// The transaction that the checkpoint ended.
    pub generation: u64,
    /// Blocks not in use.
    pub free_blocks: u64,
    /// Root of the map of shares.
    pub shares: Link,
    /// Root of the map of volumes.
    pub volumes: Link,
    /// Where the next record of the log is, counted from the ring's start.
    pub head: u64,
    /// The number of that record.
    pub sequence: u64,
    /// The id that no volume has had yet.
    pub next_volume: u64,
    /// Nodes of all maps.
    pub nodes: u64,
    /// Term of the host that wrote it; 0 without a group of several hosts. Records of the log repeat it.
    pub epoch: Epoch,
    /// Which place of each group of the space map is valid.
    pub places: Vec<Place>,
}

/// Blocks of a slot that has room for the places of a pool sixteen times as large as one of `end_block` blocks.
pub fn slot_blocks_for(end_block: Block) -> u64 {
    let bytes = PLACES.offset as u64 + end_block.number().div_ceil(GROUP_BLOCKS) * 4 + 1;
    bytes.div_ceil(SIZE as u64).next_power_of_two().min(SLOT_BLOCKS_MAX)
}

impl Superblock {
    /// First blocks of the slots: of the one to which this number is written first, and of the other.
    pub const fn slots(&self) -> [Block; 2] {
        let first = self.number % 2 * self.slot_blocks;
        [Block::new(first), Block::new(self.slot_blocks - first)]
    }

    /// First block of the ring.
    pub const fn ring(&self) -> Block {
        Block::new(2 * self.slot_blocks)
    }

    /// First block of the groups of the space map.
    pub fn base_block(&self) -> Block {
        self.ring() + self.log_blocks
    }

    /// Whether a slot has room for the places of a pool that ends at `end_block`.
    pub fn has_room_for(&self, end_block: Block) -> bool {
        let groups = end_block.number().saturating_sub(self.base_block().number()).div_ceil(GROUP_BLOCKS);
        groups.div_ceil(4) <= self.slot_blocks * SIZE as u64 - PLACES.offset as u64
    }

    /// Whether POOL3 to POOL5 hold; else which does not.
    pub fn check(&self) -> Result<(), PoolFormatError> {
        let size = self.block_size;
        require(
            (BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&size) && size.is_power_of_two(),
            "POOL3: block size",
        )?;
        let slot = self.slot_blocks;
        require((1..=SLOT_BLOCKS_MAX).contains(&slot) && slot.is_power_of_two(), "POOL4: the slots")?;
        require(self.log_blocks > 0 && self.log_blocks < 1 << 32, "POOL4: the ring")?;
        require(
            self.head <= self.log_blocks && self.base_block() + PAGE_PLACES < self.end_block,
            "POOL4: the head of the log",
        )?;
        require(self.free_blocks <= self.end_block.number(), "POOL5: the number of free blocks")?;
        let numbers = [self.number, self.sequence, self.next_volume];
        let is_small =
            self.generation <= GENERATION_MAX && numbers.iter().all(|number| *number <= NUMBER_MAX);
        require(is_small, "POOL5: a number that only rises")?;
        require(self.has_room_for(self.end_block), "a slot has no room for the places of all groups")?;
        require(!self.pool.is_nil() && self.next_volume > 0, "an id is nil")
    }

    /// The bytes of the whole slot that begins at block `address`. Panics if [`Superblock::check`] fails.
    pub fn encode(&self, slot: &mut [u8], address: Block) {
        assert_eq!(self.check(), Ok(()), "POOL3 to POOL5: {self:?}");
        assert!(self.slots().contains(&address), "POOL2: {address:?}");
        assert_eq!(slot.len() as u64, self.slot_blocks * SIZE as u64);
        slot.fill(0);
        MAGIC.put(slot, MAGIC_VALUE);
        VERSION.put_u32(slot, POOL_VERSION);
        POOL.put_uuid(slot, self.pool);
        EPOCH.put(slot, self.epoch);
        ADDRESS.put_u64(slot, address.number());
        for (field, value) in self.numbers() {
            field.put_u64(slot, value);
        }
        let places = pack_places(&self.places);
        slot[PLACES.offset..PLACES.offset + places.len()].copy_from_slice(&places);
        let checksum = checksum_without(slot, CHECKSUM);
        CHECKSUM.put_u32(slot, checksum);
    }

    fn numbers(&self) -> [(Field, u64); 13] {
        [
            (NUMBER, self.number),
            (BLOCK_SIZE, self.block_size),
            (SLOT_BLOCKS, self.slot_blocks),
            (LOG_BLOCKS, self.log_blocks),
            (END_BLOCK, self.end_block.number()),
            (GENERATION, self.generation),
            (FREE_BLOCKS, self.free_blocks),
            (SHARES, self.shares.pack()),
            (VOLUMES, self.volumes.pack()),
            (HEAD, self.head),
            (SEQUENCE, self.sequence),
            (NEXT_VOLUME, self.next_volume),
            (NODES, self.nodes),
        ]
    }

    /// How many blocks the slot has whose first block is `block`, if it may be one that begins at `address`.
    pub fn slot_length(block: &[u8], address: Block) -> Option<u64> {
        let length = SLOT_BLOCKS.u64(block);
        let sound = MAGIC.bytes(block) == MAGIC_VALUE && ADDRESS.u64(block) == address.number();
        (sound && (1..=SLOT_BLOCKS_MAX).contains(&length)).then_some(length)
    }

    /// The superblock in `slot`, all of it, which was read from block `address` on.
    pub fn decode(slot: &[u8], address: Block) -> Result<Superblock, PoolFormatError> {
        if MAGIC.bytes(slot) != MAGIC_VALUE {
            return Err(PoolFormatError::Absent);
        }
        if CHECKSUM.u32(slot) != checksum_without(slot, CHECKSUM) {
            return Err(PoolFormatError::Checksum);
        }
        if VERSION.u32(slot) != POOL_VERSION {
            return Err(PoolFormatError::Newer(VERSION.u32(slot)));
        }
        require(RESERVED.is_zero(slot), "reserved bytes are not zero")?;
        let mut superblock = Superblock {
            number: NUMBER.u64(slot),
            pool: POOL.uuid(slot),
            block_size: BLOCK_SIZE.u64(slot),
            slot_blocks: SLOT_BLOCKS.u64(slot),
            log_blocks: LOG_BLOCKS.u64(slot),
            end_block: Block::new(END_BLOCK.u64(slot)),
            generation: GENERATION.u64(slot),
            free_blocks: FREE_BLOCKS.u64(slot),
            shares: Link::unpack(SHARES.u64(slot)),
            volumes: Link::unpack(VOLUMES.u64(slot)),
            head: HEAD.u64(slot),
            sequence: SEQUENCE.u64(slot),
            next_volume: NEXT_VOLUME.u64(slot),
            nodes: NODES.u64(slot),
            epoch: EPOCH.get(slot),
            places: Vec::new(),
        };
        superblock.check()?;
        let sound = slot.len() as u64 == superblock.slot_blocks * SIZE as u64;
        require(
            sound && ADDRESS.u64(slot) == address.number() && superblock.slots().contains(&address),
            "POOL2: the address",
        )?;
        let groups = (superblock.end_block - superblock.base_block()).div_ceil(GROUP_BLOCKS);
        superblock.places = unpack_places(&slot[PLACES.offset..], groups)
            .map_err(|_| PoolFormatError::Invalid("the places of the space map"))?;
        Ok(superblock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the slots of [`sample`] begin.
    const FIRST: Block = Block::new(0);
    const SECOND: Block = Block::new(2);

    fn sample() -> Superblock {
        Superblock {
            number: 3,
            pool: Uuid::from_u128(0x0102),
            block_size: 65536,
            slot_blocks: 2,
            log_blocks: 16,
            end_block: Block::new(100_000),
            generation: 7,
            free_blocks: 8,
            shares: Link::unpack(0x0900_0000_0009),
            volumes: Link::unpack(0x0a00_0000_000a),
            head: 11,
            sequence: 12,
            next_volume: 13,
            nodes: 14,
            epoch: Epoch { generation: 15, revision: 16 },
            places: vec![Place::First, Place::Never, Place::Second, Place::Never],
        }
    }

    fn bytes(superblock: &Superblock) -> Vec<u8> {
        let mut slot = vec![0xff; usize::try_from(superblock.slot_blocks).expect("small") * SIZE];
        superblock.encode(&mut slot, superblock.slots()[0]);
        slot
    }

    #[test]
    fn golden_bytes_and_round_trip() {
        let slot = bytes(&sample());
        assert_eq!(&slot[..8], MAGIC_VALUE);
        assert_eq!(
            (slot[16], slot[24], slot[47], slot[80], slot[112], slot[144], slot[152], slot[256]),
            (2, 3, 2, 7, 11, 15, 16, 0b10_0001)
        );
        assert_eq!(Superblock::slot_length(&slot[..SIZE], SECOND), Some(2));
        assert_eq!(Superblock::decode(&slot, SECOND), Ok(sample()));
    }

    #[test]
    fn every_single_bit_of_damage_is_refused() {
        let slot = bytes(&sample());
        for bit in 0..slot.len() * 8 {
            let mut damaged = slot.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&damaged, SECOND).is_err(), "POOL1: bit {bit}");
        }
        assert!(Superblock::decode(&slot, FIRST).is_err(), "POOL2");
    }

    #[test]
    fn both_slots_may_hold_the_same_superblock() {
        let (sample, mut slot) = (sample(), vec![0; 2 * SIZE]);
        assert_eq!(sample.slots(), [SECOND, FIRST], "the third is written to the second slot first");
        sample.encode(&mut slot, FIRST);
        assert_eq!(Superblock::decode(&slot, FIRST), Ok(sample), "POOL2");
        assert!(Superblock::decode(&slot, SECOND).is_err(), "POOL2: each says where it lies");
    }

    #[test]
    fn numbers_that_could_not_rise_and_more_free_blocks_than_there_are_are_refused() {
        let wrong = [
            Superblock { free_blocks: 100_001, ..sample() },
            Superblock { generation: u64::MAX, ..sample() },
            Superblock { number: u64::MAX - 1, ..sample() },
            Superblock { sequence: u64::MAX, ..sample() },
            Superblock { next_volume: u64::MAX, ..sample() },
            Superblock { end_block: sample().base_block() + PAGE_PLACES, ..sample() },
        ];
        for superblock in wrong {
            assert!(superblock.check().is_err(), "POOL4, POOL5: {superblock:?}");
        }
    }

    #[test]
    fn slots_have_room_to_grow_into() {
        assert_eq!(slot_blocks_for(Block::new(1000)), 1);
        for end_block in [1000, 1 << 28, 1 << 31] {
            let slot_blocks = slot_blocks_for(Block::new(end_block));
            let superblock = Superblock { slot_blocks, end_block: Block::new(end_block * 16), ..sample() };
            assert!(superblock.has_room_for(superblock.end_block), "{end_block}");
        }
    }
}
