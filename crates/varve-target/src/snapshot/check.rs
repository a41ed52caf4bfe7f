//! Walking a store: everything that it leads to is read and verified, nothing is written.

use super::recover::load;
use super::{SnapshotStore, StoreError, usable_size};
use varve_block::{Arena, Device, Extent};
use varve_format::store::{Descriptor, FIRST_ADDRESS, PART_SIZE, Uuid};

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
    /// Blocks of the checkpoint.
    pub checkpoint_blocks: u64,
    /// Records of the log behind it.
    pub log_records: u64,
    /// Entries in both.
    pub entries: u64,
    /// Bytes of preserved and written content.
    pub content_bytes: u64,
    /// Bytes that belong to nobody.
    pub free_bytes: u64,
}

/// Reads and verifies the store on `device`: checksums, chains, places, owners.
pub async fn check_store(device: &Device, arena: &Arena) -> Result<StoreReport, StoreError> {
    let loaded = load(device, arena, false).await?;
    let size = usable_size(device.shape().size);
    let owned = loaded.owned();
    if owned.windows(2).any(|pair| pair[0].end() > pair[1].offset) {
        return Err(StoreError::Corrupt("two owners share a place in the exception store"));
    }
    if owned.last().is_some_and(|last| last.end() > size) {
        return Err(StoreError::Corrupt("content lies beyond the end of the exception store"));
    }
    let owned_bytes: u64 = owned.iter().map(|extent| extent.length).sum();
    Ok(StoreReport {
        id: loaded.superblock.store,
        generation: loaded.superblock.generation,
        snapshots: loaded.contents.snapshots.values().cloned().collect(),
        rollback: loaded.contents.rollback.as_ref().map(|rollback| rollback.snapshot),
        checkpoint_blocks: loaded.checkpoint.len() as u64,
        log_records: loaded.log.blocks.len() as u64,
        entries: loaded.entries,
        content_bytes: loaded.contents.map.places().map(|extent| extent.length).sum(),
        free_bytes: size - owned_bytes,
    })
}

impl SnapshotStore {
    /// Asserts that every byte of the store has exactly one owner, or is free, or will be. For tests; only while
    /// nothing is under way.
    #[doc(hidden)]
    pub fn verify(&self) {
        assert!(
            self.pipeline.is_idle() && self.copies.is_idle() && self.falls.is_idle(),
            "nothing is under way"
        );
        let state = self.state.borrow();
        let mut owned: Vec<Extent> =
            vec![Extent::new(0, FIRST_ADDRESS), Extent::new(state.log.next, PART_SIZE)];
        owned.extend(state.checkpoint.iter().chain(&state.log.blocks).copied());
        owned.extend(state.contents.map.places());
        owned.extend(state.space.all());
        owned.sort_unstable();
        let mut at = 0;
        for extent in owned {
            assert_eq!(extent.offset, at, "P2, F3: every byte has one owner");
            at = extent.end();
        }
        assert_eq!(at, usable_size(self.store.borrow().shape().size), "no byte is lost");
    }
}
