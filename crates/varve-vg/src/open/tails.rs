//! The tails of a group's disks, and disks that end elsewhere than they did.

use super::{Note, OpenGroup, ReplicaState};
use futures_util::future::join_all;
use uuid::Uuid;
use varve_block::Device;

impl OpenGroup {
    /// The disk `pv` is this device from now on: it ends elsewhere than the one before.
    pub fn exchange_device(&mut self, pv: Uuid, device: &Device) {
        for member in self.members.iter_mut().filter(|member| member.pv == pv) {
            member.disk.device = device.clone();
        }
    }

    /// What users should know about the second copies of the disks' metadata, in their last MiB; they are read for it.
    pub async fn tail_notes(&self) -> Vec<Note> {
        let current = self.with(ReplicaState::Current);
        let looks = current.map(|member| member.tail_note(&self.slot, &self.group, &self.arena));
        join_all(looks).await.into_iter().flatten().collect()
    }

    /// Brings the tails of the disks that the group counts on to its version.
    pub(super) async fn mend_tails(&mut self) {
        let (slot, arena, group) = (&self.slot, &self.arena, &self.group);
        let counted = self.members.iter_mut().filter(|member| group.counts_on(member.pv));
        join_all(counted.map(|member| member.mend_tail(slot, group, arena))).await;
    }
}
