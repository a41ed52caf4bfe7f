//! A group's description written back from a backup; and what a group loses by that, or by any other change.
//!
//! A backup says where volumes lay when it was taken. What a volume of both has now is kept as far as it can be: extents
//! that it has gained since, and its present exception stores. A store that was given back since is not restored: the
//! volume was written without it.
//!
//! Invariant PLAN4: what a restore takes from a volume that the group has now is among the losses of [`losses`].

use super::schedules::bring_back;
use super::trash::empty_text;
use super::under_way::{drop_under_way, under_way_words};
use super::{Draft, PlanError};
use crate::disks::tail::extents_beside;
use crate::model::{
    Area, Description, Group, Job, JobWork, Layout, LogicalVolume, PhysicalVolume, PvName, Segment, Store,
    areas,
};
use std::collections::{BTreeSet, HashSet};
use uuid::Uuid;

/// What a volume or pool of a group loses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which.
    pub volume: Uuid,
    /// What the group calls it now.
    pub name: String,
    /// Whether it is a pool.
    pub is_pool: bool,
    /// What it loses.
    pub kind: LossKind,
}

/// What is lost of a volume or pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// All of it, which is so many bytes.
    All(u64),
    /// What is outside the places that it is to have, or would be read in another order: it has so many bytes now, and
    /// then so many.
    Places {
        /// Bytes now.
        now: u64,
        /// Bytes then.
        then: u64,
    },
    /// Snapshots, with their exception store.
    Store,
}

/// What the volumes and pools of `now` lose if `after` is its next version.
pub fn losses(now: &Group, after: &Group) -> Vec<Loss> {
    let mut losses = Vec::new();
    for entry in now.logical_volumes() {
        let mut lose = |kind| {
            let (volume, name, is_pool) = (entry.id, entry.name.clone(), entry.is_pool());
            losses.push(Loss { volume, name, is_pool, kind });
        };
        let Some(then) = after.logical_volumes().iter().find(|then| then.id == entry.id) else {
            lose(LossKind::All(now.bytes(entry.extents)));
            continue;
        };
        if !is_same_layout(&then.layout, &entry.layout) || !begins_with(&then.segments, &entry.segments) {
            lose(LossKind::Places { now: now.bytes(entry.extents), then: after.bytes(then.extents) });
        }
        let kept = |store: &Store| {
            let then = then.stores().find(|then| then.id == store.id);
            then.is_some_and(|then| {
                then.layout == store.layout && begins_with(&then.segments, &store.segments)
            })
        };
        if !entry.stores().all(kept) {
            lose(LossKind::Store);
        }
    }
    losses
}

/// Whether bytes lie in the same places, as far as layouts say; how large an image is, it says itself.
fn is_same_layout(then: &Layout, now: &Layout) -> bool {
    match (then, now) {
        (Layout::Image { path, format, .. }, Layout::Image { path: other, format: read_as, .. }) => {
            (path, format) == (other, read_as)
        }
        (then, now) => without_log(then) == without_log(now),
    }
}

/// `layout`, with its log on its members: no byte of a volume is on a log disk.
fn without_log(layout: &Layout) -> Layout {
    let mut layout = layout.clone();
    if let Some(log) = layout.log_mut() {
        *log = None;
    }
    layout
}

/// Whether what is in `before` is there in `segments`, too: both are the same, or more was added to the end.
fn begins_with(segments: &[Segment], before: &[Segment]) -> bool {
    let last = before.len().saturating_sub(1);
    let begins = |(index, (now, before)): (usize, (&Segment, &Segment))| {
        let mut areas = now.areas.iter().zip(&before.areas);
        now.areas.len() == before.areas.len()
            && areas.all(|(now, before)| {
                let long = if index == last { now.count >= before.count } else { now.count == before.count };
                (now.pv, now.start) == (before.pv, before.start) && long
            })
    };
    segments.len() >= before.len() && segments.iter().zip(before).enumerate().all(begins)
}

