//! What a backup says was under way when it was taken: jobs and sets of snapshots. None of it goes on after a restore.
//!
//! Since then it has ended, or the disks hold something else: a move or conversion would copy from a place that others fill by now,
//! and what was to be cleared may have been served and written. What counts in the backup counts; what was prepared beside it is
//! dropped.
//!
//! Invariant UNDERWAY1: what is written back from a backup has no sets of snapshots and no jobs that are the backup's.

use crate::model::{Description, Job, JobWork, LogicalVolume};
use uuid::Uuid;

/// Takes what was under way out of a backup (UNDERWAY1).
pub(crate) fn drop_under_way(backup: &mut Description) {
    backup.snapshot_sets.clear(); // resolved since, one way or the other
    backup.jobs.clear(); // and so are they: what had begun, stores and pools know
    assert!(under_way(backup).is_empty(), "UNDERWAY1");
}

/// What was under way when a backup was taken and does not go on when it is written back, in words: a sentence each.
pub fn under_way(backup: &Description) -> Vec<String> {
    under_way_words(backup, |_| true)
}

/// The words of those jobs that are meant.
pub(super) fn under_way_words(backup: &Description, is_meant: impl Fn(&Job) -> bool) -> Vec<String> {
    backup.jobs.iter().filter(|job| is_meant(job)).map(|job| words(backup, job)).collect()
}

fn words(backup: &Description, job: &Job) -> String {
    let (what, dropped) = match &job.work {
        JobWork::Clear { volume, from } => return clearing_words(backup, *volume, *from),
        JobWork::Move(entry) => {
            (format!("the move from {}", entry.from), "; what it had copied last is dropped".to_owned())
        }
        JobWork::Convert(entry) => {
            let dropped = if entry.switched { "old" } else { "new" };
            let what = format!("the conversion of {}", full_name(backup, entry.volume));
            (what, format!("; its {dropped} layout is dropped"))
        }
        _ => (format!("job {}", job.id), format!(": {}", job.subject)),
    };
    format!("{what} was under way in the backup and does not go on{dropped}")
}

/// The words of the extents of a volume that were still to be cleared.
fn clearing_words(backup: &Description, id: Uuid, from: u64) -> String {
    let full = full_name(backup, id);
    let is_array = |volume: &LogicalVolume| volume.id == id && !volume.layout.members().is_empty();
    let scrub = match backup.logical_volumes.iter().any(is_array) {
        false => String::new(),
        true => format!("; its members may differ: `varve array scrub {full}`"),
    };
    format!(
        "{full} was being cleared in the backup, and is not: from its extent {from} on it shows what lies there{scrub}"
    )
}

fn full_name(backup: &Description, id: Uuid) -> String {
    let volume = backup.logical_volumes.iter().find(|volume| volume.id == id);
    volume.map_or_else(|| id.to_string(), |volume| format!("{}/{}", backup.group.name, volume.name))
}
