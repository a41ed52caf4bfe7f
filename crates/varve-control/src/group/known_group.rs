//! A group, as the control knows it: what was last committed, where its disks are, and where its volumes are served.

mod thin_volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use thin_volumes::ThinVolumes;
use uuid::Uuid;
use varve_api::Failure;
use varve_target::thin::Backing;
use varve_vg::model::LogicalVolume;
use varve_vg::names::VolumeName;
use varve_vg::{Group, Note, OpenGroup};
use varve_volume::ShardHandle;
use varve_volume::content::snapshot_facts::Target;

/// A group that is known.
pub(crate) struct KnownGroup {
    /// What was last committed.
    pub(crate) group: Group,
    /// The group with its disks; away while it is being changed.
    pub(crate) open: Option<OpenGroup>,
    /// What may count instead, since a change reached some disks only.
    pub(crate) undecided: Option<Group>,
    /// Whether volumes of it that were taken out of use may have requests under way.
    pub(crate) is_draining: bool,
    /// Why it is not changed any more, if so.
    pub(crate) trouble: Option<String>,
    /// Where its disks are, by identity.
    pub(crate) paths: BTreeMap<Uuid, String>,
    /// Disks that are here and too old to be used, by path.
    pub(crate) stale: Vec<String>,
    /// Where each of its volumes is served.
    pub(crate) homes: BTreeMap<Uuid, Home>,
    /// What its pools said last of their volumes.
    pub(crate) thin: ThinVolumes,
    /// Origins of volumes that are not there, and why.
    pub(crate) missing_origins: Vec<(Backing, Failure)>,
    /// Volumes and pools that were closed while pools went on that may hold their snapshots as external origins.
    pub(crate) closed: BTreeSet<Uuid>,
    /// Snapshots that are origins, as far as that is known.
    pub(crate) bases: BTreeSet<Target>,
}

/// Where a volume is served.
pub(crate) struct Home {
    /// On this shard.
    pub(crate) shard: ShardHandle,
    /// Why it cannot be used, if so.
    pub(crate) unusable: Option<Failure>,
    /// Whether it is to be asked what it holds that goes on (CONVERGE3 of `controller`).
    pub(crate) is_unasked: bool,
}

impl KnownGroup {
    /// What is known of `open`.
    pub(crate) fn new(open: OpenGroup, trouble: Option<String>) -> Self {
        let mut known = Self {
            group: open.group().clone(),
            open: None,
            undecided: None,
            is_draining: false,
            trouble,
            paths: BTreeMap::new(),
            stale: Vec::new(),
            homes: BTreeMap::new(),
            thin: ThinVolumes::default(),
            missing_origins: Vec::new(),
            closed: BTreeSet::new(),
            bases: BTreeSet::new(),
        };
        known.learn(open);
        known
    }

    /// Where its disks are that are there.
    pub(crate) fn disk_paths(&self) -> BTreeSet<PathBuf> {
        self.paths.values().map(PathBuf::from).collect()
    }

    /// A volume or pool that was served was closed, for this reason.
    pub(crate) fn note_closed(&mut self, volume: Uuid, reason: Failure) {
        let may_be_origin = self.may_be_origin(volume);
        if let Some(home) = self.homes.get_mut(&volume) {
            home.unusable = Some(reason);
            self.closed.extend(may_be_origin.then_some(volume));
        }
    }

    /// These volumes are to be asked what they hold that goes on.
    pub(crate) fn ask_again(&mut self, volumes: &[Uuid]) {
        let pools = volumes.iter().filter_map(|volume| self.thin.get(*volume)).map(|thin| thin.pool);
        let owners: BTreeSet<Uuid> = pools.chain(volumes.iter().copied()).collect();
        let homes = self.homes.iter_mut().filter(|(owner, _)| owners.contains(owner));
        homes.for_each(|(_, home)| home.is_unasked = true);
    }

