//! What is served, compared with what groups say, and led back to it: after every scan, and after every change that failed.
//!
//! After a commit that failed half way two versions of a group may count, and a scan decides. Until then a volume stays in
//! use only if both give it what is served of it: it may have been about to grow.
//!
//! Invariants:
//! - RECONCILE1. A volume is served as every version of its group says that may count, or it is out of use and says why.
//! - RECONCILE2. No extent is given away as long as a volume that is out of use may still have requests under way to it.
//! - RECONCILE3. Pools and stores grow without the lock of their group: what is served is compared with a text while none does, or one that
//!   has just become larger would lie elsewhere than an older text says.

use super::known_group::KnownGroup;
use crate::Control;
use crate::exports::known_export::{KnownExport, Open};
use crate::exports::server::Closing;
use crate::injected_bug::{InjectedBug, has};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_vg::Group;
use varve_vg::model::{LogicalVolume, PvName};
use varve_vg::tree::VolumeNode;
use varve_volume::ShardHandle;
use varve_volume::lifecycle::placement::PlacementState;
use varve_volume::lifecycle::reason::Reason;
use varve_volume::spec::Disks;
use varve_volume::spec::Wanted;

/// A volume in use, and what the versions of its group say of it that may count.
struct Served {
    id: Uuid,
    home: ShardHandle,
    versions: Vec<Option<Wanted>>,
}

impl KnownGroup {
    /// The versions of the group that may count: what was committed last, and what was written to some disks only.
    fn versions(&self) -> impl Iterator<Item = &Group> {
        std::iter::once(&self.group).chain(&self.undecided)
    }

    /// Whether versions that may count say different things of a volume, so that it cannot be taken into use.
    pub(crate) fn is_undecided(&self, volume: &LogicalVolume) -> bool {
        let nodes = self.versions().map(|version| {
            let entry = version.logical_volumes().iter().find(|entry| entry.id == volume.id)?;
            VolumeNode::of(version, entry).ok()
        });
        let nodes: Vec<_> = nodes.collect();
        nodes.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// Why a volume cannot be used as long as a change of its group is on some disks only.
    pub(crate) fn undecided_failure(&self) -> Failure {
        let group = self.group.name();
        let message =
            format!("a change of {group} that concerns the volume reached only some of the group's disks");
        Failure::new(Code::VolumeUnusable, message).help("varve pv scan, when the disks take writes again")
    }
}

impl Control {
    /// How what is served of a group stands to what its versions say (RECONCILE1).
    pub(crate) async fn placements(&self, group: Uuid) -> BTreeMap<Uuid, PlacementState> {
        let fenced = self.while_nothing_grows(group, self.fenced(group)).await;
        fenced.into_iter().map(|(served, state)| (served.id, state)).collect()
    }

    /// Takes a volume out of use that is served otherwise than its group says, and closes it; whether no request to it is under way any
    /// more (RECONCILE2).
    pub(crate) async fn close_fenced(&self, group: Uuid, volume: Uuid) -> bool {
        let Some(home) = self.home_of(volume) else { return true };
        self.take_out_of_use(group, volume, elsewhere());
        let is_quiet = self.retire(group, volume, &home).await;
        if !is_quiet {
            self.set_draining(group, true);
        }
        self.close_lost_doors(group, volume).await;
        is_quiet
    }

    /// RECONCILE2: no request is under way any more to what was closed.
    pub(crate) fn end_draining(&self, group: Uuid) {
        self.set_draining(group, false);
        self.tell_stores_of_space(group);
    }

    /// Whether a change of a group reached only some of its disks, so that another text than the known one may count.
    pub(crate) fn is_undecided(&self, group: Uuid) -> bool {
        self.with_group(group, |known| known.undecided.is_some()).unwrap_or_default()
    }

    /// Closes a volume or pool that was taken out of use, if it is still there. Whether no request to it is under way any more.
    pub(crate) async fn retire(&self, group: Uuid, volume: Uuid, home: &ShardHandle) -> bool {
        if has(InjectedBug::KeepFenced) {
            return true;
        }
        if let Ok(Err(_failed)) = home.volume(volume).close(Reason::Fenced).await {
            self.expect_failure(volume);
            return self.await_abandoned(group).await.is_ok();
        }
        true
    }

