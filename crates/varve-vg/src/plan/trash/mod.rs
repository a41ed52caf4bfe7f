//! The trash: volumes and pools that were removed stay as they are, under no name, until their time is over or their extents are needed.
//!
//! Invariants:
//! - PLANTRASH1. What is in the trash keeps its extents, and its stores, so that it comes back as it was; nothing serves it meanwhile.
//! - PLANTRASH2. A change that would fail for want of space says what of the trash is to be emptied first, the oldest first and no more than it needs.
//!   What others may write to its extents before a change is valid, they write after that is durable: whoever carries out the plan sees to that.
//! - PLANTRASH3. What keeps a disk in a group is given up with it if it is in the trash.
//! - PLANTRASH4. The trash is what it is now, whatever backup is written back, but for what the backup gives extents to.

mod steps;

pub(super) use steps::empty_text;

use super::{Change, Plan, PlanError};
use crate::model::{Area, Group, LogicalVolume, PhysicalVolume, PvName, Trashed, areas};
use steps::extents;
use uuid::Uuid;

impl Change {
    /// Plans a change that `attempt` plans for a group of which so much of the trash is empty (PLANTRASH2, PLANTRASH3).
    pub(in crate::plan) fn with_room(
        &self,
        group: &Group,
        attempt: impl Fn(&Group) -> Result<Plan, PlanError>,
    ) -> Result<Plan, PlanError> {
        let way = in_the_way(group, self);
        let mut candidates = candidates(group, self);
        candidates.retain(|id| !way.contains(id));
        let emptied = |count: usize| way.iter().chain(&candidates[..count]).copied().collect::<Vec<Uuid>>();
        let attempt = |count: usize| attempt(&without(group, &emptied(count)));
        let is_short = |planned: &Result<Plan, PlanError>| match planned {
            Ok(plan) => takes_last_extents(self, group, plan),
            Err(error) => is_shortage(error),
        };
        // The first that suffices is searched for by halves: the more of the trash is empty, the more room there is.
        let (mut short, mut enough, mut planned) = (0, 0, attempt(0));
        if is_short(&planned) && !candidates.is_empty() {
            (enough, planned) = (candidates.len(), attempt(candidates.len()));
            while enough - short > 1 {
                let middle = short.midpoint(enough);
                let tried = attempt(middle);
                match is_short(&tried) {
                    true => short = middle,
                    false => (enough, planned) = (middle, tried),
                }
            }
        }
        planned.map(|plan| emptying(group, plan, emptied(enough)))
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
    let is_there = |id: &Uuid| group.trash().iter().any(|entry| entry.volume.id == *id);
    assert!(emptied.iter().all(is_there), "PLANTRASH2: each is emptied once");
    let mut description = group.description().clone();
    description.trash.retain(|entry| !emptied.contains(&entry.volume.id));
    let room = Group::new(description).expect("GROUP1: nothing needs what is in the trash");
    assert!(room.usage().free >= group.usage().free, "PLANTRASH2: what is emptied makes room");
    room
}
