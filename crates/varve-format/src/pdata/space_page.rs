//! A page of the space map: which blocks of one group of a store are in use.
//!
//! A store is cut into groups of [`GROUP_BLOCKS`] blocks. The first two blocks of a group are the two places of its
//! page: a commit writes the one that the last commit does not count, and the superblock says, in two bits a group,
//! which one is valid. The byte table is [`LAYOUT`].
//!
//! Invariants:
//! - SPACEPAGE1. The checksum covers the whole block, with its own address and its generation.
//! - SPACEPAGE2. The group's own two blocks are marked as in use.
//! - SPACEPAGE3. `used` is the number of bits that are set.

use super::{Block, BlockError, PDATA_BLOCK, checksum_without};
use crate::layout::{Field, Layout};

const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"VSPC");

const MAGIC: Field = Field::new(0, 4, "magic", "`VSPC`");
const CHECKSUM: Field = Field::new(4, 4, "checksum", "CRC32C of the block with this field zero");
const ADDRESS: Field = Field::new(8, 8, "address", "number of this block in the store");
const GENERATION: Field = Field::new(16, 8, "generation", "transaction that wrote the page");
const STORE: Field = Field::new(24, 8, "store", "first half of the store's id");
const GROUP: Field = Field::new(32, 8, "group", "number of the group");
const USED: Field = Field::new(40, 4, "used", "number of blocks in use");
const RESERVED: Field = Field::new(44, 20, "reserved", "zero");
const BITS: Field = Field::new(64, 4032, "bits", "a bit a block, lowest bit first; 1 is in use");

/// The byte table of a page.
pub const LAYOUT: Layout = Layout::new(
    "Space map page",
    "Which blocks of a group are in use. In the first two blocks of every group, written in turn.",
    PDATA_BLOCK,
    &[MAGIC, CHECKSUM, ADDRESS, GENERATION, STORE, GROUP, USED, RESERVED, BITS],
);

/// Blocks of a group.
pub const GROUP_BLOCKS: u64 = BITS.size as u64 * 8;
/// Blocks at the start of a group that hold its page.
pub const PAGE_PLACES: u64 = 2;
const WORDS: usize = BITS.size / 8;

const _: () = assert!(LAYOUT.size == PDATA_BLOCK && GROUP_BLOCKS == 32_256);

/// Which of a group's two places holds the valid page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// None: no block of the group was ever used.
    Never,
    /// The group's first block.
    First,
    /// The group's second block.
    Second,
}

/// Packs places four to a byte, lowest bits first, as superblocks hold them.
pub fn pack_places(places: &[Place]) -> Vec<u8> {
    let two_bits = |place: &Place| match place {
        Place::Never => 0,
        Place::First => 1,
        Place::Second => 2,
    };
    let byte = |four: &[Place]| four.iter().rev().fold(0, |byte, place| byte << 2 | two_bits(place));
    places.chunks(4).map(byte).collect()
}

/// Unpacks the first `count` places that [`pack_places`] packed. What is behind them must be zeros, and is not unpacked: most
/// superblocks have room for many more places than are used.
pub fn unpack_places(bytes: &[u8], count: u64) -> Result<Vec<Place>, BlockError> {
    const INVALID: BlockError = BlockError::Invalid("the places of the space map");
    let place = |two_bits: u8| match two_bits & 3 {
        0 => Ok(Place::Never),
        1 => Ok(Place::First),
        2 => Ok(Place::Second),
        _ => Err(INVALID),
    };
    let count = usize::try_from(count).map_err(|_| INVALID)?;
    let (packed, behind) = bytes.split_at_checked(count.div_ceil(4)).ok_or(INVALID)?;
    let unpacked = packed.iter().flat_map(|byte| [0, 2, 4, 6].map(|shift| place(byte >> shift)));
    let mut places = unpacked.collect::<Result<Vec<Place>, BlockError>>()?;
    let is_end =
        places.drain(count..).all(|place| place == Place::Never) && behind.iter().all(|byte| *byte == 0);
    if is_end { Ok(places) } else { Err(INVALID) }
}

/// A page, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpacePage {
    /// Transaction that wrote it.
    pub generation: u64,
    /// First half of its store's id.
    pub store: u64,
    /// Number of the group.
    pub group: u64,
    used: u32,
    words: Vec<u64>,
}

impl SpacePage {
    /// The page of a group of which only its own places are in use.
    pub fn new(store: u64, group: u64) -> Self {
        let mut page = Self { generation: 0, store, group, used: 0, words: vec![0; WORDS] };
        page.set(0, true);
        page.set(1, true);
        page
    }

    /// Number of blocks in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Whether block `index` of the group is in use.
    pub fn is_used(&self, index: u64) -> bool {
        self.words[word(index)] >> (index % 64) & 1 == 1
    }

    /// Marks block `index` of the group; its mark must change.
    pub fn set(&mut self, index: u64, used: bool) {
        assert_ne!(
            self.is_used(index),
            used,
            "SPACEPAGE3: block {index} of group {} is marked twice",
            self.group
        );
        self.words[word(index)] ^= 1 << (index % 64);
        self.used = if used { self.used + 1 } else { self.used - 1 };
    }

    /// The first run of blocks not in use at or after `from`, at most `limit` long and before `end`: start and length.
    pub fn free_run(&self, from: u64, end: u64, limit: u64) -> Option<(u64, u64)> {
        let start = self.next(from, end, false)?;
        let stop = self.next(start, end.min(start.saturating_add(limit)), true);
        let stop = stop.unwrap_or(end.min(start.saturating_add(limit)));
        Some((start, stop - start))
    }

