//! Whether a description makes sense: every rule of the text, each with an error that names the place.

use super::image::is_snapshot_name;
use super::trash::{TRASH_KEEP_S_MAX, TRASH_MAX};
use super::{
    Area, ConversionEntry, Description, Discards, EXTENT_SIZE_MAX, EXTENT_SIZE_MIN, ImageEntry, Layout,
    LogicalVolumeEntry, MemberEntry, MetadataEntry, OverCommit, PhysicalVolumeEntry, Role, SnapshotSetEntry,
    StoreEntry, StorePolicyEntry, TextError, WhenFull,
};
use crate::name::check_name;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;
use varve_block::{KIB, MIB, is_aligned};

/// The largest number of TOML.
pub(super) const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();

impl Description {
    /// Whether TEXT1 to TEXT28 hold; else the first that does not.
    pub fn check(&self) -> Result<(), TextError> {
        let size = self.group.extent_size;
        if !size.is_power_of_two() || !(EXTENT_SIZE_MIN..=EXTENT_SIZE_MAX).contains(&size) {
            return Err(TextError::ExtentSize(size));
        }
        if self.group.sequence == 0 || self.group.sequence > NUMBER_MAX {
            return Err(TextError::Sequence(self.group.sequence));
        }
        self.group.metadata.iter().try_for_each(check_metadata)?;
        self.check_names()?;
        self.check_ids()?;
        self.physical_volumes.iter().try_for_each(|pv| check_pv(pv, size))?;
        self.logical_volumes.iter().try_for_each(|lv| check_lv(lv, size))?;
        self.snapshot_sets.iter().try_for_each(check_set)?;
        self.images.iter().try_for_each(check_image)?;
        self.check_jobs()?;
        self.check_schedules()?;
        self.check_trash()?;
        self.check_files()?;
        self.check_granted()?;
        self.check_areas()
    }

    fn check_names(&self) -> Result<(), TextError> {
        let named =
            |place: String, name: &str| check_name(name).map_err(|error| TextError::Name { place, error });
        named("the group".into(), &self.group.name)?;
        let mut volumes = HashSet::new();
        for lv in &self.logical_volumes {
            named(format!("the volume {:?}", lv.name), &lv.name)?;
            if !volumes.insert(&lv.name) {
                return Err(TextError::NameTwice(lv.name.clone()));
            }
        }
        let mut disks = HashSet::new();
        match self.physical_volumes.iter().find(|pv| !disks.insert(pv.name)) {
            Some(pv) => Err(TextError::NameTwice(pv.name.to_string())),
            None => Ok(()),
        }
    }

    fn check_ids(&self) -> Result<(), TextError> {
        let group = [("the group".to_owned(), self.group.id)].into_iter();
        let disks = self.physical_volumes.iter().map(|pv| (pv.name.to_string(), pv.id));
        let volumes = self.all_volumes().map(|lv| (lv.name.clone(), lv.id));
        let stores = self.all_volumes().flat_map(|lv| {
            let of = |store| {
                let place = place_of_store(lv, store);
                std::iter::once((place.clone(), store.id)).chain(ids_of_members(place, &store.layout))
            };
            ids_of_members(lv.name.clone(), &lv.layout).chain(lv.stores().flat_map(of))
        });
        let mut seen = HashSet::new();
        let sets = self.snapshot_sets.iter().map(|set| ("a set of snapshots".to_owned(), set.id));
        let images = self.images.iter().map(|image| (place_of_image(image), image.id));
        let conversions = self.conversions().map(|entry| (place_of_conversion(entry), entry.id));
        let parts = self.conversions().flat_map(|entry| {
            entry.parts.iter().flat_map(|part| ids_of_members(place_of_conversion(entry), &part.layout))
        });
        let schedules =
            self.schedules.iter().map(|schedule| (format!("the schedule {:?}", schedule.name), schedule.id));
        let owners =
            schedules.chain(group).chain(disks).chain(volumes).chain(stores).chain(sets).chain(images);
        for (place, id) in owners.chain(conversions).chain(parts) {
            if id.is_nil() {
                return Err(TextError::IdNil(place));
            }
            if !seen.insert(id) {
                return Err(TextError::IdTwice(id));
            }
        }
        Ok(())
    }

    /// TEXT21: no image that is written is used twice.
    fn check_files(&self) -> Result<(), TextError> {
        let mut read: HashSet<&str> = self.images.iter().map(|image| image.path.as_str()).collect();
        for lv in &self.logical_volumes {
            if let Layout::Image { path, .. } = &lv.layout
                && !read.insert(path)
            {
                let problem = "its image is that of another volume, or one that others are backed by";
                return Err(TextError::Shape { place: lv.name.clone(), problem });
            }
        }
        Ok(())
    }

