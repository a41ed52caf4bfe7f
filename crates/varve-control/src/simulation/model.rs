//! What a daemon is to show: groups, volumes with their contents, snapshots, exports. Plain data beside it.

use super::host::base_of;
use super::verbs::DISK_SIZE;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use varve_api::{ExportState, GroupState, Layout, VolumeState};
use varve_block::{Durability, Extent};
use varve_sim::{Oracle, SharedOracle, WriteToken};
use varve_vg::TAIL_SIZE;
use varve_vg::disks::create::DATA_OFFSET;

/// Bytes of a disk that are for its label and metadata, in front of the extents and behind them.
const BESIDE: u64 = DATA_OFFSET + TAIL_SIZE;

/// A snapshot.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) oracle: SharedOracle,
    pub(super) read_only: bool,
    pub(super) held: bool,
}

/// A volume.
#[derive(Clone)]
pub(super) struct Volume {
    pub(super) oracle: SharedOracle,
    pub(super) layout: Layout,
    /// `VG/POOL`, if it is thin.
    pub(super) pool: Option<String>,
    pub(super) snapshots: BTreeMap<String, Snapshot>,
    /// Whether it may still need a snapshot or image that it is backed by.
    pub(super) has_origin: bool,
    /// The image in which it is, if it is in one.
    pub(super) image: Option<String>,
    /// Where its mapper listens, if it has one.
    pub(super) mapper: Option<String>,
    /// The volumes that its mapper has as its devices, `VG/LV`: one, with which it has its content in common, or two, of which the
    /// first stays as it is.
    pub(super) devices: Vec<String>,
    /// Whether a mapper copied to it: it is unknown what it holds.
    pub(super) is_spoilt: bool,
    /// Whether it was to be converted while other commands came: it has any layout on disks.
    pub(super) is_converted: bool,
    /// Volumes that were split off it.
    pub(super) copies: usize,
}

impl Volume {
    fn new(oracle: SharedOracle, layout: Layout, pool: Option<String>) -> Self {
        Self {
            oracle,
            layout,
            pool,
            snapshots: BTreeMap::new(),
            has_origin: false,
            image: None,
            mapper: None,
            devices: Vec::new(),
            is_spoilt: false,
            is_converted: false,
            copies: 0,
        }
    }

    /// Whether it may become smaller: what its snapshots show outside a pool is on the volume itself.
    pub(super) fn may_shrink(&self) -> bool {
        self.pool.is_some() || self.snapshots.is_empty()
    }

    /// It is in what was the backing image of its image.
    pub(super) fn lie_below(&mut self) {
        (self.image, self.has_origin) = (self.image.as_deref().map(base_of), false);
    }
}

/// All that there is. A copy shares the contents that a change leaves as they are.
#[derive(Clone, Default)]
pub(super) struct Model {
    /// Groups and their disks.
    pub(super) groups: BTreeMap<String, BTreeSet<String>>,
    /// Where disks end that have another size than they were made with.
    pub(super) sizes: BTreeMap<String, u64>,
    /// Volumes, `VG/LV`.
    pub(super) volumes: BTreeMap<String, Volume>,
    /// Pools, `VG/POOL`.
    pub(super) pools: BTreeSet<String>,
    /// Exports: what they serve, by their addresses.
    pub(super) exports: BTreeMap<String, String>,
    /// Numbers of volumes that were used.
    pub(super) last_number: u16,
}

/// What lists show, as far as a model says it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Lists {
    /// Disks, and the state.
    pub(super) groups: BTreeMap<String, (BTreeSet<String>, GroupState)>,
    /// Bytes that groups have of their disks.
    pub(super) sizes: BTreeMap<String, u64>,
    pub(super) volumes: BTreeMap<String, (u64, Layout, VolumeState)>,
    pub(super) pools: BTreeMap<String, VolumeState>,
    /// Size, whether it is read-only, whether it is held.
    pub(super) snapshots: BTreeMap<String, (u64, bool, bool)>,
    /// What they serve, and the state.
    pub(super) exports: BTreeMap<String, (String, ExportState)>,
}

