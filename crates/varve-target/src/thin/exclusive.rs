//! What volumes hold alone, and what it costs to know: nothing for a volume that shares nothing, and else a walk of what
//! it does not share, of which the last result is good as long as nothing has changed or so lately that another walk
//! would cost too much.
//!
//! Invariant ACCOUNT1: walks take at most a twentieth of the time, those of all volumes together.

use super::accounting::{Found, VolumeSpace};
use super::{Pool, PoolError};
use crate::pdata::Pages;
use varve_format::thin::{Mapping, PART_SIZE};

impl Pool {
    /// What a volume holds alone, as it is or was a little while ago.
    pub async fn volume_space(&self, id: u64) -> Result<VolumeSpace, PoolError> {
        let volume = self.volumes.find(id)?;
        let held = |exclusive: u64| {
            let mapped = volume.mapped.get() * PART_SIZE;
            VolumeSpace { exclusive: exclusive.min(mapped), shared: mapped.saturating_sub(exclusive) }
        };
        if volume.last_clone.get() == 0 {
            return Ok(held(volume.mapped.get() * PART_SIZE)); // it was never cloned, and is no clone
        }
        let (changes, begun) = (self.commits.changes(), self.clock.now());
        if let Some(exclusive) = self.accounting.borrow().good(id, changes, begun) {
            return Ok(held(exclusive));
        }
        let (exclusive, shared) = self.exclusive(id).await?;
        let ended = self.clock.now();
        let found = Found { exclusive, changes, ended, took: ended.since(begun) };
        if self.volumes.all().contains_key(&id) {
            self.accounting.borrow_mut().insert(id, found);
        }
        Ok(VolumeSpace { exclusive, shared })
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
                if self.map.run(|pages| view.ref_counts.others(pages, block)).await? > 0 {
                    continue;
                }
                let (nodes, runs) = self.step_down(node).await?;
                ahead.extend(nodes);
                for run in runs.iter().filter_map(Mapping::blocks) {
                    let pieces = |pages: &mut Pages| view.ref_counts.pieces(pages, run);
                    let pieces = self.map.run(pieces).await?;
                    let own = pieces.iter().filter(|piece| piece.others == 0);
                    alone += own.map(|piece| piece.run.count).sum::<u64>();
                }
            }
            Ok((alone * PART_SIZE, volume.mapped.saturating_sub(alone) * PART_SIZE))
        })
        .await
    }
}
