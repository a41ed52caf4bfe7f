//! Making a pool and opening one: the newer superblock, the volumes, and what the log says has happened since.
//!
//! Invariants, beside those of `journal/replay.rs`:
//! - POOLOPEN1. Replay makes the same changes in the same order by the same functions as when they were made.
//! - POOLOPEN2. What was read is made durable before anything is built on it: a record may lie in the disk's cache only.

use super::committing::commits::Commits;
use super::committing::discard_state::Passing;
use super::lifecycle::volume::Volume;
use super::lifecycle::volumes::Volumes;
use super::maps::belief::tell_of_volume;
use super::maps::ref_counts::RefCounts;
use super::space::Waiters;
use super::{Layout, Pool, PoolError, PoolOptions, Uuid, index};
use crate::journal::{
    self, End, Log, LogStart, Newest, Next, Placed, Ring, RingReader, RingRecord, SlotBytes, complete_pair,
    publish, read_as_far, replay,
};
use crate::pdata::{Map, MapOptions, Pages, Tree, skipped_generations};
use crate::reader_epochs::ReaderEpochs;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use varve_block::{Arena, Clock, Device, Durability, KIB, MIB};
use varve_format::epoch::Epoch;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{Key, Value};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{
    BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, Change, Mapping, PART_SIZE, PoolFormatError, RECORD_BLOCKS_MAX, Record,
    SLOT_BLOCKS_MAX, Superblock, VolumeRows, slot_blocks_for, volume_key,
};

/// What a pool is made with.
#[derive(Clone, Copy, Debug)]
pub struct PoolFormat {
    /// The id of the pool; not nil.
    pub id: Uuid,
    /// Bytes of a block: space is laid out in such units, and shared in units of 4 KiB. A power of two between 4 KiB
    /// and 1 MiB.
    pub block_size: u64,
    /// Bytes of the log's ring; none for what suits the size.
    pub log_bytes: Option<u64>,
}

impl PoolFormat {
    /// With blocks of 64 KiB.
    pub fn new(id: Uuid) -> Self {
        Self { id, block_size: 64 * KIB, log_bytes: None }
    }
}

/// The smallest ring of the log.
const LOG_BLOCKS_MIN: u64 = 8;
/// The smallest space behind the ring.
const SPACE_BLOCKS_MIN: u64 = 192;

/// THIN8: blocks that only nodes may take, in a pool that ends at `end_block`.
pub(super) fn floor_blocks(end_block: Block) -> u64 {
    (end_block.number() / 32).clamp(64, 64 << 10)
}

impl Pool {
    /// Makes a pool of `device`, on which nothing is kept.
    pub async fn format(device: &Device, arena: &Arena, format: PoolFormat) -> Result<(), PoolError> {
        let size = format.block_size;
        if !(BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&size) || !size.is_power_of_two() {
            return Err(PoolError::Misfit("a block is a power of two between 4 KiB and 1 MiB"));
        }
        let end_block = Block::end_of(device.shape().size);
        let log_blocks = match format.log_bytes {
            Some(bytes) => (bytes / PART_SIZE).clamp(LOG_BLOCKS_MIN, 1 << 20),
            None => (end_block.number() / 64).clamp(LOG_BLOCKS_MIN, 16 * MIB / PART_SIZE),
        };
        let slot_blocks = slot_blocks_for(end_block);
        let base = Block::new(2 * slot_blocks + log_blocks);
        let least = base + SPACE_BLOCKS_MIN;
        if end_block < least {
            return Err(PoolError::TooSmall(least.offset()));
        }
        let superblock = Superblock {
            number: 1,
            pool: format.id,
            block_size: size,
            slot_blocks,
            log_blocks,
            end_block,
            generation: 0,
            free_blocks: MapOptions::fresh(0, base, end_block).free_blocks,
            nodes: 0,
            epoch: Epoch::default(),
            shares: Link::NONE,
            volumes: Link::NONE,
            head: 0,
            sequence: 1,
            next_volume: 1,
            places: Vec::new(),
        };
        superblock.check().map_err(PoolError::Format)?; // a device too large for any slot
        let [first, other] = slots(&superblock, arena);
        let empty = arena.take_zeroed(index((slot_blocks + log_blocks) * PART_SIZE));
        // The other slot, and the ring: a pool that was here before must not shine through.
        let (nothing, ring) = empty.freeze().split_at(index(slot_blocks * PART_SIZE));
        device.write(other.0, nothing, Durability::Volatile).await?;
        device.write(superblock.ring().offset(), ring, Durability::Volatile).await?;
        publish(device, first, other).await?;
        Ok(())
    }

