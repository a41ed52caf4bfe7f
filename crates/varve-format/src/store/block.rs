//! A block of entries: one record of an exception store's log, or one link of its table of snapshots.
//!
//! Invariants:
//! - BLOCK1. The checksum covers the whole block, with its own address and its generation.
//! - BLOCK2. A log record's generation is that of the superblock from which it is reached; records are numbered without
//!   a gap; the reader compares both with what it expects, so that a stale record is never taken for a new one.
//! - BLOCK3. `next` is a whole block behind the superblock's slots; 0 only at the end of a table.
//! - BLOCK4. The entries fill `entry_bytes` exactly; what follows them is zero.
//! - BLOCK5. The record's number is not so high that it cannot be counted on.

use super::entry::Entry;
use super::{FIRST_ADDRESS, NUMBER_MAX, PART_SIZE, SIZE, STORE_VERSION, StoreFormatError};
use crate::layout::{Field, Layout};
use uuid::Uuid;
use varve_block::is_aligned;

const MAGIC_LOG: &[u8; 8] = b"VARVE\xffSL";
const MAGIC_TABLE: &[u8; 8] = b"VARVE\xffST";

const MAGIC: Field = Field::new(0, 8, "magic", "`VARVE`, byte 255, `SL` for the log, `ST` for the table");
const VERSION: Field = Field::new(8, 4, "version", "of this layout: 5");
const ENTRY_BYTES: Field = Field::new(12, 4, "entry_bytes", "bytes of all entries");
const ADDRESS: Field = Field::new(16, 8, "address", "where in the store this block lies, in bytes");
const GENERATION: Field = Field::new(24, 8, "generation", "of the superblock that leads here");
const STORE: Field = Field::new(32, 16, "store", "UUID of the exception store");
const SEQUENCE: Field = Field::new(48, 8, "sequence", "number of the record, or index in the chain");
const NEXT: Field =
    Field::new(56, 8, "next", "where the next block of the log or chain lies; 0 at a chain's end");
const ENTRIES: Field = Field::new(64, 4024, "entries", "one behind the other; then zeros");
const EPOCH: Field = Field::new(4088, 4, "epoch", "of the superblock that leads here");
const CHECKSUM: Field = Field::new(4092, 4, "checksum", "CRC32C of all bytes before it");

/// The byte table of an entry block.
pub const BLOCK_LAYOUT: Layout = Layout::new(
    "Exception store: entry block",
    "A record of the log, or a link of the chain that is the table of snapshots. Anywhere in the store.",
    SIZE,
    &[MAGIC, VERSION, ENTRY_BYTES, ADDRESS, GENERATION, STORE, SEQUENCE, NEXT, ENTRIES, EPOCH, CHECKSUM],
);
const _: () = assert!(BLOCK_LAYOUT.size == 4096 && CHECKSUM.end() == SIZE);

/// How many bytes of entries a block holds.
pub const ENTRY_CAPACITY: usize = ENTRIES.size;

/// Which chain a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The log.
    Log,
    /// The table of snapshots.
    Table,
}

impl BlockKind {
    const fn magic(self) -> &'static [u8; 8] {
        match self {
            BlockKind::Log => MAGIC_LOG,
            BlockKind::Table => MAGIC_TABLE,
        }
    }
}

/// A block of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryBlock {
    /// Which chain it belongs to.
    pub kind: BlockKind,
    /// The store's id.
    pub store: Uuid,
    /// The generation of the superblock that leads here.
    pub generation: u64,
    /// Term of the host that wrote it; that of the same superblock.
    pub epoch: u32,
    /// Where in the store the block is, in bytes.
    pub address: u64,
    /// The record's number, or the index in the chain.
    pub sequence: u64,
    /// Where the next block is; 0 at the end of a table.
    pub next: u64,
    /// What happened, in order.
    pub entries: Vec<Entry>,
}

impl EntryBlock {
    /// Whether BLOCK3 and BLOCK5 hold.
    pub fn check(&self) -> Result<(), StoreFormatError> {
        let place = |address: u64| address >= FIRST_ADDRESS && is_aligned(address, PART_SIZE);
        let end = self.kind == BlockKind::Table && self.next == 0;
        if !place(self.address) || !(end || place(self.next)) {
            return Err(StoreFormatError::Invalid("BLOCK3: the next block"));
        }
        if self.generation > NUMBER_MAX || self.sequence > NUMBER_MAX {
            return Err(StoreFormatError::Invalid("BLOCK5: a number that no store has lived to see"));
        }
        Ok(())
    }

    /// Writes the block's bytes to `block`, which is one block long. Panics if the entries are more than
    /// [`ENTRY_CAPACITY`] bytes or break their rules.
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), SIZE, "an entry block is one block");
        assert!(self.check().is_ok(), "BLOCK3, BLOCK5: {} to {}", self.address, self.next);
        block.fill(0);
        MAGIC.put(block, self.kind.magic());
        VERSION.put_u32(block, STORE_VERSION);
        ADDRESS.put_u64(block, self.address);
        GENERATION.put_u64(block, self.generation);
        STORE.put_uuid(block, self.store);
        SEQUENCE.put_u64(block, self.sequence);
        NEXT.put_u64(block, self.next);
        let mut at = ENTRIES.offset;
        for entry in &self.entries {
            assert!(at + entry.length() <= ENTRIES.end(), "BLOCK4: the entries fit");
            entry.encode(&mut block[at..ENTRIES.end()]);
            at += entry.length();
        }
        let bytes = u32::try_from(at - ENTRIES.offset).expect("BLOCK4: less than a block");
        ENTRY_BYTES.put_u32(block, bytes);
        EPOCH.put_u32(block, self.epoch);
        CHECKSUM.seal(block);
    }

    /// The block in `block`, which was read at `address`.
    pub fn decode(block: &[u8], kind: BlockKind, address: u64) -> Result<EntryBlock, StoreFormatError> {
        assert_eq!(block.len(), SIZE, "an entry block is one block");
        if MAGIC.bytes(block) != kind.magic() {
            return Err(StoreFormatError::Absent);
        }
        if !CHECKSUM.seals(block) {
            return Err(StoreFormatError::Checksum);
        }
        match VERSION.u32(block) {
            STORE_VERSION => {}
            version => return Err(StoreFormatError::Version(version)),
        }
        if ADDRESS.u64(block) != address {
            return Err(StoreFormatError::Misplaced(ADDRESS.u64(block)));
        }
        let length = usize::try_from(ENTRY_BYTES.u32(block)).unwrap_or(usize::MAX);
        if length > ENTRIES.size
            || block[ENTRIES.offset + length..ENTRIES.end()].iter().any(|byte| *byte != 0)
        {
            return Err(StoreFormatError::Invalid("BLOCK4: the entries' length"));
        }
        let mut rest = &block[ENTRIES.offset..ENTRIES.offset + length];
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let entry = Entry::decode(rest)?;
            rest = &rest[entry.length()..];
            entries.push(entry);
        }
        let found = EntryBlock {
            kind,
            store: STORE.uuid(block),
            generation: GENERATION.u64(block),
            epoch: EPOCH.u32(block),
            address,
            sequence: SEQUENCE.u64(block),
            next: NEXT.u64(block),
            entries,
        };
        found.check()?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
