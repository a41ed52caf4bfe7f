//! Plans that empty a disk: what is on it goes to other disks, one run of extents after the other.
//!
//! Invariants:
//! - PLANMOVE1. Before a disk is begun to be emptied there is a place for everything on it, without what is free on the disk.
//! - PLANMOVE2. A step frees nothing that may still be read, and reserves its new place before anything is written there.
//! - PLANMOVE3. What an array's member has on the disk goes to one disk if there is one with room for all of it: a member that is on
//!   two disks is lost with either.

use super::jobs::begin_holding;
use super::sectors::{larger_sectors, owner_of};
use super::{DiskChoice, Draft, PlanError, Sectors};
use crate::allocate::{FreeMap, append};
use crate::model::{Area, DiskMove, JobWork, Layout, LogicalVolume, MoveStep, PvName, Segment, Space};
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_block::UnixTime;

/// A run on a disk that is being emptied, and where it may go.
struct Movable {
    /// The volume or store.
    of: Uuid,
    /// The volume, or that of the store.
    volume: String,
    area: Area,
    /// What is before it in the same volume and member.
    before: Option<Area>,
    /// Disks on which it must not lie: TEXT6 and TEXT16.
    apart: Vec<PvName>,
    /// The member of an array that it belongs to.
    member: Option<usize>,
    /// Whether it stays in one run: the metadata of an array's member, or its log.
    is_whole: bool,
}

