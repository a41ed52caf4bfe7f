//! One thing that happened in an exception store: the unit of its log and of its table of snapshots.
//!
//! Entries stand one behind the other in an [`super::EntryBlock`]. Each begins with its kind and its length, a
//! multiple of 8, so that a reader finds the next; a kind or a length that it does not know is refused.
//!
//! Invariants:
//! - ENTRY1. A mapping covers whole parts, at least one, and at most [`PIECE_LENGTH_MAX`] bytes unless it is zeros; what
//!   was restored or dropped are whole parts, at least one.
//! - ENTRY2. A mapping's place is a whole block behind the superblock's slots, or [`ZEROS`] for a written one.
//! - ENTRY3. A snapshot's id is not 0 and has 32 bits.
//! - ENTRY4. Flags, paddings and reserved bytes that have no meaning are zero.
//! - ENTRY5. The boundary of a rollback is higher than the id of its snapshot, and at most one higher than any id.
//! - ENTRY6. A snapshot has whole parts, and not more bytes than an origin can have.
//! - ENTRY7. Not more bytes belong to a snapshot than a store can have.

use super::entry_layout::{
    BOUNDARY, BYTES, BYTES_PRESERVED, BYTES_SIZE, BYTES_WRITTEN, CHECKSUM, CREATE_FLAGS, CREATE_HEAD, DATE,
    FLAGS_RESERVED, FLAGS_SIZE, FLAGS_VALUE, KIND, LENGTH, NAME_LENGTH, NEW_NAME_LENGTH, OFFSET, ORIGIN_SIZE,
    PIECE_SIZE, PLACE, RENAME_HEAD, RESERVED, RESTORED_SIZE, ROLLBACK_SIZE, SNAPSHOT, SNAPSHOT_SIZE,
};
use super::superblock::STORE_SIZE_MAX;
use super::{FIRST_ADDRESS, ORIGIN_SIZE_MAX, PART_SIZE, StoreFormatError};
use crate::layout::Field;
use crate::name::{NAME_LENGTH_MAX, check_name};
use varve_block::{Extent, UnixTime, is_aligned};

/// The place of a mapping that stands for zeros and takes no space.
pub const ZEROS: u64 = 0;
/// The longest run of bytes that one mapping with data covers.
pub const PIECE_LENGTH_MAX: u64 = 1 << 32;
/// The longest entry, in bytes.
pub const ENTRY_LENGTH_MAX: usize = CREATE_HEAD + NAME_LENGTH_MAX.next_multiple_of(8);

const PRESERVED: u16 = 1;
const WRITTEN: u16 = 2;
const CREATED: u16 = 3;
const REMOVED: u16 = 4;
const FLAGS: u16 = 5;
const ROLLBACK_BEGUN: u16 = 6;
const ROLLBACK_ENDED: u16 = 7;
const BYTES_KEPT: u16 = 8;
const RESTORED: u16 = 9;
const DROPPED: u16 = 10;
const RENAMED: u16 = 11;

const FLAG_READ_ONLY: u32 = 1;
const FLAG_HELD: u32 = 2;
const FLAG_BASE: u32 = 4;

/// Where a run of bytes of a snapshot is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The snapshot's id.
    pub snapshot: u64,
    /// Which bytes, in whole parts.
    pub extent: Extent,
    /// First byte of the data in the store, or [`ZEROS`].
    pub place: u64,
}

impl Mapping {
    /// The bytes of the store where it is; none for zeros.
    pub fn stored(&self) -> Option<Extent> {
        (self.place != ZEROS).then(|| Extent::new(self.place, self.extent.length))
    }
}

/// What is known of a snapshot besides its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its id; a later snapshot of the same origin has a higher one, and none is used twice.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created: UnixTime,
    /// Bytes of the origin at that moment, and so of the snapshot.
    pub size: u64,
    /// Whether writes to it are refused.
    pub read_only: bool,
    /// Whether its removal is refused.
    pub held: bool,
    /// Whether others are backed by it; its removal is refused as long as that is so.
    pub base: bool,
}

