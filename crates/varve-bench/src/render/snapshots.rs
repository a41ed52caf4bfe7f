//! First-touch writes by number of snapshots, beside the figures of 2006 and of the kernel.

use crate::first_touch::COUNTS;
use crate::report::plot::{Curve, curves};
use crate::report::stats::median;
use crate::report::table::{Table, dash, short, spread_fine};
use crate::report::verdict::{Goal, SNAPSHOT_GOALS, snapshot_ratio};
use crate::results::{Results, SnapshotPart, SnapshotSeries};

/// Numbers of snapshots that all sources have.
const PLACES: [u32; 4] = [1, 4, 8, 16];
/// KB/s of `dd` onto an origin, dm-devel, August 2006: the chained prototype.
const CHAINED_2006: [f64; 4] = [933.0, 932.0, 927.0, 905.0];
/// The same with dm-snapshot as it was.
const SEPARATE_2006: [f64; 4] = [950.0, 720.0, 470.0, 257.0];
/// dm-snapshot of Linux 6.12 on the model disk, as a ratio to no snapshot: sequential 1 MiB, random 64 and 4 KiB QD8.
pub(super) const DM_SNAPSHOT: [(&str, [f64; 4]); 3] = [
    ("sequential 1 MiB", [0.314, 0.105, 0.056, 0.029]),
    ("random 64 KiB QD8", [0.305, 0.097, 0.051, 0.026]),
    ("random 4 KiB QD8", [0.296, 0.095, 0.049, 0.026]),
];
/// Colours of our own curves, in the order of the parts.
const COLOURS: [&str; 6] = ["#1b6ca8", "#2a7f62", "#7b4fa3", "#b5851a", "#3aa0a0", "#c05080"];

/// The section.
pub(super) fn text(results: &Results) -> String {
    if results.snapshots.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "## Writes to an origin under snapshots\n\nEvery write is the first to its chunk (64 KiB) since the last \
         snapshot, so each one makes the engine keep old content: the worst case. Dependent snapshots keep it once, \
         however many there are; independent ones, and the design of 2006, keep it once for each.\n\n\
         ![Throughput over the number of snapshots](plots/snapshots.svg)\n\n",
    );
    let dependent: Vec<_> = results.snapshots.iter().filter(|part| !part.independent).collect();
    let independent: Vec<_> = results.snapshots.iter().filter(|part| part.independent).collect();
    let goals = SNAPSHOT_GOALS.map(|(count, goal)| format!("{goal} with {count}"));
    text.push_str(&format!(
        "Dependent snapshots: throughput as a ratio to that with one snapshot. Goals: at least {}.\n\n",
        goals.join(", ")
    ));
    text.push_str(&to_one(&dependent, true));
    if !independent.is_empty() {
        text.push_str(
            "Independent snapshots, the contrast: throughput as a ratio to that with one snapshot.\n\n",
        );
        text.push_str(&to_one(&independent, false));
    }
    text.push_str("The price of the first snapshot: throughput as a ratio to that without any.\n\n");
    text.push_str(&to_none(&results.snapshots));
    for part in &results.snapshots {
        let exact = if part.exact { "exact, in virtual time" } else { "measured" };
        let machine = if part.exact { String::new() } else { format!("; {}", part.machine.line()) };
        text.push_str(&format!("- *{}* ({exact}): {}{machine}\n", name(part), part.description));
    }
    text.push_str(
        "- *dm-snapshot*: the kernel's own, Linux 6.12, on the same model disk: one request at a time, 2 ms for each \
         64 KiB or part of them\n- *2006*: `dd` onto an origin, KB/s as they were reported on dm-devel\n\n",
    );
    text
}

fn name(part: &SnapshotPart) -> String {
    if part.independent { format!("{}, independent", part.world) } else { part.world.clone() }
}

/// The numbers of snapshots that any of `parts` has.
fn counts(parts: &[&SnapshotPart]) -> Vec<u32> {
    let measured = |count: u32| {
        parts.iter().flat_map(|part| &part.series).any(|series| !series.rounds(count).is_empty())
    };
    let own = COUNTS.into_iter().filter(|count| measured(*count) || PLACES.contains(count));
    own.filter(|count| *count > 0).collect()
}

