//! Walks everything that a pool holds and compares: who holds what, which blocks are in use, what volumes say.
//!
//! What cannot be read or believed is no end of the walk: it is told in the words of those who lose by it, volumes and
//! their bytes. Memory: some 50 bytes for each node (a hundredth of what the nodes themselves take), and counts for so many
//! blocks at once, up to 128 MiB and in a serving pool up to 16 MiB, beside the budget of the maps; a pool that needs more
//! is passed over more often.
//!
//! Invariants, besides T9 of the module and those of runs:
//! - W1. A node is no younger than the one above it, and what it maps is no younger than it.
//! - W2. What is younger than the last clone of a volume is held by that volume alone: nobody looks at its count.
//! - W3. A block is a node of one map, or data, or a page of the space map, and never two of these.

mod blame;
mod counts;
mod online;
mod space;
mod walk;

pub use online::CheckPace;

use super::shares::Shares;
use super::volume::Volume;
use super::{Pool, PoolError};
use crate::pdata::{MapError, OF_ANOTHER_TIME, Pages, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use varve_block::{Extent, IoError, LocalFuture};
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{Entries, Node};
use varve_format::thin::{Mapping, PART_SIZE, Superblock, VolumeFlags};
use walk::Known;

/// So many errors are told; the rest is counted.
const ERRORS_MAX: usize = 200;
/// Blocks whose owners are looked for.
const DOUBTFUL_MAX: usize = 10_000;

/// Bytes of a volume that are lost or in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDamage {
    /// The volume's id.
    pub volume: u64,
    /// Its name.
    pub name: String,
    /// Which bytes, in order.
    pub extents: Vec<Extent>,
    /// What became of them.
    pub why: &'static str,
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolReport {
    /// Volumes, those included that are being removed.
    pub volumes: u64,
    /// Nodes of all maps.
    pub nodes: u64,
    /// Runs of mapped parts in leaves, each counted once however many volumes hold its leaf.
    pub runs: u64,
    /// Blocks of data that something leads to.
    pub data_blocks: u64,
    /// Records of the log since the last checkpoint, if they were looked at.
    pub records: u64,
    /// What the volumes are called, by their ids.
    pub names: BTreeMap<u64, String>,
    /// What is wrong; none if the pool is sound.
    pub errors: Vec<String>,
    /// Whom it concerns.
    pub damage: Vec<PoolDamage>,
}

impl PoolReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.errors.is_empty() && self.damage.is_empty()
    }

    pub(super) fn error(&mut self, error: String) {
        match self.errors.len() {
            ERRORS_MAX => self.errors.push("and more".to_owned()),
            length if length > ERRORS_MAX => {}
            _ => self.errors.push(error),
        }
    }
}

/// What is checked: the pool as it is in memory, or as a commit left it.
pub(super) struct View<'a> {
    pub(super) volumes: Vec<Rc<Volume>>,
    pub(super) shares: &'a Shares,
    pub(super) table: Tree,
    /// The commit that is checked, as it lies on the disk, nodes and space map; if none, both are those of this instant, in
    /// memory.
    pub(super) commit: Option<&'a Superblock>,
    /// So many groups of blocks are counted at once.
    pub(super) groups_max: usize,
    /// Called before each node and each group of blocks with the number of those that were looked at.
    pub(super) pace: Option<&'a dyn Fn(u64) -> LocalFuture<'a, Result<(), PoolError>>>,
}

impl View<'_> {
    fn is_space_of_now(&self) -> bool {
        self.commit.is_none()
    }
}

/// A check under way.
pub(super) struct Checker<'a> {
    pool: &'a Pool,
    view: View<'a>,
    /// What is known of the nodes of all maps.
    nodes: BTreeMap<u64, Known>,
    /// Nodes that cannot be read or believed.
    broken: BTreeSet<u64>,
    /// Runs of blocks of data that more than one owner may overwrite, or that are free.
    doubtful: Vec<(u64, u64)>,
    /// Whether no node was broken of the maps that are never cloned.
    are_counts_readable: bool,
    looked_at: u64,
    report: PoolReport,
}