impl Descriptor {
    /// Bytes of the entry that creates it.
    pub fn entry_length(&self) -> usize {
        CREATE_HEAD + self.name.len().next_multiple_of(8)
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The origin's content was preserved for a snapshot, before it was changed.
    Preserved {
        /// What, and where to.
        mapping: Mapping,
        /// CRC32C of the data.
        checksum: u32,
    },
    /// A snapshot was written.
    Written(Mapping),
    /// A snapshot was created.
    Created(Descriptor),
    /// A snapshot was removed. What was preserved for it still serves older ones; it is handed over or freed later.
    Removed(u64),
    /// A snapshot's flags were changed.
    Flags {
        /// Its id.
        snapshot: u64,
        /// Whether writes to it are refused.
        read_only: bool,
        /// Whether its removal is refused.
        held: bool,
        /// Whether others are backed by it.
        base: bool,
    },
    /// A snapshot has another name.
    Renamed {
        /// Its id.
        snapshot: u64,
        /// What it is called from now on.
        name: String,
    },
    /// From now on the origin shows what a snapshot shows, but where it is restored.
    RollbackBegun {
        /// The snapshot's id.
        snapshot: u64,
        /// Snapshots with this id or a higher one were taken after that instant.
        boundary: u64,
    },
    /// During a rollback: what the origin shows here is on its own device.
    Restored {
        /// The id of the snapshot to which it is being rolled back.
        snapshot: u64,
        /// Which bytes, in whole parts.
        extent: Extent,
    },
    /// What was preserved for a snapshot and newer ones is freed: the origin's device holds what they show here.
    Dropped {
        /// The id of the snapshot to which the origin is being rolled back.
        snapshot: u64,
        /// Which bytes, in whole parts.
        extent: Extent,
    },
    /// The rollback to that snapshot is complete.
    RollbackEnded(u64),
    /// How much of the store belongs to a snapshot; in the table, not in the log.
    Bytes {
        /// Its id.
        snapshot: u64,
        /// Bytes that are preserved for it.
        preserved: u64,
        /// Bytes that were written to it.
        written: u64,
    },
}

impl Entry {
    /// Bytes of the entry, a multiple of 8.
    pub fn length(&self) -> usize {
        match self {
            Entry::Preserved { .. } | Entry::Written(_) => PIECE_SIZE,
            Entry::Created(descriptor) => descriptor.entry_length(),
            Entry::Flags { .. } => FLAGS_SIZE,
            Entry::Renamed { name, .. } => RENAME_HEAD + name.len().next_multiple_of(8),
            Entry::RollbackBegun { .. } => ROLLBACK_SIZE,
            Entry::Restored { .. } | Entry::Dropped { .. } => RESTORED_SIZE,
            Entry::Bytes { .. } => BYTES_SIZE,
            Entry::Removed(_) | Entry::RollbackEnded(_) => SNAPSHOT_SIZE,
        }
    }

    fn kind(&self) -> u16 {
        match self {
            Entry::Preserved { .. } => PRESERVED,
            Entry::Written(_) => WRITTEN,
            Entry::Created(_) => CREATED,
            Entry::Removed(_) => REMOVED,
            Entry::Flags { .. } => FLAGS,
            Entry::Renamed { .. } => RENAMED,
            Entry::RollbackBegun { .. } => ROLLBACK_BEGUN,
            Entry::Restored { .. } => RESTORED,
            Entry::Dropped { .. } => DROPPED,
            Entry::RollbackEnded(_) => ROLLBACK_ENDED,
            Entry::Bytes { .. } => BYTES_KEPT,
        }
    }

    fn snapshot(&self) -> u64 {
        match self {
            Entry::Preserved { mapping, .. } | Entry::Written(mapping) => mapping.snapshot,
            Entry::Created(descriptor) => descriptor.id,
            Entry::Flags { snapshot, .. }
            | Entry::Renamed { snapshot, .. }
            | Entry::RollbackBegun { snapshot, .. }
            | Entry::Restored { snapshot, .. }
            | Entry::Dropped { snapshot, .. }
            | Entry::Bytes { snapshot, .. } => *snapshot,
            Entry::Removed(id) | Entry::RollbackEnded(id) => *id,
        }
    }

