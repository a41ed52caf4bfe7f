//! What is served of a group, its exports and its jobs, brought to what its text says.
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

use super::known_group::KnownGroup;
use crate::Control;
use crate::find::LocatedVolume;
use crate::jobs::rebuilds;
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_vg::names::VolumeName;

impl Control {
    /// Brings what is served of a group, its exports and its jobs to what its text says.
    pub(crate) async fn converge(&self, group: Uuid) {
        assert!(self.locks.is_held(group), "CONVERGE2");
        self.reconcile(group).await;
        self.activate_group(group).await;
        let was_unserved = self.groups.unserved.borrow_mut().remove(&group);
        self.rename_exports(group).await;
        let unasked = self.take_unasked(group);
        self.resolve_sets(&[group]).await;
        self.resume_jobs(group, &unasked).await;
        if !was_unserved && !unasked.is_empty() {
            self.deciders_beside(group).into_iter().for_each(|first| self.converge_soon(first)); // CONVERGE4
        }
        if self.life.started.get().is_some() {
            self.restore_exports_of(group).await;
        }
        self.redirect_exports(&unasked).await;
    }

    /// CONVERGE4: has the groups converge that decide of jobs and sets in these, which are served now.
    pub(crate) async fn converge_deciders(&self, served: &[Uuid]) {
        let first: BTreeSet<Uuid> = served.iter().flat_map(|group| self.deciders_beside(*group)).collect();
        for group in first.into_iter().filter(|group| self.is_served(*group)) {
            let _lock = self.lock_group(group).await;
            self.converge(group).await;
        }
    }

    /// Other groups that decide of jobs on which no task works, or of sets, in the text of `group`.
    fn deciders_beside(&self, group: Uuid) -> BTreeSet<Uuid> {
        let sets = self.with_group(group, |known| {
            known.group.snapshot_sets().iter().filter_map(|set| set.groups.first().copied()).collect()
        });
        let mut first: BTreeSet<Uuid> = sets.unwrap_or_default();
        first.extend(self.deciders_of_resting_jobs(group));
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

    /// Resumes everything under way in a group that no task works on; `unasked` volumes are asked (CONVERGE3).
    async fn resume_jobs(&self, group: Uuid, unasked: &[(VolumeName, LocatedVolume)]) {
        rebuilds::resume(self).await;
        self.resume_recorded(group).await;
        self.resume_removals(unasked).await;
        self.resume_rollbacks(unasked).await;
    }

    /// The volumes of a group that are to be asked what they hold that goes on (CONVERGE3), by name.
    fn take_unasked(&self, group: Uuid) -> Vec<(VolumeName, LocatedVolume)> {
        let mut groups = self.groups.known.borrow_mut();
        let names = groups.get_mut(&group).map(KnownGroup::take_unasked).unwrap_or_default();
        drop(groups);
        let located = |name: VolumeName| {
            let located = self.find_volume_for_snapshots(&name).ok()?;
            Some((name, located))
        };
        names.into_iter().filter_map(located).collect()
    }
}
