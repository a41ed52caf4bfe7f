//! Snapshot stores: made with a volume's first dependent snapshot and with every independent one, extended before they
//! are full, given back when they are empty.
//!
//! A new store has a tenth of its volume, at least 64 MiB, at most what is free. It grows as the volume's policy says,
//! by at least 64 MiB if there is so much.
//!
//! Invariant SNAPSTORE1: while writes of a volume wait for space no task waits for them with the lock of the group: what gives
//! them space is a change under that lock.

use super::change::{Commits, shown};
use crate::Control;
use crate::exports::known_export::KnownExport;
use crate::failures;
use crate::find::LocatedVolume;
use crate::injected_bug::{InjectedBug, has};
use futures_util::future::join;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, LogicalVolume as ShownVolume};
use varve_block::MIB;
use varve_vg::model::LogicalVolume;
use varve_vg::names::VolumeName;
use varve_vg::size::{Amount, SizeArgument, format_size, share};
use varve_vg::tree::{StoreNode, VolumeNode};
use varve_vg::{Change, Group, Plan, StoreKind};
use varve_volume::lifecycle::open;
use varve_volume::spec::Disks;

/// The smallest step, in bytes.
const STEP_MIN: u64 = 64 * MIB;
/// How long to wait before asking again whether writes still wait for space.
const PAUSED: Duration = Duration::from_millis(500);

impl Control {
    /// `VG/LV` of a volume.
    pub(crate) fn subject(&self, volume: Uuid) -> String {
        self.name_of(volume).map_or_else(|| volume.to_string(), |(group, name)| format!("{group}/{name}"))
    }

    /// A store of a volume has dropped a snapshot, for want of space.
    pub(crate) async fn snapshot_dropped(&self, volume: Uuid, store: Uuid, snapshot: &str) {
        let subject = self.subject(volume);
        let policy = "its store was full, and the volume's policy is drop-oldest";
        self.watch.note_dropped(volume, snapshot);
        self.warn(&format!("{subject}@{snapshot}"), &format!("dropped to make room: {policy}"));
        let message =
            format!("there is no snapshot {subject}@{snapshot}: it was dropped to make room in its store");
        let down = Failure::new(Code::SnapshotNotFound, message);
        let is_of = |export: &KnownExport| {
            export.remembered.volume == volume && export.name.snapshot.as_deref() == Some(snapshot)
        };
        self.close_doors(is_of, down).await;
        let Some(home) = self.home_of(volume) else { return };
        let empty = home.volume(volume).empty_stores().await;
        if matches!(empty, Ok(Some(empty)) if empty.contains(&store))
            && let Err(failure) = self.drop_empty_stores(volume).await
        {
            tracing::warn!(%volume, %failure, "an empty snapshot store could not be given back");
        }
    }

    /// Why a pool or a snapshot store of a volume does not grow, and the command that mends it; `extends` is whether it is to.
    pub(crate) fn why_it_does_not_grow(&self, volume: Uuid, extends: bool) -> (&'static str, String) {
        let subject = self.subject(volume);
        if extends {
            let group = subject.split('/').next().unwrap_or_default();
            return ("the group has no more for it", format!("varve vg extend {group} PATH…"));
        }
        let is_pool = self.entry_of(volume).is_ok_and(|(_, entry)| entry.is_pool());
        let noun = if is_pool { "pool" } else { "lv" };
        let help = format!("varve {noun} change {subject} --auto-extend 80%:20%");
        ("automatic extension is off", help)
    }

    async fn is_paused(&self, volume: Uuid) -> bool {
        let Some(home) = self.home_of(volume) else { return false };
        home.volume(volume).is_paused().await == Ok(Some(true))
    }

    /// Refuses a change that would wait for writes that wait for space (SNAPSTORE1).
    pub(crate) async fn refuse_if_paused(&self, located: &LocatedVolume) -> Result<(), Failure> {
        if !self.is_paused(located.volume.id).await {
            return Ok(());
        }
        let subject = self.subject(located.volume.id);
        let group = subject.split('/').next().unwrap_or_default().to_owned();
        let message = format!("writes of {subject} wait for space for its snapshots");
        Err(Failure::new(Code::SnapshotsFull, message)
            .help(format!("varve vg extend {group} PATH…, or remove snapshots")))
    }

