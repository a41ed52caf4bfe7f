//! From a cold start to serving, and back: disks found, groups reconciled, volumes and exports there; then all released.
//!
//! Invariants:
//! - START1. A disk that is there and does not take its group's description is taken for missing, if the others can: what is on arrays is
//!   served, and what is there alone could not be used before, either.
//! - START2. A scan waits for no request to a disk that does not answer: what is there and is out of use since is closed when these
//!   requests have ended, whenever that is, and the disks are looked at again then.

use super::known_group::KnownGroup;
use super::locking::Answering;
use super::locks::Held;
use crate::Control;
use crate::status::looks;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure, PhysicalVolumeScan, PhysicalVolumeState};
use varve_block::{IoError, Moment};
use varve_vg::open::Absent;
use varve_vg::{CommitError, Disk, DiskProblem, OpenGroup, scan};

/// How long a daemon that starts waits for what another one held that was killed: the kernel takes a ring apart, and
/// releases its files and sockets, a moment after the process has ended.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it waits between two attempts.
const STEP: Duration = Duration::from_millis(20);

impl Control {
    /// Finds everything that is remembered, and serves it.
    pub(crate) async fn start(&self) -> Result<(), Failure> {
        let _lock = self.lock_host().await?;
        let deadline = self.context.clock().now().after(RELEASE_TIMEOUT);
        self.open_remembered(deadline).await;
        self.survey().await;
        self.begin_list_of_images().await;
        // Counted anew: a busy machine may have needed all of it for the disks.
        self.restore_exports(self.context.clock().now().after(RELEASE_TIMEOUT)).await;
        self.life.watching.replace(vec![
            self.repeat(async |control| looks::look(control).await),
            self.repeat(async |control| control.use_spares().await),
            self.repeat(async |control| control.leave_cut_off_disks().await),
        ]);
        self.life.started.set(Some(self.now()));
        Ok(())
    }

    /// Repeats `attempt` until `deadline` while it fails with one of `codes`.
    pub(crate) async fn retry_until<T>(
        &self,
        deadline: Moment,
        codes: &[Code],
        attempt: impl AsyncFn() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let clock = self.context.clock();
        loop {
            match attempt().await {
                Err(failure) if codes.contains(&failure.code) && clock.now() < deadline => {
                    clock.sleep(STEP).await;
                }
                result => return result,
            }
        }
    }

    /// Reads all known disks, reconciles the groups on them, and takes into use what is not yet.
    pub(crate) async fn survey(&self) {
        let Answering { mut turns, commits, silent } = self.lock_answering().await;
        let partly_silent = self.groups_on(&silent); // What is found does without them.
        let survey = scan(self.disks_except(&silent), &self.context.arena()).await;
        for problem in &survey.problems {
            self.note_problem(problem);
        }
        for (name, ids) in survey.names_twice() {
            let ids: Vec<String> = ids.iter().map(Uuid::to_string).collect();
            tracing::warn!(name, ids = ids.join(" "), "two groups have one name: varve vg rename ID NEW");
        }
        for refused in &survey.refused {
            tracing::error!(group = %refused.id, problem = %refused.problem, help = refused.problem.help(),
                disks = refused.paths.join(" "), "a group cannot be used");
        }
        self.groups.refused.replace(survey.refused);
        let mut found = Vec::new();
        for open in survey.groups {
            let id = open.group().id();
            let was_undecided = self.is_undecided(id);
            self.take_group(open, &silent).await;
            self.fence_group(id).await;
            if was_undecided {
                self.reconcile_moves(id).await; // MOVEJOB2: nothing can grow yet.
                self.reconcile_conversions(id).await; // CONVERTJOB2
            }
            found.push(id);
        }
        drop(commits);
        let mut served = Vec::new();
        for group in found {
            let turn = match turns.remove(&group) {
                Some(turn) => turn,
                None => self.lock_group(group).await, // It was not known before.
            };
            if partly_silent.contains(&group) && self.is_draining(group) {
                self.converge_later(group, turn);
            } else {
                served.push(async move {
                    self.converge(group).await;
                    drop(turn); // LOCKING2 of `locking.rs`
                    group
                });
            }
        }
        drop(turns);
        let served: Vec<Uuid> = join_all(served).await;
        self.converge_coordinators(&served).await;
    }

    /// Groups one of whose disks is one of these.
    fn groups_on(&self, paths: &BTreeSet<PathBuf>) -> BTreeSet<Uuid> {
        let groups = self.groups.known.borrow();
        let on = groups.iter().filter(|(_, known)| !known.disk_paths().is_disjoint(paths));
        on.map(|(id, _)| *id).collect()
    }

