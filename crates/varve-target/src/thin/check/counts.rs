//! The number of holders of each block, counted anew, and compared with what is counted and with what is marked as in use.
//!
//! Counts are kept for some groups of blocks at a time; nodes are read once for each such range, in the order in which
//! they lie.

use super::super::PoolError;
use super::checker::Checker;
use super::space::Marks;
use crate::pdata::AllocClass;
use std::collections::BTreeMap;
use std::ops::Bound;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::Entries;
use varve_format::pdata::space_page::{GROUP_BLOCKS, PAGE_PLACES};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::Mapping;

/// Counts of the blocks of some groups.
struct Counts {
    base: Block,
    /// The first group that is counted now.
    from: u64,
    /// The first group that is not counted now.
    until: u64,
    groups: BTreeMap<u64, Vec<u32>>,
    groups_max: usize,
}

impl Counts {
    fn new(base: Block, from: u64, until: u64, groups_max: usize) -> Self {
        assert!(from < until && groups_max > 0, "something is counted");
        Self { base, from, until, groups: BTreeMap::new(), groups_max }
    }

    /// Counts one more holder of each of these blocks, all of which lie behind the base.
    fn add(&mut self, run: BlockRun) {
        let (mut at, end) = (run.first, run.end());
        while at < end {
            let group = (at - self.base) / GROUP_BLOCKS;
            let stop = end.min(self.base + (group + 1) * GROUP_BLOCKS);
            let begin = super::super::index((at - self.base) % GROUP_BLOCKS);
            let length = super::super::index(stop - at);
            if let Some(counts) = self.group(group) {
                counts[begin..begin + length].iter_mut().for_each(|count| *count = count.saturating_add(1));
            }
            at = stop;
        }
    }

    /// The counts of a group, if they are kept now; the last groups make way for those before them.
    fn group(&mut self, group: u64) -> Option<&mut Vec<u32>> {
        if group < self.from || group >= self.until {
            return None;
        }
        if !self.groups.contains_key(&group) && self.groups.len() == self.groups_max {
            let last = *self.groups.keys().next_back().expect("it is full");
            self.until = last.max(group);
            if group > last {
                return None;
            }
            self.groups.remove(&last);
        }
        Some(self.groups.entry(group).or_insert_with(|| vec![0; super::super::index(GROUP_BLOCKS)]))
    }
}

/// What is wrong with a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    /// It has so many holders, and so many are counted.
    Count(u64, u64),
    /// It is held, and marked as free.
    Free,
    /// It is not held, and marked as in use.
    Leaked,
    /// It is held, and pending free.
    PendingFree,
    /// It is held, and a place of a page of the space map.
    Page,
}

impl Wrong {
    fn text(self, first: Block, last: Block) -> String {
        let blocks = match first == last {
            true => format!("block {first}"),
            false => format!("blocks {first} to {last}"),
        };
        match self {
            Wrong::Count(holders, counted) => {
                format!("THIN9: {blocks}: {holders} hold it, counted are {counted}")
            }
            Wrong::Free => format!("{blocks}: held, and marked as free"),
            Wrong::Leaked => format!("{blocks}: marked as in use, and held by nobody"),
            Wrong::PendingFree => format!("{blocks}: held, and pending free"),
            Wrong::Page => format!("POOLCHECK3: {blocks}: held, and a page of the space map"),
        }
    }

    /// Whether data that is held may be overwritten.
    fn is_dangerous(self) -> bool {
        match self {
            Wrong::Count(holders, counted) => holders > counted,
            Wrong::Free | Wrong::PendingFree | Wrong::Page => true,
            Wrong::Leaked => false,
        }
    }
}

