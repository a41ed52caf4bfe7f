//! Volumes taken into use and released: each on one shard, the shards filled evenly.

use super::known_group::{Home, KnownGroup};
use crate::Control;
use crate::exports::known_export::KnownExport;
use crate::failures;
use crate::find::LocatedVolume;
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_vg::model::LogicalVolume;
use varve_vg::names::VolumeName;
use varve_vg::tree::VolumeNode;
use varve_volume::ShardHandle;
use varve_volume::lifecycle::reason::Reason;
use varve_volume::spec::{ActivationSpec, Disks};

impl Control {
    /// Takes a volume of a group into use, unless it is; if it cannot be, it is known with the reason.
    pub(crate) async fn activate_idle(&self, group: Uuid, id: Uuid) {
        let idle = self.with_group(group, |known| {
            let is_in_use = known.homes.get(&id).is_some_and(|home| home.unusable.is_none());
            let entry = known.group.logical_volumes().iter().find(|entry| entry.id == id);
            entry.filter(|_| !is_in_use).cloned()
        });
        let Ok(Some(volume)) = idle else { return };
        let shard = self.place(group, id);
        let activated = self.activate(group, &volume, &shard).await;
        if let Err(failure) = &activated
            && failure.code != Code::VolumeInactive
            && self.uncleared(group, id) != Some(0)
        {
            tracing::error!(volume = volume.name, %failure, "a volume cannot be used");
        }
        self.set_home_state(group, id, activated.err());
    }

    /// Takes one volume into use on `shard`.
    async fn activate(
        &self,
        group: Uuid,
        volume: &LogicalVolume,
        shard: &ShardHandle,
    ) -> Result<(), Failure> {
        let mut spec = self.activation_spec(group, volume)?;
        self.refuse_unagreed_mapper(group, volume)?;
        self.await_abandoned(group).await?; // ABANDONED1 of `stalled.rs`
        spec.image = self.image_for(group, volume).await?;
        spec.devices = self.devices_of(group, volume).await?;
        let activated = shard.activate(spec);
        let activated = self.answered(volume.id, activated.await);
        if activated.is_err() {
            self.remember_left(&[volume.id]).await;
        }
        activated
    }

    /// Takes a new volume into use.
    pub(crate) async fn activate_new(&self, group: Uuid, volume: &LogicalVolume) -> Result<(), Failure> {
        let shard = self.place(group, volume.id);
        if volume.is_pool() {
            self.set_quotas_for_all(group).await; // Any other new volume has no store yet.
        }
        let activated = self.activate(group, volume, &shard).await;
        self.set_home_state(group, volume.id, activated.clone().err());
        if volume.is_pool() {
            self.set_quotas(group).await;
        }
        if volume.is_pool() && activated.is_ok() {
            self.look_at_pool(group, volume.id).await?;
        }
        activated
    }

    /// Releases every volume of a group.
    pub(crate) async fn deactivate_group(&self, group: Uuid) -> Result<(), Failure> {
        let homes: Vec<(Uuid, ShardHandle)> = self.with_group(group, |known| {
            let pools = known.group.logical_volumes().iter().filter(|volume| volume.is_pool());
            let pools: BTreeSet<Uuid> = pools.map(|pool| pool.id).collect();
            let mapped = known.mapped();
            let mut homes: Vec<_> =
                known.homes.iter().map(|(volume, home)| (*volume, home.shard.clone())).collect();
            // What is backed by something goes before it.
            homes.sort_by_key(|(id, _)| (!mapped.contains(id), !pools.contains(id)));
            homes
        })?;
        for (volume, shard) in homes {
            self.deactivate(group, volume, &shard).await?;
        }
        Ok(())
    }

    /// Releases one volume. An error says that something of it may not be durable; it is not in use any more then either.
    pub(crate) async fn deactivate(
        &self,
        group: Uuid,
        volume: Uuid,
        shard: &ShardHandle,
    ) -> Result<(), Failure> {
        self.release(group, volume, shard).await??;
        self.remember_left(&[volume]).await;
        self.await_abandoned(group).await // ABANDONED1 of `stalled.rs`
    }

    /// Ends the use of a volume that is removed. What may not be durable of it is reported, and stops nothing.
    pub(crate) async fn release_for_removal(&self, located: &LocatedVolume) -> Result<(), Failure> {
        let (group, volume) = (located.group, located.volume.id);
        let name = self.subject(volume);
        match self.release(group, volume, &located.home).await? {
            Err(failure) if failure.code == Code::VolumeFailed => return Err(failure),
            Err(failure) => {
                self.warn(&name, &format!("removed although its last flush failed: {}", failure.message));
            }
            Ok(()) => {}
        }
        self.await_abandoned(group).await // ABANDONED1 of `stalled.rs`
    }

