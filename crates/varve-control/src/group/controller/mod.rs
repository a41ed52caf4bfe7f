//! The controller of a group: what is served of it, its exports and its jobs, brought to what its text says.
//!
//! It looks (`view.rs`), asks what is to be done next (`next.rs`, the one place where the order is known), does that (`carry_out.rs`), and
//! looks again, until nothing is left to be done.
//!
//! Invariants:
//! - CONVERGE1. What follows a change, a scan, a start, an activation or a restore is seen by comparing the text with what is served: no
//!   caller knows it.
//! - CONVERGE2. The caller holds the lock of the group, so no command changes it meanwhile, and not the right to commit its changes
//!   (CHANGE2 of `change.rs`).
//! - CONVERGE3. A volume is asked what it holds that goes on (snapshots that are being removed, a rollback) when it was taken into use, and
//!   when a job on it has failed.
//! - CONVERGE4. A job is resumed, and a set of snapshots is resolved, by the group that decides, when all of its groups that are here are
//!   served: what is about to be served cannot be asked, and is not gone.

mod action;
pub(crate) mod boundary;
mod carry_out;
mod next;
#[cfg(test)]
mod tests;
mod view;

use crate::Control;
use carry_out::Controller;
use next::next;
use std::collections::BTreeSet;
use uuid::Uuid;
use view::{Facts, View};

impl Control {
    /// Brings what is served of a group, its exports and its jobs to what its text says.
    pub(crate) async fn converge(&self, group: Uuid) {
        assert!(self.locks.is_held(group), "CONVERGE2");
        let controller = Controller { control: self, group };
        let mut facts = Facts::default();
        while let Some(view) = View::of(self, group) {
            let actions = next(&view, &facts);
            if actions.is_empty() {
                return;
            }
            controller.carry_out(actions, &mut facts).await;
        }
    }

    /// CONVERGE4: has the groups converge that decide of jobs and sets in these, which are served now.
    pub(crate) async fn converge_coordinators(&self, served: &[Uuid]) {
        let first: BTreeSet<Uuid> =
            served.iter().flat_map(|group| self.coordinators_beside(*group)).collect();
        for group in first.into_iter().filter(|group| self.is_served(*group)) {
            let _lock = self.lock_group(group).await;
            self.converge(group).await;
        }
    }

    /// Other groups that decide of jobs on which no task works, or of sets, in the text of `group`.
    fn coordinators_beside(&self, group: Uuid) -> BTreeSet<Uuid> {
        let sets = self.with_group(group, |known| {
            known.group.snapshot_sets().iter().filter_map(|set| set.groups.first().copied()).collect()
        });
        let mut first: BTreeSet<Uuid> = sets.unwrap_or_default();
        first.extend(self.coordinators_of_resting_jobs(group));
        first.remove(&group);
        first
    }

    /// Whether a group is here and served.
    pub(crate) fn is_served(&self, group: Uuid) -> bool {
        self.groups.known.borrow().contains_key(&group) && !self.groups.unserved.borrow().contains(&group)
    }

    /// Brings a group to what its text says in a task of its own, when its lock is free.
    pub(crate) fn converge_soon(&self, group: Uuid) {
        let me = self.weak();
        self.context.spawner().spawn(async move {
            if let Some(control) = me.upgrade()
                && !control.life.stopping.get()
            {
                let _lock = control.lock_group(group).await;
                control.converge(group).await;
            }
        });
    }
}
