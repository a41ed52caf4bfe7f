//! A slot of the metadata ring: one version of a volume group's description, on one disk.
//!
//! A header of [`HEADER_SIZE`] bytes, the text, and zeros up to a whole number of blocks. The byte table of the
//! header is [`LAYOUT`]. A slot knows the version that it follows, so that a stale disk (an ancestor) can be told
//! from one on which something else was written (a stranger).
//!
//! Invariants:
//! - SLOT1. The header's checksum covers the header, the body's checksum all the rest of the slot; so no bit of it is
//!   uncovered, its own address and its sequence (the generation) included.
//! - SLOT2. `version` is made of the group, the sequence, the previous version and the text: equal versions have equal
//!   texts and equal histories. It is a UUID of version 5 (SHA-1, RFC 9562).
//! - SLOT3. The first version, sequence 1, follows none; every other one, of a sequence below [`SEQUENCE_END`], follows one.
//!   It also knows up to [`ANCESTORS_MAX`] versions before that, newest first, so that a disk that lacks a few versions
//!   still knows its line.
//! - SLOT4. The text is UTF-8 and cannot be taken for a header, whose magic is not UTF-8.

use crate::label::BLOCK_SIZE;
use crate::layout::{Field, Layout};
use uuid::Uuid;
use varve_block::align_up;

/// Bytes before the text.
pub const HEADER_SIZE: usize = 256;
/// How many versions before the previous one a slot knows.
pub const ANCESTORS_MAX: usize = 9;
/// Numbers of versions are lower than this. No group changes so many times, and there is room to count on from any of them.
pub const SEQUENCE_END: u64 = 1 << 62;
/// The version of this layout.
pub const SLOT_VERSION: u32 = 1;
/// The longest text that any slot may hold: 16 MiB. A ring may set a lower bound.
pub const TEXT_LENGTH_MAX: usize = 16 << 20;

const MAGIC_VALUE: &[u8; 8] = b"VARVE\xffVG";

const MAGIC: Field = Field::new(0, 8, "magic", "`VARVE`, byte 255, `VG`");
const LAYOUT_VERSION: Field = Field::new(8, 4, "layout_version", "of this layout: 1");
const TEXT_LENGTH: Field = Field::new(12, 4, "text_length", "bytes of text behind the header");
const ADDRESS: Field = Field::new(16, 8, "address", "where on the disk this slot lies, in bytes");
const SEQUENCE: Field = Field::new(24, 8, "sequence", "number of the version, from 1 on");
const VG: Field = Field::new(32, 16, "volume_group", "UUID of the group");
const PV: Field = Field::new(48, 16, "physical_volume", "UUID of the physical volume that holds the slot");
const PREVIOUS: Field =
    Field::new(64, 16, "previous", "the version that this one follows; nil for the first");
const VERSION: Field = Field::new(
    80,
    16,
    "version",
    "UUIDv5 in the group's namespace of `sequence`, `previous` and the text: what this version is",
);
const BODY_CHECKSUM: Field = Field::new(96, 4, "body_checksum", "CRC32C of the text and the zeros behind it");
const ANCESTORS: Field = Field::new(
    100,
    ANCESTORS_MAX * 16,
    "ancestors",
    "the nine versions before `previous`, newest first; nil from where there are no more",
);
const RESERVED: Field = Field::new(244, 8, "reserved", "zero");
const CHECKSUM: Field = Field::new(252, 4, "checksum", "CRC32C of all header bytes before it");

/// The byte table of a slot's header.
pub const LAYOUT: Layout = Layout::new(
    "Metadata slot",
    "The header of one version of a group's description; the text follows, then zeros up to a multiple of 4096.",
    HEADER_SIZE,
    &[
        MAGIC,
        LAYOUT_VERSION,
        TEXT_LENGTH,
        ADDRESS,
        SEQUENCE,
        VG,
        PV,
        PREVIOUS,
        VERSION,
        BODY_CHECKSUM,
        ANCESTORS,
        RESERVED,
        CHECKSUM,
    ],
);
const _: () = assert!(CHECKSUM.end() == HEADER_SIZE && HEADER_SIZE < BLOCK_SIZE as usize);

