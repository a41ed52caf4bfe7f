//! What was last found of what volumes hold alone, and how long that took.

use std::collections::BTreeMap;
use std::time::Duration;
use varve_block::Moment;

/// ACCOUNT1: the least age at which a result is found anew, in times of what the walks of all volumes took.
pub(super) const REST_FACTOR: u32 = 19;

/// What a volume holds, in bytes of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSpace {
    /// What comes back if it alone is removed.
    pub exclusive: u64,
    /// What others hold too.
    pub shared: u64,
}

/// The last results, by volume.
#[derive(Default)]
pub(super) struct SpaceAccounting {
    pub(super) found: BTreeMap<u64, Found>,
    /// What the walks to all of them took.
    pub(super) took: Duration,
}

/// A result.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) exclusive: u64,
    /// How often something had changed in the pool.
    pub(super) changes: u64,
    pub(super) ended: Moment,
    pub(super) took: Duration,
}

impl SpaceAccounting {
    /// The result for a volume if it is good still: nothing has changed since, or another walk would cost too much (ACCOUNT1).
    pub(super) fn good(&self, id: u64, changes: u64, now: Moment) -> Option<u64> {
        let last = self.found.get(&id)?;
        let is_good =
            last.changes == changes || now.since(last.ended) < self.took.saturating_mul(REST_FACTOR);
        is_good.then_some(last.exclusive)
    }

    pub(super) fn insert(&mut self, id: u64, found: Found) {
        self.remove(&id);
        self.took += found.took;
        self.found.insert(id, found);
    }

    /// The volume is gone.
    pub(super) fn remove(&mut self, id: &u64) {
        if let Some(last) = self.found.remove(id) {
            self.took -= last.took;
        }
        assert!(!self.found.is_empty() || self.took.is_zero(), "ACCOUNT1: the sum is that of what is there");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_for_all_volumes_again_and_again_take_a_twentieth_of_the_time() {
        let (mut accounting, mut now, mut walked) = (SpaceAccounting::default(), Moment(0), Duration::ZERO);
        let (volumes, took, list) = (1000, Duration::from_micros(30), Duration::from_millis(3));
        for changes in 0..3000 {
            for id in (0..volumes).filter(|id| changes == 0 || id % 3 > 0) {
                if accounting.good(id, changes, now).is_none() {
                    now = now.after(took);
                    walked += took;
                    accounting.insert(id, Found { exclusive: 0, changes, ended: now, took });
                }
            }
            now = now.after(list);
        }
        let all = now.since(Moment(0));
        assert!(walked * 20 <= all + took * 20 * 1000, "ACCOUNT1: {walked:?} of {all:?}");
        assert!(walked * 40 >= all, "but results are found anew: {walked:?} of {all:?}");
        assert_eq!(accounting.good(1, 2999, now), Some(0));
        (0..volumes).for_each(|id| accounting.remove(&id));
        assert_eq!(accounting.good(1, 2999, now), None);
    }

    #[test]
    fn a_result_is_good_as_long_as_nothing_changes() {
        let mut accounting = SpaceAccounting::default();
        accounting
            .insert(7, Found { exclusive: 5, changes: 1, ended: Moment(0), took: Duration::from_nanos(1) });
        assert_eq!(accounting.good(7, 1, Moment(1 << 40)), Some(5));
        assert_eq!(accounting.good(7, 2, Moment(1 << 40)), None);
    }
}
