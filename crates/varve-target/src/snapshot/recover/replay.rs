//! The log behind the last checkpoint: what the next record is, and what one says. Invariants STOREOPEN2 and STOREOPEN3 of the parent.

use super::super::contents::apply;
use super::super::{StoreError, index};
use super::loaded::{Loaded, read_block};
use crate::journal::{Log, Next};
use crate::pdata::{AllocClass, Pace};
use varve_block::{Arena, Device, Extent, MIB, align_down};
use varve_format::pdata::BlockRun;
use varve_format::store::{
    BlockKind, Entry, EntryBlock, PART_SIZE, StoreFormatError, Superblock, data_checksum, data_checksum_on,
};

/// How far behind a damaged record the next one is looked for: it is behind the data of the damaged one, where the free
/// space allowed it.
const LOOK_AHEAD_BYTES: u64 = 8 * MIB;

/// The log of a store that is read.
pub(in crate::snapshot) struct LoadedLog<'a> {
    pub(in crate::snapshot) loaded: &'a mut Loaded,
    pub(in crate::snapshot) store: &'a Device,
    pub(in crate::snapshot) arena: &'a Arena,
}

impl Log for LoadedLog<'_> {
    type Record = EntryBlock;
    type Error = StoreError;

    async fn next(&self, before: &[EntryBlock]) -> Result<Next<EntryBlock>, StoreError> {
        let (address, sequence) = self.loaded.log_end(before);
        self.loaded.next_record(self.store, self.arena, address, sequence).await
    }

    async fn goes_on(&self, before: &[EntryBlock]) -> Result<bool, StoreError> {
        let (address, sequence) = self.loaded.log_end(before);
        self.loaded.log_goes_on(self.store, self.arena, address, sequence).await
    }

    fn damaged(&self) -> StoreError {
        StoreError::Corrupt("a record of the log is damaged, and the log goes on behind it")
    }

    async fn is_whole(&self, last: &EntryBlock) -> Result<bool, StoreError> {
        is_whole(last, self.store, self.arena).await
    }

    async fn claim(&self, record: &EntryBlock) -> Result<(), StoreError> {
        self.loaded.claim_record(record).await
    }

    async fn apply(&mut self, record: EntryBlock) -> Result<(), StoreError> {
        self.loaded.accept(&record).await
    }
}

impl Loaded {
    pub(super) async fn apply(&mut self, entry: &Entry) -> Result<(), StoreError> {
        apply(&self.map, &self.contents, AllocClass::Reserve, entry).await?;
        self.entries += 1;
        Ok(())
    }

    /// Marks what an accepted entry or record leads to as in use: since the last checkpoint it is.
    async fn claim(&self, extent: Extent) -> Result<(), StoreError> {
        let run = BlockRun::of(extent);
        match self.blocks.run(|pages| pages.claim(run)).await.map_err(|error| self.map.report(error))? {
            true => Ok(()),
            false => Err(StoreError::Corrupt(
                "two owners share a place in the exception store, or it has no such place",
            )),
        }
    }

    /// Where the log goes on behind `records`, and with which number.
    pub(in crate::snapshot) fn log_end(&self, records: &[EntryBlock]) -> (u64, u64) {
        records.last().map_or((self.log.next, self.log.sequence), |block| (block.next, block.sequence + 1))
    }

