//! Calls that concern the snapshots of a volume.

use super::volumes::VolumeCalls;
use crate::content::barrier::Barrier;
use crate::content::instant::{self, NewSnapshots};
use crate::content::snapshot_facts::{Leaving, SnapshotFacts, Target};
use crate::context::ShardContext;
use crate::copies::progress::Progress;
use crate::extents::Extents;
use crate::handle::Answer;
use crate::volume_stack::VolumeStack;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::Failure;
use varve_block::Extent;
use varve_target::snapshot::StoreError;

/// Where two states differ, and whether that is all.
pub type Difference = (Vec<Extent>, bool);

impl VolumeCalls<'_> {
    /// All snapshots, the oldest first; how much they use is not counted. None if the volume is not active.
    pub fn snapshots(&self) -> Answer<Option<Vec<SnapshotFacts>>> {
        self.ask(VolumeStack::snapshots)
    }

    /// The snapshots with these names.
    pub fn snapshots_called(&self, names: Vec<String>) -> Answer<Option<Vec<SnapshotFacts>>> {
        self.ask(move |stack| stack.snapshots_called(&names))
    }

    /// All snapshots with what each uses.
    pub fn snapshots_counted(&self) -> Answer<Option<Vec<SnapshotFacts>>> {
        self.work(async move |stack: Rc<VolumeStack>| stack.snapshots_counted().await)
    }

    /// Whether there is a snapshot of this name.
    pub fn has_snapshot(&self, name: String) -> Answer<Option<bool>> {
        self.ask(move |stack| stack.has_snapshot(&name))
    }

    /// Changes whether snapshots can be written, and whether they are kept from removal.
    pub fn set_flags(
        &self,
        names: Vec<String>,
        read_only: Option<bool>,
        held: Option<bool>,
    ) -> Answer<Option<Result<(), StoreError>>> {
        self.work(async move |stack: Rc<VolumeStack>| {
            for name in names {
                stack.set_flags(&name, read_only, held).await?;
            }
            Ok(())
        })
    }

    /// Gives a snapshot another name.
    pub fn rename_snapshot(&self, name: String, to: String) -> Answer<Option<Result<(), StoreError>>> {
        self.work(async move |stack: Rc<VolumeStack>| stack.rename_snapshot(&name, &to).await)
    }

    /// Where a snapshot and another one, or the volume, differ.
    pub fn diff(&self, from: String, to: Option<String>) -> Answer<Option<Result<Difference, StoreError>>> {
        self.work(async move |stack: Rc<VolumeStack>| stack.diff(&from, to.as_deref()).await)
    }

    /// Where the beginning of `wanted` of the volume, or of a snapshot, is.
    pub fn extents(
        &self,
        snapshot: Option<String>,
        wanted: Extent,
    ) -> Answer<Option<Result<Extents, Failure>>> {
        self.work(async move |stack: Rc<VolumeStack>| stack.extents(snapshot.as_deref(), wanted).await)
    }

    /// Makes snapshots when all volumes of `barrier` are frozen, or none; an error comes with the size of the store.
    pub fn make_snapshots(
        &self,
        new: NewSnapshots,
        barrier: Barrier,
    ) -> Answer<Result<(), (StoreError, u64)>> {
        let id = self.id;
        self.shard.run(async move |here: ShardContext| match here.stack(id) {
            Some(thin) if thin.is_thin() => {
                let made = thin.make_thin_snapshots(&new.names, new.of.as_deref(), new.read_only, barrier);
                made.await.map_err(|error| (error, 0))
            }
            Some(stack) => instant::make_of_one(&here.clock(), id, &stack, &new, barrier).await,
            None => Err((StoreError::NotFound, 0)),
        })
    }

    /// Removes what was made of snapshots that cannot be made as a whole.
    pub fn take_back_snapshots(&self, names: Vec<String>) -> Answer<Option<()>> {
        self.work(async move |stack: Rc<VolumeStack>| {
            let made = stack.snapshots().into_iter().filter(|facts| names.contains(&facts.name));
            for facts in made {
                let _ = stack.remove_snapshot(facts.target).await;
            }
        })
    }

    /// Removes the snapshots of these names that a store has made after the number `after`; their names.
    pub fn remove_newer(
        &self,
        store: Uuid,
        after: u64,
        names: Vec<String>,
    ) -> Answer<Option<Result<Vec<String>, StoreError>>> {
        self.work(async move |stack: Rc<VolumeStack>| {
            let mut gone = Vec::new();
            for facts in stack.snapshots() {
                let is_meant = facts.target.store == store && facts.target.number > after;
                if !is_meant || !names.contains(&facts.name) {
                    continue;
                }
                match stack.remove_snapshot(facts.target).await {
                    Ok(()) | Err(StoreError::NotFound) => gone.push(facts.name),
                    Err(error) => return Err(error),
                }
            }
            Ok(gone)
        })
    }

    /// Begins to remove a snapshot.
    pub fn remove_snapshot(&self, target: Target) -> Answer<Option<Result<(), StoreError>>> {
        self.work(async move |stack: Rc<VolumeStack>| stack.remove_snapshot(target).await)
    }

    /// Bytes that are free when these are removed.
    pub fn removals_free(&self, targets: Vec<Target>) -> Answer<Option<Result<u64, StoreError>>> {
        self.work(async move |stack: Rc<VolumeStack>| stack.removals_free(&targets).await)
    }

    /// Follows what removed snapshots leave behind until all is sorted out; `before` bytes were so already.
    pub fn follow_removals(
        &self,
        targets: Vec<(Target, u64)>,
        before: u64,
        progress: Arc<Progress>,
    ) -> Answer<Option<Result<(), StoreError>>> {
        self.work(async move |stack: Rc<VolumeStack>| {
            // In a store that is given back nothing has to be sorted out.
            let empty = stack.empty_stores();
            let kept: Vec<_> =
                targets.iter().filter(|(target, _)| !empty.contains(&target.store)).copied().collect();
            let sorted = targets.iter().map(|(_, size)| size).sum::<u64>()
                - kept.iter().map(|(_, size)| size).sum::<u64>();
            stack.follow_removals(&kept, before + sorted, &progress).await
        })
    }

    /// Snapshots that are being removed, and whether a store holds none at all.
    pub fn leaving(&self) -> Answer<Option<(Vec<Leaving>, bool)>> {
        self.ask(|stack| (stack.leaving(), !stack.empty_stores().is_empty()))
    }
}
