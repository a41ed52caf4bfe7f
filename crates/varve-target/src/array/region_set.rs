//! A set of an array's regions, one bit each.
//!
//! Invariant REGIONSET1: no bit is set of a region that is not there, and the number of bits is counted.

use std::ops::Range;
use varve_format::array::{REGIONS_MAX, RegionBits};

/// The set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegionSet {
    words: Vec<u64>,
    regions: u64,
    count: u64,
}

impl RegionSet {
    /// An empty set of an array with so many regions.
    pub(super) fn new(regions: u64) -> Self {
        assert!(regions <= REGIONS_MAX, "ARRAY4: {regions} regions");
        let words = usize::try_from(regions.div_ceil(64)).expect("ARRAY4: regions are few");
        Self { words: vec![0; words], regions, count: 0 }
    }

    /// The set of `bits`, of an array of as many regions.
    pub(super) fn of(bits: &RegionBits, regions: u64) -> Self {
        let mut set = Self::new(regions);
        let mine = |region: &u64| bits.get(word(*region)).is_some_and(|bits| bits & bit(*region) != 0);
        (0..regions).filter(mine).for_each(|region| {
            set.insert(region);
        });
        set
    }

    /// The set as a superblock has it.
    pub(super) fn bits(&self) -> RegionBits {
        let count: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        assert_eq!(count, self.count, "REGIONSET1");
        self.words.clone()
    }

    /// How many regions are in it.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn contains(&self, region: u64) -> bool {
        assert!(region < self.regions, "REGIONSET1: region {region} of {}", self.regions);
        self.words[word(region)] & bit(region) != 0
    }

    /// Whether any of `regions` is in it.
    pub(super) fn has_any(&self, mut regions: Range<u64>) -> bool {
        self.count > 0 && regions.any(|region| self.contains(region))
    }

    /// Puts `region` in. Returns whether it was not in it.
    pub(super) fn insert(&mut self, region: u64) -> bool {
        let is_new = !self.contains(region);
        self.words[word(region)] |= bit(region);
        self.count += u64::from(is_new);
        is_new
    }

    /// Takes `region` out. Returns whether it was in it.
    pub(super) fn remove(&mut self, region: u64) -> bool {
        let was_in = self.contains(region);
        self.words[word(region)] &= !bit(region);
        self.count -= u64::from(was_in);
        was_in
    }

    /// Puts all regions of `other` in.
    pub(super) fn insert_all(&mut self, other: &RegionSet) {
        assert_eq!(self.regions, other.regions, "REGIONSET1: sets of one array");
        other.iter().for_each(|region| {
            self.insert(region);
        });
    }

    /// Puts every region in.
    pub(super) fn fill(&mut self) {
        (0..self.regions).for_each(|region| {
            self.insert(region);
        });
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The first region from `from` on that is in it.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let mut region = from;
        while region < self.regions {
            let rest = self.words[word(region)] >> (region % 64);
            if rest != 0 {
                return Some(region + u64::from(rest.trailing_zeros()));
            }
            region = (region / 64 + 1) * 64;
        }
        None
    }

    /// The regions in it, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let region = self.next(from)?;
            from = region + 1;
            Some(region)
        })
    }

    /// The set of an array of `regions` regions, each of which is 2^`doublings` regions of before. What is behind its end is
    /// forgotten.
    pub(super) fn folded(&self, doublings: u32, regions: u64) -> Self {
        let mut folded = Self::new(regions);
        self.iter().map(|region| region >> doublings).filter(|region| *region < regions).for_each(|region| {
            folded.insert(region);
        });
        folded
    }
}

fn word(region: u64) -> usize {
    usize::try_from(region / 64).expect("ARRAY4: regions are few")
}

fn bit(region: u64) -> u64 {
    1 << (region % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_holds_what_a_set_of_numbers_holds(steps in proptest::collection::vec((0_u64..200, any::<bool>()), 0..300)) {
            let (mut set, mut model) = (RegionSet::new(200), BTreeSet::new());
            for (region, puts_in) in steps {
                if puts_in {
                    prop_assert_eq!(set.insert(region), model.insert(region));
                } else {
                    prop_assert_eq!(set.remove(region), model.remove(&region));
                }
            }
            prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), model.clone(), "REGIONSET1");
            prop_assert_eq!(set.count(), model.len() as u64, "REGIONSET1");
            prop_assert_eq!(RegionSet::of(&set.bits(), 200), set.clone());
            let folded: BTreeSet<u64> = model.iter().map(|region| region / 4).filter(|region| *region < 40).collect();
            prop_assert_eq!(set.folded(2, 40).iter().collect::<BTreeSet<_>>(), folded);
            prop_assert_eq!(set.has_any(50..70), model.range(50..70).next().is_some());
        }
    }
}
