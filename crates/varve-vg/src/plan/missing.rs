//! What is not changed while disks are missing (PLAN3).

use super::{Change, Draft, PlanError, TrashStep};
use crate::model::{LogicalVolume, PvName, Space, spaces};

impl Draft<'_> {
    /// PLAN3, for `change`, which may take or free extents.
    pub(super) fn check_complete(&self, change: &Change) -> Result<(), PlanError> {
        let volume = match change {
            Change::ExtendVolume { name, .. } | Change::ReduceVolume { name, .. } => name,
            Change::CreateStore { volume, .. }
            | Change::ExtendStore { volume, .. }
            | Change::RemoveStore { volume, .. }
            | Change::ReplaceStore { volume, .. } => volume,
            Change::Restore { .. } => return self.check_group_complete(),
            _ => return Ok(()),
        };
        let missing = self.before.lv(volume).map(|lv| self.before.missing_disks_of(lv)).unwrap_or_default();
        if missing.is_empty() {
            return Ok(());
        }
        let disks = missing.iter().map(ToString::to_string).collect();
        Err(PlanError::VolumeIncomplete { group: self.group_name().into(), volume: volume.clone(), disks })
    }

    /// What is a device of a mapper stays as the mapper knows it.
    pub(super) fn check_granted(&self, change: &Change) -> Result<(), PlanError> {
        let volume = match change {
            Change::ExtendVolume { name, .. }
            | Change::ReduceVolume { name, .. }
            | Change::RemoveVolume { name }
            | Change::Trash(TrashStep::Put { name }) => name,
            Change::CreateStore { volume, .. } => volume,
            _ => return Ok(()),
        };
        let to = self.before.lv(volume).and_then(|lv| self.before.granted_to(lv.id));
        let granted = |to: &LogicalVolume| PlanError::Granted {
            group: self.group_name().into(),
            volume: volume.clone(),
            to: to.name.clone(),
        };
        to.map_or(Ok(()), |to| Err(granted(to)))
    }

    fn check_group_complete(&self) -> Result<(), PlanError> {
        let missing = self.description.physical_volumes.iter().filter(|pv| pv.missing);
        let disks: Vec<_> = missing.map(|pv| format!("{} ({})", pv.name, pv.path)).collect();
        if disks.is_empty() {
            return Ok(());
        }
        Err(PlanError::GroupIncomplete { group: self.group_name().into(), disks })
    }

    /// PLAN3: all members of an array, `space` of `lv`, are here.
    pub(super) fn check_members(&self, lv: &LogicalVolume, space: Space<'_>) -> Result<(), PlanError> {
        let disks = self.before.missing_disks_in(space);
        if disks.is_empty() { Ok(()) } else { Err(self.degraded(lv, &disks)) }
    }

    /// `lv` does without `disks`.
    pub(super) fn degraded(&self, lv: &LogicalVolume, disks: &[PvName]) -> PlanError {
        let has_member = |space: Space<'_>| space.disks_of_members().any(|disk| disks.contains(&disk));
        let what = if spaces(lv).any(has_member) { "members" } else { "its log" };
        let path = disks.first().and_then(|disk| self.before.pv(*disk)).map(|pv| pv.path.clone());
        PlanError::VolumeDegraded {
            group: self.group_name().into(),
            volume: lv.name.clone(),
            is_pool: lv.is_pool(),
            what,
            disks: disks.iter().map(ToString::to_string).collect(),
            path: path.unwrap_or_default(),
        }
    }
}
