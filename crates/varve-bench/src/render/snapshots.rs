//! The second table: first-touch writes by number of snapshots, beside the figures of 2006 and of the kernel.

use super::machine_line;
use crate::first_touch::COUNTS;
use crate::plot::{Curve, curves};
use crate::results::{Results, SnapshotPart, SnapshotSeries};
use crate::stats::{Summary, median};
use crate::table::{Table, dash, short};
use crate::verdict::snapshot_ratio;

/// Numbers of snapshots that all sources have.
const PLACES: [u32; 4] = [1, 4, 8, 16];
/// KB/s of `dd` onto an origin, dm-devel, August 2006: the chained prototype.
const CHAINED_2006: [f64; 4] = [933.0, 932.0, 927.0, 905.0];
/// The same with dm-snapshot as it was.
const SEPARATE_2006: [f64; 4] = [950.0, 720.0, 470.0, 257.0];
/// dm-snapshot of Linux 6.12 on the model disk, as a ratio to no snapshot: sequential 1 MiB, random 64 and 4 KiB QD8.
const DM_SNAPSHOT: [(&str, [f64; 4]); 3] = [
    ("sequential 1 MiB", [0.314, 0.105, 0.056, 0.029]),
    ("random 64 KiB QD8", [0.305, 0.097, 0.051, 0.026]),
    ("random 4 KiB QD8", [0.296, 0.095, 0.049, 0.026]),
];
/// Colours of our own curves, in the order of the worlds.
const COLOURS: [&str; 5] = ["#1b6ca8", "#2a7f62", "#7b4fa3", "#b5851a", "#3aa0a0"];

/// The section.
pub(super) fn text(results: &Results) -> String {
    if results.snapshots.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "## Writes to an origin under snapshots\n\nEvery write is the first to its chunk (64 KiB) since the last \
         snapshot, so each one makes the engine keep old content: the worst case. The chained design keeps it once, \
         however many snapshots there are; the design that it replaced kept it once for each.\n\n\
         ![Throughput over the number of snapshots](plots/snapshots.svg)\n\n",
    );
    text.push_str("Throughput as a ratio to that with one snapshot:\n\n");
    text.push_str(&to_one(results));
    text.push_str("The price of the first snapshot: throughput as a ratio to that without any:\n\n");
    text.push_str(&to_none(results));
    for part in &results.snapshots {
        let exact = if part.exact { "exact, in virtual time" } else { "measured" };
        let machine = if part.exact { String::new() } else { format!("; {}", machine_line(&part.machine)) };
        text.push_str(&format!("- *{}* ({exact}): {}{machine}\n", part.world, part.description));
    }
    text.push_str(
        "- *dm-snapshot*: the kernel's own, Linux 6.12, on the same model disk: one request at a time, 2 ms for each \
         64 KiB or part of them\n- *2006*: `dd` onto an origin, KB/s as they were reported on dm-devel\n\n",
    );
    text
}

fn to_one(results: &Results) -> String {
    let mut table = Table::new(&["where, load", "1 snapshot", "4", "8", "16"]);
    for part in &results.snapshots {
        for series in &part.series {
            let mut cells = vec![format!("{}, {}", part.world, series.load)];
            cells.push(speed(series, 1));
            for count in &PLACES[1..] {
                cells.push(figure(part, snapshot_ratio(series, *count, 1)));
            }
            table.row(&cells);
        }
    }
    let old = |name: &str, figures: [f64; 4], unit: &str| {
        let mut cells = vec![name.to_owned(), unit.to_owned()];
        cells.extend(figures[1..].iter().map(|figure| format!("{:.3}", figure / figures[0])));
        cells
    };
    table.row(&old("2006, chained prototype", CHAINED_2006, "933 KB/s"));
    table.row(&old("2006, separate snapshots", SEPARATE_2006, "950 KB/s"));
    for (load, figures) in DM_SNAPSHOT {
        table.row(&old(&format!("dm-snapshot, model disk, {load}"), figures, "1"));
    }
    table.finish()
}

fn to_none(results: &Results) -> String {
    let mut table = Table::new(&["where, load", "no snapshot", "1", "4", "8", "16"]);
    for part in &results.snapshots {
        for series in &part.series {
            let mut cells = vec![format!("{}, {}", part.world, series.load), speed(series, 0)];
            for count in PLACES {
                cells.push(figure(part, snapshot_ratio(series, count, 0)));
            }
            table.row(&cells);
        }
    }
    for (load, figures) in DM_SNAPSHOT {
        let mut cells = vec![format!("dm-snapshot, model disk, {load}"), "1".to_owned()];
        cells.extend(figures.map(|figure| format!("{figure:.3}")));
        table.row(&cells);
    }
    table.finish()
}

fn speed(series: &SnapshotSeries, snapshots: u32) -> String {
    let rounds = series.rounds(snapshots);
    if rounds.is_empty() { dash() } else { format!("{} MiB/s", short(median(rounds) / (1u64 << 20) as f64)) }
}

/// With a spread, unless the figures are exact.
fn figure(part: &SnapshotPart, ratio: Option<Summary>) -> String {
    match ratio {
        Some(ratio) if part.exact => format!("{:.3}", ratio.median),
        Some(Summary { median, lowest, highest }) => format!("{median:.3} ({lowest:.3} to {highest:.3})"),
        None => dash(),
    }
}

/// File names and content of the pictures.
pub(super) fn pictures(results: &Results) -> Vec<(String, String)> {
    if results.snapshots.is_empty() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (part, colour) in results.snapshots.iter().zip(COLOURS.iter().cycle()) {
        if let Some(series) = part.series.first() {
            let point = |count: u32| Some((count, snapshot_ratio(series, count, 1)?.median));
            let points =
                COUNTS.iter().filter(|count| **count > 0).filter_map(|count| point(*count)).collect();
            all.push(Curve { label: format!("Varve, {}", part.world), colour, dashed: false, points });
        }
    }
    let old = |label: &str, colour, figures: [f64; 4]| {
        let points =
            PLACES.iter().zip(figures).map(|(count, figure)| (*count, figure / figures[0])).collect();
        Curve { label: label.to_owned(), colour, dashed: true, points }
    };
    all.push(old("2006, chained prototype", "#64707d", CHAINED_2006));
    all.push(old("2006, separate snapshots", "#c7602f", SEPARATE_2006));
    all.push(old("dm-snapshot, Linux 6.12, model disk", "#a32f2f", DM_SNAPSHOT[0].1));
    let title = "First-touch writes to an origin, sequential 1 MiB";
    let note = "throughput as a ratio to that with one snapshot";
    vec![("snapshots.svg".to_owned(), curves(title, note, &PLACES, &all))]
}
