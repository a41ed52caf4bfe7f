//! What repeated looks have found: what was not as it should be when that was looked at last, files below disks and images, and
//! looks that have not ended.
//!
//! Invariant WATCH1: what begins and what ends is reported once, also without a question.

use crate::backing::read_files::ReadFiles;
use crate::host::known_disk::why_failed;
use crate::schedules::known_schedules::KnownSchedules;
use crate::trash::expiry::KnownTrash;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;
use varve_api::{Failure, Problem};
use varve_block::Moment;
use varve_block::host::{DiskPlacement, DiskState, FileLook};
use varve_volume::world::DiskRef;

/// Longest that a failure for want of space counts after there is room again.
const NO_SPACE: Duration = Duration::from_secs(10);
/// A file system with less than this is full: a file may need so much at once.
const ROOM_MIN: u64 = 1 << 20;

/// What is less is the rest of a file that is not made of whole blocks.
const GROWTH_MIN: u64 = 4096;

/// What the looks have found.
#[derive(Default)]
pub(crate) struct Watch {
    /// What was not as it should be when that was looked at last (WATCH1).
    known: RefCell<Vec<Problem>>,
    /// When everything is looked at again, and when files are.
    pub(crate) next: Cell<(Moment, Moment)>,
    /// Files of disks and images.
    files: RefCell<BTreeMap<PathBuf, WatchedFile>>,
    /// Paths at which a look has begun and not ended (WATCH2).
    under_way: RefCell<BTreeMap<PathBuf, Moment>>,
    /// Files that are read as images.
    pub(crate) read_files: ReadFiles,
    /// Snapshots of volumes that were dropped to make room since somebody has changed that.
    dropped: RefCell<BTreeMap<Uuid, BTreeSet<String>>>,
    /// Why what is remembered is not on the disk, if so.
    pub(crate) unsaved: RefCell<Option<Failure>>,
    /// Schedules that run, and those that failed.
    pub(crate) schedules: KnownSchedules,
    /// What was seen of the clock by which the trash is emptied.
    pub(crate) trash: KnownTrash,
}

/// A file below a disk or an image.
#[derive(Default)]
struct WatchedFile {
    look: FileLook,
    /// The volume in whose image it is.
    volume: Option<Uuid>,
    /// Requests that had failed for want of space, and when that had become more.
    no_space: (u64, Option<Moment>),
    /// Requests that had failed for other reasons when a person had it scanned last.
    errors_seen: u64,
    errors: u64,
    state: DiskState,
}

impl WatchedFile {
    fn is_full(&self, now: Moment) -> bool {
        let failed_lately = self.no_space.1.is_some_and(|last| last.after(NO_SPACE) > now);
        failed_lately || self.look.room.is_some_and(|room| room < ROOM_MIN)
    }
}

/// What is wrong with a file.
pub(crate) struct FileTrouble {
    pub(crate) path: PathBuf,
    /// The volume in whose image it is.
    pub(crate) volume: Option<Uuid>,
    pub(crate) placement: DiskPlacement,
    pub(crate) is_full: bool,
    /// Requests that failed since a person had it scanned.
    pub(crate) errors: u64,
    /// Why it is out of use, if it is.
    pub(crate) why_cut_off: Option<String>,
}

impl Watch {
    /// `problems` with the time since when each is known.
    pub(crate) fn dated(&self, mut problems: Vec<Problem>, now: u64) -> Vec<Problem> {
        let known = self.known.borrow();
        for problem in &mut problems {
            problem.since = known.iter().find(|known| known.is(problem)).map_or(now, |known| known.since);
        }
        problems
    }

    /// What has begun and what has ended, now that there is this (WATCH1).
    pub(crate) fn exchange(&self, now: Vec<Problem>) -> (Vec<Problem>, Vec<Problem>) {
        let before = self.known.replace(now);
        let now = self.known.borrow();
        let absent = |of: &[Problem], from: &[Problem]| -> Vec<Problem> {
            of.iter().filter(|one| !from.iter().any(|other| other.is(one))).cloned().collect()
        };
        (absent(&now, &before), absent(&before, &now))
    }

    /// A snapshot of a volume was dropped.
    pub(crate) fn note_dropped(&self, volume: Uuid, snapshot: &str) {
        self.dropped.borrow_mut().entry(volume).or_default().insert(snapshot.to_owned());
    }

    /// Somebody takes care of a volume: makes a snapshot, or changes what is declared for it.
    pub(crate) fn forget_dropped(&self, volume: Uuid) {
        self.dropped.borrow_mut().remove(&volume);
    }

    /// Volumes, and their snapshots that were dropped.
    pub(crate) fn dropped(&self) -> Vec<(Uuid, Vec<String>)> {
        let dropped = self.dropped.borrow();
        dropped.iter().map(|(volume, names)| (*volume, names.iter().cloned().collect())).collect()
    }

    /// A person has disks scanned: what failed before was seen.
    pub(crate) fn forget_errors(&self) {
        for file in self.files.borrow_mut().values_mut() {
            file.errors_seen = file.errors;
        }
    }

