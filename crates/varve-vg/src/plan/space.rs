//! Space for volumes and exception stores: how much, on which disks, in which layout.

use super::{DiskChoice, Draft, Layout, PlanError, Sectors, places, whole_rows};
use crate::allocate::{FreeMap, MemberNeed, Shortage, append};
use crate::model::{
    self, Area, MEMBER_METADATA_SIZE_MIN, Member, PhysicalVolume, PvName, ReadPolicy, Segment, Space,
};
use crate::size::{Amount, SizeArgument, share};
use uuid::Uuid;
use varve_block::{GIB, KIB};
use varve_format::array::{BLOCK_SIZE, SPAN_SIZE};
use varve_target::array::ArrayLayout;

/// The most stripes that a volume may have.
const STRIPES_MAX: usize = 128;
/// Bytes to which a physical sector of a disk counts at least, when the block of an array is chosen.
const PHYSICAL_SECTOR_MIN: u64 = 4 * KIB;

/// A volume's or store's space while it is planned.
pub(super) struct Growth {
    /// Its layout; new members of an array are added to it.
    pub(super) layout: model::Layout,
    /// Areas of a segment.
    pub(super) width: usize,
    /// Where it is so far.
    pub(super) segments: Vec<Segment>,
    /// From what the ids of new members, and of the log disk, follow.
    pub(super) id: Uuid,
}

/// The number from which the id of a new log disk follows: more than members have.
const LOG_NUMBER: u8 = 255;

impl Growth {
    /// More of what is in `space`.
    pub(super) fn of(space: Space<'_>) -> Self {
        let width = space.segments.last().map_or(1, |segment| segment.areas.len());
        let (layout, segments) = (space.layout.clone(), space.segments.to_vec());
        Self { layout, width, segments, id: Uuid::nil() }
    }

    /// Extents of a row.
    pub(super) fn row(&self) -> u64 {
        self.layout.row(self.width)
    }

    /// Its extents.
    pub(super) fn extents(&self) -> u64 {
        self.segments.iter().map(|segment| self.layout.extents_of(segment)).sum()
    }

    /// Whether it is an array.
    fn is_array(&self) -> bool {
        matches!(self.layout, model::Layout::Mirror { .. } | model::Layout::Ddraid { .. })
    }

    /// What each member of an array has; nothing yet of a new one.
    fn members(&self) -> Vec<Vec<Area>> {
        let space = Space { layout: &self.layout, segments: &self.segments };
        (0..self.width).map(|index| space.areas_of_member(index).collect()).collect()
    }

    /// `a mirror of 3 copies`, as shown to users.
    pub(super) fn what(&self) -> String {
        match self.layout {
            model::Layout::Mirror { .. } => format!("a mirror of {} copies", self.width),
            model::Layout::Ddraid { order, .. } => format!("ddraid of order {order}"),
            model::Layout::Striped { .. } => format!("{} stripes", self.width),
            _ => "linear".to_owned(),
        }
    }
}