    /// START2: [`Control::converge`] with the lock of the group, in a task of its own.
    fn converge_later(&self, group: Uuid, turn: Held) {
        let me = self.weak();
        self.context.spawner().spawn(async move {
            let Some(control) = me.upgrade() else { return };
            control.converge(group).await;
            drop(turn);
            if !control.life.stopping.get()
                && let Err(failure) = control.scan_disks(PhysicalVolumeScan::default()).await
            {
                tracing::warn!(%group, %failure, "what was waited for is not looked at again");
            }
        });
    }

    /// Reconciles a group that was found, and knows it from now on.
    async fn take_group(&self, mut open: OpenGroup, silent: &BTreeSet<PathBuf>) {
        let (id, name) = (open.group().id(), open.group().name().to_owned());
        for note in open.notes() {
            tracing::warn!(group = name, "{note}");
            self.event(&name, &note.to_string());
        }
        let stamp = self.stamp("disks came or went");
        let mut reconciled = open.reconcile(Absent::Accept, &stamp).await;
        if let Err(CommitError::Disks { disks, .. }) = &reconciled
            && let Some(mut rest) = self.group_without(&open, disks, silent).await
            && rest.reconcile(Absent::Accept, &stamp).await.is_ok()
        {
            let failed: Vec<&str> = disks.iter().map(|(path, _)| path.as_str()).collect();
            self.event(&name, &format!("does without {}, which cannot be written", failed.join(", ")));
            (open, reconciled) = (rest, Ok(()));
        }
        let trouble = reconciled.err().map(|error| {
            tracing::error!(group = name, %error, help = error.help(), "a group cannot be reconciled");
            error.to_string()
        });
        self.end_disks(&open);
        let mut groups = self.groups.known.borrow_mut();
        match groups.get_mut(&id) {
            Some(known) => {
                known.trouble = trouble;
                known.learn(open);
            }
            None => {
                groups.insert(id, KnownGroup::new(open, trouble));
            }
        }
        drop(groups);
        self.clear_problems(id);
        self.groups.unserved.borrow_mut().insert(id);
        self.archive_soon(id);
    }

    /// The disks of a group that was found are sound, whatever was wrong with them before.
    fn clear_problems(&self, group: Uuid) {
        let paths = self.with_group(group, KnownGroup::disk_paths).unwrap_or_default();
        let mut disks = self.disks.known.borrow_mut();
        for path in paths {
            disks.entry(path).and_modify(|known| known.problem = None);
        }
    }

    /// START1: the group of `open` on its other disks than `failed`, if it can be had from them.
    async fn group_without(
        &self,
        open: &OpenGroup,
        failed: &[(String, IoError)],
        silent: &BTreeSet<PathBuf>,
    ) -> Option<OpenGroup> {
        let id = open.group().id();
        let here =
            |path: &str| open.group().physical_volumes().iter().any(|pv| open.path(pv.id) == Some(path));
        let mut disks = self.disks_except(silent);
        disks.retain(|disk| here(&disk.path) && failed.iter().all(|(path, _)| *path != disk.path));
        if disks.is_empty() {
            return None;
        }
        let survey = scan(disks, &self.context.arena()).await;
        survey.groups.into_iter().find(|open| open.group().id() == id)
    }

    fn disks_except(&self, silent: &BTreeSet<PathBuf>) -> Vec<Disk> {
        let disks = self.disks.known.borrow();
        let disks = disks.iter().filter(|(path, _)| !silent.contains(*path));
        let disk = |(path, known): (&PathBuf, &crate::host::known_disk::KnownDisk)| Disk {
            path: path.display().to_string(),
            device: self.metadata_disk(&known.file),
        };
        disks.map(disk).collect()
    }

    fn note_problem(&self, problem: &DiskProblem) {
        if let DiskProblem::Read { path, .. } = problem
            && self.is_silent(Path::new(path))
        {
            return self.warn_of_silence(Path::new(path)); // It is what it was when it answers again.
        }
        tracing::warn!(%problem, help = problem.help(), "a disk cannot be used");
        let (paths, state) = match problem {
            DiskProblem::Read { path, .. } => (vec![path], PhysicalVolumeState::Damaged),
            DiskProblem::Duplicate { paths, .. } => (paths.iter().collect(), PhysicalVolumeState::Duplicate),
        };
        for path in paths {
            self.event(path, &problem.to_string());
            if let Some(known) = self.disks.known.borrow_mut().get_mut(Path::new(path)) {
                known.problem = Some((state, problem.to_string()));
            }
        }
    }
}