    /// Whether ENTRY1 to ENTRY3 and ENTRY5 to ENTRY7 hold; else which does not.
    pub fn check(&self) -> Result<(), StoreFormatError> {
        if self.snapshot() == 0 || self.snapshot() > u64::from(u32::MAX) {
            return Err(StoreFormatError::Invalid("ENTRY3: the id of a snapshot"));
        }
        let (mapping, zeros_allowed) = match self {
            Entry::Preserved { mapping, .. } => (mapping, false),
            Entry::Written(mapping) => (mapping, true),
            Entry::Created(descriptor) => {
                check_name(&descriptor.name).map_err(|_| StoreFormatError::Invalid("a snapshot's name"))?;
                if !is_aligned(descriptor.size, PART_SIZE) || descriptor.size > ORIGIN_SIZE_MAX {
                    return Err(StoreFormatError::Invalid("ENTRY6: a snapshot's size"));
                }
                return Ok(());
            }
            Entry::Renamed { name, .. } if check_name(name).is_err() => {
                return Err(StoreFormatError::Invalid("a snapshot's name"));
            }
            Entry::Bytes { preserved, written, .. } if (*preserved).max(*written) > STORE_SIZE_MAX => {
                return Err(StoreFormatError::Invalid("ENTRY7: the bytes of a snapshot"));
            }
            Entry::RollbackBegun { snapshot, boundary } if boundary <= snapshot || *boundary > 1 << 32 => {
                return Err(StoreFormatError::Invalid("ENTRY5: the boundary of a rollback"));
            }
            Entry::Restored { extent, .. } | Entry::Dropped { extent, .. }
                if extent.is_empty() || !extent.is_aligned(PART_SIZE) =>
            {
                return Err(StoreFormatError::Invalid("ENTRY1: what was restored or dropped"));
            }
            _ => return Ok(()),
        };
        let Mapping { extent, place, .. } = *mapping;
        let zeros = place == ZEROS && zeros_allowed;
        if extent.is_empty() || !extent.is_aligned(PART_SIZE) || (!zeros && extent.length > PIECE_LENGTH_MAX)
        {
            return Err(StoreFormatError::Invalid("ENTRY1: the extent of a mapping"));
        }
        let inside = place >= FIRST_ADDRESS && Extent::checked(place, extent.length).is_some();
        if !zeros && (!inside || !is_aligned(place, PART_SIZE)) {
            return Err(StoreFormatError::Invalid("ENTRY2: the place of a mapping"));
        }
        Ok(())
    }

    /// Writes the entry to the beginning of `bytes`. Panics if [`Entry::check`] fails.
    pub(super) fn encode(&self, bytes: &mut [u8]) {
        assert!(self.check().is_ok(), "ENTRY1 to ENTRY3, ENTRY5 to ENTRY7: {self:?}");
        let bytes = &mut bytes[..self.length()];
        bytes.fill(0);
        KIND.put(bytes, &self.kind().to_le_bytes());
        let length = u16::try_from(bytes.len()).expect("an entry is at most ENTRY_LENGTH_MAX bytes long");
        LENGTH.put(bytes, &length.to_le_bytes());
        SNAPSHOT.put_u64(bytes, self.snapshot());
        match self {
            Entry::Preserved { mapping, checksum } => {
                CHECKSUM.put_u32(bytes, *checksum);
                encode_mapping(mapping, bytes);
            }
            Entry::Written(mapping) => encode_mapping(mapping, bytes),
            Entry::Created(descriptor) => {
                DATE.put_u64(bytes, descriptor.created.0);
                ORIGIN_SIZE.put_u64(bytes, descriptor.size);
                let Descriptor { read_only, held, base, .. } = *descriptor;
                CREATE_FLAGS.put_u32(bytes, flags(read_only, held, base));
                encode_name(&descriptor.name, &NAME_LENGTH, CREATE_HEAD, bytes);
            }
            Entry::Renamed { name, .. } => encode_name(name, &NEW_NAME_LENGTH, RENAME_HEAD, bytes),
            Entry::Flags { read_only, held, base, .. } => {
                FLAGS_VALUE.put_u32(bytes, flags(*read_only, *held, *base));
            }
            Entry::RollbackBegun { boundary, .. } => BOUNDARY.put_u64(bytes, *boundary),
            Entry::Restored { extent, .. } | Entry::Dropped { extent, .. } => {
                OFFSET.put_u64(bytes, extent.offset);
                BYTES.put_u64(bytes, extent.length);
            }
            Entry::Bytes { preserved, written, .. } => {
                BYTES_PRESERVED.put_u64(bytes, *preserved);
                BYTES_WRITTEN.put_u64(bytes, *written);
            }
            Entry::Removed(_) | Entry::RollbackEnded(_) => {}
        }
    }

