//! What first touches cost a disk: requests, flushes and bytes, beside what the kernel's own reach.

use super::snapshots::DM_SNAPSHOT;
use crate::report::plot::{Bar, bars};
use crate::report::stats::Summary;
use crate::report::table::{Table, dash};
use crate::report::verdict::{Goal, REWRITE_GOAL, cost_goal};
use crate::results::{CostRow, Results, Touch};

/// Numbers of snapshots that are drawn.
const DRAWN: [u32; 3] = [1, 16, 1024];

/// The section.
pub(super) fn text(results: &Results) -> String {
    let Some(part) = &results.costs else { return String::new() };
    let mut table = Table::new(&[
        "writes",
        "of no snapshot",
        "goal",
        "verdict",
        "dm-snapshot",
        "requests a request",
        "flushes a request",
        "bytes read a byte",
        "bytes written a byte",
    ]);
    for row in &part.rows {
        let goal = goal(row);
        table.row(&[
            name(row),
            format!("{:.3}", row.ratio),
            goal.map_or_else(dash, Goal::told),
            goal.map_or_else(dash, |goal| goal.judged(row.ratio)),
            peer(row).map_or_else(dash, |peer| format!("{peer:.3}")),
            format!("{:.3}", row.requests),
            format!("{:.3}", row.flushes),
            format!("{:.3}", row.bytes_read),
            format!("{:.3}", row.bytes_written),
        ]);
    }
    format!(
        "### What a first touch costs the disk\n\nExact, in virtual time: {}. Whoever copies before he writes moves \
         three bytes for one, so 1/3 is the limit of writes as large as a chunk; for a small write only the part of \
         the chunk that it changes is copied.\n\n![Throughput over that without snapshots](plots/cost.svg)\n\n{}",
        part.description,
        table.finish()
    )
}

/// What `row` has to keep.
pub(super) fn goal(row: &CostRow) -> Option<Goal> {
    match row.touch {
        Touch::Dependent => cost_goal(&row.load),
        Touch::Rewrite => Some(Goal::AtLeast(REWRITE_GOAL)),
        Touch::Independent | Touch::Newest | Touch::Oldest | Touch::SnapshotRewrite => None,
    }
}

/// The row in words.
pub(super) fn name(row: &CostRow) -> String {
    let plural = if row.snapshots == 1 { "" } else { "s" };
    match row.touch {
        Touch::Dependent => format!("{}, {} snapshot{plural}", row.load, row.snapshots),
        Touch::Independent => format!("{}, {} independent", row.load, row.snapshots),
        Touch::Rewrite => format!("{} again, {} snapshot{plural}", row.load, row.snapshots),
        Touch::Newest => format!("{} to the newest of {}", row.load, row.snapshots),
        Touch::Oldest => format!("{} to the oldest of {}", row.load, row.snapshots),
        Touch::SnapshotRewrite => format!("{} to the newest of {} again", row.load, row.snapshots),
    }
}

/// What dm-snapshot reaches there.
fn peer(row: &CostRow) -> Option<f64> {
    let (_, figures) = DM_SNAPSHOT.iter().find(|(load, _)| row.load.starts_with(load))?;
    let place = [1, 4, 8, 16].iter().position(|count| *count == row.snapshots)?;
    matches!(row.touch, Touch::Dependent | Touch::Independent).then(|| figures[place])
}

/// File names and content of the pictures.
pub(super) fn pictures(results: &Results) -> Vec<(String, String)> {
    let Some(part) = &results.costs else { return Vec::new() };
    let drawn = |row: &&CostRow| DRAWN.contains(&row.snapshots);
    let bar = |row: &CostRow| {
        let goal = goal(row).map(|goal| (goal.limit(), goal.holds(row.ratio)));
        let ratio = Summary { median: row.ratio, lowest: row.ratio, highest: row.ratio };
        Bar { label: name(row), ratio, goal, others: peer(row).into_iter().collect() }
    };
    let rows: Vec<Bar> = part.rows.iter().filter(drawn).map(bar).collect();
    let title = "Writes to an origin under snapshots, on the model disk";
    let note = "throughput as a ratio to that without snapshots; exact";
    vec![("cost.svg".to_owned(), bars(title, note, Some("dm-snapshot"), &rows))]
}
