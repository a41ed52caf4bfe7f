//! A node of the ordered map: sorted entries, in a leaf with their values, above it with links to children.
//!
//! One block of 4096 bytes: a header, then `count` entries without gaps, then zeros. The byte tables are
//! [`LAYOUT`], [`LEAF_ENTRY`] and [`BRANCH_ENTRY`].
//!
//! Invariants:
//! - NODE1. The checksum covers the whole block, with its own address and its generation.
//! - NODE2. Keys rise strictly.
//! - NODE3. A leaf has level 0; a branch of level n has children of level n - 1, and at least one.
//! - NODE4. A branch's entry holds the smallest key that its child may contain; the first one of all is 0.

use super::link::Link;
use super::{Block, BlockError, PDATA_BLOCK, checksum_without};
use crate::layout::{Field, Layout};
use varve_block::is_zero;

/// A key of the map.
pub type Key = u128;
/// A value of the map; what it means is its owner's business.
pub type Value = [u8; 16];

const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"VNOD");

const MAGIC: Field = Field::new(0, 4, "magic", "`VNOD`");
const CHECKSUM: Field = Field::new(4, 4, "checksum", "CRC32C of the block with this field zero");
const ADDRESS: Field = Field::new(8, 8, "address", "number of this block in the store");
const GENERATION: Field = Field::new(16, 8, "generation", "transaction in which the node was made");
const STORE: Field = Field::new(24, 8, "store", "first half of the store's id");
const LEVEL: Field = Field::new(32, 4, "level", "0 for a leaf, else distance to the leaves");
const COUNT: Field = Field::new(36, 4, "count", "number of entries");
const RESERVED: Field = Field::new(40, 24, "reserved", "zero");
const ENTRIES: Field = Field::new(64, 4032, "entries", "`count` entries, then zeros");

/// The byte table of a node.
pub const LAYOUT: Layout = Layout::new(
    "Map node",
    "A node of a copy-on-write B+tree. At any block of a store.",
    PDATA_BLOCK,
    &[MAGIC, CHECKSUM, ADDRESS, GENERATION, STORE, LEVEL, COUNT, RESERVED, ENTRIES],
);

const LEAF_KEY: Field = Field::new(0, 16, "key", "number of 16 bytes");
const LEAF_VALUE: Field = Field::new(16, 16, "value", "what the owner of the map stored");
/// The byte table of a leaf's entry.
pub const LEAF_ENTRY: Layout =
    Layout::new("Map node: entry of a leaf", "One key and its value.", 32, &[LEAF_KEY, LEAF_VALUE]);

const BRANCH_KEY: Field = Field::new(0, 16, "key", "smallest key that the child may contain");
const BRANCH_CHILD: Field = Field::new(
    16,
    8,
    "child",
    "bits 0 to 39: number of the child's block; bits 40 to 63: the low bits of the generation of the child",
);
/// The byte table of a branch's entry.
pub const BRANCH_ENTRY: Layout =
    Layout::new("Map node: entry of a branch", "One child.", 24, &[BRANCH_KEY, BRANCH_CHILD]);

/// Most entries of a leaf.
pub const LEAF_CAPACITY: usize = ENTRIES.size / LEAF_ENTRY.size;
/// Most entries of a branch.
pub const BRANCH_CAPACITY: usize = ENTRIES.size / BRANCH_ENTRY.size;
/// Highest level that a node may have; a full tree of it has more entries than a store has blocks.
pub const LEVEL_MAX: u32 = 12;

const _: () = assert!(LAYOUT.size == PDATA_BLOCK && LEAF_CAPACITY == 126 && BRANCH_CAPACITY == 168);

/// The entries of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Keys with values.
    Leaf(Vec<(Key, Value)>),
    /// Children, each with the smallest key that it may contain.
    Branch(Vec<(Key, Link)>),
}

/// A node, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its block.
    pub address: Block,
    /// Transaction in which it was made.
    pub generation: u64,
    /// First half of its store's id.
    pub store: u64,
    /// Distance to the leaves.
    pub level: u32,
    /// What it holds.
    pub entries: Entries,
}

