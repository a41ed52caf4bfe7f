//! A volume group in memory: its description, known to make sense, and questions about it.
//!
//! Invariant GROUP1: the description of a [`Group`] passes [`Description::check`]; nothing else makes a `Group`.

use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_block::Extent;
pub use varve_format::text::{
    Area, ArrayPolicyEntry as ArrayPolicy, CachePolicy, ConversionEntry as Conversion, ConvertedPart,
    Description, Discards, GroupEntry, ImageEntry as Image, ImageFormat, JobEntry as Job, JobWork,
    Keep as ScheduleKeep, Layout, LogEntry as ArrayLog, LogicalVolumeEntry as LogicalVolume,
    MEMBER_METADATA_SIZE_MIN, MadeSnapshots, MemberEntry as Member, MetadataEntry as Metadata, MetadataOrder,
    MoveEntry as DiskMove, MoveStep, OverCommit, PhysicalVolumeEntry as PhysicalVolume, PvName, ReadPolicy,
    RemovedSnapshots, Role, ScheduleEntry as Schedule, ScheduledVolume, ScrubPosition, Segment,
    SetMemberEntry as SetMember, SnapshotSetEntry as SnapshotSet, Space, StoreEntry as Store,
    StorePolicyEntry as StorePolicy, TRASH_KEEP_S_DEFAULT, TextError, TrashEntry as Trashed, WhenFull,
};

/// A volume group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    description: Description,
}

/// How much of a group is used, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GroupUse {
    /// All extents of all disks, missing ones included.
    pub size: u64,
    /// Extents that nothing owns and that can be allocated.
    pub free: u64,
    /// Extents of missing disks.
    pub missing: u64,
    /// Extents of spares that are here.
    pub spare: u64,
    /// Extents of what is in the trash, which is emptied before anything fails for want of space; those of missing disks and spares are not
    /// among them.
    pub trash: u64,
}

impl GroupUse {
    /// What a change can be given: what is free, and what the trash gives back.
    pub fn available(&self) -> u64 {
        self.free + self.trash
    }
}

impl Group {
    /// The group that `description` describes.
    pub fn new(description: Description) -> Result<Self, TextError> {
        description.check()?;
        Ok(Self { description })
    }

    /// The group that `text` describes.
    pub fn from_text(text: &str) -> Result<Self, TextError> {
        Ok(Self { description: Description::decode(text)? })
    }

    /// The same group as version `sequence`, from 1 on.
    pub(crate) fn numbered(&self, sequence: u64) -> Self {
        let mut description = self.description.clone();
        description.group.sequence = sequence;
        Self::new(description).expect("GROUP1: a number from 1 on breaks no rule")
    }

    /// The text that describes the group; also what a backup holds.
    pub fn text(&self) -> String {
        self.description.encode()
    }

    /// All that is known of the group.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Id, name, sequence, extent size, dates.
    pub fn entry(&self) -> &GroupEntry {
        &self.description.group
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.description.group.name
    }

    /// What it is.
    pub fn id(&self) -> Uuid {
        self.description.group.id
    }

    /// Bytes of an extent.
    pub fn extent_size(&self) -> u64 {
        self.description.group.extent_size
    }

    /// How the metadata of its stores and pools is kept.
    pub fn metadata(&self) -> Metadata {
        self.description.group.metadata.unwrap_or_default()
    }

    /// Its physical volumes.
    pub fn physical_volumes(&self) -> &[PhysicalVolume] {
        &self.description.physical_volumes
    }

    /// Its logical volumes.
    pub fn logical_volumes(&self) -> &[LogicalVolume] {
        &self.description.logical_volumes
    }

    /// Sets of snapshots that do not count yet.
    pub fn snapshot_sets(&self) -> &[SnapshotSet] {
        &self.description.snapshot_sets
    }

    /// Disk images that back volumes of its pools.
    pub fn images(&self) -> &[Image] {
        &self.description.images
    }

    /// When snapshots of its volumes are made and removed.
    pub fn schedules(&self) -> &[Schedule] {
        &self.description.schedules
    }

    /// The schedule called `name`.
    pub fn schedule(&self, name: &str) -> Option<&Schedule> {
        self.schedules().iter().find(|schedule| schedule.name == name)
    }

    /// Volumes and pools that were removed and can be brought back.
    pub fn trash(&self) -> &[Trashed] {
        &self.description.trash
    }

    /// Bytes of the extents of what is in the trash.
    pub fn trash_bytes(&self) -> u64 {
        let all = self.trash().iter().flat_map(|entry| areas(&entry.volume));
        self.bytes(all.map(|area| area.count).sum())
    }

