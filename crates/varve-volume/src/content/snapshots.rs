//! The snapshots of a volume on its shard: found by name in whichever store has them, used, compared, removed.

use super::barrier::Barrier;
use super::retry_on_no_space::retry_on_no_space;
use super::snapshot_facts::{Leaving, RollbackPoint, SnapshotFacts, Target};
use super::thin::Thin;
use crate::copies::progress::Progress;
use crate::doors::views::Key;
use crate::failures;
use crate::opened::open_store::OpenStore;
use crate::volume_stack::VolumeStack;
use futures_util::future::{Either, select};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use varve_api::Failure;
use varve_block::{Device, Extent, Switch, joined};
use varve_target::snapshot::{NewSnapshot, StoreError};
use varve_target::thin::PoolError;

/// How often a store grows for a rollback that does not get on.
const GROWTHS_MAX: u32 = 4;
/// How often it is asked whether merges that are waited for wait for space.
const WAIT_CHECK: Duration = Duration::from_millis(50);
/// How often the progress of removals is reported.
const TICK: Duration = Duration::from_millis(2);

impl VolumeStack {
    /// Makes snapshots of a thin volume, as [`Thin::make_snapshots`].
    pub async fn make_thin_snapshots(
        &self,
        names: &[String],
        of: Option<&str>,
        read_only: bool,
        barrier: Barrier,
    ) -> Result<(), StoreError> {
        let thin = self.thin.as_ref().ok_or(StoreError::NotFound)?;
        thin.make_snapshots(names, of, read_only, barrier).await
    }

    /// The store and number of the snapshot called `name`.
    pub fn find(&self, name: &str) -> Result<(Rc<OpenStore>, u64), StoreError> {
        let stores = self.stores.borrow();
        let found = stores.iter().find_map(|open| {
            let list = open.store.list();
            let descriptor = list.into_iter().find(|descriptor| descriptor.name == name)?;
            Some((Rc::clone(open), descriptor.id))
        });
        found.ok_or(StoreError::NotFound)
    }

    /// Whether there is a snapshot called `name`.
    pub fn has_snapshot(&self, name: &str) -> bool {
        match &self.thin {
            Some(thin) => thin.find(name).is_ok(),
            None => self.find(name).is_ok(),
        }
    }

    /// Where doors of a snapshot lead.
    pub(crate) fn view(&self, name: &str) -> Result<Switch, StoreError> {
        let key = self.view_key(name)?;
        self.top().views.lead(key, || self.below_view(key))
    }

    /// A snapshot for a pool that is backed by it, and is closed before what serves the snapshot.
    pub(crate) fn origin_view(&self, name: &str) -> Result<Device, StoreError> {
        self.below_view(self.view_key(name)?)
    }

    fn view_key(&self, name: &str) -> Result<Key, StoreError> {
        match &self.thin {
            Some(thin) => Ok((thin.open.id, thin.find(name)?)),
            None => self.find(name).map(|(open, number)| (open.id, number)),
        }
    }

    /// What goes below the switch of a snapshot now.
    fn below_view(&self, (store, number): Key) -> Result<Device, StoreError> {
        let device = match &self.thin {
            Some(thin) => thin.view(number)?,
            None => {
                let open = self.open(store).ok_or(StoreError::NotFound)?;
                retry_on_no_space(open.store.snapshot(number)?, &open)
            }
        };
        Ok(self.contained_view(device))
    }

    /// Leads doors of snapshots to what serves these now (VIEWS1 of `views.rs`).
    pub(crate) async fn turn_views(&self) {
        self.top().views.turn(|key| self.below_view(key)).await;
    }

    /// The same for those whose origin was missing.
    pub(crate) async fn turn_lost_views(&self) {
        self.top().views.turn_lost(|key| self.below_view(key)).await;
    }

    /// The volume, or one of its snapshots, below all that doors pass.
    pub(crate) fn bare(&self, snapshot: Option<&str>) -> Result<Device, Failure> {
        let Some(name) = snapshot else { return self.inner() };
        let found = match &self.thin {
            Some(thin) => thin.find(name).and_then(|number| thin.view(number)),
            None => self.find(name).and_then(|(open, number)| open.store.snapshot(number)),
        };
        found.map_err(|error| failures::store(name, &error))
    }