    /// Members of arrays that lie on the disk at `path` and are away, whatever the reason, catch up.
    pub(crate) async fn take_members_back(&self, path: &Path) {
        let text = path.display().to_string();
        let found = self.groups.known.borrow().iter().find_map(|(group, known)| {
            let (id, _) = known.paths.iter().find(|(_, known)| **known == text)?;
            Some((*group, known.group.pv_by_id(*id)?.name))
        });
        let Some((group, disk)) = found else { return };
        self.take_members_back_on(group, disk, |_| true).await;
    }

    /// Members of arrays that lie on `disk` and are away catch up, of the volumes and pools that are meant.
    pub(crate) async fn take_members_back_on(
        &self,
        group: Uuid,
        disk: PvName,
        is_meant: impl Fn(Uuid) -> bool,
    ) {
        for served in self.served(group).into_iter().filter(|served| is_meant(served.id)) {
            let (id, wanted) = (served.id, served.versions.into_iter().flatten().next());
            let Some(wanted) = wanted else { continue };
            if served.home.volume(id).take_back(wanted, disk).await.is_err() {
                tracing::warn!(volume = self.subject(id), "members of its arrays cannot be taken back");
            }
        }
    }

    /// Takes the volumes of a group out of use that are not served as they should be. Their requests fail from now on;
    /// those under way are not waited for, so a task that commits may call this (CHANGE2 of `change.rs`), and until
    /// [`Control::converge`] nothing of the group is changed (RECONCILE2).
    pub(crate) async fn fence_group(&self, group: Uuid) {
        for (served, state) in self.fenced(group).await {
            if state == PlacementState::Fenced {
                self.take_out_of_use(group, served.id, elsewhere());
                self.set_draining(group, true);
            }
        }
    }

    /// All that is served of a group, and how it stands to what it should be.
    async fn fenced(&self, group: Uuid) -> Vec<(Served, PlacementState)> {
        let served = self.served(group);
        let mut states = BTreeMap::new();
        for shard in &self.shards {
            let own = served.iter().filter(|served| served.home.index() == shard.index());
            let own: Vec<_> = own.map(|served| (served.id, served.versions.clone())).collect();
            states.extend(shard.fence(own).await.unwrap_or_default());
        }
        let state = |served: Served| {
            let state = states.get(&served.id).copied().unwrap_or(PlacementState::Same);
            (served, state)
        };
        served.into_iter().map(state).collect()
    }

    /// Closes the doors that lead nowhere since a volume or pool is out of use: all of one that the group has no more,
    /// else those of snapshots, which are opened again when it is served again.
    pub(crate) async fn close_lost_doors(&self, group: Uuid, volume: Uuid) {
        let (is_known, volumes) = self
            .with_group(group, |known| {
                let thin = known.thin.of(volume).map(|thin| thin.id);
                let volumes: Vec<Uuid> = thin.chain([volume]).collect();
                (known.group.logical_volumes().iter().any(|entry| entry.id == volume), volumes)
            })
            .unwrap_or((false, vec![volume]));
        let down = match is_known {
            true => {
                Failure::new(Code::VolumeUnusable, "its volume was taken out of use").help("varve pv scan")
            }
            false => Failure::new(Code::VolumeNotFound, "its group has given its volume up"),
        };
        let is_of = |export: &KnownExport| volumes.contains(&export.remembered.volume);
        self.close_doors(|export| is_of(export) && (!is_known || export.name.snapshot.is_some()), down).await;
    }

    /// Closes doors that lead nowhere, for this reason.
    pub(crate) async fn close_doors(&self, is_lost: impl Fn(&KnownExport) -> bool, down: Failure) {
        let lost = |(id, export): (&String, &KnownExport)| is_lost(export).then(|| id.clone());
        let ids: Vec<String> = self.exports.known.borrow().iter().filter_map(lost).collect();
        for id in ids {
            if let Err(failure) = self.close_export(&id, Closing::Unused).await {
                tracing::warn!(export = id, %failure, "an export that leads nowhere cannot be closed");
            } else if let Some(known) = self.exports.known.borrow_mut().get_mut(&id) {
                known.open = Open::Down(down.clone());
            }
        }
    }

