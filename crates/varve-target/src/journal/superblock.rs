//! The pair of superblocks: which of two slots is authoritative, and how the other one is written.
//!
//! Invariants:
//! - PAIR1. A superblock is written when everything that it leads to is durable, and durably, to one slot, while the other
//!   one holds the superblock before it, durably.
//! - PAIR2. The higher number is authoritative. A slot that is torn or damaged is as if it had not been written.
//! - PAIR3. A slot of another version refuses both: the program that wrote it may have used again what the other leads to.
//! - PAIR4. A superblock that is authoritative is written to the other slot too, when it is written or else when it is found at a start;
//!   the next flush makes that durable. A slot that rots later must not bring back the superblock before it: what that
//!   one leads to may have been given to others since, and what changed without a record of the log would be undone.

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

/// The authoritative superblock among those looked at.
pub(crate) struct Newest<S: Superblock> {
    found: Result<S, S::Error>,
    /// Addresses of the slots that hold it.
    held: Vec<u64>,
}

impl<S: Superblock> Newest<S> {
    pub(crate) fn new() -> Self {
        Self { found: Err(S::ABSENT), held: Vec::new() }
    }

    /// The best that was found so far.
    pub(crate) fn so_far(&self) -> Option<&S> {
        self.found.as_ref().ok()
    }

    /// Looks at what the slot at `address` holds.
    pub(crate) fn look_at(&mut self, address: u64, slot: Result<S, S::Error>) {
        if let (Ok(known), Ok(found)) = (&self.found, &slot)
            && known.number() == found.number()
        {
            self.held.push(address);
        }
        let is_better = match (&self.found, &slot) {
            (Err(known), _) if S::is_other_version(*known) => false, // PAIR3
            (_, Err(found)) if S::is_other_version(*found) => true,  // PAIR3
            (Ok(known), Ok(found)) => found.number() > known.number(), // PAIR2
            (Err(_), Ok(_)) => true,
            (Ok(_), Err(_)) => false,
            (Err(_), Err(found)) => *found != S::ABSENT,
        };
        if is_better {
            self.found = slot;
            self.held = vec![address];
        }
    }

    /// The one that is authoritative, or why there is none; and the addresses of the slots that hold it.
    pub(crate) fn found(self) -> Result<(S, Vec<u64>), S::Error> {
        self.found.map(|superblock| (superblock, self.held))
    }
}

/// One slot: its address in bytes, and the superblock's bytes for it.
pub(crate) type SlotBytes = (u64, Bytes);

/// PAIR1: makes durable what was written before, the other slot too, then the superblock that leads to it in the `first` slot;
/// then writes the `other` one (PAIR4), which the next flush makes durable.
pub(crate) async fn publish(device: &Device, first: SlotBytes, other: SlotBytes) -> Result<(), IoError> {
    device.flush().await?;
    let held = first.0;
    device.write(held, first.1, Durability::Durable).await?;
    complete_pair(device, [other], &[held]).await;
    Ok(())
}

/// PAIR4: writes a superblock that is authoritative to those of the `slots` that are not among the `held` ones. An error costs nothing
/// yet: there is a whole one, and the next write of this slot returns its error.
pub(crate) async fn complete_pair<const N: usize>(device: &Device, slots: [SlotBytes; N], held: &[u64]) {
    for (address, superblock) in slots.into_iter().filter(|(address, _)| !held.contains(address)) {
        if let Err(error) = device.write(address, superblock, Durability::Volatile).await {
            tracing::warn!(address, %error, "the second copy of a superblock was not written");
        }
    }
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
                (0..).zip(slots).for_each(|(address, slot)| newest.look_at(address, slot));
                let found = newest.found().map(|(superblock, held)| {
                    assert_eq!(held.len(), 1, "PAIR4: {slots:?}");
                    superblock
                });
                assert_eq!(found, expected, "PAIR2, PAIR3: {slots:?}");
            }
        }
    }
    #[test]
    fn two_slots_of_one_number_are_one_superblock() {
        let mut newest = Newest::new();
        for (address, slot) in [(7, Err(Why::Torn)), (8, Ok(Number(2))), (9, Ok(Number(2)))] {
            newest.look_at(address, slot);
        }
        assert_eq!(newest.found(), Ok((Number(2), vec![8, 9])), "PAIR4");
    }
}