impl Node {
    /// Number of entries.
    pub fn len(&self) -> usize {
        match &self.entries {
            Entries::Leaf(entries) => entries.len(),
            Entries::Branch(entries) => entries.len(),
        }
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether NODE2 to NODE4 hold; else which does not.
    pub fn check(&self) -> Result<(), BlockError> {
        match &self.entries {
            Entries::Leaf(entries) => {
                require(entries.len() <= LEAF_CAPACITY, "a leaf is too full")?;
                require(self.level == 0, "NODE3: a leaf above the ground")?;
                require(entries.windows(2).all(|pair| pair[0].0 < pair[1].0), "NODE2: keys out of order")
            }
            Entries::Branch(entries) => {
                require(entries.len() <= BRANCH_CAPACITY, "a branch is too full")?;
                require(
                    (1..=LEVEL_MAX).contains(&self.level) && !entries.is_empty(),
                    "NODE3: a branch without children",
                )?;
                require(entries.windows(2).all(|pair| pair[0].0 < pair[1].0), "NODE2: keys out of order")
            }
        }
    }

    /// Writes the node into `block`, 4096 bytes. Panics if [`Node::check`] fails.
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(self.check(), Ok(()), "NODE2 to NODE4");
        block.fill(0);
        MAGIC.put_u32(block, MAGIC_VALUE);
        ADDRESS.put_u64(block, self.address.number());
        GENERATION.put_u64(block, self.generation);
        STORE.put_u64(block, self.store);
        LEVEL.put_u32(block, self.level);
        COUNT.put_u32(block, u32::try_from(self.len()).expect("a node holds at most 168 entries"));
        let room = &mut block[ENTRIES.offset..ENTRIES.end()];
        match &self.entries {
            Entries::Leaf(entries) => {
                for (slot, (key, value)) in room.chunks_exact_mut(LEAF_ENTRY.size).zip(entries) {
                    LEAF_KEY.put(slot, &key.to_le_bytes());
                    LEAF_VALUE.put(slot, value);
                }
            }
            Entries::Branch(entries) => {
                for (slot, (key, child)) in room.chunks_exact_mut(BRANCH_ENTRY.size).zip(entries) {
                    BRANCH_KEY.put(slot, &key.to_le_bytes());
                    BRANCH_CHILD.put_u64(slot, child.pack());
                }
            }
        }
        let checksum = checksum(block);
        CHECKSUM.put_u32(block, checksum);
    }

    /// The node in `block`, which was read at block `address`.
    pub fn decode(block: &[u8], address: Block) -> Result<Node, BlockError> {
        assert_eq!(block.len(), PDATA_BLOCK, "a node is one block");
        if MAGIC.u32(block) != MAGIC_VALUE || CHECKSUM.u32(block) != checksum(block) {
            return Err(BlockError::Checksum);
        }
        let written_for = Block::new(ADDRESS.u64(block));
        if written_for != address {
            return Err(BlockError::Misplaced(written_for));
        }
        require(RESERVED.is_zero(block), "reserved bytes are not zero")?;
        let (level, count) = (LEVEL.u32(block), COUNT.u32(block) as usize);
        let entries = if level == 0 { decode_leaf(block, count)? } else { decode_branch(block, count)? };
        let node =
            Node { address, generation: GENERATION.u64(block), store: STORE.u64(block), level, entries };
        node.check()?;
        Ok(node)
    }
}

impl Link {
    /// What leads to `node`.
    pub fn to(node: &Node) -> Link {
        Link::new(node.address, node.generation)
    }

    /// Whether `node` is the one that it leads to.
    pub fn leads_to(self, node: &Node) -> bool {
        node.address == self.block() && Link::to(node) == self
    }
}

fn decode_leaf(block: &[u8], count: usize) -> Result<Entries, BlockError> {
    let slots = slots(block, count, LEAF_ENTRY.size)?;
    Ok(Entries::Leaf(slots.map(|slot| (key(LEAF_KEY.bytes(slot)), value(LEAF_VALUE.bytes(slot)))).collect()))
}

fn decode_branch(block: &[u8], count: usize) -> Result<Entries, BlockError> {
    let slots = slots(block, count, BRANCH_ENTRY.size)?;
    let child = |slot: &[u8]| (key(BRANCH_KEY.bytes(slot)), Link::unpack(BRANCH_CHILD.u64(slot)));
    Ok(Entries::Branch(slots.map(child).collect()))
}

/// The first `count` slots of `size` bytes, if they fit and nothing but zeros follows.
fn slots(block: &[u8], count: usize, size: usize) -> Result<impl Iterator<Item = &[u8]>, BlockError> {
    let room = ENTRIES.bytes(block);
    require(count <= room.len() / size, "more entries than a node can hold")?;
    require(is_zero(&room[count * size..]), "bytes behind the entries are not zero")?;
    Ok(room.chunks_exact(size).take(count))
}

fn require(condition: bool, broken: &'static str) -> Result<(), BlockError> {
    if condition { Ok(()) } else { Err(BlockError::Invalid(broken)) }
}

fn key(bytes: &[u8]) -> Key {
    Key::from_le_bytes(value(bytes))
}

fn value(bytes: &[u8]) -> Value {
    bytes.try_into().expect("the layout gives 16 bytes")
}

