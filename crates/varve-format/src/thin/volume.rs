//! A volume of a pool in the map of volumes: a few entries of 16 bytes, of which only those that change are written.
//!
//! Invariants:
//! - VOLUME1. The entries of a volume are 0 to 3, 4 to 6 if it has an origin, and as many of the name as it is long; none
//!   is missing.
//! - VOLUME2. A volume that is being removed has no name.
//! - VOLUME3. Flag 32 tells a snapshot; it is one of another volume, and names that by its id.

use super::{Origin, PoolFormatError, require};
use crate::layout::{Field, Layout};
use crate::pdata::link::Link;
use crate::pdata::node::{Key, Value};
use varve_block::is_zero;

const ROOT: Field =
    Field::new(0, 8, "root", "entry 0: link to the root of the volume's map; 0 for an empty one");
const SINCE: Field = Field::new(8, 8, "since", "entry 0: generation of the newest node that others may hold");
const BYTES: Field = Field::new(16, 8, "bytes", "entry 1: size");
const MAPPED: Field = Field::new(24, 8, "mapped", "entry 1: number of parts that are mapped to data");
const FLAGS: Field = Field::new(
    32,
    4,
    "flags",
    "entry 2: 1 read-only, 2 being removed, 4 has an origin, 8 held, 16 others are backed by it, 32 snapshot",
);
const NAME_LENGTH: Field = Field::new(36, 4, "name_length", "entry 2: bytes of the name");
const SOURCE: Field = Field::new(
    40,
    8,
    "source",
    "entry 2: id of the volume that it was cloned from, or 0; after a rollback, of what it held before that",
);
const CREATED: Field = Field::new(48, 8, "created", "entry 3: seconds since 1970-01-01 00:00 UTC");
const SNAPSHOT_OF: Field = Field::new(
    56,
    8,
    "snapshot_of",
    "entry 3: id of the volume that it is a snapshot of, if it is one; else zero",
);
const ORIGIN: Field = Field::new(64, 48, "origin", "entries 4 to 6: its origin, if it has one");
const NAME: Field = Field::new(
    112,
    16,
    "name",
    "entries from 16 on: the name, 16 bytes each, then zeros; `~ID~REMOVED~UNTIL~NAME` in the trash, dates in seconds since 1970",
);

/// The byte table of a volume.
pub const VOLUME_LAYOUT: Layout = Layout::new(
    "Thin pool: volume",
    "Values of a volume's entries in the map of volumes, one behind the other. The key has the volume's id in its \
     upper 8 bytes and the number of the entry in the lower ones.",
    128,
    &[ROOT, SINCE, BYTES, MAPPED, FLAGS, NAME_LENGTH, SOURCE, CREATED, SNAPSHOT_OF, ORIGIN, NAME],
);

/// Entries of every volume.
const ALWAYS: usize = 4;
/// Entries of those that have an origin.
const WITH_ORIGIN: usize = 7;
/// Numbers of entries that only those with an origin have.
pub const ORIGIN_ENTRIES: std::ops::Range<u64> = ALWAYS as u64..FIRST_OF_NAME;
const FIRST_OF_NAME: u64 = 16;
const NAME_LENGTH_MAX: usize = 255;
/// The flag of a snapshot (VOLUME3).
const SNAPSHOT: u32 = 32;

/// The key of entry `number` of a volume.
pub const fn volume_key(volume: u64, number: u64) -> Key {
    (volume as Key) << 64 | number as Key
}

/// What a volume is, bit by bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeFlags(pub u32);

impl VolumeFlags {
    /// It may not be written.
    pub const READ_ONLY: u32 = 1;
    /// It is being removed.
    pub const REMOVING: u32 = 2;
    /// What it does not hold is another device's.
    pub const ORIGIN: u32 = 4;
    /// It may not be removed.
    pub const HELD: u32 = 8;
    /// Others are backed by it: it may not be removed as long as that is so.
    pub const BASE: u32 = 16;

