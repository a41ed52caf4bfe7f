//! An entry of the map of exceptions: where content that was preserved for a snapshot is.
//!
//! The key is (chunk, snapshot, first part), so that the content of snapshot S of a chunk is the first entry at or
//! after (chunk, S). One entry may stand for a run of whole chunks, one behind the other in the store.
//!
//! Invariants:
//! - EXCEPTION1. At least one part and one chunk; a run of several chunks begins at part 0.
//! - EXCEPTION2. Neither the last chunk, the last part nor the last place overflows.

use super::node::{Key, Value};
use super::{Block, BlockError};
use crate::layout::{Field, Layout};

const CHUNK: Field = Field::new(0, 8, "chunk", "bits 64 to 127 of the key: number of the first chunk");
const SNAPSHOT: Field = Field::new(8, 4, "snapshot", "bits 32 to 63 of the key: id of the snapshot");
const PART: Field = Field::new(12, 4, "part", "bits 0 to 31 of the key: first part of 4 KiB in the chunk");
const PLACE: Field = Field::new(16, 8, "place", "first block of 4 KiB of the data in the store");
const RUN: Field = Field::new(24, 4, "run", "number of chunks");
const PARTS: Field = Field::new(28, 4, "parts", "number of parts in each chunk");

/// The byte table of an exception: the key, most significant field first, and its value.
pub const LAYOUT: Layout = Layout::new(
    "Map of exceptions: entry",
    "Content preserved for a snapshot. The entry of a leaf of a map; the key is one number.",
    32,
    &[CHUNK, SNAPSHOT, PART, PLACE, RUN, PARTS],
);

/// Content of a run of chunks, preserved for one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The first chunk.
    pub chunk: u64,
    /// The snapshot.
    pub snapshot: u32,
    /// The first part in each chunk.
    pub part: u32,
    /// The first block of the data in the store.
    pub place: Block,
    /// The number of chunks.
    pub run: u32,
    /// The number of parts in each chunk; the data of a chunk follows that of the chunk before.
    pub parts: u32,
}

/// The key of a chunk, a snapshot and a part.
pub const fn exception_key(chunk: u64, snapshot: u32, part: u32) -> Key {
    (chunk as u128) << 64 | (snapshot as u128) << 32 | part as u128
}

impl Exception {
    /// The key under which it is found.
    pub const fn key(&self) -> Key {
        exception_key(self.chunk, self.snapshot, self.part)
    }

    /// The key of its last chunk.
    pub const fn last_key(&self) -> Key {
        exception_key(self.end() - 1, self.snapshot, self.part)
    }

    /// The first chunk behind the run.
    pub const fn end(&self) -> u64 {
        self.chunk + self.run as u64
    }

    /// Its value in the map.
    pub fn value(&self) -> Value {
        assert!(self.check().is_ok(), "EXCEPTION1, EXCEPTION2: {self:?}");
        let mut value = [0; 16];
        value[..8].copy_from_slice(&self.place.number().to_le_bytes());
        value[8..12].copy_from_slice(&self.run.to_le_bytes());
        value[12..].copy_from_slice(&self.parts.to_le_bytes());
        value
    }

    /// The exception that a map holds.
    pub fn decode(key: Key, value: Value) -> Result<Exception, BlockError> {
        let value = u128::from_le_bytes(value);
        let exception = Exception {
            chunk: (key >> 64) as u64,
            snapshot: (key >> 32) as u32,
            part: key as u32,
            place: Block::new(value as u64),
            run: (value >> 64) as u32,
            parts: (value >> 96) as u32,
        };
        exception.check()?;
        Ok(exception)
    }

    fn check(&self) -> Result<(), BlockError> {
        if self.run == 0 || self.parts == 0 || (self.run > 1 && self.part != 0) {
            return Err(BlockError::Invalid(
                "EXCEPTION1: an empty exception, or a run that begins within a chunk",
            ));
        }
        let blocks = u64::from(self.run) * u64::from(self.parts);
        let fits = self.chunk.checked_add(u64::from(self.run)).is_some()
            && self.part.checked_add(self.parts).is_some()
            && self.place.checked_add(blocks).is_some();
        if fits { Ok(()) } else { Err(BlockError::Invalid("EXCEPTION2: an exception beyond all ends")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let exception = Exception {
            chunk: 0x0102,
            snapshot: 0x0304,
            part: 0,
            place: Block::new(0x0506),
            run: 7,
            parts: 16,
        };
        assert_eq!(exception.key(), 0x0102_0000_0304_0000_0000, "the layout has changed");
        assert_eq!(exception.value(), [6, 5, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 16, 0, 0, 0]);
        assert_eq!(exception.last_key() - exception.key(), 6 << 64);
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_what_was_stored_or_refused(key: u128, value: [u8; 16]) {
            if let Ok(exception) = Exception::decode(key, value) {
                prop_assert_eq!((exception.key(), exception.value()), (key, value));
            }
        }

        #[test]
        fn exceptions_survive_the_round_trip(
            chunk in 0..u64::MAX >> 8, snapshot: u32, place in 0..1_u64 << 52, run in 1..9_u32, parts in 1..257_u32
        ) {
            let exception = Exception { chunk, snapshot, part: 0, place: Block::new(place), run, parts };
            prop_assert_eq!(Exception::decode(exception.key(), exception.value()), Ok(exception));
        }
    }
}
