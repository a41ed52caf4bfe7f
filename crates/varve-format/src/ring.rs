//! The metadata ring: where the next slot goes, and which slots a ring holds.
//!
//! Invariants:
//! - RING1. A slot begins and ends at multiples of [`BLOCK_SIZE`] inside the ring and does not wrap around.
//! - RING2. A slot is at most a third of the ring long; so, wherever the newest is, there is room for the next one
//!   that does not touch it: what the newest leaves free is two thirds in at most two pieces.

use crate::label::BLOCK_SIZE;
use crate::slot::{Slot, SlotError, SlotHeader, slot_length};
use uuid::Uuid;
use varve_block::{Extent, align_down};

/// The longest text, in bytes, that a ring of `ring_length` bytes can take: RING2.
pub fn text_length_max(ring_length: u64) -> u64 {
    align_down(ring_length / 3, BLOCK_SIZE) - crate::slot::HEADER_SIZE as u64
}

/// Where in `ring` a slot of `length` bytes goes when the newest is at `newest`: behind it if there is room, else
/// at the ring's start. `length` is at most a third of the ring.
pub fn place(ring: Extent, newest: Option<Extent>, length: u64) -> Extent {
    assert!(length > 0 && length.is_multiple_of(BLOCK_SIZE) && length <= ring.length / 3, "RING2: {length}");
    let Some(newest) = newest else {
        return Extent::new(ring.offset, length);
    };
    assert!(ring.contains(newest) && newest.length <= ring.length / 3, "RING1, RING2: {newest:?}");
    let start = if length <= ring.end() - newest.end() { newest.end() } else { ring.offset };
    let chosen = Extent::new(start, length);
    assert!(ring.contains(chosen) && !chosen.overlaps(newest), "RING2: {chosen:?} beside {newest:?}");
    chosen
}

/// A whole slot and where it is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Where.
    pub extent: Extent,
    /// What.
    pub slot: Slot,
    /// What this version is; [`Slot::version`] of it.
    pub version: Uuid,
}

/// Something that was once the start of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Where on the disk.
    pub address: u64,
    /// Its number, if the header is whole.
    pub sequence: Option<u64>,
    /// Which version, if the header is whole.
    pub version: Option<Uuid>,
    /// What is wrong.
    pub error: SlotError,
}

/// What a ring holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingContent {
    /// The whole slots of the group and disk asked for, oldest first.
    pub slots: Vec<Placed>,
    /// Slots that were torn or damaged and may have been newer than the newest whole one.
    pub damaged: Vec<Damaged>,
}

impl RingContent {
    /// Finds the slots of group `vg` written for disk `pv` in `bytes`, which are the ring's, read at `ring.offset`.
    pub fn find(bytes: &[u8], ring: Extent, vg: Uuid, pv: Uuid) -> RingContent {
        assert_eq!(bytes.len() as u64, ring.length);
        let mut content = RingContent::default();
        for (index, block) in bytes.chunks(BLOCK_SIZE as usize).enumerate() {
            let start = index * BLOCK_SIZE as usize;
            let address = ring.offset + start as u64;
            match SlotHeader::decode(block, address) {
                Err(SlotError::Absent) => continue,
                Ok(header) if header.vg != vg || header.pv != pv => continue,
                Ok(header) => content.take(&bytes[start..], address, &header, ring.length / 3),
                Err(error) => {
                    content.damaged.push(Damaged { address, sequence: None, version: None, error });
                }
            }
        }
        content.slots.sort_by_key(|placed| placed.slot.sequence);
        content.forget_remains();
        content
    }

    /// The slot with the highest sequence.
    pub fn newest(&self) -> Option<&Placed> {
        self.slots.last()
    }

    fn take(&mut self, bytes: &[u8], address: u64, header: &SlotHeader, length_max: u64) {
        match Slot::decode(bytes, address) {
            Ok(slot) if slot_length(slot.text.len()) > length_max => {
                let error = SlotError::Invalid("RING2: it takes more than a third of its ring");
                let (sequence, version) = (Some(slot.sequence), Some(header.version));
                self.damaged.push(Damaged { address, sequence, version, error });
            }
            Ok(slot) => {
                let extent = Extent::new(address, slot_length(slot.text.len()));
                self.slots.push(Placed { extent, version: header.version, slot });
            }
            Err(error) => {
                let (sequence, version) = (Some(header.sequence), Some(header.version));
                self.damaged.push(Damaged { address, sequence, version, error });
            }
        }
    }

