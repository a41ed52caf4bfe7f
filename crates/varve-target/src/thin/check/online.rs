//! A check of the last commit while the pool serves: what that commit leads to stays where it is as long as the check goes
//! on, as if a read were under way there (SPACE3), and is compared in batches.
//!
//! A check keeps everything in place that is freed meanwhile; so it ends without a result when the pool has
//! no room for others (POOLFULL3 of `full.rs`).

use super::super::committing::keeping::Keeping;
use super::super::maps::ref_counts::RefCounts;
use super::super::recover::read_superblock;
use super::super::{Pool, PoolError};
use super::checker::{Checker, GROUPS_MAX_SERVING, View};
use super::report::PoolReport;
use crate::pdata::Tree;
use crate::reader_epochs::ReaderEpochs;
use std::rc::Rc;
use varve_block::LocalFuture;
use varve_format::pdata::space_page::GROUP_BLOCKS;

/// Called again and again during a check, with the number of nodes and of groups of blocks that were looked at and the
/// number of those to look at in all; the check goes on when the future is ready, and ends if it is an error.
pub type CheckPace<'a> = dyn Fn(u64, u64) -> LocalFuture<'a, Result<(), PoolError>> + 'a;

impl Pool {
    /// Checks the last commit while everything goes on. What is marked as in use and not held is noticed where the
    /// space map of that commit is still there (CHECKPAGE1 of `space.rs`). `NoSpace` says that others need the room that the check keeps.
    pub async fn check_last_commit(&self, pace: &CheckPace<'_>) -> Result<PoolReport, PoolError> {
        self.checkpoint().await?; // what was freed before need not be kept
        // Before the commit that is checked: nothing that is freed after it is used again.
        let keeping = Keeping::new(self);
        self.checkpoint().await?;
        let superblock = read_superblock(&self.device(), &self.arena).await?;
        if superblock.pool != self.id || superblock.base_block() != self.base_block() {
            return Err(PoolError::Corrupt("the superblocks on the device are of another pool"));
        }
        let (table, root) = (Tree { root: superblock.volumes }, Tree { root: superblock.shares });
        let ref_counts = RefCounts::open(root, ReaderEpochs::default(), None);
        let (volumes, errors) = self.readable_volumes(table).await;
        let volumes = volumes.into_iter().map(Rc::new).collect();
        // Each node is read to walk through it, and to count what it leads to; then each group of blocks is compared.
        let groups = (superblock.end_block - superblock.base_block()).div_ceil(GROUP_BLOCKS);
        let total = superblock.nodes.saturating_mul(2).saturating_add(groups);
        let pace = |done: u64| -> LocalFuture<'_, Result<(), PoolError>> {
            if keeping.is_room_needed() {
                return Box::pin(std::future::ready(Err(PoolError::NoSpace)));
            }
            pace(done, total.max(done))
        };
        let (ref_counts, groups_max) = (&ref_counts, GROUPS_MAX_SERVING);
        let view =
            View { volumes, ref_counts, table, commit: Some(&superblock), groups_max, pace: Some(&pace) };
        let mut report = Checker::new(self, view).run().await?;
        report.errors.splice(0..0, errors);
        Ok(report)
    }
}
