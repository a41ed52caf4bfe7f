//! Snapshots that are external origins: each carries a note of that, for as long as it is one.
//!
//! The note is not the hold that users put on a snapshot: it goes by itself when nothing is backed by the snapshot any more.
//!
//! Invariants:
//! - BASES1. A snapshot is noted before anything is backed by it; so no store drops it, and only what is noted or held has to
//!   be asked whether anything is backed by it.
//! - BASES2. A note goes only when every pool of the group says that nothing is backed by the snapshot, nor would be after
//!   a crash.

use super::known_group::KnownGroup;
use crate::Control;
use crate::failures;
use std::collections::BTreeSet;
use uuid::Uuid;
use varve_api::Failure;
use varve_target::thin::Origin;
use varve_volume::ShardHandle;
use varve_volume::content::snapshot_facts::Target;

impl Control {
    /// Brings the notes of a group to what `wanted` says, which is all origins of now, as far as its pools are
    /// here. The caller has the lock of the group.
    pub(crate) async fn reconcile_bases(
        &self,
        group: Uuid,
        wanted: &[Origin],
        are_all_here: bool,
    ) -> Result<(), Failure> {
        let owners = self.with_group(group, KnownGroup::homes_in_use)?;
        let mut noted: BTreeSet<(Uuid, Target)> = BTreeSet::new();
        for (owner, home) in &owners {
            let owner = *owner;
            let bases = home.volume(owner).bases().await;
            noted.extend(bases.map_err(failures::gone)?.into_iter().map(|target| (owner, target)));
        }
        let places = self.with_group(group, |known| {
            let owner = |origin: &Origin| Some((known.place_of(origin)?.owner, Target::of(origin.backing)?));
            wanted.iter().filter_map(owner).collect::<BTreeSet<(Uuid, Target)>>()
        })?;
        for (owner, target) in places.difference(&noted) {
            self.note_base(&owners, *owner, *target, true).await?; // of before there were notes
        }
        if are_all_here {
            for (owner, target) in noted.difference(&places) {
                self.note_base(&owners, *owner, *target, false).await?; // BASES2
            }
        }
        let left = if are_all_here { places } else { places.union(&noted).copied().collect() };
        self.remember_bases(group, left.into_iter().map(|(_, target)| target));
        Ok(())
    }

    async fn note_base(
        &self,
        owners: &[(Uuid, ShardHandle)],
        owner: Uuid,
        target: Target,
        is_base: bool,
    ) -> Result<(), Failure> {
        let Some((_, home)) = owners.iter().find(|(known, _)| *known == owner) else { return Ok(()) };
        let noted = home.volume(owner).set_base(target, is_base);
        self.answered(owner, noted.await)
    }

    fn remember_bases(&self, group: Uuid, bases: impl Iterator<Item = Target>) {
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.bases = bases.collect();
        }
    }

    /// BASES1: a snapshot is about to become an origin.
    pub(crate) fn expect_base(&self, group: Uuid, target: Target) {
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.bases.insert(target);
        }
    }
}

impl KnownGroup {
    /// Volumes and pools in use, and where they are.
    fn homes_in_use(&self) -> Vec<(Uuid, ShardHandle)> {
        let homes = self.homes.iter().filter(|(_, home)| home.unusable.is_none());
        homes.map(|(id, home)| (*id, home.shard.clone())).collect()
    }
}
