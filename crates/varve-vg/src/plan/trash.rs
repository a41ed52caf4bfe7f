//! The trash: volumes and pools that were removed stay as they are, under no name, until their time is over or their extents are needed.
//!
//! Invariants:
//! - PLANTRASH1. What is in the trash keeps its extents, and its stores, so that it comes back as it was; nothing serves it meanwhile.
//! - PLANTRASH2. A change that would fail for want of space says what of the trash is to be emptied first, the oldest first and no more than it needs.
//!   What others may write to its extents before a change is valid, they write after that is durable: whoever carries out the plan sees to that.
//! - PLANTRASH3. What keeps a disk in a group is given up with it if it is in the trash.
//! - PLANTRASH4. The trash is what it is now, whatever backup is written back, but for what the backup gives extents to.

use super::{Change, Draft, Plan, PlanError, Stamp};
use crate::model::{Area, Group, JobWork, LogicalVolume, PhysicalVolume, PvName, Trashed, areas};
use crate::size::format_size;
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_block::UnixTime;
use varve_format::text::{TRASH_KEEP_S_MAX, TRASH_MAX};

/// What is done with the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrashStep {
    /// A volume or pool is removed, and can be brought back until its time is over.
    Put {
        /// What it is called.
        name: String,
    },
    /// It comes back.
    Restore {
        /// Which.
        id: Uuid,
        /// What it is called from then on.
        name: String,
    },
    /// These are given up.
    Empty {
        /// Which.
        ids: Vec<Uuid>,
    },
    /// What is removed from now on stays for so long.
    Keep {
        /// Seconds; 0 if there is no trash.
        seconds: u64,
    },
}

/// Why a change of the trash is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrashError {
    /// It is not there.
    #[error("{what} is not in the trash of {group}")]
    NotFound {
        /// The group.
        group: String,
        /// Its name or id.
        what: String,
    },
    /// What others wrote to its extents has not been cleared yet: brought back, it would show that.
    #[error("{group}/{volume} is being cleared")]
    Uncleared {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
    },
    /// It has no extents that could be kept.
    #[error("{group}/{volume} takes no space of its group, and has nothing to keep")]
    NoSpace {
        /// The group.
        group: String,
        /// The volume.
        volume: String,
    },
    /// No group keeps what is removed for so long.
    #[error("what is removed stays in the trash for 366 days at most")]
    Keep,
}

impl TrashError {
    /// What to do about it.
    pub(super) fn help(&self) -> String {
        match self {
            Self::NotFound { group, .. } => format!("`varve trash list {group}` shows what is there"),
            Self::Uncleared { .. } => "wait for its job (`varve job list`), or --now".to_owned(),
            Self::NoSpace { .. } => "--now".to_owned(),
            Self::Keep => "--trash 24h, 7d or 0".to_owned(),
        }
    }
}

/// Plans a change that `attempt` plans for a group of which so much of the trash is empty (PLANTRASH2, PLANTRASH3).
pub(super) fn with_room(
    group: &Group,
    change: &Change,
    attempt: impl Fn(&Group) -> Result<Plan, PlanError>,
) -> Result<Plan, PlanError> {
    let mut emptied = in_the_way(group, change);
    let mut candidates = candidates(group, change);
    candidates.retain(|id| !emptied.contains(id));
    let mut candidates = candidates.into_iter();
    loop {
        let room = without(group, &emptied);
        let planned = attempt(&room);
        let is_short = match &planned {
            Ok(plan) => takes_last_extents(change, group, plan),
            Err(error) => is_shortage(error),
        };
        match candidates.next().filter(|_| is_short) {
            Some(id) => emptied.push(id),
            None => return planned.map(|plan| emptying(group, plan, emptied)),
        }
    }
}

