//! Locks of changes: the disks and groups as a whole, the exports, and each group have a lock of their own, so that a
//! command on one group does not wait for a disk of another.
//!
//! Invariants:
//! - LOCKING1. Of several groups the locks are taken in the order of their identities, before that of the exports.
//! - LOCKING2. A task that waits for requests of clients to end, or for space, holds no lock. One that closes what a scan has taken out
//!   of use holds that of its group.
//! - LOCKING3. A scan reads no disk of a group whose lock it has not got: some of them alone may hold a version that does not count.
//! - LOCKING4. A command waits for no group of which something is closed while a disk of it does not answer: it is refused, and names the
//!   disk.

use super::locks::{Claim, Guard, Held, of};
use crate::host::known_disk::KnownDisk;
use crate::{Control, PROBE};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_format::Label;

/// The right to change the groups whose disks answer.
pub(crate) struct Answering {
    /// The lock of each.
    pub(crate) turns: BTreeMap<Uuid, Held>,
    /// The right to commit their changes.
    pub(crate) commits: Vec<Guard>,
    /// All disks of the other groups, and those that do not answer of these.
    pub(crate) silent: BTreeSet<PathBuf>,
}

impl Control {
    /// Waits for the lock on disks, or groups as a whole.
    pub(crate) async fn lock_host(&self) -> Result<Held, Failure> {
        self.unless_stopping(Held(vec![Arc::clone(&self.locks.host).lock_owned().await]))
    }

    /// Waits for the lock on exports.
    pub(crate) async fn lock_exports(&self) -> Result<Held, Failure> {
        self.unless_stopping(Held(vec![Arc::clone(&self.locks.exports).lock_owned().await]))
    }

    /// Waits for the lock on the group with this name or identity, or of this volume or snapshot.
    pub(crate) async fn lock_of(&self, name: &str) -> Result<Held, Failure> {
        self.lock_all_of([name]).await
    }

    /// Waits for the lock on all groups of these volumes or snapshots (LOCKING1). Names that mean nothing are left to the
    /// command.
    pub(crate) async fn lock_all_of<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Held, Failure> {
        let names = names.into_iter().map(|name| name.split(['/', '@']).next().unwrap_or_default());
        let names: Vec<&str> = names.collect();
        let named = || names.iter().filter_map(|name| self.find_group(name).ok()).collect::<BTreeSet<Uuid>>();
        loop {
            let groups = named();
            let mut guards = Vec::with_capacity(groups.len());
            for group in &groups {
                guards.push(self.lock_unless_silent(*group).await?);
            }
            // Meanwhile a group may have been renamed, and another one have got its name.
            if named() == groups {
                return self.unless_stopping(Held(guards));
            }
        }
    }

    /// The lock of a group, unless it is held by what waits for a silent disk (LOCKING4).
    async fn lock_unless_silent(&self, group: Uuid) -> Result<Guard, Failure> {
        let mut lock = pin!(of(&self.locks.groups, group).lock_owned());
        loop {
            let deadline = self.context.clock().now().after(PROBE);
            if let Some(guard) = self.until(deadline, &mut lock).await {
                return Ok(guard);
            }
            if let Some(path) = self.silent_while_draining(group) {
                let name = self.with_group(group, |known| known.group.name().to_owned())?;
                let message =
                    format!("group {name} is being reconciled, and its disk {path} does not answer");
                return Err(Failure::new(Code::VolumeBusy, message)
                    .help("look at the disk and its cables; try again when it answers: varve pv list"));
            }
        }
    }

    /// A disk of the group that does not answer while something of the group that was taken out of use is closed (RECONCILE2 of
    /// `reconcile.rs`).
    fn silent_while_draining(&self, group: Uuid) -> Option<String> {
        let disks = self.disks.known.borrow();
        let is_silent = |known: &KnownDisk| known.is_stalled() || self.disks.limits.is_overdue(&known.file);
        let mut own = self.is_draining(group).then(|| self.all_disks_of(group)).into_iter().flatten();
        own.find(|path| disks.get(path).is_some_and(is_silent)).map(|path| path.display().to_string())
    }

    /// Waits for the lock on a group, also while the daemon stops.
    pub(crate) async fn lock_group(&self, group: Uuid) -> Held {
        Held(vec![of(&self.locks.groups, group).lock_owned().await])
    }

    /// Waits until no command changes anything any more (LOCKING1).
    pub(crate) async fn lock_everything(&self) -> Held {
        let mut guards = vec![Arc::clone(&self.locks.host).lock_owned().await];
        let groups: Vec<Uuid> = self.groups.known.borrow().keys().copied().collect();
        for group in groups {
            guards.push(of(&self.locks.groups, group).lock_owned().await);
        }
        guards.push(Arc::clone(&self.locks.exports).lock_owned().await);
        Held(guards)
    }

    /// The right to change every group whose disks answer and which no command holds for long. A group that a change has reached
    /// in part is reconciled without its silent disks.
    pub(crate) async fn lock_answering(&self) -> Answering {
        let probe = self.context.clock().now().after(PROBE);
        let mut silent: BTreeSet<PathBuf> = self.silent_disks(probe).await.into_iter().collect();
        for path in &silent {
            self.warn_of_silence(path);
        }
        let groups: Vec<(Uuid, BTreeSet<PathBuf>, bool)> = {
            let groups = self.groups.known.borrow();
            groups.iter().map(|(id, known)| (*id, known.disk_paths(), known.is_half_committed())).collect()
        };
        let (mut turns, mut commits) = (BTreeMap::new(), Vec::new());
        for (group, paths, is_half_committed) in groups {
            let deadline = self.context.clock().now().after(PROBE);
            let both = async { (self.lock_group(group).await, self.locks.commits(group).await) };
            // RESCAN2: what has reached only some disks is reconciled without those that are silent.
            let answers = is_half_committed || silent.is_disjoint(&paths);
            let both = if answers { self.until(deadline, both).await } else { None };
            match both {
                Some((turn, commit)) => {
                    turns.insert(group, turn);
                    commits.push(commit);
                }
                None => silent.extend(self.all_disks_of(group)),
            }
        }
        Answering { turns, commits, silent }
    }

    /// Where disks of a group are, also those that it does without now (LOCKING3).
    fn all_disks_of(&self, group: Uuid) -> BTreeSet<PathBuf> {
        let disks = self.disks.known.borrow();
        let all = self.with_group(group, |known| {
            let is_own = |label: &Label| label.vg == Some(group) || known.group.pv_by_id(label.pv).is_some();
            let own = disks.iter().filter(|(_, disk)| disk.label.as_ref().is_some_and(is_own));
            own.map(|(path, _)| path.clone()).chain(known.disk_paths()).collect()
        });
        all.unwrap_or_default()
    }

    /// Claims these disks: no other command takes them into a group meanwhile.
    pub(crate) fn claim_all(&self, paths: &[String]) -> Result<Vec<Claim<'_>>, Failure> {
        let paths: BTreeSet<&String> = paths.iter().collect();
        paths.into_iter().map(|path| self.locks.claim(path)).collect()
    }

    fn unless_stopping(&self, lock: Held) -> Result<Held, Failure> {
        match self.life.stopping.get() {
            true => Err(Failure::new(Code::Stopping, "the daemon is stopping")),
            false => Ok(lock),
        }
    }
}
