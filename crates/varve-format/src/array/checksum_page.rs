//! A page of checksums: those of the fragments that two members have of one span of the array.
//!
//! Pages lie behind the ring, that of span `s` at [`ChecksumPage::offset`]. A member's page has the checksums of its own fragments and,
//! of ddraid, those of the member before it: each stands on two disks. The byte table is [`CHECKSUM_PAGE_LAYOUT`].
//!
//! Invariants:
//! - ARRAYSUMS1. The checksum covers the whole page, with its span, the array's id and the member's place.
//! - ARRAYSUMS2. There are one or two rows, and a checksum that is not known is zero.

use super::{ArrayFormatError, BLOCK_SIZE, NUMBER_MAX, RING_OFFSET, checksum_without, require};
use crate::layout::{Field, Layout};
use varve_block::MIB;

const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"VARS");

const MAGIC: Field = Field::new(0, 4, "magic", "`VARS`");
const CHECKSUM: Field = Field::new(4, 4, "checksum", "CRC32C of the whole page with this field zero");
const SPAN: Field = Field::new(8, 8, "span", "number of this MiB of the array");
const ARRAY: Field = Field::new(16, 8, "array", "first half of the array's id");
const GENERATION: Field =
    Field::new(24, 8, "generation", "rises each time that the pages of this span are written to all members");
const PLACE: Field = Field::new(32, 4, "place", "of this member among all, from 0 on");
const ROWS: Field = Field::new(
    36,
    4,
    "rows",
    "1 (mirror), or 2: of this member, and of the one before it (of the first: the last)",
);
const COUNT: Field = Field::new(40, 4, "count", "checksums of a row");
const FORGOTTEN: Field = Field::new(
    44,
    4,
    "forgotten",
    "1 if a checksum that is not known may be of something written, 0 if it is of what was never written",
);
const RESERVED: Field = Field::new(48, 16, "reserved", "zero");
const KNOWN: Field =
    Field::new(64, 64, "known", "32 bytes for each row: bit `i` says that checksum `i` is known");
const SUMS: Field = Field::new(
    128,
    3968,
    "checksums",
    "row after row, CRC32C of a fragment (of 4 KiB of a mirror), then zeros",
);

/// The byte table of a page of checksums.
pub const CHECKSUM_PAGE_LAYOUT: Layout = Layout::new(
    "Array: page of checksums",
    "The checksums of 1 MiB of the array. Behind the first MiB of a member's metadata, one page for each MiB.",
    BLOCK_SIZE as usize,
    &[MAGIC, CHECKSUM, SPAN, ARRAY, GENERATION, PLACE, ROWS, COUNT, FORGOTTEN, RESERVED, KNOWN, SUMS],
);

/// Bytes of the array that a page has the checksums of.
pub const SPAN_SIZE: u64 = MIB;
/// The first byte of the page of span 0, behind superblocks and ring.
pub const CHECKSUMS_OFFSET: u64 = MIB;
/// The most checksums of a row.
const COUNT_MAX: usize = (SPAN_SIZE / 4096) as usize;

const _: () = assert!(SUMS.size >= 2 * COUNT_MAX * 4 && KNOWN.size * 8 == 2 * COUNT_MAX);
const _: () = assert!(CHECKSUMS_OFFSET > RING_OFFSET);

/// A page of checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumPage {
    /// First half of the array's id.
    pub array: u64,
    /// Which MiB of the array.
    pub span: u64,
    /// The place of this member.
    pub place: u32,
    /// Rises each time that the pages of the span are written to all members.
    pub generation: u64,
    /// Whether a checksum that is not known may be of something that was written.
    pub forgotten: bool,
    /// One row or two, equally long; none of a fragment whose checksum is not known.
    pub rows: Vec<Vec<Option<u32>>>,
}

/// The checksum of a fragment.
pub fn fragment_checksum(fragment: &[u8]) -> u32 {
    crc32c::crc32c(fragment)
}

impl ChecksumPage {
    /// First byte of the page of `span` on a member.
    pub const fn offset(span: u64) -> u64 {
        CHECKSUMS_OFFSET + span * BLOCK_SIZE
    }

