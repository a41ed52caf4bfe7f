//! The label of a physical volume: says whose disk it is and where on it things lie.
//!
//! Two copies of [`BLOCK_SIZE`] bytes, at 0 and at 4 KiB, written one after the other with a flush between, so that
//! one of them is whole at any moment; the one with the higher generation is valid. A third one may be in the last block of what is
//! managed, behind a second ring; it is for repairs. The byte table is [`LAYOUT`].
//!
//! Invariants:
//! - LABEL1. The checksum covers the whole block, with its own address and its generation.
//! - LABEL2. The physical volume has an id; the group's id is nil while the volume belongs to no group.
//! - LABEL3. The ring begins behind the label's copies and consists of whole blocks, at least
//!   [`RING_BLOCKS_MIN`] and at most [`RING_LENGTH_MAX`] bytes.
//! - LABEL4. The data begins behind the ring, at a whole block, and inside the volume's size.

use crate::layout::{Field, Layout};
use uuid::Uuid;
use varve_block::{Extent, UnixTime, align_down, is_aligned};

/// Bytes of a label, and the unit of the metadata ring.
pub const BLOCK_SIZE: u64 = 4096;
/// Where the two copies of the label lie on a disk.
pub const LABEL_ADDRESSES: [u64; 2] = [0, BLOCK_SIZE];
/// The fewest blocks of a ring.
pub const RING_BLOCKS_MIN: u64 = 24;
/// The most bytes of a ring, so that reading one is never a burden.
pub const RING_LENGTH_MAX: u64 = 64 << 20;
/// The version of this layout.
pub const LABEL_VERSION: u32 = 2;
/// The oldest version that is read: it has no nonce.
const LABEL_VERSION_MIN: u32 = 1;

const SIZE: usize = BLOCK_SIZE as usize;
const MAGIC_VALUE: &[u8; 8] = b"VARVE\xffPV";

const MAGIC: Field = Field::new(0, 8, "magic", "`VARVE`, byte 255, `PV`");
const VERSION: Field = Field::new(8, 4, "version", "of this layout: 2; 1 has no nonce");
const RESERVED_1: Field = Field::new(12, 4, "reserved_1", "zero");
const ADDRESS: Field = Field::new(16, 8, "address", "where on the disk this block lies, in bytes");
const GENERATION: Field = Field::new(24, 8, "generation", "number of times that the label was written");
const PV: Field = Field::new(32, 16, "physical_volume", "UUID of this physical volume");
const VG: Field = Field::new(48, 16, "volume_group", "UUID of the group that owns it; nil for none");
const PV_SIZE: Field = Field::new(64, 8, "size", "bytes of the disk that are managed");
const RING_OFFSET: Field = Field::new(72, 8, "ring_offset", "first byte of the metadata ring");
const RING_LENGTH: Field = Field::new(80, 8, "ring_length", "bytes of the metadata ring");
const RING_UNIT: Field = Field::new(88, 8, "ring_unit", "slots begin and end at multiples of this: 4096");
const DATA_OFFSET: Field = Field::new(96, 8, "data_offset", "first byte of the first extent");
const CREATED: Field = Field::new(104, 8, "created", "seconds since 1970-01-01 00:00 UTC");
const NONCE: Field = Field::new(112, 16, "nonce", "random number, written to find the disk at another path");
const RESERVED_2: Field = Field::new(128, 3964, "reserved_2", "zero");
const CHECKSUM: Field = Field::new(4092, 4, "checksum", "CRC32C of all bytes before it");

/// The byte table of a label.
pub const LAYOUT: Layout = Layout::new(
    "Label",
    "Says whose disk it is and where on it things lie. At 0 and at 4 KiB; for repairs also in the last block of what is managed, \
     behind a ring with the newest descriptions, if the last MiB belongs to no extent.",
    SIZE,
    &[
        MAGIC,
        VERSION,
        RESERVED_1,
        ADDRESS,
        GENERATION,
        PV,
        VG,
        PV_SIZE,
        RING_OFFSET,
        RING_LENGTH,
        RING_UNIT,
        DATA_OFFSET,
        CREATED,
        NONCE,
        RESERVED_2,
        CHECKSUM,
    ],
);
const _: () = assert!(LAYOUT.size == 4096 && CHECKSUM.end() == SIZE);