impl Draft<'_> {
    pub(super) fn begin_move(
        &mut self,
        from: PvName,
        disks: DiskChoice,
        rate: Option<u64>,
        (job, date): (u64, UnixTime),
    ) -> Result<(), PlanError> {
        let path = self.check_disk(from)?;
        disks.on.iter().try_for_each(|to| self.check_disk(*to).map(drop))?;
        self.check_no_spare(&disks)?;
        self.check_disk_not_moving(from)?;
        self.check_disk_not_converting(from)?;
        let group: String = self.group_name().into();
        let is_emptied = |pv: &&PvName| self.description.moves().any(|entry| entry.from == **pv);
        if let Some(to) = disks.on.iter().find(is_emptied) {
            return Err(PlanError::Moving { group, from: *to, what: to.to_string() });
        }
        if disks.on.contains(&from) {
            return Err(PlanError::Layout("what lies on a disk is moved to another one"));
        }
        if self.next_on(from).is_none() {
            return Err(PlanError::NothingToMove { group, path });
        }
        self.step(format!("empty {path} ({from})"));
        let work = JobWork::Move(DiskMove { from, to: disks.on, rate, step: None });
        begin_holding(&mut self.description, (job, date), from.to_string(), work)?;
        let begun = self.description.clone();
        while self.description.moves().any(|entry| entry.from == from) {
            self.move_next(from, &disks.sectors, u64::MAX)?; // PLANMOVE1
            if self.entry_of(from).is_ok() {
                self.switch(from)?;
            }
        }
        self.description = begun;
        Ok(())
    }

    pub(super) fn move_next(
        &mut self,
        from: PvName,
        sectors: &BTreeMap<PvName, Sectors>,
        bytes_max: u64,
    ) -> Result<(), PlanError> {
        self.entry_of(from)?.step = None;
        self.check_disk(from)?;
        let Some(next) = self.next_on(from) else {
            self.retain_moves(|entry| entry.from != from);
            self.step(format!("end the move from {from}: nothing is left there"));
            return Ok(());
        };
        let to = self.entry_of(from)?.to.clone();
        let logical = |pv: PvName| sectors.get(&pv).map_or(0, |sectors| sectors.logical);
        let may_hold = |pv: &PvName| (to.is_empty() || to.contains(pv)) && !next.apart.contains(pv);
        let disks = self.description.physical_volumes.iter().map(|pv| pv.name).filter(may_hold);
        let (disks, larger): (Vec<PvName>, Vec<PvName>) = disks.partition(|pv| logical(*pv) <= logical(from));
        let most = (bytes_max / self.extent_size()).max(1);
        let all = FreeMap::of(&self.current());
        let place_on = |disks: &[PvName]| {
            let mut free = all.clone().on_disks(disks);
            match next.is_whole {
                true => free.take_whole(next.area.count),
                false => free.take_run(next.area.count, most, next.before),
            }
        };
        let full = self.full(&next.volume);
        let preferred =
            self.one_disk_for(&next, from, &disks, &all).into_iter().find_map(|disks| place_on(&disks));
        let Some(new) = preferred.or_else(|| place_on(&disks)) else {
            if let Some(place) = place_on(&larger) {
                let owner = owner_of(&self.description.logical_volumes, next.of);
                return Err(larger_sectors(self, owner, (place.pv, sectors), logical(from)));
            }
            let (group, needed) = (self.group_name().into(), next.area.count * self.extent_size());
            return Err(PlanError::NoPlace { group, on: to, volume: full, old: next.area, needed });
        };
        let old = Area { count: new.count, ..next.area };
        assert!(old.pv == from && new.pv != from, "PLANMOVE2: {old} goes to {new}");
        let size = self.size_text(new.count);
        self.step(format!("move {size} of {full} from {old} to {new}"));
        self.entry_of(from)?.step = Some(MoveStep { of: next.of, old, new });
        Ok(())
    }

    pub(super) fn move_switch(&mut self, from: PvName) -> Result<(), PlanError> {
        if let Some(step) = self.entry_of(from)?.step {
            self.check_disk(step.new.pv)?;
        }
        let step = self.switch(from)?;
        self.step(format!("use {} instead of {}", step.new, step.old));
        Ok(())
    }

    pub(super) fn end_move(&mut self, from: PvName) -> Result<(), PlanError> {
        self.entry_of(from)?;
        self.retain_moves(|entry| entry.from != from);
        self.step(format!("empty {from} no more"));
        Ok(())
    }

    /// Moves from missing disks, and such as have nowhere else to go, end.
    pub(super) fn end_moves_of_missing(&mut self) {
        let missing: Vec<PvName> =
            self.description.physical_volumes.iter().filter(|pv| pv.missing).map(|pv| pv.name).collect();
        self.retain_moves(|entry| {
            let had_choice = entry.to.is_empty();
            entry.to.retain(|pv| !missing.contains(pv));
            let step = entry.step.is_some_and(|step| missing.contains(&step.new.pv));
            !missing.contains(&entry.from) && !step && (had_choice || !entry.to.is_empty())
        });
    }

    /// Refuses to release a disk that a move concerns.
    pub(super) fn check_disk_not_moving(&self, pv: PvName) -> Result<(), PlanError> {
        let concerns = |entry: &&DiskMove| entry.from == pv || entry.to.contains(&pv);
        let Some(entry) = self.description.moves().find(concerns) else { return Ok(()) };
        Err(PlanError::Moving { group: self.group_name().into(), from: entry.from, what: pv.to_string() })
    }

    /// Refuses to release a disk on which a move holds the place of its step, whether or not it names the disk.
    pub(super) fn check_no_step_to(&self, pv: PvName) -> Result<(), PlanError> {
        let leads_there = |entry: &&DiskMove| entry.step.is_some_and(|step| step.new.pv == pv);
        let Some(entry) = self.description.moves().find(leads_there) else { return Ok(()) };
        Err(PlanError::Moving { group: self.group_name().into(), from: entry.from, what: pv.to_string() })
    }

    /// Checks that what a move has in hand stays with its owner (PLAN5).
    pub(super) fn check_moves(&self) -> Result<(), PlanError> {
        let is_lost = |step: &MoveStep| self.description.is_switched(step).is_none();
        let lost = self.description.moves().find(|entry| entry.step.as_ref().is_some_and(is_lost));
        let Some(entry) = lost else { return Ok(()) };
        let of = entry.step.map_or(Uuid::nil(), |step| step.of);
        let owns = |lv: &&LogicalVolume| lv.id == of || lv.stores().any(|store| store.id == of);
        let volume = self.before.logical_volumes().iter().find(owns);
        let what = volume.map_or_else(|| of.to_string(), |lv| self.full(&lv.name));
        Err(PlanError::Moving { group: self.group_name().into(), from: entry.from, what })
    }

    /// Puts the new place of what is moved where the old one is.
    fn switch(&mut self, from: PvName) -> Result<MoveStep, PlanError> {
        let group: String = self.group_name().into();
        let step = self.entry_of(from)?.step.ok_or(PlanError::NotMoving { group, from })?;
        for lv in &mut self.description.logical_volumes {
            if lv.id == step.of {
                replace(&mut lv.layout, &mut lv.segments, &step);
            } else if let Some(store) = lv.store_mut(step.of) {
                replace(&mut store.layout, &mut store.segments, &step);
            }
        }
        assert_eq!(self.description.is_switched(&step), Some(true), "PLANMOVE2: {step:?}");
        Ok(step)
    }

    fn entry_of(&mut self, from: PvName) -> Result<&mut DiskMove, PlanError> {
        let group: String = self.group_name().into();
        let entry = self.description.jobs.iter_mut().find_map(|job| match &mut job.work {
            JobWork::Move(entry) if entry.from == from => Some(entry),
            _ => None,
        });
        entry.ok_or(PlanError::NotMoving { group, from })
    }

    /// Ends the moves that `goes_on` is not true of.
    fn retain_moves(&mut self, mut goes_on: impl FnMut(&mut DiskMove) -> bool) {
        self.description.jobs.retain_mut(|job| match &mut job.work {
            JobWork::Move(entry) => goes_on(entry),
            _ => true,
        });
    }

    /// The path of a disk that is here (PLAN3).
    pub(super) fn check_disk(&self, pv: PvName) -> Result<String, PlanError> {
        let group: String = self.group_name().into();
        match self.description.physical_volumes.iter().find(|disk| disk.name == pv) {
            None => Err(PlanError::DiskNotFound { group, disk: pv.to_string() }),
            Some(disk) if disk.missing => {
                Err(PlanError::DiskMissing { group, disk: pv, path: disk.path.clone() })
            }
            Some(disk) => Ok(disk.path.clone()),
        }
    }

    /// What of a disk is moved next: logs and the metadata of members first, which stays in one run; then the data of members, which
    /// follows it (PLANMOVE3); then the rest, volume by volume.
    fn next_on(&self, from: PvName) -> Option<Movable> {
        let found = |look: fn(Space<'_>, PvName) -> Option<Found>, is_whole: bool| {
            self.spaces().find_map(|(of, lv, space)| {
                let Found { area, before, apart, member } = look(space, from)?;
                Some(Movable { of, volume: lv.name.clone(), area, before, apart, member, is_whole })
            })
        };
        let of_members = |space: Space<'_>, from| data_on(space, from).filter(|found| found.member.is_some());
        found(metadata_on, true).or_else(|| found(of_members, false)).or_else(|| found(data_on, false))
    }

    /// All volumes and stores.
    fn spaces(&self) -> impl Iterator<Item = (Uuid, &LogicalVolume, Space<'_>)> {
        self.description.logical_volumes.iter().flat_map(|lv| {
            let stores = lv.stores().map(move |store| (store.id, lv, store.space()));
            std::iter::once((lv.id, lv, lv.space())).chain(stores)
        })
    }

    /// PLANMOVE3: those of `disks` on one of which all is to be put that the member of `next` has on disk `from`, the best first: where the
    /// member is already, and where there is room for it beside what follows other members there.
    fn one_disk_for(
        &self,
        next: &Movable,
        from: PvName,
        disks: &[PvName],
        free: &FreeMap,
    ) -> [Vec<PvName>; 2] {
        let mut members: Vec<(bool, Space<'_>, usize)> = Vec::new();
        for (of, _, space) in self.spaces() {
            let is_own = |member: usize| of == next.of && Some(member) == next.member;
            members.extend((0..space.layout.members().len()).map(|member| (is_own(member), space, member)));
        }
        let extents_on = |space: Space<'_>, member: usize, pv: PvName| -> u64 {
            space.areas_of_member(member).filter(|area| area.pv == pv).map(|area| area.count).sum()
        };
        let Some((_, own, member)) = members.iter().copied().find(|(is_own, ..)| *is_own) else {
            return Default::default();
        };
        let has_room = |pv: &PvName| {
            let follows = |space: Space<'_>, member: usize| space.layout.members()[member].metadata.pv == *pv;
            let needed = members.iter().copied();
            let needed = needed.filter(|(is_own, space, member)| *is_own || follows(*space, *member));
            let needed: u64 = needed.map(|(_, space, member)| extents_on(space, member, from)).sum();
            free.clone().on_disks(&[*pv]).total() >= needed
        };
        let of_disks = |is_one: &dyn Fn(&PvName) -> bool| disks.iter().copied().filter(is_one).collect();
        let has_some = |pv: &PvName| extents_on(own, member, *pv) > 0;
        let follows_metadata: Vec<PvName> = of_disks(&has_some);
        [
            of_disks(&|pv| has_some(pv) && has_room(pv)),
            match follows_metadata.is_empty() || next.is_whole {
                true => of_disks(&has_room),
                false => follows_metadata,
            },
        ]
    }
}

