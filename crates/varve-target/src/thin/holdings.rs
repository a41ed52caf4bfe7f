//! What volumes hold alone, and what it costs to know: nothing for a volume that shares nothing, and else a walk of what
//! it does not share, of which the last result is good as long as nothing has changed or so lately that another walk
//! would cost too much.
//!
//! Invariant A1: walks take at most a twentieth of the time.

use super::{Pool, PoolError};
use crate::pdata::Pages;
use std::time::Duration;
use varve_block::Moment;
use varve_format::thin::PART_SIZE;

/// A1: the least rest after a walk, in times of what it took.
const REST_FACTOR: u32 = 19;

/// What a volume holds, in bytes of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// What comes back if it alone is removed.
    pub exclusive: u64,
    /// What others hold too.
    pub shared: u64,
}

/// A result, and for how long it is good.
#[derive(Clone, Copy)]
pub(super) struct Found {
    exclusive: u64,
    /// How often something had changed in the pool.
    changes: u64,
    ended: Moment,
    took: Duration,
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
        let last = self.holdings.borrow().get(&id).copied();
        let is_good = |last: &Found| {
            last.changes == changes || begun.since(last.ended) < last.took.saturating_mul(REST_FACTOR)
        };
        if let Some(last) = last.filter(is_good) {
            return Ok(held(last.exclusive));
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
