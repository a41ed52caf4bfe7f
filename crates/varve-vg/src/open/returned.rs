//! Disks that were missing and are here: taken back, or left out.

use super::{CommitError, OpenGroup, ReplicaState, Stamp, State};
use futures_util::future::join_all;
use uuid::Uuid;

impl OpenGroup {
    /// Leaves out disks that were missing and cannot be written: the group does not count on them, and goes on without them.
    pub(super) async fn try_returned(&mut self) {
        let (vg, arena) = (self.group.id(), self.arena.clone());
        let returned =
            self.members.iter_mut().filter(|member| member.replica_state == ReplicaState::Returned);
        let tried = returned.map(|member| async { (member.pv, member.relabel(Some(vg), &arena).await) });
        for (pv, done) in join_all(tried).await {
            if let Err(error) = done {
                tracing::warn!(group = self.group.name(), path = self.path(pv), %error, "a disk is back and cannot be written");
                self.leave_out(pv);
            }
        }
    }

    /// Uses the disk `pv`, which is marked missing, no more until the disks are scanned again.
    pub fn leave_out(&mut self, pv: Uuid) {
        assert!(!self.group.counts_on(pv), "VERSION1: the group counts on what is written to it");
        self.members.retain(|member| member.pv != pv);
    }

    /// Takes back the stale disk `pv`, which is marked missing, with data that may be old: only because the user insists.
    /// [`PlanError::DiskNotFound`](crate::PlanError::DiskNotFound) if there is no such stale disk.
    pub async fn take_back(&mut self, pv: Uuid, stamp: &Stamp) -> Result<(), CommitError> {
        self.refuse_if_broken()?;
        assert_eq!(self.state, State::Reconciled, "OPEN1");
        let Some(index) = self.stale.iter().position(|member| member.pv == pv) else {
            let group = self.group.name().into();
            return Err(CommitError::Plan(crate::PlanError::DiskNotFound { group, disk: pv.to_string() }));
        };
        assert!(
            !self.group.counts_on(pv),
            "VERSION2: it was recorded as missing when the group was reconciled"
        );
        self.check_numbers(&self.stale[index..=index])?;
        let member = self.stale.swap_remove(index);
        self.members.push(member);
        self.assert_consistent();
        self.record(Vec::new(), vec![pv], stamp).await
    }
}
