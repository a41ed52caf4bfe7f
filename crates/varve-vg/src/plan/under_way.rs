//! What a backup says was under way when it was taken: moves, conversions, clearing, jobs. None of it goes on after a restore.
//!
//! Since then it has ended, or the disks hold something else: a move or conversion would copy from a place that others fill by now,
//! and what was to be cleared may have been served and written. What counts in the backup counts; what was prepared beside it is
//! dropped.
//!
//! Invariant UNDERWAY1: what is written back from a backup has no moves, conversions, sets of snapshots, jobs or marks of what is to
//! be cleared that are the backup's.

use crate::model::{Description, Job, LogicalVolume};
use uuid::Uuid;

/// Takes what was under way out of a backup (UNDERWAY1).
pub(crate) fn drop_under_way(backup: &mut Description) {
    backup.moves.clear();
    backup.conversions.clear();
    backup.snapshot_sets.clear(); // resolved since, one way or the other
    backup.jobs.clear(); // and so are they: what had begun, stores and pools know
    for volume in &mut backup.logical_volumes {
        volume.uncleared = None;
    }
    assert!(under_way(backup).is_empty(), "UNDERWAY1");
}

/// What was under way when a backup was taken and does not go on when it is written back, in words: a sentence each.
pub fn under_way(backup: &Description) -> Vec<String> {
    let marks = backup.logical_volumes.iter().filter_map(|volume| mark_words(backup, volume));
    work_words(backup, |_| true).into_iter().chain(marks).collect()
}

/// The words of moves and conversions, and of those jobs that are meant.
pub(super) fn work_words(backup: &Description, is_meant: impl Fn(&Job) -> bool) -> Vec<String> {
    let moves = backup.moves.iter().map(|entry| {
        let from = entry.from;
        format!("the move from {from} was under way in the backup and does not go on; what it had copied last is dropped")
    });
    let name = |id: Uuid| {
        let volume = backup.logical_volumes.iter().find(|volume| volume.id == id);
        volume.map_or_else(|| id.to_string(), |volume| full_name(backup, volume))
    };
    let conversions = backup.conversions.iter().map(|entry| {
        let (volume, dropped) = (name(entry.volume), if entry.switched { "old" } else { "new" });
        format!("the conversion of {volume} was under way in the backup and does not go on; its {dropped} layout is dropped")
    });
    let jobs =
        backup.jobs.iter().filter(|job| is_meant(job)).map(|job| {
            format!("job {} was under way in the backup and does not go on: {}", job.id, job.subject)
        });
    moves.chain(conversions).chain(jobs).collect()
}

/// The words of the extents of a volume that were still to be cleared, if there were any.
pub(super) fn mark_words(backup: &Description, volume: &LogicalVolume) -> Option<String> {
    let from = volume.uncleared?;
    let full = full_name(backup, volume);
    let scrub = match volume.layout.members().is_empty() {
        true => String::new(),
        false => format!("; its members may differ: `varve array scrub {full}`"),
    };
    Some(format!(
        "{full} was being cleared in the backup, and is not: from its extent {from} on it shows what lies there{scrub}"
    ))
}

fn full_name(backup: &Description, volume: &LogicalVolume) -> String {
    format!("{}/{}", backup.group.name, volume.name)
}
