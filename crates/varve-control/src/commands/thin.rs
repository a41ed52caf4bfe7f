//! Thin volumes: made, resized, renamed, removed; and what the control remembers of what pools say.
//!
//! Invariant THINNAMES1: pools, volumes and thin volumes of a group share one set of names. New ones are refused if they are
//! taken; if two of them meet in another way, the thin one is renamed.

use crate::Control;
use crate::failures;
use crate::find::LocatedVolume;
use crate::find::volume_name;
use crate::group::known_group::KnownGroup;
use crate::schedules::Schedules;
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_api::{
    Changed, Code, Empty, Failure, LogicalVolume as ShownVolume, Plan, PolicyWords, Resize, VolumeCreate,
};
use varve_vg::names::VolumeName;
use varve_vg::size::{Amount, SizeArgument, format_size};
use varve_volume::ShardHandle;
use varve_volume::content::thin::ThinVolume;
use varve_volume::opened::open_pool::PoolFacts;

/// Sizes of thin volumes are rounded up to this.
const UNIT: u64 = 4096;
/// The largest thin volume.
const SIZE_MAX: u64 = 1 << 60;

impl KnownGroup {
    /// Identities and names of everything that can be exported.
    pub(crate) fn volumes(&self) -> Vec<(Uuid, String)> {
        let own = self.group.logical_volumes().iter().filter(|volume| !volume.is_pool());
        let own = own.map(|volume| (volume.id, volume.name.clone()));
        own.chain(self.thin.all().map(|thin| (thin.id, thin.name.clone()))).collect()
    }
}

impl Control {
    pub(crate) fn home_of_pool(&self, pool: Uuid) -> Result<ShardHandle, Failure> {
        let missing = || Failure::new(Code::PoolNotFound, "the pool is gone").help("varve pool list");
        self.home_of(pool).ok_or_else(missing)
    }

