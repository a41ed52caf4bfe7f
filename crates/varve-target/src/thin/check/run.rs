//! The check as a whole: all maps are walked, what the volumes and the pool say is compared, and every block counted.

use super::super::lifecycle::volume::Volume;
use super::super::{Pool, PoolError};
use super::checker::{Checker, GROUPS_MAX, Known, View};
use super::report::PoolReport;
use crate::pdata::{MapError, Pages, Tree};
use std::collections::BTreeSet;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::Entries;
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{Mapping, VolumeFlags};

impl Pool {
    /// Checks the pool as it is in memory. Nothing may change meanwhile.
    pub async fn check(&self) -> Result<PoolReport, PoolError> {
        self.volumes.assert_names();
        let volumes = self.volumes.all().values().cloned().collect();
        let table = self.table.get();
        let (ref_counts, groups_max) = (&self.ref_counts, GROUPS_MAX);
        let view = View { volumes, ref_counts, table, commit: None, groups_max, pace: None };
        Checker::new(self, view).run().await
    }

    pub(in super::super) async fn entries_of(&self, link: Link) -> Result<Entries, MapError> {
        self.map.run(|pages: &mut Pages| Ok(pages.node(link)?.entries.clone())).await
    }
}

impl Checker<'_> {
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
        for root in [self.view.ref_counts.root().root, self.view.table.root]
            .into_iter()
            .filter(|root| !root.is_none())
        {
            self.walk(root, true).await?;
        }
        self.compare_totals();
        self.count().await?;
        if self.view.ref_counts.root() != Tree::EMPTY || self.view.ref_counts.differences() > 0 {
            for volume in &volumes {
                self.check_alone(volume).await?;
            }
        }
        if !self.broken.is_empty() || !self.doubtful.is_empty() {
            self.attribute_damage(&volumes).await?;
        }
        self.report.nodes = (self.nodes.len() - self.broken.len()) as u64;
        Ok(self.report)
    }

    /// The number of mapped parts, and that none is behind the volume's end.
    fn compare_volume(&mut self, volume: &Volume, known: Known) {
        assert!(known.first <= known.end || known.mapped == 0, "RUNS1: runs are in order");
        let (removing, over) = (volume.has(VolumeFlags::REMOVING), volume.over.get());
        let fits = over.is_none_or(|over| over.bytes <= volume.bytes.get());
        if !fits || over.is_some() != volume.has(VolumeFlags::ORIGIN) {
            self.report
                .error(format!("{}: its origin {over:?} does not fit its flags or its size", told(volume)));
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
            let name = (volume.snapshot_of, volume.name.borrow().clone());
            if volume.id >= self.pool.volumes.next_id() {
                self.report.error(format!("volume {}: no volume has this number yet", volume.id));
            }
            if !volume.has(VolumeFlags::REMOVING) && !names.insert(name) {
                self.report.error(format!("{}: another has its name", told(volume)));
            }
        }
    }

    /// POOLCHECK2, and the same of nodes: what a volume changes in place without a look at counts is its own.
    async fn check_alone(&mut self, volume: &Volume) -> Result<(), PoolError> {
        let last_clone = volume.last_clone.get();
        let mut ahead = vec![volume.tree.get().root];
        while let Some(link) = ahead.pop() {
            let block = link.block();
            if link.is_none() || self.broken.contains(&block) {
                continue;
            }
            let (generation, entries) = self.node(link).await?;
            if generation <= last_clone {
                continue;
            }
            if self.others(block).await.is_some_and(|others| others > 0) {
                let error = format!("POOLCHECK2: {}: node {block} is held by others too", told(volume));
                self.report.error(error);
                continue;
            }
            match entries {
                Entries::Branch(children) => ahead.extend(children.iter().map(|child| child.1)),
                Entries::Leaf(entries) => {
                    let runs = entries.iter().filter_map(|(key, value)| Mapping::decode(*key, value).ok());
                    for run in runs.filter(|run| run.birth > last_clone).filter_map(|run| run.blocks()) {
                        self.check_run_alone(volume, run).await;
                    }
                }
            }
        }
        Ok(())
    }

    async fn check_run_alone(&mut self, volume: &Volume, run: BlockRun) {
        assert!(run.count > 0, "MAPPING1: {run:?}");
        let ref_counts = self.view.ref_counts;
        if !self.are_counts_readable {
            return;
        }
        let pieces = self.pool.map.run(|pages| ref_counts.pieces(pages, run)).await;
        for piece in pieces.unwrap_or_default().iter().filter(|piece| piece.others > 0) {
            let (first, last) = (piece.run.first, piece.run.end() - 1);
            let error =
                format!("POOLCHECK2: {}: blocks {first} to {last} are held by others too", told(volume));
            self.report.error(error);
            self.doubt(piece.run);
        }
    }
}

impl Pool {
    /// Block where the groups of the space map begin.
    pub(in super::super) fn base_block(&self) -> Block {
        Block::new(2 * self.layout.slot_blocks + self.layout.log_blocks)
    }

    /// Blocks that may hold data or nodes.
    pub(in super::super) fn is_inside(&self, run: BlockRun) -> bool {
        self.bounds().contain(run)
    }

    /// Whether the data of all these runs is behind the log and in the pool.
    pub(in super::super) fn are_inside(&self, runs: &[Mapping]) -> bool {
        runs.iter().filter_map(Mapping::blocks).all(|run| self.is_inside(run))
    }

    /// Whether data can lie in these blocks: no page of the space map does.
    pub(in super::super) fn may_hold_data(&self, run: BlockRun) -> bool {
        self.bounds().may_hold_data(run)
    }
}

/// A volume in words.
fn told(volume: &Volume) -> String {
    let (id, name) = (volume.id, volume.name.borrow());
    match volume.snapshot_of {
        _ if name.is_empty() => format!("volume {id}"),
        None => format!("volume {id} ({name})"),
        Some(of) => format!("volume {id} ({name}, a snapshot of volume {of})"),
    }
}
