//! What volumes hold alone, and what it costs to know: nothing for a volume that shares nothing, and else a walk of what
//! it does not share, of which the last result is good as long as nothing has changed or so lately that another walk
//! would cost too much.
//!
//! Invariant A1: walks take at most a twentieth of the time, those of all volumes together.

use super::{Pool, PoolError};
use crate::pdata::Pages;
use std::collections::BTreeMap;
use std::time::Duration;
use varve_block::Moment;
use varve_format::thin::PART_SIZE;

/// A1: the least age at which a result is found anew, in times of what the walks of all volumes took.
const REST_FACTOR: u32 = 19;

/// What a volume holds, in bytes of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// What comes back if it alone is removed.
    pub exclusive: u64,
    /// What others hold too.
    pub shared: u64,
}

/// The last results, by volume.
#[derive(Default)]
pub(super) struct Holdings {
    found: BTreeMap<u64, Found>,
    /// What the walks to all of them took.
    took: Duration,
}

/// A result.
#[derive(Clone, Copy)]
struct Found {
    exclusive: u64,
    /// How often something had changed in the pool.
    changes: u64,
    ended: Moment,
    took: Duration,
}

impl Holdings {
    /// The result for a volume if it is good still: nothing has changed since, or another walk would cost too much (A1).
    fn good(&self, id: u64, changes: u64, now: Moment) -> Option<u64> {
        let last = self.found.get(&id)?;
        let is_good =
            last.changes == changes || now.since(last.ended) < self.took.saturating_mul(REST_FACTOR);
        is_good.then_some(last.exclusive)
    }

    fn insert(&mut self, id: u64, found: Found) {
        self.remove(&id);
        self.took += found.took;
        self.found.insert(id, found);
    }

    /// The volume is gone.
    pub(super) fn remove(&mut self, id: &u64) {
        if let Some(last) = self.found.remove(id) {
            self.took -= last.took;
        }
        assert!(!self.found.is_empty() || self.took.is_zero(), "A1: the sum is that of what is there");
    }
}

impl Pool {
    /// What a volume holds alone, as it is or was a little while ago.
    pub async fn holding(&self, id: u64) -> Result<Holding, PoolError> {
        let volume = self.find(id)?;
        let held = |exclusive: u64| {
            let mapped = volume.mapped.get() * PART_SIZE;
            Holding { exclusive: exclusive.min(mapped), shared: mapped.saturating_sub(exclusive) }
        };
        if volume.since.get() == 0 {
            return Ok(held(volume.mapped.get() * PART_SIZE)); // it was never cloned, and is no clone
        }
        let (changes, begun) = (self.commits.changes(), self.clock.now());
        if let Some(exclusive) = self.holdings.borrow().good(id, changes, begun) {
            return Ok(held(exclusive));
        }
        let (exclusive, shared) = self.exclusive(id).await?;
        let ended = self.clock.now();
        let found = Found { exclusive, changes, ended, took: ended.since(begun) };
        if self.volumes.borrow().contains_key(&id) {
            self.holdings.borrow_mut().insert(id, found);
        }
        Ok(Holding { exclusive, shared })
    }

    /// Bytes that only this volume holds, and bytes of data that others hold too, at one instant. Costs in proportion to
    /// the former and the nodes that were copied for it; everything goes on meanwhile.
    pub async fn exclusive(&self, id: u64) -> Result<(u64, u64), PoolError> {
        self.walk(&[id], async |view| {
            let volume = view.volumes[0];
            let (mut ahead, mut alone) = (Vec::from_iter(self.top(volume.tree)), 0);
            while let Some(node) = ahead.pop() {
                view.breathe().await?;
                let block = node.0.address();
                if self.map.run(|pages| view.shares.others(pages, block)).await? > 0 {
                    continue;
                }
                let (nodes, runs) = self.step_down(node).await?;
                ahead.extend(nodes);
                for run in runs.iter().filter(|run| run.place != 0) {
                    let pieces = |pages: &mut Pages| view.shares.pieces(pages, run.place, run.count);
                    let pieces = self.map.run(pieces).await?;
                    let own = pieces.iter().filter(|piece| piece.others == 0);
                    alone += own.map(|piece| piece.blocks).sum::<u64>();
                }
            }
            Ok((alone * PART_SIZE, volume.mapped.saturating_sub(alone) * PART_SIZE))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_for_all_volumes_again_and_again_take_a_twentieth_of_the_time() {
        let (mut holdings, mut now, mut walked) = (Holdings::default(), Moment(0), Duration::ZERO);
        let (volumes, took, list) = (1000, Duration::from_micros(30), Duration::from_millis(3));
        for changes in 0..3000 {
            for id in (0..volumes).filter(|id| changes == 0 || id % 3 > 0) {
                if holdings.good(id, changes, now).is_none() {
                    now = now.after(took);
                    walked += took;
                    holdings.insert(id, Found { exclusive: 0, changes, ended: now, took });
                }
            }
            now = now.after(list);
        }
        let all = now.since(Moment(0));
        assert!(walked * 20 <= all + took * 20 * 1000, "A1: {walked:?} of {all:?}");
        assert!(walked * 40 >= all, "but results are found anew: {walked:?} of {all:?}");
        assert_eq!(holdings.good(1, 2999, now), Some(0));
        (0..volumes).for_each(|id| holdings.remove(&id));
        assert_eq!(holdings.good(1, 2999, now), None);
    }

    #[test]
    fn a_result_is_good_as_long_as_nothing_changes() {
        let mut holdings = Holdings::default();
        holdings
            .insert(7, Found { exclusive: 5, changes: 1, ended: Moment(0), took: Duration::from_nanos(1) });
        assert_eq!(holdings.good(7, 1, Moment(1 << 40)), Some(5));
        assert_eq!(holdings.good(7, 2, Moment(1 << 40)), None);
    }
}