    /// The page as it is on a member: [`BLOCK_SIZE`] bytes.
    pub fn encode(&self, bytes: &mut [u8]) {
        let count = self.rows[0].len();
        assert!(matches!(self.rows.len(), 1 | 2) && count <= COUNT_MAX, "ARRAYSUMS2: {count}");
        assert_eq!(bytes.len() as u64, BLOCK_SIZE, "ARRAYSUMS1: a page is a block");
        bytes.fill(0);
        MAGIC.put_u32(bytes, MAGIC_VALUE);
        SPAN.put_u64(bytes, self.span);
        ARRAY.put_u64(bytes, self.array);
        GENERATION.put_u64(bytes, self.generation);
        PLACE.put_u32(bytes, self.place);
        ROWS.put_u32(bytes, if self.rows.len() == 1 { 1 } else { 2 });
        COUNT.put_u32(bytes, u32::try_from(count).expect("ARRAYSUMS2: checksums are few"));
        FORGOTTEN.put_u32(bytes, u32::from(self.forgotten));
        for (number, row) in self.rows.iter().enumerate() {
            assert_eq!(row.len(), count, "ARRAYSUMS2: rows are equally long");
            for (index, sum) in row.iter().enumerate() {
                let Some(sum) = sum else { continue };
                bytes[KNOWN.offset + number * COUNT_MAX / 8 + index / 8] |= 1 << (index % 8);
                bytes[SUMS.offset + (number * count + index) * 4..][..4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        let checksum = checksum_without(bytes, CHECKSUM);
        CHECKSUM.put_u32(bytes, checksum);
    }

    /// The page in `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, ArrayFormatError> {
        require(bytes.len() as u64 == BLOCK_SIZE, "ARRAYSUMS1: a page is a block")?;
        if MAGIC.u32(bytes) != MAGIC_VALUE {
            return Err(ArrayFormatError::Absent);
        }
        if CHECKSUM.u32(bytes) != checksum_without(bytes, CHECKSUM) {
            return Err(ArrayFormatError::Checksum);
        }
        require(RESERVED.is_zero(bytes), "reserved bytes are not zero")?;
        require(GENERATION.u64(bytes) <= NUMBER_MAX, "ARRAY5: the generation")?;
        require(FORGOTTEN.u32(bytes) <= 1, "ARRAYSUMS2: what is not known")?;
        let (rows, count) = (ROWS.u32(bytes) as usize, COUNT.u32(bytes) as usize);
        require((1..=2).contains(&rows) && (1..=COUNT_MAX).contains(&count), "ARRAYSUMS2: the rows")?;
        let is_known = |row: usize, index: usize| {
            bytes[KNOWN.offset + row * COUNT_MAX / 8 + index / 8] >> (index % 8) & 1 == 1
        };
        let sum = |row: usize, index: usize| {
            let at = SUMS.offset + (row * count + index) * 4;
            is_known(row, index)
                .then(|| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("ARRAYSUMS2: 4 bytes")))
        };
        let page = Self {
            array: ARRAY.u64(bytes),
            span: SPAN.u64(bytes),
            place: PLACE.u32(bytes),
            generation: GENERATION.u64(bytes),
            forgotten: FORGOTTEN.u32(bytes) == 1,
            rows: (0..rows).map(|row| (0..count).map(|index| sum(row, index)).collect()).collect(),
        };
        let mut again = vec![0; bytes.len()];
        page.encode(&mut again);
        require(again == bytes, "ARRAYSUMS2: bytes of a checksum that is not known are not zero")?;
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ChecksumPage {
        let row = |first: u32| (0..256).map(|index| (index % 7 != 0).then_some(first + index)).collect();
        let rows = vec![row(1), row(1 << 20)];
        ChecksumPage { array: 0x0102, span: 5, place: 2, generation: 7, forgotten: true, rows }
    }

    fn bytes(page: &ChecksumPage) -> Vec<u8> {
        let mut bytes = vec![0xff; BLOCK_SIZE as usize];
        page.encode(&mut bytes);
        bytes
    }

    #[test]
    fn golden_bytes_and_round_trip() {
        let page = bytes(&sample());
        assert_eq!((&page[..4], page[8], page[16], page[24], page[32]), (&b"VARS"[..], 5, 2, 7, 2));
        assert_eq!((page[36], page[41], page[44], page[64], page[96]), (2, 1, 1, 0x7e, 0x7e));
        assert_eq!((page[128], page[132], page[128 + 1024 + 4]), (0, 2, 1));
        assert_eq!(ChecksumPage::decode(&page), Ok(sample()));
        let short = ChecksumPage { rows: vec![vec![Some(1), None]], ..sample() };
        assert_eq!(ChecksumPage::decode(&bytes(&short)), Ok(short));
        assert_eq!(ChecksumPage::offset(3), (1 << 20) + 3 * 4096);
    }

    #[test]
    fn every_single_bit_of_damage_is_refused() {
        let page = bytes(&sample());
        for bit in 0..page.len() * 8 {
            let mut damaged = page.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(ChecksumPage::decode(&damaged).is_err(), "ARRAYSUMS1: bit {bit}");
        }
    }
}
