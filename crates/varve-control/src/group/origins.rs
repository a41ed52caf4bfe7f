//! Origins of thin volumes: chosen when a volume is made, found again at every start, kept as long as anything needs them.
//!
//! Invariants:
//! - BELOW1. An origin is a read-only snapshot of the same group, and is noted as one from before anything is backed by it until
//!   nothing is any more (`bases.rs`). Or it is a read-only volume of the group, or a disk image (`images.rs`).
//! - BELOW2. A snapshot is not removed while anything is backed by it, or would be after a crash; a read-only volume is neither
//!   removed, nor made smaller, nor rolled back.
//! - BELOW3. A volume is served only when all that it is backed by is; until then it says why it is not.

use super::known_group::KnownGroup;
use crate::Control;
use crate::commands::snapshots::snapshot_name;
use crate::failures;
use crate::find::LocatedVolume;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_target::thin::{Backing, Origin};
use varve_vg::model::LogicalVolume;
use varve_vg::names::VolumeName;
use varve_volume::ShardHandle;
use varve_volume::content::origins::{Below, Place};
use varve_volume::content::snapshot_facts::Target;

/// A snapshot, or a read-only volume, that is to be the origin of a new volume.
pub(crate) struct Base {
    /// `VG/LV@SNAP`, or `VG/LV`.
    pub(crate) name: VolumeName,
    /// Its identity; all of it shows.
    pub(crate) origin: Origin,
    /// Where it lives.
    pub(crate) place: Place,
    group: Uuid,
    is_noted: bool,
}

impl KnownGroup {
    /// Why a thin volume `of` this name, or a snapshot of it, is not served without its `origin`, and what is to be done.
    pub(crate) fn origin_missing(&self, of: &str, origin: Option<Origin>) -> Failure {
        let why = self.why_origin_missing(origin);
        let is_known =
            |origin: Origin| self.owner_of(&origin).is_some() || self.image(origin.backing.id()).is_some();
        if origin.is_none_or(is_known) {
            return why;
        }
        let name = format!("{}/{of}", self.group.name());
        why.help(format!("varve snap list {name}; when those are removed: varve lv remove {name}"))
    }

    fn why_origin_missing(&self, origin: Option<Origin>) -> Failure {
        let same = |known: &&(Backing, Failure)| origin.is_some_and(|origin| origin.backing == known.0);
        match self.missing_origins.iter().find(same) {
            Some((_, failure)) => failure.clone(),
            None => Failure::new(Code::VolumeUnusable, "the origin of the volume is not there")
                .help("varve status"),
        }
    }

    /// Whether pools may hold a volume, or snapshots of what it has served, as external origins (BELOW1).
    pub(crate) fn may_be_origin(&self, volume: Uuid) -> bool {
        let entry = self.group.logical_volumes().iter().find(|entry| entry.id == volume);
        let has_none =
            |entry: &LogicalVolume| !entry.is_pool() && !entry.read_only && entry.stores().next().is_none();
        let mut origins = self.thin.all_and_trash().filter_map(|thin| thin.origin);
        let is_gone =
            |origin: Origin| self.owner_of(&origin).is_none() && self.image(origin.backing.id()).is_none();
        !entry.is_some_and(has_none) || origins.any(is_gone)
    }

    /// The volume or pool that holds an origin, unless the group has it no more.
    fn owner_of(&self, origin: &Origin) -> Option<&LogicalVolume> {
        let (mut volumes, id) = (self.group.logical_volumes().iter(), origin.backing.id());
        volumes.find(|volume| volume.id == id || volume.stores().any(|store| store.id == id))
    }

    /// Why an origin cannot be reached.
    fn unreachable(&self, origin: &Origin) -> Failure {
        let (group, code) = (self.group.name(), Code::VolumeUnusable);
        let Some(owner) = self.owner_of(origin) else {
            let message = "its origin is lost: the group has abandoned it";
            return Failure::new(code, message).help("varve lv list");
        };
        let what = match (origin.backing, owner.is_pool()) {
            (Backing::Volume { .. } | Backing::Image { .. }, _) => "",
            (Backing::Snapshot { .. }, true) => "a snapshot in the pool ",
            (Backing::Snapshot { .. }, false) => "a snapshot of ",
        };
        let why = self.homes.get(&owner.id).and_then(|home| home.unusable.as_ref());
        let why = why.map(|failure| format!(": {}", failure.message)).unwrap_or_default();
        let message = format!("it is backed by {what}{group}/{}, which cannot be used{why}", owner.name);
        Failure::new(code, message)
            .help(format!("varve vg show {group}; bring its disks back, and varve pv scan PATH"))
    }

