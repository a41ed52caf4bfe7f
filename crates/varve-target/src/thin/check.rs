//! Walks everything that a pool holds and compares: who holds what, which blocks are in use, what volumes say.
//!
//! It reads what is in memory or on the disk as of this moment, while nothing changes; findings name block and volume.

use super::volume::Volume;
use super::{Pool, PoolError, runs};
use crate::pdata::{MapError, Pages, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use varve_format::pdata::node::Entries;
use varve_format::thin::VolumeFlags;

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
    /// What is wrong; none if the pool is sound.
    pub errors: Vec<String>,
}

/// What leads to blocks.
#[derive(Default)]
struct Walk {
    /// How many leaves, branches and roots lead to a block.
    holders: BTreeMap<u64, u64>,
    nodes: BTreeSet<u64>,
    report: PoolReport,
}

impl Pool {
    /// Checks the pool as it is in memory. Nothing may change meanwhile.
    pub async fn check(&self) -> Result<PoolReport, PoolError> {
        let mut walk = Walk::default();
        let volumes: Vec<Rc<Volume>> = self.volumes.borrow().values().cloned().collect();
        for volume in &volumes {
            walk.report.volumes += 1;
            self.walk_tree(&mut walk, volume.tree.get()).await?;
        }
        for volume in &volumes {
            self.check_volume(&mut walk, volume).await?;
        }
        self.check_shares(&mut walk).await?;
        self.walk_tree_alone(&mut walk, self.shares.root()).await?;
        self.walk_tree_alone(&mut walk, self.table.get()).await?;
        self.check_space(&mut walk).await?;
        Ok(walk.report)
    }

    pub(super) async fn entries_of(&self, block: u64) -> Result<Entries, MapError> {
        self.map.run(|pages: &mut Pages| Ok(pages.node(block)?.entries.clone())).await
    }

    /// Counts one holder for the root, and for everything below nodes that were not seen before.
    async fn walk_tree(&self, walk: &mut Walk, tree: Tree) -> Result<(), MapError> {
        let mut ahead: Vec<u64> = (tree.root != 0).then_some(tree.root).into_iter().collect();
        while let Some(block) = ahead.pop() {
            *walk.holders.entry(block).or_default() += 1;
            if !walk.nodes.insert(block) {
                continue;
            }
            walk.report.nodes += 1;
            match self.entries_of(block).await? {
                Entries::Branch(children) => ahead.extend(children.iter().map(|child| child.1)),
                Entries::Leaf(entries) => {
                    for run in entries.iter().map(runs::decode).filter(|run| run.place != 0) {
                        walk.report.runs += 1;
                        for block in run.place..run.place + run.count {
                            *walk.holders.entry(block).or_default() += 1;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// As [`Pool::walk_tree`], of a map that is not about blocks.
    async fn walk_tree_alone(&self, walk: &mut Walk, tree: Tree) -> Result<(), MapError> {
        let mut ahead: Vec<u64> = (tree.root != 0).then_some(tree.root).into_iter().collect();
        while let Some(block) = ahead.pop() {
            if walk.holders.insert(block, 1).is_some() {
                walk.report.errors.push(format!("block {block} is a node of a map and something else"));
            }
            walk.nodes.insert(block);
            walk.report.nodes += 1;
            if let Entries::Branch(children) = self.entries_of(block).await? {
                ahead.extend(children.iter().map(|child| child.1));
            }
        }
        Ok(())
    }

    /// Order of runs, and the number of mapped parts.
    async fn check_volume(&self, walk: &mut Walk, volume: &Volume) -> Result<(), MapError> {
        let (mut from, mut last, mut mapped) = (Some(0), 0, 0);
        while let Some(key) = from {
            let span = self.map.run(|pages| volume.tree.get().span(pages, key)).await?;
            for run in span.entries().iter().map(runs::decode) {
                let end = super::mapping::leaf_end(span.end);
                if run.start < last || run.end() > end || run.key() < span.first {
                    walk.report.errors.push(format!("volume {}: R1 at part {}", volume.id, run.start));
                }
                last = run.end();
                mapped += if run.place == 0 { 0 } else { run.count };
            }
            from = span.end;
        }
        let (removing, over) = (volume.has(VolumeFlags::REMOVING), volume.over.get());
        let is_over = over.is_none_or(|over| over.bytes <= volume.bytes.get());
        if !is_over || over.is_some() != volume.has(VolumeFlags::ORIGIN) {
            walk.report.errors.push(format!("volume {}: it does not lie over {over:?}", volume.id));
        }
        if !removing && (mapped != volume.mapped.get() || last > volume.parts()) {
            let said = volume.mapped.get();
            walk.report.errors.push(format!("volume {}: {mapped} parts are mapped, not {said}", volume.id));
        }
        Ok(())
    }

    /// T9: what is counted is what is there.
    async fn check_shares(&self, walk: &mut Walk) -> Result<(), MapError> {
        for (block, holders) in &walk.holders {
            let others = self.map.run(|pages| self.shares.others(pages, *block)).await?;
            if others + 1 != *holders {
                let error = format!("T9: {holders} hold block {block}, counted are {}", others + 1);
                walk.report.errors.push(error);
            }
        }
        Ok(())
    }

    /// Every block is in use that something leads to, and no other, but for those that are on their way.
    async fn check_space(&self, walk: &mut Walk) -> Result<(), MapError> {
        let away: BTreeSet<u64> = {
            let runs = self.map.pages().unreachable_runs();
            runs.into_iter().flat_map(|(first, count)| first..first + count).collect()
        };
        let base = 2 * self.layout.slot_blocks + self.layout.log_blocks;
        for block in base..self.end_block.get() {
            let page = (block - base) % varve_format::pdata::space_page::GROUP_BLOCKS < 2;
            let held = walk.holders.contains_key(&block);
            let used = self.map.run(|pages| pages.is_used(block)).await?;
            if held && (away.contains(&block) || page) {
                walk.report.errors.push(format!("block {block} is held and given up"));
            }
            if used != (held || page || away.contains(&block)) {
                walk.report.errors.push(format!("block {block}: held {held}, in use {used}"));
            }
        }
        walk.report.data_blocks = (walk.holders.len() - walk.nodes.len()) as u64;
        Ok(())
    }
}
