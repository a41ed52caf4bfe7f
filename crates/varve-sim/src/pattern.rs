//! Content that says where it belongs: every sector of it names its volume, its version and its place.

use crate::SECTOR_SIZE;
use crate::random::mix;
use std::fmt;
use varve_block::{Arena, Bytes, Extent, is_zero};

/// The first eight bytes of a patterned sector.
const MAGIC: u64 = u64::from_le_bytes(*b"varvepat");
const WORDS: usize = SECTOR_SIZE / 8;

/// Which write a sector's content comes from: a volume's number and a version within it; or zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// What was never written, or written as zeros.
    pub const ZEROS: Stamp = Stamp(0);
    /// What a discard leaves: anything that was ever there, or zeros.
    pub(crate) const ANYTHING: Stamp = Stamp(u64::MAX);
    const VERSION_BITS: u32 = 48;

    /// Version `version`, from 1 on, of volume `volume`.
    pub fn new(volume: u16, version: u64) -> Self {
        assert!(version > 0 && version >> Self::VERSION_BITS == 0 && volume < u16::MAX);
        Stamp(u64::from(volume) << Self::VERSION_BITS | version)
    }

    /// The number of the volume that wrote it.
    pub fn volume(self) -> u64 {
        self.0 >> Self::VERSION_BITS
    }

    /// The version.
    pub fn version(self) -> u64 {
        self.0 & ((1 << Self::VERSION_BITS) - 1)
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Stamp::ZEROS => f.write_str("zeros"),
            Stamp::ANYTHING => f.write_str("anything (discarded)"),
            _ => write!(f, "v{}#{}", self.volume(), self.version()),
        }
    }
}

/// What a sector was found to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Content written as `stamp` for sector `sector`; or zeros, which belong everywhere.
    Pattern {
        /// Which write.
        stamp: Stamp,
        /// The sector that it was written for; of no meaning for zeros.
        sector: u64,
    },
    /// Neither zeros nor a whole patterned sector.
    Garbage,
}

/// The content of `extent`, made of whole sectors, as `stamp` writes it.
pub fn patterned(arena: &Arena, extent: Extent, stamp: Stamp) -> Bytes {
    assert!(extent.is_aligned(SECTOR_SIZE as u64), "a pattern is made of sectors");
    let length = usize::try_from(extent.length).expect("a request in memory");
    let mut buffer = arena.take(length);
    let first = extent.offset / SECTOR_SIZE as u64;
    for (sector, bytes) in (first..).zip(buffer.chunks_mut(SECTOR_SIZE)) {
        fill_sector(bytes, stamp, sector);
    }
    buffer.freeze()
}

/// Fills one sector's bytes.
pub fn fill_sector(bytes: &mut [u8], stamp: Stamp, sector: u64) {
    if stamp == Stamp::ZEROS {
        bytes.fill(0);
        return;
    }
    for (word, target) in words(stamp, sector).zip(bytes.chunks_exact_mut(8)) {
        target.copy_from_slice(&word.to_le_bytes());
    }
}

fn words(stamp: Stamp, sector: u64) -> impl Iterator<Item = u64> {
    let seed = mix(stamp.0 ^ sector.rotate_left(32));
    let body =
        (3..WORDS as u64).map(move |index| seed.wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    [MAGIC, stamp.0, sector].into_iter().chain(body)
}

/// Says what one sector's bytes are.
pub fn identify(bytes: &[u8]) -> Found {
    assert_eq!(bytes.len(), SECTOR_SIZE);
    let word = |index: usize| {
        let word = bytes[index * 8..].first_chunk().expect("a sector has 64 words");
        u64::from_le_bytes(*word)
    };
    if word(0) != MAGIC {
        return if is_zero(bytes) {
            Found::Pattern { stamp: Stamp::ZEROS, sector: 0 }
        } else {
            Found::Garbage
        };
    }
    let (stamp, sector) = (Stamp(word(1)), word(2));
    let whole =
        words(stamp, sector).zip(bytes.chunks_exact(8)).all(|(word, found)| found == word.to_le_bytes());
    if whole { Found::Pattern { stamp, sector } } else { Found::Garbage }
}

/// Whether a sector holds what volumes hold: zeros or a pattern.
pub(crate) fn is_content(sector: &[u8]) -> bool {
    identify(sector) != Found::Garbage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_tells_where_it_belongs_and_any_change_is_noticed() {
        let arena = Arena::heap(1 << 16);
        let stamp = Stamp::new(3, 9);
        let bytes = patterned(&arena, Extent::new(1024, 1024), stamp);
        assert_eq!(identify(&bytes[..512]), Found::Pattern { stamp, sector: 2 });
        assert_eq!(identify(&bytes[512..]), Found::Pattern { stamp, sector: 3 });
        assert_eq!((stamp.volume(), stamp.version()), (3, 9));
        for bit in 0..SECTOR_SIZE * 8 {
            let mut damaged = bytes[..512].to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(identify(&damaged), Found::Pattern { stamp, sector: 2 }, "bit {bit}");
        }
    }

    #[test]
    fn zeros_are_zeros_and_noise_is_garbage() {
        assert_eq!(identify(&[0; 512]), Found::Pattern { stamp: Stamp::ZEROS, sector: 0 });
        assert_eq!(identify(&[1; 512]), Found::Garbage);
    }
}
