//! Snapshot stores: made with a volume's first snapshot, extended before they are full, given back with its last.
//!
//! A new store has a tenth of its volume, at least 64 MiB, at most what is free. It grows by a fifth, at least 64 MiB,
//! whenever it is 80 % full or a change does not fit.

use super::activate::tables;
use super::change::{Commits, shown};
use super::find::Located;
use super::{Control, current};
use crate::failures;
use crate::shard::family;
use crate::shard::here;
use uuid::Uuid;
use varve_api::{Code, Failure, Plan as ShownPlan};
use varve_block::MIB;
use varve_os::ShardContext;
use varve_vg::size::format_size;
use varve_vg::{Change, Plan};

/// The smallest step, in bytes.
const STEP_MIN: u64 = 64 * MIB;

/// Extends the snapshot store of a volume. Asked for by the volume's shard.
pub(crate) async fn extend_store(volume: Uuid) -> Result<(), Failure> {
    match current() {
        Some(control) => control.extend_store(volume).await,
        None => Err(Failure::new(Code::Stopping, "the daemon is stopping")),
    }
}

impl Control {
    async fn extend_store(&self, volume: Uuid) -> Result<(), Failure> {
        let commits = self.commits().await;
        let missing = || Failure::new(Code::VolumeNotFound, "the volume is gone");
        let (group, name) = {
            let groups = self.groups.borrow();
            let found = groups.iter().find_map(|(id, known)| {
                let entry = known.group.logical_volumes().iter().find(|entry| entry.id == volume)?;
                Some((*id, entry.name.clone()))
            });
            found.ok_or_else(missing)?
        };
        let before = commits.group(group)?;
        let store = before.lv(&name).and_then(|entry| entry.store.clone()).ok_or_else(missing)?;
        let full = format!("{}/{name}", before.name());
        let free = before.usage().free;
        if free == 0 {
            self.event(&full, "its snapshot store is full and the group has no space for it");
            return Err(no_space(before.name()));
        }
        let by = (before.bytes(store.extents) / 5).max(STEP_MIN).min(free);
        let words = format!("snapshot store of {full} extended by {}", format_size(by));
        commits.make(group, Change::ExtendStore { volume: name.clone(), by }, &words).await?;
        let after = commits.group(group)?;
        let entry = after.lv(&name).cloned().ok_or_else(missing)?;
        let home = self.with_group(group, |known| known.homes.get(&volume).map(|home| home.shard.clone()))?;
        let recipe = self.recipe(group, &entry)?;
        drop(commits);
        let grown = home.ok_or_else(missing)?.run(async move |_: ShardContext| {
            match (here().family(volume), &recipe.store) {
                (Some(family), Some(table)) => family.grow_store(table, &recipe.disks),
                _ => Ok(()),
            }
        });
        grown.await.map_err(failures::gone)?
    }

    /// The plan of a snapshot store for a volume that has none.
    pub(super) fn plan_store(
        &self,
        commits: &Commits<'_>,
        located: &Located,
        chunk_size: u64,
    ) -> Result<Plan, Failure> {
        let group = commits.group(located.group)?;
        let size = (located.size() / 10).max(STEP_MIN).min(group.usage().free);
        if size == 0 {
            return Err(no_space(group.name()));
        }
        let volume = located.volume.name.clone();
        let words = format!("snapshot store of {}/{volume} made", group.name());
        commits.plan(
            located.group,
            Change::CreateStore { volume, id: self.new_id(), size, chunk_size },
            &words,
        )
    }

    /// What a snapshot store would take.
    pub(super) async fn shown_store(&self, located: &Located, chunk_size: u64) -> Result<ShownPlan, Failure> {
        let commits = self.commits().await;
        self.plan_store(&commits, located, chunk_size).map(|plan| shown(&plan))
    }

    /// Gives a volume that has none a snapshot store.
    pub(super) async fn make_store(&self, located: &Located, chunk_size: u64) -> Result<(), Failure> {
        let commits = self.commits().await;
        let planned = self.plan_store(&commits, located, chunk_size)?;
        let volume = planned.after.lv(&located.volume.name).cloned().expect("the plan keeps this volume");
        let store = volume.store.as_ref().expect("the plan gives it a store");
        let (_, table) = tables(&planned.after, &volume)?;
        let table = table.expect("the plan gives it a store");
        let disks = self.with_group(located.group, |known| self.disk_files(known))?;
        family::format_store(&self.context, &table, &disks, store.id, chunk_size).await?;
        commits.commit(located.group, planned, Vec::new()).await?;
        drop(commits);
        let id = located.volume.id;
        let added = located.home.run(async move |_: ShardContext| match here().family(id) {
            Some(family) => family.add_store(&table, &disks).await,
            None => Err(Failure::new(Code::VolumeUnusable, "the volume is not active")),
        });
        added.await.map_err(failures::gone)?
    }

    /// Gives the store of a volume without snapshots back to the group.
    pub(super) async fn drop_store(&self, located: &Located) -> Result<(), Failure> {
        if self.refreshed(located)?.store.is_none() {
            return Ok(());
        }
        let volume = located.volume.id;
        let removed = located.home.run(async move |_: ShardContext| match here().family(volume) {
            Some(family) => family.remove_store().await,
            None => Ok(()),
        });
        removed.await.map_err(failures::gone)??;
        let commits = self.commits().await;
        let group = commits.group(located.group)?;
        let name = self.refreshed(located)?.name;
        let words = format!("snapshot store of {}/{name} given back", group.name());
        commits.make(located.group, Change::RemoveStore { volume: name }, &words).await
    }
}

fn no_space(group: &str) -> Failure {
    Failure::new(Code::NoSpaceForSnapshots, format!("group {group} has no space for the snapshot store"))
        .help(format!("varve vg extend {group} PATH…, or remove snapshots"))
}