    /// Ends the use of one volume; an error within says that something of it may not be durable.
    async fn release(
        &self,
        group: Uuid,
        volume: Uuid,
        shard: &ShardHandle,
    ) -> Result<Result<(), Failure>, Failure> {
        let ended = shard.volume(volume).close(Reason::Deactivated);
        let ended = ended.await.map_err(failures::gone);
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.homes.remove(&volume);
            known.thin.forget(volume);
        }
        if matches!(&ended, Ok(Err(failure)) if failure.code == Code::VolumeFailed) {
            self.expect_failure(volume);
        }
        ended
    }

    /// All that the volume's shard needs to use it.
    pub(crate) fn activation_spec(
        &self,
        group: Uuid,
        volume: &LogicalVolume,
    ) -> Result<ActivationSpec, Failure> {
        self.with_group(group, |known| {
            if let Some(trouble) = &known.trouble {
                return Err(Failure::new(Code::GroupIncomplete, trouble.clone()).help("varve vg list"));
            }
            if known.is_undecided(volume) {
                return Err(known.undecided_failure()); // RECONCILE1 of `reconcile.rs`.
            }
            if let Some(failure) = self.out_of_use(known.group.name(), volume) {
                return Err(failure);
            }
            let node = VolumeNode::of(&known.group, volume).map_err(|error| failures::tree(&error))?;
            let policy = volume.store_policy.unwrap_or_default();
            let disks = self.disk_files(known);
            let quota = super::quotas::first_quota(known, volume.id);
            let name = format!("{}/{}", known.group.name(), volume.name);
            let accepts = self.arrays.accepted.borrow().get(&volume.id).copied().unwrap_or_default();
            let (image, devices) = (None, Vec::new());
            Ok(ActivationSpec { name, node, policy, quota, disks, image, devices, accepts })
        })?
    }

    /// The group's disks as files that every shard can use.
    pub(crate) fn disk_files(&self, known: &KnownGroup) -> Disks {
        self.files_of(known, &known.group)
    }

    /// The shard with the fewest volumes, from now on the volume's home; that on which it was before, if it was.
    fn place(&self, group: Uuid, volume: Uuid) -> ShardHandle {
        let mut groups = self.groups.known.borrow_mut();
        let load = |shard: &&ShardHandle| {
            let homes = groups.values().flat_map(|known| known.homes.values());
            homes.filter(|home| home.shard.index() == shard.index()).count()
        };
        // A volume that was in use goes back to the shard of its doors (OUTOFUSE2 of `activation.rs`).
        let before = groups.get(&group).and_then(|known| Some(known.homes.get(&volume)?.shard.clone()));
        let emptiest = || self.shards.iter().min_by_key(load).expect("there is at least one shard").clone();
        let shard = before.unwrap_or_else(emptiest);
        if let Some(known) = groups.get_mut(&group) {
            let starting = Failure::new(Code::VolumeUnusable, "the volume is being activated")
                .help("try again in a moment");
            known
                .homes
                .insert(volume, Home { shard: shard.clone(), unusable: Some(starting), is_unasked: false });
        }
        shard
    }

    fn set_home_state(&self, group: Uuid, volume: Uuid, failure: Option<Failure>) {
        if let Some(home) =
            self.groups.known.borrow_mut().get_mut(&group).and_then(|known| known.homes.get_mut(&volume))
        {
            home.is_unasked = failure.is_none();
            home.unusable = failure.map(unusable);
        }
    }

    /// Forgets homes of volumes that their group does not have any more, and closes the doors to them.
    pub(crate) async fn forget_lost_homes(&self, group: Uuid) {
        let lost = self.with_group(group, |known| {
            let has: BTreeSet<Uuid> = known.group.logical_volumes().iter().map(|volume| volume.id).collect();
            known.homes.keys().chain(known.thin.pools()).filter(|id| !has.contains(id)).copied().collect()
        });
        let lost: BTreeSet<Uuid> = lost.unwrap_or_default();
        for volume in &lost {
            self.close_lost_doors(group, *volume).await;
        }
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.homes.retain(|volume, _| !lost.contains(volume));
            lost.iter().for_each(|pool| known.thin.forget(*pool));
        }
    }

    /// Refuses a change to a group of which a volume is exported or busy.
    pub(crate) fn refuse_if_used(&self, group: Uuid) -> Result<(), Failure> {
        let names: Vec<(Uuid, VolumeName)> = self.with_group(group, |known| {
            let group = known.group.name();
            let name = |(id, volume)| (id, VolumeName { group: group.to_owned(), volume, snapshot: None });
            known.volumes().into_iter().map(name).collect()
        })?;
        names.iter().try_for_each(|(volume, name)| {
            self.refuse_if_busy(*volume)?;
            self.refuse_if_exported(*volume, name, true)
        })
    }

    /// Refuses a change to a volume that is exported; with `and_snapshots` also if a snapshot of it is.
    pub(crate) fn refuse_if_exported(
        &self,
        volume: Uuid,
        name: &VolumeName,
        and_snapshots: bool,
    ) -> Result<(), Failure> {
        let exports = self.exports.known.borrow();
        // By identity: one volume may be named in several ways.
        let same = |export: &&KnownExport| {
            export.remembered.volume == volume && (and_snapshots || export.name.snapshot == name.snapshot)
        };
        let ids: Vec<&str> =
            exports.values().filter(same).map(|export| export.remembered.id.as_str()).collect();
        let Some(first) = ids.first() else { return Ok(()) };
        let code = if name.snapshot.is_some() { Code::SnapshotExported } else { Code::VolumeExported };
        Err(Failure::new(code, format!("{name} is exported: {}", ids.join(", ")))
            .help(format!("varve export remove {first}")))
    }

    /// A volume as its group says it is now.
    pub(crate) fn refreshed(&self, located: &LocatedVolume) -> Result<LogicalVolume, Failure> {
        if located.thin.is_some() {
            return Ok(located.volume.clone());
        }
        self.with_group(located.group, |known| {
            let volumes = known.group.logical_volumes();
            volumes.iter().find(|volume| volume.id == located.volume.id).cloned()
        })?
        .ok_or_else(|| Failure::new(Code::VolumeNotFound, "the volume is gone").help("varve lv list"))
    }
}

/// The reason in the form that every use of the volume meets.
fn unusable(failure: Failure) -> Failure {
    match failure.code {
        Code::VolumeFailed | Code::VolumeInactive | Code::ImageNotTrusted => failure,
        Code::VolumeBusy => failure, // It is being cleared.
        _ => failure.with_code(Code::VolumeUnusable),
    }
}