    /// What is wrong with files.
    pub(crate) fn file_troubles(&self, now: Moment) -> Vec<FileTrouble> {
        let trouble = |(path, file): (&PathBuf, &WatchedFile)| FileTrouble {
            path: path.clone(),
            volume: file.volume,
            placement: file.look.placement,
            is_full: file.is_full(now),
            errors: file.errors.saturating_sub(file.errors_seen),
            why_cut_off: Some(file.state).filter(|state| state.is_cut_off()).and_then(why_failed),
        };
        let files = self.files.borrow();
        let is_one = |trouble: &FileTrouble| {
            let is_at_path = trouble.placement == DiskPlacement::AtPath;
            !is_at_path || trouble.is_full || trouble.errors > 0 || trouble.why_cut_off.is_some()
        };
        files.iter().map(trouble).filter(is_one).collect()
    }

    /// Bytes of the file or block device at `path`, if these are more than `bytes`.
    pub(crate) fn grown_beyond(&self, path: &Path, bytes: u64) -> Option<u64> {
        self.files.borrow().get(path)?.look.length.filter(|length| *length >= bytes + GROWTH_MIN)
    }

    /// Whether the file system below a disk has no room, or had none for a request since the last look.
    pub(crate) fn is_full(&self, disk: &DiskRef, now: Moment) -> bool {
        let files = self.files.borrow();
        let file = files.get(disk.path());
        let counted = file.map_or(0, |file| file.no_space.0);
        file.is_some_and(|file| file.is_full(now)) || disk.counters().no_space > counted
    }

    /// A look at `path` begins; whether none is under way there (WATCH2 of `looks.rs`).
    pub(crate) fn begin_look(&self, path: &Path, now: Moment) -> bool {
        let mut under_way = self.under_way.borrow_mut();
        if under_way.contains_key(path) {
            return false;
        }
        under_way.insert(path.to_owned(), now);
        true
    }

    /// It has ended.
    pub(crate) fn end_look(&self, path: &Path) {
        let begun = self.under_way.borrow_mut().remove(path);
        assert!(begun.is_some(), "WATCH2: one look at a path is under way");
    }

    /// Whether a look at `path` has lasted for so long.
    pub(crate) fn is_silent(&self, path: &Path, now: Moment, limit: Duration) -> bool {
        self.under_way.borrow().get(path).is_some_and(|begun| begun.after(limit) <= now)
    }

    /// Counts what has happened to `disk`, and keeps no others than `disks`.
    pub(crate) fn count(&self, disks: &[(PathBuf, Option<Uuid>, DiskRef)], now: Moment) {
        let mut files = self.files.borrow_mut();
        files.retain(|path, _| disks.iter().any(|(known, ..)| known == path));
        for (path, volume, disk) in disks {
            let (file, counted) = (files.entry(path.clone()).or_default(), disk.counters());
            (file.volume, file.state) = (*volume, disk.state());
            if let DiskState::Shrunk { expected, .. } = file.state {
                self.read_files.note_cut(disk, expected);
            }
            if counted.no_space != file.no_space.0 {
                let has_failed = counted.no_space > file.no_space.0;
                file.no_space = (counted.no_space, has_failed.then_some(now));
            }
            file.errors = counted.errors.saturating_sub(counted.no_space);
            file.errors_seen = file.errors_seen.min(file.errors); // It may have been opened anew.
        }
    }

    pub(crate) fn learn(&self, path: &Path, look: FileLook) {
        if let Some(file) = self.files.borrow_mut().get_mut(path) {
            file.look = look;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_api::ProblemKind;

    #[test]
    fn what_begins_and_what_ends_is_told_once() {
        let problem = |name: &str, message: &str| Problem {
            kind: ProblemKind::DiskStalled,
            severity: ProblemKind::DiskStalled.severity(),
            noun: "pv".to_owned(),
            name: name.to_owned(),
            group: None,
            message: message.to_owned(),
            help: String::new(),
            since: 0,
        };
        let names = |(begun, ended): (Vec<Problem>, Vec<Problem>)| -> (Vec<String>, Vec<String>) {
            let names = |problems: Vec<Problem>| problems.into_iter().map(|problem| problem.name).collect();
            (names(begun), names(ended))
        };
        let watch = Watch::default();
        let first = watch.dated(vec![problem("a", "for 3 s")], 7);
        assert_eq!(names(watch.exchange(first)), (vec!["a".to_owned()], vec![]), "WATCH1");
        let second = watch.dated(vec![problem("a", "for 4 s"), problem("b", "")], 9);
        assert_eq!((second[0].since, second[1].since), (7, 9));
        assert_eq!(names(watch.exchange(second)), (vec!["b".to_owned()], vec![]), "WATCH1");
        assert_eq!(names(watch.exchange(vec![])), (vec![], vec!["a".to_owned(), "b".to_owned()]), "WATCH1");
    }
}
