//! The external origin of a volume: something outside of its pool that never changes, named so that nothing else is ever taken
//! for it.
//!
//! Invariants:
//! - ORIGIN1. What an origin is stands in its kind, and what it shows is at least one part.
//! - ORIGIN2. It has an id; number and date are zero but for a snapshot's.

use super::{PART_SIZE, PoolFormatError, require};
use crate::layout::{Field, Layout};
use uuid::Uuid;

const ID: Field = Field::new(
    0,
    16,
    "id",
    "UUID of the volume (kind 1), of the disk image in the group's text (2), or of the exception store or pool that the \
     snapshot is in (3)",
);
const NUMBER: Field = Field::new(16, 8, "number", "the snapshot's number there (3), else zero");
const CREATED: Field =
    Field::new(24, 8, "created", "the snapshot's date, in seconds since 1970-01-01 00:00 UTC (3), else zero");
const BYTES: Field =
    Field::new(32, 8, "bytes", "from its start on, as many bytes show; behind them are zeros");
const KIND: Field = Field::new(40, 4, "kind", "1 read-only volume, 2 disk image, 3 read-only snapshot");
const RESERVED: Field = Field::new(44, 4, "reserved", "zero");

/// The byte table of an origin.
pub const ORIGIN_LAYOUT: Layout = Layout::new(
    "Thin pool: origin",
    "What shows where a volume holds nothing. In entries 4 to 6 of the volume, and in front of the name in a record's \
     entry of kind 13.",
    48,
    &[ID, NUMBER, CREATED, BYTES, KIND, RESERVED],
);

/// What is below a volume, under an identity that nothing else ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backing {
    /// A read-only volume of the group.
    Volume {
        /// Its id in the group's text.
        id: Uuid,
    },
    /// A disk image.
    Image {
        /// Its id in the group's text.
        id: Uuid,
    },
    /// A read-only snapshot.
    Snapshot {
        /// The exception store, or the pool, that it is in.
        store: Uuid,
        /// Its number there.
        number: u64,
        /// Its date, in seconds since 1970; another snapshot with its number has another one.
        created: u64,
    },
}

impl Backing {
    /// The id of the volume or image, or of what the snapshot is in.
    pub const fn id(&self) -> Uuid {
        match self {
            Self::Volume { id } | Self::Image { id } | Self::Snapshot { store: id, .. } => *id,
        }
    }
}

/// The origin of a volume, and how much of it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// What is below.
    pub backing: Backing,
    /// So many bytes of it show, from its start on; a multiple of 4 KiB.
    pub bytes: u64,
}

impl Origin {
    /// Its bytes.
    pub fn encode(&self) -> [u8; ORIGIN_LAYOUT.size] {
        let (kind, number, created) = match self.backing {
            Backing::Volume { .. } => (1, 0, 0),
            Backing::Image { .. } => (2, 0, 0),
            Backing::Snapshot { number, created, .. } => (3, number, created),
        };
        let mut bytes = [0; ORIGIN_LAYOUT.size];
        ID.put_uuid(&mut bytes, self.backing.id());
        NUMBER.put_u64(&mut bytes, number);
        CREATED.put_u64(&mut bytes, created);
        BYTES.put_u64(&mut bytes, self.bytes);
        KIND.put_u32(&mut bytes, kind);
        bytes
    }

    /// The origin in `bytes`, which are as long as its layout.
    pub fn decode(bytes: &[u8]) -> Result<Origin, PoolFormatError> {
        require(bytes.len() == ORIGIN_LAYOUT.size, "ORIGIN1: the length of an origin")?;
        let (id, number, created) = (ID.uuid(bytes), NUMBER.u64(bytes), CREATED.u64(bytes));
        let backing = match KIND.u32(bytes) {
            1 => Backing::Volume { id },
            2 => Backing::Image { id },
            3 => Backing::Snapshot { store: id, number, created },
            _ => return Err(PoolFormatError::Invalid("ORIGIN1: a kind of origin that there is not")),
        };
        let origin = Origin { backing, bytes: BYTES.u64(bytes) };
        let shows = origin.bytes > 0 && origin.bytes.is_multiple_of(PART_SIZE);
        require(shows, "ORIGIN1: how much of an origin shows")?;
        require(!id.is_nil() && origin.encode() == bytes, "ORIGIN2: a field of an origin")?;
        Ok(origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_survive_the_round_trip_and_nonsense_is_refused() {
        let id = Uuid::from_u128(1);
        let backings = [
            Backing::Volume { id },
            Backing::Image { id },
            Backing::Snapshot { store: id, number: 2, created: 3 },
        ];
        for (kind, backing) in (1..).zip(backings) {
            let origin = Origin { backing, bytes: 4096 };
            let bytes = origin.encode();
            let of_snapshot = if kind == 3 { (2, 3) } else { (0, 0) };
            assert_eq!((bytes[15], bytes[33], bytes[40]), (1, 16, kind));
            assert_eq!((bytes[16], bytes[24]), of_snapshot);
            assert_eq!(Origin::decode(&bytes), Ok(origin));
            assert!(Origin::decode(&bytes[1..]).is_err());
            for (at, value) in [(15, 0), (33, 0), (32, 1), (40, 0), (40, 4), (41, 1), (44, 1), (47, 1)] {
                let mut wrong = bytes;
                wrong[at] = value;
                assert!(Origin::decode(&wrong).is_err(), "ORIGIN1: byte {at} of kind {kind}");
            }
        }
    }

    #[test]
    fn what_is_no_snapshot_has_neither_number_nor_date() {
        let bytes = Origin { backing: Backing::Image { id: Uuid::from_u128(1) }, bytes: 4096 }.encode();
        for at in [16, 24] {
            let mut wrong = bytes;
            wrong[at] = 1;
            assert!(Origin::decode(&wrong).is_err(), "ORIGIN2: byte {at}");
        }
    }
}