    /// The entry at the beginning of `bytes`.
    pub(super) fn decode(bytes: &[u8]) -> Result<Entry, StoreFormatError> {
        let cut = StoreFormatError::Invalid("an entry is cut off");
        let head = bytes.get(..SNAPSHOT_SIZE).ok_or(cut)?;
        let short = |field: &Field| u16::from_le_bytes([head[field.offset], head[field.offset + 1]]);
        let (kind, length) = (short(&KIND), usize::from(short(&LENGTH)));
        let bytes = bytes.get(..length).ok_or(cut)?;
        let expected = match kind {
            PRESERVED | WRITTEN => PIECE_SIZE,
            CREATED if length >= CREATE_HEAD => {
                CREATE_HEAD + name_length(&NAME_LENGTH, bytes)?.next_multiple_of(8)
            }
            RENAMED if length >= RENAME_HEAD => {
                RENAME_HEAD + name_length(&NEW_NAME_LENGTH, bytes)?.next_multiple_of(8)
            }
            FLAGS => FLAGS_SIZE,
            ROLLBACK_BEGUN => ROLLBACK_SIZE,
            RESTORED | DROPPED => RESTORED_SIZE,
            BYTES_KEPT => BYTES_SIZE,
            REMOVED | ROLLBACK_ENDED => SNAPSHOT_SIZE,
            _ => return Err(StoreFormatError::Invalid("an entry of an unknown kind")),
        };
        if length != expected {
            return Err(StoreFormatError::Invalid("an entry of the wrong length"));
        }
        if kind != PRESERVED && !RESERVED.is_zero(bytes) {
            return Err(StoreFormatError::Invalid("ENTRY4: reserved bytes are not zero"));
        }
        let snapshot = SNAPSHOT.u64(bytes);
        let entry = match kind {
            PRESERVED => Entry::Preserved { mapping: decode_mapping(bytes)?, checksum: CHECKSUM.u32(bytes) },
            WRITTEN => Entry::Written(decode_mapping(bytes)?),
            CREATED => Entry::Created(decode_descriptor(bytes)?),
            FLAGS => {
                let (read_only, held, base) = decode_flags(FLAGS_VALUE.u32(bytes))?;
                if !FLAGS_RESERVED.is_zero(bytes) {
                    return Err(StoreFormatError::Invalid("ENTRY4: reserved bytes are not zero"));
                }
                Entry::Flags { snapshot, read_only, held, base }
            }
            RENAMED => {
                if !FLAGS_RESERVED.is_zero(bytes) {
                    return Err(StoreFormatError::Invalid("ENTRY4: reserved bytes are not zero"));
                }
                Entry::Renamed { snapshot, name: decode_name(&NEW_NAME_LENGTH, RENAME_HEAD, bytes)? }
            }
            BYTES_KEPT => {
                let (preserved, written) = (BYTES_PRESERVED.u64(bytes), BYTES_WRITTEN.u64(bytes));
                Entry::Bytes { snapshot, preserved, written }
            }
            REMOVED => Entry::Removed(snapshot),
            ROLLBACK_BEGUN => Entry::RollbackBegun { snapshot, boundary: BOUNDARY.u64(bytes) },
            RESTORED | DROPPED => {
                let extent = Extent::checked(OFFSET.u64(bytes), BYTES.u64(bytes));
                let extent =
                    extent.ok_or(StoreFormatError::Invalid("ENTRY1: what was restored or dropped"))?;
                match kind {
                    RESTORED => Entry::Restored { snapshot, extent },
                    _ => Entry::Dropped { snapshot, extent },
                }
            }
            _ => Entry::RollbackEnded(snapshot),
        };
        entry.check()?;
        Ok(entry)
    }
}

fn encode_mapping(mapping: &Mapping, bytes: &mut [u8]) {
    OFFSET.put_u64(bytes, mapping.extent.offset);
    BYTES.put_u64(bytes, mapping.extent.length);
    PLACE.put_u64(bytes, mapping.place);
}

fn decode_mapping(bytes: &[u8]) -> Result<Mapping, StoreFormatError> {
    let extent = Extent::checked(OFFSET.u64(bytes), BYTES.u64(bytes));
    Ok(Mapping {
        snapshot: SNAPSHOT.u64(bytes),
        extent: extent.ok_or(StoreFormatError::Invalid("ENTRY1: the extent of a mapping"))?,
        place: PLACE.u64(bytes),
    })
}

fn decode_descriptor(bytes: &[u8]) -> Result<Descriptor, StoreFormatError> {
    let (read_only, held, base) = decode_flags(CREATE_FLAGS.u32(bytes))?;
    Ok(Descriptor {
        id: SNAPSHOT.u64(bytes),
        name: decode_name(&NAME_LENGTH, CREATE_HEAD, bytes)?,
        created: UnixTime(DATE.u64(bytes)),
        size: ORIGIN_SIZE.u64(bytes),
        read_only,
        held,
        base,
    })
}

fn encode_name(name: &str, length: &Field, head: usize, bytes: &mut [u8]) {
    length.put_u32(bytes, u32::try_from(name.len()).expect("a checked name is short"));
    bytes[head..head + name.len()].copy_from_slice(name.as_bytes());
}

/// The name behind a head of so many bytes.
fn decode_name(length: &Field, head: usize, bytes: &[u8]) -> Result<String, StoreFormatError> {
    let (name, padding) = bytes[head..].split_at(name_length(length, bytes)?);
    if padding.iter().any(|byte| *byte != 0) {
        return Err(StoreFormatError::Invalid("ENTRY4: padding is not zero"));
    }
    let name = std::str::from_utf8(name).map_err(|_| StoreFormatError::Invalid("a snapshot's name"))?;
    Ok(name.to_owned())
}

fn name_length(length: &Field, bytes: &[u8]) -> Result<usize, StoreFormatError> {
    let length = usize::try_from(length.u32(bytes)).unwrap_or(usize::MAX);
    if length > NAME_LENGTH_MAX {
        return Err(StoreFormatError::Invalid("a snapshot's name is too long"));
    }
    Ok(length)
}

fn flags(read_only: bool, held: bool, base: bool) -> u32 {
    let flags = [(read_only, FLAG_READ_ONLY), (held, FLAG_HELD), (base, FLAG_BASE)];
    flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum()
}

fn decode_flags(flags: u32) -> Result<(bool, bool, bool), StoreFormatError> {
    if flags & !(FLAG_READ_ONLY | FLAG_HELD | FLAG_BASE) != 0 {
        return Err(StoreFormatError::Invalid("ENTRY4: unknown flags"));
    }
    let is_set = |flag: u32| flags & flag != 0;
    Ok((is_set(FLAG_READ_ONLY), is_set(FLAG_HELD), is_set(FLAG_BASE)))
}
