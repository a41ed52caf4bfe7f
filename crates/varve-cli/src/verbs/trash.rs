//! `varve trash`, carried out.

use crate::answer::Answer;
use crate::grammar::TrashVerb;
use crate::session::Session;
use crate::table::Table;
use crate::units::{date, duration, size};
use varve_api::{Failure, InGroup, Removed, TrashEmpty, TrashItem, TrashRestore, calls};

/// Carries out a verb of the trash.
pub(crate) async fn trash(session: &Session, verb: TrashVerb) -> Result<Answer, Failure> {
    match verb {
        TrashVerb::List { group } => {
            session.show(calls::ListTrash(InGroup { group }), |items| table(items)).await
        }
        TrashVerb::Restore { name, to, change } => {
            let request = TrashRestore { name: to, dry_run: change.dry_run };
            let call = calls::RestoreTrash(name, request);
            session.change(call, |restored| format!("brought back {}", restored.name)).await
        }
        TrashVerb::Empty { name, destroy } => {
            let call = calls::EmptyTrash(name.clone(), TrashEmpty { dry_run: destroy.dry_run });
            let (what, text) = (format!("trash empty {name}"), format!("emptied the trash of {name}"));
            session.destroy(&what, destroy.yes, call, |_| text).await
        }
    }
}

/// What became of a volume or pool that was removed.
pub(super) fn removed(name: &str, removed: &Removed) -> String {
    match removed.until {
        None => format!("removed {name}"),
        Some(until) => {
            format!("removed {name}; until {} varve trash restore {name} brings it back", date(until))
        }
    }
}

fn table(items: &[TrashItem]) -> String {
    let mut table = Table::new(&["NAME", "WHAT", "SIZE>", "GIVES BACK>", "REMOVED (UTC)", "LEFT>", "ID"]);
    for item in items {
        let what = match (item.is_pool, &item.pool) {
            (true, _) => "pool",
            (false, Some(_)) => "thin volume",
            (false, None) => "volume",
        };
        let snapshots = if item.has_snapshots { ", snapshots" } else { "" };
        table.row(vec![
            item.name.clone(),
            format!("{what}{snapshots}"),
            size(item.size),
            size(item.gives_back),
            date(item.removed),
            duration(item.left),
            item.id.clone(),
        ]);
    }
    table.render("the trash is empty")
}
