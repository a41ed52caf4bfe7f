//! `varve vg`, carried out.

use super::physical::{self, overwriting};
use super::{activate, deactivate};
use crate::answer::Answer;
use crate::grammar::{Destroy, GroupVerb, MetadataOptions};
use crate::places::{absolute, absolute_all, check_place};
use crate::session::Session;
use crate::table::{Table, pairs};
use crate::units::{date, size};
use std::path::Path;
use varve_api::{
    Code, Failure, Group, GroupChange, GroupCreate, GroupExtend, GroupMetadata, GroupReduce, GroupRestore,
    GroupTrash, GroupUndo, History, MetadataMemory, MetadataOrder, MetadataWords, Plan, Remove, Rename,
    Restored, calls,
};
use varve_vg::plan::every_text;

/// The longest description of a group that can be sent, in bytes.
const BACKUP_MAX: u64 = 1 << 20;

/// Carries out a verb of groups.
pub(crate) async fn group(session: &Session, verb: GroupVerb) -> Result<Answer, Failure> {
    match verb {
        GroupVerb::Create(options) => {
            let request = GroupCreate {
                name: options.name,
                paths: absolute_all(&options.paths)?,
                extent_size: options.extent_size,
                cache: options.disk_cache,
                overwrite: options.destroy.yes,
                metadata: words(options.metadata),
                dry_run: options.destroy.dry_run,
            };
            let text = |group: &Group| format!("made group {} of {}", group.name, size(group.size));
            overwriting(session, calls::CreateGroup(request), |request| request.overwrite = true, text).await
        }
        GroupVerb::List => session.show(calls::ListGroups(), |groups| table(groups)).await,
        GroupVerb::Show { name } => session.show(calls::ShowGroup(name), show).await,
        GroupVerb::Extend { name, paths, disk, destroy } => {
            let (paths, cache) = (absolute_all(&paths)?, disk.cache);
            let request = GroupExtend { paths, cache, overwrite: destroy.yes, dry_run: destroy.dry_run };
            let text = |group: &Group| format!("group {} now has {} free", group.name, size(group.free));
            let call = calls::ExtendGroup(name, request);
            overwriting(session, call, |request| request.overwrite = true, text).await
        }
        GroupVerb::Reduce { name, path, missing, with_volumes, destroy } => {
            let path = path.as_deref().map(absolute).transpose()?;
            let (gone, what) = (path.clone(), format!("vg reduce {name}"));
            let request = GroupReduce { path, missing, with_volumes, dry_run: destroy.dry_run };
            let call = calls::ReduceGroup(name, request);
            let gone = gone.unwrap_or_else(|| "the missing disks".to_owned());
            session.destroy(&what, destroy.yes || !with_volumes, call, |group| taken_out(&gone, group)).await
        }
        GroupVerb::Declare { name, metadata, trash, change } => {
            let request = GroupChange { metadata: words(metadata), trash, dry_run: change.dry_run };
            let keep = request.trash.is_some();
            session.change(calls::ChangeGroup(name, request), |group| declared(group, keep)).await
        }
        GroupVerb::Rename { name, to, force, change } => {
            let request = Rename { to, force: force.force, dry_run: change.dry_run };
            let call = calls::RenameGroup(name.clone(), request);
            session.change(call, |group| format!("group {name} is now {}", group.name)).await
        }
        GroupVerb::Activate { name, options } => {
            activate(session, calls::ActivateGroup, &name, options).await
        }
        GroupVerb::Deactivate { name, change } => {
            deactivate(session, calls::DeactivateGroup, &name, change).await
        }
        GroupVerb::Remove { name, destroy } => {
            let call = calls::RemoveGroup(name.clone(), Remove { dry_run: destroy.dry_run });
            let (what, text) = (format!("vg remove {name}"), format!("removed group {name}"));
            session.destroy(&what, destroy.yes, call, |_| text).await
        }
        GroupVerb::Backup { name, file, change } => backup(session, &name, &file, change.dry_run).await,
        GroupVerb::Restore { name, file, drop, destroy } => {
            restore(session, &name, &file, drop, destroy).await
        }
        GroupVerb::Undo { name, to, drop, destroy } => {
            let call = calls::UndoGroup(name.clone(), GroupUndo { to, drop, dry_run: destroy.dry_run });
            session.destroy(&format!("vg undo {name}"), destroy.yes, call, restored).await
        }
        GroupVerb::History { name } => session.show(calls::GroupHistory(name), changes).await,
    }
}

/// What was taken out of a group, and whatever is wrong with the group now.
fn taken_out(what: &str, group: &Group) -> String {
    let left = group.reason.as_ref().map(|reason| format!("; {reason}"));
    format!("took {what} out of group {}{}", group.name, left.unwrap_or_default())
}

async fn backup(session: &Session, name: &str, file: &Path, dry_run: bool) -> Result<Answer, Failure> {
    let backup = session.ask(&calls::BackupGroup(name.to_owned())).await?;
    let place = file.display();
    if dry_run {
        check_place(file).map_err(|error| unusable(file, &error))?;
        let step =
            format!("would write the description of group {name}, {} bytes, to {place}", backup.text.len());
        return Ok(Answer::planned(&Plan::of_steps(vec![step])));
    }
    std::fs::write(file, &backup.text).map_err(|error| unusable(file, &error))?;
    let text = format!("wrote change {} of group {name} to {place}", backup.sequence);
    Ok(Answer::new(&backup, text))
}