/// The same plan, with what it empties.
fn emptying(group: &Group, mut plan: Plan, emptied: Vec<Uuid>) -> Plan {
    let gone = group.trash().iter().filter(|entry| emptied.contains(&entry.volume.id));
    let gone: Vec<&Trashed> = gone.collect();
    plan.steps.splice(0..0, gone.iter().map(|entry| empty_text(group.name(), group.extent_size(), entry)));
    plan.bytes_freed += gone.iter().map(|entry| group.bytes(extents(entry))).sum::<u64>();
    assert_eq!(gone.len(), emptied.len(), "PLANTRASH2: what is emptied was there");
    plan.emptied = emptied;
    plan
}

/// What is in the trash and may be emptied for a change, the oldest first.
fn candidates(group: &Group, change: &Change) -> Vec<Uuid> {
    let on: &[PvName] = match change {
        Change::Trash(_) | Change::Restore { .. } => return Vec::new(),
        Change::CreateVolume { disks, .. } | Change::ExtendVolume { disks, .. } => &disks.on,
        _ => &[],
    };
    let gives = |entry: &&Trashed| on.is_empty() || areas(&entry.volume).any(|area| on.contains(&area.pv));
    oldest_first(group).into_iter().filter(gives).map(|entry| entry.volume.id).collect()
}

fn oldest_first(group: &Group) -> Vec<&Trashed> {
    let mut entries: Vec<&Trashed> = group.trash().iter().collect();
    entries.sort_by_key(|entry| entry.removed.0);
    entries
}

/// Whether a change fails for want of extents.
fn is_shortage(error: &PlanError) -> bool {
    matches!(
        error,
        PlanError::NoSpace { .. }
            | PlanError::TooFewDisks { .. }
            | PlanError::TooFewMembers { .. }
            | PlanError::NoLogSpace { .. }
            | PlanError::NoReplacement { .. }
            | PlanError::NoPlace { .. }
            | PlanError::ShareTooSmall { .. }
    )
}

/// Whether a pool or store would grow into the last free extents.
fn takes_last_extents(change: &Change, group: &Group, plan: &Plan) -> bool {
    let grows = match change {
        Change::ExtendStore { .. } => true,
        Change::ExtendVolume { name, .. } => group.lv(name).is_some_and(LogicalVolume::is_pool),
        _ => false,
    };
    grows && plan.after.usage().free == 0
}

/// PLANTRASH3: what is in the trash and on a disk that a change takes away, or on the end of it.
fn in_the_way(group: &Group, change: &Change) -> Vec<Uuid> {
    let lost = |pv: &PhysicalVolume| match change {
        Change::RemoveDisk { id } | Change::SetSpare { disk: id, is_spare: true } if pv.id == *id => Some(0),
        Change::RemoveMissing { .. } if pv.missing => Some(0),
        Change::ResizeDisk { id, size } if pv.id == *id => {
            Some(crate::disks::tail::extents_beside(*size, pv.data_offset, group.extent_size()))
        }
        _ => None,
    };
    let disks: Vec<(PvName, u64)> =
        group.physical_volumes().iter().filter_map(|pv| Some((pv.name, lost(pv)?))).collect();
    let is_lost = |area: Area| disks.iter().any(|(pv, left)| area.pv == *pv && area.end() > *left);
    let entries = group.trash().iter().filter(|entry| areas(&entry.volume).any(is_lost));
    entries.map(|entry| entry.volume.id).collect()
}

/// The group without some of what is in its trash.
fn without(group: &Group, emptied: &[Uuid]) -> Group {
    let mut description = group.description().clone();
    description.trash.retain(|entry| !emptied.contains(&entry.volume.id));
    Group::new(description).expect("GROUP1: nothing needs what is in the trash")
}

/// Extents of something in the trash.
fn extents(entry: &Trashed) -> u64 {
    areas(&entry.volume).map(|area| area.count).sum()
}

fn empty_text(group: &str, extent_size: u64, entry: &Trashed) -> String {
    let size = format_size(extents(entry).saturating_mul(extent_size));
    format!("empty the trash of {group}/{} ({size})", entry.volume.name)
}