    /// Asks a pool what it is like and what is in it, and remembers that.
    pub(crate) async fn look_at_pool(&self, group: Uuid, pool: Uuid) -> Result<PoolFacts, Failure> {
        let home = self.home_of_pool(pool)?;
        let looked = home.pool(pool).look();
        let (facts, volumes) = self.answered(pool, looked.await)?;
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.thin.replace(pool, volumes);
        }
        Ok(facts)
    }

    /// Asks a pool for the volume of a number, which a command has changed, and remembers that.
    pub(crate) async fn look_at_thin(&self, group: Uuid, pool: Uuid, number: u64) -> Result<(), Failure> {
        let home = self.home_of_pool(pool)?;
        let looked = home.pool(pool).look_at(number);
        let found = self.answered(pool, looked.await)?;
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.thin.note(pool, number, found);
        }
        Ok(())
    }

    /// THINNAMES1, after pools were opened.
    pub(crate) async fn reconcile_names(&self, group: Uuid) {
        let Ok(pools) = self.with_group(group, KnownGroup::pools_in_use) else { return };
        for (pool, _) in &pools {
            if let Err(failure) = self.look_at_pool(group, *pool).await {
                tracing::error!(%pool, %failure, "a pool does not tell what is in it");
            }
        }
        let renamings = self.with_group(group, renamings).unwrap_or_default();
        for (volume, name) in renamings {
            let subject = self.name_of(volume.id).map(|(group, name)| format!("{group}/{name}"));
            let (subject, pool) = (subject.unwrap_or_default(), volume.pool);
            match self.rename_in_pool(group, &volume, &name).await {
                Ok(()) => self.warn(&subject, &format!("the name was taken; the thin volume is now {name}")),
                Err(failure) => tracing::error!(%pool, %failure, "a thin volume could not be renamed"),
            }
        }
    }

    async fn rename_in_pool(&self, group: Uuid, volume: &ThinVolume, name: &str) -> Result<(), Failure> {
        let home = self.home_of_pool(volume.pool)?;
        let (pool, number, name) = (volume.pool, volume.number, name.to_owned());
        let renamed = home.pool(pool).rename(number, name);
        self.answered(pool, renamed.await)?;
        self.look_at_thin(group, pool, number).await
    }

    /// THINNAMES1: refuses a name that a thin volume has. Those that the group knows are refused by its plans.
    pub(crate) fn refuse_thin_name(&self, group: Uuid, name: &str) -> Result<(), Failure> {
        self.with_group(group, |known| match known.thin.named(name) {
            None => Ok(()),
            Some(_) => Err(taken(known.group.name(), name)),
        })?
    }

    /// THINNAMES1: refuses a name that anything in the group has.
    fn refuse_any_name(&self, group: Uuid, name: &str) -> Result<(), Failure> {
        self.refuse_thin_name(group, name)?;
        self.with_group(group, |known| match known.group.lv(name) {
            None => Ok(()),
            Some(known_one) if known_one.is_pool() => {
                let full = format!("{}/{name}", known.group.name());
                Err(Failure::new(Code::VolumeExists, format!("there is a pool {full} already"))
                    .help(format!("choose another name; varve pool show {full}")))
            }
            Some(_) => Err(taken(known.group.name(), name)),
        })?
    }

    /// Makes a thin volume.
    pub(crate) async fn create_thin(
        &self,
        request: &VolumeCreate,
        name: &VolumeName,
        pool: &str,
    ) -> Result<Changed<ShownVolume>, Failure> {
        let located = self.find_pool_of(name, pool)?.usable()?;
        let is_striped = request.stripes.is_some() || request.stripe_size.is_some();
        if is_striped || request.snapshot_policy != PolicyWords::default() {
            let message =
                "a thin volume has no stripes, and its pool says what is done when there is no space";
            return Err(Failure::new(Code::Usage, message)
                .help(format!("varve pool change {}", self.subject(located.volume.id))));
        }
        let base = self.find_below(request, located.group).await?;
        let bytes = match &base {
            Some(base) if request.size.is_empty() => base.bytes(),
            _ => thin_size(&request.size, 0)?,
        };
        self.refuse_any_name(located.group, &name.volume)?;
        self.refuse_over_commit(located.group, located.volume.id, bytes).await?;
        if request.dry_run {
            let (pool, size) = (format!("{}/{}", name.group, located.volume.name), format_size(bytes));
            let over = base.map_or_else(String::new, |base| format!(" over {base}"));
            let step =
                format!("would make the thin volume {name} of {size} in {pool}{over}; it takes no space yet");
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        let over = match base {
            Some(base) => Some(self.protect_below(base, bytes, located.group).await?),
            None => None,
        };
        let spec = self.activation_spec(located.group, &located.volume)?;
        let own = name.volume.clone();
        let made = located.home.pool(located.volume.id).create(spec, own, bytes, over);
        match made.await.map_err(failures::gone)? {
            Ok(number) => self.look_at_thin(located.group, located.volume.id, number).await?,
            Err(failure) => {
                self.look_at_pool(located.group, located.volume.id).await?;
                self.reconcile_origins(located.group).await; // What was to be its origin is not needed.
                return Err(failure);
            }
        }
        self.event(&request.name, &format!("thin volume of {} made", format_size(bytes)));
        self.show_volume(&request.name).await.map(Changed::Done)
    }

    /// `POOL` or `VG/POOL`, of the group of a volume.
    fn find_pool_of(&self, volume: &VolumeName, pool: &str) -> Result<LocatedVolume, Failure> {
        let name = match pool.split_once('/') {
            Some(_) => volume_name(pool)?,
            None => volume_name(&format!("{}/{pool}", volume.group))?,
        };
        if name.group != volume.group {
            return Err(Failure::new(Code::Usage, "a thin volume is in the group of its pool"));
        }
        self.find_pool(&name)
    }

    /// Gives a thin volume another size.
    pub(crate) async fn resize_thin(
        &self,
        name: &VolumeName,
        located: &LocatedVolume,
        request: &Resize,
        grows: bool,
    ) -> Result<Changed<ShownVolume>, Failure> {
        let before = located.size();
        let bytes = if grows {
            thin_size(&request.size, before)?
        } else {
            super::volumes::reduced(name, &request.size, before)?.next_multiple_of(UNIT)
        };
        if bytes == before || (bytes > before) != grows {
            let message = format!("{name} has {before} bytes");
            return Err(Failure::new(Code::BadVolumeSize, message).help("varve lv extend, varve lv reduce"));
        }
        if grows {
            self.refuse_over_commit(located.group, located.pool(), bytes - before).await?;
        }
        if request.dry_run {
            let (from, to) = (format_size(before), format_size(bytes));
            let lost = if grows { "; it takes no space yet" } else { "; what lies behind it is lost" };
            let step = format!("would resize {name} from {from} to {to}{lost}");
            return Ok(Changed::Planned(Plan::of_steps(vec![step])));
        }
        let id = located.volume.id;
        self.refuse_if_pool_waits(name, located).await?;
        self.answered(id, located.home.volume(id).resize_thin(bytes).await)?;
        let thin = located.thin.as_ref().expect("the caller found a thin volume");
        self.look_at_thin(located.group, thin.pool, thin.number).await?;
        self.event(&name.to_string(), &format!("resized to {}", format_size(bytes)));
        self.resize_exports(name, located).await;
        self.show_volume(&name.to_string()).await.map(Changed::Done)
    }

    /// Refuses a change that would wait for writes that wait for space (SNAPSTORE1 of `store.rs`).
    pub(crate) async fn refuse_if_pool_waits(
        &self,
        name: &VolumeName,
        located: &LocatedVolume,
    ) -> Result<(), Failure> {
        let pool = located.pool();
        let paused = located.home.pool(pool).is_paused();
        if !paused.await.map_err(failures::gone)? {
            return Ok(());
        }
        Err(Failure::new(
            Code::PoolFull,
            format!("writes of {name} or its neighbours wait for space in the pool"),
        )
        .help(format!("varve pool extend {} --size +SIZE", self.subject(pool))))
    }

    /// Gives a thin volume another name; its snapshots go with it.
    pub(crate) async fn rename_thin(
        &self,
        name: &VolumeName,
        to: &VolumeName,
        located: &LocatedVolume,
        dry_run: bool,
    ) -> Result<Changed<ShownVolume>, Failure> {
        self.refuse_any_name(located.group, &to.volume)?;
        if dry_run {
            return Ok(Changed::Planned(Plan::of_steps(vec![format!("would rename {name} to {to}")])));
        }
        let thin = located.thin.clone().expect("the caller found a thin volume");
        self.rename_in_pool(located.group, &thin, &to.volume).await?;
        self.event(&name.to_string(), &format!("renamed to {to}"));
        self.converge(located.group).await;
        self.show_volume(&to.to_string()).await.map(Changed::Done)
    }

    /// Removes a thin volume that is not in use and has no snapshots.
    pub(crate) async fn remove_thin(
        &self,
        name: &VolumeName,
        located: &LocatedVolume,
        dry_run: bool,
    ) -> Result<Changed<Empty>, Failure> {
        let (id, thin) = (located.volume.id, located.thin.clone().expect("the caller found a thin volume"));
        if dry_run {
            let facts = located.home.volume(id).facts().await.map_err(failures::gone)?;
            let exclusive = facts.thin.map_or(0, |facts| facts.exclusive);
            let steps = vec![
                format!("would remove {name} and all its data"),
                format!("would free {} in its pool", format_size(exclusive)),
            ];
            let steps =
                steps.into_iter().chain(Schedules::of(self).steps_without(located.group, id)).collect();
            return Ok(Changed::Planned(Plan { bytes_freed: exclusive, ..Plan::of_steps(steps) }));
        }
        let removed = located.home.pool(thin.pool).remove(thin.number);
        let (pool, number) = (thin.pool, thin.number);
        self.answered(pool, removed.await)?;
        self.forget_flattening(|place| place == (pool, number)).await;
        self.look_at_thin(located.group, pool, number).await?;
        self.reconcile_origins(located.group).await;
        Schedules::of(self).forget_volume(located.group, id).await;
        self.event(&name.to_string(), "thin volume removed");
        Ok(Changed::Done(Empty {}))
    }
}