    /// Checks the devices of mappers (TEXT23).
    fn check_granted(&self) -> Result<(), TextError> {
        let volumes: HashMap<_, _> = self.logical_volumes.iter().map(|lv| (lv.id, lv)).collect();
        let mut granted = HashSet::new();
        for (lv, id) in
            self.logical_volumes.iter().flat_map(|lv| lv.layout.granted().iter().map(move |id| (lv, id)))
        {
            let is_fit = |device: &&LogicalVolumeEntry| {
                device.role == Role::Volume
                    && device.stores().next().is_none()
                    && !matches!(device.layout, Layout::Mapper { .. })
            };
            let problem = match volumes.get(id).filter(|device| is_fit(device)) {
                None => {
                    "a mapper names volumes of its group that are no pools, have no snapshots, and are not mapped"
                }
                Some(_) if !granted.insert(id) => "a volume is a device of one mapper, once",
                Some(_) => continue,
            };
            return Err(TextError::Shape { place: lv.name.clone(), problem });
        }
        Ok(())
    }

    /// Checks that every area is on its disk, owned once, and none on a spare (TEXT4, TEXT5, TEXT18).
    fn check_areas(&self) -> Result<(), TextError> {
        let disks: HashMap<_, _> = self.physical_volumes.iter().map(|pv| (pv.name, pv)).collect();
        let mut owned = Vec::new();
        for (place, area) in self.areas() {
            let Some(disk) = disks.get(&area.pv) else {
                return Err(TextError::NoSuchPv { place, pv: area.pv });
            };
            if area.count == 0 || area.start.checked_add(area.count).is_none_or(|end| end > disk.extents) {
                return Err(TextError::AreaOutside { place, area });
            }
            if disk.spare {
                return Err(TextError::Shape { place, problem: "nothing lies on a spare" });
            }
            owned.push((area, place));
        }
        owned.sort();
        for pair in owned.windows(2) {
            let [(area, first), (next, second)] = pair else { unreachable!("windows of two") };
            if area.pv == next.pv && next.start < area.end() {
                let (first, second) = (first.clone(), second.clone());
                return Err(TextError::OwnedTwice { pv: area.pv, extent: next.start, first, second });
            }
        }
        Ok(())
    }

    /// Every area that something owns, and the name of its owner.
    fn areas(&self) -> impl Iterator<Item = (String, Area)> {
        let of_volumes = self.all_volumes().flat_map(|lv| {
            let own = lv.space().areas().map(|area| (lv.name.clone(), area));
            let stores = lv.stores().flat_map(move |store| {
                store.space().areas().map(move |area| (place_of_store(lv, store), area))
            });
            own.chain(stores)
        });
        of_volumes.chain(self.areas_of_jobs())
    }

    /// Checks what is in the trash (TEXT28), but for ids and areas.
    fn check_trash(&self) -> Result<(), TextError> {
        let problem = |problem| Err(TextError::Shape { place: "the group".to_owned(), problem });
        if self.trash.len() > TRASH_MAX {
            return problem("at most 256 volumes and pools are in its trash");
        }
        if self.group.trash_keep_s > Some(TRASH_KEEP_S_MAX) {
            return problem("`trash_keep_s` is at most 366 days");
        }
        self.trash.iter().try_for_each(|entry| {
            let lv = &entry.volume;
            let place = || format!("the volume {:?} in the trash", lv.name);
            check_name(&lv.name).map_err(|error| TextError::Name { place: place(), error })?;
            if !lv.layout.takes_space() {
                return Err(TextError::Shape { place: place(), problem: "what is in the trash is on disks" });
            }
            check_lv(lv, self.group.extent_size)
        })
    }
}

fn ids_of_members(place: String, layout: &Layout) -> impl Iterator<Item = (String, Uuid)> {
    let log = layout.log().map(|log| (format!("the log of {place}"), log.id));
    let named =
        move |(index, member): (usize, &MemberEntry)| (format!("member {index} of {place}"), member.id);
    layout.members().iter().enumerate().map(named).chain(log)
}

fn place_of_conversion(entry: &ConversionEntry) -> String {
    format!("the conversion of {}", entry.volume)
}

fn place_of_store(lv: &LogicalVolumeEntry, store: &StoreEntry) -> String {
    if lv.store.as_ref().is_some_and(|shared| shared.id == store.id) {
        return format!("the exception store of {}", lv.name);
    }
    format!("the exception store {} of {}", store.id, lv.name)
}

/// Whether the text takes this reason why a volume is not active (TEXT15).
fn is_reason(reason: &str) -> bool {
    (1..=500).contains(&reason.chars().count()) && !reason.chars().any(char::is_control)
}

/// Checks a budget for metadata (TEXT13).
fn check_metadata(metadata: &MetadataEntry) -> Result<(), TextError> {
    metadata.problem().map_or(Ok(()), |problem| Err(TextError::Shape { place: "the group".into(), problem }))
}

