//! Walking a store: everything that it leads to is read and verified, nothing is written.
//!
//! Memory: the cache of nodes, what the log changes, and the marks and pages of one window of the store, a bit a block
//! each; a store of more than one window is walked once for each.

use super::super::map::{Map, SnapshotBytes};
use super::super::recover::{Reading, load};
use super::super::{SnapshotStore, StoreError};
use crate::pdata::{self, AllocClass};
use std::collections::BTreeMap;
use varve_block::{Arena, Device, Extent, IoError};
use varve_format::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES};
use varve_format::pdata::{Block, BlockRun};
use varve_format::store::{Descriptor, FIRST_ADDRESS, FIRST_BLOCK, PART_SIZE, Uuid};

/// What a walk found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReport {
    /// The store's id.
    pub id: Uuid,
    /// Number of times that a superblock was written.
    pub generation: u64,
    /// The snapshots, oldest first.
    pub snapshots: Vec<Descriptor>,
    /// The snapshot to which the origin was being rolled back.
    pub rollback: Option<u64>,
    /// Nodes of the maps.
    pub nodes: u64,
    /// Blocks of the table of snapshots.
    pub table_blocks: u64,
    /// Records of the log behind the last checkpoint.
    pub log_records: u64,
    /// Entries of the table and of these records.
    pub entries: u64,
    /// Bytes of preserved and written content.
    pub content_bytes: u64,
    /// Bytes that have no owner.
    pub free_bytes: u64,
}

/// So many blocks are looked at in one walk: a TiB of a store.
const WINDOW_BLOCKS: u64 = 1 << 28;

/// What an audit of a store has counted.
#[derive(Default)]
struct Audit {
    nodes: u64,
    /// Blocks of maps and their content.
    mapped: u64,
    /// Blocks that have an owner.
    owned: u64,
    /// Blocks that are marked as in use.
    used: u64,
    /// Bytes of each snapshot.
    bytes: BTreeMap<u64, SnapshotBytes>,
}

/// One bit for each block of a window of a store.
struct Marks {
    words: Vec<u64>,
    window: BlockRun,
    /// The end of the store.
    end: Block,
    count: u64,
}

impl Marks {
    fn new(window: BlockRun, end: Block) -> Self {
        assert!(window.count > 0 && window.end() <= end, "a window lies in the store");
        let words = vec![0; super::super::index(window.count.div_ceil(64))];
        Self { words, window, end, count: 0 }
    }

    /// The place of a block of the window: a word and a bit of it.
    fn bit(&self, block: Block) -> (usize, u64) {
        assert!((self.window.first..self.window.end()).contains(&block), "marks are of this window");
        let index = block - self.window.first;
        (super::super::index(index / 64), 1 << (index % 64))
    }

    fn is_set(&self, block: Block) -> bool {
        let (word, bit) = self.bit(block);
        self.words[word] & bit != 0
    }

    /// Marks the blocks that lie in the window; whether all of them are in the store, and none was marked.
    fn set(&mut self, run: BlockRun) -> bool {
        let mut alone = run.end() <= self.end;
        for block in run.intersect(self.window).into_iter().flat_map(BlockRun::blocks) {
            alone &= !self.is_set(block);
            let (word, bit) = self.bit(block);
            self.words[word] |= bit;
            self.count += 1;
        }
        alone
    }
}

/// Visits everything that has an owner, `others` besides the maps, and compares it with the space map, window by
/// window. `looks`: the store is not in use, so what was read of it need not be kept.
async fn audit(
    blocks: &pdata::Map,
    map: &Map,
    others: &[BlockRun],
    window_blocks: u64,
    looks: bool,
) -> Result<Audit, StoreError> {
    assert!(window_blocks > 0, "a window has blocks");
    let end = blocks.pages().end_block();
    let mut audit = Audit::default();
    let mut start = Block::default();
    while start < end {
        let window = BlockRun::between(start, end.min(start + window_blocks));
        audit.add_window(blocks, map, others, window).await?;
        start = window.end();
        if looks {
            blocks.pages().forget_unchanged_pages();
        }
    }
    let pages = blocks.pages();
    if audit.used != audit.owned + pages.unreachable_blocks() {
        return Err(StoreError::Corrupt("blocks are marked as in use that belong to nobody"));
    }
    if end.number() - audit.used != pages.available(AllocClass::Reserve) {
        return Err(StoreError::Corrupt("the number of free blocks is wrong"));
    }
    if audit.nodes != pages.nodes() {
        return Err(StoreError::Corrupt("the number of nodes of the maps is wrong"));
    }
    let counted = map.bytes().into_iter().filter(|(_, bytes)| *bytes != SnapshotBytes::default());
    if !counted.eq(audit.bytes.iter().map(|(id, bytes)| (*id, *bytes))) {
        return Err(StoreError::Corrupt("the bytes of a snapshot are counted wrong")); // STOREMAP3
    }
    Ok(audit)
}

