//! Plans that put members of arrays on other disks.
//!
//! Invariant PLAN6: a member that is replaced has a new id, and none of its extents on the disk that it leaves; all other members
//! keep their extents and ids.

use super::super::sectors::larger_sectors;
use super::super::space::place_text;
use super::super::{DiskChoice, Draft, PlanError};
use crate::allocate::{FreeMap, MemberNeed, append, side_by_side};
use crate::model::{self, Area, LogicalVolume, Member, PhysicalVolume, PvName, Segment, Space, spaces};
use std::collections::VecDeque;
use uuid::Uuid;

/// What is replaced, and by what.
struct Replacement<'a> {
    from: PhysicalVolume,
    id: Uuid,
    disks: &'a DiskChoice,
}

impl Draft<'_> {
    pub(in crate::plan) fn replace_members(
        &mut self,
        from: Uuid,
        only: Option<&str>,
        id: Uuid,
        disks: &DiskChoice,
    ) -> Result<(), PlanError> {
        let group: String = self.group_name().into();
        if let Some(name) = only {
            self.lv(name)?;
        }
        let Some(from) = self.pv(from).cloned() else {
            return Err(PlanError::DiskNotFound { group, disk: from.to_string() });
        };
        let is_named = |lv: &&LogicalVolume| only.is_none_or(|name| lv.name == name);
        let is_on = |lv: &&LogicalVolume| model::areas(lv).any(|area| area.pv == from.name);
        let volumes = self.before.logical_volumes().iter().filter(is_named).filter(is_on);
        let volumes: Vec<LogicalVolume> = volumes.cloned().collect();
        if volumes.is_empty() {
            let volume = only.map(|name| self.full(name));
            return Err(PlanError::NoMember { group, path: from.path, volume });
        }
        self.refuse_unprotected(&from, &volumes)?;
        let mut free = self.free_with_spares(disks)?;
        let replacement = Replacement { from, id, disks };
        for lv in volumes {
            self.replace_in(&lv, &replacement, &mut free)?;
        }
        self.release_spares()
    }

    /// What is on the disk outside of arrays is lost with it.
    fn refuse_unprotected(&self, from: &PhysicalVolume, volumes: &[LogicalVolume]) -> Result<(), PlanError> {
        let is_on = |space: Space<'_>| space.areas().any(|area| area.pv == from.name);
        let is_lost =
            |lv: &&LogicalVolume| spaces(lv).any(|space| space.layout.members().is_empty() && is_on(space));
        let lost: Vec<_> = volumes.iter().filter(is_lost).collect();
        let Some(first) = lost.first() else { return Ok(()) };
        Err(PlanError::NotArray {
            group: self.group_name().into(),
            path: from.path.clone(),
            is_missing: from.missing,
            volumes: lost.iter().map(|lv| lv.name.clone()).collect(),
            is_pool: first.is_pool(),
        })
    }

    /// Replaces the members of `before` and its stores that lie on the disk.
    fn replace_in(
        &mut self,
        before: &LogicalVolume,
        replacement: &Replacement<'_>,
        free: &mut FreeMap,
    ) -> Result<(), PlanError> {
        let (full, mut lv) = (self.full(&before.name), before.clone());
        let main = self.replaced(before, before.space(), replacement, free)?;
        if let Some((layout, segments)) = main {
            (lv.layout, lv.segments) = (layout, segments);
            self.step_replaced(&full, lv.space(), replacement);
        }
        self.replace_log(&mut lv, (replacement.from.name, replacement.id), replacement.disks, free)?;
        for store in lv.store.iter_mut().chain(&mut lv.independent_stores) {
            let replaced = self.replaced(before, store.space(), replacement, free)?;
            if let Some((layout, segments)) = replaced {
                (store.layout, store.segments) = (layout, segments);
                self.step_replaced(&format!("the exception store of {full}"), store.space(), replacement);
            }
        }
        *self.lv(&before.name)? = lv;
        Ok(())
    }

    fn step_replaced(&mut self, what: &str, space: Space<'_>, replacement: &Replacement<'_>) {
        let (pv, path) = (replacement.from.name, &replacement.from.path);
        self.step(format!(
            "replace the member of {what} on {pv} ({path}); the array then lies at {}",
            place_text(space)
        ));
    }

    /// Layout and segments of `space` of `lv` without the disk; none if it does not lie there.
    fn replaced(
        &self,
        lv: &LogicalVolume,
        space: Space<'_>,
        replacement: &Replacement<'_>,
        free: &mut FreeMap,
    ) -> Result<Option<(model::Layout, Vec<Segment>)>, PlanError> {
        let leaves = |area: &Area| area.pv == replacement.from.name;
        let members = space.layout.members();
        let place = (0..members.len()).find(|place| space.areas_of_member(*place).any(|area| leaves(&area)));
        let Some(place) = place else { return Ok(None) };
        self.check_others(lv, space, place)?;
        let area_of = |place: usize| space.segments.iter().map(move |segment| segment.areas[place]);
        let mut data: Vec<Vec<Area>> = (0..members.len()).map(|place| area_of(place).collect()).collect();
        let rows = data[place].iter().filter(|area| leaves(area)).map(|area| area.count).sum();
        let metadata = Some(members[place].metadata).filter(leaves).map_or(0, |area| area.count);
        let (disks, larger, sector_max) = self.candidates(space, place, replacement, free);
        let need = MemberNeed { rows, metadata };
        let taken = free.take_replacement(need, &disks).map_err(|shortage| {
            if let Some(disk) =
                larger.iter().find(|disk| free.clone().take_replacement(need, &[**disk]).is_ok())
            {
                return larger_sectors(self, (lv, space), (*disk, &replacement.disks.sectors), sector_max);
            }
            PlanError::NoReplacement {
                group: self.group_name().into(),
                volume: lv.name.clone(),
                on: replacement.disks.on.clone(),
                needed: (rows + metadata) * self.extent_size(),
                free: shortage.free * self.extent_size(),
            }
        })?;
        let member = Member {
            id: Uuid::new_v5(&replacement.id, members[place].id.as_bytes()),
            metadata: taken.0.unwrap_or(members[place].metadata),
        };
        data[place] = exchanged(&data[place], leaves, taken.1.into());
        let mut segments = Vec::new();
        append(&mut segments, side_by_side(data));
        let layout = with_member(space.layout, place, member);
        let after = Space { layout: &layout, segments: &segments };
        assert!(!after.areas().any(|area| leaves(&area)), "PLAN6");
        Ok(Some((layout, segments)))
    }

    /// The other members hold all data.
    fn check_others(&self, lv: &LogicalVolume, space: Space<'_>, place: usize) -> Result<(), PlanError> {
        let is_missing = |other: &usize| *other != place && self.before.is_member_missing(space, *other);
        if (0..space.layout.members().len()).filter(is_missing).count() < space.layout.tolerates() {
            return Ok(());
        }
        let mut disks = self.before.missing_disks_in(space);
        disks.retain(|disk| space.areas_of_member(place).all(|area| area.pv != *disk));
        Err(self.degraded(lv, &disks))
    }

    /// The disks on which the member may lie: no other member is there, and their sectors are not larger than the array can have. Then
    /// those whose sectors are larger, and what sectors may have.
    fn candidates(
        &self,
        space: Space<'_>,
        place: usize,
        replacement: &Replacement<'_>,
        free: &FreeMap,
    ) -> (Vec<PvName>, Vec<PvName>, u64) {
        let others = (0..space.layout.members().len()).filter(|other| *other != place);
        let mut others: Vec<PvName> =
            others.flat_map(|other| space.areas_of_member(other)).map(|area| area.pv).collect();
        others.extend(space.layout.log().map(|log| log.area.pv)); // TEXT24
        let sector = |disk: PvName| replacement.disks.sectors.get(&disk).map(|sectors| sectors.logical);
        let sector_max = match space.layout {
            model::Layout::Ddraid { order, block_size, .. } => Some(block_size >> order),
            _ => others.iter().filter_map(|disk| sector(*disk)).max(),
        };
        let mut disks: Vec<PvName> = free.runs().iter().map(|run| run.pv).collect();
        disks.dedup();
        disks.retain(|disk| *disk != replacement.from.name && !others.contains(disk));
        let fits = |disk: &PvName| sector(*disk).zip(sector_max).is_none_or(|(sector, most)| sector <= most);
        let (disks, larger) = disks.into_iter().partition(fits);
        (disks, larger, sector_max.unwrap_or(u64::MAX))
    }
}

/// `areas` with `taken` in the place of those that leave, which are as many extents.
fn exchanged(areas: &[Area], leaves: impl Fn(&Area) -> bool, mut taken: VecDeque<Area>) -> Vec<Area> {
    let mut after = Vec::with_capacity(areas.len());
    for area in areas {
        let mut rest = if leaves(area) { area.count } else { 0 };
        if rest == 0 {
            after.push(*area);
        }
        while rest > 0 {
            let next = taken.pop_front().expect("ALLOCATE2: as many extents are taken");
            let count = next.count.min(rest);
            after.push(Area { count, ..next });
            rest -= count;
            if count < next.count {
                taken.push_front(Area { start: next.start + count, count: next.count - count, ..next });
            }
        }
    }
    assert!(taken.is_empty(), "ALLOCATE2: no more than that");
    after
}

/// `layout` with another member in `place`.
fn with_member(layout: &model::Layout, place: usize, member: Member) -> model::Layout {
    let mut layout = layout.clone();
    match &mut layout {
        model::Layout::Mirror { members, .. } | model::Layout::Ddraid { members, .. } => {
            members[place] = member;
        }
        _ => unreachable!("GROUP1, TEXT16: only arrays have members"),
    }
    layout
}