/// Checks that the extents of a physical volume fit it (TEXT3).
fn check_pv(pv: &PhysicalVolumeEntry, extent_size: u64) -> Result<(), TextError> {
    let end = pv.extents.checked_mul(extent_size).and_then(|length| pv.data_offset.checked_add(length));
    let inside = end.is_some_and(|end| end <= pv.size);
    if pv.extents == 0 || !inside || pv.size > NUMBER_MAX || !is_aligned(pv.data_offset, 4 * KIB) {
        return Err(TextError::PhysicalVolume(pv.name));
    }
    Ok(())
}

/// TEXT6 to TEXT8, TEXT10, TEXT12, TEXT15, TEXT16, TEXT19, TEXT21, TEXT22, TEXT24.
pub(super) fn check_lv(lv: &LogicalVolumeEntry, extent_size: u64) -> Result<(), TextError> {
    let problem = |problem| Err(TextError::Shape { place: lv.name.clone(), problem });
    if let Some(wrong) = lv.layout.problem(lv.extents, &lv.segments, extent_size) {
        return problem(wrong);
    }
    if !lv.inactive.iter().all(|reason| is_reason(reason)) {
        return problem("inactive is a reason of 1 to 500 characters on one line");
    }
    if !lv.store_policy.iter().all(is_policy) {
        return problem(
            "store_policy: extend_at_percent is 1 to 99, extend_by_percent 1 to 1000, pause_timeout_ms at most a year",
        );
    }
    if let Some(wrong) = lv.array_policy.and_then(|policy| policy.problem()) {
        return problem(wrong);
    }
    let drops = lv.store_policy.is_some_and(|policy| policy.when_full == WhenFull::DropOldest);
    let lies_on_disks = lv.layout.takes_space();
    if lv.is_pool() && (lv.read_only || drops || lv.stores().next().is_some() || !lies_on_disks) {
        return problem("a pool lies on disks, is writable, has no exception store and drops no snapshots");
    }
    if matches!(lv.layout, Layout::Image { .. }) && lv.role != Role::Volume {
        return problem("a volume in an image is no copy of metadata");
    }
    let is_of_pools = |policy: StorePolicyEntry| {
        (policy.discards, policy.over_commit) != (Discards::Keep, OverCommit::Allow)
    };
    if !lv.is_pool() && lv.store_policy.is_some_and(is_of_pools) {
        return problem("only a pool declares `discards` and `over_commit`");
    }
    lv.stores().try_for_each(|store| check_store(lv, store, extent_size))
}

/// Whether the text takes the policy of an exception store (TEXT10).
fn is_policy(policy: &StorePolicyEntry) -> bool {
    const YEAR_MS: u64 = 366 * 24 * 3600 * 1000;
    policy.extend_at_percent.is_none_or(|percent| (1..=99).contains(&percent))
        && (1..=1000).contains(&policy.extend_by_percent)
        && policy.pause_timeout_ms <= YEAR_MS
}

/// TEXT6 to TEXT8 and TEXT16 of an exception store.
fn check_store(lv: &LogicalVolumeEntry, store: &StoreEntry, extent_size: u64) -> Result<(), TextError> {
    let problem = |problem| Err(TextError::Shape { place: place_of_store(lv, store), problem });
    if !store.layout.takes_space() {
        return problem("an exception store lies on disks");
    }
    if let Some(wrong) = store.layout.problem(store.extents, &store.segments, extent_size) {
        return problem(wrong);
    }
    if !store.chunk_size.is_power_of_two() || !(4 * KIB..=MIB).contains(&store.chunk_size) {
        return problem("chunk_size must be a power of two from 4 KiB to 1 MiB");
    }
    Ok(())
}

/// Checks a set of snapshots (TEXT11).
fn check_set(set: &SnapshotSetEntry) -> Result<(), TextError> {
    let place = || format!("the set of snapshots {}", set.id);
    if set.members.is_empty() || set.members.iter().any(|member| member.names.is_empty()) {
        return Err(TextError::Shape { place: place(), problem: "it names no snapshot" });
    }
    if set.members.iter().any(|member| member.after > NUMBER_MAX) {
        return Err(TextError::Shape { place: place(), problem: "`after` is the number of no snapshot" });
    }
    let mut names = set.members.iter().flat_map(|member| &member.names);
    names.try_for_each(|name| check_name(name).map_err(|error| TextError::Name { place: place(), error }))
}

/// Checks a disk image that backs volumes (TEXT14).
fn check_image(image: &ImageEntry) -> Result<(), TextError> {
    let problem = |problem| Err(TextError::Shape { place: place_of_image(image), problem });
    if !image.path.starts_with('/') {
        return problem("`path` is absolute");
    }
    if !(1..=NUMBER_MAX).contains(&image.bytes) {
        return problem("`bytes` is at least 1");
    }
    if let Some(snapshot) = &image.snapshot
        && (image.format.is_raw() || !is_snapshot_name(snapshot))
    {
        return problem("`snapshot` names one in a qcow2 image, in 1 to 1024 bytes on one line");
    }
    Ok(())
}

fn place_of_image(image: &ImageEntry) -> String {
    format!("the image {:?}", image.path)
}
