//! Attributes damage to volumes: which bytes of which volumes lie below a node that cannot be read, or in a block in doubt.

use super::super::PoolError;
use super::super::lifecycle::volume::Volume;
use super::checker::Checker;
use super::report::PoolDamage;
use std::collections::BTreeSet;
use std::rc::Rc;
use varve_block::{Extent, joined};
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{Entries, LEVEL_MAX};
use varve_format::pdata::{Block, BlockRun};
use varve_format::thin::{Mapping, PART_SIZE, VolumeFlags};

const LOST: &str = "the map of these bytes cannot be read";
const DOUBTFUL: &str = "what lies there may be overwritten by others";

impl Checker<'_> {
    /// Says whose bytes are lost or in doubt.
    pub(super) async fn attribute_damage(&mut self, volumes: &[Rc<Volume>]) -> Result<(), PoolError> {
        assert!(!self.broken.is_empty() || !self.doubtful.is_empty(), "something is wrong");
        let leads_there = self.affected().await?;
        for volume in volumes {
            let [lost, doubtful] = self.affected_extents(volume, &leads_there).await?;
            let name = volume.name.borrow().clone();
            for (extents, why) in [(joined(lost), LOST), (joined(doubtful), DOUBTFUL)] {
                let size = Extent::new(0, volume.bytes.get());
                let extents: Vec<Extent> =
                    extents.into_iter().filter_map(|extent| extent.intersect(size)).collect();
                if !extents.is_empty() && !volume.has(VolumeFlags::REMOVING) {
                    self.report.damage.push(PoolDamage {
                        volume: volume.id,
                        snapshot_of: volume.snapshot_of,
                        name: name.clone(),
                        extents,
                        why,
                    });
                }
            }
        }
        Ok(())
    }

    /// The nodes that are affected, and all that lead to them.
    async fn affected(&mut self) -> Result<BTreeSet<Block>, PoolError> {
        let mut affected = self.broken.clone();
        for level in 0..=LEVEL_MAX {
            let on_level = self.nodes.iter().filter(|(_, known)| known.level == level && !known.is_alone);
            let on_level: Vec<Link> = on_level.map(|(_, known)| known.link).collect();
            for link in on_level {
                let block = link.block();
                if affected.contains(&block) || (level == 0 && self.doubtful.is_empty()) {
                    continue;
                }
                let is_affected = match self.node(link).await?.1 {
                    Entries::Branch(children) => {
                        children.iter().any(|child| affected.contains(&child.1.block()))
                    }
                    Entries::Leaf(entries) => {
                        let runs = entries.iter().filter_map(|entry| Mapping::decode(entry.0, &entry.1).ok());
                        runs.into_iter().any(|run| !self.doubts_of(run).is_empty())
                    }
                };
                if is_affected {
                    affected.insert(block);
                }
            }
        }
        Ok(affected)
    }

    /// The bytes of a volume that are lost, and those in doubt.
    async fn affected_extents(
        &mut self,
        volume: &Volume,
        leads_there: &BTreeSet<Block>,
    ) -> Result<[Vec<Extent>; 2], PoolError> {
        let (mut lost, mut doubtful) = (Vec::new(), Vec::new());
        let mut ahead = vec![(volume.tree.get().root, 0, volume.parts())];
        while let Some((link, first, end)) = ahead.pop() {
            let block = link.block();
            if !leads_there.contains(&block) || first >= end {
                continue;
            }
            if self.broken.contains(&block) {
                lost.push(Extent::between(first * PART_SIZE, end * PART_SIZE));
                continue;
            }
            match self.node(link).await?.1 {
                Entries::Branch(children) => {
                    let part = |key: u128| u64::try_from(key).unwrap_or(u64::MAX);
                    for (at, (key, child)) in children.iter().enumerate() {
                        let next = children.get(at + 1).map_or(end, |next| part(next.0).min(end));
                        let from = if at == 0 { first } else { part(*key).max(first) };
                        ahead.push((*child, from, next));
                    }
                }
                Entries::Leaf(entries) => {
                    let runs = entries.iter().filter_map(|entry| Mapping::decode(entry.0, &entry.1).ok());
                    doubtful.extend(runs.flat_map(|run| self.doubts_of(run)));
                }
            }
        }
        Ok([lost, doubtful])
    }

    /// The bytes of a run that lie in blocks in doubt.
    fn doubts_of(&self, run: Mapping) -> Vec<Extent> {
        assert!(run.count > 0, "MAPPING1: {run:?}");
        let Some(lies) = run.blocks() else { return Vec::new() };
        let bytes = |doubtful: BlockRun| {
            let first = run.start + (doubtful.first - lies.first);
            Extent::new(first * PART_SIZE, doubtful.count * PART_SIZE)
        };
        self.doubtful.iter().filter_map(|doubtful| doubtful.intersect(lies)).map(bytes).collect()
    }
}
