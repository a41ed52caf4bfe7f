//! An entry of the map of written content: where bytes that were written to a snapshot lie.
//!
//! The key is (snapshot, first part), so that everything that was written to a snapshot is stored together. One entry
//! stands for parts that follow each other, in the snapshot and in the store.
//!
//! Invariants:
//! - WRITTEN1. At least one part.
//! - WRITTEN2. Neither the last part nor the last place overflows.

use super::node::{Key, Value};
use super::{Block, BlockError};
use crate::layout::{Field, Layout};

const SNAPSHOT: Field = Field::new(0, 8, "snapshot", "bits 64 to 127 of the key: id of the snapshot");
const PART: Field = Field::new(8, 8, "part", "bits 0 to 63 of the key: first part of 4 KiB in the snapshot");
const PLACE: Field = Field::new(16, 8, "place", "first block of 4 KiB of the data in the store; 0 for zeros");
const COUNT: Field = Field::new(24, 8, "count", "number of parts");

/// The byte table of written content: the key, most significant field first, and its value.
pub const LAYOUT: Layout = Layout::new(
    "Map of written content: entry",
    "Content written to a snapshot. The entry of a leaf of a map; the key is one number.",
    32,
    &[SNAPSHOT, PART, PLACE, COUNT],
);

/// The place of parts that are zeros and take no space.
pub const NO_PLACE: Block = Block::new(0);

/// Content that was written to a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The snapshot.
    pub snapshot: u32,
    /// The first part.
    pub part: u64,
    /// The first block of the data in the store, or [`NO_PLACE`].
    pub place: Block,
    /// The number of parts.
    pub count: u64,
}

/// The key of a snapshot and a part.
pub const fn written_key(snapshot: u32, part: u64) -> Key {
    (snapshot as u128) << 64 | part as u128
}

impl Written {
    /// The key under which it is found.
    pub const fn key(&self) -> Key {
        written_key(self.snapshot, self.part)
    }

    /// The first part behind it.
    pub const fn end(&self) -> u64 {
        self.part + self.count
    }

    /// Its value in the map.
    pub fn value(&self) -> Value {
        assert!(self.check().is_ok(), "WRITTEN1, WRITTEN2: {self:?}");
        let mut value = [0; 16];
        value[..8].copy_from_slice(&self.place.number().to_le_bytes());
        value[8..].copy_from_slice(&self.count.to_le_bytes());
        value
    }

    /// The content that a map holds.
    pub fn decode(key: Key, value: Value) -> Result<Written, BlockError> {
        let snapshot = u32::try_from(key >> 64).map_err(|_| BlockError::Invalid("the id of a snapshot"))?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| value[at + byte]));
        let written = Written { snapshot, part: key as u64, place: Block::new(number(0)), count: number(8) };
        written.check()?;
        Ok(written)
    }

    fn check(&self) -> Result<(), BlockError> {
        if self.count == 0 {
            return Err(BlockError::Invalid("WRITTEN1: written content without a part"));
        }
        let fits =
            self.part.checked_add(self.count).is_some() && self.place.checked_add(self.count).is_some();
        if fits { Ok(()) } else { Err(BlockError::Invalid("WRITTEN2: written content beyond all ends")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let written = Written { snapshot: 0x0304, part: 0x0102, place: Block::new(0x0506), count: 7 };
        assert_eq!(written.key(), 0x0304_0000_0000_0000_0102, "the layout has changed");
        assert_eq!(written.value(), [6, 5, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_what_was_stored_or_refused(key: u128, value: [u8; 16]) {
            if let Ok(written) = Written::decode(key, value) {
                prop_assert_eq!((written.key(), written.value()), (key, value));
            }
        }

        #[test]
        fn written_content_survives_the_round_trip(
            snapshot: u32, part in 0..u64::MAX >> 8, place in 0..1_u64 << 52, count in 1..1_u64 << 40
        ) {
            let written = Written { snapshot, part, place: Block::new(place), count };
            prop_assert_eq!(Written::decode(written.key(), written.value()), Ok(written));
        }
    }
}
