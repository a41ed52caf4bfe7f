//! From names to what is known by them.

use super::Control;
use super::groups::KnownGroup;
use crate::failures;
use crate::shard::here;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_os::{ShardContext, ShardHandle};
use varve_vg::model::LogicalVolume;
use varve_vg::names::VolumeName;

/// A volume and where it is served.
pub(super) struct Located {
    /// Its group.
    pub(super) group: Uuid,
    /// Bytes of an extent of the group.
    pub(super) extent_size: u64,
    /// What its group says of it.
    pub(super) volume: LogicalVolume,
    /// The shard on which it lives.
    pub(super) home: ShardHandle,
    /// Why it cannot be used, if it cannot.
    pub(super) unusable: Option<Failure>,
}

impl Located {
    /// Bytes of the volume.
    pub(super) fn size(&self) -> u64 {
        self.volume.extents * self.extent_size
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
        let groups = self.groups.borrow();
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
        let refused = self.refused.borrow();
        match refused.iter().find(|refused| refused.id.to_string() == name) {
            Some(refused) => {
                let message = format!("group {name}: {} ({})", refused.problem, refused.paths.join(", "));
                Failure::new(Code::GroupDamaged, message).help(failures::unquoted(&refused.problem.help()))
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
        self.groups.borrow().get(&id).map(look).ok_or_else(missing)
    }

    /// The volume with this name, or the volume of the snapshot with this name, whether it can be used or not.
    pub(super) fn find_any_volume(&self, name: &VolumeName) -> Result<Located, Failure> {
        let group = self.find_group(&name.group)?;
        self.with_group(group, |known| {
            let missing = || {
                Failure::new(
                    Code::VolumeNotFound,
                    format!("there is no volume {}/{}", name.group, name.volume),
                )
                .help(format!("varve lv list {}", name.group))
            };
            let volume = known.group.lv(&name.volume).cloned().ok_or_else(missing)?;
            let home = known.homes.get(&volume.id).expect("every volume of a known group has a home");
            let (home, unusable) = (home.shard.clone(), home.unusable.clone());
            Ok(Located { group, extent_size: known.group.extent_size(), volume, home, unusable })
        })?
    }

    /// Like [`Control::find_any_volume`], for a volume that must be usable.
    pub(super) fn find_volume(&self, name: &VolumeName) -> Result<Located, Failure> {
        self.find_any_volume(name)?.usable()
    }

    /// Group and name of the volume with this identity.
    pub(super) fn name_of(&self, volume: Uuid) -> Option<(String, String)> {
        self.groups.borrow().values().find_map(|known| {
            let volumes = known.group.logical_volumes();
            let found = volumes.iter().find(|entry| entry.id == volume)?;
            Some((known.group.name().to_owned(), found.name.clone()))
        })
    }

    /// The shard on which the volume with this identity lives.
    pub(super) fn home_of(&self, volume: Uuid) -> Option<ShardHandle> {
        self.groups.borrow().values().find_map(|known| Some(known.homes.get(&volume)?.shard.clone()))
    }

    /// Refuses the name of a snapshot that there is not.
    pub(super) async fn check_snapshot(&self, located: &Located, name: &VolumeName) -> Result<(), Failure> {
        let Some(snapshot) = name.snapshot.clone() else { return Ok(()) };
        let volume = located.volume.id;
        let found = located.home.run(async move |_: ShardContext| {
            here().family(volume).is_some_and(|family| family.has_snapshot(&snapshot))
        });
        if found.await.map_err(failures::gone)? {
            return Ok(());
        }
        let help = format!("varve snap list {}/{}", name.group, name.volume);
        Err(Failure::new(Code::SnapshotNotFound, format!("there is no snapshot {name}")).help(help))
    }
}
