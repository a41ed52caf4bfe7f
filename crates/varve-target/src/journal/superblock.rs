//! The pair of superblocks: which of two slots counts, and how the other one is written.
//!
//! Invariants:
//! - PAIR1. A superblock is written when everything that it leads to is durable, and durably, to the slot that does not
//!   count.
//! - PAIR2. The higher number counts. A slot that is torn or damaged is as if it had not been written.
//! - PAIR3. A slot of another version refuses both: the program that wrote it may have used again what the other leads to.

use varve_block::{Bytes, Device, Durability, IoError};

/// What the journal asks of a superblock.
pub(crate) trait Superblock: Sized {
    /// Why a slot holds none.
    type Error: Copy + PartialEq;
    /// A slot holds something else, or nothing.
    const ABSENT: Self::Error;

    /// Rises with each superblock that is written.
    fn number(&self) -> u64;

    /// Whether the slot holds one of another version.
    fn is_other_version(error: Self::Error) -> bool;
}

/// The superblock that counts among those looked at.
pub(crate) struct Newest<S: Superblock>(Result<S, S::Error>);

impl<S: Superblock> Newest<S> {
    pub(crate) fn new() -> Self {
        Self(Err(S::ABSENT))
    }

    /// The best that was found so far.
    pub(crate) fn so_far(&self) -> Option<&S> {
        self.0.as_ref().ok()
    }

    /// Looks at what one slot holds.
    pub(crate) fn look_at(&mut self, slot: Result<S, S::Error>) {
        let is_better = match (&self.0, &slot) {
            (Err(known), _) if S::is_other_version(*known) => false, // PAIR3
            (_, Err(found)) if S::is_other_version(*found) => true,  // PAIR3
            (Ok(known), Ok(found)) => found.number() > known.number(), // PAIR2
            (Err(_), Ok(_)) => true,
            (Ok(_), Err(_)) => false,
            (Err(_), Err(found)) => *found != S::ABSENT,
        };
        if is_better {
            self.0 = slot;
        }
    }

    /// The one that counts, or why there is none.
    pub(crate) fn found(self) -> Result<S, S::Error> {
        self.0
    }
}

/// PAIR1: makes durable what was written before, then the `superblock` that leads to it, at byte `address`.
pub(crate) async fn publish(device: &Device, address: u64, superblock: Bytes) -> Result<(), IoError> {
    device.flush().await?;
    device.write(address, superblock, Durability::Durable).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Why {
        Absent,
        Torn,
        Version,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Number(u64);

    impl Superblock for Number {
        type Error = Why;
        const ABSENT: Why = Why::Absent;

        fn number(&self) -> u64 {
            self.0
        }

        fn is_other_version(error: Why) -> bool {
            error == Why::Version
        }
    }

    #[test]
    fn the_higher_number_counts_and_another_version_refuses_both() {
        let (one, two) = (Ok(Number(1)), Ok(Number(2)));
        let (absent, torn, version) = (Err(Why::Absent), Err(Why::Torn), Err(Why::Version));
        let cases = [
            (one, two, two),
            (one, torn, one),
            (one, absent, one),
            (torn, absent, torn),
            (absent, absent, absent),
            (one, version, version),
            (torn, version, version),
        ];
        for (first, second, expected) in cases {
            for slots in [[first, second], [second, first]] {
                let mut newest = Newest::new();
                slots.into_iter().for_each(|slot| newest.look_at(slot));
                assert_eq!(newest.found(), expected, "PAIR2, PAIR3: {slots:?}");
            }
        }
    }
}
