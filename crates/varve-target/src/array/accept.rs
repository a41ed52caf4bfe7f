//! Losses that a person accepts: regions of which nobody knows what they hold while a data member of ddraid is missing.
//!
//! Such a region was dirty when the power failed and the member was lost. What the others hold there, and what is computed from
//! them, need not be anything that was ever written; so it is refused (ARRAYIO5), until the member returns or the loss is accepted.
//!
//! Invariants:
//! - ACCEPT1. When a region is accepted it is durable that every member that is not in sync lacks it: what a member has there that
//!   returns is never believed.
//! - ACCEPT2. A region is not accepted that comes back by itself: the member has returned, and has what belongs there.

use super::region_set::RegionSet;
use super::{Array, ArrayError, InjectedBug};
use varve_block::{Extent, LockMode};
use varve_format::array::MemberState;

impl Array {
    /// The regions that answer errors until the missing data member returns, or their loss is accepted; in order.
    pub fn lost_regions(&self) -> Vec<u64> {
        if !self.lacks_data_member() {
            return Vec::new();
        }
        let returned = self.members.in_state(MemberState::CatchingUp);
        let lacks: Vec<RegionSet> = returned.iter().map(|place| self.members.lacks(*place)).collect();
        let unsynced = self.regions.unsynced();
        unsynced.iter().filter(|region| lacks.iter().all(|lacks| lacks.contains(*region))).collect() // ACCEPT2
    }

    /// Of the regions that cannot be known those that `is_accepted` names are from now on what the members that are here make of them.
    /// What was being written there when the power failed is lost, and what shared a block of the array with it. Returns them.
    pub async fn accept_loss(&self, is_accepted: impl Fn(u64) -> bool) -> Result<Vec<u64>, ArrayError> {
        let _publishing = self.publishing.lock(Extent::new(0, 1), LockMode::Exclusive).await;
        let mut accepted = Vec::new();
        self.publish(|| {
            accepted = self.lost_regions().into_iter().filter(|region| is_accepted(*region)).collect();
            let others = (0..self.members.count()).filter(|place| !self.members.is_in_sync(*place));
            for place in others.filter(|_| !self.has_bug(InjectedBug::AcceptUnrecorded)) {
                accepted.iter().for_each(|region| self.members.lack(place, *region)); // ACCEPT1
            }
            self.regions.accept(&accepted);
            self.forget_checksums(accepted.iter().copied());
        })
        .await?;
        if !accepted.is_empty() {
            tracing::warn!(array = %self.spec.id, regions = accepted.len(), "the loss of regions was accepted");
        }
        Ok(accepted)
    }
}