    /// Opens the pool on `device`.
    pub async fn open(
        device: Device,
        arena: Arena,
        clock: Clock,
        options: PoolOptions,
    ) -> Result<Rc<Pool>, PoolError> {
        let (superblock, held) = read_superblocks(&device, &arena).await?;
        if Block::end_of(device.shape().size) < superblock.end_block {
            return Err(PoolError::Misfit("the device is smaller than the pool on it"));
        }
        let pool = Rc::new(Pool::build(device, arena, clock, options, &superblock));
        pool.listen_to_readers();
        pool.grow_to(Block::end_of(pool.device().shape().size)); // What was written before THIN10 may lead there.
        pool.load_volumes().await?;
        replay(&mut &*pool).await?;
        if held.len() == 1 && pool.number.get() == superblock.number {
            complete_pair(&pool.device(), slots(&superblock, &pool.arena), &held).await; // PAIR4
        }
        pool.device().flush().await?; // POOLOPEN2
        pool.ref_counts.commit_begins();
        pool.ref_counts.commit_ended(); // REFCOUNT4: what was read is what a crash would leave
        pool.assert_consistent();
        Ok(pool)
    }

    pub(super) fn build(
        device: Device,
        arena: Arena,
        clock: Clock,
        options: PoolOptions,
        superblock: &Superblock,
    ) -> Pool {
        assert_eq!(superblock.check(), Ok(()), "POOL3 to POOL5");
        let store = superblock.pool.as_u64_pair().0;
        let (base, end) = (superblock.base_block(), superblock.end_block);
        let map_options = MapOptions {
            generation: superblock.generation,
            skipped: skipped_generations(&clock),
            free_blocks: superblock.free_blocks,
            places: superblock.places.clone(),
            nodes: superblock.nodes,
            floor_blocks: floor_blocks(end),
            cache_bytes: options.cache_bytes,
            policy: options.policy,
            ..MapOptions::fresh(store, base, end)
        };
        let map = Map::open(device.clone(), arena.clone(), &map_options);
        if options.injected_bug == Some(super::InjectedBug::TrustGenerations) {
            map.pages().trust_generations();
        }
        let Superblock { head, sequence, epoch, .. } = *superblock;
        let begin = LogStart { head, sequence, epoch };
        let ring = Ring::new(superblock.ring().number(), superblock.log_blocks, begin, RECORD_BLOCKS_MAX);
        let layout = Layout {
            block_size: superblock.block_size,
            slot_blocks: superblock.slot_blocks,
            log_blocks: superblock.log_blocks,
        };
        let readers = ReaderEpochs::default();
        Pool {
            id: superblock.pool,
            arena,
            clock,
            options,
            metadata: Cell::new(options.metadata),
            layout,
            device: RefCell::new(device),
            map,
            ref_counts: RefCounts::open(
                Tree { root: superblock.shares },
                readers.clone(),
                options.injected_bug,
            ),
            table: Cell::new(Tree { root: superblock.volumes }),
            volumes: Volumes::new(superblock.next_volume),
            number: Cell::new(superblock.number),
            end_block: Cell::new(end),
            commits: Commits::new(ring, end),
            readers,
            pending_free: RefCell::new(None),
            waiters: Waiters::new(options.when_full),
            passing: Passing::default(),
            accounting: RefCell::default(),
            told_of: Cell::new(None),
        }
    }

    async fn load_volumes(&self) -> Result<(), PoolError> {
        let mut from = volume_key(0, 0);
        let (mut entries, mut more) = (Vec::new(), true);
        while more {
            let leaf = self.map.run(|pages| self.table.get().leaf(pages, from)).await?;
            entries.extend(leaf.entries);
            more = leaf.next.is_some();
            from = leaf.next.unwrap_or(from);
        }
        for (id, rows) in volumes_in(&entries) {
            let rows = rows.map_err(PoolError::Format)?;
            if let Some(why) = self.objection(&rows) {
                tell_of_volume(self, id, why);
                return Err(PoolError::Corrupt(why));
            }
            self.volumes.take_in(Volume::from_rows(rows, false));
        }
        Ok(())
    }