impl Draft<'_> {
    /// The same draft, with an empty trash: what may be taken of it is free there.
    pub(super) fn with_empty_trash(&self) -> Draft<'_> {
        let mut draft = Draft::of(self.before);
        draft.description.clone_from(&self.description);
        draft.description.trash.clear();
        draft
    }

    /// A new volume or store, without space yet.
    pub(super) fn new_growth(&self, layout: &Layout, id: Uuid) -> Result<Growth, PlanError> {
        let (width, layout) = match *layout {
            // Its size is that of the image, which is given when it is known.
            Layout::Image { ref path, format } => {
                (1, model::Layout::Image { path: path.clone(), format, bytes: 0 })
            }
            Layout::Linear => (1, model::Layout::Linear),
            Layout::Zero => (1, model::Layout::Zero),
            Layout::Error => (1, model::Layout::Error),
            Layout::Mapper { ref socket, wait_ms, ref devices } => {
                (1, model::Layout::Mapper { socket: socket.clone(), wait_ms, devices: devices.clone() })
            }
            Layout::Striped { stripes, stripe_size } => {
                (self.check_stripes(stripes, stripe_size)?, model::Layout::Striped { stripe_size })
            }
            Layout::Mirror { copies, read_policy, checksums } => {
                check_array(ArrayLayout::Mirror { copies })?;
                let read_policy = read_policy.unwrap_or(ReadPolicy::of_mirrors());
                (copies, model::Layout::Mirror { read_policy, checksums, log: None, members: Vec::new() })
            }
            Layout::Ddraid { order, block_size, read_policy, checksums } => {
                let block_size = block_size.unwrap_or(*ArrayLayout::BLOCK_SIZES.end());
                let array = ArrayLayout::Ddraid { order, block_size };
                check_array(array)?;
                let usual = if checksums { ReadPolicy::Rotate } else { ReadPolicy::of_ddraid() };
                let (read_policy, members) = (read_policy.unwrap_or(usual), Vec::new());
                let log = None;
                (
                    array.members(),
                    model::Layout::Ddraid { order, block_size, read_policy, checksums, log, members },
                )
            }
        };
        Ok(Growth { layout, width, segments: Vec::new(), id })
    }

    fn check_stripes(&self, stripes: usize, stripe_size: u64) -> Result<usize, PlanError> {
        if !(2..=STRIPES_MAX).contains(&stripes) {
            return Err(PlanError::Layout("a striped volume has 2 to 128 stripes"));
        }
        if !stripe_size.is_power_of_two() || !(4 * KIB..=self.extent_size()).contains(&stripe_size) {
            return Err(PlanError::Layout("a stripe is a power of two from 4 KiB to the extent size"));
        }
        Ok(stripes)
    }

    /// Extents, in whole rows, that an amount means when nothing or all of it is to be added.
    pub(super) fn extents_to_add(
        &self,
        growth: &Growth,
        size: SizeArgument,
        disks: &DiskChoice,
    ) -> Result<u64, PlanError> {
        let percent = match size.amount {
            Amount::Bytes(bytes) => {
                return Ok(self.extents_of(self.check_bytes(bytes)?).next_multiple_of(growth.row()));
            }
            Amount::PercentFree(percent) => percent,
        };
        let free = self.with_empty_trash().free_for(growth, disks)?;
        let most = if growth.is_array() {
            let rows = |rows| free.rows_max(self.need(growth, rows).metadata, &growth.members());
            rows(rows(0)) * growth.row() // Pages of checksums need space, too.
        } else {
            free.total()
        };
        match whole_rows(share(most, percent), growth.row()) {
            0 => Err(PlanError::ShareTooSmall { extent_size: self.extent_size() }),
            extents => Ok(extents),
        }
    }

    /// Gives `growth` `extents` more extents, whole rows.
    pub(super) fn grow(
        &self,
        growth: &mut Growth,
        extents: u64,
        disks: &DiskChoice,
    ) -> Result<(), PlanError> {
        assert!(extents > 0 && extents.is_multiple_of(growth.row()), "ALLOCATE3: whole rows");
        if disks.log.is_some() && !growth.is_array() {
            return Err(PlanError::Layout("only a mirror and ddraid have a log: --type mirror or ddraid"));
        }
        if !growth.layout.takes_space() {
            return Ok(());
        }
        let before = growth.extents();
        let rows = extents / growth.row();
        let mut free = self.free_for(growth, disks)?;
        let last = growth.segments.last().map(|segment| segment.areas.clone()).unwrap_or_default();
        let short = |shortage| no_space(self, growth, rows, disks, shortage);
        let segments = match growth.layout {
            model::Layout::Striped { .. } => free.take_striped(rows, growth.width, &last).map_err(short)?,
            model::Layout::Mirror { .. } | model::Layout::Ddraid { .. } => {
                let taken = free.take_array(self.need(growth, rows), &growth.members()).map_err(short)?;
                add_members(growth, &taken.metadata);
                self.add_log(growth, disks)?;
                taken.segments
            }
            _ => {
                let areas = free.take_linear(extents, last.first().copied()).map_err(short)?;
                areas.into_iter().map(Segment::linear).collect()
            }
        };
        append(&mut growth.segments, segments);
        if let Some(member) = growth.layout.members().first() {
            let most = growth.layout.size_max(member.metadata.count * self.extent_size());
            if growth.extents() * self.extent_size() > most {
                return Err(PlanError::ChecksumRoom { most });
            }
        }
        assert_eq!(growth.extents(), before + extents, "TEXT7");
        Ok(())
    }

    /// What each member of an array needs for `rows` rows: its metadata too if it is new.
    pub(super) fn need(&self, growth: &Growth, rows: u64) -> MemberNeed {
        let is_new = growth.is_array() && growth.layout.members().is_empty();
        let pages = match growth.layout.has_checksums() {
            true => checksum_pages(rows * growth.row() * self.extent_size()),
            false => 0,
        };
        let metadata = if is_new { self.extents_of(MEMBER_METADATA_SIZE_MIN + pages) } else { 0 };
        MemberNeed { rows, metadata }
    }

    /// What is free for the members of an array, or for anything else: not on the disk that has, or gets, its log (TEXT24).
    fn free_for(&self, growth: &Growth, disks: &DiskChoice) -> Result<FreeMap, PlanError> {
        let free = self.free(disks)?;
        let Some(log) = disks.log.or(growth.layout.log().map(|log| log.area.pv)) else { return Ok(free) };
        if disks.on.contains(&log) {
            return Err(PlanError::LogOnMember { path: self.path_of(log) });
        }
        Ok(free.without_disk(log))
    }

    /// Gives an array that has no log disk yet the one of the choice.
    fn add_log(&self, growth: &mut Growth, disks: &DiskChoice) -> Result<(), PlanError> {
        let Some(disk) = disks.log.filter(|_| growth.layout.log().is_none()) else { return Ok(()) };
        assert!(growth.layout.members().len() < usize::from(LOG_NUMBER), "TEXT1: members have other numbers");
        let id = Uuid::new_v5(&growth.id, &[LOG_NUMBER]);
        let log = self.new_log(&growth.layout, id, disk)?;
        if let Some(entry) = growth.layout.log_mut() {
            *entry = Some(log);
        }
        Ok(())
    }

    /// Room on `disk` for the log of an array that has members.
    pub(super) fn new_log(
        &self,
        layout: &model::Layout,
        id: Uuid,
        disk: PvName,
    ) -> Result<model::ArrayLog, PlanError> {
        let choice = DiskChoice { on: vec![disk], ..DiskChoice::default() };
        let count = self.log_extents(layout);
        let area = self.free(&choice)?.take_whole(count);
        let area = area.ok_or_else(|| PlanError::NoLogSpace {
            path: self.path_of(disk),
            needed: count * self.extent_size(),
        })?;
        assert!(area.pv == disk && area.count == count, "TEXT24: {area} on {disk}");
        Ok(model::ArrayLog { id, area })
    }

    /// Extents of the log disk of an array.
    pub(super) fn log_extents(&self, layout: &model::Layout) -> u64 {
        let metadata = layout.members().first().map_or(0, |member| member.metadata.count);
        let extents = self.extents_of(layout.log_size(metadata * self.extent_size()));
        assert!(extents > 0 && extents <= metadata, "TEXT24: {extents} extents beside {metadata}");
        extents
    }

    /// What is free on the disks of the choice, which are disks of the group and here, and no spares.
    pub(super) fn free(&self, disks: &DiskChoice) -> Result<FreeMap, PlanError> {
        self.check_no_spare(disks)?;
        self.free_with_spares(disks)
    }

    /// No disk of the choice is a spare.
    pub(super) fn check_no_spare(&self, disks: &DiskChoice) -> Result<(), PlanError> {
        let is_spare = |pv: &&PhysicalVolume| pv.spare && disks.on.contains(&pv.name);
        let spare = self.description.physical_volumes.iter().find(is_spare);
        spare.map_or(Ok(()), |pv| Err(PlanError::Spare(pv.path.clone())))
    }

    /// What is free on the disks of the choice, which are disks of the group and here; on spares if they are named.
    pub(super) fn free_with_spares(&self, disks: &DiskChoice) -> Result<FreeMap, PlanError> {
        let group = self.current();
        for disk in &disks.on {
            match group.pv(*disk) {
                Some(pv) if pv.missing => {
                    let (group, path) = (group.name().into(), pv.path.clone());
                    return Err(PlanError::DiskMissing { group, disk: *disk, path });
                }
                Some(_) => {}
                None => {
                    let (group, disk) = (group.name().into(), disk.to_string());
                    return Err(PlanError::DiskNotFound { group, disk });
                }
            }
        }
        Ok(match disks.on.as_slice() {
            [] => FreeMap::of(&group),
            on => FreeMap::with_spares(&group).on_disks(on),
        })
    }

    /// Chooses the size of a block of ddraid if `asked`, a new volume's layout, names none; and compares its fragments with the
    /// sectors of its disks.
    pub(super) fn fit_fragments(
        &mut self,
        growth: &mut Growth,
        asked: Option<&Layout>,
        disks: &DiskChoice,
    ) -> Result<(), PlanError> {
        let used: Vec<PvName> = growth.members().into_iter().flatten().map(|area| area.pv).collect();
        let model::Layout::Ddraid { order, block_size, .. } = &mut growth.layout else { return Ok(()) };
        let of = |sector: fn(&Sectors) -> u64| {
            used.iter().filter_map(|pv| Some((sector(disks.sectors.get(pv)?), *pv))).max()
        };
        let physical = of(|sectors| sectors.physical);
        if let Some(Layout::Ddraid { block_size: None, .. }) = asked {
            let sector = physical.map_or(0, |(sector, _)| sector).max(PHYSICAL_SECTOR_MIN);
            *block_size = (sector << *order).min(*ArrayLayout::BLOCK_SIZES.end());
        }
        let (order, block_size) = (*order, *block_size);
        let too_long =
            |worst: Option<(u64, PvName)>| worst.filter(|(sector, _)| *sector > block_size >> order);
        let may_be = |size: &u64| asked.is_some() && ArrayLayout::BLOCK_SIZES.contains(size);
        let fits = |sector: u64| Some(sector << order).filter(may_be);
        if let Some((sector, disk)) = too_long(of(|sectors| sectors.logical)) {
            let (fragment, fits) = (block_size >> order, fits(sector));
            return Err(PlanError::Fragment { fragment, disk: self.path_of(disk), sector, fits });
        }
        if let Some((sector, disk)) = too_long(physical) {
            let (fragment, disk) = (block_size >> order, self.path_of(disk));
            let better =
                fits(sector).map(|size| format!("; --array-block-size {size} fits")).unwrap_or_default();
            self.warnings.push(format!(
                "fragments of {fragment} bytes are smaller than the physical sectors of {disk}, {sector} bytes, which are \
                 read before they are written{better}"
            ));
        }
        Ok(())
    }

    pub(super) fn path_of(&self, disk: PvName) -> String {
        let entry = self.description.physical_volumes.iter().find(|entry| entry.name == disk);
        entry.map_or_else(|| disk.to_string(), |entry| entry.path.clone())
    }
}

