//! A check of the last commit while the pool serves: what that commit leads to stays where it is as long as the check goes
//! on, as if somebody were reading there (F3), and is compared in doses.
//!
//! Whoever checks keeps everything in place that is given up meanwhile; so a check ends without a result when the pool has
//! no room for others.

use super::super::recover::read_superblock;
use super::super::shares::Shares;
use super::super::tickets::Tickets;
use super::super::volume::Volume;
use super::super::{Pool, PoolError};
use super::{Checker, PoolReport, View};
use crate::pdata::Tree;
use std::rc::Rc;
use varve_block::LocalFuture;
use varve_format::thin::{VolumeRows, volume_key};

/// Called again and again during a check, with the number of nodes that were looked at and the number of those to look at
/// in all; the check goes on when the future is ready, and ends if it is an error.
pub type CheckPace<'a> = dyn Fn(u64, u64) -> LocalFuture<'a, Result<(), PoolError>> + 'a;

impl Pool {
    /// Checks the last commit while everything goes on. What is marked as in use and held by nobody is not noticed: that
    /// changes meanwhile. `NoSpace` says that others need the room that the check keeps.
    pub async fn check_last_commit(&self, pace: &CheckPace<'_>) -> Result<PoolReport, PoolError> {
        self.checkpoint().await?; // what was given up before need not be kept
        // Before the commit that is checked: nothing that is given up after it is used again.
        let _in_use = self.map.pages().in_use();
        self.checkpoint().await?;
        let superblock = read_superblock(&self.device(), &self.arena).await?;
        assert!(superblock.number > 0 && superblock.pool == self.id, "this pool has written it");
        let (table, root) = (Tree { root: superblock.volumes }, Tree { root: superblock.shares });
        let shares = Shares::open(root, Tickets::default(), None);
        let volumes = self.volumes_of(table).await?;
        // Each node is read to walk through it, and to count what it leads to.
        let total = superblock.nodes * 2;
        let pace = |done: u64| -> LocalFuture<'_, Result<(), PoolError>> {
            let (free, kept) = {
                let pages = self.map.pages();
                (pages.free_blocks(), pages.reclaimable_blocks())
            };
            let is_room_needed = kept * 2 > free || self.is_paused() || self.is_metadata_tight();
            if is_room_needed {
                return Box::pin(std::future::ready(Err(PoolError::NoSpace)));
            }
            pace(done, total.max(done))
        };
        let view = View { volumes, shares: &shares, table, is_space_of_now: false, pace: Some(&pace) };
        Checker::new(self, view).run().await
    }

    /// The volumes that a map of volumes names.
    async fn volumes_of(&self, table: Tree) -> Result<Vec<Rc<Volume>>, PoolError> {
        let (mut from, mut entries, mut more) = (volume_key(0, 0), Vec::new(), true);
        while more {
            let leaf = self.map.run(|pages| table.leaf(pages, from)).await?;
            entries.extend(leaf.entries);
            more = leaf.next.is_some();
            from = leaf.next.unwrap_or(from);
        }
        let mut volumes = Vec::new();
        for rows in entries.chunk_by(|one, two| one.0 >> 64 == two.0 >> 64) {
            let id = u64::try_from(rows[0].0 >> 64).expect("half of a key");
            let rows = VolumeRows::decode(id, rows).map_err(PoolError::Format)?;
            volumes.push(Rc::new(Volume::from_rows(rows, false)));
        }
        Ok(volumes)
    }
}
