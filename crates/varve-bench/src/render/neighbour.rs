//! What a flood of one client leaves of a neighbour's latency.

use crate::report::table::{Table, short, spread};
use crate::report::verdict::{NEIGHBOUR_GOAL, NEIGHBOUR_P99_GOAL_MS};
use crate::results::{NeighbourRow, Results};

/// The section.
pub(super) fn text(results: &Results) -> String {
    if results.neighbours.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "## A neighbour of a flood\n\nOne client reads 4 KiB of a volume, one read after the other, and for each row \
         another client floods another volume of the same group, disk and shard. The goals: a median of {} times that in \
         quiet, which is measured right before, and a 99th percentile of {} ms. *Flood* is how many of its requests were \
         answered a second.\n\n",
        NEIGHBOUR_GOAL.told(),
        NEIGHBOUR_P99_GOAL_MS.told()
    );
    for part in &results.neighbours {
        let heads =
            ["flood", "quiet p50 us", "p50 us", "x quiet", "", "quiet p99 ms", "p99 ms", "", "flood /s"];
        let mut table = Table::new(&heads);
        part.rows.iter().for_each(|row| table.row(&cells(row)));
        text.push_str(&format!(
            "### Neighbour: {}\n\n{}; {}.\n\n{}",
            part.world,
            part.machine.line(),
            part.description,
            table.finish()
        ));
    }
    text
}

fn cells(row: &NeighbourRow) -> Vec<String> {
    let ((quiet, quiet_p99), (beside, p99)) = (row.quiet(), row.beside());
    vec![
        row.flood.clone(),
        short(quiet),
        short(beside),
        spread(row.ratio()),
        NEIGHBOUR_GOAL.judged(ratio(row)),
        short(quiet_p99 / 1e3),
        short(p99 / 1e3),
        NEIGHBOUR_P99_GOAL_MS.judged(p99 / 1e3),
        short(row.flood_per_second()),
    ]
}

/// The median over the rounds of how many times the quiet median the reads took.
pub(super) fn ratio(row: &NeighbourRow) -> f64 {
    row.ratio().map_or(f64::NAN, |ratio| ratio.median)
}
