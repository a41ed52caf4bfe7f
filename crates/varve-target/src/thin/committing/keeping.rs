//! What a check or a walk keeps in place while it goes on: everything that is freed, as if a read were under way there
//! (SPACE3 of `pdata::space`). When others need that room it gives way (POOLFULL3 of `full.rs`).

use super::super::Pool;
use crate::pdata::InUse;

/// Keeps everything in place that is freed, until it is dropped.
pub(in crate::thin) struct Keeping<'a> {
    pool: &'a Pool,
    in_use: Option<InUse>,
}

impl<'a> Keeping<'a> {
    pub(in crate::thin) fn new(pool: &'a Pool) -> Self {
        pool.waiters.check_begins();
        let in_use = Some(pool.map.pages().in_use());
        Self { pool, in_use }
    }

    /// Whether others need the room that is kept.
    pub(in crate::thin) fn is_room_needed(&self) -> bool {
        assert!(self.in_use.is_some(), "SPACE3: it is kept all the while");
        let (free, kept) = {
            let pages = self.pool.map.pages();
            (pages.free_blocks(), pages.reclaimable_blocks())
        };
        let is_asked_for = self.pool.is_paused() || self.pool.waiters.is_wanted();
        kept > 0 && (kept * 2 > free || is_asked_for || self.pool.is_metadata_tight())
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        assert!(self.in_use.take().is_some(), "SPACE3: it was kept all the while");
        self.pool.map.pages().reclaim();
        self.pool.waiters.check_ended();
    }
}
