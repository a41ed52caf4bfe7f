//! Snapshots come and go while the origin is written to.

use super::figures;
use crate::report::plot::{Bar, bars};
use crate::report::stats::Summary;
use crate::results::Results;

/// The section.
pub(super) fn text(results: &Results) -> String {
    if results.management.is_empty() {
        return String::new();
    }
    format!(
        "### Creating and removing snapshots under writes\n\nEach figure is the median over the rounds of what a round \
         showed: the median or the slowest of its creations and removals, or the 99th percentile of its writes. An \
         entry is a part of 4 KiB in a chunk of its own; each deletion hands its million to the next older snapshot.\
         \n\n![As a share of what is allowed](plots/management.svg)\n\n{}{}",
        figures::table_by_world(&results.management),
        figures::notes(&results.management)
    )
}

/// File names and content of the pictures.
pub(super) fn pictures(results: &Results) -> Vec<(String, String)> {
    if results.management.is_empty() {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for part in &results.management {
        for row in &part.rows {
            let (Some(goal), Some(it)) = (row.goal, Summary::of(&row.rounds)) else { continue };
            let share = |value: f64| value / goal.limit();
            let ratio =
                Summary { median: share(it.median), lowest: share(it.lowest), highest: share(it.highest) };
            let goal = Some((1.0, goal.holds(it.median)));
            rows.push(Bar { label: figures::label(part, row), ratio, goal, others: vec![] });
        }
    }
    let title = "Creating and removing snapshots under writes";
    let note = "as a share of what is allowed: less is better";
    vec![("management.svg".to_owned(), bars(title, note, None, &rows))]
}