    /// The owner of an origin and where that is served.
    pub(crate) fn place_of(&self, origin: &Origin) -> Option<Place> {
        let owner = self.owner_of(origin)?;
        let home = self.homes.get(&owner.id).filter(|home| home.unusable.is_none())?;
        Some(Place { home: home.shard.clone(), owner: owner.id })
    }

    /// Pools in use, and where they are.
    pub(crate) fn pools_in_use(&self) -> Vec<(Uuid, ShardHandle)> {
        let pools = self.group.logical_volumes().iter().filter(|volume| volume.is_pool());
        let home = |id: Uuid| self.homes.get(&id).filter(|home| home.unusable.is_none());
        pools.filter_map(|pool| Some((pool.id, home(pool.id)?.shard.clone()))).collect()
    }
}

impl Control {
    /// The snapshot or read-only volume `text`, if a volume of the group `group` can be backed by it.
    pub(crate) async fn find_base(&self, text: &str, group: Uuid) -> Result<Base, Failure> {
        let asked: VolumeName = text.parse().map_err(|error| failures::bad_name(&error))?;
        if asked.snapshot.is_none() {
            if let Some(base) = self.read_only_base(&asked, group) {
                return Ok(base);
            }
            let message = format!("{asked} may change: only a read-only snapshot can be an origin");
            let help = format!("varve snap create {asked}@base --read-only, then --origin {asked}@base");
            return Err(Failure::new(Code::BadOrigin, message).help(help));
        }
        let name = snapshot_name(text)?;
        let located = self.find_volume(&name)?;
        if located.group != group {
            let message = format!("{name} is in another group than the pool");
            return Err(Failure::new(Code::BadOrigin, message).help("varve pool list"));
        }
        self.check_readable(&located, &name).await?;
        let own: Vec<String> = name.snapshot.iter().cloned().collect();
        let found = self.facts_called(&located, &own).await.pop();
        let facts = found.ok_or_else(|| {
            Failure::new(Code::SnapshotNotFound, format!("there is no snapshot {name}"))
                .help("varve snap list")
        })?;
        if !facts.read_only {
            let message = format!("{name} may be written: only a read-only snapshot can be an origin");
            let help = format!("varve snap create {}@base --read-only", name.origin());
            return Err(Failure::new(Code::BadOrigin, message).help(help));
        }
        let origin = Origin { backing: facts.backing(), bytes: facts.size };
        let owner = if facts.is_thin { facts.target.store } else { located.volume.id };
        let place = Place { home: located.home.clone(), owner };
        Ok(Base { name, origin, place, group, is_noted: facts.is_base })
    }

    /// A volume that is no thin one, if it is read-only and can be used: it is an origin as it is.
    fn read_only_base(&self, name: &VolumeName, group: Uuid) -> Option<Base> {
        let located = self.find_volume(name).ok().filter(|located| located.group == group)?;
        if located.thin.is_some() || !located.volume.read_only {
            return None;
        }
        let (id, bytes) = (located.volume.id, located.size());
        let origin = Origin { backing: Backing::Volume { id }, bytes };
        let place = Place { home: located.home, owner: id };
        Some(Base { name: name.clone(), origin, place, group, is_noted: true }) // No snapshot, so no note.
    }

    /// BELOW2: refuses to change a read-only volume that something is backed by.
    pub(crate) async fn refuse_read_only_origin(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
    ) -> Result<(), Failure> {
        if !located.volume.read_only {
            return Ok(());
        }
        let below = Backing::Volume { id: located.volume.id };
        self.refuse_origin(located.group, below, &name.to_string()).await
    }

    /// BELOW1: protects a snapshot that is about to be an origin.
    pub(crate) async fn hold_base(&self, base: &Base) -> Result<(), Failure> {
        let Some(target) = Target::of(base.origin.backing).filter(|_| !base.is_noted) else { return Ok(()) };
        let owner = base.place.owner;
        self.expect_base(base.group, target);
        let noted = base.place.home.volume(owner).set_base(target, true);
        self.answered(owner, noted.await)?;
        self.event(&base.name.to_string(), "kept, because a volume is backed by it");
        Ok(())
    }

    /// Releases origins that nothing is backed by any more, if the group has any origins. The caller has the lock of the
    /// group.
    pub(crate) async fn reconcile_origins(&self, group: Uuid) {
        let has_any = |known: &KnownGroup| !known.bases.is_empty() || !known.group.images().is_empty();
        if self.with_group(group, has_any).unwrap_or_default() {
            self.reconcile_all_origins(group).await;
        }
    }

    /// Like [`Control::reconcile_origins`], whatever is known of the group: notes that are missing are made, too.
    pub(crate) async fn reconcile_all_origins(&self, group: Uuid) {
        if let Err(failure) = self.try_reconcile_origins(group).await {
            tracing::warn!(%group, %failure, "origins that back nothing any more may be kept until the next start");
        }
    }