/// Something of a volume or store on a disk.
struct Found {
    area: Area,
    before: Option<Area>,
    apart: Vec<PvName>,
    member: Option<usize>,
}

fn metadata_on(space: Space<'_>, from: PvName) -> Option<Found> {
    let members = space.layout.members();
    if let Some(log) = space.layout.log().filter(|log| log.area.pv == from) {
        let apart = space.disks_of_members().collect();
        return Some(Found { area: log.area, before: None, apart, member: None });
    }
    let index = members.iter().position(|member| member.metadata.pv == from)?;
    let (area, apart) = (members[index].metadata, others(space, index));
    Some(Found { area, before: None, apart, member: Some(index) })
}

fn data_on(space: Space<'_>, from: PvName) -> Option<Found> {
    let is_array = !space.layout.members().is_empty();
    space.segments.iter().enumerate().find_map(|(number, segment)| {
        let index = segment.areas.iter().position(|area| area.pv == from)?;
        let before = number.checked_sub(1).and_then(|before| space.segments[before].areas.get(index));
        let apart = match is_array {
            true => others(space, index),
            false => segment.areas.iter().map(|area| area.pv).collect(),
        };
        let member = is_array.then_some(index);
        Some(Found { area: segment.areas[index], before: before.copied(), apart, member })
    })
}

