//! A check under way: what is checked, and what is known so far.

use super::super::lifecycle::volume::Volume;
use super::super::maps::ref_counts::RefCounts;
use super::super::{Pool, PoolError, index};
use super::report::PoolReport;
use crate::pdata::{MapError, OF_ANOTHER_TIME, Pages, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use varve_block::{IoError, LocalFuture};
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{Entries, Node};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{PART_SIZE, Superblock};

/// Groups of which counts are kept at a time: 128 MiB of memory; and while the pool serves: 16 MiB.
pub(super) const GROUPS_MAX: usize = 1024;
pub(super) const GROUPS_MAX_SERVING: usize = 128;

/// Blocks whose owners are looked for.
const DOUBTFUL_MAX: usize = 10_000;

/// What is checked: the pool as it is in memory, or as a commit left it.
pub(super) struct View<'a> {
    pub(super) volumes: Vec<Rc<Volume>>,
    pub(super) ref_counts: &'a RefCounts,
    pub(super) table: Tree,
    /// The commit that is checked, as it is on the disk, nodes and space map; if none, both are those of this instant, in
    /// memory.
    pub(super) commit: Option<&'a Superblock>,
    /// So many groups of blocks are counted at once.
    pub(super) groups_max: usize,
    /// Called before each node and each group of blocks with the number of those that were looked at.
    pub(super) pace: Option<&'a dyn Fn(u64) -> LocalFuture<'a, Result<(), PoolError>>>,
}

impl View<'_> {
    pub(super) fn is_space_of_now(&self) -> bool {
        self.commit.is_none()
    }
}

/// A check under way.
pub(super) struct Checker<'a> {
    pub(super) pool: &'a Pool,
    pub(super) view: View<'a>,
    /// What is known of the nodes of all maps.
    pub(super) nodes: BTreeMap<Block, Known>,
    /// Nodes that cannot be read or believed.
    pub(super) broken: BTreeSet<Block>,
    /// Runs of blocks of data that more than one owner may overwrite, or that are free.
    pub(super) doubtful: Vec<BlockRun>,
    /// Whether no node was broken of the maps that are never cloned.
    pub(super) are_counts_readable: bool,
    looked_at: u64,
    pub(super) report: PoolReport,
}

/// What is known of a node and everything below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    /// What led to it.
    pub(super) link: Link,
    pub(super) level: u32,
    /// Parts that are mapped to data.
    pub(super) mapped: u64,
    /// The first part that is mapped, and the first behind all of them.
    pub(super) first: u64,
    pub(super) end: u64,
    /// Whether all of it can be read.
    pub(super) is_whole: bool,
    /// Whether it is of a map that is never cloned.
    pub(super) is_alone: bool,
}

impl Known {
    pub(super) fn nothing(link: Link, level: u32, is_alone: bool) -> Self {
        Self { link, level, mapped: 0, first: u64::MAX, end: 0, is_whole: true, is_alone }
    }
}

impl<'a> Checker<'a> {
    pub(super) fn new(pool: &'a Pool, view: View<'a>) -> Self {
        Self {
            pool,
            view,
            nodes: BTreeMap::new(),
            broken: BTreeSet::new(),
            doubtful: Vec::new(),
            are_counts_readable: true,
            looked_at: 0,
            report: PoolReport::default(),
        }
    }

    /// How many others hold a block; none if that cannot be read.
    pub(super) async fn others(&self, block: Block) -> Option<u64> {
        if !self.are_counts_readable {
            return None;
        }
        let ref_counts = self.view.ref_counts;
        self.pool.map.run(|pages| ref_counts.others(pages, block)).await.ok()
    }

    /// Generation and entries of a node that is known to be readable.
    pub(super) async fn node(&mut self, link: Link) -> Result<(u64, Entries), PoolError> {
        self.breathe().await?;
        let node = self.read_node(link).await.map_err(|_| PoolError::Io(IoError::Corrupt))?;
        Ok((node.generation, node.entries.clone()))
    }

    /// A node; else why it cannot be read. Of a commit that was written it is what is on the disk, whatever is in memory.
    pub(super) async fn read_node(&self, link: Link) -> Result<Rc<Node>, String> {
        if self.view.is_space_of_now() {
            return match self.pool.map.run(|pages: &mut Pages| pages.node(link)).await {
                Ok(node) => Ok(node),
                Err(MapError::Damaged { error, .. }) => Err(error.to_string()),
                Err(other) => Err(PoolError::from(other).to_string()),
            };
        }
        let (block, buffer) = (link.block(), self.pool.arena.take(index(PART_SIZE)));
        let bytes = self.pool.device().read(block.offset(), buffer).await;
        let node = Node::decode(&bytes.map_err(|error| error.to_string())?, block);
        let node = node.map_err(|error| error.to_string())?;
        match node.store == self.pool.store_id() {
            true if link.leads_to(&node) => Ok(Rc::new(node)),
            true => Err(OF_ANOTHER_TIME.to_owned()),
            false => Err("is of another pool".to_owned()),
        }
    }

    pub(super) async fn breathe(&mut self) -> Result<(), PoolError> {
        self.looked_at += 1;
        match self.view.pace {
            Some(pace) => pace(self.looked_at).await,
            None => Ok(()),
        }
    }

    /// The owners of these blocks are looked for in the end.
    pub(super) fn doubt(&mut self, run: BlockRun) {
        assert!(run.count > 0, "a run has blocks");
        if self.doubtful.len() < DOUBTFUL_MAX {
            self.doubtful.push(run);
        }
    }
}