impl Pool {
    /// Checks the pool as it is in memory. Nothing may change meanwhile.
    pub async fn check(&self) -> Result<PoolReport, PoolError> {
        self.check_names();
        let volumes = self.volumes.borrow().values().cloned().collect();
        let table = self.table.get();
        let (shares, groups_max) = (&self.shares, counts::GROUPS_MAX);
        let view = View { volumes, shares, table, commit: None, groups_max, pace: None };
        Checker::new(self, view).run().await
    }

    pub(super) async fn entries_of(&self, link: Link) -> Result<Entries, MapError> {
        self.map.run(|pages: &mut Pages| Ok(pages.node(link)?.entries.clone())).await
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

    pub(super) async fn run(mut self) -> Result<PoolReport, PoolError> {
        let volumes = self.view.volumes.clone();
        for volume in &volumes {
            self.report.volumes += 1;
            self.report.names.insert(volume.id, volume.name.borrow().clone());
            let root = volume.tree.get().root;
            if !root.is_none() {
                let known = self.walk(root, false).await?;
                self.compare_volume(volume, known);
            } else if volume.mapped.get() != 0 && !volume.has(VolumeFlags::REMOVING) {
                self.report.error(format!("{}: something is mapped and there is no map", told(volume)));
            }
        }
        for root in
            [self.view.shares.root().root, self.view.table.root].into_iter().filter(|root| !root.is_none())
        {
            self.walk(root, true).await?;
        }
        self.compare_totals();
        self.count().await?;
        if self.view.shares.root() != Tree::EMPTY || self.view.shares.differences() > 0 {
            for volume in &volumes {
                self.check_alone(volume).await?;
            }
        }
        if !self.broken.is_empty() || !self.doubtful.is_empty() {
            self.blame(&volumes).await?;
        }
        self.report.nodes = (self.nodes.len() - self.broken.len()) as u64;
        Ok(self.report)
    }

    /// The number of mapped parts, and that none lies behind the volume's end.
    fn compare_volume(&mut self, volume: &Volume, known: Known) {
        assert!(known.first <= known.end || known.mapped == 0, "R1: runs are in order");
        let (removing, over) = (volume.has(VolumeFlags::REMOVING), volume.over.get());
        let fits = over.is_none_or(|over| over.bytes <= volume.bytes.get());
        if !fits || over.is_some() != volume.has(VolumeFlags::ORIGIN) {
            self.report.error(format!("{}: it does not lie over {over:?}", told(volume)));
        }
        if removing || !known.is_whole {
            return;
        }
        if known.mapped != volume.mapped.get() || known.end > volume.parts() {
            let (mapped, said) = (known.mapped, volume.mapped.get());
            let error = format!("{}: {mapped} parts are mapped, not {said}, or beyond its end", told(volume));
            self.report.error(error);
        }
    }

    /// What is said of the whole pool.
    fn compare_totals(&mut self) {
        let (said, found) = (self.pool.map.pages().nodes(), self.nodes.len() as u64);
        if self.view.is_space_of_now() && self.broken.is_empty() && said != found {
            self.report.error(format!("there are {found} nodes, not {said}"));
        }
        let mut names = BTreeSet::new();
        for volume in &self.view.volumes {
            let name = volume.name.borrow().clone();
            if volume.id >= self.pool.next_volume.get() {
                self.report.error(format!("volume {}: no volume has this number yet", volume.id));
            }
            if !volume.has(VolumeFlags::REMOVING) && !names.insert(name.clone()) {
                self.report.error(format!("two volumes are called {name}"));
            }
        }
    }

    /// W2, and the same of nodes: what a volume changes in place without a look at counts is its own.
    async fn check_alone(&mut self, volume: &Volume) -> Result<(), PoolError> {
        let since = volume.since.get();
        let mut ahead = vec![volume.tree.get().root];
        while let Some(link) = ahead.pop() {
            let block = link.block();
            if link.is_none() || self.broken.contains(&block) {
                continue;
            }
            let (generation, entries) = self.node(link).await?;
            if generation <= since {
                continue;
            }
            if self.others(block).await.is_some_and(|others| others > 0) {
                let error = format!("W2: {}: node {block} is held by others too", told(volume));
                self.report.error(error);
                continue;
            }
            match entries {
                Entries::Branch(children) => ahead.extend(children.iter().map(|child| child.1)),
                Entries::Leaf(entries) => {
                    let runs = entries.iter().filter_map(|(key, value)| Mapping::decode(*key, value).ok());
                    for run in runs.filter(|run| run.place != 0 && run.birth > since) {
                        self.check_run_alone(volume, run).await;
                    }
                }
            }
        }
        Ok(())
    }

    async fn check_run_alone(&mut self, volume: &Volume, run: Mapping) {
        let shares = self.view.shares;
        if !self.are_counts_readable {
            return;
        }
        let pieces = self.pool.map.run(|pages| shares.pieces(pages, run.place, run.count)).await;
        for piece in pieces.unwrap_or_default().iter().filter(|piece| piece.others > 0) {
            let (first, last) = (piece.first, piece.end() - 1);
            let error = format!("W2: {}: blocks {first} to {last} are held by others too", told(volume));
            self.report.error(error);
            self.doubt(piece.first, piece.blocks);
        }
    }

    /// How many others hold a block; none if that cannot be read.
    async fn others(&self, block: u64) -> Option<u64> {
        if !self.are_counts_readable {
            return None;
        }
        let shares = self.view.shares;
        self.pool.map.run(|pages| shares.others(pages, block)).await.ok()
    }

    /// Generation and entries of a node that is known to be readable.
    async fn node(&mut self, link: Link) -> Result<(u64, Entries), PoolError> {
        self.breathe().await?;
        let node = self.read_node(link).await.map_err(|_| PoolError::Io(IoError::Corrupt))?;
        Ok((node.generation, node.entries.clone()))
    }

    /// A node; else why it cannot be read. Of a commit that was written it is what lies on the disk, whatever is in memory.
    async fn read_node(&self, link: Link) -> Result<Rc<Node>, String> {
        if self.view.is_space_of_now() {
            return match self.pool.map.run(|pages: &mut Pages| pages.node(link)).await {
                Ok(node) => Ok(node),
                Err(MapError::Damaged { error, .. }) => Err(error.to_string()),
                Err(other) => Err(PoolError::from(other).to_string()),
            };
        }
        let (block, buffer) = (link.block(), self.pool.arena.take(super::index(PART_SIZE)));
        let bytes = self.pool.device().read(block * PART_SIZE, buffer).await;
        let node = Node::decode(&bytes.map_err(|error| error.to_string())?, block);
        let node = node.map_err(|error| error.to_string())?;
        match node.store == self.pool.store_id() {
            true if link.leads_to(&node) => Ok(Rc::new(node)),
            true => Err(OF_ANOTHER_TIME.to_owned()),
            false => Err("is of another pool".to_owned()),
        }
    }

    async fn breathe(&mut self) -> Result<(), PoolError> {
        self.looked_at += 1;
        match self.view.pace {
            Some(pace) => pace(self.looked_at).await,
            None => Ok(()),
        }
    }

    /// The owners of these blocks are looked for in the end.
    fn doubt(&mut self, first: u64, blocks: u64) {
        assert!(blocks > 0, "a run has blocks");
        if self.doubtful.len() < DOUBTFUL_MAX {
            self.doubtful.push((first, blocks));
        }
    }
}

impl Pool {
    /// Block where the groups of the space map begin.
    pub(super) fn base_block(&self) -> u64 {
        2 * self.layout.slot_blocks + self.layout.log_blocks
    }

    /// Blocks that may hold data or nodes.
    pub(super) fn is_inside(&self, first: u64, blocks: u64) -> bool {
        self.bounds().contain(first, blocks)
    }

    /// Whether the data of all these runs lies behind the log and in the pool.
    pub(super) fn are_inside(&self, runs: &[Mapping]) -> bool {
        runs.iter().all(|run| run.place == 0 || self.is_inside(run.place, run.count))
    }

    /// Whether data can lie in these blocks: no page of the space map does.
    pub(super) fn may_hold_data(&self, first: u64, blocks: u64) -> bool {
        self.bounds().may_hold_data(first, blocks)
    }
}

/// A volume in words.
fn told(volume: &Volume) -> String {
    let name = volume.name.borrow();
    if name.is_empty() { format!("volume {}", volume.id) } else { format!("volume {} ({name})", volume.id) }
}