    /// Forgets the remains of slots older than the newest: newer ones have overwritten them, as they should.
    fn forget_remains(&mut self) {
        let newest = self.newest().map(|placed| placed.slot.sequence);
        self.damaged.retain(|damaged| damaged.sequence.is_none() || damaged.sequence > newest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RING: Extent = Extent::new(65_536, 24 * BLOCK_SIZE);

    fn slot(sequence: u64, text_length: usize) -> Slot {
        Slot {
            vg: Uuid::from_u128(1),
            pv: Uuid::from_u128(2),
            sequence,
            previous: (sequence > 1).then_some(Uuid::from_u128(3)),
            ancestors: Vec::new(),
            text: "x".repeat(text_length),
        }
    }

    fn write(bytes: &mut [u8], extent: Extent, slot: &Slot) {
        let start = usize::try_from(extent.offset - RING.offset).expect("small");
        let encoded = slot.encode(extent.offset);
        bytes[start..start + encoded.len()].copy_from_slice(&encoded);
    }

    fn find(bytes: &[u8]) -> RingContent {
        RingContent::find(bytes, RING, Uuid::from_u128(1), Uuid::from_u128(2))
    }

    #[test]
    fn the_longest_text_fits_in_a_third() {
        let text = usize::try_from(text_length_max(RING.length)).expect("small");
        assert_eq!(slot_length(text), RING.length / 3);
        assert_eq!(slot_length(text + 1), RING.length / 3 + BLOCK_SIZE);
    }

    #[test]
    fn a_whole_slot_that_is_too_long_for_its_ring_is_damaged() {
        let mut bytes = vec![0; RING.length as usize];
        let text = usize::try_from(text_length_max(RING.length)).expect("small") + 1;
        write(&mut bytes, Extent::new(RING.offset, RING.length / 3 + BLOCK_SIZE), &slot(3, text));
        let content = RingContent::find(&bytes, RING, Uuid::from_u128(1), Uuid::from_u128(2));
        assert!(content.slots.is_empty(), "RING2");
        assert_eq!(content.damaged.iter().map(|damaged| damaged.sequence).collect::<Vec<_>>(), [Some(3)]);
    }

    #[test]
    fn slots_of_other_groups_and_disks_are_not_ours() {
        let mut bytes = vec![0; RING.length as usize];
        let mut stranger = slot(1, 10);
        stranger.vg = Uuid::from_u128(9);
        write(&mut bytes, Extent::new(RING.offset, BLOCK_SIZE), &stranger);
        let mut copied = slot(1, 10);
        copied.pv = Uuid::from_u128(9);
        write(&mut bytes, Extent::new(RING.offset + BLOCK_SIZE, BLOCK_SIZE), &copied);
        assert_eq!(find(&bytes), RingContent::default());
    }

    #[test]
    fn a_torn_newest_slot_is_reported_with_its_number() {
        let mut bytes = vec![0; RING.length as usize];
        let first = place(RING, None, BLOCK_SIZE);
        write(&mut bytes, first, &slot(1, 100));
        let second = place(RING, Some(first), 2 * BLOCK_SIZE);
        write(&mut bytes, second, &slot(2, 5000));
        let torn = usize::try_from(second.offset - RING.offset).expect("small") + 4600;
        bytes[torn..torn + 512].fill(0);
        let content = find(&bytes);
        assert_eq!(content.newest().map(|placed| placed.slot.sequence), Some(1));
        let version = Some(slot(2, 5000).version());
        let damaged = Damaged { address: second.offset, sequence: Some(2), version, error: SlotError::Body };
        assert_eq!(content.damaged, vec![damaged]);
    }

    proptest! {
        /// RING2: whatever the lengths, the newest and the one before it are always both found.
        #[test]
        fn a_new_slot_never_touches_the_newest(
            lengths in proptest::collection::vec(0..=text_length_max(RING.length) as usize, 1..40),
        ) {
            let mut bytes = vec![0; RING.length as usize];
            let mut newest: Option<Extent> = None;
            for (index, length) in lengths.iter().enumerate() {
                let sequence = index as u64 + 1;
                let place = place(RING, newest, slot_length(*length));
                if let Some(newest) = newest {
                    prop_assert!(!place.overlaps(newest));
                }
                write(&mut bytes, place, &slot(sequence, *length));
                newest = Some(place);
                let content = find(&bytes);
                let numbers: Vec<_> = content.slots.iter().map(|placed| placed.slot.sequence).collect();
                prop_assert_eq!(numbers.last(), Some(&sequence));
                if sequence > 1 {
                    prop_assert!(numbers.contains(&(sequence - 1)));
                }
                prop_assert_eq!(content.newest().map(|placed| placed.extent), newest);
            }
        }
    }
}