/// The disks of the other members of an array, and of its log.
fn others(space: Space<'_>, index: usize) -> Vec<PvName> {
    let members = (0..space.layout.members().len()).filter(|other| *other != index);
    let members = members.flat_map(|other| space.areas_of_member(other));
    members.chain(space.layout.log().map(|log| log.area)).map(|area| area.pv).collect()
}

fn replace(layout: &mut Layout, segments: &mut Vec<Segment>, step: &MoveStep) {
    if let Some(member) = layout.members_mut().iter_mut().find(|member| member.metadata == step.old) {
        member.metadata = step.new;
        return;
    }
    if let Some(log) = layout.log_mut().and_then(Option::as_mut).filter(|log| log.area == step.old) {
        log.area = step.new;
        return;
    }
    let mut cut = Vec::with_capacity(segments.len() + 2);
    for segment in segments.drain(..) {
        let holds = |area: &Area| {
            area.pv == step.old.pv && area.start <= step.old.start && step.old.end() <= area.end()
        };
        let Some(index) = segment.areas.iter().position(holds) else {
            cut.push(segment);
            continue;
        };
        let first = step.old.start - segment.areas[index].start;
        let end = first + step.old.count;
        let part = |from: u64, to: u64| {
            let area = |area: &Area| Area { start: area.start + from, count: to - from, ..*area };
            Segment { areas: segment.areas.iter().map(area).collect() }
        };
        let mut moved = part(first, end);
        moved.areas[index] = step.new;
        let parts = [part(0, first), moved, part(end, segment.areas[index].count)];
        cut.extend(parts.into_iter().filter(|part| part.areas[0].count > 0));
    }
    append(segments, cut);
}