    /// STOREOPEN2: whether a record is behind the one at `address` that should have number `sequence` and is damaged: then that
    /// was not torn by a crash. Looks where the next one is as a rule.
    async fn log_goes_on(
        &self,
        store: &Device,
        arena: &Arena,
        address: u64,
        sequence: u64,
    ) -> Result<bool, StoreError> {
        assert!(address.is_multiple_of(PART_SIZE), "STOREOPEN2: records begin with a block");
        let end = store.shape().size.min(address + LOOK_AHEAD_BYTES);
        let behind = Extent::between(address, align_down(end, PART_SIZE));
        for (_, piece) in behind.pieces(MIB) {
            let blocks = store.read(piece.offset, arena.take(index(piece.length))).await?;
            if self.later_records(piece.offset, &blocks, sequence).next().is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The records of this log behind number `sequence` in `blocks`, which lie at `offset`.
    pub(in crate::snapshot) fn later_records(
        &self,
        offset: u64,
        blocks: &[u8],
        sequence: u64,
    ) -> impl Iterator<Item = EntryBlock> {
        assert!((blocks.len() as u64).is_multiple_of(PART_SIZE), "a record begins with a block");
        let places = (offset..).step_by(index(PART_SIZE)).zip(blocks.chunks(index(PART_SIZE)));
        let records = places.filter_map(|(at, block)| EntryBlock::decode(block, BlockKind::Log, at).ok());
        let Superblock { store, generation, epoch, .. } = self.superblock;
        let of_this = move |record: &EntryBlock| {
            (record.store, record.generation, record.epoch) == (store, generation, epoch)
        };
        records.filter(move |record| of_this(record) && record.sequence > sequence)
    }

    /// The record at `address`, if it is the one with this number.
    async fn next_record(
        &self,
        store: &Device,
        arena: &Arena,
        address: u64,
        sequence: u64,
    ) -> Result<Next<EntryBlock>, StoreError> {
        let bytes = read_block(store, arena, address).await?;
        let block = match EntryBlock::decode(&bytes, BlockKind::Log, address) {
            Ok(block) => block,
            Err(StoreFormatError::Version(version)) => {
                return Err(StoreError::Format(StoreFormatError::Version(version)));
            }
            Err(StoreFormatError::Absent) => return Ok(Next::End),
            Err(_) => return Ok(Next::Damaged),
        };
        if block.store != self.superblock.store {
            return Ok(Next::End);
        }
        let Superblock { generation, epoch, .. } = self.superblock;
        if block.generation > generation || block.epoch > epoch {
            return Err(StoreError::Corrupt("the newest superblock of the exception store was lost")); // STOREOPEN3
        }
        let expected = (block.generation, block.epoch, block.sequence) == (generation, epoch, sequence);
        Ok(if expected { Next::Record(block) } else { Next::End })
    }

    async fn claim_record(&self, block: &EntryBlock) -> Result<(), StoreError> {
        self.claim(Extent::new(block.next, PART_SIZE)).await?;
        for entry in &block.entries {
            if let Entry::Preserved { mapping, .. } | Entry::Written(mapping) = entry
                && let Some(stored) = mapping.stored()
            {
                self.claim(stored).await?;
            }
        }
        Ok(())
    }

    async fn accept(&mut self, block: &EntryBlock) -> Result<(), StoreError> {
        for entry in &block.entries {
            if matches!(entry, Entry::Bytes { .. }) {
                return Err(StoreError::Corrupt("the log counts the bytes of a snapshot"));
            }
            self.apply(entry).await?;
        }
        self.log.blocks.push(Extent::new(block.address, PART_SIZE));
        (self.log.sequence, self.log.next) = (block.sequence + 1, block.next);
        while self.write_back && self.blocks.pages().wants_commit() {
            self.blocks.write_back(Pace::Prompt).await.map_err(|error| self.map.report(error))?;
        }
        Ok(())
    }
}

/// STOREOPEN2: whether the data that a record preserves is what its checksums say.
pub(in crate::snapshot) async fn is_whole(
    block: &EntryBlock,
    store: &Device,
    arena: &Arena,
) -> Result<bool, StoreError> {
    for entry in &block.entries {
        let Entry::Preserved { mapping, checksum } = entry else { continue };
        let place = Extent::checked(mapping.place, mapping.extent.length);
        let Some(place) = place.filter(|place| place.end() <= store.shape().size) else {
            return Err(StoreError::Corrupt("preserved content lies beyond the end of the exception store"));
        };
        let mut found = data_checksum(&[]);
        for (_, piece) in place.pieces(MIB) {
            let data = store.read(piece.offset, arena.take(index(piece.length))).await?;
            found = data_checksum_on(found, &data);
        }
        if found != *checksum {
            return Ok(false);
        }
    }
    Ok(true)
}
