//! The archive of the texts of groups in the state directory: a folder for each group, and in it a file for each version, as
//! `varve vg backup` writes it.
//!
//! Invariants:
//! - ARCHIVEFILE1. The newest `VERSIONS_MIN` versions of a group are kept; of the others `VERSIONS_MAX` in all, and for `AGE_MAX`.
//! - ARCHIVEFILE2. All versions of a group that was removed are kept for `AGE_MAX`, unless it is there again.

use crate::state::{BESIDE, replace};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use varve_volume::world::ArchiveEntry;

const FOLDER: &str = "archive";
/// How the names of versions end.
const VERSION: &str = ".vg";
/// The file that says since when a group is removed.
const REMOVED: &str = "removed";

const VERSIONS_MIN: usize = 10;
const VERSIONS_MAX: usize = 100;
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The newest version of a group in an archive.
#[derive(Clone, Debug)]
pub struct ArchivedFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
}

/// The newest version of each group in the archive of the state directory `state`.
pub fn archived(state: &Path) -> io::Result<Vec<ArchivedFile>> {
    let mut newest = Vec::new();
    for folder in entries(&state.join(FOLDER))? {
        if let Some((path, _)) = versions(&folder)?.into_iter().next() {
            newest.push(ArchivedFile { text: std::fs::read_to_string(&path)?, path });
        }
    }
    Ok(newest)
}

/// Makes a text durable, or that its group was removed; and removes what has been kept for long enough.
pub(crate) fn keep(state: &Path, entry: &ArchiveEntry) -> io::Result<()> {
    let archive = state.join(FOLDER);
    let folder = archive.join(entry.group.to_string());
    match &entry.text {
        Some(text) => {
            make_folder(&archive)?;
            make_folder(&folder)?;
            let version = text.version.simple().to_string();
            let name = format!("{}-{}-{}{VERSION}", text.name, text.sequence, &version[..8]);
            replace(&folder, &name, &text.text)?;
            remove(&folder.join(REMOVED))?;
        }
        None if folder.exists() => replace(&folder, REMOVED, "")?,
        None => {}
    }
    let now = UNIX_EPOCH + Duration::from_secs(entry.date);
    let versions = versions(&folder)?;
    for (place, (path, written)) in versions.iter().enumerate() {
        if !is_kept(place, age(*written, now)) {
            remove(path)?;
        }
    }
    remove_groups(&archive, now)
}

/// ARCHIVEFILE1, of the version that is at this place, the newest being at 0.
fn is_kept(place: usize, age: Duration) -> bool {
    place < VERSIONS_MIN || (place < VERSIONS_MAX && age <= AGE_MAX)
}

/// ARCHIVEFILE2; and what a crash has left of files that were being written.
fn remove_groups(archive: &Path, now: SystemTime) -> io::Result<()> {
    for folder in entries(archive)? {
        let removed = modified(&folder.join(REMOVED))?;
        let is_over = removed.is_some_and(|removed| age(removed, now) > AGE_MAX);
        let all = entries(&folder)?;
        let is_left = |path: &&PathBuf| is_over || path.to_string_lossy().ends_with(BESIDE);
        // The file that says so goes last, so that a crash leaves it.
        let (last, first): (Vec<_>, Vec<_>) =
            all.iter().filter(is_left).partition(|path| path.ends_with(REMOVED));
        first.into_iter().chain(last).try_for_each(|path| remove(path))?;
        if is_over {
            std::fs::remove_dir(&folder)?;
        }
    }
    Ok(())
}

/// The versions in the folder of a group and when they were written, the newest first.
fn versions(folder: &Path) -> io::Result<Vec<(PathBuf, SystemTime)>> {
    let mut versions = Vec::new();
    for path in entries(folder)? {
        if path.to_string_lossy().ends_with(VERSION)
            && let Some(written) = modified(&path)?
        {
            versions.push((path, written));
        }
    }
    // Two that were written in one tick of the file system's clock are distinguished by their numbers.
    versions.sort_by_key(|(path, written)| std::cmp::Reverse((*written, number(path))));
    Ok(versions)
}

