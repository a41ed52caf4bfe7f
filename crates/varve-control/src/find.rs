//! From names to what is known by them.

use super::Control;
use super::group::known_group::KnownGroup;
use crate::failures;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_vg::model::{Layout, LogicalVolume, Role};
use varve_vg::names::VolumeName;
use varve_volume::content::thin::ThinVolume;
use varve_volume::doors::export_target::Target;
use varve_volume::doors::limits::Limits;
use varve_volume::{NoAnswer, ShardHandle};

/// A volume and where it is served.
pub(super) struct LocatedVolume {
    /// Its group.
    pub(super) group: Uuid,
    /// Bytes of an extent of the group.
    pub(super) extent_size: u64,
    /// What its group says of it.
    pub(super) volume: LogicalVolume,
    /// The first of its extents that is to be cleared, if one is.
    pub(super) uncleared: Option<u64>,
    /// The shard on which it lives.
    pub(super) home: ShardHandle,
    /// Why it cannot be used, if it cannot.
    pub(super) unusable: Option<Failure>,
    /// What its pool says of it, if it is thin. Then its group says nothing.
    pub(super) thin: Option<ThinVolume>,
    /// Whether it cannot be used only because its origin is not there.
    pub(super) lacks_origin: bool,
}

impl LocatedVolume {
    /// Bytes of the volume.
    pub(super) fn size(&self) -> u64 {
        self.thin.as_ref().map_or_else(
            || self.volume.layout.size(self.served_extents(), self.extent_size),
            |thin| thin.bytes,
        )
    }

    /// Extents of the volume that are served, or will be at once; those that are being cleared behind them are not. A new
    /// volume that is being cleared is as large as it will be.
    pub(super) fn served_extents(&self) -> u64 {
        self.uncleared.filter(|from| *from > 0).unwrap_or(self.volume.extents)
    }

    /// The pool of a thin volume.
    pub(super) fn pool(&self) -> Uuid {
        self.thin.as_ref().map_or(self.volume.id, |thin| thin.pool)
    }

    /// Where a door onto the volume, or onto one of its snapshots, leads; it has no limits.
    pub(super) fn target(&self, snapshot: Option<String>, read_only: bool) -> Target {
        let limits = Limits::default();
        Target { volume: self.volume.id, snapshot, home: self.home.clone(), read_only, limits }
    }

    /// The volume, if it can be used.
    pub(super) fn usable(self) -> Result<Self, Failure> {
        match &self.unusable {
            None => Ok(self),
            Some(failure) => Err(failure.clone()),
        }
    }
}

impl Control {
    /// The group with this name or identity.
    pub(super) fn find_group(&self, name: &str) -> Result<Uuid, Failure> {
        let groups = self.groups.known.borrow();
        if let Some(id) = Uuid::parse_str(name).ok().filter(|id| groups.contains_key(id)) {
            return Ok(id);
        }
        varve_vg::names::parse_group(name).map_err(|error| failures::bad_name(&error))?;
        let named: Vec<Uuid> =
            groups.iter().filter(|(_, known)| known.group.name() == name).map(|(id, _)| *id).collect();
        match named.as_slice() {
            [id] => Ok(*id),
            [] => Err(self.no_group(name)),
            [one, other, ..] => {
                let message = format!("two groups are called {name}: {one} and {other}");
                Err(Failure::new(Code::GroupNameTwice, message).help(format!("varve vg rename {other} NEW")))
            }
        }
    }

    /// The error of a name that no usable group has: there is none, or it is refused.
    fn no_group(&self, name: &str) -> Failure {
        let refused = self.groups.refused.borrow();
        match refused.iter().find(|refused| refused.id.to_string() == name) {
            Some(refused) => {
                let message = format!("group {name}: {} ({})", refused.problem, refused.paths.join(", "));
                Failure::new(Code::GroupDamaged, message)
                    .help(failures::unquoted(&refused.problem.help()))
                    .about(name, None)
            }
            None => {
                Failure::new(Code::GroupNotFound, format!("there is no group {name}")).help("varve vg list")
            }
        }
    }

    /// What is known of a group.
    pub(super) fn with_group<T>(&self, id: Uuid, look: impl FnOnce(&KnownGroup) -> T) -> Result<T, Failure> {
        let missing =
            || Failure::new(Code::GroupNotFound, format!("there is no group {id}")).help("varve vg list");
        self.groups.known.borrow().get(&id).map(look).ok_or_else(missing)
    }

