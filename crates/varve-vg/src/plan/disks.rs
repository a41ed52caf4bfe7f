//! Plans that concern the group itself and its disks.

use super::{Draft, NewDisk, PlanError, unused_name};
use crate::model::{Description, Group, LogicalVolume, PhysicalVolume, PvName};
use std::collections::HashSet;
use uuid::Uuid;
use varve_format::check_name;

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
            let extents = disk.size.saturating_sub(disk.data_offset) / self.extent_size();
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
        let volumes = self.current().volumes_on(pv.name);
        if !volumes.is_empty() {
            let first = |lv: &LogicalVolume| volumes.first() == Some(&lv.name);
            let is_pool = self
                .description
                .logical_volumes
                .iter()
                .find(|lv| first(lv))
                .is_some_and(LogicalVolume::is_pool);
            return Err(PlanError::DiskBusy { group, path, volumes, is_pool });
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
        for lv in lost {
            self.description.logical_volumes.retain(|other| other.id != lv.id);
            let (full, size) = (self.full(&lv.name), self.size_text(lv.extents));
            self.step(format!("remove {full}, its snapshots and all that is left of its data ({size})"));
        }
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

    /// The volumes of the backup on the disks of the group, which must be the very ones of the backup.
    pub(super) fn restore(&mut self, backup: Description) -> Result<(), PlanError> {
        let group: String = self.group_name().into();
        let misfit = |problem: String| PlanError::Backup { group: group.clone(), problem };
        let backup = Group::new(backup).map_err(PlanError::Invalid)?;
        if backup.id() != self.description.group.id {
            return Err(misfit(format!("it is of the group {} ({})", backup.name(), backup.id())));
        }
        if backup.extent_size() != self.extent_size() {
            return Err(misfit("its extent size is another".into()));
        }
        let disks = self.restored_disks(&backup).map_err(misfit)?;
        let count = backup.logical_volumes().len();
        let (sequence, from) = (backup.entry().sequence, self.description.logical_volumes.len());
        self.step(format!("replace the {from} volumes of {group} by the {count} of version {sequence}"));
        self.description.group.name = backup.name().into();
        self.description.group.created = backup.entry().created;
        self.description.group.metadata = backup.entry().metadata;
        self.description.physical_volumes = disks;
        self.description.logical_volumes = backup.logical_volumes().to_vec();
        self.restore_images(&backup);
        // Sets stay what they are now: what was being made when the backup was taken has been settled since.
        Ok(())
    }

    /// The backup's disks, where and how they are now.
    fn restored_disks(&self, backup: &Group) -> Result<Vec<PhysicalVolume>, String> {
        let now = &self.description.physical_volumes;
        let known: HashSet<_> = backup.physical_volumes().iter().map(|pv| pv.id).collect();
        if let Some(pv) = now.iter().find(|pv| !known.contains(&pv.id)) {
            return Err(format!("it does not know the disk {} ({})", pv.path, pv.id));
        }
        let restored = backup.physical_volumes().iter().map(|old| {
            let Some(pv) = now.iter().find(|pv| pv.id == old.id) else {
                return Err(format!("its disk {} ({}) is not in the group", old.path, old.id));
            };
            if (pv.extents, pv.data_offset) != (old.extents, old.data_offset) {
                return Err(format!("the disk {} has another size", pv.path));
            }
            Ok(PhysicalVolume { name: old.name, ..pv.clone() })
        });
        let restored: Vec<_> = restored.collect::<Result<_, _>>()?;
        let names: HashSet<PvName> = restored.iter().map(|pv| pv.name).collect();
        assert_eq!(names.len(), restored.len(), "G1, T1: the backup's names are different");
        Ok(restored)
    }
}
