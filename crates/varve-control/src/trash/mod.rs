//! The trash of each group: what is put there, shown, brought back and given up.
//!
//! It is desired state: a volume or pool that was removed stands in the group's text, with the time at which it goes, apart from those that
//! are served; a thin volume stands in its pool. When that is over, the controller of the group empties it.

pub(super) mod expiry;
mod thin;
pub(super) mod verbs;

use crate::Control;
use uuid::Uuid;

/// The trash of all groups.
pub struct Trash<'a> {
    control: &'a Control,
}

impl<'a> Trash<'a> {
    /// That of the groups that `control` knows.
    pub const fn of(control: &'a Control) -> Self {
        Self { control }
    }

    /// What of a group's trash is to be given up now, unless the clock cannot be trusted.
    pub(crate) fn expired(&self, group: Uuid) -> Vec<Uuid> {
        let clock = self.control.context.clock();
        if !self.control.watch.trash.may_expire(clock.now()) {
            return Vec::new();
        }
        let now = clock.date();
        let own = self.control.with_group(group, |known| {
            let over = known.group.trash().iter().filter(|entry| entry.until.0 <= now.0);
            let thin = known.thin.trash().filter(|(_, trash)| trash.time.until <= now.0);
            over.map(|entry| entry.volume.id).chain(thin.map(|(thin, _)| thin.id)).collect()
        });
        own.unwrap_or_default()
    }

    /// Has the groups converge of whose trash something is to be given up.
    pub(crate) fn look(&self) {
        let clock = self.control.context.clock();
        self.control.watch.trash.note(clock.now(), clock.date().0);
        let groups: Vec<Uuid> = self.control.groups.known.borrow().keys().copied().collect();
        let due = |group: &Uuid| self.control.is_served(*group) && !self.expired(*group).is_empty();
        let due: Vec<Uuid> = groups.into_iter().filter(due).collect();
        if !due.is_empty() && self.control.watch.trash.begin(clock.now()) {
            due.into_iter().for_each(|group| self.control.converge_soon(group));
        }
    }
}
