//! `varve repair --store` and `varve restore --store`: a new copy of a snapshot store, or new metadata of a pool, from
//! what it says itself or from a text.
//!
//! Invariant NEWSTORE1: one that is done and has lost anything says so to programs too: its exit code is that of what was done
//! in part, and its data says `"partial": true`.

use super::damage::{self, Loss};
use super::disks::with_disks;
use super::renewal::{self, Renewed, Wish};
use super::{consent, renew};
use crate::answer::Answer;
use crate::grammar::Destroy;
use crate::table;
use crate::units::size;
use serde::Serialize;
use std::path::{Path, PathBuf};
use varve_api::{Code, Exit, Failure, Finding, Plan};
use varve_block::Access;
use varve_target::snapshot::STORE_TEXT_TITLE;
use varve_target::thin::{POOL_TEXT_TITLE, Restored};

/// What was done.
#[derive(Serialize)]
struct Done {
    /// The store that was made anew.
    store: String,
    /// The volume that the old one is now.
    kept_as: String,
    /// Bytes of snapshots, and of the volume if it is being rolled back, that could not be read; they are zeros now.
    bytes_lost: u64,
    /// Which those are.
    lost: Vec<Finding>,
    /// Records of its log that could not be read.
    records_lost: u64,
    /// The snapshots that may show newer content for that.
    doubtful: Vec<String>,
    /// Whether anything is lost (NEWSTORE1).
    partial: bool,
}

/// `varve repair --store`.
pub(super) fn repair(
    paths: &[PathBuf],
    store: &str,
    destroy: Destroy,
    json: bool,
) -> Result<Answer, Failure> {
    carry_out(paths, store, None, format!("repair {store}"), destroy, json)
}

/// `varve restore --store`.
pub(super) fn restore(
    paths: &[PathBuf],
    store: &str,
    file: &Path,
    destroy: Destroy,
    json: bool,
) -> Result<Answer, Failure> {
    let help = format!("varve dump PATH… --store {store} >FILE makes such a file");
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::new(Code::FileUnusable, format!("{}: {error}", file.display())).help(help.as_str())
    })?;
    let is_known = |title: &str| [STORE_TEXT_TITLE, POOL_TEXT_TITLE].contains(&title);
    if !text.lines().next().is_some_and(is_known) {
        let message = format!("{} is not the text of a snapshot store or a pool", file.display());
        return Err(Failure::new(Code::BadBackup, message).help(help.as_str()));
    }
    carry_out(paths, store, Some(text), format!("restore {store} from {}", file.display()), destroy, json)
}

fn carry_out(
    paths: &[PathBuf],
    store: &str,
    text: Option<String>,
    command: String,
    destroy: Destroy,
    json: bool,
) -> Result<Answer, Failure> {
    if !destroy.dry_run {
        let step = format!("would make a new copy of {store}, and keep the old one");
        consent(&command, &Plan::of_steps(vec![step]), destroy, json)?;
    }
    let access = if destroy.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let store = store.to_owned();
    let wish = Wish { store: store.clone(), text, dry_run: destroy.dry_run, command };
    let renewed =
        with_disks(paths, access, async move |context, disks| renew::renew(&context, disks, wish).await)?;
    Ok(match renewed? {
        Renewed::Planned(plan) => Answer::new(&plan, table::plan(&plan)),
        Renewed::Done(done) => told(store, *done),
        Renewed::Pool { kept_as, restored, lost } => pool_done(store, kept_as, &restored, lost),
    })
}

/// What was done, and what could not be.
fn told(store: String, done: renewal::Done) -> Answer {
    let renewal::Done { kept_as, volume, losses, lost_records, doubtful } = done;
    let why = "cannot be read any more, and are zeros now";
    let finding = |loss: &Loss| damage::finding(true, &volume, loss.snapshot.as_deref(), &loss.extents, why);
    let lost: Vec<Finding> = losses.iter().map(finding).collect();
    let bytes_lost = lost.iter().flat_map(|finding| &finding.extents).map(|extent| extent.length).sum();
    let mut text = format!("made the snapshot store {store} anew; the old one is {kept_as}");
    lost.iter().for_each(|finding| text.push_str(&format!("\nlost: {}", finding.message)));
    if bytes_lost > 0 {
        text.push_str(&format!("\n{} are lost; everything else is what it was", size(bytes_lost)));
    }
    let doubtful: Vec<String> = doubtful.iter().map(|name| format!("{volume}@{name}")).collect();
    if lost_records > 0 {
        let whose = doubtful.join(", ");
        text.push_str(&format!(
            "\nlost: {lost_records} records of the log; what was first changed with them may show newer content in {whose}"
        ));
    }
    let partial = !lost.is_empty() || lost_records > 0;
    let done = Done { store, kept_as, bytes_lost, lost, records_lost: lost_records, doubtful, partial };
    Answer::new(&done, text).exit(exit(partial))
}

/// The exit code that goes with `"partial"`.
fn exit(partial: bool) -> Exit {
    if partial { Exit::Partial } else { Exit::Ok }
}

/// What was done to a pool.
#[derive(Serialize)]
struct PoolDone {
    /// The pool.
    pool: String,
    /// The volume in which the old metadata is now.
    kept_as: Option<String>,
    /// Volumes and snapshots that it has.
    volumes: u64,
    /// Bytes that they have mapped, all together.
    bytes_mapped: u64,
    /// Changes of the log that could not be made again.
    changes_lost: u64,
    /// Volumes, and snapshots as `LV@SNAP`, that are what they were before one of these.
    behind: Vec<String>,
    /// Whose bytes are lost.
    lost: Vec<Finding>,
    /// Whether anything is lost (NEWSTORE1).
    partial: bool,
}

fn pool_done(pool: String, kept_as: Option<String>, restored: &Restored, lost: Vec<Finding>) -> Answer {
    let Restored { volumes, mapped_bytes, changes_lost, behind } = restored.clone();
    let kept = match &kept_as {
        Some(kept) => format!("the old one is in {kept}"),
        None => "of the old one nothing could be read".to_owned(),
    };
    let undone = match changes_lost {
        0 => String::new(),
        lost if behind.is_empty() => format!("; {lost} changes that its log speaks of could not be made"),
        lost => format!(
            "; {lost} changes that its log speaks of could not be made, and {} are as they were before one of them",
            behind.join(", ")
        ),
    };
    let lines: String = lost.iter().map(|loss| format!("lost: {}\n", loss.message)).collect();
    let data = size(mapped_bytes);
    let text = format!(
        "{lines}wrote the metadata of {pool} anew, {volumes} volumes and snapshots with {data}; {kept}{undone}"
    );
    let partial = !lost.is_empty() || changes_lost > 0;
    let mapped = mapped_bytes;
    let done = PoolDone { pool, kept_as, volumes, bytes_mapped: mapped, changes_lost, behind, lost, partial };
    Answer::new(&done, text).exit(exit(partial))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_has_lost_changes_says_so_to_programs() {
        for changes_lost in [0, 1] {
            let restored = Restored { changes_lost, ..Restored::default() };
            let answer = pool_done("data/p".into(), None, &restored, Vec::new());
            let said = (answer.code == Exit::Partial as u8, answer.json.contains("\"partial\":true"));
            assert_eq!(said, (changes_lost > 0, changes_lost > 0), "NEWSTORE1: {}", answer.json);
        }
    }
}