/// Which thin volumes have names that are taken, and what they are called instead: the first `NAME-N` that is free.
fn renamings(known: &KnownGroup) -> Vec<(ThinVolume, String)> {
    let mut names: BTreeSet<String> =
        known.group.logical_volumes().iter().map(|volume| volume.name.clone()).collect();
    let mut double = Vec::new();
    for thin in known.thin.all() {
        if !names.insert(thin.name.clone()) {
            double.push(thin.clone());
        }
    }
    let mut renamings = Vec::new();
    for thin in double {
        let free = (1..).map(|number| format!("{}-{number}", thin.name)).find(|name| !names.contains(name));
        let free = free.expect("there are more numbers than names");
        names.insert(free.clone());
        renamings.push((thin, free));
    }
    renamings
}

fn taken(group: &str, name: &str) -> Failure {
    Failure::new(Code::VolumeExists, format!("there is a volume {group}/{name} already"))
        .help(format!("choose another name, or varve lv rename {group}/{name} NEW"))
}

/// The size that an argument asks of a thin volume that has `now` bytes.
fn thin_size(text: &str, now: u64) -> Result<u64, Failure> {
    let size = SizeArgument::parse(text).map_err(|error| failures::bad_size(&error))?;
    let asked = match size.amount {
        Amount::Bytes(bytes) if size.relative => now.saturating_add(bytes),
        Amount::Bytes(bytes) => bytes,
        Amount::PercentFree(_) => {
            let message =
                "the size of a thin volume is no share of the group: it takes space when it is written";
            return Err(Failure::new(Code::BadVolumeSize, message).help("--size 10G"));
        }
    };
    if asked == 0 || asked > SIZE_MAX {
        let message = format!("{text}: a thin volume has 4 KiB to 1 EiB");
        return Err(Failure::new(Code::BadVolumeSize, message).help("--size 10G"));
    }
    Ok(asked.next_multiple_of(UNIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_thin_volumes_are_rounded_and_bounded() {
        let size = |text, now| thin_size(text, now).map_err(|failure| failure.code);
        assert_eq!(size("1", 0), Ok(4096));
        assert_eq!(size("+1G", 4096), Ok((1 << 30) + 4096));
        assert_eq!(size("1048576T", 0), Ok(1 << 60));
        for wrong in ["0", "1048577T", "50%FREE"] {
            assert_eq!(size(wrong, 0), Err(Code::BadVolumeSize), "{wrong}");
        }
    }
}
