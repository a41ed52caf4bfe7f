//! What a volume lies over: something outside of its pool that never changes, named so that nothing else is ever taken
//! for it.
//!
//! Invariant ORIGIN1: an origin has a store and a number, and shows at least one part. Number and date of what is no snapshot
//! are zero.

use super::{PART_SIZE, PoolFormatError, require};
use crate::layout::{Field, Layout};
use uuid::Uuid;

const STORE: Field = Field::new(
    0,
    16,
    "store",
    "UUID of the exception store, or of the pool, that the snapshot is in; or of a disk image or read-only volume in the \
     group's text",
);
const SNAPSHOT: Field = Field::new(16, 8, "snapshot", "the snapshot's number there, or zero");
const CREATED: Field =
    Field::new(24, 8, "created", "the snapshot's date, in seconds since 1970-01-01 00:00 UTC, or zero");
const BYTES: Field =
    Field::new(32, 8, "bytes", "from its start on, as many bytes show; behind them are zeros");
const RESERVED: Field = Field::new(40, 8, "reserved", "zero");

/// The byte table of an origin.
pub const ORIGIN_LAYOUT: Layout = Layout::new(
    "Thin pool: origin",
    "What shows where a volume holds nothing. In entries 4 to 6 of the volume, and in front of the name in a record's \
     entry of kind 13.",
    48,
    &[STORE, SNAPSHOT, CREATED, BYTES, RESERVED],
);

/// What a volume lies over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The exception store, or the pool, that the snapshot is in; or a disk image, or a read-only volume.
    pub store: Uuid,
    /// The snapshot's number there; zero of what is no snapshot.
    pub snapshot: u64,
    /// The snapshot's date, in seconds since 1970; another snapshot with its number has another one. Zero of
    /// what is no snapshot.
    pub created: u64,
    /// So many bytes of it show, from its start on; a multiple of 4 KiB.
    pub bytes: u64,
}

impl Origin {
    /// Its bytes.
    pub fn encode(&self) -> [u8; ORIGIN_LAYOUT.size] {
        let mut bytes = [0; ORIGIN_LAYOUT.size];
        STORE.put_uuid(&mut bytes, self.store);
        SNAPSHOT.put_u64(&mut bytes, self.snapshot);
        CREATED.put_u64(&mut bytes, self.created);
        BYTES.put_u64(&mut bytes, self.bytes);
        bytes
    }

    /// The origin in `bytes`, which are as long as its layout.
    pub fn decode(bytes: &[u8]) -> Result<Origin, PoolFormatError> {
        require(bytes.len() == ORIGIN_LAYOUT.size, "ORIGIN1: the length of an origin")?;
        require(RESERVED.is_zero(bytes), "reserved bytes are not zero")?;
        let origin = Origin {
            store: STORE.uuid(bytes),
            snapshot: SNAPSHOT.u64(bytes),
            created: CREATED.u64(bytes),
            bytes: BYTES.u64(bytes),
        };
        let is_sound = !origin.store.is_nil() && origin.bytes > 0 && origin.bytes.is_multiple_of(PART_SIZE);
        require(is_sound, "ORIGIN1: an origin")?;
        Ok(origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_survive_the_round_trip_and_nonsense_is_refused() {
        let origin = Origin { store: Uuid::from_u128(1), snapshot: 2, created: 3, bytes: 4096 };
        let bytes = origin.encode();
        assert_eq!((bytes[15], bytes[16], bytes[24], bytes[33]), (1, 2, 3, 16));
        assert_eq!(Origin::decode(&bytes), Ok(origin));
        assert!(Origin::decode(&bytes[1..]).is_err());
        for (at, value) in [(15, 0), (33, 0), (32, 1), (47, 1)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert!(Origin::decode(&wrong).is_err(), "ORIGIN1: byte {at}");
        }
    }
}
