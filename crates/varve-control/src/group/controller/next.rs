//! What is to be done next so that what is served of a group becomes what its text says: a pure function of what is seen.
//!
//! Invariants:
//! - NEXT1. An action is returned once in a convergence, so that it ends: what fails is done again by the next one.
//! - NEXT2. Actions that are returned together do not depend on each other.
//! - NEXT3. What is served elsewhere than the text says is closed before anything of the group is taken into use: its extents may be another
//!   volume's now.
//! - NEXT4. A volume is taken into use after the volumes that its mapper answers with, and out of use with them (CONTROLMAPPER2).
//! - NEXT5. Jobs and exports come when every volume was tried: a job that finds its volume out of use ends, an export is down.

use super::action::Action;
use super::view::{Facts, Presence, View, Volume};
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_volume::lifecycle::placement::PlacementState;

/// What is to be done in one stage.
type Stage = fn(&View, &Facts) -> Vec<Action>;

/// In this order.
const STAGES: [Stage; 24] = [
    |_, _| vec![Action::Compare],
    |_, facts| placed(facts, PlacementState::Fenced).map(Action::Close).collect(), // NEXT3
    extend,
    |view, _| when(view.volumes.iter().any(|volume| !volume.is_in_text), Action::Forget),
    end_draining,
    cut_off,
    |view, _| when(idle(view).next().is_some(), Action::ReserveMemory),
    |view, _| activate(view, |volume| volume.devices.is_empty()),
    |view, _| activate(view, |volume| !volume.devices.is_empty()), // NEXT4
    |view, _| when(has_pools(view), Action::AttachOrigins),
    |_, _| vec![Action::HoldOrigins],
    |_, _| vec![Action::DivideMemory],
    |view, _| when(has_pools(view), Action::ListThinVolumes),
    |view, _| when(view.is_unserved, Action::NoteServed),
    |_, _| vec![Action::RenameExports], // NEXT5
    |view, _| when(view.has_sets, Action::ResolveSets),
    |view, _| when(!view.expired.is_empty() && !view.is_undecided, Action::EmptyTrash(view.expired.clone())),
    |_, _| vec![Action::FollowArrays],
    resume_jobs,
    ask,
    wake_coordinators,
    // A daemon that starts opens all exports together, when all groups are served.
    |view, _| when(view.is_started, Action::ListExports),
    |_, facts| facts.down.iter().cloned().map(Action::OpenExport).collect(),
    |_, facts| asked(facts).map(Action::Redirect).collect(),
];

/// The actions of the first stage that lacks any; none if nothing is left to be done.
pub(super) fn next(view: &View, facts: &Facts) -> Vec<Action> {
    let is_new = |action: &Action| !facts.tried.contains(action); // NEXT1
    let mut stages =
        STAGES.iter().map(|stage| stage(view, facts).into_iter().filter(is_new).collect::<Vec<Action>>());
    stages.find(|actions| !actions.is_empty()).unwrap_or_default()
}

fn when(is_due: bool, action: Action) -> Vec<Action> {
    if is_due { vec![action] } else { Vec::new() }
}

/// What was served at the beginning and stood so to what the text says.
fn placed(facts: &Facts, state: PlacementState) -> impl Iterator<Item = Uuid> {
    facts.placements.iter().filter(move |(_, placed)| **placed == state).map(|(id, _)| *id)
}

/// While two versions of the text may be valid nothing grows: the other one may be the valid one.
fn extend(view: &View, facts: &Facts) -> Vec<Action> {
    let grown = placed(facts, PlacementState::Changed).filter(|_| !view.is_undecided);
    grown.map(Action::Extend).collect()
}

/// What was closed is quiet, so its extents may be given away (RECONCILE2 of `reconcile.rs`).
fn end_draining(view: &View, facts: &Facts) -> Vec<Action> {
    when(view.is_draining && !facts.is_still_in_use, Action::EndDraining)
}

/// Volumes in use of which a device is not (NEXT4).
fn cut_off(view: &View, _: &Facts) -> Vec<Action> {
    let idle: BTreeSet<Uuid> = idle(view).map(|volume| volume.id).collect();
    let in_use = view.volumes.iter().filter(|volume| volume.presence == Presence::InUse);
    let lost = in_use.filter(|volume| volume.devices.iter().any(|device| idle.contains(device)));
    lost.map(|volume| Action::CutOff(volume.id)).collect()
}

/// Volumes of the text that are not in use.
fn idle(view: &View) -> impl Iterator<Item = &Volume> {
    view.volumes.iter().filter(|volume| volume.is_in_text && volume.presence != Presence::InUse)
}

fn activate(view: &View, is_meant: impl Fn(&Volume) -> bool) -> Vec<Action> {
    idle(view).filter(|volume| is_meant(volume)).map(|volume| Action::Activate(volume.id)).collect()
}

fn has_pools(view: &View) -> bool {
    view.volumes.iter().any(|volume| volume.is_in_text && volume.is_pool)
}

/// One at a time of those that hold the same volume (JOBRECORD2 of `records.rs`).
fn resume_jobs(view: &View, facts: &Facts) -> Vec<Action> {
    let mut held = BTreeSet::new();
    let new = view.jobs.iter().filter(|job| job.may_begin && !facts.tried.contains(&Action::Job(job.id)));
    let alone = new.filter(|job| job.holds.is_none_or(|volume| held.insert(volume)));
    alone.filter(|_| !view.is_stopping).map(|job| Action::Job(job.id)).collect()
}

/// Volumes that were taken into use, or on which a job has failed (CONVERGE3 of `mod.rs`).
fn ask(view: &View, _: &Facts) -> Vec<Action> {
    let unasked = view.volumes.iter().filter(|volume| volume.is_unasked);
    unasked.map(|volume| Action::Ask(volume.id)).collect()
}

/// The volumes and pools that were asked in this convergence: they were taken into use, or a job on them has failed.
fn asked(facts: &Facts) -> impl Iterator<Item = Uuid> {
    facts.tried.iter().filter_map(|action| match action {
        Action::Ask(id) => Some(*id),
        _ => None,
    })
}

/// Groups wait for this one, unless a scan has found it, which wakes them when all that it has found are served (CONVERGE4 of `mod.rs`).
fn wake_coordinators(_: &View, facts: &Facts) -> Vec<Action> {
    let was_served = !facts.tried.contains(&Action::NoteServed);
    when(was_served && asked(facts).next().is_some(), Action::WakeCoordinators)
}
