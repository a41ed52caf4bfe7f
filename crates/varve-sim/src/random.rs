//! Seeded randomness: the only source of chance in a simulated world.

/// A small, fast generator of pseudo-random numbers. The same seed gives the same numbers on every machine.
///
/// The algorithm is xoshiro256** by Blackman and Vigna ("Scrambled linear pseudorandom number generators", 2018),
/// its state filled from the seed by splitmix64 (Steele, Lea, Flood, 2014). Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// One step of splitmix64: a well-mixed function of `value`.
pub(crate) const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The generator that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = std::array::from_fn(|index| mix(seed.wrapping_add(STEP.wrapping_mul(index as u64))));
        Self { state }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        result
    }

    /// A number below `bound`, which is above zero. Its bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        let product = u128::from(self.bits()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the high half of a product of 64-bit numbers fits in 64 bits")
    }

    /// A number from `low` on and below `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low < high, "an empty range has no member");
        low + self.below(high - low)
    }

    /// An index into something of `length` members, at least one.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a usize")
    }

    /// True `times` times out of `out_of`.
    pub fn chance(&mut self, times: u64, out_of: u64) -> bool {
        self.below(out_of) < times
    }

    /// One of `members`, of which there is at least one.
    pub fn pick<'a, T>(&mut self, members: &'a [T]) -> &'a T {
        &members[self.index(members.len())]
    }

    /// Puts `members` in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, members: &mut [T]) {
        for last in (1..members.len()).rev() {
            let other = self.index(last + 1);
            members.swap(last, other);
        }
    }

    /// Fills `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }

    /// A generator of its own, which depends on this one's state.
    pub fn fork(&mut self) -> Random {
        Random::new(self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers() {
        // The reference values of splitmix64 for the seed 1234567.
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
        // xoshiro256** from the state 1, 2, 3, 4, as published with the reference code.
        let mut random = Random { state: [1, 2, 3, 4] };
        let first: Vec<_> = (0..4).map(|_| random.bits()).collect();
        assert_eq!(first, [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut random = Random::new(7);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.index(10)] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn a_shuffle_keeps_every_member() {
        let mut members: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut members);
        assert_ne!(members, (0..100).collect::<Vec<_>>());
        members.sort_unstable();
        assert_eq!(members, (0..100).collect::<Vec<_>>());
    }
}
