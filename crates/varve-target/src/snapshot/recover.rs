//! Making a store, and opening it: superblock and table are read, the log behind them replayed; the maps are left
//! where they are, but for the nodes that the log changes.
//!
//! Invariants, beside those of `journal/replay.rs`:
//! - STOREOPEN1. Before anything is believed the store is flushed: what a killed process left in a disk's cache and is read
//!   now must not be lost later, when other things rely on it. What this program has just made is durable (STOREOPEN4).
//! - STOREOPEN2. Only the last record of the log can be torn (SNAPSHOT3, REPLAY1): its data is verified, and a record that fails is as if
//!   it had never been written; the change that it would have preserved for was never begun.
//! - STOREOPEN3. A log whose end is followed by a record of a later generation or epoch means that the newest superblock was
//!   lost after it counted; then nothing is served, for an old checkpoint would show freed space as content. A record of
//!   an earlier epoch was written by a host that had lost its term: the log ends before it.
//! - STOREOPEN4. A new store is durable as a whole when its making returns, by one flush, and is valid from then on. What a crash
//!   leaves of one that is being made may be any mixture with what lay there before, a superblock that leads nowhere
//!   included: nothing looks for a store there until the caller has recorded it, durably and afterwards.

mod loaded;
mod replay;

pub(super) use loaded::Loaded;
pub(super) use replay::{LoadedLog, is_whole};

use super::capacity::gate::Budget;
use super::checkpoint::slots;
use super::contents::Contents;
use super::map::Map;
use super::repair::report::{report, tell_of_block};
use super::{
    InjectedBug, LogPosition, Pipeline, SnapshotStore, State, StoreError, StoreOptions, index, usable_size,
};
use crate::journal::{self, Latch, Newest, complete_pair, replay};
use crate::pdata::{self, CachePolicy, MapOptions, Side};
use futures_util::future::{join_all, join3};
use loaded::read_block;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use varve_block::{Access, Arena, Clock, Device, Durability, Extent, IoError, KIB, MIB};
use varve_format::pdata::{Block, BlockRun};
use varve_format::store::{
    BlockKind, CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, Entry, EntryBlock, FIRST_ADDRESS, FIRST_BLOCK, PART_SIZE,
    Roots, SLOT_ADDRESSES, StoreFormatError, Superblock, Uuid,
};

/// The smallest store: room for the superblocks, the reserve and a little data.
pub(super) const SIZE_MIN: u64 = 128 * KIB;

/// What a new store is like.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// Its id, which no other store has or had.
    pub id: Uuid,
    /// Bytes of a chunk, a power of two from 4 KiB to 1 MiB.
    pub chunk_size: u64,
}

impl FormatOptions {
    /// A store with id `id` and the usual chunks of 64 KiB.
    pub fn new(id: Uuid) -> Self {
        Self { id, chunk_size: 64 * KIB }
    }
}

/// How a store is read.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub cache_bytes: u64,
    pub policy: CachePolicy,
    pub injected_bug: Option<InjectedBug>,
    /// Generations that are passed over.
    pub skipped: u64,
    /// Whether it may be written too.
    pub write_back: bool,
}

impl Reading {
    /// For inspection only.
    pub(super) fn only() -> Self {
        Self {
            cache_bytes: 64 * MIB,
            policy: CachePolicy::default(),
            injected_bug: None,
            skipped: 0,
            write_back: false,
        }
    }
}

