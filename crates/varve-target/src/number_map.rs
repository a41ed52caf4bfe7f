//! Tables by a number that is never chosen to make it collide: of a block, of a region.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by number, plain or of its own type.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4) of one number: every request looks up a few.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }
    fn write_u64(&mut self, number: u64) {
        // The upper bits of the product are the good ones; the table uses lower and upper ones.
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}
