//! Checkpoints: the log, compacted, in fresh space, so that the old log and what was freed can be used again.
//!
//! Runs in the turn of a batch, so that no record is written meanwhile; reads, and changes that need no copy, go on.
//! This first form writes the whole map each time; as it is due only after as many records as it has blocks, that
//! at most doubles the blocks written for the log.

use super::{Sabotage, SnapshotStore, index};
use crate::fan_out::fan_out;
use varve_block::{Arena, Device, Durability, Extent, Io, IoError, KIB};
use varve_format::store::{BlockKind, ENTRY_CAPACITY, Entry, EntryBlock, Mapping, PART_SIZE, Superblock};

/// The longest write of a checkpoint.
const WRITE_BYTES: u64 = 512 * KIB;

/// What a checkpoint covers.
struct Cut {
    generation: u64,
    next_snapshot: u64,
    blocks: Vec<EntryBlock>,
    /// Where they go.
    runs: Vec<Extent>,
    /// Freed before, and not shown by these blocks.
    freed: Vec<Extent>,
    /// Logged by these blocks.
    unlogged: Vec<Mapping>,
}

impl SnapshotStore {
    pub(super) fn checkpoint_is_due(&self) -> bool {
        let state = self.state.borrow();
        let blocks: u64 = state.checkpoint.iter().map(|extent| extent.length / PART_SIZE).sum();
        self.failed.get().is_none() && state.log.blocks.len() as u64 >= self.options.log_records.max(blocks)
    }

    /// Writes a checkpoint. Called only by a leader, or before anybody is served.
    pub(super) async fn checkpoint(&self) -> Result<(), IoError> {
        if let Some(error) = self.failed.get() {
            return Err(error);
        }
        let cut = self.cut()?;
        let superblock = self.superblock(&cut);
        if let Err(error) = self.write_checkpoint(&cut, &superblock).await {
            tracing::error!(store = %self.id, %error, "the checkpoint cannot be written");
            self.failed.set(Some(error));
            return Err(error);
        }
        let mut state = self.state.borrow_mut();
        assert_eq!(state.log.generation + 1, cut.generation, "one checkpoint at a time");
        state.log.generation = cut.generation;
        state.space.end_checkpoint(cut.freed);
        // No request reads blocks of the log or of a checkpoint: they need not wait for any.
        let blocks = std::mem::take(&mut state.log.blocks);
        let old = std::mem::replace(&mut state.checkpoint, cut.runs);
        blocks.into_iter().chain(old).for_each(|extent| state.space.add(extent));
        Ok(())
    }

    /// Decides what the checkpoint says, in one moment, and takes space for it.
    fn cut(&self) -> Result<Cut, IoError> {
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let generation = state.log.generation + 1;
        let packed = pack(state.contents.entries());
        if self.sabotaged(Sabotage::ReuseAtOnce) {
            let old = std::mem::take(&mut state.checkpoint).into_iter();
            old.chain(std::mem::take(&mut state.log.blocks)).for_each(|extent| state.space.add(extent));
        }
        let mut left = packed.len() as u64 * PART_SIZE;
        let mut runs: Vec<Extent> = Vec::new();
        while left > 0 {
            let Some(run) = state.space.take_back(left) else {
                runs.into_iter().for_each(|run| state.space.add(run));
                return Err(IoError::NoSpace);
            };
            left -= run.length;
            runs.push(run);
        }
        let places: Vec<u64> =
            runs.iter().flat_map(|run| run.pieces(PART_SIZE)).map(|(_, block)| block.offset).collect();
        let block = |(position, entries): (usize, Vec<Entry>)| EntryBlock {
            kind: BlockKind::Checkpoint,
            store: self.id,
            generation,
            address: places[position],
            sequence: position as u64,
            next: places.get(position + 1).copied().unwrap_or(0),
            entries,
        };
        Ok(Cut {
            generation,
            next_snapshot: state.contents.next_snapshot,
            blocks: packed.into_iter().enumerate().map(block).collect(),
            runs,
            freed: state.space.begin_checkpoint(),
            unlogged: std::mem::take(&mut state.unlogged),
        })
    }

    fn superblock(&self, cut: &Cut) -> Superblock {
        let state = self.state.borrow();
        Superblock {
            generation: cut.generation,
            store: self.id,
            chunk_size: state.contents.map.chunk_size(),
            store_size: super::usable_size(self.store_device().shape().size),
            checkpoint: cut.blocks.first().map_or(0, |block| block.address),
            checkpoint_blocks: cut.blocks.len() as u64,
            log: state.log.next,
            sequence: state.log.sequence,
            next_snapshot: cut.next_snapshot,
        }
    }

    async fn write_checkpoint(&self, cut: &Cut, superblock: &Superblock) -> Result<(), IoError> {
        let device = self.store_device();
        write_blocks(&device, &self.arena, &cut.blocks, &cut.runs).await?;
        // Everything that the superblock leads to is durable before it, the data written to snapshots too (S4).
        device.flush().await?;
        let bytes = self.arena.copy(&superblock.encode());
        device.write(superblock.address(), bytes, Durability::Durable).await?;
        tracing::debug!(
            store = %self.id, generation = cut.generation, blocks = cut.blocks.len(),
            written = cut.unlogged.len(), "checkpoint"
        );
        Ok(())
    }
}

/// Writes `blocks` one behind the other to `runs`, which hold just as many. Nothing is durable before a flush.
pub(super) async fn write_blocks(
    device: &Device,
    arena: &Arena,
    blocks: &[EntryBlock],
    runs: &[Extent],
) -> Result<(), IoError> {
    let mut blocks = blocks.iter();
    for run in runs {
        let mut at = run.offset;
        while at < run.end() {
            let extent = Extent::between(at, run.end().min(at + WRITE_BYTES));
            let mut buffer = arena.take(index(extent.length));
            for bytes in buffer.chunks_exact_mut(index(PART_SIZE)) {
                blocks.next().expect("there are as many blocks as places").encode(bytes);
            }
            let write = Io::Write { offset: at, data: buffer.freeze(), durability: Durability::Volatile };
            fan_out([(device, write)]).await?;
            at = extent.end();
        }
    }
    assert!(blocks.next().is_none(), "every block has its place");
    Ok(())
}

/// Entries, dealt out to blocks in order.
pub(super) fn pack(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut blocks: Vec<Vec<Entry>> = Vec::new();
    let mut room = 0;
    for entry in entries {
        if entry.length() > room {
            blocks.push(Vec::new());
            room = ENTRY_CAPACITY;
        }
        assert!(entry.length() <= room, "an entry fits into an empty block");
        room -= entry.length();
        blocks.last_mut().expect("just pushed").push(entry);
    }
    blocks
}
