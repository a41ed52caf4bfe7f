//! Thin pools: made, listed, extended, changed, removed.
//!
//! A command that makes a pool larger or changes its policy takes no lock of the group: a holder of the lock may wait for
//! writes that wait for space of the pool. For stores, SNAPSTORE1 of `store.rs` excludes that.

use super::array_policy;
use super::layout::{layout, shown_array, state_with_array};
use super::options::ShownOption;
use super::policy::{changed, shown_policy};
use super::shown_volume::shown_segments;
use super::snapshots::unit_size;
use super::volumes::for_good;
use crate::Control;
use crate::failures;
use crate::find::LocatedVolume;
use crate::find::volume_name;
use crate::group::activation::state_of;
use crate::group::change::shown;
use crate::trash::Trash;
use uuid::Uuid;
use varve_api::{
    Array, Changed, Code, Failure, PolicyWords, Pool as ShownPool, PoolChange, PoolCreate, Removed, Rename,
    Resize, VolumeRemove,
};
use varve_block::KIB;
use varve_vg::Change;
use varve_vg::model::{Role, StorePolicy};
use varve_vg::names::VolumeName;
use varve_vg::size::SizeArgument;
use varve_vg::tree::VolumeNode;
use varve_volume::opened::open_pool::PoolFacts;
use varve_volume::opened::pool_serving;

impl Control {
    /// All pools, or those of one group.
    pub async fn list_pools(&self, group: Option<&str>) -> Result<Vec<ShownPool>, Failure> {
        let only = group.map(|group| self.find_group(group)).transpose()?;
        let names: Vec<VolumeName> = {
            let groups = self.groups.known.borrow();
            let wanted = groups.iter().filter(|(id, _)| only.is_none_or(|only| only == **id));
            let name = |id: &Uuid, pool: &varve_vg::model::LogicalVolume| VolumeName {
                group: id.to_string(),
                volume: pool.name.clone(),
                snapshot: None,
            };
            let pools = wanted.flat_map(|(id, known)| {
                let pools = known.group.logical_volumes().iter().filter(|volume| volume.is_pool());
                pools.map(move |pool| name(id, pool))
            });
            pools.collect()
        };
        let mut pools = Vec::with_capacity(names.len());
        for name in names {
            if let Ok(located) = self.find_pool(&name) {
                pools.push(self.shown_or_failing(located).await?);
            }
        }
        pools.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(pools)
    }

    /// One pool.
    pub async fn show_pool(&self, text: &str) -> Result<ShownPool, Failure> {
        self.shown_pool(&self.find_pool(&volume_name(text)?)?).await
    }

    /// Makes a pool.
    pub async fn create_pool(&self, request: PoolCreate) -> Result<Changed<ShownPool>, Failure> {
        let _lock = self.lock_of(&request.name).await?;
        let name = volume_name(&request.name)?;
        let size = SizeArgument::parse(&request.size).map_err(|error| failures::bad_size(&error))?;
        let block_size = request.block_size.as_deref().map(|text| unit_size(text, "block")).transpose()?;
        let block_size = block_size.unwrap_or(64 * KIB);
        let policy = changed(StorePolicy::default(), &request.policy)?;
        let layout = layout(&request)?;
        let group = self.find_group(&name.group)?;
        self.refuse_thin_name(group, &name.volume)?;
        let (id, role) = (self.new_id(), Role::Pool);
        let disks = self.array_choice(group, &request.on, request.log.as_deref()).await?;
        let change =
            Change::CreateVolume { name: name.volume.clone(), id, size, role, layout, policy, disks };
        let commits = self.commits(group).await;
        let words = format!("pool create {name} --size {}", request.size);
        let plan = || {
            let planned = commits.plan(group, change.clone(), &words)?;
            array_policy::with_words(planned, &name.volume, &request.array_policy)
        };
        let mut planned = plan()?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        if commits.make_room(group, &planned).await? {
            planned = plan()?;
        }
        let volume = planned.after.lv(&name.volume).cloned().expect("the plan makes this pool");
        let planned = self.clear(group, planned, &volume, 0, false).await?;
        let volume = planned.after.lv(&name.volume).cloned().expect("the plan makes this pool");
        let node = VolumeNode::of(&planned.after, &volume).map_err(|error| failures::tree(&error))?;
        let disks = self.with_group(group, |known| self.disk_files(known))?;
        let formatted = pool_serving::format(&self.context, &node.table, &disks, id, block_size).await;
        formatted.map_err(|failure| self.unless_full(&disks, failure))?;
        commits.commit(group, planned, Vec::new()).await?;
        drop(commits);
        self.activate_new(group, &volume).await?;
        self.converge(group).await;
        self.show_pool(&request.name).await.map(Changed::Done)
    }

