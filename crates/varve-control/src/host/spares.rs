//! Hot spares: disks of a group on which members of arrays are put by themselves when their disk is lost.
//!
//! What `pv replace` refuses is not done here either. A spare that holds members is a disk like others from then on.
//!
//! Invariant SPARES1: a disk is replaced only if arrays do without it at that moment.

use crate::Control;
use crate::group::change::shown;
use crate::group::known_group::KnownGroup;
use std::path::Path;
use uuid::Uuid;
use varve_api::{Changed, Code, Failure, PhysicalVolume, PhysicalVolumeChange};
use varve_block::host::DiskState;
use varve_target::array::MemberState;
use varve_vg::Change;
use varve_vg::model::{PhysicalVolume as Entry, PvName, spaces};

impl Control {
    /// Changes what a disk is for.
    pub async fn change_disk(
        &self,
        request: PhysicalVolumeChange,
    ) -> Result<Changed<Vec<PhysicalVolume>>, Failure> {
        let (_lock, group, disk) = self.lock_of_disk(&request.disk).await?;
        let is_spare = request.spare.ok_or_else(|| {
            Failure::new(Code::Usage, "nothing is to be changed")
                .help(format!("varve pv change {} --spare yes|no", request.disk))
        })?;
        let words = format!("pv change {} --spare {}", request.disk, if is_spare { "yes" } else { "no" });
        let commits = self.commits(group).await;
        let planned = commits.plan(group, Change::SetSpare { disk, is_spare }, &words)?;
        if request.dry_run {
            return Ok(Changed::Planned(shown(&planned)));
        }
        commits.commit(group, planned, Vec::new()).await?;
        let mut disks = self.with_group(group, |known| self.disks_of(known))?;
        disks.retain(|shown| shown.id == disk.to_string());
        Ok(Changed::Done(disks))
    }

    /// Puts members of arrays whose disk is lost on spares.
    pub(crate) async fn use_spares(&self) {
        let lost: Vec<_> =
            self.groups.known.borrow().values().flat_map(|known| self.lost_of(known)).collect();
        for disk in self.disks.lost.due(&lost, self.context.clock().now()) {
            let Some(group) = self.group_with_spares(disk) else {
                self.disks.lost.forget_refusal(disk);
                continue;
            };
            let Err(failure) = self.take_spare(group, disk).await else {
                self.disks.lost.remove(disk);
                continue;
            };
            let path = self.with_group(group, |known| known.path_of(disk)).unwrap_or_default();
            if self.disks.lost.refuse(disk, &path, &failure.message, self.context.clock().now()) {
                self.warn(&path, &format!("no spare takes its place: {failure}"));
            }
        }
    }

    /// Puts the members of arrays on a disk that is lost on a spare: the smallest that holds them, or several.
    async fn take_spare(&self, group: Uuid, disk: Uuid) -> Result<(), Failure> {
        let _lock = self.lock_of(&group.to_string()).await?;
        if !self.is_done_without(group, disk).await? {
            return Ok(());
        }
        let path = self.with_group(group, |known| known.path_of(disk))?;
        let spares = self.spares_of(group)?;
        let mut short = Err(Failure::new(Code::MediumFailed, "the spares have failed").help("varve pv list"));
        for to in spares.chunks(1).chain((spares.len() > 1).then_some(spares.as_slice())) {
            let words = format!("the spare {} takes the place of {path}", to.join(", "));
            match self.replace(group, (disk, to), None, &words, false).await {
                // Too small, or with larger sectors than a member may have: another one may do.
                Err(failure) if matches!(failure.code, Code::NoSpaceInGroup | Code::BadLayout) => {
                    short = Err(failure);
                }
                replaced => return replaced.map(drop),
            }
        }
        short
    }

    /// Whether arrays do without a disk at this moment (SPARES1).
    async fn is_done_without(&self, group: Uuid, disk: Uuid) -> Result<bool, Failure> {
        let name = self.with_group(group, |known| known.group.pv_by_id(disk).map(|disk| disk.name))?;
        let arrays = self.arrays_of(group, |_| true).await?;
        let states = arrays.iter().filter_map(|array| array.state_on(name?));
        Ok(states.into_iter().any(|state| state.is_none_or(|state| state == MemberState::Away)))
    }

    /// The paths of a group's spares that can be used, the smallest first.
    fn spares_of(&self, group: Uuid) -> Result<Vec<String>, Failure> {
        let disks = self.disks.known.borrow();
        self.with_group(group, |known| {
            let usable =
                known.group.physical_volumes().iter().filter(|disk| disk.spare && !is_missing(known, disk));
            let mut usable: Vec<(u64, String)> =
                usable.map(|disk| (disk.extents, known.path_of(disk.id))).collect();
            usable.retain(|(_, path)| {
                disks.get(Path::new(path)).is_some_and(|disk| disk.file.state() == DiskState::InUse)
            });
            usable.sort();
            usable.into_iter().map(|(_, path)| path).collect()
        })
    }

    /// The group of a disk, if it has spares.
    fn group_with_spares(&self, disk: Uuid) -> Option<Uuid> {
        let groups = self.groups.known.borrow();
        let has_both = |known: &KnownGroup| {
            let disks = known.group.physical_volumes();
            known.group.pv_by_id(disk).is_some()
                && disks.iter().any(|disk| disk.spare && !is_missing(known, disk))
        };
        groups.iter().find(|(_, known)| has_both(known)).map(|(id, _)| *id)
    }

    /// The disks of a group with members of arrays that are missing (`true`), or were ejected.
    fn lost_of(&self, known: &KnownGroup) -> Vec<(Uuid, bool)> {
        let disks = known.group.physical_volumes().iter().map(|disk| (disk, is_missing(known, disk)));
        let lost = disks.filter(|(disk, is_missing)| *is_missing || self.disks.lost.is_ejected(disk.id));
        let holds_members = |name: PvName| {
            let mut spaces = known.group.logical_volumes().iter().flat_map(spaces);
            spaces
                .any(|space| !space.layout.members().is_empty() && space.areas().any(|area| area.pv == name))
        };
        let lost = lost.filter(|(disk, _)| holds_members(disk.name));
        lost.map(|(disk, is_missing)| (disk.id, is_missing)).collect()
    }
}

fn is_missing(known: &KnownGroup, disk: &Entry) -> bool {
    disk.missing || !known.paths.contains_key(&disk.id)
}