/// What a label says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Number of times that the label was written; the higher of two copies is valid.
    pub generation: u64,
    /// This physical volume.
    pub pv: Uuid,
    /// The group that owns it, if one does.
    pub vg: Option<Uuid>,
    /// Bytes of the disk that are managed.
    pub size: u64,
    /// Where the metadata ring is.
    pub ring: Extent,
    /// First byte of the first extent.
    pub data_offset: u64,
    /// When the physical volume was created.
    pub created: UnixTime,
    /// What was last written to find out whether another path leads to this disk or to a copy; nil at first.
    pub nonce: Uuid,
}

/// Why a block is not a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// Something else is there, or nothing.
    #[error("there is no label")]
    Absent,
    /// A label of a version that this program does not know.
    #[error("the label has version {0}; this program knows version {LABEL_VERSION} and older")]
    Newer(u32),
    /// A label whose bytes have changed.
    #[error("the label is damaged: its checksum is wrong")]
    Checksum,
    /// A whole label, but of another place.
    #[error("the label was written for byte {0} of a disk")]
    Misplaced(u64),
    /// A label with a sound checksum that breaks the invariant named.
    #[error("the label contradicts itself ({0})")]
    Invalid(&'static str),
}

impl Label {
    /// Whether LABEL2 to LABEL4 hold; else which does not.
    pub fn check(&self) -> Result<(), LabelError> {
        if self.pv.is_nil() || self.vg.is_some_and(|vg| vg.is_nil()) {
            return Err(LabelError::Invalid("LABEL2: an id is nil"));
        }
        let blocks = self.ring.length / BLOCK_SIZE;
        let behind = self.ring.offset >= LABEL_ADDRESSES[1] + BLOCK_SIZE;
        let sized = blocks >= RING_BLOCKS_MIN && self.ring.length <= RING_LENGTH_MAX;
        if !behind || !sized || !self.ring.is_aligned(BLOCK_SIZE) {
            return Err(LabelError::Invalid("LABEL3: the metadata ring"));
        }
        let inside = self.ring.end() <= self.data_offset && self.data_offset < self.size;
        if !inside || !is_aligned(self.data_offset, BLOCK_SIZE) {
            return Err(LabelError::Invalid("LABEL4: the data area"));
        }
        Ok(())
    }

    /// The address of the copy in the last block of what is managed.
    pub fn tail_address(&self) -> u64 {
        align_down(self.size, BLOCK_SIZE) - BLOCK_SIZE
    }

    /// The label's bytes for the copy at `address`. Panics if [`Label::check`] fails.
    pub fn encode(&self, address: u64) -> Vec<u8> {
        assert!(self.check().is_ok(), "LABEL2 to LABEL4: {self:?}");
        assert!(LABEL_ADDRESSES.contains(&address) || address == self.tail_address());
        let mut block = vec![0; SIZE];
        MAGIC.put(&mut block, MAGIC_VALUE);
        VERSION.put_u32(&mut block, LABEL_VERSION);
        ADDRESS.put_u64(&mut block, address);
        GENERATION.put_u64(&mut block, self.generation);
        PV.put_uuid(&mut block, self.pv);
        VG.put_uuid(&mut block, self.vg.unwrap_or_default());
        PV_SIZE.put_u64(&mut block, self.size);
        RING_OFFSET.put_u64(&mut block, self.ring.offset);
        RING_LENGTH.put_u64(&mut block, self.ring.length);
        RING_UNIT.put_u64(&mut block, BLOCK_SIZE);
        DATA_OFFSET.put_u64(&mut block, self.data_offset);
        CREATED.put_u64(&mut block, self.created.0);
        NONCE.put_uuid(&mut block, self.nonce);
        CHECKSUM.seal(&mut block);
        block
    }

