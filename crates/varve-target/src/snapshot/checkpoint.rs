//! Checkpoints: maps and table brought up to what the log says, so that the log and what was freed can be used again.
//!
//! Runs in the turn of a batch, so that no record is written meanwhile; reads, and changes that need no copy, go on,
//! and so do changes of the maps: those belong to the next checkpoint already (PDATA1).

use super::repair::report::tell_of_block;
use super::{SnapshotStore, index, of_device};
use crate::fan_out::fan_out;
use crate::journal::{SlotBytes, publish};
use crate::pdata::{Commit, Pages, Stop};
use varve_block::{Arena, Device, Durability, Extent, Io, IoError, KIB};
use varve_format::pdata::BlockRun;
use varve_format::store::{BlockKind, ENTRY_CAPACITY, Entry, EntryBlock, PART_SIZE, Roots, Superblock, Uuid};

/// The longest write of a table.
const WRITE_BYTES: u64 = 512 * KIB;

/// What a checkpoint says of one instant, besides the maps.
struct Cut {
    roots: Roots,
    next_snapshot: u64,
    log: u64,
    sequence: u64,
    epoch: u32,
    table: Vec<Vec<Entry>>,
    /// Where the table goes.
    runs: Vec<Extent>,
    /// What was written to snapshots, and is in the maps.
    unlogged: usize,
}

impl SnapshotStore {
    pub(super) fn checkpoint_is_due(&self) -> bool {
        let records = self.state.borrow().log.blocks.len() as u64;
        let is_due = records >= self.options.log_records || self.blocks.pages().turns_over_much();
        self.failed.failure().is_none() && is_due
    }

    /// Writes a checkpoint. Called only by a leader, or before any request is served.
    pub(super) async fn checkpoint(&self) -> Result<(), IoError> {
        self.failed.check()?;
        let _writing = self.write_nodes_alone().await;
        let frozen =
            self.blocks.freeze(|pages| self.cut(pages)).await.map_err(|error| self.map.report(error));
        let (commit, cut) = match frozen {
            Ok(frozen) => frozen,
            Err(error) => return Err(error), // Nothing has changed.
        };
        if let Err(error) = self.write_checkpoint(&commit, &cut).await {
            tracing::error!(store = %self.id, %error, "the checkpoint cannot be written");
            return Err(self.failed.shut(error));
        }
        let mut state = self.state.borrow_mut();
        assert!(state.log.generation < commit.generation(), "one checkpoint at a time");
        state.log.generation = commit.generation();
        state.described = commit.end_block().offset();
        self.blocks.committed(commit);
        Ok(())
    }

    /// Decides what the checkpoint says, in one moment: takes space for the table, frees the old one and the log.
    fn cut(&self, pages: &mut Pages) -> Result<Cut, Stop> {
        let contents = self.contents.borrow();
        let mut state = self.state.borrow_mut();
        let table = pack(contents.table(&self.map.bytes()));
        let old: Vec<Extent> = state.table.iter().chain(&state.log.blocks).copied().collect();
        old.iter().try_for_each(|extent| pages.require(BlockRun::of(*extent)))?;
        let runs = pages.take_for_commit(table.len() as u64)?;
        old.into_iter().for_each(|extent| pages.free_unread(BlockRun::of(extent)));
        let runs: Vec<Extent> = runs.into_iter().map(BlockRun::extent).collect();
        let blocks: u64 = runs.iter().map(|run| run.length / PART_SIZE).sum();
        assert_eq!(blocks, table.len() as u64, "SNAPSHOT9: every block of the table has its place");
        state.table.clone_from(&runs);
        state.log.blocks.clear();
        state.has_unsettled = false; // If it cannot be written nothing is any more.
        Ok(Cut {
            roots: self.map.roots(),
            next_snapshot: contents.next_snapshot,
            log: state.log.next,
            sequence: state.log.sequence,
            epoch: state.log.epoch,
            table,
            runs,
            unlogged: std::mem::take(&mut state.unlogged).len(),
        })
    }

    async fn write_checkpoint(&self, commit: &Commit, cut: &Cut) -> Result<(), IoError> {
        let device = self.store_device();
        self.blocks.write(commit).await.map_err(|error| self.map.report(error))?;
        let blocks = chain(self.id, (commit.generation(), cut.epoch), &cut.table, &cut.runs);
        write_blocks(&device, &self.arena, &blocks, &cut.runs).await.map_err(of_device)?;
        let superblock = Superblock {
            generation: commit.generation(),
            store: self.id,
            chunk_size: self.map.chunk_size(),
            store_size: commit.end_block().offset(),
            table: blocks.first().map_or(0, |block| block.address),
            table_blocks: blocks.len() as u64,
            log: cut.log,
            sequence: cut.sequence,
            next_snapshot: cut.next_snapshot,
            roots: cut.roots,
            nodes: commit.nodes(),
            free_blocks: commit.free_blocks(),
            epoch: cut.epoch,
            places: commit.places().to_vec(),
        };
        if let Err(found) = superblock.check() {
            // Counts that were read of the store are in it.
            let [first, _] = superblock.slots();
            tell_of_block(self.id, first, "a superblock whose counts are possible", &found);
            return Err(IoError::Corrupt);
        }
        // Everything that the superblock leads to is durable before it, the data written to snapshots too (SNAPSHOT4).
        let [first, other] = slots(&superblock, &self.arena);
        publish(&device, first, other).await.map_err(of_device)?;
        tracing::debug!(
            store = %self.id, generation = commit.generation(), nodes = commit.nodes(), table = blocks.len(),
            written = cut.unlogged, "checkpoint"
        );
        Ok(())
    }
}

/// The slots of a superblock, in the order in which they are written.
pub(super) fn slots(superblock: &Superblock, arena: &Arena) -> [SlotBytes; 2] {
    superblock.slots().map(|address| (address, arena.copy(&superblock.encode(address))))
}

/// The blocks of a table of `entries`, in the places that `runs` give.
pub(super) fn chain(
    store: Uuid,
    (generation, epoch): (u64, u32),
    entries: &[Vec<Entry>],
    runs: &[Extent],
) -> Vec<EntryBlock> {
    let places: Vec<u64> =
        runs.iter().flat_map(|run| run.pieces(PART_SIZE)).map(|(_, block)| block.offset).collect();
    assert_eq!(places.len(), entries.len(), "every block has its place");
    let block = |(position, entries): (usize, &Vec<Entry>)| EntryBlock {
        kind: BlockKind::Table,
        store,
        generation,
        epoch,
        address: places[position],
        sequence: position as u64,
        next: places.get(position + 1).copied().unwrap_or(0),
        entries: entries.clone(),
    };
    entries.iter().enumerate().map(block).collect()
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