    /// Whether all bits of `flag` are set.
    pub const fn has(self, flag: u32) -> bool {
        self.0 & flag == flag
    }

    /// With the bits of `flag` set or not.
    #[must_use]
    pub const fn with(self, flag: u32, set: bool) -> VolumeFlags {
        VolumeFlags(if set { self.0 | flag } else { self.0 & !flag })
    }
}

/// A volume as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRows {
    /// Its id.
    pub volume: u64,
    /// Root of its map.
    pub root: Link,
    /// Generation of the newest node that another volume may hold too.
    pub since: u64,
    /// Size.
    pub bytes: u64,
    /// Parts mapped to data.
    pub mapped: u64,
    /// What it is.
    pub flags: VolumeFlags,
    /// The volume that it was cloned from; after a rollback, the one that kept what it held before.
    pub source: u64,
    /// When it was created.
    pub created: u64,
    /// The volume that it is a snapshot of, if it is one.
    pub snapshot_of: Option<u64>,
    /// Its origin; if and only if the flags say that there is one.
    pub origin: Option<Origin>,
    /// Its name; empty while it is being removed.
    pub name: String,
}

impl VolumeRows {
    /// The entries of the volume.
    pub fn encode(&self) -> Vec<(Key, Value)> {
        assert_eq!(self.origin.is_some(), self.flags.has(VolumeFlags::ORIGIN), "VOLUME1");
        let mut bytes = vec![0; ORIGIN.offset];
        for (field, number) in
            [(ROOT, self.root.pack()), (SINCE, self.since), (BYTES, self.bytes), (MAPPED, self.mapped)]
        {
            field.put_u64(&mut bytes, number);
        }
        let snapshot = if self.snapshot_of.is_some() { SNAPSHOT } else { 0 };
        FLAGS.put_u32(&mut bytes, self.flags.0 | snapshot);
        SNAPSHOT_OF.put_u64(&mut bytes, self.snapshot_of.unwrap_or(0));
        NAME_LENGTH.put_u32(&mut bytes, u32::try_from(self.name.len()).expect("a name is short"));
        SOURCE.put_u64(&mut bytes, self.source);
        CREATED.put_u64(&mut bytes, self.created);
        bytes.extend(self.origin.iter().flat_map(Origin::encode));
        let unnamed = bytes.len() / 16;
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        let entry = |(index, value): (usize, &[u8])| {
            let key = volume_key(self.volume, entry_number(index, unnamed));
            (key, value.try_into().expect("16 bytes"))
        };
        bytes.chunks_exact(16).enumerate().map(entry).collect()
    }

    /// The volume whose entries these are, in order.
    pub fn decode(volume: u64, entries: &[(Key, Value)]) -> Result<VolumeRows, PoolFormatError> {
        let bytes: Vec<u8> = entries.iter().flat_map(|(_, value)| *value).collect();
        require(entries.len() >= ALWAYS, "VOLUME1: an entry is missing")?;
        let is_snapshot = FLAGS.u32(&bytes) & SNAPSHOT != 0;
        let flags = VolumeFlags(FLAGS.u32(&bytes) & !SNAPSHOT);
        require(flags.0 < SNAPSHOT, "a flag that there is not")?;
        let unnamed = if flags.has(VolumeFlags::ORIGIN) { WITH_ORIGIN } else { ALWAYS };
        let mut keys = entries.iter().map(|(key, _)| *key).enumerate();
        let in_order = keys.all(|(index, key)| key == volume_key(volume, entry_number(index, unnamed)));
        require(in_order && entries.len() >= unnamed, "VOLUME1: an entry is missing")?;
        let length = NAME_LENGTH.u32(&bytes) as usize;
        require(length <= NAME_LENGTH_MAX, "VOLUME1: the length of the name")?;
        let (fixed, named) = bytes.split_at(unnamed * 16);
        require(named.len() == length.next_multiple_of(16), "VOLUME1: the length of the name")?;
        let (name, padding) = named.split_at(length);
        require(is_zero(padding), "reserved bytes are not zero")?;
        let of = SNAPSHOT_OF.u64(fixed);
        let is_of_another = if is_snapshot { of != volume } else { of == 0 };
        require(is_of_another, "VOLUME3: what a volume is a snapshot of")?;
        let name = String::from_utf8(name.to_vec()).map_err(|_| PoolFormatError::Invalid("a name"))?;
        require(flags.has(VolumeFlags::REMOVING) == name.is_empty(), "VOLUME2: the name of a volume")?;
        let origin = (unnamed == WITH_ORIGIN).then(|| Origin::decode(ORIGIN.bytes(fixed))).transpose()?;
        Ok(VolumeRows {
            volume,
            root: Link::unpack(ROOT.u64(fixed)),
            since: SINCE.u64(fixed),
            bytes: BYTES.u64(fixed),
            mapped: MAPPED.u64(fixed),
            flags,
            source: SOURCE.u64(fixed),
            created: CREATED.u64(fixed),
            snapshot_of: is_snapshot.then_some(of),
            origin,
            name,
        })
    }
}