    /// The label in `block`, which was read at `address`. `block` is [`BLOCK_SIZE`] bytes.
    pub fn decode(block: &[u8], address: u64) -> Result<Label, LabelError> {
        assert_eq!(block.len(), SIZE, "a label is one block");
        if MAGIC.bytes(block) != MAGIC_VALUE {
            return Err(LabelError::Absent);
        }
        if !CHECKSUM.seals(block) {
            return Err(LabelError::Checksum);
        }
        match VERSION.u32(block) {
            LABEL_VERSION_MIN..=LABEL_VERSION => {}
            version => return Err(LabelError::Newer(version)),
        }
        if ADDRESS.u64(block) != address {
            return Err(LabelError::Misplaced(ADDRESS.u64(block)));
        }
        let has_nonce = VERSION.u32(block) > LABEL_VERSION_MIN;
        if !RESERVED_1.is_zero(block) || !RESERVED_2.is_zero(block) || !has_nonce && !NONCE.is_zero(block) {
            return Err(LabelError::Invalid("reserved bytes are not zero"));
        }
        if RING_UNIT.u64(block) != BLOCK_SIZE {
            return Err(LabelError::Invalid("LABEL3: the ring's unit"));
        }
        let ring = Extent::checked(RING_OFFSET.u64(block), RING_LENGTH.u64(block));
        let vg = VG.uuid(block);
        let label = Label {
            generation: GENERATION.u64(block),
            pv: PV.uuid(block),
            vg: (!vg.is_nil()).then_some(vg),
            size: PV_SIZE.u64(block),
            ring: ring.ok_or(LabelError::Invalid("LABEL3: the metadata ring"))?,
            data_offset: DATA_OFFSET.u64(block),
            created: UnixTime(CREATED.u64(block)),
            nonce: NONCE.uuid(block),
        };
        label.check()?;
        Ok(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Label {
        Label {
            generation: 3,
            pv: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
            vg: Some(Uuid::from_u128(0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20)),
            size: 1 << 30,
            ring: Extent::between(64 << 10, 1 << 20),
            data_offset: 1 << 20,
            created: UnixTime(1_750_000_000),
            nonce: Uuid::from_u128(0x2122_2324_2526_2728_292a_2b2c_2d2e_2f30),
        }
    }

    #[test]
    fn golden_bytes() {
        let block = sample().encode(4096);
        let mut expected = vec![0; 4096];
        expected[..8].copy_from_slice(b"VARVE\xffPV");
        expected[8] = 2;
        expected[16..24].copy_from_slice(&[0, 0x10, 0, 0, 0, 0, 0, 0]);
        expected[24] = 3;
        expected[32..48].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        expected[48..64].copy_from_slice(&[
            0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0x20,
        ]);
        expected[67] = 0x40;
        expected[74] = 0x01;
        expected[82] = 0x0f;
        expected[89] = 0x10;
        expected[98] = 0x10;
        expected[104..108].copy_from_slice(&[0x80, 0xe1, 0x4e, 0x68]);
        expected[112..128].copy_from_slice(&[
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f, 0x30,
        ]);
        expected[4092..].copy_from_slice(&GOLDEN_CHECKSUM);
        assert_eq!(block.iter().zip(&expected).position(|(left, right)| left != right), None);
        assert_eq!(block.len(), expected.len());
    }
    /// Computed by an independent program.
    const GOLDEN_CHECKSUM: [u8; 4] = [0x2a, 0x15, 0x99, 0xa3];

    #[test]
    fn every_single_bit_of_damage_is_refused() {
        let block = sample().encode(0);
        for bit in 0..block.len() * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Label::decode(&damaged, 0).is_err(), "LABEL1: bit {bit}");
        }
    }