    async fn try_reconcile_origins(&self, group: Uuid) -> Result<(), Failure> {
        let (pools, are_all_here) = self.with_group(group, |known| {
            let pools = known.pools_in_use();
            let all = known.group.logical_volumes().iter().filter(|volume| volume.is_pool()).count();
            let are_all_here = pools.len() == all;
            (pools, are_all_here)
        })?;
        let mut wanted = Vec::new();
        for (pool, home) in pools {
            let over = home.pool(pool).origins().await;
            wanted.extend(self.answered(pool, over)?);
        }
        self.reconcile_bases(group, &wanted, are_all_here).await?;
        if are_all_here { self.reconcile_images(group, &wanted).await } else { Ok(()) }
    }

    /// BELOW3: leads the volumes of all pools of a group to their origins, as far as those are there. An origin may be a
    /// snapshot of a volume that has an origin itself.
    pub(crate) async fn attach_origins(&self, group: Uuid) {
        let Ok(pools) = self.with_group(group, KnownGroup::pools_in_use) else { return };
        loop {
            let (mut attached, mut still_missing) = (false, Vec::new());
            for (pool, home) in &pools {
                let id = *pool;
                let missing = home.pool(id).missing_origins().await;
                for origin in missing.unwrap_or_default() {
                    match self.attach(group, id, home, origin).await {
                        Ok(()) => attached = true,
                        Err(failure) => still_missing.push((origin.backing, failure)),
                    }
                }
            }
            let is_reconciled = !attached || still_missing.is_empty();
            if is_reconciled {
                for (backing, failure) in &still_missing {
                    tracing::error!(?backing, %failure, "an origin of volumes is not there");
                }
            }
            if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
                known.missing_origins = still_missing;
            }
            if is_reconciled {
                return;
            }
        }
    }

    async fn attach(
        &self,
        group: Uuid,
        pool: Uuid,
        home: &ShardHandle,
        origin: Origin,
    ) -> Result<(), Failure> {
        let below = match self.image_below(group, &origin).await? {
            Some(image) => Below::Image(image),
            None => Below::Stored(self.with_group(group, |known| {
                known.place_of(&origin).ok_or_else(|| known.unreachable(&origin))
            })??),
        };
        let attached = home.pool(pool).attach(origin, below);
        self.answered(pool, attached.await)
    }

    /// BELOW2: refuses a change of `below` while a volume is backed by it.
    pub(crate) async fn refuse_origin(&self, group: Uuid, below: Backing, name: &str) -> Result<(), Failure> {
        let (pools, all) = self.with_group(group, |known| {
            let pools = known.group.logical_volumes().iter().filter(|volume| volume.is_pool());
            (known.pools_in_use(), pools.map(|pool| (pool.id, pool.name.clone())).collect::<Vec<_>>())
        })?;
        if let Some((_, pool)) = all.iter().find(|(id, _)| !pools.iter().any(|(known, _)| known == id)) {
            let message =
                format!("the pool {pool} cannot be used, so it is unknown what is backed by {name}");
            return Err(Failure::new(Code::VolumeUnusable, message).help("varve pool list"));
        }
        let group_name = name.split('/').next().unwrap_or_default();
        for (pool, home) in pools {
            let above = home.pool(pool).above(below);
            let above = self.answered(pool, above.await)?;
            if let Some(first) = above.first() {
                let all: Vec<String> = above.iter().map(|own| format!("{group_name}/{own}")).collect();
                let message =
                    format!("{name} is the origin of others: {}", crate::commands::groups::few(&all));
                let help = format!("varve lv flatten {group_name}/{first}, or remove it");
                return Err(Failure::new(Code::SnapshotIsOrigin, message).help(help));
            }
        }
        Ok(())
    }

    /// `VG/LV@SNAP` of an origin, `VG/LV` of a read-only volume, the path of an image; its number if it is not there.
    pub(crate) async fn origin_name(&self, group: Uuid, origin: Origin) -> String {
        let unknown = match origin.backing {
            Backing::Image { id } => {
                return self.image_of(group, &origin).map_or(format!("image {id}"), |image| image.shown());
            }
            Backing::Volume { id } => {
                let named = self.name_of(id).map(|(group, volume)| format!("{group}/{volume}"));
                return named.unwrap_or_else(|| format!("volume {id}"));
            }
            Backing::Snapshot { store, number, .. } => format!("snapshot {number} of {store}"),
        };
        let Ok(Some(place)) = self.with_group(group, |known| known.place_of(&origin)) else { return unknown };
        let owner = place.owner;
        let named = place.home.volume(owner).origin_name(origin).await;
        let (Ok(Some(own)), Some((group, volume))) = (named, self.name_of(owner)) else { return unknown };
        if own.contains('@') { format!("{group}/{own}") } else { format!("{group}/{volume}@{own}") }
    }
}