/// One version of a group's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The group.
    pub vg: Uuid,
    /// The physical volume that holds this copy.
    pub pv: Uuid,
    /// The version's number, from 1 on.
    pub sequence: u64,
    /// The version that this one follows.
    pub previous: Option<Uuid>,
    /// Versions before `previous`, newest first, at most [`ANCESTORS_MAX`].
    pub ancestors: Vec<Uuid>,
    /// The description.
    pub text: String,
}

/// What a slot's header says, whether or not the body is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotHeader {
    /// The group.
    pub vg: Uuid,
    /// The physical volume that holds this copy.
    pub pv: Uuid,
    /// The version's number.
    pub sequence: u64,
    /// The version that this one follows.
    pub previous: Option<Uuid>,
    /// Versions before that, newest first.
    pub ancestors: Vec<Uuid>,
    /// What this version is.
    pub version: Uuid,
    /// Bytes of text.
    pub text_length: usize,
    body_checksum: u32,
}

/// Why bytes are not a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// Something else is there, or nothing.
    #[error("there is no slot")]
    Absent,
    /// A slot of a layout that this program does not know.
    #[error("the slot has layout version {0}; this program knows version {SLOT_VERSION} and older")]
    Newer(u32),
    /// The header's bytes have changed.
    #[error("the slot's header is damaged: its checksum is wrong")]
    Header,
    /// The text's bytes have changed, or were never all written.
    #[error("the slot's text is damaged: its checksum is wrong")]
    Body,
    /// A whole slot, but of another place.
    #[error("the slot was written for byte {0} of a disk")]
    Misplaced(u64),
    /// A slot with sound checksums that breaks the invariant named.
    #[error("the slot contradicts itself ({0})")]
    Invalid(&'static str),
}

/// Bytes that a slot with a text of `text_length` bytes takes in the ring.
pub fn slot_length(text_length: usize) -> u64 {
    align_up((HEADER_SIZE + text_length) as u64, BLOCK_SIZE)
}

/// What a version is: SLOT2.
pub fn version_of(vg: Uuid, sequence: u64, previous: Option<Uuid>, text: &str) -> Uuid {
    let mut content = Vec::with_capacity(24 + text.len());
    content.extend_from_slice(&sequence.to_le_bytes());
    content.extend_from_slice(previous.unwrap_or_default().as_bytes());
    content.extend_from_slice(text.as_bytes());
    Uuid::new_v5(&vg, &content)
}

impl Slot {
    /// What this version is.
    pub fn version(&self) -> Uuid {
        version_of(self.vg, self.sequence, self.previous, &self.text)
    }

    /// The versions before this one, newest first, as far as it knows them.
    pub fn version_history(&self) -> impl Iterator<Item = Uuid> {
        self.previous.into_iter().chain(self.ancestors.iter().copied())
    }

    /// The slot with which `text` follows this one, for the same disk.
    pub fn followed_by(&self, sequence: u64, text: String) -> Slot {
        assert!(sequence > self.sequence, "numbers grow");
        let ancestors = self.version_history().take(ANCESTORS_MAX).collect();
        Slot { vg: self.vg, pv: self.pv, sequence, previous: Some(self.version()), ancestors, text }
    }