    #[test]
    fn a_label_of_the_first_version_is_read_and_has_no_nonce() {
        let mut first = sample().encode(0);
        VERSION.put_u32(&mut first, 1);
        CHECKSUM.seal(&mut first);
        assert_eq!(Label::decode(&first, 0), Err(LabelError::Invalid("reserved bytes are not zero")));
        NONCE.put_uuid(&mut first, Uuid::nil());
        CHECKSUM.seal(&mut first);
        assert_eq!(Label::decode(&first, 0), Ok(Label { nonce: Uuid::nil(), ..sample() }));
    }

    #[test]
    fn a_label_of_another_place_is_refused() {
        let block = sample().encode(0);
        assert_eq!(Label::decode(&block, 4096), Err(LabelError::Misplaced(0)));
    }

    #[test]
    fn a_newer_version_and_used_reserved_bytes_are_refused_with_a_sound_checksum() {
        let mut newer = sample().encode(0);
        VERSION.put_u32(&mut newer, 3);
        CHECKSUM.seal(&mut newer);
        assert_eq!(Label::decode(&newer, 0), Err(LabelError::Newer(3)));
        for at in [RESERVED_1.offset, RESERVED_2.offset, RESERVED_2.end() - 1] {
            let mut used = sample().encode(0);
            used[at] = 1;
            CHECKSUM.seal(&mut used);
            assert_eq!(Label::decode(&used, 0), Err(LabelError::Invalid("reserved bytes are not zero")));
        }
    }

    #[test]
    fn contradictions_are_refused_with_a_sound_checksum() {
        let cases: &[(Field, u64)] = &[
            (RING_OFFSET, 4096),
            (RING_OFFSET, u64::MAX),
            (RING_OFFSET, 65_537),
            (RING_LENGTH, 8192),
            (RING_LENGTH, (64 << 20) + 4096),
            (RING_UNIT, 512),
            (DATA_OFFSET, 65_536),
            (DATA_OFFSET, (1 << 20) + 512),
            (DATA_OFFSET, 1 << 30),
            (PV_SIZE, 1 << 20),
        ];
        for (field, value) in cases {
            let mut block = sample().encode(0);
            field.put_u64(&mut block, *value);
            CHECKSUM.seal(&mut block);
            let found = Label::decode(&block, 0);
            assert!(matches!(found, Err(LabelError::Invalid(_))), "{} = {value}: {found:?}", field.name);
        }
        let mut nil = sample().encode(0);
        PV.put_uuid(&mut nil, Uuid::nil());
        CHECKSUM.seal(&mut nil);
        assert!(matches!(Label::decode(&nil, 0), Err(LabelError::Invalid(_))), "LABEL2");
    }

    proptest! {
        #[test]
        fn labels_survive_the_round_trip(
            generation: u64, pv in 1..=u128::MAX, vg: u128, created: u64, nonce: u128,
            blocks in RING_BLOCKS_MIN..1000, size in (1_u64 << 23)..(1 << 60), second: bool,
        ) {
            let ring = Extent::new(65_536, blocks * BLOCK_SIZE);
            let label = Label {
                generation, ring, size,
                pv: Uuid::from_u128(pv),
                vg: (vg != 0).then_some(Uuid::from_u128(vg)),
                data_offset: ring.end(),
                created: UnixTime(created),
                nonce: Uuid::from_u128(nonce),
            };
            let address = LABEL_ADDRESSES[usize::from(second)];
            prop_assert_eq!(Label::decode(&label.encode(address), address), Ok(label));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(mut block in proptest::collection::vec(any::<u8>(), SIZE), sealed: bool) {
            if sealed {
                MAGIC.put(&mut block, MAGIC_VALUE);
                VERSION.put_u32(&mut block, LABEL_VERSION);
                ADDRESS.put_u64(&mut block, 0);
                RESERVED_1.put(&mut block, &[0; 4]);
                RESERVED_2.put(&mut block, &[0; 3964]);
                CHECKSUM.seal(&mut block);
            }
            let _ = Label::decode(&block, 0);
        }
    }
}
