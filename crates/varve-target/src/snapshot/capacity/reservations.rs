//! How much space there is in a store, and what is reserved of it.
//!
//! Space is taken only beyond what other work must always get: a checkpoint needs blocks for its table of
//! snapshots, an entry without data a block of the log, and every change blocks for the nodes that it makes anew. So
//! at 100 % full snapshots can still be removed, which is what makes room.

use super::super::SnapshotStore;
use crate::pdata::{AllocClass, MapError, Pace, Pages, Side, WRITE_BACK_MAX};
use varve_block::{Extent, IoError, LockMode, RangeGuard};
use varve_format::pdata::{Block, BlockRun};
use varve_format::store::PART_SIZE;

/// Blocks of the log that are left to entries without data.
const LOG_BLOCKS: u64 = 3;
/// Dirty nodes that removals leave to the next checkpoint.
const DIRTY_GENTLE: u64 = 64;
/// The least number of entries of a node above the leaves, as a rule.
const FAN_OUT: u64 = 42;

/// The most blocks that `steps` changes of a map take for nodes: copies of those on their paths, the same again
/// for those that are full and split, and new ones.
fn node_blocks(pages: &Pages, steps: u64) -> u64 {
    let nodes = pages.nodes();
    let height = u64::from(nodes.max(1).ilog(FAN_OUT)) + 2;
    2 * nodes.min(steps * height) + steps / 32 + 3
}

impl SnapshotStore {
    /// Blocks for the nodes that `entries` mappings of `bytes` bytes in all will change.
    pub(in crate::snapshot) fn blocks_for_nodes(&self, pages: &Pages, entries: usize, bytes: u64) -> u64 {
        let chunks = bytes / self.map.chunk_size() + entries as u64;
        node_blocks(pages, 2 * chunks)
    }

    /// Whether there are blocks for the nodes that `entries` mappings of `bytes` bytes in all will change, besides those for
    /// the next checkpoint.
    pub(in crate::snapshot) fn has_room_for_nodes(&self, entries: usize, bytes: u64) -> bool {
        assert!(entries > 0, "something is to be entered");
        let pages = self.blocks.pages();
        let nodes = self.blocks_for_nodes(&pages, entries, bytes.min(self.options.batch_bytes));
        pages.available(AllocClass::Reserve) >= pages.kept_for_commit() + nodes
    }

    /// Bytes that data may take, if that adds at most `entries` mappings of `bytes` bytes in all to the maps.
    pub(in crate::snapshot) fn available(&self, entries: usize, bytes: u64) -> u64 {
        self.available_of(&self.blocks.pages(), entries, bytes)
    }

    /// As [`SnapshotStore::available`], within an attempt: a task that takes space asks in the same moment, for others
    /// take some while it waits for a page.
    pub(in crate::snapshot) fn available_of(&self, pages: &Pages, entries: usize, bytes: u64) -> u64 {
        let nodes = self.blocks_for_nodes(pages, entries, bytes);
        pages.available(AllocClass::Normal).saturating_sub(nodes) * PART_SIZE
    }

    /// Keeps the blocks that the next checkpoint needs; to be called when its table gets longer or
    /// shorter (SNAPSHOT9).
    pub(in crate::snapshot) fn keep_for_checkpoint(&self) {
        let blocks = self.contents.borrow().table_blocks() + LOG_BLOCKS;
        self.blocks.pages().keep_for_commit(blocks);
    }

    /// Whether an entry without data may be logged without a checkpoint first, and leaves room for another one when the
    /// table has grown by `growth` blocks.
    pub(in crate::snapshot) fn log_has_room(&self, growth: u64) -> bool {
        let pages = self.blocks.pages();
        pages.available(AllocClass::Reserve) + LOG_BLOCKS > pages.kept_for_commit() + growth
    }

    /// Whether a checkpoint would set anything free.
    pub(in crate::snapshot) fn checkpoint_gains(&self) -> bool {
        let gain = self.blocks.pages().reclaimable_blocks() + self.state.borrow().log.blocks.len() as u64;
        gain > 0 || !self.contents.borrow().deleting.is_empty()
    }

    /// Takes runs for the content of a record, or the block of the record behind it: as few as there are, and all of
    /// them or what is free for `room`. The first one begins at `behind` if that is free.
    pub(in crate::snapshot) async fn take_for_record(
        &self,
        behind: Block,
        blocks: u64,
        class: AllocClass,
    ) -> Result<Vec<BlockRun>, IoError> {
        let (mut runs, mut left): (Vec<BlockRun>, u64) = (Vec::new(), blocks);
        while left > 0 {
            let taken = self.blocks.run(|pages| {
                let left = left.min(pages.available(class));
                let first = if runs.is_empty() { pages.take_at(behind, left)? } else { BlockRun::default() };
                if first.count > 0 { Ok(first) } else { pages.take_on(Side::Near, left) }
            });
            match taken.await {
                Ok(run) => {
                    left -= run.count;
                    runs.push(run);
                }
                Err(MapError::Full) => break,
                Err(error) => {
                    runs.into_iter().for_each(|run| self.blocks.pages().untake(run));
                    return Err(self.map.report(error));
                }
            }
        }
        assert_eq!(
            runs.iter().map(|run| run.count).sum::<u64>() + left,
            blocks,
            "SPACE2: no more than was asked"
        );
        Ok(runs)
    }

    /// Writes dirty nodes where they will stay once half of the cache is dirty, so that it can evict them. With
    /// [`Pace::Gentle`], once more than [`DIRTY_GENTLE`] are: for its writes a checkpoint keeps requests from shard and log.
    pub(in crate::snapshot) async fn relieve(&self, pace: Pace) {
        let is_early = pace == Pace::Gentle && self.blocks.pages().cache_use().dirty > DIRTY_GENTLE;
        if !is_early && !self.blocks.pages().wants_commit() {
            return;
        }
        let _writing = self.write_nodes_alone().await;
        if let Err(error) = self.blocks.write_back(pace).await.map_err(|error| self.map.report(error)) {
            // They stay in memory, and the next checkpoint reports the error.
            tracing::warn!(store = %self.id, %error, "nodes cannot be written back");
        }
    }

    /// The same until there are few enough, however many there are.
    pub(in crate::snapshot) async fn relieve_wholly(&self) {
        let dirty = self.blocks.pages().cache_use().dirty;
        // Bounded: new ones may come as fast as these go, and a device may fail.
        for _ in 0..=dirty.div_ceil(WRITE_BACK_MAX as u64) {
            self.relieve(Pace::Prompt).await;
        }
    }

    /// PDATA6: the right to write nodes.
    pub(in crate::snapshot) async fn write_nodes_alone(&self) -> RangeGuard {
        self.writing.lock(Extent::new(0, 1), LockMode::Exclusive).await
    }
}
