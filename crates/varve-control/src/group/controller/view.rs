//! What the next actions depend on: the text of a group, what is served of it, and what a convergence has learnt.

use super::action::Action;
use crate::Control;
use crate::group::known_group::{Home, KnownGroup};
use crate::jobs::records::RestingJob;
use crate::trash::Trash;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use varve_volume::lifecycle::placement::PlacementState;

/// A group as it is wanted and as it is.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// Those of the text, and those that have a home.
    pub(super) volumes: Vec<Volume>,
    /// Whether two versions of the text may be valid.
    pub(super) is_undecided: bool,
    /// Whether requests may be under way to what was taken out of use.
    pub(super) is_draining: bool,
    /// Whether the group was found and was not served yet.
    pub(super) is_unserved: bool,
    /// Whether the text has snapshots of one instant that are not complete.
    pub(super) has_sets: bool,
    /// What is in the trash and was there for its time.
    pub(super) expired: Vec<Uuid>,
    /// Jobs of which the group decides and on which no task works.
    pub(super) jobs: Vec<RestingJob>,
    /// Whether the daemon serves exports already.
    pub(super) is_started: bool,
    /// Whether the daemon stops: no job begins.
    pub(super) is_stopping: bool,
}

/// A volume or pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) id: Uuid,
    pub(super) is_in_text: bool,
    pub(super) is_pool: bool,
    pub(super) presence: Presence,
    /// Whether it is to be asked what it holds that goes on (CONVERGE3).
    pub(super) is_unasked: bool,
    /// Volumes that its mapper answers with.
    pub(super) devices: Vec<Uuid>,
}

/// Whether a volume is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has no home.
    Absent,
    /// It has a home, and a reason why it cannot be used.
    OutOfUse,
    InUse,
}

/// What a convergence has learnt.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Actions that were carried out, with success or without.
    pub(super) tried: BTreeSet<Action>,
    /// How what was served at its beginning stood to what the text says.
    pub(super) placements: BTreeMap<Uuid, PlacementState>,
    /// Whether something that was closed may have requests under way still.
    pub(super) is_still_in_use: bool,
    /// Exports that were down.
    pub(super) down: Vec<String>,
}

impl View {
    /// What is seen of a group now; nothing if it is not here any more.
    pub(super) fn of(control: &Control, group: Uuid) -> Option<Self> {
        let groups = control.groups.known.borrow();
        let known = groups.get(&group)?;
        let mut view = Self {
            volumes: volumes(known),
            is_undecided: known.undecided.is_some(),
            is_draining: known.is_draining,
            is_unserved: control.groups.unserved.borrow().contains(&group),
            has_sets: !known.group.snapshot_sets().is_empty(),
            expired: Vec::new(),
            jobs: Vec::new(),
            is_started: control.life.started.get().is_some(),
            is_stopping: control.life.stopping.get(),
        };
        drop(groups);
        view.expired = Trash::of(control).expired(group);
        view.jobs = control.resting_jobs(group);
        Some(view)
    }
}

fn volumes(known: &KnownGroup) -> Vec<Volume> {
    let entries = known.group.logical_volumes();
    let ids: BTreeSet<Uuid> = entries.iter().map(|entry| entry.id).collect();
    let of_text = entries.iter().map(|entry| {
        let home = known.homes.get(&entry.id);
        let devices = entry.layout.granted().to_vec();
        let (id, is_pool) = (entry.id, entry.is_pool());
        Volume {
            id,
            is_in_text: true,
            is_pool,
            presence: presence(home),
            is_unasked: is_unasked(home),
            devices,
        }
    });
    let gone = known.homes.keys().chain(known.thin.pools()).filter(|id| !ids.contains(id));
    let gone = gone.map(|id| {
        let presence = presence(known.homes.get(id));
        Volume {
            id: *id,
            is_in_text: false,
            is_pool: false,
            presence,
            is_unasked: false,
            devices: Vec::new(),
        }
    });
    of_text.chain(gone).collect()
}

fn presence(home: Option<&Home>) -> Presence {
    match home {
        None => Presence::Absent,
        Some(home) if home.unusable.is_some() => Presence::OutOfUse,
        Some(_) => Presence::InUse,
    }
}

fn is_unasked(home: Option<&Home>) -> bool {
    home.is_some_and(|home| home.is_unasked)
}