impl Model {
    /// What lists are to show.
    pub(super) fn lists(&self) -> Lists {
        let mut lists = Lists::default();
        let groups = self.groups.iter().map(|(name, disks)| (name.clone(), (disks.clone(), GroupState::Ok)));
        lists.groups = groups.collect();
        let size = |disk: &String| self.sizes.get(disk).copied().unwrap_or(DISK_SIZE);
        let sizes = self.groups.values().flatten().map(|disk| (disk.clone(), size(disk) - BESIDE));
        lists.sizes = sizes.collect();
        let serving =
            |(address, target): (&String, &String)| (address.clone(), (target.clone(), ExportState::Serving));
        lists.exports = self.exports.iter().map(serving).collect();
        lists.pools = self.pools.iter().map(|name| (name.clone(), VolumeState::Active)).collect();
        for (name, volume) in &self.volumes {
            let size = volume.oracle.borrow().size();
            lists.volumes.insert(name.clone(), (size, volume.layout, VolumeState::Active));
            for (own, snapshot) in &volume.snapshots {
                let shown = (snapshot.oracle.borrow().size(), snapshot.read_only, snapshot.held);
                lists.snapshots.insert(format!("{name}@{own}"), shown);
            }
        }
        lists
    }

    /// What `shown` is to be: as [`Self::lists`], but the layout of a volume that was converted is one of those on disks.
    pub(super) fn lists_as(&self, shown: &Lists) -> Lists {
        let mut lists = self.lists();
        for (name, (_, layout, _)) in &mut lists.volumes {
            let found = shown.volumes.get(name).map(|(_, layout, _)| *layout);
            let on_disks = [Layout::Linear, Layout::Striped, Layout::Mirror, Layout::Ddraid];
            let is_possible = |found: &Layout| self.volumes[name].is_converted && on_disks.contains(found);
            if let Some(found) = found.filter(is_possible) {
                *layout = found;
            }
        }
        lists
    }

    /// Whether a volume or pool has this name.
    pub(super) fn is_used(&self, name: &str) -> bool {
        self.volumes.contains_key(name) || self.pools.contains(name)
    }

    /// Whether a volume is the device of a mapper: it is served to no other client.
    pub(super) fn is_granted(&self, name: &str) -> bool {
        self.volumes.values().any(|volume| volume.devices.iter().any(|device| device == name))
    }

    /// Every volume and snapshot that is served and of which it is known what it holds, with its content.
    pub(super) fn contents(&self) -> BTreeMap<String, SharedOracle> {
        let mut contents = BTreeMap::new();
        for (name, volume) in
            self.volumes.iter().filter(|(name, volume)| !volume.is_spoilt && !self.is_granted(name))
        {
            contents.insert(name.clone(), Rc::clone(&volume.oracle));
            for (own, snapshot) in &volume.snapshots {
                contents.insert(format!("{name}@{own}"), Rc::clone(&snapshot.oracle));
            }
        }
        contents
    }

    /// Of [`Self::contents`], those that clients may write to.
    pub(super) fn writable(&self) -> BTreeMap<String, SharedOracle> {
        let mut contents = self.contents();
        contents.retain(|name, _| match name.split_once('@') {
            Some((volume, own)) => !self.volumes[volume].snapshots[own].read_only,
            None => true,
        });
        contents
    }

    /// What clients may write to while a command changes other volumes: nothing of which it takes a snapshot or a copy, or that it
    /// takes back to one. What is written beside that is in it or not, which no oracle knows.
    pub(super) fn unchanged(&self, after: &Model) -> Vec<String> {
        let stays = |name: &String, volume: &Volume| {
            after.volumes.get(name).is_some_and(|later| {
                Rc::ptr_eq(&later.oracle, &volume.oracle)
                    && later.copies == volume.copies
                    && later.snapshots.keys().all(|own| volume.snapshots.contains_key(own))
            })
        };
        let changed = self.volumes.iter().filter(|(name, volume)| !stays(name, volume));
        let contents = changed.flat_map(|(_, volume)| {
            let snapshots = volume.snapshots.values().map(|snapshot| &snapshot.oracle);
            std::iter::once(&volume.oracle).chain(snapshots)
        });
        let changed: Vec<_> = contents.map(Rc::as_ptr).collect();
        let later = after.writable();
        let mut names = self.writable();
        names.retain(|name, oracle| {
            let is_same = later.get(name).is_some_and(|later| Rc::ptr_eq(later, oracle));
            is_same && !changed.contains(&Rc::as_ptr(oracle))
        });
        names.into_keys().collect()
    }