    /// The slot's bytes for the place `address`: [`slot_length`] of them.
    pub fn encode(&self, address: u64) -> Vec<u8> {
        assert!(self.text.len() <= TEXT_LENGTH_MAX, "the text was measured before it was placed");
        assert!(follows(self.sequence, self.previous), "SLOT3: {} after {:?}", self.sequence, self.previous);
        let known = self.ancestors.iter().all(|ancestor| !ancestor.is_nil());
        assert!(known && self.ancestors.len() <= ANCESTORS_MAX, "SLOT3: {:?}", self.ancestors);
        let length = usize::try_from(slot_length(self.text.len())).expect("a text fits in memory");
        let mut bytes = vec![0; length];
        bytes[HEADER_SIZE..HEADER_SIZE + self.text.len()].copy_from_slice(self.text.as_bytes());
        let body_checksum = crc32c::crc32c(&bytes[HEADER_SIZE..]);
        let text_length = u32::try_from(self.text.len()).expect("a text is at most TEXT_LENGTH_MAX long");
        let header = &mut bytes[..HEADER_SIZE];
        MAGIC.put(header, MAGIC_VALUE);
        LAYOUT_VERSION.put_u32(header, SLOT_VERSION);
        TEXT_LENGTH.put_u32(header, text_length);
        ADDRESS.put_u64(header, address);
        SEQUENCE.put_u64(header, self.sequence);
        VG.put_uuid(header, self.vg);
        PV.put_uuid(header, self.pv);
        PREVIOUS.put_uuid(header, self.previous.unwrap_or_default());
        VERSION.put_uuid(header, self.version());
        BODY_CHECKSUM.put_u32(header, body_checksum);
        let ancestors = &mut header[ANCESTORS.offset..ANCESTORS.end()];
        for (place, ancestor) in ancestors.chunks_mut(16).zip(&self.ancestors) {
            place.copy_from_slice(ancestor.as_bytes());
        }
        CHECKSUM.seal(header);
        bytes
    }

    /// The slot at the start of `bytes`, which were read at `address`; bytes behind it are not looked at.
    pub fn decode(bytes: &[u8], address: u64) -> Result<Slot, SlotError> {
        let header = SlotHeader::decode(bytes, address)?;
        let length = usize::try_from(header.length()).map_err(|_| SlotError::Body)?;
        let body = bytes.get(HEADER_SIZE..length).ok_or(SlotError::Body)?;
        if crc32c::crc32c(body) != header.body_checksum {
            return Err(SlotError::Body);
        }
        let (text, padding) = body.split_at(header.text_length);
        if padding.iter().any(|byte| *byte != 0) {
            return Err(SlotError::Invalid("bytes behind the text are not zero"));
        }
        let text = str::from_utf8(text).map_err(|_| SlotError::Invalid("SLOT4: the text is not UTF-8"))?;
        let SlotHeader { vg, pv, sequence, previous, ancestors, version, .. } = header;
        let slot = Slot { vg, pv, sequence, previous, ancestors, text: text.to_owned() };
        if slot.version() != version {
            return Err(SlotError::Invalid("SLOT2: the version is of another text"));
        }
        Ok(slot)
    }
}

impl SlotHeader {
    /// The header at the start of `bytes`, which were read at `address`.
    pub fn decode(bytes: &[u8], address: u64) -> Result<SlotHeader, SlotError> {
        let header = bytes.get(..HEADER_SIZE).ok_or(SlotError::Absent)?;
        if MAGIC.bytes(header) != MAGIC_VALUE {
            return Err(SlotError::Absent);
        }
        if !CHECKSUM.seals(header) {
            return Err(SlotError::Header);
        }
        match LAYOUT_VERSION.u32(header) {
            SLOT_VERSION => {}
            version => return Err(SlotError::Newer(version)),
        }
        if ADDRESS.u64(header) != address {
            return Err(SlotError::Misplaced(ADDRESS.u64(header)));
        }
        if !RESERVED.is_zero(header) {
            return Err(SlotError::Invalid("reserved bytes are not zero"));
        }
        let previous = PREVIOUS.uuid(header);
        let header = SlotHeader {
            vg: VG.uuid(header),
            pv: PV.uuid(header),
            sequence: SEQUENCE.u64(header),
            previous: (!previous.is_nil()).then_some(previous),
            ancestors: ancestors_in(ANCESTORS.bytes(header), previous)?,
            version: VERSION.uuid(header),
            text_length: TEXT_LENGTH.u32(header) as usize,
            body_checksum: BODY_CHECKSUM.u32(header),
        };
        if !follows(header.sequence, header.previous) {
            return Err(SlotError::Invalid("SLOT3: the version's number and the one it follows"));
        }
        if header.text_length > TEXT_LENGTH_MAX {
            return Err(SlotError::Invalid("the text is longer than any may be"));
        }
        Ok(header)
    }