    /// Makes a pool larger while it is in use.
    pub async fn extend_pool(&self, text: &str, request: Resize) -> Result<Changed<ShownPool>, Failure> {
        let name = volume_name(text)?;
        let located = self.find_pool(&name)?.usable()?;
        let (group, pool) = (located.group, located.volume.id);
        let most = self.pool_size_max(pool).await?;
        let size = SizeArgument::parse(&request.size).map_err(|error| failures::bad_size(&error))?;
        let disks = self.disk_choice(group, &request.on).await?;
        let _growing = self.locks.growing(group).enter().await; // MOVEJOB2 of `moves.rs`
        let commits = self.commits(group).await;
        let (_, volume) = self.entry_of(pool)?; // CHANGE3 of `change.rs`
        let located = LocatedVolume { volume, uncleared: self.uncleared(group, pool), ..located };
        let change = Change::ExtendVolume { name: located.volume.name.clone(), size, disks };
        let words = format!("pool extend {name} --size {}", request.size);
        let mut planned = commits.plan(group, change.clone(), &words)?;
        let grown = planned.after.lv(&located.volume.name).expect("the plan keeps this pool");
        refuse_beyond(most, planned.after.bytes(grown.extents))?;
        self.refuse_wider_loss(group, pool, &planned.after).await?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        if commits.make_room(group, &planned).await? {
            planned = commits.plan(group, change, &words)?;
        }
        let grown = planned.after.lv(&located.volume.name).cloned().expect("the plan keeps this pool");
        let planned = self.clear(group, planned, &grown, located.served_extents(), false).await?;
        commits.commit(group, planned, Vec::new()).await?;
        drop(commits);
        self.grow_on_shard(pool, pool).await?;
        self.converge_soon(group);
        self.show_pool(&self.subject(pool)).await.map(Changed::Done)
    }

    /// The most bytes that a pool can have; no bound if there is no such pool.
    pub(crate) async fn pool_size_max(&self, pool: Uuid) -> Result<u64, Failure> {
        let Some(home) = self.home_of(pool) else { return Ok(u64::MAX) };
        let asked = home.pool(pool).size_max();
        Ok(asked.await.map_err(failures::gone)?.unwrap_or(u64::MAX))
    }

    /// Changes what a pool declares.
    pub async fn change_pool(&self, text: &str, request: PoolChange) -> Result<Changed<ShownPool>, Failure> {
        let name = volume_name(text)?;
        let located = self.find_pool(&name)?;
        if request.policy == PolicyWords::default() {
            return Err(Failure::new(Code::Usage, "nothing to change is named")
                .help("--when-full, --pause-timeout, --auto-extend, --discards or --over-commit"));
        }
        match self.declare(&located, &request.policy, request.dry_run).await? {
            Some(plan) => Ok(Changed::Planned(plan)),
            None => self.show_pool(text).await.map(Changed::Done),
        }
    }

    /// Gives a pool another name, which no layer below uses.
    pub async fn rename_pool(&self, text: &str, request: Rename) -> Result<Changed<ShownPool>, Failure> {
        let _lock = self.lock_of(text).await?;
        let name = volume_name(text)?;
        let located = self.find_pool(&name)?;
        let to = match request.to.split_once('/') {
            Some(_) => volume_name(&request.to)?,
            None => volume_name(&format!("{}/{}", name.group, request.to))?,
        };
        if to.group != name.group {
            return Err(Failure::new(Code::Usage, "a pool stays in its group; only its own name changes"));
        }
        self.refuse_thin_name(located.group, &to.volume)?;
        let commits = self.commits(located.group).await;
        let change = Change::RenameVolume { from: name.volume.clone(), to: to.volume.clone() };
        let planned = commits.plan(located.group, change, &format!("pool rename {name} {}", to.volume))?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        commits.commit(located.group, planned, Vec::new()).await?;
        drop(commits);
        self.show_pool(&to.to_string()).await.map(Changed::Done)
    }

