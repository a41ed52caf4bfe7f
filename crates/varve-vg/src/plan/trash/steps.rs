//! Into the trash, out of it, and given up.

use crate::model::{Job, JobWork, LogicalVolume, Trashed, areas};
use crate::plan::{Draft, PlanError, Stamp, TrashError, TrashStep};
use crate::size::format_size;
use uuid::Uuid;
use varve_block::UnixTime;
use varve_format::text::{TRASH_KEEP_S_MAX, TRASH_MAX};

impl TrashStep {
    /// Carries it out on a draft.
    pub(in crate::plan) fn apply(self, draft: &mut Draft<'_>, stamp: &Stamp) -> Result<(), PlanError> {
        match self {
            TrashStep::Put { name } => put(draft, &name, stamp.date),
            TrashStep::Restore { id, name } => restore(draft, id, name),
            TrashStep::Empty { ids } => ids.into_iter().try_for_each(|id| empty(draft, id)),
            TrashStep::Keep { seconds } => {
                if seconds > TRASH_KEEP_S_MAX {
                    return Err(TrashError::Keep.into());
                }
                draft.description.group.trash_keep_s = Some(seconds);
                let (group, keep) = (draft.group_name(), keep_text(seconds));
                draft.step(format!("keep what is removed from {group} in the trash {keep}"));
                Ok(())
            }
        }
    }
}

/// A volume or pool leaves those that are served, and keeps its extents (PLANTRASH1).
fn put(draft: &mut Draft<'_>, name: &str, now: UnixTime) -> Result<(), PlanError> {
    let lv = draft.lv(name)?.clone();
    let (group, volume) = (draft.group_name().to_owned(), name.to_owned());
    if !lv.layout.takes_space() {
        return Err(TrashError::NoSpace { group, volume }.into());
    }
    let is_own = |job: &Job| matches!(job.work, JobWork::Clear { volume, .. } if volume == lv.id);
    if draft.description.jobs.iter().any(is_own) {
        return Err(TrashError::Uncleared { group, volume }.into());
    }
    while draft.description.trash.len() >= TRASH_MAX {
        let oldest = draft.description.trash.iter().min_by_key(|entry| entry.removed.0);
        let oldest = oldest.map(|entry| entry.volume.id).expect("a full trash has something in it");
        empty(draft, oldest)?;
    }
    let keep = draft.before.trash_keep_s();
    let until = UnixTime(now.0.saturating_add(keep));
    draft.description.logical_volumes.retain(|other| other.id != lv.id);
    let (full, size, time) = (draft.full(name), draft.lv_size_text(&lv), keep_text(keep));
    draft.step(format!("move {full} ({size}) to the trash, where it stays {time}"));
    draft.description.trash.push(Trashed { removed: now, until, volume: lv });
    assert!(draft.lv(name).is_err(), "PLANTRASH1: its name is free");
    Ok(())
}

fn restore(draft: &mut Draft<'_>, id: Uuid, name: String) -> Result<(), PlanError> {
    draft.check_new_name(&name)?;
    let entry = take(draft, id)?;
    let (old, new) = (draft.full(&entry.volume.name), draft.full(&name));
    let size = draft.lv_size_text(&entry.volume);
    draft.step(match old == new {
        true => format!("bring {new} ({size}) back from the trash"),
        false => format!("bring {old} ({size}) back from the trash as {new}"),
    });
    assert!(draft.lv(&name).is_err(), "PLANTRASH1: no other volume has its name");
    draft.description.logical_volumes.push(LogicalVolume { name, ..entry.volume });
    Ok(())
}

fn empty(draft: &mut Draft<'_>, id: Uuid) -> Result<(), PlanError> {
    let entry = take(draft, id)?;
    draft.step(empty_text(draft.group_name(), draft.extent_size(), &entry));
    Ok(())
}

fn take(draft: &mut Draft<'_>, id: Uuid) -> Result<Trashed, PlanError> {
    let (group, what) = (draft.group_name().to_owned(), id.to_string());
    let place = draft.description.trash.iter().position(|entry| entry.volume.id == id);
    let entry = draft.description.trash.remove(place.ok_or(TrashError::NotFound { group, what })?);
    assert!(areas(&entry.volume).next().is_some(), "PLANTRASH1: it has kept its extents");
    Ok(entry)
}

/// Extents of something in the trash.
pub(super) fn extents(entry: &Trashed) -> u64 {
    areas(&entry.volume).map(|area| area.count).sum()
}

pub(in crate::plan) fn empty_text(group: &str, extent_size: u64, entry: &Trashed) -> String {
    let size = format_size(extents(entry).saturating_mul(extent_size));
    format!("empty the trash of {group}/{} ({size})", entry.volume.name)
}

/// `for 1d`, as shown to users.
fn keep_text(seconds: u64) -> String {
    match seconds {
        0 => "not at all: it goes at once".to_owned(),
        _ => format!("for {}", crate::plan::every_text(seconds)),
    }
}