    /// A checkpoint between two records, if memory or blocks for nodes run out.
    async fn relieve(&self) -> Result<(), PoolError> {
        let is_cache_dirty = self.map.pages().wants_commit();
        if is_cache_dirty || self.is_metadata_tight() {
            self.write_checkpoint().await?;
        }
        Ok(())
    }

    /// For reading the ring of the log.
    pub(super) fn ring_reader(&self) -> RingReader<'_> {
        let (ring, arena) = (&self.commits.ring, &self.arena);
        RingReader { ring, device: self.device(), arena, owner: self.store_id() }
    }

    /// All whole records of this pool in the ring with this number or a higher one.
    pub(super) async fn records_from(&self, sequence: u64) -> BTreeMap<u64, Record> {
        let (reader, mut found) = (self.ring_reader(), BTreeMap::new());
        for (start, number) in reader.claims_from::<Record>(sequence).await {
            if let Ok(Some(placed)) = reader.record::<Record>(start, number).await {
                assert!(
                    placed.record.sequence >= sequence,
                    "RECORD1: a record has the number that it claims"
                );
                found.insert(number, placed.record);
            }
        }
        found
    }

    /// The records behind those that were replayed, up to the first that is missing or cannot be read; and why it cannot.
    pub(super) async fn records(&self) -> (Vec<Record>, Option<PoolError>) {
        let (records, end) = read_as_far(&self).await;
        let error = if let End::Failed(error) = end { Some(error) } else { None };
        (records.into_iter().map(|placed| placed.record).collect(), error)
    }

    /// POOLOPEN1: makes a change again.
    pub(super) async fn redo(&self, change: &Change) -> Result<(), PoolError> {
        self.may_be_made(change)?;
        match change {
            Change::Map { volume, start, count, place } => {
                self.remap(*volume, Mapping::of(*start, BlockRun::new(*place, *count))).await
            }
            Change::Zero { volume, start, end } => {
                let (mut at, end) = (*start, *end);
                while at < end {
                    let count = (end - at).min(Mapping::COUNT_MAX);
                    self.remap(*volume, Mapping { start: at, count, place: None, birth: 0 }).await?;
                    at += count;
                }
                Ok(())
            }
            Change::Unmap { volume, start, end } => {
                let volume = self.volumes.known(*volume)?;
                let mut at = *start;
                while at < *end {
                    at = self.map.run(|pages| self.try_unmap(pages, &volume, at, *end)).await?.0;
                }
                Ok(())
            }
            Change::Resize { volume, bytes } => {
                self.apply(&mut self.map.pages(), change)?;
                // What lay behind the new end was unmapped before (`set_size`), unless the log contradicts itself.
                let (volume, mut at) = (self.volumes.known(*volume)?, bytes / PART_SIZE);
                while at < u64::MAX {
                    at = self.map.run(|pages| self.try_unmap(pages, &volume, at, u64::MAX)).await?.0;
                }
                Ok(())
            }
            other => self.apply(&mut self.map.pages(), other),
        }
    }

    async fn remap(&self, volume: u64, new: Mapping) -> Result<(), PoolError> {
        assert!(new.count > 0, "MAPPING1: {new:?}");
        let volume = self.volumes.known(volume)?;
        let mut rest = new;
        while rest.count > 0 {
            let end = self.map.run(|pages: &mut Pages| self.try_map(pages, &volume, rest)).await?;
            rest = rest.behind(end - rest.start);
        }
        Ok(())
    }
}

/// The volumes that entries of a map of volumes are about, with their numbers, in order.
pub(super) fn volumes_in(
    entries: &[(Key, Value)],
) -> impl Iterator<Item = (u64, Result<VolumeRows, PoolFormatError>)> {
    let volumes = entries.chunk_by(|one, two| one.0 >> 64 == two.0 >> 64);
    volumes.map(|rows| {
        let id = u64::try_from(rows[0].0 >> 64).expect("half of a key");
        (id, VolumeRows::decode(id, rows))
    })
}