    /// Removes a pool in which there is no volume.
    pub async fn remove_pool(&self, text: &str, request: VolumeRemove) -> Result<Changed<Removed>, Failure> {
        let _lock = self.lock_of(text).await?;
        let name = volume_name(text)?;
        let located = self.find_pool(&name)?;
        let id = located.volume.id;
        // A pool that cannot be opened cannot be asked: the user who removes it knows that.
        if located.unusable.is_none() {
            self.look_at_pool(located.group, id).await?;
        }
        let volumes: Vec<String> = self.with_group(located.group, |known| {
            let own = known.thin.of(id);
            own.map(|thin| format!("{}/{}", name.group, thin.name)).collect()
        })?;
        if let Some(first) = volumes.first() {
            let message = format!("{name} holds volumes: {}", super::groups::few(&volumes));
            return Err(Failure::new(Code::PoolNotEmpty, message).help(format!("varve lv remove {first}")));
        }
        if !request.now && Trash::of(self).takes(&located) {
            return Trash::of(self).put(&located, &format!("pool remove {name}"), request.dry_run).await;
        }
        let commits = self.commits(located.group).await;
        let remove = Change::RemoveVolume { name: name.volume.clone() };
        let planned = commits.plan(located.group, remove, &format!("pool remove {name}"))?;
        if request.dry_run {
            let lost = Trash::of(self).plan_without(located.group, id)?;
            return Ok(Changed::Planned(lost.and(shown(&planned))));
        }
        self.commit_removal(commits, planned, &located).await.map(for_good)
    }

    /// A pool beside others: one that does not answer is shown with its error.
    async fn shown_or_failing(&self, located: LocatedVolume) -> Result<ShownPool, Failure> {
        match self.shown_pool(&located).await {
            Err(failure) => self.shown_pool(&LocatedVolume { unusable: Some(failure), ..located }).await,
            shown => shown,
        }
    }

    async fn shown_pool(&self, located: &LocatedVolume) -> Result<ShownPool, Failure> {
        let volume = &located.volume;
        let facts = match &located.unusable {
            None => self.look_at_pool(located.group, volume.id).await?,
            Some(_) => PoolFacts { size: located.size(), ..PoolFacts::default() },
        };
        let state = state_of(located.unusable.as_ref(), facts.failure);
        let (state, reason) = state_with_array(state, ("its array", facts.array.as_ref()));
        self.with_group(located.group, |known| {
            let group = known.group.name().to_owned();
            let trashed = known.thin.trash().filter(|(thin, _)| thin.pool == volume.id).count();
            ShownPool {
                name: format!("{group}/{}", volume.name),
                id: volume.id.to_string(),
                group,
                size: facts.size,
                block_size: facts.block_size,
                allocated: facts.allocated,
                free: facts.free,
                percent: facts.percent,
                virtual_size: facts.virtual_bytes,
                ratio: ratio(facts.virtual_bytes, facts.size),
                state,
                reason,
                created: volume.created.0,
                shard: u32::try_from(located.home.index()).unwrap_or(u32::MAX),
                volumes: facts.volumes,
                trashed: u32::try_from(trashed).unwrap_or(u32::MAX),
                snapshots: facts.snapshots,
                removing: facts.removing,
                paused: facts.is_paused,
                refusing: facts.is_refusing,
                can_grow: facts.can_grow,
                timed_out: facts.timed_out,
                policy: shown_policy(volume.store_policy.unwrap_or_default()),
                discards: volume.store_policy.unwrap_or_default().discards.shown(),
                over_commit: volume.store_policy.unwrap_or_default().over_commit.shown(),
                promise_max: facts.promise_max,
                array: shown_array(known, volume, volume.space(), facts.array.as_ref()).map(|array| Array {
                    scrub: self.memory.remembered.borrow().scrubs.get(&volume.id).cloned(),
                    ..array
                }),
                segments: shown_segments(known, volume),
            }
        })
    }
}

/// A pool is not made larger than its superblock can tell of.
pub(crate) fn refuse_beyond(most: u64, wanted: u64) -> Result<(), Failure> {
    if wanted <= most {
        return Ok(());
    }
    let message = format!("this pool can have {} at most", varve_vg::size::format_size(most));
    Err(Failure::new(Code::BadVolumeSize, message)
        .help("a pool that is made larger from the start can have more: varve pool create"))
}

/// How often `size` is promised, to two digits.
#[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
fn ratio(promised: u64, size: u64) -> f64 {
    (promised as f64 / size.max(1) as f64 * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_commitment_is_told_to_two_digits() {
        assert!((ratio(10 << 30, 4 << 30) - 2.5).abs() < 1e-9);
        assert!((ratio(1, 3) - 0.33).abs() < 1e-9);
        assert!(ratio(0, 0).abs() < 1e-9);
    }
}