    /// Volumes and pools in use.
    fn served(&self, group: Uuid) -> Vec<Served> {
        let served = self.with_group(group, |known| {
            let served = |(id, home): (&Uuid, &super::known_group::Home)| {
                let versions = known.versions().map(|version| self.wanted(known, version, *id)).collect();
                Served { id: *id, home: home.shard.clone(), versions }
            };
            known.homes.iter().map(served).collect()
        });
        served.unwrap_or_default()
    }

    /// What a version of a group says of a volume; nothing if it has none, or not all of it.
    pub(crate) fn wanted(&self, known: &KnownGroup, version: &Group, volume: Uuid) -> Option<Wanted> {
        let entry = version.logical_volumes().iter().find(|entry| entry.id == volume)?;
        let node = VolumeNode::of(version, entry).ok()?;
        Some(Wanted { node, disks: self.files_of(known, version) })
    }

    /// The disks of a version of a group as files that every shard can use.
    pub(crate) fn files_of(&self, known: &KnownGroup, version: &Group) -> Disks {
        let disks = self.disks.known.borrow();
        let entries = version.physical_volumes().iter().filter_map(|disk| {
            let path = known.paths.get(&disk.id)?;
            Some((disk.name, Arc::clone(&disks.get(Path::new(path))?.file)))
        });
        entries.collect()
    }

    /// Notes that a volume is out of use, because its group is undecided or else for `reason`.
    pub(crate) fn take_out_of_use(&self, group: Uuid, volume: Uuid, reason: Failure) {
        let reason = self.with_group(group, |known| match &known.undecided {
            Some(_) => known.undecided_failure(),
            None => reason,
        });
        let (Ok(reason), subject) = (reason, self.subject(volume)) else { return };
        let mut groups = self.groups.known.borrow_mut();
        let Some(known) = groups.get_mut(&group) else { return };
        if known.homes.get(&volume).is_none_or(|home| home.unusable.is_some()) {
            return;
        }
        tracing::error!(volume = subject, %reason, "a volume is taken out of use");
        known.note_closed(volume, reason.clone());
        drop(groups);
        self.warn(&subject, &format!("taken out of use: {}", reason.message));
    }

    /// A volume is as large as its group says, and its clients see that.
    pub(crate) async fn grow_served(&self, group: Uuid, id: Uuid) {
        self.while_nothing_grows(group, self.grow_to_text(group, id)).await;
    }

    async fn grow_to_text(&self, group: Uuid, id: Uuid) {
        let Some(home) = self.home_of(id) else { return };
        let wanted = self.with_group(group, |known| self.wanted(known, &known.group, id));
        let Ok(Some(wanted)) = wanted else { return };
        let grown = home.volume(id).grow(wanted);
        let grown = self.answered(id, grown.await);
        if let Err(failure) = grown {
            tracing::error!(volume = self.subject(id), %failure, "a volume does not grow");
            self.take_out_of_use(group, id, elsewhere());
            return;
        }
        if let Some((group, volume)) = self.name_of(id)
            && let Ok(name) = crate::find::volume_name(&format!("{group}/{volume}"))
            && let Ok(located) = self.find_volume(&name)
        {
            self.resize_exports(&name, &located).await;
        }
    }

    /// RECONCILE3. Does `work` while no pool or store of the group grows. The caller has the lock of the group, and not the right to commit
    /// its changes.
    async fn while_nothing_grows<T>(&self, group: Uuid, work: impl Future<Output = T>) -> T {
        let growing = self.locks.growing(group);
        let _closed = growing.close();
        growing.drained().await;
        work.await
    }

    /// Whether what was taken out of use of a group may have requests under way still (RECONCILE2).
    pub(crate) fn is_draining(&self, group: Uuid) -> bool {
        self.with_group(group, |known| known.is_draining).unwrap_or_default()
    }

    fn set_draining(&self, group: Uuid, is_draining: bool) {
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.is_draining = is_draining;
        }
    }
}

fn elsewhere() -> Failure {
    let message = "its group says now that it lies elsewhere than it was served";
    Failure::new(Code::VolumeUnusable, message).help("varve pv scan")
}