    /// The first block from `from` on, before `end`, that is in use or not.
    fn next(&self, from: u64, end: u64, used: bool) -> Option<u64> {
        let end = end.min(GROUP_BLOCKS);
        let mut at = from;
        while at < end {
            let bits = if used { self.words[word(at)] } else { !self.words[word(at)] } >> (at % 64);
            if bits != 0 {
                let found = at + u64::from(bits.trailing_zeros());
                return (found < end).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Writes the page, for the place at block `address`, into `block`.
    pub fn encode(&self, block: &mut [u8], address: Block) {
        assert!(self.is_used(0) && self.is_used(1), "SPACEPAGE2");
        block.fill(0);
        MAGIC.put_u32(block, MAGIC_VALUE);
        ADDRESS.put_u64(block, address.number());
        GENERATION.put_u64(block, self.generation);
        STORE.put_u64(block, self.store);
        GROUP.put_u64(block, self.group);
        USED.put_u32(block, self.used);
        for (slot, word) in block[BITS.offset..BITS.end()].chunks_exact_mut(8).zip(&self.words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        let checksum = checksum(block);
        CHECKSUM.put_u32(block, checksum);
    }

    /// The page in `block`, which was read at block `address`.
    pub fn decode(block: &[u8], address: Block) -> Result<SpacePage, BlockError> {
        assert_eq!(block.len(), PDATA_BLOCK, "a page is one block");
        if MAGIC.u32(block) != MAGIC_VALUE || CHECKSUM.u32(block) != checksum(block) {
            return Err(BlockError::Checksum);
        }
        let written_for = Block::new(ADDRESS.u64(block));
        if written_for != address {
            return Err(BlockError::Misplaced(written_for));
        }
        if !RESERVED.is_zero(block) {
            return Err(BlockError::Invalid("reserved bytes are not zero"));
        }
        let words: Vec<u64> = BITS
            .bytes(block)
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("chunks of 8 bytes")))
            .collect();
        let used = words.iter().map(|word| word.count_ones()).sum();
        if words[0] & 3 != 3 {
            return Err(BlockError::Invalid("SPACEPAGE2: the page's own blocks are not in use"));
        }
        if USED.u32(block) != used {
            return Err(BlockError::Invalid("SPACEPAGE3: the count of used blocks"));
        }
        let (generation, store, group) = (GENERATION.u64(block), STORE.u64(block), GROUP.u64(block));
        Ok(SpacePage { generation, store, group, used, words })
    }
}

fn word(index: u64) -> usize {
    assert!(index < GROUP_BLOCKS);
    usize::try_from(index / 64).expect("a group has 504 words")
}

fn checksum(block: &[u8]) -> u32 {
    checksum_without(block, CHECKSUM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let mut page = SpacePage::new(1, 2);
        page.generation = 3;
        page.set(9, true);
        let mut block = vec![0; PDATA_BLOCK];
        page.encode(&mut block, Block::new(64));
        assert_eq!(&block[..4], b"VSPC");
        assert_eq!((block[8], block[16], block[24], block[32], block[40]), (64, 3, 1, 2, 3));
        assert_eq!((block[64], block[65]), (3, 2));
        assert_eq!(SpacePage::decode(&block, Block::new(64)), Ok(page));
    }

    #[test]
    fn places_survive_the_round_trip() {
        let places = [Place::Never, Place::First, Place::Second, Place::First, Place::Second];
        let packed = pack_places(&places);
        assert_eq!(packed, [0b0110_0100, 2]);
        assert_eq!(unpack_places(&packed, 5).expect("sound"), places);
        assert_eq!(unpack_places(&[packed[0], 2, 0, 0], 5).expect("zeros behind them"), places);
        let (neither, another, behind) = (&[0xc0][..], &[packed[0], 6][..], &[packed[0], 2, 1][..]);
        for (bytes, count) in
            [(neither, 4), (another, 5), (behind, 5), (&packed[..], 9), (&packed[..], u64::MAX)]
        {
            assert!(unpack_places(bytes, count).is_err(), "{count} of {bytes:?}");
        }
    }

    #[test]
    fn every_single_bit_of_damage_is_refused() {
        let mut block = vec![0; PDATA_BLOCK];
        SpacePage::new(1, 2).encode(&mut block, Block::new(64));
        for bit in 0..block.len() * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(SpacePage::decode(&damaged, Block::new(64)).is_err(), "SPACEPAGE1: bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn free_runs_are_what_a_slow_search_finds(
            marks in proptest::collection::btree_set(2u64..400, 0..200), from in 0u64..420, end in 0u64..420, limit in 1u64..50,
        ) {
            let mut page = SpacePage::new(0, 0);
            for mark in &marks {
                page.set(*mark, true);
            }
            let free = |index: u64| index >= 2 && !marks.contains(&index);
            let start = (from..end).find(|index| free(*index));
            let expected = start.map(|start| {
                let length = (start..end).take_while(|index| free(*index)).take(limit as usize).count();
                (start, length as u64)
            });
            prop_assert_eq!(page.free_run(from, end, limit), expected);
        }

        #[test]
        fn pages_survive_the_round_trip(marks in proptest::collection::btree_set(2u64..GROUP_BLOCKS, 0..500), address: u64) {
            let mut page = SpacePage::new(5, 6);
            for mark in &marks {
                page.set(*mark, true);
            }
            let mut block = vec![0; PDATA_BLOCK];
            let address = Block::new(address);
            page.encode(&mut block, address);
            prop_assert_eq!(SpacePage::decode(&block, address), Ok(page));
        }
    }
}