    /// What of it is in the group, or what is not.
    pub(super) fn part(&self, group: &str, is_in: bool) -> Model {
        let wanted = |name: &str| (name.split('/').next() == Some(group)) == is_in;
        let mut part = self.clone();
        part.groups.retain(|name, _| wanted(name));
        part.volumes.retain(|name, _| wanted(name));
        part.pools.retain(|name| wanted(name));
        part.exports.retain(|_, target| wanted(target));
        part
    }

    /// A number that no volume has had.
    pub(super) fn next_number(&mut self) -> u16 {
        self.last_number += 1;
        self.last_number
    }

    /// Each of two disks is found where the other one was.
    pub(super) fn exchange(&mut self, one: &str, other: &str) {
        let (first, second) = (self.sizes.remove(one), self.sizes.remove(other));
        self.sizes.extend(first.map(|size| (other.to_owned(), size)));
        self.sizes.extend(second.map(|size| (one.to_owned(), size)));
    }

    /// A disk has another path.
    pub(super) fn rename_disk(&mut self, old: &str, new: &str) {
        self.exchange(old, new);
        for disks in self.groups.values_mut().filter(|disks| disks.contains(old)) {
            disks.remove(old);
            disks.insert(new.to_owned());
        }
    }

    /// Adds a volume of zeros.
    pub(super) fn add(&mut self, name: &str, size: u64, layout: Layout, pool: Option<String>) {
        let oracle = Rc::new(RefCell::new(Oracle::new(self.next_number(), size)));
        let volume = Volume::new(oracle, layout, pool);
        self.volumes.insert(name.to_owned(), volume);
    }

    /// Adds a volume with the content of another one.
    pub(super) fn add_copy(&mut self, of: &str, name: &str) {
        let number = self.next_number();
        let source = self.volumes.get_mut(of).expect("a verb names what there is");
        source.copies += 1;
        let oracle = Rc::new(RefCell::new(source.oracle.borrow().snapshot(number)));
        self.volumes.insert(name.to_owned(), Volume::new(oracle, Layout::Linear, None));
    }

    /// Adds a volume in an image, of zeros or with the content of a backing image.
    pub(super) fn add_in_image(&mut self, name: &str, size: u64, image: String, has_origin: bool) {
        self.add(name, size, Layout::Image, None);
        let volume = self.volumes.get_mut(name).expect("it was added");
        (volume.image, volume.has_origin) = (Some(image), has_origin);
        if has_origin {
            base_content(&mut volume.oracle.borrow_mut());
        }
    }

    /// Adds a volume that the program at `mapper` maps to `devices`.
    pub(super) fn add_mapped(&mut self, name: &str, mapper: String, devices: Vec<String>) {
        let mut oracle = Rc::clone(&self.volumes[&devices[0]].oracle);
        if let Some(own) = devices.get(1) {
            self.volumes.get_mut(own).expect("a verb names what there is").is_spoilt = true;
            let copy = oracle.borrow().snapshot(self.next_number());
            oracle = Rc::new(RefCell::new(copy));
        }
        let volume = Volume { mapper: Some(mapper), devices, ..Volume::new(oracle, Layout::Mapper, None) };
        self.volumes.insert(name.to_owned(), volume);
    }