    /// The group and the entry of a volume.
    pub(crate) fn entry_of(&self, volume: Uuid) -> Result<(Uuid, LogicalVolume), Failure> {
        let groups = self.groups.known.borrow();
        let found = groups.iter().find_map(|(id, known)| {
            let entry = known.group.logical_volumes().iter().find(|entry| entry.id == volume)?;
            Some((*id, entry.clone()))
        });
        found.ok_or_else(|| Failure::new(Code::VolumeNotFound, "the volume is gone"))
    }

    /// Extends a snapshot store of a volume, or, if both are one, a pool, by as much as the volume's policy says.
    pub(crate) async fn extend_store(&self, volume: Uuid, store: Uuid) -> Result<(), Failure> {
        let most = self.pool_size_max(store).await?;
        let (group, _) = self.entry_of(volume)?;
        let _growing = self.locks.growing(group).enter().await; // MOVEJOB2 of `moves.rs`
        let commits = self.commits(group).await;
        let (_, entry) = self.entry_of(volume)?;
        let before = commits.group(group)?;
        let is_itself = entry.is_pool() && volume == store;
        if is_itself && before.uncleared(volume).is_some() {
            return Ok(()); // It grows as soon as what it has got is clear.
        }
        let own = entry.stores().find(|known| known.id == store).map_or(0, |store| store.extents);
        let extents = if is_itself { entry.extents } else { own };
        let free = before.usage().available();
        if free == 0 {
            return Err(match is_itself {
                true => {
                    Failure::new(Code::NoSpaceInGroup, format!("group {} has no free extents", before.name()))
                        .help(format!("varve vg extend {} PATH…", before.name()))
                }
                false => no_space(before.name()),
            });
        }
        let percent = entry.store_policy.unwrap_or_default().extend_by_percent;
        let step = u128::from(before.bytes(extents)) * u128::from(percent) / 100;
        let by = u64::try_from(step).unwrap_or(u64::MAX).max(STEP_MIN).min(free);
        crate::commands::pools::refuse_beyond(most, before.bytes(extents).saturating_add(by))?;
        let (subject, size) = (self.subject(volume), format_size(by));
        let (change, words) = if is_itself {
            let size_argument = SizeArgument { relative: true, amount: Amount::Bytes(by) };
            let disks = self.disk_choice(group, &[]).await?;
            let change = Change::ExtendVolume { name: entry.name.clone(), size: size_argument, disks };
            (change, format!("pool {subject} extended by {size}"))
        } else {
            let change = Change::ExtendStore { volume: entry.name.clone(), store, by };
            (change, format!("snapshot store of {subject} extended by {size}"))
        };
        let mut planned = commits.plan(group, change.clone(), &words)?;
        if is_itself {
            self.refuse_wider_loss(group, volume, &planned.after).await?;
        }
        if commits.make_room(group, &planned).await? {
            planned = commits.plan(group, change, &words)?;
        }
        if is_itself {
            let grown = planned.after.lv(&entry.name).cloned().expect("the plan keeps this pool");
            planned = self.clear(group, planned, &grown, entry.extents, false).await?;
        }
        commits.commit(group, planned, Vec::new()).await?;
        drop(commits);
        self.grow_on_shard(volume, store).await?;
        self.converge_soon(group);
        Ok(())
    }

    /// Extends the store that a snapshot is in, by a relative size or to an absolute one.
    pub(crate) async fn extend_store_of(
        &self,
        name: &VolumeName,
        located: &LocatedVolume,
        size: SizeArgument,
        dry_run: bool,
    ) -> Result<Changed<ShownVolume>, Failure> {
        self.check_snapshot(located, name).await?;
        let own: Vec<String> = name.snapshot.iter().cloned().collect();
        let found = self.facts_called(located, &own).await.pop();
        let store = found.map(|facts| facts.target.store).ok_or_else(|| {
            Failure::new(Code::SnapshotNotFound, format!("there is no snapshot {name}"))
                .help("varve snap list")
        })?;
        let commits = self.commits(located.group).await;
        let before = commits.group(located.group)?;
        let extents =
            located.volume.stores().find(|known| known.id == store).map_or(0, |store| store.extents);
        let present = before.bytes(extents);
        let by = match size.amount {
            Amount::PercentFree(percent) => share(before.usage().available(), percent),
            Amount::Bytes(bytes) if size.relative => bytes,
            Amount::Bytes(bytes) => bytes.saturating_sub(present),
        };
        if by == 0 {
            let message = format!("the snapshot store of {name} has {present} bytes already");
            return Err(Failure::new(Code::BadVolumeSize, message)
                .help(format!("varve lv extend {name} --size +SIZE")));
        }
        let change = Change::ExtendStore { volume: name.volume.clone(), store, by };
        let planned =
            commits.plan(located.group, change, &format!("lv extend {name}: {} more", format_size(by)))?;
        if dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        commits.commit(located.group, planned, Vec::new()).await?;
        drop(commits);
        self.grow_on_shard(located.volume.id, store).await?;
        self.show_volume(&name.origin().to_string()).await.map(Changed::Done)
    }