    /// All snapshots, the oldest first. How much they use is not counted: that takes time.
    pub fn snapshots(&self) -> Vec<SnapshotFacts> {
        if let Some(thin) = &self.thin {
            return thin.snapshots();
        }
        let mut all = Vec::new();
        for open in self.stores.borrow().iter() {
            let rollback = open.store.rollback_status().map(|status| status.snapshot);
            all.extend(open.store.list().into_iter().map(|descriptor| SnapshotFacts {
                name: descriptor.name,
                created: descriptor.created.0,
                size: descriptor.size,
                used: 0,
                read_only: descriptor.read_only,
                held: descriptor.held,
                is_base: descriptor.base,
                is_merging: rollback == Some(descriptor.id),
                kind: open.kind,
                is_thin: false,
                missing_origin: None,
                target: Target { store: open.id, number: descriptor.id },
            }));
        }
        all.sort_by_key(|facts| facts.created); // stable: those of one store keep their order
        all
    }

    /// Number of snapshots.
    pub(crate) fn snapshot_count(&self) -> usize {
        match &self.thin {
            Some(thin) => thin.snapshot_count(),
            None => self.stores.borrow().iter().map(|open| open.store.snapshot_count()).sum(),
        }
    }

    /// Those of `names` that there are: of a thin volume in the order of `names`, else the oldest first.
    pub fn snapshots_called(&self, names: &[String]) -> Vec<SnapshotFacts> {
        match &self.thin {
            Some(thin) => thin.snapshots_called(names),
            None => {
                let names: BTreeSet<&String> = names.iter().collect();
                self.snapshots().into_iter().filter(|facts| names.contains(&facts.name)).collect()
            }
        }
    }

    /// All snapshots, the oldest first, and how much they use.
    pub async fn snapshots_counted(&self) -> Vec<SnapshotFacts> {
        if let Some(thin) = &self.thin {
            return thin.snapshots_counted().await;
        }
        let mut all = self.snapshots();
        for open in self.stores.borrow().iter() {
            let bytes = open.store.snapshot_bytes();
            for facts in all.iter_mut().filter(|facts| facts.target.store == open.id) {
                let used = bytes.get(&facts.target.number).copied().unwrap_or_default();
                facts.used = used.preserved + used.written;
            }
        }
        all
    }

    /// Changes whether a snapshot may not be written, and whether its removal is refused; what is none stays.
    pub async fn set_flags(
        &self,
        name: &str,
        read_only: Option<bool>,
        held: Option<bool>,
    ) -> Result<(), StoreError> {
        if read_only.is_some() {
            let view = self.view(name)?.device();
            view.flush().await?;
            // Its device has the access of before; the next caller that asks for it gets another.
            self.top().views.forget(self.view_key(name)?);
        }
        if let Some(thin) = &self.thin {
            return thin.set_flags(name, read_only, held).await;
        }
        let (open, number) = self.find(name)?;
        let known = open.store.descriptor(number)?;
        let (read_only, held) = (read_only.unwrap_or(known.read_only), held.unwrap_or(known.held));
        open.change(async || open.store.set_flags(number, read_only, held).await).await
    }

    /// Gives a snapshot another name; doors and origins know it by its number.
    pub async fn rename_snapshot(&self, name: &str, to: &str) -> Result<(), StoreError> {
        if let Some(thin) = &self.thin {
            return thin.rename_snapshot(name, to).await;
        }
        // Its volume may have several stores, each with names of its own.
        if self.has_snapshot(to) {
            return Err(StoreError::Exists);
        }
        let (open, number) = self.find(name)?;
        open.change(async || open.store.rename(number, to).await).await
    }

    /// Snapshots of the volume's stores that are marked as origins.
    pub(crate) fn bases(&self) -> Vec<Target> {
        let stores = self.stores.borrow();
        let bases = stores.iter().flat_map(|open| {
            let noted = open.store.list().into_iter().filter(|descriptor| descriptor.base);
            noted.map(move |descriptor| Target { store: open.id, number: descriptor.id })
        });
        bases.collect()
    }

