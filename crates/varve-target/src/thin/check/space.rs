//! What the space map says of a group of blocks: now, or at the commit that is checked.
//!
//! Invariant CHECKPAGE1: a page is taken for the commit's only if no later commit has written over it: a page is in one of two
//! places, and the second commit that changes its group comes back to the first of them. Of a group for which that is so
//! nothing more is asked than that what is held is in use.

use super::super::{PoolError, index};
use super::checker::Checker;
use crate::pdata::Pages;
use varve_format::pdata::space_page::{GROUP_BLOCKS, Place, SpacePage};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::PART_SIZE;

/// So often a page is read that may be written meanwhile.
const READS_MAX: u32 = 8;

/// Which blocks of a group are in use, if that can be read.
pub(super) struct Marks {
    pub(super) used: Option<Vec<bool>>,
    /// Whether all that is in use must be held.
    pub(super) is_exact: bool,
}

impl Checker<'_> {
    /// The marks of a group, which has these blocks.
    pub(super) async fn marks(&mut self, group: u64, blocks: BlockRun) -> Result<Marks, PoolError> {
        let length = blocks.count;
        let (read, is_exact): (Result<Vec<bool>, String>, bool) = match self.page_of_commit(group).await? {
            Some(page) => (page.map(|page| (0..length).map(|at| page.is_used(at)).collect()), true),
            None => {
                let marks = self.pool.map.run(|pages: &mut Pages| pages.marks(blocks)).await;
                let marks = marks.map_err(|error| PoolError::from(error).to_string());
                (marks, self.view.is_space_of_now())
            }
        };
        if let Err(why) = &read {
            let (first, last) = (blocks.first, blocks.end() - 1);
            self.report.error(format!("the space map of blocks {first} to {last}: {why}"));
        }
        let used: Option<Vec<bool>> = read.ok();
        assert!(used.as_ref().is_none_or(|used| used.len() as u64 == length), "each block has a mark");
        Ok(Marks { used, is_exact })
    }

    /// CHECKPAGE1: the page of a group as the commit left it, or why it cannot be read; none if it is not there any more, or this
    /// instant is checked.
    async fn page_of_commit(&mut self, group: u64) -> Result<Option<Result<SpacePage, String>>, PoolError> {
        let Some(commit) = self.view.commit else { return Ok(None) };
        let first = self.pool.base_block() + group * GROUP_BLOCKS;
        let address = match commit.places.get(index(group)) {
            None => return Ok(None),
            Some(Place::Never) => return Ok(Some(Ok(SpacePage::new(self.pool.store_id(), group)))),
            Some(Place::First) => first,
            Some(Place::Second) => first + 1,
        };
        if !self.pool.is_inside(BlockRun::one(address)) {
            return Ok(Some(Err("its page lies behind the end of the pool".to_owned())));
        }
        for _ in 0..READS_MAX {
            let before = self.pool.commits.group.at_rest();
            let why = match self.read_page(address, group).await {
                Ok(page) if page.generation > commit.generation => return Ok(None),
                Ok(page) => return Ok(Some(Ok(page))),
                Err(why) => why,
            };
            if before.is_some() && before == self.pool.commits.group.at_rest() {
                return Ok(Some(Err(why)));
            }
            self.breathe().await?; // Perhaps it was being written.
        }
        Ok(None)
    }

    async fn read_page(&self, address: Block, group: u64) -> Result<SpacePage, String> {
        let buffer = self.pool.arena.take(index(PART_SIZE));
        let bytes = self.pool.device().read(address.offset(), buffer).await;
        let page = SpacePage::decode(&bytes.map_err(|error| error.to_string())?, address);
        let page = page.map_err(|error| error.to_string())?;
        if page.store == self.pool.store_id() && page.group == group {
            Ok(page)
        } else {
            Err("is of another pool or of other blocks".to_owned())
        }
    }
}
