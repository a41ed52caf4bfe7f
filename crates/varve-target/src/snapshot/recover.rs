//! Making a store, and opening it: the newest checkpoint is read, the log behind it replayed.
//!
//! Invariants:
//! - R1. Before anything is believed the store is flushed: what a killed process left in a disk's cache and is read
//!   now must not be lost later, when other things rely on it.
//! - R2. Only the last record of the log can be torn (S3): its data is verified, and a record that fails is as if it
//!   had never been written; the change that it would have preserved for was never begun.
//! - R3. A log whose end is followed by a record of a later generation means that the newest superblock was lost
//!   after it counted; then nothing is served, for an old checkpoint would show freed space as content.

use super::contents::Contents;
use super::gate::Budget;
use super::space::Space;
use super::{
    LogPosition, Pipeline, Sabotage, SnapshotStore, State, StoreError, StoreOptions, index, reserve_bytes,
    usable_size,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use varve_block::{Access, Arena, Clock, Device, Durability, Extent, IoError, KIB, ZeroOptions};
use varve_format::store::{
    BlockKind, CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, Entry, EntryBlock, FIRST_ADDRESS, PART_SIZE, SLOT_ADDRESSES,
    StoreFormatError, Superblock, Uuid, data_checksum,
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

/// A store as it was read.
pub(super) struct Loaded {
    pub superblock: Superblock,
    pub contents: Contents,
    pub checkpoint: Vec<Extent>,
    pub log: LogPosition,
    /// Entries of the checkpoint and of the log.
    pub entries: u64,
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
        let superblock = Superblock {
            generation: 1,
            store: options.id,
            chunk_size,
            store_size: size,
            checkpoint: 0,
            checkpoint_blocks: 0,
            log: FIRST_ADDRESS,
            sequence: 1,
            next_snapshot: 1,
        };
        // Neither slot nor log may show anything of before.
        let zeros = ZeroOptions { unmap: false, ..ZeroOptions::default() };
        device.zero(Extent::new(0, FIRST_ADDRESS + PART_SIZE), zeros).await?;
        device.flush().await?;
        let bytes = arena.copy(&superblock.encode());
        device.write(superblock.address(), bytes, Durability::Durable).await?;
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
        store.flush().await?; // R1
        let mut loaded = load(&store, &arena, options.sabotage == Some(Sabotage::SkipHandOver)).await?;
        if loaded.contents.newest().is_some_and(|(_, size)| size > origin.shape().size) {
            return Err(StoreError::Misfit("the origin is smaller than its newest snapshot"));
        }
        if loaded.contents.rollback.as_ref().is_some_and(|rollback| rollback.size > origin.shape().size) {
            return Err(StoreError::Misfit(
                "the origin is smaller than the snapshot to which it is rolled back",
            ));
        }
        let size = usable_size(store.shape().size);
        let space = free_space(&loaded, size, options.sabotage == Some(Sabotage::ReuseAtOnce))?;
        let replayed = !loaded.log.blocks.is_empty();
        loaded.contents.skip_hand_over = options.sabotage == Some(Sabotage::SkipHandOver);
        let views = loaded.contents.snapshots.keys().map(|id| (*id, Rc::default())).collect();
        let state = State {
            contents: loaded.contents,
            space,
            log: loaded.log,
            checkpoint: loaded.checkpoint,
            unlogged: Vec::new(),
        };
        let opened = Rc::new(SnapshotStore {
            id: loaded.superblock.store,
            arena,
            clock,
            options,
            origin: RefCell::new(origin),
            store: RefCell::new(store),
            state: RefCell::new(state),
            pipeline: Pipeline::new(options.batch_bytes),
            changes: super::Gate::default(),
            copying: Budget::new(options.copy_bytes),
            copies: varve_block::RangeLock::new(),
            falls: varve_block::RangeLock::new(),
            views: RefCell::new(views),
            managing: varve_block::RangeLock::new(),
            restoring: varve_block::RangeLock::new(),
            failed: Cell::new(None),
            half_rolled_back: Cell::new(false),
            space_waiters: RefCell::default(),
            room: super::full::Room::new(options.full),
            has_siblings: Cell::new(false),
        });
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

/// Reads the store: superblock, checkpoint, log.
pub(super) async fn load(store: &Device, arena: &Arena, skip_hand_over: bool) -> Result<Loaded, StoreError> {
    let superblock = newest_superblock(store, arena).await?;
    let size = usable_size(store.shape().size);
    if superblock.store_size > size {
        return Err(StoreError::Misfit("the exception store is shorter than it was"));
    }
    let mut contents = Contents::new(superblock.chunk_size, superblock.next_snapshot);
    contents.skip_hand_over = skip_hand_over;
    let log = LogPosition {
        generation: superblock.generation,
        sequence: superblock.sequence,
        next: superblock.log,
        blocks: Vec::new(),
    };
    let mut loaded = Loaded { superblock, contents, checkpoint: Vec::new(), log, entries: 0 };
    loaded.read_checkpoint(store, arena).await?;
    loaded.replay(store, arena).await?;
    Ok(loaded)
}

async fn read_block(store: &Device, arena: &Arena, address: u64) -> Result<varve_block::Buffer, StoreError> {
    if address.checked_add(PART_SIZE).is_none_or(|end| end > store.shape().size) {
        return Err(StoreError::Corrupt("a block lies beyond the end of the exception store"));
    }
    Ok(store.read(address, arena.take(index(PART_SIZE))).await?)
}

pub(super) async fn newest_superblock(store: &Device, arena: &Arena) -> Result<Superblock, StoreError> {
    let mut newest: Option<Superblock> = None;
    let mut error = StoreFormatError::Absent;
    for address in SLOT_ADDRESSES {
        let block = read_block(store, arena, address).await?;
        match Superblock::decode(&block, address) {
            Ok(found) if newest.is_none_or(|known| known.generation < found.generation) => {
                newest = Some(found);
            }
            Ok(_) => {}
            Err(StoreFormatError::Newer(version)) => {
                return Err(StoreError::Format(StoreFormatError::Newer(version)));
            }
            Err(StoreFormatError::Absent) => {}
            Err(found) => error = found,
        }
    }
    newest.ok_or(StoreError::Format(error))
}

impl Loaded {
    async fn read_checkpoint(&mut self, store: &Device, arena: &Arena) -> Result<(), StoreError> {
        let mut address = self.superblock.checkpoint;
        for position in 0..self.superblock.checkpoint_blocks {
            let bytes = read_block(store, arena, address).await?;
            let block =
                EntryBlock::decode(&bytes, BlockKind::Checkpoint, address).map_err(StoreError::Format)?;
            let expected = (self.superblock.store, self.superblock.generation, position);
            if (block.store, block.generation, block.sequence) != expected {
                return Err(StoreError::Corrupt("the checkpoint's chain leads to a block of another one"));
            }
            self.apply(&block.entries)?;
            self.checkpoint.push(Extent::new(address, PART_SIZE));
            address = block.next;
        }
        if address != 0 && self.superblock.checkpoint_blocks > 0 {
            return Err(StoreError::Corrupt("the checkpoint's chain is longer than it should be"));
        }
        Ok(())
    }

    fn apply(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        for entry in entries {
            self.contents.apply(entry)?;
            self.entries += 1;
        }
        Ok(())
    }

    async fn replay(&mut self, store: &Device, arena: &Arena) -> Result<(), StoreError> {
        let mut last: Option<EntryBlock> = None;
        loop {
            let (address, sequence) = match &last {
                Some(block) => (block.next, block.sequence + 1),
                None => (self.log.next, self.log.sequence),
            };
            let Some(block) = self.next_record(store, arena, address, sequence).await? else { break };
            if let Some(before) = last.replace(block) {
                self.accept(&before)?;
            }
        }
        if let Some(block) = last
            && is_whole(&block, store, arena).await?
        {
            self.accept(&block)?;
        }
        Ok(())
    }

    /// The record at `address`, if it is the one with this number.
    async fn next_record(
        &self,
        store: &Device,
        arena: &Arena,
        address: u64,
        sequence: u64,
    ) -> Result<Option<EntryBlock>, StoreError> {
        let bytes = read_block(store, arena, address).await?;
        let block = match EntryBlock::decode(&bytes, BlockKind::Log, address) {
            Ok(block) => block,
            Err(StoreFormatError::Newer(version)) => {
                return Err(StoreError::Format(StoreFormatError::Newer(version)));
            }
            Err(_) => return Ok(None),
        };
        if block.store != self.superblock.store {
            return Ok(None);
        }
        if block.generation > self.superblock.generation {
            return Err(StoreError::Corrupt("the newest superblock of the exception store was lost")); // R3
        }
        let expected = block.generation == self.superblock.generation && block.sequence == sequence;
        Ok(expected.then_some(block))
    }

    fn accept(&mut self, block: &EntryBlock) -> Result<(), StoreError> {
        self.apply(&block.entries)?;
        self.log.blocks.push(Extent::new(block.address, PART_SIZE));
        (self.log.sequence, self.log.next) = (block.sequence + 1, block.next);
        Ok(())
    }

    /// Everything in the store that belongs to somebody, in order of place.
    pub(super) fn owned(&self) -> Vec<Extent> {
        let slots = Extent::new(0, FIRST_ADDRESS);
        let next = Extent::new(self.log.next, PART_SIZE);
        let mut owned = vec![slots, next];
        owned.extend(self.checkpoint.iter().chain(&self.log.blocks).copied());
        owned.extend(self.contents.map.places());
        owned.sort_unstable();
        owned
    }
}

/// R2: whether the data that a record preserves is what its checksums say.
async fn is_whole(block: &EntryBlock, store: &Device, arena: &Arena) -> Result<bool, StoreError> {
    for entry in &block.entries {
        let Entry::Preserved { mapping, checksum } = entry else { continue };
        let place = Extent::checked(mapping.place, mapping.extent.length);
        let Some(place) = place.filter(|place| place.end() <= store.shape().size) else {
            return Err(StoreError::Corrupt("preserved content lies beyond the end of the exception store"));
        };
        let data = store.read(place.offset, arena.take(index(place.length))).await?;
        if data_checksum(&data) != *checksum {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The free space of a store of `size` bytes: all that nobody owns.
fn free_space(loaded: &Loaded, size: u64, reuse_at_once: bool) -> Result<Space, StoreError> {
    let mut space = space_between(&loaded.owned(), size)?;
    space.reuse_at_once = reuse_at_once;
    if space.free_bytes() < reserve_bytes(0, 0) / 2 {
        tracing::warn!(free = space.free_bytes(), "the exception store is almost full");
    }
    Ok(space)
}

/// What lies between the extents of `owned`, which are in order, in a store of `size` bytes.
pub(super) fn space_between(owned: &[Extent], size: u64) -> Result<Space, StoreError> {
    let mut space = Space::new();
    let mut at = 0;
    for extent in owned {
        if extent.offset < at {
            return Err(StoreError::Corrupt("two owners share a place in the exception store"));
        }
        space.add(Extent::between(at, extent.offset));
        at = extent.end();
    }
    if at > size {
        return Err(StoreError::Corrupt("content lies beyond the end of the exception store"));
    }
    space.add(Extent::between(at, size));
    Ok(space)
}