    /// Lets a store that was extended know it.
    pub(crate) async fn grow_on_shard(&self, volume: Uuid, store: Uuid) -> Result<(), Failure> {
        let (group, entry) = self.entry_of(volume)?;
        let spec = self.activation_spec(group, &entry)?;
        let missing = || Failure::new(Code::VolumeNotFound, "the volume is gone");
        let home = self.home_of(volume).ok_or_else(missing)?;
        self.answered(volume, home.volume(volume).grow_store(store, spec).await)
    }

    /// Lets every store of a group know that the group has more free space.
    pub(crate) fn tell_stores_of_space(&self, group: Uuid) {
        let homes = self.with_group(group, |known| {
            let homes = known.homes.iter();
            homes.map(|(volume, home)| (*volume, home.shard.clone())).collect::<Vec<_>>()
        });
        for (volume, home) in homes.into_iter().flatten() {
            drop(home.volume(volume).group_has_space());
        }
    }

    /// The plan of a snapshot store.
    pub(crate) fn plan_store(
        &self,
        commits: &Commits<'_>,
        located: &LocatedVolume,
        chunk_size: u64,
        kind: StoreKind,
    ) -> Result<(Uuid, Plan), Failure> {
        self.plan_store_in(&commits.group(located.group)?, located, chunk_size, kind)
    }

    /// The same in `group`, which may be one that other plans have changed.
    pub(crate) fn plan_store_in(
        &self,
        group: &Group,
        located: &LocatedVolume,
        chunk_size: u64,
        kind: StoreKind,
    ) -> Result<(Uuid, Plan), Failure> {
        let size = (located.size() / 10).max(STEP_MIN).min(group.usage().available());
        if size == 0 {
            return Err(no_space(group.name()));
        }
        let (volume, id) = (located.volume.name.clone(), self.new_id());
        let words = format!("snapshot store of {}/{volume} made", group.name());
        let change = Change::CreateStore { volume, id, size, chunk_size, kind };
        let planned = varve_vg::plan(group, change, &self.stamp(words));
        planned.map(|plan| (id, plan)).map_err(|error| failures::plan(&error))
    }

    /// Stores side by side do not know what a rollback in one of them has left to copy.
    async fn refuse_while_rolling_back(&self, located: &LocatedVolume) -> Result<(), Failure> {
        let id = located.volume.id;
        let asked = located.home.volume(id).is_rolling_back().await.map_err(failures::gone)?;
        match asked.unwrap_or(false) {
            true => Err(failures::store(&self.subject(id), &varve_target::snapshot::StoreError::Busy)),
            false => Ok(()),
        }
    }

    /// Gives a volume a snapshot store; its id.
    pub(crate) async fn make_store(
        &self,
        located: &LocatedVolume,
        chunk_size: u64,
        kind: StoreKind,
    ) -> Result<Uuid, Failure> {
        self.refuse_if_paused(located).await?;
        self.refuse_while_rolling_back(located).await?;
        let volume = located.home.volume(located.volume.id);
        // The first snapshot needs the origin flushed before its gate closes. Other changes of the group do not wait for that.
        let recorded = self.record_store(located, chunk_size, kind);
        let (recorded, flushed) = join(recorded, volume.flush()).await;
        let (node, disks) = recorded?;
        let store = node.id;
        self.answered(located.volume.id, volume.add_store(node, disks).await)?;
        self.answered(located.volume.id, flushed)?;
        Ok(store)
    }