async fn restore(
    session: &Session,
    name: &str,
    file: &Path,
    drop: Vec<String>,
    destroy: Destroy,
) -> Result<Answer, Failure> {
    let no_backup = |why: String| {
        Failure::new(Code::BadBackup, format!("{} is no backup: {why}", file.display()))
            .help(format!("give a file that was written by: varve vg backup {name} FILE"))
    };
    let length = std::fs::metadata(file).map_err(|error| unusable(file, &error))?.len();
    if length > BACKUP_MAX {
        return Err(no_backup(format!("it has {}", size(length))));
    }
    let text = std::fs::read_to_string(file).map_err(|error| unusable(file, &error))?;
    if text.chars().any(|char| char.is_control() && !matches!(char, '\n' | '\r' | '\t')) {
        return Err(no_backup("it is not made of lines of text".to_owned()));
    }
    let request = GroupRestore { text, drop, dry_run: destroy.dry_run };
    let call = calls::RestoreGroup(name.to_owned(), request);
    session.destroy(&format!("vg restore {name}"), destroy.yes, call, restored).await
}

fn restored(restored: &Restored) -> String {
    let Restored { group, dropped, added } = restored;
    let mut lines = vec![format!("restored group {} as change {}", group.name, group.sequence)];
    lines.extend(dropped.iter().map(|name| format!("dropped {name}")));
    lines.extend(added.iter().map(|name| format!("brought back {name}")));
    lines.join("\n")
}

fn words(options: MetadataOptions) -> MetadataWords {
    let MetadataOptions { cache, cache_policy, metadata } = options;
    MetadataWords { cache, cache_policy, order: metadata }
}

/// What a group declares now, and for whom it does not work yet.
fn declared(group: &Group, keep: bool) -> String {
    if let Some(trash) = group.trash.as_ref().filter(|_| keep) {
        return format!("{}: trash {}", group.name, trash_text(trash));
    }
    let Some(metadata) = &group.metadata else { return format!("{} changed", group.name) };
    let later = match metadata.unusable {
        0 => String::new(),
        1 => "; a store or pool that cannot be used now follows when it is opened".to_owned(),
        many => format!("; {many} stores and pools that cannot be used now follow when they are opened"),
    };
    format!("{}: {}{later}", group.name, metadata_text(metadata))
}

fn metadata_text(metadata: &GroupMetadata) -> String {
    let each = if metadata.per_gib { " for each GiB" } else { "" };
    let order = match metadata.order {
        MetadataOrder::Logged => "written later, behind the log",
        MetadataOrder::WriteThrough => "written with each batch",
    };
    let policy = metadata.cache_policy;
    let declared =
        format!("up to {} of metadata{each} in memory by {policy}, {order}", size(metadata.cache_bytes));
    let (in_use, budget) = (metadata.memory.unwrap_or_default().in_use, metadata.budget);
    match metadata.users {
        0 => format!("{declared}; no store or pool has any yet"),
        1 => format!("{declared}; {} of {} in use by 1 store or pool", size(in_use), size(budget)),
        many => format!("{declared}; {} of {} in use by {many} stores and pools", size(in_use), size(budget)),
    }
}

fn unusable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::FileUnusable, format!("{}: {error}", file.display()))
}

fn table(groups: &[Group]) -> String {
    let mut table = Table::new(&["GROUP", "STATE", "HEALTH", "SIZE>", "FREE>", "DISKS>", "VOLUMES>"]);
    for group in groups {
        let namesakes = groups.iter().filter(|other| other.name == group.name).count();
        let name = match namesakes {
            1 => group.name.clone(),
            _ => format!("{} ({})", group.name, group.id),
        };
        table.row(vec![
            name,
            group.state.to_string(),
            group.health.map_or_else(|| "-".to_owned(), |health| health.to_string()),
            size(group.size),
            size(group.free),
            group.physical_volumes.len().to_string(),
            group.volumes.len().to_string(),
        ]);
    }
    table.render("no groups; varve vg create VG PATH…")
}

fn show(group: &Group) -> String {
    let state = match &group.reason {
        Some(reason) => format!("{}: {reason}", group.state),
        None => group.state.to_string(),
    };
    let head = pairs(&[
        ("group", group.name.clone()),
        ("id", group.id.clone()),
        ("state", state),
        ("size", size(group.size)),
        ("free", size(group.free)),
        ("extent size", size(group.extent_size)),
        ("last change", group.sequence.to_string()),
        ("volumes", super::or_dash(&group.volumes.join(" "))),
        ("trash", group.trash.as_ref().map_or_else(|| "-".to_owned(), trash_text)),
        ("metadata", group.metadata.as_ref().map_or_else(|| "-".to_owned(), metadata_text)),
        ("cache", group.metadata.as_ref().map_or_else(|| "-".to_owned(), cache_text)),
    ]);
    format!("{head}\n{}", physical::table(&group.physical_volumes))
}

/// What the trash holds, and how long.
fn trash_text(trash: &GroupTrash) -> String {
    let keep = match trash.keep {
        0 => "what is removed goes at once".to_owned(),
        keep => format!("what is removed stays for {}", every_text(keep)),
    };
    match trash.count {
        0 => format!("empty; {keep}"),
        1 => format!("{} of 1 volume or pool, free when needed; {keep}", size(trash.bytes)),
        many => format!("{} of {many} volumes and pools, free when needed; {keep}", size(trash.bytes)),
    }
}

fn cache_text(metadata: &GroupMetadata) -> String {
    let MetadataMemory { hits, misses, evictions, .. } = metadata.memory.unwrap_or_default();
    format!("{hits} hits, {misses} misses, {evictions} evicted")
}

fn changes(history: &History) -> String {
    let mut table = Table::new(&["CHANGE>", "TIME (UTC)", "WHAT"]);
    for entry in &history.entries {
        table.row(vec![entry.sequence.to_string(), date(entry.time), entry.change.clone()]);
    }
    table.render("no change is remembered")
}