impl SnapshotStore {
    /// Makes an empty store on `device`, whatever it held.
    pub async fn format(device: &Device, arena: &Arena, options: FormatOptions) -> Result<(), StoreError> {
        let size = usable_size(device.shape().size);
        if size < SIZE_MIN {
            return Err(StoreError::TooSmall(SIZE_MIN));
        }
        let chunk_size = options.chunk_size;
        if !chunk_size.is_power_of_two() || !(CHUNK_SIZE_MIN..=CHUNK_SIZE_MAX).contains(&chunk_size) {
            return Err(StoreError::Misfit("the chunk size is a power of two from 4 KiB to 1 MiB"));
        }
        let blocks = empty_space(device, arena, options.id, 0, size);
        let fault = |error| report(options.id, error);
        let log = blocks.run(|pages| pages.take_on(Side::Near, 1)).await.map_err(fault)?;
        let log = log.extent();
        let (commit, ()) = blocks.freeze(|_| Ok(())).await.map_err(fault)?;
        let superblock = Superblock {
            generation: commit.generation(),
            store: options.id,
            chunk_size,
            store_size: size,
            table: 0,
            table_blocks: 0,
            log: log.offset,
            sequence: 1,
            next_snapshot: 1,
            roots: Roots::default(),
            nodes: 0,
            free_blocks: commit.free_blocks(),
            epoch: 0,
            places: commit.places().to_vec(),
        };
        // Neither slot, nor the log, may show anything of before. Written, for a disk that takes zeros as a change of its
        // allocation would have that to make durable, too. All at once, and all awaited: nothing leads to the store before its flush.
        let mut head = arena.take_zeroed(index(FIRST_ADDRESS));
        for (address, slot) in slots(&superblock, arena) {
            head[index(address)..][..slot.len()].copy_from_slice(&slot); // PAIR4
        }
        let empty = arena.take_zeroed(index(log.length)).freeze();
        let head = device.write(0, head.freeze(), Durability::Volatile);
        let log = device.write(log.offset, empty, Durability::Volatile);
        let (head, log, map) = join3(head, log, blocks.write(&commit)).await;
        map.map_err(fault)?;
        head.and(log)?;
        device.flush().await?; // STOREOPEN4
        Ok(())
    }

