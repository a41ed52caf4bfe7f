//! The removal of what volumes held, in batches: what others hold still is released as a whole, the rest leaf by leaf.
//!
//! A batch is a change of the volume's map like any other; so a removal goes on after a crash where the last commit left
//! it, and costs in proportion to what the volume held alone.

use super::super::maps::runs::Runs;
use super::super::maps::runs::leaf_end;
use super::super::{InjectedBug, Pool, PoolError};
use super::volume::Volume;
use crate::pdata::{FREED_RUNS_MAX, Gone, Pages, Stop, Tree};
use varve_format::pdata::node::Key;
use varve_format::thin::{Change, VolumeFlags};

/// How far removals are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Volumes that are still being removed.
    pub volumes: usize,
    /// Leaves, or larger parts that others hold too, that this batch took out.
    pub steps: u64,
    /// Runs that this batch took out of leaves that no other volume holds.
    pub runs: u64,
}

impl Pool {
    /// Removes a little: at most `steps` leaves, or larger parts that others hold too. To be called again until no volume
    /// is left to remove.
    pub async fn remove_some(&self, steps: u64) -> Result<Removal, PoolError> {
        let mut removal = Removal::default();
        for _ in 0..steps {
            self.is_sound()?;
            self.keep_metadata_room().await?;
            if self.map.pages().freed_runs() > FREED_RUNS_MAX {
                self.join_commit(true).await?;
            }
            let Some(volume) = self.volumes.next_to_remove() else { break };
            let _guard = self.readers.enter();
            let runs = self.map.run(|pages| self.try_remove(pages, &volume)).await?;
            removal.steps += 1;
            removal.runs += runs;
        }
        removal.volumes = self.volumes.count_removing();
        assert!(removal.steps <= steps, "THIN9: a batch is no larger than was asked");
        Ok(removal)
    }

    /// Takes one leaf or shared part out, or forgets a volume that holds nothing any more. The number of runs released.
    fn try_remove(&self, pages: &mut Pages, volume: &Volume) -> Result<u64, Stop> {
        if !volume.has(VolumeFlags::REMOVING) || !self.volumes.all().contains_key(&volume.id) {
            return Ok(0); // Another task has completed it.
        }
        let (mut tree, held) = (volume.tree.get(), volume.held(&self.ref_counts, self.bounds()));
        if tree == Tree::EMPTY {
            let forget = Change::Forget { volume: volume.id };
            self.apply(pages, &forget).expect("a volume that is being removed is there and empty");
            self.log(forget);
            return Ok(0);
        }
        let mut own = Vec::new();
        if !tree.is_shared(pages, &held, 0)? {
            own = Runs::of(&tree.span(pages, 0)?, self.bounds()).all()?;
            for run in &own {
                held.require(pages, run)?;
            }
        }
        let dropped = tree.drop_highest(pages, &held, 0)?;
        let (gone, end): (Gone, Option<Key>) = dropped.expect("the tree has a root");
        assert!(end.is_some() || tree == Tree::EMPTY, "what is left lies behind what is gone");
        let is_own = matches!(gone, Gone::Own(_));
        assert!(is_own || own.is_empty(), "what others hold stays");
        volume.set_tree(tree);
        volume.removed.set(leaf_end(end));
        let mut released = 0;
        if is_own {
            let at_once = self.has_bug(InjectedBug::ReuseAtOnce);
            own.iter().for_each(|run| held.release(pages, run, at_once));
            released = own.len() as u64;
        }
        self.log(Change::Unmap { volume: volume.id, start: 0, end: leaf_end(end) });
        Ok(released)
    }
}