    /// Removes a volume. The device of its mapper has what was written to it.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(removed) = self.volumes.remove(name) else { return };
        if let [device] = removed.devices.as_slice() {
            self.volumes.get_mut(device).expect("it stays").oracle = removed.oracle;
        }
    }

    /// The disks of a group, the images in which its volumes lie and their backing images, and its mapper.
    pub(super) fn files_of(&self, group: &str) -> Vec<String> {
        let prefix = format!("{group}/");
        let volumes = self.volumes.iter().filter(|(name, _)| name.starts_with(&prefix));
        let mut files: Vec<String> = self.groups.get(group).into_iter().flatten().cloned().collect();
        for (_, volume) in volumes {
            files.extend(volume.image.clone());
            files.extend(volume.image.as_deref().filter(|_| volume.has_origin).map(base_of));
            files.extend(volume.mapper.clone());
        }
        files
    }

    /// Adds a volume that shows what `origin` shows.
    pub(super) fn add_over(&mut self, name: &str, pool: String, origin: &Snapshot) {
        let number = self.next_number();
        let oracle = Rc::new(RefCell::new(origin.oracle.borrow().snapshot(number)));
        let volume = Volume { has_origin: true, ..Volume::new(oracle, Layout::Thin, Some(pool)) };
        self.volumes.insert(name.to_owned(), volume);
    }

    /// Adds a snapshot of a volume as it is now.
    pub(super) fn add_snapshot(&mut self, name: &str, own: &str, read_only: bool) {
        let number = self.next_number();
        let volume = self.volumes.get_mut(name).expect("a verb names what there is");
        let oracle = volume.oracle.borrow().snapshot(number);
        let snapshot = Snapshot { oracle: Rc::new(RefCell::new(oracle)), read_only, held: false };
        volume.snapshots.insert(own.to_owned(), snapshot);
    }

    /// A snapshot, to be changed.
    pub(super) fn snapshot(&mut self, volume: &str, own: &str) -> &mut Snapshot {
        let volume = self.volumes.get_mut(volume).expect("a verb names what there is");
        volume.snapshots.get_mut(own).expect("a verb names what there is")
    }

    /// Changes the content of a volume; copies of the model keep the old one.
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Oracle, &Volume)) {
        let volume = self.volumes.get_mut(name).expect("a verb names what there is");
        let mut oracle = volume.oracle.borrow().fork();
        change(&mut oracle, volume);
        volume.oracle = Rc::new(RefCell::new(oracle));
    }
}

/// Writes the backing image of a new volume's image; the writes.
pub(super) fn base_content(oracle: &mut Oracle) -> Vec<WriteToken> {
    let size = oracle.size();
    let pieces = Extent::new(0, size).pieces(12 << 10).map(|(_, piece)| piece);
    let mut writes = Vec::new();
    for piece in pieces.filter(|piece| piece.offset % (36 << 10) != 0) {
        let write = oracle.write_started(piece);
        oracle.write_finished(write, Durability::Durable);
        writes.push(write);
    }
    writes
}

/// Everything that was acknowledged is durable: the daemon has stopped.
pub(super) fn stopped(models: &[Model]) {
    for oracle in unique(models) {
        let mut oracle = oracle.borrow_mut();
        let flush = oracle.flush_started();
        oracle.flush_finished(flush);
    }
}

/// A crash has come.
pub(super) fn crashed(models: &[Model]) {
    unique(models).iter().for_each(|oracle| oracle.borrow_mut().crashed());
}

/// Each content once, though models share it.
fn unique(models: &[Model]) -> Vec<SharedOracle> {
    let mut all: Vec<SharedOracle> = models.iter().flat_map(|model| model.contents().into_values()).collect();
    all.sort_by_key(|oracle| Rc::as_ptr(oracle).addr());
    all.dedup_by(|one, other| Rc::ptr_eq(one, other));
    all
}

/// Half of what is removed goes to the trash, which what needs its space empties; the rest goes at once.
pub(super) fn removal(name: &str) -> varve_api::VolumeRemove {
    let is_odd = name.bytes().next_back().is_some_and(|last| last % 2 == 1);
    varve_api::VolumeRemove { now: is_odd, ..Default::default() }
}