fn check_array(array: ArrayLayout) -> Result<(), PlanError> {
    array.problem().map_or(Ok(()), |problem| Err(PlanError::Layout(problem)))
}

/// Bytes of pages of checksums that a member of a new array of `size` bytes gets: enough for four times as many.
fn checksum_pages(size: u64) -> u64 {
    (size.saturating_mul(4).max(GIB) / SPAN_SIZE).saturating_mul(BLOCK_SIZE)
}

/// New members, with these metadata areas; their ids follow from the id of what they are members of.
fn add_members(growth: &mut Growth, areas: &[Area]) {
    let id = growth.id;
    let new = areas
        .iter()
        .zip(0_u8..)
        .map(|(metadata, number)| Member { id: Uuid::new_v5(&id, &[number]), metadata: *metadata });
    if let model::Layout::Mirror { members, .. } | model::Layout::Ddraid { members, .. } = &mut growth.layout
    {
        members.extend(new);
    }
}

/// Why `rows` more rows of `growth` could not be had.
fn no_space(
    draft: &Draft<'_>,
    growth: &Growth,
    rows: u64,
    disks: &DiskChoice,
    shortage: Shortage,
) -> PlanError {
    let bytes = |extents: u64| extents.saturating_mul(draft.extent_size());
    let (group, on, what, width) = (draft.group_name().into(), disks.on.clone(), growth.what(), growth.width);
    let disks = shortage.disks;
    match growth.layout {
        model::Layout::Mirror { .. } | model::Layout::Ddraid { .. } => {
            let need = draft.need(growth, rows);
            let each = bytes(need.rows.saturating_add(need.metadata));
            PlanError::TooFewMembers { group, on, what, width, each, disks }
        }
        _ if shortage.free < rows.saturating_mul(width as u64) => {
            let needed = bytes(rows.saturating_mul(width as u64));
            PlanError::NoSpace { group, on, free: bytes(shortage.free), needed }
        }
        _ => PlanError::TooFewDisks { group, on, what, width, each: bytes(rows), disks },
    }
}

/// Where something is, as shown to users: its data, and the metadata of its members.
pub(super) fn place_text(space: Space<'_>) -> String {
    let data = places(space.segments.iter().flat_map(|segment| segment.areas.iter().copied()));
    match space.layout.members() {
        [] => data,
        members => {
            let metadata = places(members.iter().map(|member| member.metadata));
            let log = space.layout.log().map_or_else(String::new, |log| format!("; log: {}", log.area));
            format!("{data}; metadata: {metadata}{log}")
        }
    }
}