    /// Marks a snapshot of the volume's stores as an origin of others, or removes the mark.
    pub(crate) async fn set_base(&self, target: Target, is_base: bool) -> Result<(), StoreError> {
        let open = self.open(target.store).ok_or(StoreError::NotFound)?;
        open.change(async || open.store.set_base(target.number, is_base).await).await
    }

    /// The extents in which a snapshot differs from another one, or from the volume; and whether none of them is
    /// there without need.
    pub async fn diff(&self, from: &str, to: Option<&str>) -> Result<(Vec<Extent>, bool), StoreError> {
        let (open, from) = self.find(from)?;
        let Some(to) = to else { return Ok((open.store.diff(from, None).await?, true)) };
        let (other, to) = self.find(to)?;
        if other.id == open.id {
            return Ok((open.store.diff(from, Some(to)).await?, true));
        }
        // Their stores know nothing of each other, but both know the volume.
        let (one, two) = (open.store.diff(from, None).await?, other.store.diff(to, None).await?);
        Ok((joined([one, two].concat()), false))
    }

    /// Whether there is more to copy of a rollback.
    pub fn is_rolling_back(&self) -> bool {
        self.stores.borrow().iter().any(|open| open.store.rollback_status().is_some())
    }

    /// A snapshot by name, as a rollback to it that a crash interrupts is to find it: for good, its bytes, and of a thin
    /// volume the mark that is another one when the rollback has happened.
    pub fn rollback_point(&self, name: &str) -> Result<RollbackPoint, StoreError> {
        let found = self.snapshots_called(&[name.to_owned()]).pop().ok_or(StoreError::NotFound)?;
        let mark = self.thin.as_ref().map(Thin::rollback_mark).transpose()?;
        Ok(RollbackPoint { target: found.target, bytes: found.size, mark })
    }

    /// Makes the volume show what a snapshot shows, unless that has happened since `point` was taken. A store that has no
    /// room grows. What is left to do is for [`VolumeStack::finish_rollback`].
    pub async fn begin_rollback(&self, point: RollbackPoint) -> Result<(), Failure> {
        if let Some(thin) = &self.thin {
            return self.roll_back_thin(thin, point).await;
        }
        let failed = |error| failures::store("the rollback", &error);
        let open = self.open(point.target.store).ok_or_else(|| failed(StoreError::NotFound))?;
        let mut growths = 0;
        loop {
            if open.store.rollback_status().is_some_and(|status| status.snapshot == point.target.number) {
                return Ok(());
            }
            let seen = open.store.usage().size;
            match self.begin_rollback_between_merges(&open, point.target.number).await {
                Err(StoreError::NoSpace) if growths < GROWTHS_MAX && open.grow(seen).await => growths += 1,
                result => return result.map_err(failed),
            }
        }
    }

    /// Begins a rollback while no write smaller than a block is between its read and its write (STACK4). `NoSpace` if one
    /// that does waits for space in a store.
    async fn begin_rollback_between_merges(&self, open: &OpenStore, number: u64) -> Result<(), StoreError> {
        let (mut exchange, clock) = (self.shown.exchange(), self.host().clock());
        let _alone = loop {
            match select(exchange, clock.sleep(WAIT_CHECK)).await {
                Either::Left((alone, _)) => break alone,
                Either::Right(((), _)) if self.is_paused() => return Err(StoreError::NoSpace),
                Either::Right(((), still)) => exchange = still,
            }
        };
        open.store.begin_rollback(number).await
    }

    /// Finishes the rollback that is under way, if any. Where its store has no room it grows. An error leaves it to be
    /// finished later. Of a thin volume there is never one: its rollback is one commit.
    pub async fn finish_rollback(
        &self,
        progress: &varve_target::snapshot::Progress,
    ) -> Result<(), StoreError> {
        let begun = {
            let stores = self.stores.borrow();
            stores.iter().find(|open| open.store.rollback_status().is_some()).cloned()
        };
        let Some(open) = begun else { return Ok(()) };
        let (mut done, mut growths) = (progress.done.get(), 0);
        loop {
            let seen = open.store.usage().size;
            let outcome = open.store.finish_rollback(progress).await;
            if progress.done.get() > done {
                (done, growths) = (progress.done.get(), 0);
            }
            // A file system that is full below the volume's disk says the same, and there no growth helps.
            match outcome {
                Err(StoreError::NoSpace) if growths < GROWTHS_MAX && open.grow(seen).await => growths += 1,
                result => return result,
            }
        }
    }

