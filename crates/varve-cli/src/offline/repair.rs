//! `varve repair` of groups: labels made anew, worn copies and disks that lag behind brought to what the group says.

use super::check::{Surveyed, exit, look, text, walk};
use super::disks::{absolute, with_disks};
use super::{archive, consent, new_store};
use crate::answer::Answer;
use crate::grammar::RepairOptions;
use crate::table;
use std::path::PathBuf;
use varve_api::{Check, Code, Failure, Plan};
use varve_block::{Access, Arena, IoError};
use varve_os::ShardContext;
use varve_vg::disks::create::signature;
use varve_vg::disks::relabel::{FoundLabel, LabelSource, find_labels, write_found};
use varve_vg::{Absent, Disk, Note, OpenGroup, Stamp, scan};

/// Mends what can be mended without a guess, and shows what a check finds then. Exit 7 if something is left.
pub(crate) fn repair(options: &RepairOptions, json: bool) -> Result<Answer, Failure> {
    if let Some(store) = &options.store {
        return new_store::repair(&options.paths, store, options.destroy, json);
    }
    let paths = &options.paths;
    let steps = match with_disks(paths, Access::ReadOnly, async move |context, disks| {
        plan(&context, Surveyed::of(disks, &context.arena()).await).await
    })? {
        Planned::Steps(steps) => steps,
        Planned::Nothing(check) => return not_mended(options, check),
    };
    let plan = Plan::of_steps(steps);
    if options.destroy.dry_run {
        return Ok(Answer::new(&plan, table::plan(&plan)));
    }
    consent("repair", &plan, options.destroy, json)?;
    let done = with_disks(paths, Access::ReadWrite, async move |context, disks| mend(&context, disks).await)?;
    let done = done?;
    let check = look(paths)?;
    let said = format!("{}\n{}", done.join("\n"), text(&check));
    Ok(Answer::new(&check, said).exit(exit(&check)))
}

/// What a repair would do.
enum Planned {
    /// In sentences that begin with "would".
    Steps(Vec<String>),
    /// What a check finds where there is nothing to do.
    Nothing(Result<Check, Failure>),
}

/// Decides what to do; nothing is written.
async fn plan(context: &ShardContext, surveyed: Surveyed) -> Planned {
    let arena = context.arena();
    let mut steps = Vec::new();
    for (place, found) in &surveyed.lost {
        steps.push(format!("would {}", relabelling(&surveyed.disks[*place], found, &arena).await));
    }
    for open in &surveyed.survey.groups {
        let notes = mendable(open).await.into_iter();
        steps.extend(notes.map(|note| format!("would mend group {}: {note}", open.group().name())));
    }
    if steps.is_empty() { Planned::Nothing(walk(context, &surveyed).await) } else { Planned::Steps(steps) }
}

/// Shows what was checked and can not be mended by what the disks hold; of damage, whether the archive mends it.
fn not_mended(options: &RepairOptions, check: Result<Check, Failure>) -> Result<Answer, Failure> {
    let restores = || archive::restores(&options.paths, options.state.as_deref());
    let check = match check {
        Err(failure) if failure.code == Code::NotPhysicalVolume => {
            return Err(match restores()? {
                Some(archived) => failure.help(archived.help()),
                None => failure,
            });
        }
        check => check?,
    };
    let end = if check.clean {
        "there is nothing to mend".to_owned()
    } else if let Some(archived) = restores()? {
        format!("what these disks hold mends none of it, but the archive does: {}", archived.help())
    } else {
        "what these disks hold mends none of it; varve vg reduce VG --missing gives up a lost disk".to_owned()
    };
    let said = format!("{}\n{end}", text(&check));
    Ok(Answer::new(&check, said).exit(exit(&check)))
}

/// Does it, and says what was done.
async fn mend(context: &ShardContext, disks: Vec<Disk>) -> Result<Vec<String>, Failure> {
    let arena = context.arena();
    let mut done = Vec::new();
    for (place, found) in find_labels(&disks, absolute, &arena).await {
        let disk = &disks[place];
        let words = relabelling(disk, &found, &arena).await;
        let written = write_found(disk, &found, &arena).await;
        written.map_err(|error| unwritten(&PathBuf::from(&disk.path), error))?;
        done.push(format!("mended: {words}"));
    }
    let stamp = Stamp { date: context.clock().date(), change: "repair".to_owned() };
    for mut open in scan(disks, &arena).await.groups {
        let name = open.group().name().to_owned();
        let notes = mendable(&open).await;
        if notes.is_empty() {
            continue;
        }
        match open.reconcile(Absent::Refuse, &stamp).await {
            Ok(()) => done.extend(notes.iter().map(|note| format!("mended: group {name}: {note}"))),
            Err(error) => done.push(format!("not mended: {error}; name all disks of the group")),
        }
    }
    Ok(done)
}

/// What is done to a disk that has lost its label, or its descriptions, and what that overwrites.
async fn relabelling(disk: &Disk, found: &FoundLabel, arena: &Arena) -> String {
    let (path, sequence, source) = (&disk.path, found.sequence, found.found_in);
    let said = match (&found.group, source) {
        (Some(group), LabelSource::Group) => format!(
            "label {path} anew as the disk that group {group} misses: the group says so, by size or path, and nothing on the disk"
        ),
        (Some(group), _) => {
            format!("label {path} anew as a disk of group {group}, as change {sequence} in {source} says")
        }
        (None, _) => format!("label {path} anew as a physical volume of no group, as {source} says"),
    };
    match signature(&disk.device, arena).await {
        Ok(Some(other)) => format!("{said}, over {} (at byte {})", other.name, other.offset),
        _ => said,
    }
}

/// What bringing the group's disks to one state mends.
async fn mendable(open: &OpenGroup) -> Vec<Note> {
    let reconciles = |note: &Note| {
        matches!(
            note,
            Note::LabelWorn { .. } | Note::Behind { .. } | Note::Returned { .. } | Note::TailBehind { .. }
        )
    };
    let notes = open.notes().iter().cloned().chain(open.tail_notes().await);
    notes.filter(reconciles).collect()
}

fn unwritten(path: &std::path::Path, error: IoError) -> Failure {
    Failure::new(Code::MediumFailed, format!("{}: {error}", path.display()))
        .help("look at the disk, and try again")
}
