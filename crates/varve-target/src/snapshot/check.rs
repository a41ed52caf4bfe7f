//! Walking a store: everything that it leads to is read and verified, nothing is written.
//!
//! Memory: the cache of nodes, what the log changes, and one bit for each block of the store.

use super::map::{Map, report};
use super::recover::{Reading, load};
use super::{SnapshotStore, StoreError, blocks_of};
use crate::pdata;
use varve_block::{Arena, Device, Extent, IoError};
use varve_format::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES};
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
    /// Bytes that belong to nobody.
    pub free_bytes: u64,
}

/// What belongs to whom in a store.
struct Audit {
    nodes: u64,
    /// Blocks of maps and their content.
    mapped: u64,
    free: u64,
}

/// One bit for each block of a store.
struct Marks {
    words: Vec<u64>,
    end: u64,
    count: u64,
}

impl Marks {
    fn new(end: u64) -> Self {
        Self { words: vec![0; super::index(end.div_ceil(64))], end, count: 0 }
    }

    fn is_set(&self, block: u64) -> bool {
        self.words[super::index(block / 64)] >> (block % 64) & 1 == 1
    }

    /// Marks blocks; whether they were there and not marked.
    fn set(&mut self, extent: Extent) -> bool {
        let (first, count) = blocks_of(extent);
        let mut alone = first + count <= self.end;
        for block in first..(first + count).min(self.end) {
            alone &= !self.is_set(block);
            self.words[super::index(block / 64)] |= 1 << (block % 64);
        }
        self.count += count;
        alone
    }
}

/// Visits everything that belongs to somebody, `others` besides the maps, and compares it with the space map.
async fn audit(blocks: &pdata::Map, map: &Map, others: &[Extent]) -> Result<Audit, StoreError> {
    const SHARED: StoreError = StoreError::Corrupt("two owners share a place in the exception store");
    let end = blocks.pages().end_block();
    let mut marks = Marks::new(end);
    let mut alone = true;
    for extent in others {
        alone &= marks.set(*extent);
    }
    let mut group = FIRST_BLOCK;
    while group < end {
        let places = Extent::new(group * PART_SIZE, PAGE_PLACES.min(end - group) * PART_SIZE);
        alone &= marks.set(places);
        group += GROUP_BLOCKS;
    }
    if !alone {
        return Err(SHARED);
    }
    let before = marks.count;
    let nodes = map.visit_blocks(|extent| alone &= marks.set(extent)).await?;
    if !alone {
        return Err(SHARED);
    }
    let mut marked = FIRST_BLOCK;
    for block in FIRST_BLOCK..end {
        let used = blocks.run(|pages| pages.is_used(block)).await.map_err(report)?;
        if marks.is_set(block) && !used {
            return Err(StoreError::Corrupt("a block that belongs to somebody is marked as free"));
        }
        marked += u64::from(used);
    }
    if marked != marks.count + blocks.pages().unreachable_blocks() {
        return Err(StoreError::Corrupt("blocks are marked as in use that belong to nobody"));
    }
    if nodes != blocks.pages().nodes() {
        return Err(StoreError::Corrupt("the number of nodes of the maps is wrong"));
    }
    Ok(Audit { nodes, mapped: marks.count - before, free: end - marks.count })
}

/// Reads and verifies the store on `device`: checksums, chains, places, owners.
pub async fn check_store(device: &Device, arena: &Arena) -> Result<StoreReport, StoreError> {
    let loaded = load(device, arena, Reading::only()).await?;
    let found = audit(&loaded.blocks, &loaded.map, &loaded.others()).await?;
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
        free_bytes: found.free * PART_SIZE,
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
        let others: Vec<Extent> = {
            let state = self.state.borrow();
            let own = [Extent::new(0, FIRST_ADDRESS), Extent::new(state.log.next, PART_SIZE)];
            own.into_iter().chain(state.table.iter().chain(&state.log.blocks).copied()).collect()
        };
        match audit(&self.blocks, &self.map, &others).await {
            Ok(found) => {
                let counted =
                    self.map.bytes().values().map(|bytes| bytes.preserved + bytes.written).sum::<u64>();
                assert_eq!(counted, (found.mapped - found.nodes) * PART_SIZE, "P3");
                Ok(())
            }
            Err(StoreError::Io(error)) => Err(error),
            Err(error) => panic!("P2, F2: {error}"),
        }
    }
}
