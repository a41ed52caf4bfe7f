//! What a map is opened with.

use super::space::fresh_blocks;
use varve_block::Clock;
use varve_format::pdata::Block;
use varve_format::pdata::space_page::Place;
use varve_format::text::CachePolicy;

/// At most two to this power of pairs of generations are passed over when a map is opened.
const SKIPPED_BITS: u32 = 19;

/// What a map is opened with.
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// First half of the store's id; every block carries it.
    pub store: u64,
    /// The committed transaction.
    pub generation: u64,
    /// Generations that no transaction gets, an even number: a crash may have cut some short whose nodes lie on the disk (DESCENT3).
    pub skipped: u64,
    /// Block where the first group of the space map begins; the blocks before it are the owner's.
    pub base_block: Block,
    /// Number of the first block behind the store.
    pub end_block: Block,
    /// Blocks that were free at the last commit.
    pub free_blocks: u64,
    /// Where the pages of the space map lay at the last commit, by group.
    pub places: Vec<Place>,
    /// Nodes of all maps at the last commit.
    pub nodes: u64,
    /// Free blocks that only the map itself may use, so that deletes and commits go on when data finds no room.
    pub floor_blocks: u64,
    /// Bytes of nodes in memory.
    pub cache_bytes: u64,
    /// Which nodes are evicted.
    pub policy: CachePolicy,
}

impl MapOptions {
    /// Options for a fresh store of `end_block` blocks.
    pub fn fresh(store: u64, base_block: Block, end_block: Block) -> Self {
        Self {
            store,
            generation: 0,
            skipped: 0,
            base_block,
            end_block,
            free_blocks: fresh_blocks(base_block, end_block),
            places: Vec::new(),
            nodes: 0,
            floor_blocks: 64,
            cache_bytes: 64 << 20,
            policy: CachePolicy::default(),
        }
    }
}

/// DESCENT3: how many generations to pass over when a map is opened to be changed: another number each time, and an even one,
/// as superblocks may lie in turn by the generation.
pub fn skipped_generations(clock: &Clock) -> u64 {
    let mixed = (clock.now().0 ^ clock.date().0.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let skipped = mixed >> (64 - SKIPPED_BITS) << 1;
    assert!(skipped.is_multiple_of(2), "superblocks lie in turn");
    skipped
}