    /// The volume with this name, or the volume of the snapshot with this name, whether it can be used or not.
    pub(super) fn find_any_volume(&self, name: &VolumeName) -> Result<LocatedVolume, Failure> {
        let group = self.find_group(&name.group)?;
        self.with_group(group, |known| {
            let missing = || {
                Failure::new(
                    Code::VolumeNotFound,
                    format!("there is no volume {}/{}", name.group, name.volume),
                )
                .help(format!("varve lv list {}", name.group))
            };
            match known.group.lv(&name.volume) {
                Some(volume) if volume.is_pool() => {
                    let pool = format!("{}/{}", name.group, name.volume);
                    Err(Failure::new(Code::IsPool, format!("{pool} is a pool"))
                        .help(format!("varve pool show {pool}")))
                }
                Some(volume) => Ok(self.located(known, group, volume.clone(), None)),
                None => {
                    let thin = known.thin.named(&name.volume).ok_or_else(missing)?;
                    Ok(self.located(known, group, entry(thin), Some(thin.clone())))
                }
            }
        })?
    }

    /// All volumes of a group, whether they can be used or not.
    pub(super) fn locate_all(&self, group: Uuid, known: &KnownGroup) -> Vec<LocatedVolume> {
        let own = known.group.logical_volumes().iter().filter(|volume| !volume.is_pool());
        let own = own.map(|volume| self.located(known, group, volume.clone(), None));
        let thin = known.thin.all();
        own.chain(thin.map(|thin| self.located(known, group, entry(thin), Some(thin.clone())))).collect()
    }

    /// The pool with this name, whether it can be used or not.
    pub(super) fn find_pool(&self, name: &VolumeName) -> Result<LocatedVolume, Failure> {
        let group = self.find_group(&name.group)?;
        self.with_group(group, |known| {
            let volume = known.group.lv(&name.volume).filter(|volume| volume.is_pool());
            let volume = volume.cloned().ok_or_else(|| {
                let message = format!("there is no pool {}/{}", name.group, name.volume);
                Failure::new(Code::PoolNotFound, message).help("varve pool list")
            })?;
            Ok(self.located(known, group, volume, None))
        })?
    }

    /// Like [`Control::find_any_volume`], for a volume that must be usable.
    pub(super) fn find_volume(&self, name: &VolumeName) -> Result<LocatedVolume, Failure> {
        self.find_any_volume(name)?.usable()
    }

    /// Like [`Control::find_volume`], for requests about its snapshots that read no byte of them: the pool of a thin volume
    /// knows them even if their origin is not there.
    pub(super) fn find_volume_for_snapshots(&self, name: &VolumeName) -> Result<LocatedVolume, Failure> {
        let located = self.find_any_volume(name)?;
        if located.lacks_origin { Ok(located) } else { located.usable() }
    }

    /// Group and name of the volume with this identity, outside of the trash.
    pub(super) fn name_of(&self, volume: Uuid) -> Option<(String, String)> {
        self.groups.known.borrow().values().find_map(|known| {
            let entry = known.group.logical_volumes().iter().find(|entry| entry.id == volume);
            let thin = || known.thin.get(volume).filter(|thin| thin.trash.is_none()).map(|thin| &thin.name);
            let name = entry.map(|entry| &entry.name).or_else(thin)?;
            Some((known.group.name().to_owned(), name.clone()))
        })
    }

    /// What a volume or pool answered; the remedy of an error names it.
    pub(super) fn answered<T>(
        &self,
        id: Uuid,
        answer: Result<Result<T, Failure>, NoAnswer>,
    ) -> Result<T, Failure> {
        answer.map_err(failures::gone)?.map_err(|failure| self.about(id, failure))
    }

    /// `failure` of a volume or pool, with its name in the remedy.
    pub(super) fn about(&self, id: Uuid, failure: Failure) -> Failure {
        let is_pool = |known: &KnownGroup| {
            known.group.logical_volumes().iter().any(|entry| entry.id == id && entry.is_pool())
        };
        let pool_of = |known: &KnownGroup| {
            let found = known.thin.get(id).map(|thin| thin.pool);
            found.or_else(|| is_pool(known).then_some(id))
        };
        let pool = self.groups.known.borrow().values().find_map(pool_of);
        failure.about(&self.subject(id), pool.map(|pool| self.subject(pool)).as_deref())
    }