/// The slots of a superblock, in the order in which they are written.
pub(super) fn slots(superblock: &Superblock, arena: &Arena) -> [SlotBytes; 2] {
    superblock.slots().map(|address| {
        let mut slot = arena.take(index(superblock.slot_blocks * PART_SIZE));
        superblock.encode(&mut slot, address);
        (address.offset(), slot.freeze())
    })
}

/// The newer of the two superblocks. The second slot's place follows from the length of a slot, which either has. When
/// one was read nothing else is looked at: elsewhere is data, in which clients may have written anything.
pub(super) async fn read_superblock(device: &Device, arena: &Arena) -> Result<Superblock, PoolError> {
    Ok(read_superblocks(device, arena).await?.0)
}

/// The newer superblock, and the addresses of the slots that hold it, in bytes (PAIR4).
async fn read_superblocks(device: &Device, arena: &Arena) -> Result<(Superblock, Vec<u64>), PoolError> {
    let mut newest = Newest::<Superblock>::new();
    let lengths = std::iter::successors(Some(1), |length| Some(length * 2));
    let second = lengths.take_while(|length| *length <= SLOT_BLOCKS_MAX);
    let end = Block::end_of(device.shape().size);
    for address in std::iter::once(0).chain(second).map(Block::new) {
        if address >= end {
            break;
        }
        if newest.so_far().is_some_and(|one| one.slot_blocks != address.number()) {
            continue;
        }
        let block = device.read(address.offset(), arena.take(index(PART_SIZE))).await?;
        let Some(length) = Superblock::slot_length(&block, address) else { continue };
        if address + length > end {
            continue;
        }
        let slot = device.read(address.offset(), arena.take(index(length * PART_SIZE))).await?;
        newest.look_at(address.offset(), Superblock::decode(&slot, address));
    }
    newest.found().map_err(PoolError::Format)
}

impl journal::Superblock for Superblock {
    type Error = PoolFormatError;
    const ABSENT: PoolFormatError = PoolFormatError::Absent;

    fn number(&self) -> u64 {
        self.number
    }

    fn is_other_version(error: PoolFormatError) -> bool {
        matches!(error, PoolFormatError::Newer(_))
    }
}

impl RingRecord for Record {
    type Error = PoolError;

    fn claims(block: &[u8], pool: u64) -> Option<(u64, u64)> {
        Record::claims(block, pool)
    }

    const LATER_EPOCH: PoolError =
        PoolError::Corrupt("the newest superblock of the pool was lost: its log is of a later epoch");

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn decode(bytes: &[u8]) -> Result<Option<Record>, PoolError> {
        match Record::decode(bytes) {
            Ok(record) => Ok(Some(record)),
            Err(PoolFormatError::Checksum) => Ok(None),
            Err(error) => Err(PoolError::Format(error)),
        }
    }
}

impl Log for &Pool {
    type Record = Placed<Record>;
    type Error = PoolError;

    async fn next(&self, before: &[Placed<Record>]) -> Result<Next<Placed<Record>>, PoolError> {
        let found = self.ring_reader().next(before.last()).await?;
        Ok(found.map_or(Next::Damaged, Next::Record)) // What is there instead looks like a torn record.
    }

    async fn goes_on(&self, before: &[Placed<Record>]) -> Result<bool, PoolError> {
        let missing = before.last().map_or(self.commits.ring.sequence(), |last| last.sequence + 1);
        let later = self.ring_reader().later::<Record>(missing).await;
        if let Some((later, block)) = later {
            tracing::error!(pool = %self.id, missing, later, block,
                "a record of the pool's log is damaged: a later one is there");
        }
        Ok(later.is_some())
    }

    fn damaged(&self) -> PoolError {
        PoolError::Corrupt("a record in the midst of the pool's log is damaged")
    }

    async fn claim(&self, placed: &Placed<Record>) -> Result<(), PoolError> {
        for change in &placed.record.changes {
            if let Change::Map { count, place, .. } = change
                && !self.map.run(|pages| pages.claim_unpublished(BlockRun::new(*place, *count))).await?
            {
                return Err(PoolError::Corrupt("the log maps a block that is in use"));
            }
        }
        Ok(())
    }

    async fn apply(&mut self, placed: Placed<Record>) -> Result<(), PoolError> {
        for change in &placed.record.changes {
            self.redo(change).await?;
        }
        self.commits.ring.accept(placed.start, placed.blocks, placed.sequence);
        self.relieve().await
    }
}