    /// Seconds for which volumes and pools that are removed stay in the trash; 0 if they go at once.
    pub fn trash_keep_s(&self) -> u64 {
        self.description.group.trash_keep_s.unwrap_or(TRASH_KEEP_S_DEFAULT)
    }

    /// Disks that are being emptied.
    pub fn moves(&self) -> impl Iterator<Item = &DiskMove> {
        self.description.moves()
    }

    /// The move that empties the disk `name`.
    pub fn move_from(&self, name: PvName) -> Option<&DiskMove> {
        self.moves().find(|entry| entry.from == name)
    }

    /// Volumes that are being converted to another layout.
    pub fn conversions(&self) -> impl Iterator<Item = &Conversion> {
        self.description.conversions()
    }

    /// The conversion of a volume.
    pub fn conversion_of(&self, volume: Uuid) -> Option<&Conversion> {
        self.conversions().find(|entry| entry.volume == volume)
    }

    /// The first extent of a volume that is to be cleared, if one is: from it on nothing is served yet.
    pub fn uncleared(&self, volume: Uuid) -> Option<u64> {
        self.description.uncleared(volume)
    }

    /// Work on its volumes and disks that goes on, moves, conversions and clearings included.
    pub fn jobs(&self) -> &[Job] {
        &self.description.jobs
    }

    /// The highest number that a job of the group has had.
    pub fn last_job(&self) -> u64 {
        self.description.last_job
    }

    /// Every area that something owns.
    pub fn owned_areas(&self) -> impl Iterator<Item = Area> {
        let of_volumes = self.logical_volumes().iter().flat_map(areas);
        let of_trash = self.trash().iter().flat_map(|entry| areas(&entry.volume));
        of_volumes.chain(of_trash).chain(self.description.areas_of_jobs().map(|(_, area)| area))
    }

    /// The physical volume that the group calls `name`.
    pub fn pv(&self, name: PvName) -> Option<&PhysicalVolume> {
        self.physical_volumes().iter().find(|pv| pv.name == name)
    }

    /// The physical volume whose label says `id`.
    pub fn pv_by_id(&self, id: Uuid) -> Option<&PhysicalVolume> {
        self.physical_volumes().iter().find(|pv| pv.id == id)
    }

    /// Whether the disk `id` belongs to the group and is not marked missing.
    pub fn counts_on(&self, id: Uuid) -> bool {
        self.pv_by_id(id).is_some_and(|pv| !pv.missing)
    }

    /// Where on the disk `id` its extents lie.
    pub fn data_of(&self, id: Uuid) -> Option<Extent> {
        let pv = self.pv_by_id(id)?;
        Some(Extent::new(pv.data_offset, self.bytes(pv.extents)))
    }

    /// The volume called `name`.
    pub fn lv(&self, name: &str) -> Option<&LogicalVolume> {
        self.logical_volumes().iter().find(|lv| lv.name == name)
    }

    /// Bytes of `extents` extents.
    pub fn bytes(&self, extents: u64) -> u64 {
        extents * self.extent_size()
    }

    /// The runs of extents that nothing owns on disks that are no spares, not missing, and not being emptied, in order.
    pub fn free_areas(&self) -> Vec<Area> {
        let mut free = self.free_areas_with_spares();
        free.retain(|run| self.pv(run.pv).is_some_and(|pv| !pv.spare));
        free
    }

    /// Those of [`Group::free_areas`], and those of spares.
    pub fn free_areas_with_spares(&self) -> Vec<Area> {
        let mut owned: BTreeMap<PvName, Vec<Area>> = BTreeMap::new();
        for area in self.owned_areas() {
            owned.entry(area.pv).or_default().push(area);
        }
        let mut free = Vec::new();
        let may_be_used = |pv: &&PhysicalVolume| !pv.missing && self.move_from(pv.name).is_none();
        for pv in self.physical_volumes().iter().filter(may_be_used) {
            let mut areas = owned.remove(&pv.name).unwrap_or_default();
            areas.sort();
            let mut start = 0;
            for area in &areas {
                assert!(start <= area.start, "GROUP1, TEXT5: {area} is owned once");
                push_run(&mut free, pv.name, start, area.start);
                start = area.end();
            }
            push_run(&mut free, pv.name, start, pv.extents);
        }
        free.sort();
        assert!(
            free.iter().all(|run| self.pv(run.pv).is_some_and(|pv| run.end() <= pv.extents)),
            "GROUP1, TEXT4"
        );
        free
    }

