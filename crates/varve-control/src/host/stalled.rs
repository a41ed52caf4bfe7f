//! Disks that do not answer: shown as such while it lasts; and requests that outlive a panic: their futures are dropped, and the kernel
//! carries them out all the same.
//!
//! Invariant ABANDONED1: a volume is taken into use, and extents of a released one are given to others, only when no request
//! whose answer no task awaits any more is under way on the disks of its group.

use super::limited::LIMIT;
use crate::Control;
use crate::failures;
use futures_channel::oneshot;
use futures_util::future::select;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Code, Failure};
use varve_block::{Device, IoError};
use varve_vg::CommitError;
use varve_vg::model::PvName;
use varve_volume::spec::Disks;
use varve_volume::world::{DiskRef, Files};

/// How often work is repeated that watches over disks and doors.
const LOOK: Duration = Duration::from_secs(1);
/// What lists say of it.
pub(crate) const STALLED: &str =
    "its requests wait and none is answered; its volumes go on when it answers again";

/// How long a command waits for requests whose answers no task awaits.
const ABANDONED_MAX: Duration = Duration::from_secs(5);
/// How often it looks whether they have ended.
const ABANDONED_LOOK: Duration = Duration::from_millis(5);

impl Control {
    /// Waits for requests under way on the group's disks whose answers no task awaits (ABANDONED1).
    pub(crate) async fn await_abandoned(&self, group: Uuid) -> Result<(), Failure> {
        let disks = self.with_group(group, |known| self.disk_files(known))?;
        let clock = self.context.clock();
        let deadline = clock.now().after(ABANDONED_MAX);
        while let Some(disk) = disks.values().find(|disk| disk.has_abandoned()) {
            if clock.now() >= deadline {
                let path = disk.path().display();
                let message = format!("requests from before the volume failed are still under way on {path}");
                return Err(Failure::new(Code::VolumeUnusable, message)
                    .help("the disk does not answer: varve pv list; then the same command again"));
            }
            clock.sleep(ABANDONED_LOOK).await;
        }
        Ok(())
    }

    /// Does `work` again and again, until what it answers with is dropped.
    pub(crate) fn repeat(&self, work: impl AsyncFn(&Self) + 'static) -> oneshot::Sender<()> {
        let (sender, mut stopped) = oneshot::channel();
        let clock = self.context.clock();
        let me = self.weak();
        self.context.spawner().spawn(async move {
            loop {
                select(&mut stopped, clock.sleep(LOOK)).await;
                match (stopped.try_recv(), me.upgrade()) {
                    (Ok(None), Some(control)) => work(&control).await,
                    _ => return,
                }
            }
        });
        sender
    }

    /// Does `work` with what is at `path`, unless the last such work there has not ended; `then` hears what it finds (WATCH2 of
    /// `looks.rs`).
    pub(crate) fn look_at<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce(&dyn Files) -> T + Send + 'static,
        then: impl FnOnce(&Self, &Path, T) + 'static,
    ) {
        if !self.watch.begin_look(path, self.context.clock().now()) {
            return;
        }
        let (me, host, path) = (self.weak(), self.context.clone(), path.to_owned());
        self.context.spawner().spawn(async move {
            let found = host.files_at(&path, work).await;
            let Some(control) = me.upgrade() else { return };
            control.watch.end_look(&path);
            if let Ok(found) = found {
                then(&control, &path, found);
            }
        });
    }

    /// A device on `file` for the metadata of its group (LIMIT1 of `limited.rs`).
    pub(crate) fn metadata_disk(&self, file: &DiskRef) -> Device {
        let (me, path) = (self.weak(), file.path().display().to_string());
        let tell = move |is_overdue: bool| {
            let Some(control) = me.upgrade() else { return };
            if is_overdue {
                let limit = LIMIT.as_secs();
                let words =
                    format!("no request for its metadata was answered within {limit} s: it counts as failed");
                control.warn(&path, &words);
            } else {
                control.event(&path, "late requests have ended: varve pv scan takes it back");
            }
        };
        let world = (self.context.clock(), self.context.spawner());
        self.disks.limits.put_on(file, self.context.disk(file), world, tell)
    }

    /// The failure of a change that could not be made durable. Of a disk that has not answered in time it says so: for the
    /// group it is gone, but it is there.
    pub(crate) fn commit_failure(&self, error: &CommitError) -> Failure {
        let CommitError::Disks { group, disks } = error else { return failures::commit(error) };
        let is_silent =
            |path: &str, error: IoError| error == IoError::Gone && self.is_silent(Path::new(path));
        let Some((silent, _)) = disks.iter().find(|(path, error)| is_silent(path, *error)) else {
            return failures::commit(error);
        };
        let reason = |(path, error): &(String, IoError)| match is_silent(path, *error) {
            true => failures::silence(path, LIMIT),
            false => format!("{path}: {error}"),
        };
        let reasons: Vec<String> = disks.iter().map(reason).collect();
        let message = format!("writing the description of {group} failed: {}", reasons.join(", "));
        Failure::new(Code::MediumFailed, message).help(format!(
            "in some seconds the group goes on without it; varve vg history {group} tells then whether the change counts. \
             When it answers again: varve pv scan {silent}"
        ))
    }

    /// Whether a disk has not answered in time, and does not yet.
    pub(crate) fn is_silent(&self, path: &Path) -> bool {
        self.disks.known.borrow().get(path).is_some_and(|known| self.disks.limits.is_overdue(&known.file))
    }

    /// Tells that a disk that does not answer is left out.
    pub(crate) fn warn_of_silence(&self, path: &Path) {
        self.warn(&path.display().to_string(), "does not answer: it is left out");
    }

    /// `failure` of what was done to a disk, unless the disk has not answered in time: then that.
    pub(crate) fn unless_silent(&self, file: &DiskRef, failure: Failure) -> Failure {
        if !self.disks.limits.is_overdue(file) {
            return failure;
        }
        let path = file.path().display().to_string();
        Failure::new(Code::MediumFailed, failures::silence(&path, LIMIT))
            .help("look at the disk and its cables; try again when it answers")
    }

    /// `failure` of what was written to several disks, unless a file system below one has no room: then that.
    pub(crate) fn unless_full(&self, disks: &Disks, failure: Failure) -> Failure {
        let now = self.context.clock().now();
        let Some(file) = disks.values().find(|file| self.watch.is_full(file, now)) else { return failure };
        let path = file.path().display();
        Failure::new(Code::NoSpaceOnHost, format!("the file system of {path} has no room"))
            .help(format!("make room in the file system of {path}, then try again"))
    }

    /// Like [`Control::unless_silent`], of what is done to several disks.
    pub(crate) fn unless_one_is_silent(&self, disks: &Disks, failure: Failure) -> Failure {
        disks.values().fold(failure, |failure, file| self.unless_silent(file, failure))
    }

    /// The disks with the limit of requests for metadata: for what is written elsewhere on them before a change is valid.
    pub(crate) fn metadata_disks(&self, disks: &Disks) -> BTreeMap<PvName, Device> {
        disks.iter().map(|(name, file)| (*name, self.metadata_disk(file))).collect()
    }
}