    /// How far the rollback under way is, in bytes of all.
    pub fn rollback_progress(&self) -> Option<(u64, u64)> {
        let stores = self.stores.borrow();
        let status = stores.iter().find_map(|open| open.store.rollback_status())?;
        Some((status.done, status.total))
    }

    async fn roll_back_thin(&self, thin: &Thin, point: RollbackPoint) -> Result<(), Failure> {
        let failed = |error: PoolError| failures::pool("the rollback", &error);
        if point.mark.is_some() && thin.rollback_mark().ok() != point.mark {
            tracing::info!(volume = %self.id(), "the rollback has happened already");
            return Ok(());
        }
        let bytes = self.size();
        let change = async |thin: &Thin| thin.roll_back(point.target.number, bytes).await.map_err(failed);
        self.change_thin(change, failed).await
    }

    /// Removes a snapshot from view at once; its space is freed bit by bit.
    pub async fn remove_snapshot(&self, target: Target) -> Result<(), StoreError> {
        if let Some(thin) = &self.thin {
            thin.remove_snapshot(target.number).await?;
            self.top().views.forget((target.store, target.number));
            return Ok(());
        }
        let open = self.open(target.store).ok_or(StoreError::NotFound)?;
        open.change(async || open.store.begin_removal(target.number).await).await?;
        self.top().views.forget((target.store, target.number));
        open.reclaim().await;
        Ok(())
    }

    /// How many bytes come back to the stores when all of `targets` are removed.
    pub async fn removals_free(&self, targets: &[Target]) -> Result<u64, StoreError> {
        let mut bytes = 0;
        if let Some(thin) = &self.thin {
            for target in targets {
                bytes += thin.volume_space(target.number).await.exclusive;
            }
            return Ok(bytes);
        }
        let stores = self.stores.borrow().clone();
        for open in stores {
            let own = targets.iter().filter(|target| target.store == open.id);
            bytes += open.store.removals_free(&own.map(|target| target.number).collect::<Vec<u64>>()).await?;
        }
        Ok(bytes)
    }

    /// The removed snapshots whose space has not all come back.
    pub fn leaving(&self) -> Vec<Leaving> {
        let stores = self.stores.borrow();
        let leaving = stores.iter().flat_map(|open| {
            open.store.removals().into_iter().map(|removal| Leaving {
                name: removal.snapshot.name,
                size: removal.snapshot.size,
                target: Target { store: open.id, number: removal.snapshot.id },
            })
        });
        leaving.collect()
    }

    /// Tells how far the removals of `targets` are, from `before` bytes on, until all of their space has come back, or
    /// cannot.
    pub async fn follow_removals(
        &self,
        targets: &[(Target, u64)],
        before: u64,
        progress: &Progress,
    ) -> Result<(), StoreError> {
        let clock = self.host().clock();
        loop {
            let (mut done, mut trouble, mut is_over) = (before, None, true);
            for (target, size) in targets {
                let left = self.removed(*target, *size);
                if left.is_some() {
                    is_over = false;
                    trouble = trouble.or_else(|| self.trouble(*target));
                }
                done += left.unwrap_or(*size);
            }
            progress.report_done(done);
            match trouble {
                _ if is_over => return Ok(()),
                Some(error) => return Err(error),
                None => clock.sleep(TICK).await,
            }
        }
    }
}

impl VolumeStack {
    /// How many bytes of `size` of a removed snapshot are reclaimed; none when all are.
    fn removed(&self, target: Target, size: u64) -> Option<u64> {
        if let Some(thin) = &self.thin {
            return thin.removed(target.number, size);
        }
        self.open(target.store).and_then(|open| open.store.removed_bytes(target.number))
    }

    /// Why what a removed snapshot leaves behind is not given back.
    fn trouble(&self, target: Target) -> Option<StoreError> {
        match &self.thin {
            Some(thin) => thin.open.trouble(),
            None => self.open(target.store).and_then(|open| open.trouble()),
        }
    }
}

/// What a new snapshot is called and is to be.
pub fn new_snapshot(name: &str, read_only: bool) -> NewSnapshot {
    NewSnapshot { name: name.to_owned(), read_only, held: false }
}