impl Draft<'_> {
    fn pv_called(&self, name: PvName) -> Option<&PhysicalVolume> {
        self.description.physical_volumes.iter().find(|pv| pv.name == name)
    }

    /// PLANTRASH4, of volumes that a backup has written back.
    pub(super) fn keep_trash(&mut self) {
        let owned: Vec<Area> = self.description.logical_volumes.iter().flat_map(areas).collect();
        let ids: BTreeSet<Uuid> = self.description.logical_volumes.iter().map(|lv| lv.id).collect();
        let overlaps = |one: Area| {
            owned.iter().any(|area| area.pv == one.pv && area.start < one.end() && one.start < area.end())
        };
        let names_stay = self.disks_keep_names();
        let (mut trash, mut steps) = (Vec::new(), Vec::new());
        for entry in &self.description.trash {
            if ids.contains(&entry.volume.id) {
                continue; // It comes back.
            }
            let is_beyond = |area: Area| self.pv_called(area.pv).is_none_or(|pv| area.end() > pv.extents);
            match !names_stay || areas(&entry.volume).any(|area| overlaps(area) || is_beyond(area)) {
                true => steps.push(empty_text(self.group_name(), self.extent_size(), entry)),
                false => trash.push(entry.clone()),
            }
        }
        assert!(
            trash.len() + steps.len() <= self.description.trash.len(),
            "PLANTRASH4: nothing else is there"
        );
        self.description.trash = trash;
        self.steps.extend(steps);
    }

    /// The volumes of the backup on the disks of the group, which must be the very ones of the backup.
    pub(super) fn restore(&mut self, taken: &Description) -> Result<(), PlanError> {
        let group: String = self.group_name().into();
        if let Some(entry) = self.description.moves().next() {
            return Err(PlanError::Moving { what: group.clone(), group, from: entry.from });
        }
        if let Some(entry) = self.before.conversions().next() {
            return Err(self.converting(entry.volume));
        }
        let misfit = |problem: String| PlanError::Backup { group: group.clone(), problem };
        taken.check().map_err(PlanError::Invalid)?;
        let mut backup = taken.clone();
        drop_under_way(&mut backup); // UNDERWAY1
        let backup = Group::new(backup).map_err(PlanError::Invalid)?;
        if backup.id() != self.description.group.id {
            return Err(misfit(format!("it is of the group {} ({})", backup.name(), backup.id())));
        }
        if backup.extent_size() != self.extent_size() {
            return Err(misfit("its extent size is another".into()));
        }
        let disks = self.restored_disks(&backup).map_err(misfit)?;
        let sequence = backup.entry().sequence;
        self.step(format!("write back the volumes that {group} had in version {sequence}"));
        self.description.group.name = backup.name().into();
        self.description.group.created = backup.entry().created;
        self.description.group.metadata = backup.entry().metadata;
        self.description.physical_volumes = disks;
        self.description.logical_volumes = backup.logical_volumes().to_vec();
        self.description.jobs.retain(|job| !job.work.holds_extents());
        self.keep_trash();
        self.keep_what_is_there(&backup);
        self.restore_images(&backup);
        self.keep_clearings();
        bring_back(&mut self.description, self.before, &backup);
        self.tell_what_does_not_go_on(taken);
        // Sets and jobs stay what they are now: those of when the backup was taken have ended since (PLANJOB2).
        Ok(())
    }

    /// Lets volumes of both have what they have now, where the backup gives it to no other volume; and tells what that is, what
    /// goes and what comes (PLAN4).
    fn keep_what_is_there(&mut self, backup: &Group) {
        let names_stay = self.disks_keep_names();
        for index in 0..self.description.logical_volumes.len() {
            let then = &self.description.logical_volumes[index];
            let Some(now) = self.before.logical_volumes().iter().find(|now| now.id == then.id) else {
                continue;
            };
            let without_old = without_old_stores(then, now);
            let kept = with_present(&without_old, now);
            self.description.logical_volumes[index] = kept.clone();
            if !names_stay || Group::new(self.description.clone()).is_err() {
                self.description.logical_volumes[index] = without_old;
            } else if kept != backup.logical_volumes()[index] {
                let (full, size) = (self.full(&kept.name), self.size_text(kept.extents));
                self.step(format!("keep {full} as it is, with {size} and its present snapshots"));
            }
        }
        for loss in losses(self.before, &self.current()) {
            let full = format!("{}/{}", self.before.name(), loss.name);
            self.step(match loss.kind {
                LossKind::All(bytes) => format!("drop {full} ({})", crate::size::format_size(bytes)),
                LossKind::Places { now, then } => {
                    let (now, then) = (crate::size::format_size(now), crate::size::format_size(then));
                    format!(
                        "drop what {full} holds beyond its places in the backup (it has {now}, then {then})"
                    )
                }
                LossKind::Store => format!("drop snapshots of {full}"),
            });
        }
        let is_new = |lv: &&LogicalVolume| !self.before.logical_volumes().iter().any(|now| now.id == lv.id);
        let back: Vec<String> = self
            .description
            .logical_volumes
            .iter()
            .filter(is_new)
            .map(|lv| format!("bring back {} ({})", self.full(&lv.name), self.size_text(lv.extents)))
            .collect();
        self.steps.extend(back);
    }

    /// Whether what areas call the disks of the group now is what they are called then.
    pub(super) fn disks_keep_names(&self) -> bool {
        let then = &self.description.physical_volumes;
        let keeps = |pv: &PhysicalVolume| then.iter().any(|then| (then.id, then.name) == (pv.id, pv.name));
        self.before.physical_volumes().iter().all(keeps)
    }

    /// Whether a volume has the very extents that it has now.
    fn keeps_extents(&self, volume: Uuid) -> bool {
        let now = self.before.logical_volumes().iter().find(|now| now.id == volume);
        let then = self.description.logical_volumes.iter().find(|then| then.id == volume);
        let is_same = |(now, then): (&LogicalVolume, &LogicalVolume)| {
            (&now.layout, &now.segments) == (&then.layout, &then.segments)
        };
        self.disks_keep_names() && now.zip(then).is_some_and(is_same)
    }

    /// What a volume has now and keeps is still to be cleared.
    fn keep_clearings(&mut self) {
        let stays = |job: &&Job| match &job.work {
            JobWork::Clear { volume, .. } => self.keeps_extents(*volume),
            work => !work.holds_extents(),
        };
        let jobs = self.before.jobs().iter().filter(stays).cloned().collect();
        self.description.jobs = jobs;
    }

    /// UNDERWAY1. Jobs that stand in the group's description now go on as they are (PLANJOB2), and a volume that is kept as it is now
    /// shows nothing else than now.
    fn tell_what_does_not_go_on(&mut self, taken: &Description) {
        let is_meant = |job: &Job| match &job.work {
            JobWork::Clear { volume, .. } => !self.keeps_extents(*volume),
            _ => !self.description.jobs.iter().any(|now| now.id == job.id),
        };
        let words = under_way_words(taken, is_meant);
        let works = self.description.moves().count() + self.description.conversions().count();
        assert_eq!(works, 0, "UNDERWAY1");
        self.warnings.extend(words);
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
            if pv.data_offset != old.data_offset {
                return Err(format!("the extents of the disk {} begin elsewhere", pv.path));
            }
            let areas = backup.owned_areas().filter(|area| area.pv == old.name);
            let used = areas.map(|area| area.end()).max().unwrap_or(0);
            let extents = match pv.size == old.size {
                true => old.extents,
                false => used.max(extents_beside(pv.size, pv.data_offset, self.extent_size())),
            };
            if pv.data_offset + backup.bytes(extents) > pv.size {
                return Err(format!(
                    "the disk {} was reduced since, and has not all that was on it",
                    pv.path
                ));
            }
            let spare = pv.spare && used == 0;
            Ok(PhysicalVolume { name: old.name, extents, spare, ..pv.clone() })
        });
        let restored: Vec<_> = restored.collect::<Result<_, _>>()?;
        let names: HashSet<PvName> = restored.iter().map(|pv| pv.name).collect();
        assert_eq!(names.len(), restored.len(), "GROUP1, TEXT1: the backup's names are different");
        Ok(restored)
    }
}

/// `then`, without stores that the volume has no more: it was written without them since.
fn without_old_stores(then: &LogicalVolume, now: &LogicalVolume) -> LogicalVolume {
    let mut kept = then.clone();
    let has = |store: &Store| now.stores().any(|known| known.id == store.id);
    kept.store = kept.store.filter(has);
    kept.independent_stores.retain(has);
    kept
}

/// `then`, with the stores and the log disk of `now`, and with the extents that were added since.
fn with_present(then: &LogicalVolume, now: &LogicalVolume) -> LogicalVolume {
    let mut kept = then.clone();
    kept.store.clone_from(&now.store);
    kept.independent_stores.clone_from(&now.independent_stores);
    if without_log(&now.layout) == without_log(&then.layout) && begins_with(&now.segments, &then.segments) {
        kept.layout.clone_from(&now.layout);
        kept.segments.clone_from(&now.segments);
        kept.extents = now.extents;
    }
    kept
}