impl Draft<'_> {
    pub(super) fn change_trash(&mut self, step: TrashStep, stamp: &Stamp) -> Result<(), PlanError> {
        match step {
            TrashStep::Put { name } => self.put_into_trash(&name, stamp.date),
            TrashStep::Restore { id, name } => self.restore_from_trash(id, name),
            TrashStep::Empty { ids } => ids.into_iter().try_for_each(|id| self.empty_trash(id)),
            TrashStep::Keep { seconds } => {
                if seconds > TRASH_KEEP_S_MAX {
                    return Err(TrashError::Keep.into());
                }
                self.description.group.trash_keep_s = Some(seconds);
                let (group, keep) = (self.group_name(), keep_text(seconds));
                self.step(format!("keep what is removed from {group} in the trash {keep}"));
                Ok(())
            }
        }
    }

    /// A volume or pool leaves those that are served, and keeps its extents (PLANTRASH1).
    fn put_into_trash(&mut self, name: &str, now: UnixTime) -> Result<(), PlanError> {
        let lv = self.lv(name)?.clone();
        let (group, volume) = (self.group_name().to_owned(), name.to_owned());
        if !lv.layout.takes_space() {
            return Err(TrashError::NoSpace { group, volume }.into());
        }
        let is_own =
            |job: &crate::model::Job| matches!(job.work, JobWork::Clear { volume, .. } if volume == lv.id);
        if self.description.jobs.iter().any(is_own) {
            return Err(TrashError::Uncleared { group, volume }.into());
        }
        while self.description.trash.len() >= TRASH_MAX {
            let oldest = self.description.trash.iter().min_by_key(|entry| entry.removed.0);
            let oldest = oldest.map(|entry| entry.volume.id).expect("a full trash has something in it");
            self.empty_trash(oldest)?;
        }
        let keep = self.before.trash_keep_s();
        let until = UnixTime(now.0.saturating_add(keep));
        self.description.logical_volumes.retain(|other| other.id != lv.id);
        let (full, size, time) = (self.full(name), self.lv_size_text(&lv), keep_text(keep));
        self.step(format!("move {full} ({size}) to the trash, where it stays {time}"));
        self.description.trash.push(Trashed { removed: now, until, volume: lv });
        assert!(self.lv(name).is_err(), "PLANTRASH1: its name is free");
        Ok(())
    }

    fn restore_from_trash(&mut self, id: Uuid, name: String) -> Result<(), PlanError> {
        self.check_new_name(&name)?;
        let entry = self.take_from_trash(id)?;
        let (old, new) = (self.full(&entry.volume.name), self.full(&name));
        let size = self.lv_size_text(&entry.volume);
        self.step(match old == new {
            true => format!("bring {new} ({size}) back from the trash"),
            false => format!("bring {old} ({size}) back from the trash as {new}"),
        });
        self.description.logical_volumes.push(LogicalVolume { name, ..entry.volume });
        Ok(())
    }

    fn empty_trash(&mut self, id: Uuid) -> Result<(), PlanError> {
        let entry = self.take_from_trash(id)?;
        self.step(empty_text(self.group_name(), self.extent_size(), &entry));
        Ok(())
    }

    fn take_from_trash(&mut self, id: Uuid) -> Result<Trashed, PlanError> {
        let (group, what) = (self.group_name().to_owned(), id.to_string());
        let place = self.description.trash.iter().position(|entry| entry.volume.id == id);
        Ok(self.description.trash.remove(place.ok_or(TrashError::NotFound { group, what })?))
    }

    /// The same draft, with an empty trash: what may be taken of it is free there.
    pub(super) fn with_empty_trash(&self) -> Draft<'_> {
        let mut draft = Draft::of(self.before);
        draft.description.clone_from(&self.description);
        draft.description.trash.clear();
        draft
    }

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
        self.description.trash = trash;
        self.steps.extend(steps);
    }
}

/// `for 1d`, as shown to users.
fn keep_text(seconds: u64) -> String {
    match seconds {
        0 => "not at all: it goes at once".to_owned(),
        _ => format!("for {}", super::every_text(seconds)),
    }
}