    /// A volume, or those in a pool, by name.
    pub(crate) fn volumes_in(&self, owner: Uuid) -> Vec<VolumeName> {
        let own =
            self.group.logical_volumes().iter().filter(|volume| !volume.is_pool() && volume.id == owner);
        let thin = self.thin.of(owner).map(|thin| &thin.name);
        let group = self.group.name();
        let name =
            |volume: &String| VolumeName { group: group.to_owned(), volume: volume.clone(), snapshot: None };
        own.map(|volume| &volume.name).chain(thin).map(name).collect()
    }

    /// A volume or pool was asked what it holds that goes on.
    pub(crate) fn note_asked(&mut self, owner: Uuid) {
        self.homes.get_mut(&owner).into_iter().for_each(|home| home.is_unasked = false);
    }

    /// Volumes that need others of the group (CONTROLMAPPER2 of `mappers.rs`).
    pub(crate) fn mapped(&self) -> BTreeSet<Uuid> {
        let mapped = self.group.logical_volumes().iter().filter(|volume| has_devices(volume));
        mapped.map(|volume| volume.id).collect()
    }

    /// Volumes that others of the group need.
    pub(crate) fn devices(&self) -> impl Iterator<Item = Uuid> {
        self.group.logical_volumes().iter().flat_map(|volume| volume.layout.granted()).copied()
    }

    /// Whether pools may hold external origins that were closed: these lead nowhere, and keep disks open.
    pub(crate) fn may_hold_closed_origins(&self) -> bool {
        !self.closed.is_empty() && !self.pools_in_use().is_empty()
    }

    /// Whether its description is known for certain, and can be changed.
    pub(crate) fn can_be_changed(&self) -> bool {
        self.undecided.is_none() && self.trouble.is_none()
    }

    /// Whether a change of the group reached only some of its disks.
    pub(crate) fn is_half_committed(&self) -> bool {
        self.undecided.is_some() || self.open.as_ref().is_some_and(|open| !open.is_reconciled())
    }

    /// Learns the present state of `open`, and keeps it.
    pub(crate) fn learn(&mut self, open: OpenGroup) {
        self.undecided = open.undecided().cloned();
        let disks = open.group().physical_volumes().iter();
        let place = |id: Uuid| open.path(id).map(|path| (id, path.to_owned()));
        self.paths = disks.filter_map(|disk| place(disk.id)).collect();
        // What is planned names disks by the paths where they are, or were last, and the next change writes these down.
        let before = self.group.physical_volumes().iter().map(|disk| (disk.id, disk.path.clone()));
        let mut places: BTreeMap<Uuid, String> = before.collect();
        places.extend(self.paths.clone());
        self.group = open.group().with_paths(&places);
        let stale = open.notes().iter().filter_map(|note| match note {
            Note::Stale { path, .. } => Some(path.clone()),
            _ => None,
        });
        self.stale = stale.collect();
        self.open = Some(open);
    }

    /// Where a disk of the group is, or was seen last; its identity, if another one of the group is there now.
    pub(crate) fn path_of(&self, disk: Uuid) -> String {
        self.seen_at(disk).map_or_else(|| disk.to_string(), str::to_owned)
    }

    /// Where a disk of the group is, or was seen last, if no other one of the group is there now.
    pub(crate) fn seen_at(&self, disk: Uuid) -> Option<&str> {
        let seen = || self.group.pv_by_id(disk).map(|entry| &entry.path);
        let free = || seen().filter(|path| !self.paths.values().any(|taken| taken == *path));
        self.paths.get(&disk).or_else(free).map(String::as_str)
    }

    /// Disks that are not here.
    pub(crate) fn missing(&self) -> Vec<String> {
        let disks = self.group.physical_volumes().iter();
        let missing = disks.filter(|disk| disk.missing || !self.paths.contains_key(&disk.id));
        missing.map(|disk| self.path_of(disk.id)).collect()
    }
}

/// Whether a volume needs others of its group (CONTROLMAPPER2 of `mappers.rs`).
pub(crate) fn has_devices(volume: &LogicalVolume) -> bool {
    !volume.layout.granted().is_empty()
}
