//! Schedules of snapshots: when they are made, which of them stay, and how that is declared, run and shown.
//!
//! A schedule is desired state: it stands in the text of its group, with when it ran last and which snapshots it made. When it runs is
//! seen by comparing that with the clock.

pub(super) mod due;
pub(super) mod known_schedules;
pub(super) mod own_run;
pub(super) mod retention;
pub(super) mod run;
pub(super) mod timer;
pub(super) mod verbs;

use crate::Control;
use uuid::Uuid;
use varve_vg::model::Schedule;

/// The schedules of all groups.
pub struct Schedules<'a> {
    control: &'a Control,
}

impl<'a> Schedules<'a> {
    /// Those of the groups that `control` knows.
    pub const fn of(control: &'a Control) -> Self {
        Self { control }
    }

    /// Every schedule of the groups that are here.
    pub(crate) fn all(&self) -> Vec<(Uuid, Schedule)> {
        let groups = self.control.groups.known.borrow();
        let own =
            groups.iter().flat_map(|(group, known)| known.group.schedules().iter().map(|one| (*group, one)));
        own.map(|(group, schedule)| (group, schedule.clone())).collect()
    }

    /// The schedule with this identity, if its group has it still.
    fn with_id(&self, group: Uuid, id: Uuid) -> Option<Schedule> {
        let find = |known: &crate::group::known_group::KnownGroup| {
            known.group.schedules().iter().find(|schedule| schedule.id == id).cloned()
        };
        self.control.with_group(group, find).ok().flatten()
    }

    /// `VG/NAME`.
    fn full(&self, group: Uuid, name: &str) -> String {
        let group = self.control.with_group(group, |known| known.group.name().to_owned());
        format!("{}/{name}", group.unwrap_or_default())
    }
}