    /// Opens the store on `store` for the snapshots of `origin`. A rollback that was under way goes on: the origin
    /// shows what it should at once, and [`SnapshotStore::continue_rollback`] restores the rest.
    pub async fn open(
        origin: Device,
        store: Device,
        arena: Arena,
        clock: Clock,
        options: StoreOptions,
    ) -> Result<Rc<SnapshotStore>, StoreError> {
        check_fit(&origin, &store, options)?;
        if !options.is_new {
            store.flush().await?; // STOREOPEN1
        }
        let StoreOptions { cache_bytes, policy, injected_bug, .. } = options;
        let skipped = pdata::skipped_generations(&clock);
        let reading = Reading { cache_bytes, policy, injected_bug, skipped, write_back: true };
        let loaded = load(&store, &arena, reading).await?;
        loaded.contents.borrow().check_sizes(origin.shape().size)?;
        loaded.contents.borrow_mut().set_origin_size(origin.shape().size);
        let replayed = !loaded.log.blocks.is_empty();
        let views = loaded.contents.borrow().snapshots.keys().map(|id| (*id, Rc::default())).collect();
        let Loaded { superblock, held, contents, blocks, map, table, log, .. } = loaded;
        if held.len() == 1 {
            complete_pair(&store, slots(&superblock, &arena), &held).await; // PAIR4
            store.flush().await?;
        }
        blocks.pages().go_on_at(Block::at(log.next) + 1);
        let opened = Rc::new(SnapshotStore {
            id: superblock.store,
            arena,
            clock,
            options,
            metadata: Cell::new(options.metadata),
            origin: RefCell::new(origin),
            store: RefCell::new(store),
            blocks,
            map,
            contents,
            state: RefCell::new(State::of(log, table, superblock.store_size)),
            pipeline: Pipeline::new(options.batch_bytes),
            changes: varve_block::Gate::default(),
            copying: Budget::new(options.copy_bytes),
            copies: varve_block::RangeLock::new(),
            falls: varve_block::RangeLock::new(),
            writing: varve_block::RangeLock::new(),
            views: RefCell::new(views),
            managing: varve_block::RangeLock::new(),
            is_origin_flushed: Cell::new(options.is_new),
            restoring: varve_block::RangeLock::new(),
            failed: Latch::default(),
            half_rolled_back: Cell::new(false),
            waiters: super::capacity::space::Waiters::new(options.full),
            has_siblings: Cell::new(false),
        });
        let listener = Rc::downgrade(&opened);
        opened.blocks.pages().when_readers_end(Rc::new(move || {
            listener.upgrade().into_iter().for_each(|store| store.waiters.notify()); // STOREFULL2
        }));
        opened.keep_for_checkpoint();
        opened.assert_consistent();
        if replayed {
            match opened.checkpoint().await {
                Ok(()) | Err(IoError::NoSpace) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(opened)
    }
}

fn check_fit(origin: &Device, store: &Device, options: StoreOptions) -> Result<(), StoreError> {
    let (above, below) = (origin.shape(), store.shape());
    if above.size == 0 || !above.size.is_multiple_of(PART_SIZE) {
        return Err(StoreError::Misfit("the origin is not made of whole parts of 4 KiB"));
    }
    if u64::from(above.block_size.max(below.block_size)) > PART_SIZE {
        return Err(StoreError::Misfit("a device has blocks of more than 4 KiB"));
    }
    if below.access == Access::ReadOnly {
        return Err(StoreError::Misfit("the exception store is read-only"));
    }
    if usable_size(below.size) < SIZE_MIN {
        return Err(StoreError::TooSmall(SIZE_MIN));
    }
    let batch = options.batch_bytes;
    if batch < super::origin::PIECE_BYTES || options.copy_bytes < batch || !batch.is_multiple_of(PART_SIZE) {
        return Err(StoreError::Misfit("a batch is too small, or more than may be copied at once"));
    }
    Ok(())
}

/// The space of an empty store whose last checkpoint was `generation`.
pub(super) fn empty_space(
    device: &Device,
    arena: &Arena,
    id: Uuid,
    generation: u64,
    size: u64,
) -> Rc<pdata::Map> {
    let fresh = MapOptions::fresh(id.as_u64_pair().0, FIRST_BLOCK, Block::at(size));
    let options = MapOptions { generation, floor_blocks: 0, ..fresh };
    Rc::new(pdata::Map::open(device.clone(), arena.clone(), &options))
}

/// Reads the store: superblock, table, log.
pub(super) async fn load(store: &Device, arena: &Arena, reading: Reading) -> Result<Loaded, StoreError> {
    let mut loaded = load_table(store, arena, reading).await?;
    replay(&mut LoadedLog { loaded: &mut loaded, store, arena }).await?;
    loaded.contents.borrow().check_names()?;
    Ok(loaded)
}

/// Reads the store as its last checkpoint left it.
pub(super) async fn load_table(
    store: &Device,
    arena: &Arena,
    reading: Reading,
) -> Result<Loaded, StoreError> {
    let (superblock, held) = newest_superblock(store, arena).await?;
    let size = usable_size(store.shape().size);
    if superblock.store_size > size {
        return Err(StoreError::Misfit("the exception store is shorter than it was"));
    }
    let options = MapOptions {
        generation: superblock.generation,
        skipped: reading.skipped,
        free_blocks: superblock.free_blocks,
        places: superblock.places.clone(),
        nodes: superblock.nodes,
        floor_blocks: 0,
        cache_bytes: reading.cache_bytes,
        policy: reading.policy,
        ..MapOptions::fresh(superblock.store.as_u64_pair().0, FIRST_BLOCK, Block::at(superblock.store_size))
    };
    let blocks = Rc::new(pdata::Map::open(store.clone(), arena.clone(), &options));
    blocks.grow(store.clone(), Block::at(size)); // What was written before SNAPSHOT10 may lead there.
    if reading.injected_bug == Some(InjectedBug::ReuseAtOnce) {
        blocks.pages().reuse_at_once();
    }
    if reading.injected_bug == Some(InjectedBug::TrustGenerations) {
        blocks.pages().trust_generations();
    }
    if reading.injected_bug == Some(InjectedBug::ReuseWhileRead) {
        blocks.pages().reuse_while_read();
    }
    let mut contents = Contents::new(superblock.next_snapshot);
    contents.skip_merge = reading.injected_bug == Some(InjectedBug::SkipMerge);
    contents.name_announced = reading.injected_bug == Some(InjectedBug::NameAnnounced);
    let log = LogPosition {
        generation: superblock.generation,
        epoch: superblock.epoch,
        sequence: superblock.sequence,
        next: superblock.log,
        blocks: Vec::new(),
    };
    let map = Map::new(superblock.store, Rc::clone(&blocks), superblock.roots, superblock.chunk_size);
    let mut loaded = Loaded {
        superblock,
        held,
        contents: RefCell::new(contents),
        blocks,
        map,
        table: Vec::new(),
        log,
        entries: 0,
        write_back: reading.write_back,
    };
    loaded.read_table(store, arena).await?;
    Ok(loaded)
}

/// The newer of the two superblocks, and the addresses of the slots that hold it (PAIR4).
pub(super) async fn newest_superblock(
    store: &Device,
    arena: &Arena,
) -> Result<(Superblock, Vec<u64>), StoreError> {
    let mut newest = Newest::<Superblock>::new();
    let blocks = join_all(SLOT_ADDRESSES.map(|address| read_block(store, arena, address))).await;
    for (address, block) in SLOT_ADDRESSES.into_iter().zip(blocks) {
        newest.look_at(address, Superblock::decode(&block?, address));
    }
    newest.found().map_err(StoreError::Format)
}

impl journal::Superblock for Superblock {
    type Error = StoreFormatError;
    const ABSENT: StoreFormatError = StoreFormatError::Absent;

    fn number(&self) -> u64 {
        self.generation
    }

    fn is_other_version(error: StoreFormatError) -> bool {
        matches!(error, StoreFormatError::Version(_))
    }
}

impl Loaded {
    async fn read_table(&mut self, store: &Device, arena: &Arena) -> Result<(), StoreError> {
        let mut address = self.superblock.table;
        for position in 0..self.superblock.table_blocks {
            let bytes = read_block(store, arena, address).await?;
            let block = EntryBlock::decode(&bytes, BlockKind::Table, address).map_err(|found| {
                tell_of_block(self.superblock.store, address, "a block of the table of snapshots", &found);
                StoreError::Format(found)
            })?;
            let Superblock { store: id, generation, epoch, .. } = self.superblock;
            if (block.store, block.generation, block.epoch, block.sequence)
                != (id, generation, epoch, position)
            {
                let found = StoreFormatError::Invalid("it is of another table, or of another place in it");
                tell_of_block(
                    self.superblock.store,
                    address,
                    "the next block of the table of snapshots",
                    &found,
                );
                return Err(StoreError::Corrupt("the table's chain leads to a block of another one"));
            }
            for entry in &block.entries {
                if matches!(entry, Entry::Preserved { .. } | Entry::Written(_) | Entry::Dropped { .. }) {
                    return Err(StoreError::Corrupt("the table of snapshots tells of content"));
                }
                self.apply(entry).await?;
            }
            self.table.push(Extent::new(address, PART_SIZE));
            address = block.next;
        }
        if address != 0 && self.superblock.table_blocks > 0 {
            return Err(StoreError::Corrupt("the table's chain is longer than it should be"));
        }
        Ok(())
    }

    /// The blocks that belong to no map: superblocks, the table, the log.
    pub(super) fn others(&self) -> Vec<BlockRun> {
        let slots = Extent::new(0, FIRST_ADDRESS);
        let next = Extent::new(self.log.next, PART_SIZE);
        let chains = self.table.iter().chain(&self.log.blocks).copied();
        [slots, next].into_iter().chain(chains).map(BlockRun::of).collect()
    }
}