    /// The shard on which the volume with this identity lives.
    pub(super) fn home_of(&self, volume: Uuid) -> Option<ShardHandle> {
        self.groups.known.borrow().values().find_map(|known| {
            let thin = known.thin.get(volume);
            let home = known.homes.get(&thin.map_or(volume, |thin| thin.pool))?;
            Some(home.shard.clone())
        })
    }

    /// Why the volume or pool with this identity cannot be used, if so.
    pub(super) fn unusable(&self, volume: Uuid) -> Option<Failure> {
        let groups = self.groups.known.borrow();
        groups.values().find_map(|known| known.homes.get(&volume)?.unusable.clone())
    }

    /// A volume, pool or thin volume with its home. While its group is being changed it may have none.
    fn located(
        &self,
        known: &KnownGroup,
        group: Uuid,
        volume: LogicalVolume,
        thin: Option<ThinVolume>,
    ) -> LocatedVolume {
        let place = thin.as_ref().map_or(volume.id, |thin| thin.pool);
        let (home, unusable) = match known.homes.get(&place) {
            Some(home) => (home.shard.clone(), home.unusable.clone()),
            None => {
                let name = format!("{}/{}", known.group.name(), volume.name);
                let failure = Failure::new(Code::VolumeUnusable, format!("{name} is not in use now"));
                (self.shards[0].clone(), Some(failure.help("try again; `varve status` says more")))
            }
        };
        // A volume is served only when all that it is backed by is (BELOW3 of `origins.rs`).
        let unserved = thin.as_ref().filter(|thin| !thin.is_served);
        let origin_missing = unserved.map(|thin| known.origin_missing(&thin.name, thin.origin));
        let lacks_origin = origin_missing.is_some() && unusable.is_none();
        let unusable = unusable.or(origin_missing);
        LocatedVolume {
            group,
            extent_size: known.group.extent_size(),
            uncleared: known.group.uncleared(volume.id),
            volume,
            home,
            unusable,
            thin,
            lacks_origin,
        }
    }

    /// Refuses the name of a snapshot that there is not.
    pub(super) async fn check_snapshot(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
    ) -> Result<(), Failure> {
        let Some(snapshot) = name.snapshot.clone() else { return Ok(()) };
        let volume = located.volume.id;
        let found = located.home.volume(volume).has_snapshot(snapshot).await.map_err(failures::gone)?;
        if found == Some(true) {
            return Ok(());
        }
        let help = format!("varve snap list {}/{}", name.group, name.volume);
        Err(Failure::new(Code::SnapshotNotFound, format!("there is no snapshot {name}")).help(help))
    }

    /// Refuses a snapshot of which nothing can be read, too: its origin is missing, though its volume may need that no more.
    pub(super) async fn check_readable(
        &self,
        located: &LocatedVolume,
        name: &VolumeName,
    ) -> Result<(), Failure> {
        self.check_snapshot(located, name).await?;
        let snapshot: Vec<String> = name.snapshot.iter().cloned().collect();
        let facts = self.facts_called(located, &snapshot).await;
        let Some(origin) = facts.first().and_then(|facts| facts.missing_origin) else { return Ok(()) };
        Err(self.with_group(located.group, |known| known.origin_missing(&name.volume, Some(origin)))?)
    }
}

/// `VG/LV`.
pub(super) fn volume_name(text: &str) -> Result<VolumeName, Failure> {
    VolumeName::parse_volume(text).map_err(|error| failures::bad_name(&error))
}

/// What a group would say of a thin volume, if it knew it.
pub(super) fn entry(thin: &ThinVolume) -> LogicalVolume {
    LogicalVolume {
        name: thin.name.clone(),
        id: thin.id,
        role: Role::Volume,
        layout: Layout::Linear,
        read_only: false,
        created: varve_block::UnixTime(thin.created),
        extents: 0,
        segments: Vec::new(),
        store_policy: None,
        array_policy: None,
        store: None,
        independent_stores: Vec::new(),
        inactive: None,
    }
}