fn to_one(parts: &[&SnapshotPart], dependent: bool) -> String {
    let counts = counts(parts);
    let mut heads = vec!["where, load".to_owned(), "1 snapshot".to_owned()];
    heads.extend(counts[1..].iter().map(u32::to_string));
    if dependent {
        heads.push("verdict".to_owned());
    }
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for part in parts {
        for series in &part.series {
            let mut cells = vec![format!("{}, {}", part.world, series.load), speed(series, 1)];
            let ratio = |count: &u32| spread_fine(snapshot_ratio(series, *count, 1), part.exact);
            cells.extend(counts[1..].iter().map(ratio));
            if dependent {
                cells.push(verdict(series));
            }
            table.row(&cells);
        }
    }
    let mut old = |name: &str, figures: [f64; 4], unit: &str| {
        let mut cells = vec![name.to_owned(), unit.to_owned()];
        for count in &counts[1..] {
            let place = PLACES.iter().position(|place| place == count);
            cells.push(place.map_or_else(dash, |place| format!("{:.3}", figures[place] / figures[0])));
        }
        if dependent {
            cells.push(String::new());
        }
        table.row(&cells);
    };
    if dependent {
        old("2006, chained prototype", CHAINED_2006, "933 KB/s");
    } else {
        old("2006, separate snapshots", SEPARATE_2006, "950 KB/s");
        for (load, figures) in DM_SNAPSHOT {
            old(&format!("dm-snapshot, model disk, {load}"), figures, "1");
        }
    }
    table.finish()
}

/// `16: holds, 1024: **missed by 2 %**`; a dash for what was not measured.
fn verdict(series: &SnapshotSeries) -> String {
    let one = |(count, goal): (u32, f64)| {
        let ratio = snapshot_ratio(series, count, 1)?;
        Some(format!("{count}: {}", Goal::AtLeast(goal).judged(ratio.median)))
    };
    let told: Vec<String> = SNAPSHOT_GOALS.into_iter().filter_map(one).collect();
    if told.is_empty() { dash() } else { told.join(", ") }
}

fn to_none(parts: &[SnapshotPart]) -> String {
    let counts = counts(&parts.iter().collect::<Vec<_>>());
    let mut heads = vec!["where, load".to_owned(), "no snapshot".to_owned()];
    heads.extend(counts.iter().map(u32::to_string));
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for part in parts {
        for series in &part.series {
            let mut cells = vec![format!("{}, {}", name(part), series.load), speed(series, 0)];
            for count in &counts {
                cells.push(spread_fine(snapshot_ratio(series, *count, 0), part.exact));
            }
            table.row(&cells);
        }
    }
    for (load, figures) in DM_SNAPSHOT {
        let mut cells = vec![format!("dm-snapshot, model disk, {load}"), "1".to_owned()];
        for count in &counts {
            let place = PLACES.iter().position(|place| place == count);
            cells.push(place.map_or_else(dash, |place| format!("{:.3}", figures[place])));
        }
        table.row(&cells);
    }
    table.finish()
}

fn speed(series: &SnapshotSeries, snapshots: u32) -> String {
    let rounds = series.rounds(snapshots);
    if rounds.is_empty() { dash() } else { format!("{} MiB/s", short(median(rounds) / (1u64 << 20) as f64)) }
}

/// File names and content of the pictures.
pub(super) fn pictures(results: &Results) -> Vec<(String, String)> {
    if results.snapshots.is_empty() {
        return Vec::new();
    }
    let places = counts(&results.snapshots.iter().collect::<Vec<_>>());
    let mut all = Vec::new();
    for (part, colour) in results.snapshots.iter().zip(COLOURS.iter().cycle()) {
        if let Some(series) = part.series.first() {
            let point = |count: &u32| Some((*count, snapshot_ratio(series, *count, 1)?.median));
            let points = places.iter().filter_map(point).collect();
            all.push(Curve { label: format!("Varve, {}", name(part)), colour, dashed: false, points });
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
    vec![("snapshots.svg".to_owned(), curves(title, note, &places, &all))]
}