fn checksum(block: &[u8]) -> u32 {
    checksum_without(block, CHECKSUM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leaf(count: u128) -> Node {
        let entries = (0..count).map(|index| (index * 3 + 1, [index as u8; 16])).collect();
        Node {
            address: Block::new(7),
            generation: 5,
            store: 0x0102,
            level: 0,
            entries: Entries::Leaf(entries),
        }
    }

    fn bytes(node: &Node) -> Vec<u8> {
        let mut block = vec![0xff; PDATA_BLOCK];
        node.encode(&mut block);
        block
    }

    fn seal(block: &mut [u8]) {
        let sum = checksum(block);
        CHECKSUM.put_u32(block, sum);
    }

    #[test]
    fn golden_bytes() {
        let block = bytes(&leaf(1));
        assert_eq!(&block[..4], b"VNOD");
        assert_eq!((block[8], block[16], block[24], block[25], block[36]), (7, 5, 2, 1, 1));
        assert_eq!(block[64], 1, "key 1");
        assert!(block[65..].iter().all(|byte| *byte == 0));
        assert_eq!(block.len(), PDATA_BLOCK);
    }

    #[test]
    fn every_single_bit_of_damage_is_refused() {
        let block = bytes(&leaf(126));
        for bit in 0..block.len() * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Node::decode(&damaged, Block::new(7)).is_err(), "NODE1: bit {bit}");
        }
        assert_eq!(Node::decode(&block, Block::new(8)), Err(BlockError::Misplaced(Block::new(7))), "NODE1");
    }

    #[test]
    fn contradictions_are_refused_with_a_sound_checksum() {
        let cases: [(usize, u8); 5] = [(36, 3), (40, 1), (36, 200), (32, 1), (64 + 32, 0)];
        for (at, byte) in cases {
            let mut block = bytes(&leaf(2));
            block[at] = byte;
            seal(&mut block);
            let found = Node::decode(&block, Block::new(7));
            // Level 1 re-reads the bytes as a branch, whose keys are then out of order or followed by rubbish.
            assert!(matches!(found, Err(BlockError::Invalid(_))), "byte {at} = {byte}: {found:?}");
        }
    }

    fn at(address: u64, generation: u64) -> Node {
        Node { address: Block::new(address), generation, ..leaf(1) }
    }

    #[test]
    fn a_link_leads_to_the_node_of_its_block_and_generation_alone() {
        let link = Link::to(&at(0x12_3456_789a, 0x0fed_cba9));
        assert_eq!(link.pack(), 0xedcb_a912_3456_789a, "LINK1: golden");
        assert_eq!((link.block(), Link::unpack(link.pack())), (Block::new(0x12_3456_789a), link));
        assert!(link.leads_to(&at(0x12_3456_789a, 0x0fed_cba9)));
        assert!(!link.leads_to(&at(0x12_3456_789a, 0x0fed_cba8)));
        assert!(!link.leads_to(&at(0x12_3456_789b, 0x0fed_cba9)));
        assert!(link.leads_to(&at(0x12_3456_789a, 0x1fed_cba9 + (1 << 24))), "2^24 transactions later");
        assert!(Link::NONE.is_none() && !link.is_none());
    }

    #[test]
    #[should_panic(expected = "LINK2")]
    fn a_block_that_does_not_fit_is_not_cut() {
        Link::to(&at(Link::BLOCK_END.number(), 1));
    }

    proptest! {
        #[test]
        fn nodes_survive_the_round_trip(
            keys in proptest::collection::btree_map(any::<u128>(), any::<[u8; 16]>(), 0..=LEAF_CAPACITY),
            children in proptest::collection::btree_map(any::<u128>(), any::<u64>(), 1..=BRANCH_CAPACITY),
            address: u64, generation: u64, level in 1..=LEVEL_MAX,
        ) {
            let address = Block::new(address);
            let leaf = Node { address, generation, store: 1, level: 0, entries: Entries::Leaf(keys.into_iter().collect()) };
            let children = children.into_iter().map(|(key, child)| (key, Link::unpack(child))).collect();
            let branch = Node { address, generation, store: 1, level, entries: Entries::Branch(children) };
            prop_assert_eq!(Node::decode(&bytes(&leaf), address), Ok(leaf));
            prop_assert_eq!(Node::decode(&bytes(&branch), address), Ok(branch));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(mut block in proptest::collection::vec(any::<u8>(), PDATA_BLOCK), level in 0u32..3, count in 0u32..200) {
            MAGIC.put_u32(&mut block, MAGIC_VALUE);
            ADDRESS.put_u64(&mut block, 1);
            RESERVED.put(&mut block, &[0; 24]);
            LEVEL.put_u32(&mut block, level);
            COUNT.put_u32(&mut block, count);
            seal(&mut block);
            let _ = Node::decode(&block, Block::new(1));
        }
    }
}