impl Checker<'_> {
    /// THIN9, POOLCHECK3, and the space map.
    pub(super) async fn count(&mut self) -> Result<(), PoolError> {
        let base = self.pool.base_block();
        let end = self.view.commit.map_or(self.pool.end_block.get(), |commit| commit.end_block);
        let groups = (end - base).div_ceil(GROUP_BLOCKS);
        let (mut from, mut held, mut used) = (0, 0, 0);
        let mut is_all = true;
        let away = self.away();
        while from < groups {
            let mut counts = Counts::new(base, from, groups, self.view.groups_max);
            self.count_holders(&mut counts).await?;
            for group in from..counts.until {
                self.breathe().await?; // There may be many of them, and few nodes.
                let first = base + group * GROUP_BLOCKS;
                let blocks = BlockRun::new(first, GROUP_BLOCKS.min(end - first));
                let own = counts.groups.get(&group).map_or(&[][..], Vec::as_slice);
                let marks = self.marks(group, blocks).await?;
                let compared = self.compare_group(blocks, own, &marks, &away).await;
                held += own.iter().filter(|count| **count > 0).count() as u64;
                match compared {
                    Some(marked) => used += marked,
                    None => is_all = false,
                }
            }
            from = counts.until;
        }
        self.report.data_blocks = held.saturating_sub(self.nodes.len() as u64);
        let free_now = || self.pool.map.pages().available(AllocClass::Reserve);
        let free = self.view.commit.map_or_else(free_now, |commit| commit.free_blocks);
        if is_all && free != end - base - used {
            self.report.error(format!("{} blocks are free, not {free}", end - base - used));
        }
        Ok(())
    }

    /// Blocks that are marked as in use and to which nothing leads, now.
    fn away(&self) -> BTreeMap<Block, BlockRun> {
        match self.view.is_space_of_now() {
            true => {
                let runs = self.pool.map.pages().unreachable_runs();
                runs.into_iter().map(|run| (run.first, run)).collect()
            }
            false => BTreeMap::new(),
        }
    }

    /// Adds everything that leads to blocks of this range.
    async fn count_holders(&mut self, counts: &mut Counts) -> Result<(), PoolError> {
        let volumes = self.view.volumes.iter().map(|volume| volume.tree.get().root.block());
        let roots: Vec<Block> = volumes
            .chain([self.view.ref_counts.root().root, self.view.table.root].map(Link::block))
            .collect();
        for root in roots.into_iter().map(BlockRun::one).filter(|root| self.pool.is_inside(*root)) {
            counts.add(root);
        }
        let mut after = Bound::Unbounded;
        while let Some((block, known)) =
            self.nodes.range((after, Bound::Unbounded)).next().map(|(block, known)| (*block, *known))
        {
            after = Bound::Excluded(block);
            if self.broken.contains(&block) {
                continue;
            }
            match self.node(known.link).await?.1 {
                Entries::Branch(children) => {
                    let below = children.into_iter().map(|child| BlockRun::one(child.1.block()));
                    for child in below.filter(|child| self.pool.is_inside(*child)) {
                        counts.add(child);
                    }
                }
                Entries::Leaf(_) if known.is_alone => {}
                Entries::Leaf(entries) => {
                    let runs = entries.iter().filter_map(|(key, value)| Mapping::decode(*key, value).ok());
                    for run in runs.filter_map(|run| run.blocks()) {
                        counts.add(run);
                        self.refuse_nodes(run, counts);
                    }
                }
            }
        }
        Ok(())
    }

    /// Refuses blocks that are nodes and something else, too (POOLCHECK3).
    fn refuse_nodes(&mut self, run: BlockRun, counts: &Counts) {
        let nodes: Vec<Block> = self.nodes.range(run.first..run.end()).map(|node| *node.0).collect();
        let now =
            |block: &Block| (counts.from..counts.until).contains(&((*block - counts.base) / GROUP_BLOCKS));
        for block in nodes.into_iter().filter(now) {
            self.report.error(format!("POOLCHECK3: block {block} is a node and data"));
            self.doubt(BlockRun::one(block));
        }
    }

    /// Compares the blocks of a group; how many are marked as in use, if that is known exactly.
    async fn compare_group(
        &mut self,
        blocks: BlockRun,
        held: &[u32],
        marks: &Marks,
        away: &BTreeMap<Block, BlockRun>,
    ) -> Option<u64> {
        let (used, is_exact) = (marks.used.as_deref(), marks.is_exact);
        assert!((1..=GROUP_BLOCKS).contains(&blocks.count), "a group has blocks: {blocks:?}");
        let others = self.counted_others(blocks).await;
        let is_away =
            |block: Block| away.range(..=block).next_back().is_some_and(|(_, run)| block < run.end());
        let is_empty = held.is_empty() && others.iter().flatten().all(|others| *others == 0);
        let in_use = used.unwrap_or_default().iter().filter(|used| **used).count() as u64;
        if is_empty && in_use <= PAGE_PLACES {
            return used.filter(|_| is_exact).map(|_| in_use); // Only the places of its page.
        }
        let (mut marked, mut wrong): (u64, Option<(BlockRun, Wrong)>) = (0, None);
        for (at, block) in blocks.blocks().enumerate() {
            let holders = held.get(at).map_or(0, |count| u64::from(*count));
            let used = used.map(|used| used[at]);
            marked += u64::from(used == Some(true));
            let own_page = at < super::super::index(PAGE_PLACES);
            let more = others.as_ref().map(|others| others[at]);
            let found = self.classify(holders, more, (used, is_exact), own_page, is_away(block));
            wrong = match (wrong, found) {
                (Some((run, what)), Some(same)) if run.end() == block && what == same => {
                    Some((BlockRun::new(run.first, run.count + 1), what))
                }
                (before, found) => {
                    self.tell(before);
                    found.map(|what| (BlockRun::one(block), what))
                }
            };
        }
        self.tell(wrong);
        used.filter(|_| is_exact).map(|_| marked)
    }

    fn tell(&mut self, wrong: Option<(BlockRun, Wrong)>) {
        let Some((run, wrong)) = wrong else { return };
        assert!(run.count > 0, "some block is wrong");
        self.report.error(wrong.text(run.first, run.end() - 1));
        if wrong.is_dangerous() {
            self.doubt(run);
        }
    }

    /// How many others hold each block of a group; none if that cannot be read.
    async fn counted_others(&mut self, run: BlockRun) -> Option<Vec<u64>> {
        if !self.are_counts_readable {
            return None;
        }
        let ref_counts = self.view.ref_counts;
        let pieces = self.pool.map.run(|pages| ref_counts.pieces(pages, run)).await.ok()?;
        let all = pieces.iter().flat_map(|piece| (0..piece.run.count).map(|_| piece.others));
        let all: Vec<u64> = all.collect();
        assert_eq!(all.len() as u64, run.count, "every block is asked about");
        Some(all)
    }

    /// What is wrong with a block. Where nodes could not be read, a block may have more holders than were seen, and what
    /// those nodes alone hold seems not to be held.
    fn classify(
        &self,
        holders: u64,
        others: Option<u64>,
        (used, is_exact): (Option<bool>, bool),
        is_page: bool,
        is_away: bool,
    ) -> Option<Wrong> {
        let (is_whole, is_held) = (self.broken.is_empty(), holders > 0);
        if is_held && is_page {
            return Some(Wrong::Page);
        }
        if is_held && is_away {
            return Some(Wrong::PendingFree);
        }
        if is_held && used == Some(false) {
            return Some(Wrong::Free);
        }
        let counted = others.map(|others| if is_held { others + 1 } else { others });
        if counted.is_some_and(|counted| holders > counted || (is_whole && holders < counted)) {
            return Some(Wrong::Count(holders, counted.unwrap_or(0)));
        }
        let is_leaked = used == Some(true) && !is_held && !is_page && !is_away;
        (is_leaked && is_whole && is_exact).then_some(Wrong::Leaked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_make_way_for_groups_before_them() {
        let run = |first: u64, count| BlockRun::new(Block::new(first), count);
        let mut counts = Counts::new(Block::new(10), 0, 9, 2);
        counts.add(run(10 + 5 * GROUP_BLOCKS, 1));
        counts.add(run(10 + 3 * GROUP_BLOCKS - 1, 2)); // groups 2 and 3
        assert_eq!((counts.until, counts.groups.len()), (5, 2));
        counts.add(run(10 + 8 * GROUP_BLOCKS, 1));
        counts.add(run(10, 4));
        counts.add(run(11, 1));
        assert_eq!((counts.until, counts.groups.len()), (3, 2), "group 3 went");
        assert_eq!(counts.groups[&0][..5], [1, 2, 1, 1, 0]);
        assert_eq!(counts.groups[&2][GROUP_BLOCKS as usize - 1], 1);
        let mut next = Counts::new(Block::new(10), 3, 9, 2);
        next.add(run(10 + 3 * GROUP_BLOCKS - 1, 2));
        assert_eq!(next.groups[&3][0], 1, "and is counted the next time");
    }
}
