//! Plans that concern the group itself and its disks.

use super::{Draft, NewDisk, PlanError};
use crate::disks::tail::{TAIL_SIZE, extents_beside};
use crate::model::{Group, LogicalVolume, PhysicalVolume, PvName, areas};
use crate::size::format_size;
use std::collections::BTreeMap;
use uuid::Uuid;
use varve_block::align_down;
use varve_format::{BLOCK_SIZE, check_name};

impl Draft<'_> {
    pub(super) fn rename_group(&mut self, to: String) -> Result<(), PlanError> {
        check_name(&to).map_err(|error| PlanError::Name { name: to.clone(), error })?;
        self.step(format!("rename group {} to {to}", self.group_name()));
        self.description.group.name = to;
        Ok(())
    }

    pub(super) fn add_disks(&mut self, disks: &[NewDisk]) -> Result<(), PlanError> {
        for disk in disks {
            if self.pv(disk.id).is_some() {
                let (group, path) = (self.group_name().into(), disk.path.clone());
                return Err(PlanError::DiskExists { group, path });
            }
            let extents = extents_beside(disk.size, disk.data_offset, self.extent_size());
            if extents == 0 {
                let (path, extent_size) = (disk.path.clone(), self.extent_size());
                return Err(PlanError::DiskTooSmall { path, size: disk.size, extent_size });
            }
            let name = unused_name(&self.description.physical_volumes);
            let size = self.size_text(extents);
            self.step(format!("add {} as {name} with {extents} extents ({size})", disk.path));
            self.description.physical_volumes.push(PhysicalVolume {
                name,
                id: disk.id,
                size: disk.size,
                data_offset: disk.data_offset,
                extents,
                path: disk.path.clone(),
                missing: false,
                spare: false,
            });
        }
        Ok(())
    }

    pub(super) fn remove_disk(&mut self, id: Uuid) -> Result<(), PlanError> {
        let group: String = self.group_name().into();
        let Some(pv) = self.pv(id).cloned() else {
            return Err(PlanError::DiskNotFound { group, disk: id.to_string() });
        };
        let path = pv.path.clone();
        self.check_disk_not_moving(pv.name)?;
        self.check_no_step_to(pv.name)?;
        self.check_disk_not_converting(pv.name)?;
        let volumes = self.current().volumes_on(pv.name);
        if !volumes.is_empty() {
            return Err(PlanError::DiskBusy { group, path, volumes });
        }
        let others = self.description.physical_volumes.iter().any(|other| other.id != id && !other.missing);
        if !others {
            return Err(PlanError::LastDisk { group, path });
        }
        self.description.physical_volumes.retain(|other| other.id != id);
        assert!(!self.description.physical_volumes.is_empty(), "a group keeps a disk");
        self.step(format!("take {path} ({}) out of {group}", pv.name));
        Ok(())
    }

    /// A disk keeps every extent that something owns (PLAN2).
    pub(super) fn resize_disk(&mut self, id: Uuid, size: u64) -> Result<(), PlanError> {
        let group: String = self.group_name().into();
        let Some(pv) = self.pv(id).cloned() else {
            return Err(PlanError::DiskNotFound { group, disk: id.to_string() });
        };
        let path = self.check_disk(pv.name)?;
        let (size, extent_size) = (align_down(size, BLOCK_SIZE), self.extent_size());
        let beside = extents_beside(size, pv.data_offset, extent_size);
        if beside == 0 {
            return Err(PlanError::DiskTooSmall { path, size, extent_size });
        }
        let is_larger = size > pv.size;
        // An older disk may be full to its end, without a tail.
        let extents = if is_larger { beside.max(pv.extents) } else { beside };
        if !is_larger {
            self.check_disk_not_moving(pv.name)?;
            self.check_no_step_to(pv.name)?;
            self.check_disk_not_converting(pv.name)?;
            self.check_beyond(&pv, extents, size)?;
        }
        let (before, after) = (format_size(pv.size), format_size(size));
        let (count, text) = (extents.abs_diff(pv.extents), self.size_text(extents.abs_diff(pv.extents)));
        let verb = if extents >= pv.extents { "gains" } else { "loses" };
        self.step(format!(
            "resize {path} ({}) from {before} to {after}: {group} {verb} {count} extents ({text})",
            pv.name
        ));
        for own in self.description.physical_volumes.iter_mut().filter(|own| own.id == id) {
            (own.size, own.extents) = (size, extents);
        }
        Ok(())
    }

    /// Refuses to take extents of a disk from the one at `extents` on away, if something owns one of them.
    fn check_beyond(&self, pv: &PhysicalVolume, extents: u64, size: u64) -> Result<(), PlanError> {
        let ends =
            |lv: &LogicalVolume| areas(lv).filter(|area| area.pv == pv.name).map(|area| area.end()).max();
        let volumes = self.description.logical_volumes.iter();
        let beyond: Vec<String> =
            volumes.clone().filter(|lv| ends(lv) > Some(extents)).map(|lv| self.full(&lv.name)).collect();
        if beyond.is_empty() {
            return Ok(());
        }
        let end = volumes.filter_map(ends).max().unwrap_or(extents);
        let least = pv.data_offset + end * self.extent_size() + TAIL_SIZE;
        assert!(end > extents && least > size, "PLAN2");
        Err(PlanError::DiskEndInUse { path: pv.path.clone(), size, least, volumes: beyond })
    }

    pub(super) fn remove_missing(&mut self, with_volumes: bool) -> Result<(), PlanError> {
        let group: String = self.group_name().into();
        let missing: Vec<PhysicalVolume> =
            self.description.physical_volumes.iter().filter(|pv| pv.missing).cloned().collect();
        if missing.is_empty() {
            return Err(PlanError::NothingMissing { group });
        }
        if missing.len() == self.description.physical_volumes.len() {
            return Err(PlanError::LastDisk { group, path: missing[0].path.clone() });
        }
        let current = self.current();
        let lost: Vec<_> =
            current.logical_volumes().iter().filter(|lv| !current.missing_disks_of(lv).is_empty()).collect();
        if let Some(lv) = lost.first().filter(|_| !with_volumes) {
            let disks = current.missing_disks_of(lv).iter().map(ToString::to_string).collect();
            return Err(PlanError::VolumeIncomplete { group, volume: lv.name.clone(), disks });
        }
        let degraded = current
            .logical_volumes()
            .iter()
            .find(|lv| current.missing_disks_of(lv).is_empty() && !current.degraded_disks_of(lv).is_empty());
        if let Some(lv) = degraded {
            return Err(self.degraded(lv, &current.degraded_disks_of(lv)));
        }
        for lv in lost {
            self.remove_lost(&current, lv);
        }
        self.end_moves_of_missing();
        self.end_lost_conversions()?;
        self.description.physical_volumes.retain(|pv| !pv.missing);
        assert!(!self.description.physical_volumes.is_empty(), "a group keeps a disk");
        for pv in missing {
            self.step(format!(
                "take the missing {} ({}, last seen at {}) out of {group}",
                pv.name, pv.id, pv.path
            ));
        }
        Ok(())
    }

    /// Removes a volume that has lost extents, and the volume of whose mapper it is a device (TEXT23).
    fn remove_lost(&mut self, current: &Group, lv: &LogicalVolume) {
        if !self.has(lv.id) {
            return;
        }
        if let Some(mapped) = current.granted_to(lv.id).filter(|mapped| self.has(mapped.id)) {
            let (full, device) = (self.full(&mapped.name), self.full(&lv.name));
            self.description.logical_volumes.retain(|other| other.id != mapped.id);
            self.step(format!("remove {full} and its snapshots: {device} is a device of its mapper"));
        }
        self.description.logical_volumes.retain(|other| other.id != lv.id);
        let (full, size) = (self.full(&lv.name), self.size_text(lv.extents));
        self.step(format!("remove {full}, its snapshots and all that is left of its data ({size})"));
    }

    fn has(&self, volume: Uuid) -> bool {
        self.description.logical_volumes.iter().any(|lv| lv.id == volume)
    }

    pub(super) fn set_spare(&mut self, id: Uuid, is_spare: bool) -> Result<(), PlanError> {
        let group: String = self.group_name().into();
        let Some(pv) = self.pv(id).cloned() else {
            return Err(PlanError::DiskNotFound { group, disk: id.to_string() });
        };
        if is_spare {
            self.check_disk(pv.name)?;
            self.check_disk_not_moving(pv.name)?;
            self.check_no_step_to(pv.name)?;
            let (volumes, path) = (self.before.volumes_on(pv.name), pv.path.clone());
            if !volumes.is_empty() {
                return Err(PlanError::DiskBusy { group, path, volumes });
            }
        }
        self.step(match is_spare {
            true => format!("keep {} ({}) as a spare", pv.path, pv.name),
            false => format!("use {} ({}) for volumes: it is a spare no more", pv.path, pv.name),
        });
        let disks = self.description.physical_volumes.iter_mut();
        disks.filter(|disk| disk.id == id).for_each(|disk| disk.spare = is_spare);
        Ok(())
    }

    /// Spares on which something is are spares no more (TEXT18).
    pub(super) fn release_spares(&mut self) -> Result<(), PlanError> {
        let owned: Vec<PvName> =
            self.description.logical_volumes.iter().flat_map(areas).map(|area| area.pv).collect();
        let used = self.description.physical_volumes.iter().filter(|pv| pv.spare && owned.contains(&pv.name));
        let used: Vec<Uuid> = used.map(|pv| pv.id).collect();
        used.into_iter().try_for_each(|id| self.set_spare(id, false))
    }

    /// Gives back the last extents of older disks that have none to spare for a tail (TAIL1 of `tail.rs`), if nothing is there.
    pub(super) fn make_room_for_tails(&mut self) {
        let extent_size = self.extent_size();
        let mut used: BTreeMap<PvName, u64> = BTreeMap::new();
        let description = &self.description;
        let of_trash = description.trash.iter().map(|entry| &entry.volume);
        let of_volumes = description.logical_volumes.iter().chain(of_trash).flat_map(areas);
        let of_jobs = description.areas_of_jobs();
        for area in of_volumes.chain(of_jobs.map(|(_, area)| area)) {
            let end = used.entry(area.pv).or_default();
            *end = area.end().max(*end);
        }
        for pv in &mut self.description.physical_volumes {
            let beside = extents_beside(pv.size, pv.data_offset, extent_size);
            if used.get(&pv.name).is_none_or(|used| *used <= beside) {
                pv.extents = pv.extents.min(beside);
                assert!(pv.extents > 0, "TAIL1: a disk keeps an extent");
            }
        }
    }

    pub(super) fn mark_missing(&mut self, missing: &[Uuid], returned: &[Uuid]) -> Result<(), PlanError> {
        let group: String = self.group_name().into();
        for (ids, now_missing) in [(missing, true), (returned, false)] {
            for id in ids {
                let pv = self.description.physical_volumes.iter_mut().find(|pv| pv.id == *id);
                let Some(pv) = pv else {
                    return Err(PlanError::DiskNotFound { group, disk: id.to_string() });
                };
                pv.missing = now_missing;
                let (name, path) = (pv.name, pv.path.clone());
                let verb = if now_missing { "record as missing" } else { "take back" };
                self.step(format!("{verb} {name} ({path})"));
            }
        }
        Ok(())
    }
}

/// The lowest number that no disk of the group has.
fn unused_name(disks: &[PhysicalVolume]) -> PvName {
    let used = |number: &u32| disks.iter().any(|pv| pv.name == PvName(*number));
    let number = (0..).find(|number| !used(number)).expect("a group has fewer disks than there are numbers");
    assert!(number as usize <= disks.len(), "the lowest number of none is at most their count");
    PvName(number)
}