/// The number of the change in the name of a version.
fn number(version: &Path) -> u64 {
    let name = version.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit('-').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn age(written: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(written).unwrap_or_default()
}

fn modified(path: &Path) -> io::Result<Option<SystemTime>> {
    match std::fs::metadata(path) {
        Ok(metadata) => metadata.modified().map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What is in a folder; nothing if it is not there.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => File::open(folder.parent().expect("it lies in the state directory"))?.sync_all(),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;
    use varve_volume::world::ArchivedText;

    const DAY: u64 = 24 * 3600;

    fn entry(group: u128, sequence: u64, (version, date): (u8, u64)) -> ArchiveEntry {
        let text = format!("text {sequence} {version}");
        let version = Uuid::from_bytes([version; 16]);
        let text = Some(ArchivedText { name: "data".to_owned(), sequence, version, text });
        ArchiveEntry { group: Uuid::from_u128(group), date, text }
    }

    fn removal(group: u128, date: u64) -> ArchiveEntry {
        ArchiveEntry { group: Uuid::from_u128(group), date, text: None }
    }

    /// Days since 1970, for the file system.
    fn now_days() -> u64 {
        let folder = tempfile::tempdir().expect("a folder");
        let written = std::fs::metadata(folder.path()).expect("it is there").modified().expect("a date");
        written.duration_since(UNIX_EPOCH).expect("after 1970").as_secs() / DAY + 1
    }

    fn set_age(path: &Path, days: u64) {
        let written = UNIX_EPOCH + Duration::from_secs((now_days() - days) * DAY);
        let file = File::options().write(true).open(path).expect("it is there");
        file.set_modified(written).expect("a date");
    }

    #[test]
    fn what_was_archived_last_is_the_newest_and_a_crash_leaves_no_half_file() {
        let state = tempfile::tempdir().expect("a folder");
        let today = now_days() * DAY;
        let folder = state.path().join("archive").join(Uuid::from_u128(7).to_string());
        for (sequence, version, days) in [(3, 1, 9), (4, 1, 8), (3, 2, 7)] {
            keep(state.path(), &entry(7, sequence, (version, today))).expect("a writable folder");
            set_age(
                &folder.join(format!("data-{sequence}-0{version}0{version}0{version}0{version}.vg")),
                days,
            );
        }
        let half = folder.join("data-5-01010101.vg.new");
        std::fs::write(&half, "te").expect("a writable folder");
        let newest = archived(state.path()).expect("it can be read");
        let texts: Vec<&str> = newest.iter().map(|file| file.text.as_str()).collect();
        assert_eq!(texts, ["text 3 2"], "a number may come again after a restore");
        assert!(newest[0].path.ends_with("data-3-02020202.vg"), "{newest:?}");
        assert_eq!(versions(&folder).expect("it can be read").len(), 3);
        keep(state.path(), &entry(8, 1, (1, today))).expect("a writable folder");
        assert!(!half.exists(), "STATE1: what a crash left is removed");
        assert_eq!(archived(state.path()).expect("it can be read").len(), 2);
    }

    #[test]
    fn versions_are_bounded_in_number_and_age() {
        let state = tempfile::tempdir().expect("a folder");
        let today = now_days() * DAY;
        let folder = state.path().join("archive").join(Uuid::from_u128(7).to_string());
        for sequence in 1..=120 {
            keep(state.path(), &entry(7, sequence, (1, today))).expect("a writable folder");
        }
        let kept = versions(&folder).expect("it can be read");
        assert_eq!(kept.len(), VERSIONS_MAX, "ARCHIVEFILE1");
        assert_eq!((number(&kept[0].0), number(&kept[99].0)), (120, 21), "ARCHIVEFILE1");
        kept.iter().for_each(|(path, _)| set_age(path, 32));
        keep(state.path(), &entry(7, 121, (1, today))).expect("a writable folder");
        let kept = versions(&folder).expect("it can be read");
        let numbers: Vec<u64> = kept.iter().map(|(path, _)| number(path)).collect();
        assert_eq!(numbers, (112..=121).rev().collect::<Vec<_>>(), "ARCHIVEFILE1");
    }

    #[test]
    fn a_group_that_was_removed_is_kept_for_a_while() {
        let state = tempfile::tempdir().expect("a folder");
        let today = now_days() * DAY;
        let folder = |group| state.path().join("archive").join(Uuid::from_u128(group).to_string());
        for group in [7, 8, 9] {
            keep(state.path(), &entry(group, 1, (1, today))).expect("a writable folder");
            keep(state.path(), &removal(group, today)).expect("a writable folder");
        }
        set_age(&folder(7).join(REMOVED), 29);
        set_age(&folder(8).join(REMOVED), 32);
        set_age(&folder(9).join(REMOVED), 32);
        keep(state.path(), &entry(9, 2, (1, today))).expect("a writable folder");
        assert!(folder(7).exists(), "ARCHIVEFILE2");
        assert!(!folder(8).exists(), "ARCHIVEFILE2");
        assert_eq!(versions(&folder(9)).expect("it can be read").len(), 2, "ARCHIVEFILE2: it is there again");
        keep(state.path(), &removal(10, today)).expect("nothing was kept of it");
    }
}