impl Audit {
    async fn add_window(
        &mut self,
        blocks: &pdata::Map,
        map: &Map,
        others: &[BlockRun],
        window: BlockRun,
    ) -> Result<(), StoreError> {
        const SHARED: StoreError = StoreError::Corrupt("two owners share a place in the exception store");
        let end = blocks.pages().end_block();
        let mut marks = Marks::new(window, end);
        let groups = (0..end - FIRST_BLOCK).step_by(super::super::index(GROUP_BLOCKS));
        let places = groups.map(|group| FIRST_BLOCK + group);
        let places = places.map(|first| BlockRun::new(first, PAGE_PLACES.min(end - first)));
        if !others.iter().copied().chain(places).all(|run| marks.set(run)) {
            return Err(SHARED);
        }
        let before = marks.count;
        let mut alone = true;
        let visited = map.visit_blocks(|run| {
            alone &= marks.set(run);
            alone
        });
        let visited = visited.await?;
        if !alone {
            return Err(SHARED);
        }
        assert!(marks.count >= before, "marks are counted");
        self.mapped += marks.count - before;
        self.owned += marks.count;
        (self.nodes, self.bytes) = (visited.nodes, visited.bytes);
        for block in window.blocks() {
            let used = block < FIRST_BLOCK
                || blocks.run(|pages| pages.is_used(block)).await.map_err(|error| map.report(error))?;
            if marks.is_set(block) && !used {
                return Err(StoreError::Corrupt("a block that belongs to somebody is marked as free"));
            }
            self.used += u64::from(used);
        }
        Ok(())
    }
}

/// Reads and verifies the store on `device`: checksums, chains, places, owners.
pub async fn check_store(device: &Device, arena: &Arena) -> Result<StoreReport, StoreError> {
    check_store_in_windows(device, arena, WINDOW_BLOCKS).await
}

/// As [`check_store`], in windows of so many blocks, for tests of small stores.
#[doc(hidden)]
pub async fn check_store_in_windows(
    device: &Device,
    arena: &Arena,
    window_blocks: u64,
) -> Result<StoreReport, StoreError> {
    let loaded = load(device, arena, Reading::only()).await?;
    let found = audit(&loaded.blocks, &loaded.map, &loaded.others(), window_blocks, true).await?;
    let contents = loaded.contents.borrow();
    Ok(StoreReport {
        id: loaded.superblock.store,
        generation: loaded.superblock.generation,
        snapshots: contents.snapshots.values().cloned().collect(),
        rollback: contents.rollback.as_ref().map(|rollback| rollback.snapshot),
        nodes: found.nodes,
        table_blocks: loaded.table.len() as u64,
        log_records: loaded.log.blocks.len() as u64,
        entries: loaded.entries,
        content_bytes: (found.mapped - found.nodes) * PART_SIZE,
        free_bytes: (loaded.blocks.pages().end_block().number() - found.owned) * PART_SIZE,
    })
}

impl SnapshotStore {
    /// Asserts that every block of the store has exactly one owner, or is free, or will be, and that the bytes of
    /// snapshots are counted right. For tests; only while nothing is under way. Fails if the store cannot be read.
    #[doc(hidden)]
    pub async fn verify(&self) -> Result<(), IoError> {
        assert!(
            self.pipeline.is_idle() && self.copies.is_idle() && self.falls.is_idle(),
            "nothing is under way"
        );
        let others: Vec<BlockRun> = {
            let state = self.state.borrow();
            let own = [Extent::new(0, FIRST_ADDRESS), Extent::new(state.log.next, PART_SIZE)];
            own.into_iter()
                .chain(state.table.iter().chain(&state.log.blocks).copied())
                .map(BlockRun::of)
                .collect()
        };
        match audit(&self.blocks, &self.map, &others, WINDOW_BLOCKS, false).await {
            Ok(_) => Ok(()),
            Err(StoreError::Io(error)) => Err(error),
            Err(error) => panic!("STOREMAP2, STOREMAP3, SPACE2: {error}"),
        }
    }
}
