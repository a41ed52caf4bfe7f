//! Reads of snapshots from near and from afar.

use crate::report::plot::{Bar, bars};
use crate::report::stats::{Summary, median};
use crate::report::table::{Table, dash, short, spread_fine};
use crate::report::verdict::{DISTANCE_GOAL, Goal, snapshot_ratio};
use crate::results::{Results, SnapshotPart, SnapshotSeries};
use crate::tables::snapshot::distance::DISTANCES;

/// The section.
pub(super) fn text(results: &Results) -> String {
    if results.distances.is_empty() {
        return String::new();
    }
    let mut heads = vec!["where, load".to_owned(), "the newest".to_owned()];
    heads.extend(DISTANCES[1..].iter().map(|distance| format!("{distance} away")));
    heads.extend(["goal".to_owned(), "verdict".to_owned()]);
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for part in &results.distances {
        for series in &part.series {
            let near = series.rounds(DISTANCES[0]);
            let speed =
                if near.is_empty() { dash() } else { short(median(near) / (1u64 << 20) as f64) + " MiB/s" };
            let mut cells = vec![format!("{}, {}", part.world, series.load), speed];
            let ratio =
                |distance: &u32| spread_fine(snapshot_ratio(series, *distance, DISTANCES[0]), part.exact);
            cells.extend(DISTANCES[1..].iter().map(ratio));
            cells.push(Goal::AtLeast(DISTANCE_GOAL).told());
            cells.push(
                farthest(series).map_or_else(dash, |far| Goal::AtLeast(DISTANCE_GOAL).judged(far.median)),
            );
            table.row(&cells);
        }
    }
    let mut text = format!(
        "### Reading a snapshot from near and from afar\n\nAn origin with 1024 snapshots; all of what is read was \
         overwritten after the newest of them, so that the oldest one finds it 1024 snapshots away. Throughput as a \
         ratio to that of the newest snapshot.\n\n![Throughput over that of the newest](plots/distance.svg)\n\n{}",
        table.finish()
    );
    for part in &results.distances {
        let machine = if part.exact { String::new() } else { format!("; {}", part.machine.line()) };
        text.push_str(&format!("- *{}*: {}{machine}\n", part.world, part.description));
    }
    text.push('\n');
    text
}

/// The oldest snapshot over the newest.
pub(super) fn farthest(series: &SnapshotSeries) -> Option<Summary> {
    snapshot_ratio(series, DISTANCES[DISTANCES.len() - 1], DISTANCES[0])
}

/// File names and content of the pictures.
pub(super) fn pictures(results: &Results) -> Vec<(String, String)> {
    if results.distances.is_empty() {
        return Vec::new();
    }
    let bars_of = |part: &SnapshotPart| {
        let bar = |series: &SnapshotSeries| {
            let ratio = farthest(series)?;
            let held = Goal::AtLeast(DISTANCE_GOAL).holds(ratio.median);
            let label = format!("{}, {}", part.world, series.load);
            Some(Bar { label, ratio, goal: Some((DISTANCE_GOAL, held)), others: Vec::new() })
        };
        part.series.iter().filter_map(bar).collect::<Vec<_>>()
    };
    let rows: Vec<Bar> = results.distances.iter().flat_map(bars_of).collect();
    let title = "Reads of the oldest of 1024 snapshots";
    let note = "throughput as a ratio to that of the newest snapshot";
    vec![("distance.svg".to_owned(), bars(title, note, None, &rows))]
}