    /// Formats a snapshot store, then has the group's text name it.
    async fn record_store(
        &self,
        located: &LocatedVolume,
        chunk_size: u64,
        kind: StoreKind,
    ) -> Result<(StoreNode, Disks), Failure> {
        let commits = self.commits(located.group).await;
        let (mut store, mut planned) = self.plan_store(&commits, located, chunk_size, kind)?;
        if commits.make_room(located.group, &planned).await? {
            (store, planned) = self.plan_store(&commits, located, chunk_size, kind)?;
        }
        assert!(planned.emptied.is_empty(), "PLANTRASH2: the store is formatted before it is there");
        let volume = planned.after.lv(&located.volume.name).cloned().expect("the plan keeps this volume");
        let node = VolumeNode::of(&planned.after, &volume).map_err(|error| failures::tree(&error))?;
        let node = node.store(store).expect("the plan gives it this store").clone();
        let disks = self.with_group(located.group, |known| self.disk_files(known))?;
        let formatted = open::format_store(&self.context, &node.table, &disks, store, chunk_size).await;
        formatted.map_err(|failure| self.unless_full(&disks, failure))?;
        if has(InjectedBug::CommitLater) {
            self.commit_later(located.group, planned);
        } else {
            commits.commit(located.group, planned, Vec::new()).await?;
        }
        Ok((node, disks))
    }

    /// A bug, for the histories.
    fn commit_later(&self, group: Uuid, planned: Plan) {
        let me = self.weak();
        self.context.spawner().spawn(async move {
            let Some(control) = me.upgrade() else { return };
            control.context.clock().sleep(PAUSED).await;
            let _ = control.commits(group).await.commit(group, planned, Vec::new()).await;
        });
    }

    /// Gives the stores of a volume without snapshots back to the group.
    pub(crate) async fn drop_stores(&self, located: &LocatedVolume) -> Result<(), Failure> {
        for store in self.refreshed(located)?.stores() {
            self.drop_store(located.group, located.volume.id, store.id).await?;
        }
        Ok(())
    }

    /// Gives back those stores of a volume that hold no snapshot any more, between other changes.
    pub(crate) async fn drop_empty_stores(&self, volume: Uuid) -> Result<(), Failure> {
        while self.is_paused(volume).await {
            self.context.clock().sleep(PAUSED).await; // SNAPSTORE1
        }
        // A thin volume has no store of its own.
        let Ok((group, _)) = self.entry_of(volume) else { return Ok(()) };
        let _lock = self.lock_group(group).await;
        self.drop_empty(volume, |_| true).await
    }

    /// Gives back those stores of a volume that are meant and hold no snapshot. The caller has the lock of the group.
    pub(crate) async fn drop_empty(
        &self,
        volume: Uuid,
        is_meant: impl Fn(&Uuid) -> bool,
    ) -> Result<(), Failure> {
        let Some(home) = self.home_of(volume) else { return Ok(()) };
        let empty = home.volume(volume).empty_stores().await.map_err(failures::gone)?.unwrap_or_default();
        for store in empty.into_iter().filter(is_meant) {
            let (group, _) = self.entry_of(volume)?;
            self.drop_store(group, volume, store).await?;
        }
        Ok(())
    }

    /// Gives a store that holds no snapshot back to the group.
    async fn drop_store(&self, group: Uuid, volume: Uuid, store: Uuid) -> Result<(), Failure> {
        if self.is_moving(group, store) {
            return Ok(()); // It goes with the next one.
        }
        let missing = || Failure::new(Code::VolumeNotFound, "the volume is gone");
        let home = self.home_of(volume).ok_or_else(missing)?;
        let removed = home.volume(volume).remove_store(store).await.map_err(failures::gone)?;
        removed.unwrap_or(Ok(())).map_err(|failure| self.about(volume, failure))?;
        let commits = self.commits(group).await;
        let (_, entry) = self.entry_of(volume)?;
        let words = format!("snapshot store of {} given back", self.subject(volume));
        commits.make(group, Change::RemoveStore { volume: entry.name, store }, &words).await
    }
}

fn no_space(group: &str) -> Failure {
    Failure::new(Code::NoSpaceForSnapshots, format!("group {group} has no space for the snapshot store"))
        .help(format!("varve vg extend {group} PATH…, or remove snapshots"))
}
