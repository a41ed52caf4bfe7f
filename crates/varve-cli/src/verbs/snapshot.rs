//! `varve snap`, carried out.

use super::or_dash;
use crate::answer::Answer;
use crate::client::segment;
use crate::grammar::SnapVerb;
use crate::session::{Call, Session};
use crate::table::Table;
use crate::units::{date, size};
use hyper::Method;
use varve_api::{
    Failure, Job, Snapshot, SnapshotChange, SnapshotCreate, SnapshotDiff, SnapshotHold, SnapshotMode,
    SnapshotRemove, SnapshotRollback,
};

/// Carries out a verb of snapshots.
pub(crate) async fn snapshot(session: &Session, verb: SnapVerb) -> Result<Answer, Failure> {
    match verb {
        SnapVerb::Create { names, of, mode, chunk_size, read_only, change } => {
            let request =
                SnapshotCreate { names, of, mode, chunk_size, read_only, ..SnapshotCreate::default() };
            let call = post("/v1/snapshots", &request, change.dry_run);
            session.change(call, |made: &Vec<Snapshot>| names_of("made", made)).await
        }
        SnapVerb::List { volume } => {
            let query = volume.map(|volume| format!("?volume={}", segment(&volume))).unwrap_or_default();
            let snapshots: Vec<Snapshot> = session.get(&format!("/v1/snapshots{query}")).await?;
            Ok(Answer::new(&snapshots, table(&snapshots)))
        }
        SnapVerb::Remove { names, destroy, waiting } => {
            let what = format!("snap remove {}", names.join(" "));
            let text = format!("removed {}", names.join(" "));
            let request = SnapshotRemove { names, ..SnapshotRemove::default() };
            let call = post("/v1/snapshots/remove", &request, destroy.dry_run);
            session.consent(&what, &call, destroy).await?;
            session.job(call, waiting, &text).await
        }
        SnapVerb::Rollback { name, no_snapshot, force, destroy, waiting } => {
            let force = force.force;
            let request =
                SnapshotRollback { name: name.clone(), no_snapshot, force, ..SnapshotRollback::default() };
            let call = post("/v1/snapshots/rollback", &request, destroy.dry_run);
            session.consent(&format!("snap rollback {name}"), &call, destroy).await?;
            session.job_told(call, waiting, |job| rolled_back(&name, job)).await
        }
        SnapVerb::Access { names, read_only, read_write: _, change } => {
            let request = SnapshotChange { names, read_only, ..SnapshotChange::default() };
            let call = post("/v1/snapshots/change", &request, change.dry_run);
            session.change(call, |changed: &Vec<Snapshot>| names_of("changed", changed)).await
        }
        SnapVerb::Hold { names, change } => {
            let request = SnapshotHold { names, ..SnapshotHold::default() };
            let call = post("/v1/snapshots/hold", &request, change.dry_run);
            session.change(call, |held: &Vec<Snapshot>| names_of("holds", held)).await
        }
        SnapVerb::Release { names, change } => {
            let request = SnapshotHold { names, ..SnapshotHold::default() };
            let call = post("/v1/snapshots/release", &request, change.dry_run);
            session.change(call, |free: &Vec<Snapshot>| names_of("released", free)).await
        }
        SnapVerb::Diff { from, to } => {
            let to = to.map(|to| format!("&to={}", segment(&to))).unwrap_or_default();
            let path = format!("/v1/snapshots/diff?from={}{to}", segment(&from));
            let diff: SnapshotDiff = session.get(&path).await?;
            Ok(Answer::new(&diff, differences(&diff)))
        }
    }
}

fn post<'a, R>(path: &str, request: &'a R, dry_run: bool) -> Call<'a, R> {
    Call { method: Method::POST, path: path.to_owned(), request, dry_run }
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

fn table(snapshots: &[Snapshot]) -> String {
    let mut table = Table::new(&["SNAPSHOT", "SIZE>", "KEPT>", "CREATED (UTC)", "STATE", "FLAGS", "EXPORTS"]);
    for snapshot in snapshots {
        let independent = snapshot.mode == SnapshotMode::Independent;
        let flags = [
            (snapshot.read_only, "read-only"),
            (snapshot.held, "held"),
            (snapshot.base, "base"),
            (independent, "independent"),
        ];
        let flags: Vec<&str> = flags.into_iter().filter_map(|(set, word)| set.then_some(word)).collect();
        table.row(vec![
            snapshot.name.clone(),
            size(snapshot.size),
            size(snapshot.used),
            date(snapshot.created),
            snapshot.state.to_string(),
            or_dash(&flags.join(",")),
            or_dash(&snapshot.exports.join(" ")),
        ]);
    }
    table.render("no snapshots; varve snap create VG/LV@SNAP")
}
