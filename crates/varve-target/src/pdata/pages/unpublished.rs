//! Unpublished blocks, for content to which nothing leads yet: taken where they belong, found by recovery, given back.

use super::{Block, BlockRun, Pages, Side, Stop, missing_page};

impl Pages {
    /// Takes a run of at most `limit` blocks for content to which nothing leads yet, until [`Pages::publish`]: at
    /// `hint` if that is free; else `slot` blocks within a free unit of `unit` blocks; else anywhere.
    pub fn take_unpublished_near(
        &mut self,
        hint: Option<Block>,
        unit: u64,
        slot: u64,
        limit: u64,
    ) -> Result<BlockRun, Stop> {
        let limit = limit.min(self.free_blocks());
        if limit == 0 {
            return Err(Stop::Full);
        }
        if let Some(hint) = hint
            && let Some(run) = self.space.take_unpublished_at(hint, limit).map_err(missing_page)?
        {
            return Ok(run);
        }
        if let Some(run) = self.space.take_in_unit(unit, slot, limit).map_err(missing_page)? {
            return Ok(run);
        }
        let run = self.take_on(Side::Near, limit)?;
        assert!((1..=limit).contains(&run.count), "SPACE4: what was asked for, or less");
        self.space.mark_unpublished(run);
        Ok(run)
    }

    /// As [`Pages::claim`], for blocks that are unpublished until [`Pages::publish`].
    pub fn claim_unpublished(&mut self, run: BlockRun) -> Result<bool, Stop> {
        let claimed = self.claim(run)?;
        if claimed {
            self.space.mark_unpublished(run);
        }
        Ok(claimed)
    }

    /// Gives back blocks that were taken unpublished and to which nothing will lead.
    pub fn return_unpublished(&mut self, run: BlockRun) {
        self.space.publish(run);
        self.space.untake(run);
    }
}