    /// How much of it is used.
    pub fn usage(&self) -> GroupUse {
        let sum = |is_meant: fn(&PhysicalVolume) -> bool| {
            let disks = self.physical_volumes().iter().filter(|pv| is_meant(pv));
            self.bytes(disks.map(|pv| pv.extents).sum())
        };
        let (size, missing, spare) = (sum(|_| true), sum(|pv| pv.missing), sum(|pv| pv.spare && !pv.missing));
        let free = self.bytes(self.free_areas().iter().map(|area| area.count).sum());
        assert!(free + missing + spare <= size, "GROUP1, TEXT5: what is free lies on disks that are here");
        let may_be_used = |area: &Area| {
            self.pv(area.pv).is_some_and(|pv| !pv.missing && !pv.spare && self.move_from(pv.name).is_none())
        };
        let of_trash = self.trash().iter().flat_map(|entry| areas(&entry.volume)).filter(may_be_used);
        let trash = self.bytes(of_trash.map(|area| area.count).sum());
        assert!(free + trash <= size, "GROUP1, TEXT5: what is in the trash is not free");
        GroupUse { size, free, missing, spare, trash }
    }

    /// The same group, with disks at these paths.
    #[must_use]
    pub fn with_paths(&self, paths: &BTreeMap<Uuid, String>) -> Self {
        let mut moved = self.clone();
        for disk in &mut moved.description.physical_volumes {
            if let Some(path) = paths.get(&disk.id) {
                disk.path.clone_from(path);
            }
        }
        moved
    }

    /// The disks on which `lv` or its exception stores lie, in order, each once.
    pub fn disks_of(&self, lv: &LogicalVolume) -> Vec<PvName> {
        let mut disks: Vec<_> = areas(lv).map(|area| area.pv).collect();
        disks.sort();
        disks.dedup();
        disks
    }

    /// The missing disks without which `lv` is incomplete: it cannot be used.
    pub fn missing_disks_of(&self, lv: &LogicalVolume) -> Vec<PvName> {
        self.missing_among(spaces(lv).filter(|space| self.is_incomplete(*space)))
    }

    /// The missing disks without which `lv` can be used all the same, because arrays do with fewer members.
    pub fn degraded_disks_of(&self, lv: &LogicalVolume) -> Vec<PvName> {
        self.missing_among(spaces(lv).filter(|space| !self.is_incomplete(*space)))
    }

    /// Whether more of `space` is missing than its layout tolerates.
    pub fn is_incomplete(&self, space: Space<'_>) -> bool {
        let members = space.layout.members().len();
        if members == 0 {
            return space.areas().any(|area| self.is_missing(area.pv));
        }
        (0..members).filter(|index| self.is_member_missing(space, *index)).count() > space.layout.tolerates()
    }

    /// Whether a disk of a member of an array is missing.
    pub fn is_member_missing(&self, space: Space<'_>, index: usize) -> bool {
        space.areas_of_member(index).any(|area| self.is_missing(area.pv))
    }

    /// Whether the disk is missing that has the log of an array.
    pub fn is_log_missing(&self, space: Space<'_>) -> bool {
        space.layout.log().is_some_and(|log| self.is_missing(log.area.pv))
    }

    fn is_missing(&self, name: PvName) -> bool {
        self.pv(name).is_none_or(|pv| pv.missing)
    }

    /// The missing disks on which `space` is.
    pub fn missing_disks_in(&self, space: Space<'_>) -> Vec<PvName> {
        self.missing_among(std::iter::once(space))
    }

    fn missing_among<'a>(&self, spaces: impl Iterator<Item = Space<'a>>) -> Vec<PvName> {
        let disks: BTreeSet<PvName> = spaces.flat_map(Space::areas).map(|area| area.pv).collect();
        disks.into_iter().filter(|disk| self.is_missing(*disk)).collect()
    }

    /// The volume of whose mapper the volume `id` is a device.
    pub fn granted_to(&self, id: Uuid) -> Option<&LogicalVolume> {
        self.logical_volumes().iter().find(|lv| lv.layout.granted().contains(&id))
    }

    /// The names of volumes of which extents lie on `pv`.
    pub fn volumes_on(&self, pv: PvName) -> Vec<String> {
        let on = |lv: &&LogicalVolume| areas(lv).any(|area| area.pv == pv);
        self.logical_volumes().iter().filter(on).map(|lv| lv.name.clone()).collect()
    }
}

/// All areas that a volume and its exception stores own.
pub fn areas(lv: &LogicalVolume) -> impl Iterator<Item = Area> {
    spaces(lv).flat_map(Space::areas)
}

/// Where a volume and its exception stores lie.
pub fn spaces(lv: &LogicalVolume) -> impl Iterator<Item = Space<'_>> {
    std::iter::once(lv.space()).chain(lv.stores().map(Store::space))
}

fn push_run(free: &mut Vec<Area>, pv: PvName, start: u64, end: u64) {
    if start < end {
        free.push(Area { pv, start, count: end - start });
    }
}
