//! `varve snap`, carried out.

use super::or_dash;
use crate::answer::Answer;
use crate::grammar::SnapVerb;
use crate::session::Session;
use crate::table::{Table, pairs};
use crate::units::{date, size};
use varve_api::{
    Between, Code, Failure, Job, OfVolume, Snapshot, SnapshotChange, SnapshotCreate, SnapshotDiff,
    SnapshotHold, SnapshotMode, SnapshotRemove, SnapshotRename, SnapshotRollback, calls,
};

/// Carries out a verb of snapshots.
pub(crate) async fn snapshot(session: &Session, verb: SnapVerb) -> Result<Answer, Failure> {
    match verb {
        SnapVerb::Create { names, of, mode, chunk_size, read_only, change } => {
            let request = SnapshotCreate { names, of, mode, chunk_size, read_only, dry_run: change.dry_run };
            session.change(calls::CreateSnapshots(request), |made| names_of("made", made)).await
        }
        SnapVerb::List { volume } => {
            session.show(calls::ListSnapshots(OfVolume { volume }), |snapshots| table(snapshots)).await
        }
        SnapVerb::Show { name } => show(session, &name).await,
        SnapVerb::Remove { names, destroy, waiting } => {
            let named = names.join(" ");
            let call = calls::RemoveSnapshots(SnapshotRemove { names, dry_run: destroy.dry_run });
            session.consent(&format!("snap remove {named}"), destroy.yes, &call).await?;
            session.job(call, waiting, |_| format!("removed {named}")).await
        }
        SnapVerb::Rollback { name, no_snapshot, force, destroy, waiting } => {
            let (force, dry_run) = (force.force, destroy.dry_run);
            let request = SnapshotRollback { name: name.clone(), no_snapshot, force, dry_run };
            let call = calls::RollbackSnapshot(request);
            session.consent(&format!("snap rollback {name}"), destroy.yes, &call).await?;
            session.job(call, waiting, |job| rolled_back(&name, job)).await
        }
        SnapVerb::Access { names, read_only, read_write: _, change } => {
            let request = SnapshotChange { names, read_only, dry_run: change.dry_run };
            session.change(calls::ChangeSnapshots(request), |changed| names_of("changed", changed)).await
        }
        SnapVerb::Rename { name, to, change } => {
            let request = SnapshotRename { name, to, dry_run: change.dry_run };
            let renamed = |snapshot: &Snapshot| format!("renamed to {}", snapshot.name);
            session.change(calls::RenameSnapshot(request), renamed).await
        }
        SnapVerb::Hold { names, change } => {
            let request = SnapshotHold { names, dry_run: change.dry_run };
            session.change(calls::HoldSnapshots(request), |held| names_of("holds", held)).await
        }
        SnapVerb::Release { names, change } => {
            let request = SnapshotHold { names, dry_run: change.dry_run };
            session.change(calls::ReleaseSnapshots(request), |free| names_of("released", free)).await
        }
        SnapVerb::Diff { from, to } => {
            session.show(calls::DiffSnapshots(Between { from, to }), differences).await
        }
    }
}

fn rolled_back(name: &str, job: &Job) -> String {
    let kept = job.kept.as_ref().map(|kept| format!("; what it showed before is {kept}"));
    format!("rolled back to {name}{}", kept.unwrap_or_default())
}

fn names_of(verb: &str, snapshots: &[Snapshot]) -> String {
    snapshots.iter().map(|snapshot| format!("{verb} {}\n", snapshot.name)).collect()
}

/// The extents in bytes, and how many there are.
pub(crate) fn differences(diff: &SnapshotDiff) -> String {
    let (from, to) = (&diff.from, &diff.to);
    if diff.extents.is_empty() {
        return format!("nothing differs between {from} and {to}");
    }
    let mut table = Table::new(&["OFFSET>", "LENGTH>"]);
    for extent in &diff.extents {
        table.row(vec![extent.offset.to_string(), extent.length.to_string()]);
    }
    let most = if diff.exact { "" } else { "at most " };
    let (count, bytes) = (diff.extents.len(), size(diff.bytes));
    let extents = if count == 1 { "extent" } else { "extents" };
    format!("{}{count} {extents}, {most}{bytes} differ between {from} and {to}", table.render(""))
}

async fn show(session: &Session, name: &str) -> Result<Answer, Failure> {
    let (volume, _) = name.split_once('@').ok_or_else(|| {
        Failure::new(Code::BadName, format!("{name} names no snapshot"))
            .help("give VG/LV@SNAP; varve snap list")
    })?;
    let snapshots = session.ask(&calls::ListSnapshots(OfVolume { volume: Some(volume.to_owned()) })).await?;
    let snapshot = snapshots.into_iter().find(|snapshot| snapshot.name == name).ok_or_else(|| {
        let message = format!("there is no snapshot {name}");
        Failure::new(Code::SnapshotNotFound, message).help(format!("varve snap list {volume}"))
    })?;
    let text = pairs(&[
        ("snapshot", snapshot.name.clone()),
        ("of", snapshot.volume.clone()),
        ("size", size(snapshot.size)),
        ("kept", size(snapshot.used)),
        ("created", date(snapshot.created)),
        ("mode", snapshot.mode.to_string()),
        ("state", snapshot.state.to_string()),
        ("flags", flags(&snapshot)),
        ("exports", or_dash(&snapshot.exports.join(" "))),
    ]);
    Ok(Answer::new(&snapshot, text))
}

fn flags(snapshot: &Snapshot) -> String {
    let flags = [
        (snapshot.read_only, "read-only"),
        (snapshot.held, "held"),
        (snapshot.base, "base"),
        (snapshot.mode == SnapshotMode::Independent, "independent"),
    ];
    let flags: Vec<&str> = flags.into_iter().filter_map(|(set, word)| set.then_some(word)).collect();
    or_dash(&flags.join(","))
}

fn table(snapshots: &[Snapshot]) -> String {
    let mut table = Table::new(&["SNAPSHOT", "SIZE>", "KEPT>", "CREATED (UTC)", "STATE", "FLAGS", "EXPORTS"]);
    for snapshot in snapshots {
        table.row(vec![
            snapshot.name.clone(),
            size(snapshot.size),
            size(snapshot.used),
            date(snapshot.created),
            snapshot.state.to_string(),
            flags(snapshot),
            or_dash(&snapshot.exports.join(" ")),
        ]);
    }
    table.render("no snapshots; varve snap create VG/LV@SNAP")
}
