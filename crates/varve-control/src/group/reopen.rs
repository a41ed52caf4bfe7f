//! Disks that failed, and stores and pools that take no changes since one failed, opened anew while their exports go on.
//!
//! Invariants:
//! - REOPEN1. While something is opened anew the requests of its doors wait; they reach the new one, or fail if there is none.
//! - REOPEN2. A disk is opened anew only when nothing of its group uses it any more: neither a volume nor what is backed by its
//!   snapshots.
//! - REOPEN3. After `pv scan` no pool holds an external origin that was closed, also if that scan has closed it.

use super::known_group::KnownGroup;
use super::locking::Answering;
use crate::failures;
use crate::host::known_disk::KnownDisk;
use crate::status::looks;
use crate::{Control, PROBE};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::host::DiskState;
use varve_volume::ShardHandle;
use varve_volume::lifecycle::reason::Reason;

impl Control {
    /// Releases everything in groups with trouble that may be over, and opens their disks anew; the groups. The survey
    /// that follows takes them into use again; then [`Control::lead_doors`].
    pub(crate) async fn reopen_failed(&self) -> Vec<Uuid> {
        looks::count(self).await; // READFILES1: what was cut short is known before it is opened anew.
        let Answering { mut turns, commits, silent } = self.lock_answering().await;
        drop(commits); // What is set aside may wait for its store to grow (CHANGE2 of `change.rs`).
        let mut reopened = Vec::new();
        let troubled = self.troubled_groups(&silent).await;
        turns.retain(|group, _| troubled.contains(group)); // LOCKING2 of `locking.rs`
        for group in troubled {
            self.leave_cut_off_disks_of(group).await;
            self.set_group_aside(group).await;
            let _commits = self.commits(group).await;
            self.close_group(group);
            for path in self.failed_disks(group) {
                self.reopen_disk(&path).await;
            }
            reopened.push(group);
        }
        reopened
    }

    /// REOPEN3, after the survey and what leads doors to it.
    pub(crate) async fn reopen_over_closed(&self) {
        if self.groups.known.borrow().values().any(KnownGroup::may_hold_closed_origins) {
            let reopened = self.reopen_failed().await;
            self.survey().await;
            self.lead_doors(&reopened).await;
        }
    }

    /// REOPEN1, after the survey.
    pub(crate) async fn lead_doors(&self, groups: &[Uuid]) {
        for group in groups {
            let _turn = self.lock_group(*group).await;
            self.converge(*group).await;
        }
        if !groups.is_empty() {
            let _ = self.resume_doors().await;
        }
    }

    /// REOPEN1: requests of doors that wait reach what is served now.
    pub(crate) async fn resume_doors(&self) -> Result<(), Failure> {
        for shard in &self.shards {
            shard.resume_doors().await.map_err(failures::gone)?;
        }
        Ok(())
    }

    /// Groups with a disk that failed, with a store or pool that takes no changes any more, or with a pool whose volumes lie
    /// over something that was closed since.
    async fn troubled_groups(&self, silent: &BTreeSet<PathBuf>) -> Vec<Uuid> {
        let groups: Vec<Uuid> = {
            let groups = self.groups.known.borrow();
            let answers = |path: &String| !silent.contains(Path::new(path));
            groups.iter().filter(|(_, known)| known.paths.values().all(answers)).map(|(id, _)| *id).collect()
        };
        let mut troubled = Vec::new();
        for group in groups {
            let holds_closed =
                self.with_group(group, KnownGroup::may_hold_closed_origins).unwrap_or_default();
            if holds_closed || !self.failed_disks(group).is_empty() || self.has_failing(group).await {
                troubled.push(group);
            }
        }
        troubled
    }

    /// Paths of a group's disks that are out of use.
    fn failed_disks(&self, group: Uuid) -> Vec<PathBuf> {
        let disks = self.disks.known.borrow();
        let is_failed =
            |path: &PathBuf| disks.get(path).is_some_and(|known| known.file.state() != DiskState::InUse);
        let paths = self.with_group(group, KnownGroup::disk_paths).unwrap_or_default();
        paths.into_iter().filter(is_failed).collect()
    }

    async fn has_failing(&self, group: Uuid) -> bool {
        for (volume, home) in self.homes(group, true) {
            let asked = home.volume(volume).is_failing();
            let deadline = self.context.clock().now().after(PROBE);
            if self.until(deadline, asked).await == Some(Ok(true)) {
                return true;
            }
        }
        false
    }

    /// Volumes and pools in use, or those out of use: those that need others come first.
    fn homes(&self, group: Uuid, in_use: bool) -> Vec<(Uuid, ShardHandle)> {
        let homes = self.with_group(group, |known| {
            let mapped = known.mapped();
            let used = known.homes.iter().filter(|(_, home)| home.unusable.is_none() == in_use);
            let mut used: Vec<_> = used.map(|(volume, home)| (*volume, home.shard.clone())).collect();
            used.sort_by_key(|(volume, _)| !mapped.contains(volume));
            used
        });
        homes.unwrap_or_default()
    }

    /// Takes all of a group out of use, so that its disks can be opened anew (REOPEN2).
    pub(crate) async fn set_group_aside(&self, group: Uuid) {
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.closed.clear(); // Whatever holds them is closed, too.
        }
        for (volume, home) in self.homes(group, false) {
            self.retire(group, volume, &home).await; // It may hold its disks still.
        }
        for (volume, home) in self.homes(group, true) {
            let failure = Failure::new(Code::VolumeUnusable, "it is being opened anew").help("varve pv scan");
            self.close_to_reopen(group, volume, &home, failure).await;
        }
    }

    /// Closes a volume or pool, which is out of use with `reason` until it is opened anew; requests of its doors wait meanwhile. Whether
    /// it was closed in order.
    pub(crate) async fn close_to_reopen(
        &self,
        group: Uuid,
        volume: Uuid,
        home: &ShardHandle,
        reason: Failure,
    ) -> bool {
        let closed = home.volume(volume).close(Reason::Reopened).await;
        if let Ok(Err(failure)) = &closed {
            tracing::warn!(%volume, %failure, "it was closed with an error, to be opened anew");
            if failure.code == Code::VolumeFailed {
                self.expect_failure(volume);
            }
        }
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group)
            && let Some(home) = known.homes.get_mut(&volume)
        {
            home.unusable = Some(reason);
        }
        matches!(closed, Ok(Ok(())))
    }

    /// REOPEN2; the caller may commit changes of the group. Until it is surveyed again no task may.
    fn close_group(&self, group: Uuid) {
        if let Some(known) = self.groups.known.borrow_mut().get_mut(&group) {
            known.open = None;
        }
    }

    async fn reopen_disk(&self, path: &Path) {
        let Some(known) = self.disks.known.borrow_mut().remove(path) else { return };
        self.note_departure(&known);
        let KnownDisk { cache, file, .. } = known;
        drop(file);
        match self.examine_for_scan(path, Some(cache)).await {
            Ok(known) => {
                self.remember_disk(path, known);
                self.event(&path.display().to_string(), "opened anew");
            }
            Err(failure) => {
                let failure = match failure.code {
                    Code::DiskInUse => failures::held(path),
                    _ => failure,
                };
                self.warn(&path.display().to_string(), &failure.message);
                for known in self.groups.known.borrow_mut().values_mut() {
                    known.paths.retain(|_, held| Path::new(held) != path); // No other disk may be left that says it.
                }
                self.disks.unopened.borrow_mut().insert(path.to_owned(), failure);
            }
        }
    }
}