/// The number of the entry that is number `index` of those that a volume has; the first of the name is `unnamed`.
fn entry_number(index: usize, unnamed: usize) -> u64 {
    index.checked_sub(unnamed).map_or(index as u64, |of_name| FIRST_OF_NAME + of_name as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_survive_the_round_trip_and_gaps_are_refused() {
        let rows = VolumeRows {
            volume: 7,
            root: Link::unpack(0x0201_0000_0000_0001),
            since: 2,
            bytes: 3 << 40,
            mapped: 4,
            flags: VolumeFlags(VolumeFlags::READ_ONLY),
            source: 5,
            created: 6,
            snapshot_of: Some(3),
            origin: None,
            name: "a name of more than sixteen bytes".into(),
        };
        let entries = rows.encode();
        assert_eq!(entries.len(), 7);
        assert_eq!(entries[0], (7 << 64, [1, 0, 0, 0, 0, 0, 1, 2, 2, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(entries[4].0, (7 << 64) + 16);
        assert_eq!(VolumeRows::decode(7, &entries), Ok(rows));
        for missing in 0..entries.len() {
            let mut entries = entries.clone();
            entries.remove(missing);
            assert!(VolumeRows::decode(7, &entries).is_err(), "VOLUME1: entry {missing}");
        }
        assert!(VolumeRows::decode(8, &entries).is_err());
        assert_eq!((entries[2].1[0], entries[3].1[8]), (33, 3), "the flags, and what it is a snapshot of");
        for (entry, at, value) in [(2, 0, 1), (2, 0, 65), (3, 8, 7)] {
            let mut wrong = entries.clone();
            wrong[entry].1[at] = value;
            assert!(VolumeRows::decode(7, &wrong).is_err(), "VOLUME3: byte {at} of entry {entry}");
        }
    }

    #[test]
    fn a_volume_has_an_origin_if_its_flags_say_so() {
        let backing = super::super::Backing::Image { id: uuid::Uuid::from_u128(1) };
        let origin = Origin { backing, bytes: 4096 };
        let rows = VolumeRows {
            volume: 7,
            root: Link::NONE,
            since: 0,
            bytes: 8192,
            mapped: 0,
            flags: VolumeFlags(VolumeFlags::ORIGIN),
            source: 0,
            created: 6,
            snapshot_of: None,
            origin: Some(origin),
            name: "name".into(),
        };
        let entries = rows.encode();
        assert_eq!(entries.iter().map(|entry| entry.0 as u64).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 16]);
        assert_eq!(VolumeRows::decode(7, &entries), Ok(rows));
        for missing in 0..entries.len() {
            let mut entries = entries.clone();
            entries.remove(missing);
            assert!(VolumeRows::decode(7, &entries).is_err(), "VOLUME1: entry {missing}");
        }
        let mut without = entries;
        without[2].1[0] = 0; // the flags
        assert!(VolumeRows::decode(7, &without).is_err(), "VOLUME1");
    }
}