    /// Bytes of the slot in the ring.
    pub fn length(&self) -> u64 {
        slot_length(self.text_length)
    }
}

/// Whether a version can have this number, and follow that one: only the first follows none (SLOT3).
fn follows(sequence: u64, previous: Option<Uuid>) -> bool {
    (1..SEQUENCE_END).contains(&sequence) && (sequence == 1) == previous.is_none()
}

/// The versions before the previous one, as many as a slot may know (SLOT3).
fn ancestors_in(bytes: &[u8], previous: Uuid) -> Result<Vec<Uuid>, SlotError> {
    let all: Vec<Uuid> = bytes.chunks_exact(16).filter_map(|bytes| Uuid::from_slice(bytes).ok()).collect();
    let known: Vec<Uuid> = all.iter().copied().take_while(|ancestor| !ancestor.is_nil()).collect();
    let nil_behind = all[known.len()..].iter().all(Uuid::is_nil);
    if !nil_behind || (previous.is_nil() && !known.is_empty()) {
        return Err(SlotError::Invalid("SLOT3: the ancestors"));
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Slot {
        Slot {
            vg: Uuid::from_u128(1),
            pv: Uuid::from_u128(2),
            sequence: 7,
            previous: Some(Uuid::from_u128(3)),
            ancestors: vec![Uuid::from_u128(4), Uuid::from_u128(5)],
            text: "version = 1\n".into(),
        }
    }

    fn seal(bytes: &mut [u8]) {
        let body = crc32c::crc32c(&bytes[HEADER_SIZE..]);
        BODY_CHECKSUM.put_u32(bytes, body);
        CHECKSUM.seal(bytes);
    }

    /// Gives the encoded sample another number, and the version that this makes.
    fn renumber(bytes: &mut [u8], sequence: u64) {
        let Slot { vg, previous, text, .. } = sample();
        SEQUENCE.put_u64(bytes, sequence);
        VERSION.put_uuid(bytes, version_of(vg, sequence, previous, &text));
    }

    #[test]
    fn golden_bytes() {
        let bytes = sample().encode(0x1_0000);
        let mut expected = vec![0; 4096];
        expected[..8].copy_from_slice(b"VARVE\xffVG");
        expected[8] = 1;
        expected[12] = 12;
        expected[18] = 1;
        expected[24] = 7;
        expected[47] = 1;
        expected[63] = 2;
        expected[79] = 3;
        expected[80..96].copy_from_slice(&GOLDEN_VERSION);
        expected[96..100].copy_from_slice(&GOLDEN_BODY_CHECKSUM);
        expected[115] = 4;
        expected[131] = 5;
        expected[252..256].copy_from_slice(&GOLDEN_CHECKSUM);
        expected[256..268].copy_from_slice(b"version = 1\n");
        assert_eq!(bytes.iter().zip(&expected).position(|(left, right)| left != right), None);
        assert_eq!(bytes.len(), expected.len());
    }
    /// Computed by an independent program.
    const GOLDEN_VERSION: [u8; 16] =
        [0x39, 0xca, 0x04, 0x9e, 0xba, 0xee, 0x52, 0x9c, 0xbb, 0x71, 0x4a, 0x61, 0xc1, 0xab, 0xcf, 0x5b];
    const GOLDEN_BODY_CHECKSUM: [u8; 4] = [0x30, 0x42, 0x91, 0x5a];
    const GOLDEN_CHECKSUM: [u8; 4] = [0x87, 0x3e, 0x09, 0xd9];

    #[test]
    fn every_single_bit_of_damage_is_refused() {
        let bytes = sample().encode(0x1_0000);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Slot::decode(&damaged, 0x1_0000).is_err(), "SLOT1: bit {bit}");
        }
    }

    #[test]
    fn a_slot_of_another_place_and_a_short_one_are_refused() {
        let bytes = sample().encode(0x1_0000);
        assert_eq!(Slot::decode(&bytes, 0x1_1000), Err(SlotError::Misplaced(0x1_0000)));
        assert_eq!(Slot::decode(&bytes[..4000], 0x1_0000), Err(SlotError::Body));
        assert_eq!(Slot::decode(&bytes[..100], 0x1_0000), Err(SlotError::Absent));
    }

    #[test]
    fn contradictions_are_refused_with_sound_checksums() {
        let changes: &[fn(&mut [u8])] = &[
            |bytes| SEQUENCE.put_u64(bytes, 1),
            |bytes| SEQUENCE.put_u64(bytes, 0),
            |bytes| SEQUENCE.put_u64(bytes, 8),
            |bytes| renumber(bytes, SEQUENCE_END),
            |bytes| renumber(bytes, u64::MAX),
            |bytes| PREVIOUS.put_uuid(bytes, Uuid::nil()),
            |bytes| PREVIOUS.put_uuid(bytes, Uuid::from_u128(9)),
            |bytes| VERSION.put_uuid(bytes, Uuid::from_u128(9)),
            |bytes| RESERVED.put(bytes, &[1; 8]),
            |bytes| bytes[ANCESTORS.offset..ANCESTORS.offset + 16].fill(0),
            |bytes| bytes[ANCESTORS.end() - 1] = 1,
            |bytes| bytes[HEADER_SIZE] = 0xff,
            |bytes| bytes[HEADER_SIZE] = b'V',
            |bytes| bytes[HEADER_SIZE + 12] = 1,
            |bytes| TEXT_LENGTH.put_u32(bytes, 11),
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut bytes = sample().encode(0);
            change(&mut bytes);
            seal(&mut bytes);
            let found = Slot::decode(&bytes, 0);
            assert!(matches!(found, Err(SlotError::Invalid(_))), "change {index}: {found:?}");
        }
        let mut last = sample().encode(0);
        renumber(&mut last, SEQUENCE_END - 1);
        seal(&mut last);
        assert_eq!(Slot::decode(&last, 0).map(|slot| slot.sequence), Ok(SEQUENCE_END - 1), "SLOT3");
        let mut newer = sample().encode(0);
        LAYOUT_VERSION.put_u32(&mut newer, 2);
        seal(&mut newer);
        assert_eq!(Slot::decode(&newer, 0), Err(SlotError::Newer(2)));
    }

    proptest! {
        #[test]
        fn slots_survive_the_round_trip(
            vg: u128, pv: u128, sequence in 2..SEQUENCE_END, previous in 1..=u128::MAX,
            ancestors in proptest::collection::vec(1..=u128::MAX, 0..=ANCESTORS_MAX),
            text in "\\PC{0,6000}", block in 0_u64..1 << 40,
        ) {
            let slot = Slot {
                vg: Uuid::from_u128(vg), pv: Uuid::from_u128(pv), sequence,
                previous: Some(Uuid::from_u128(previous)), text,
                ancestors: ancestors.into_iter().map(Uuid::from_u128).collect(),
            };
            let bytes = slot.encode(block * 4096);
            prop_assert_eq!(bytes.len() as u64, slot_length(slot.text.len()));
            prop_assert_eq!(Slot::decode(&bytes, block * 4096), Ok(slot));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 256..9000), sealed: bool,
        ) {
            if sealed {
                MAGIC.put(&mut bytes, MAGIC_VALUE);
                LAYOUT_VERSION.put_u32(&mut bytes, SLOT_VERSION);
                ADDRESS.put_u64(&mut bytes, 0);
                RESERVED.put(&mut bytes, &[0; 8]);
                seal(&mut bytes);
            }
            let _ = Slot::decode(&bytes, 0);
        }
    }
}
