//! The loads of bonnie under snapshots, beside the figures reported in 2006.

use crate::report::plot::{Curve, curves};
use crate::report::stats::median;
use crate::report::table::{Table, dash, note, short, spread};
use crate::report::verdict::snapshot_ratio;
use crate::results::{Results, SnapshotSeries};
use crate::tables::snapshot::bonnie::COUNTS;

/// Megabytes a second as they were reported on dm-devel, with no, 1, 2, 4 and 8 snapshots.
const WRITES_2006: [f64; 5] = [373.0, 55.0, 16.0, 14.0, 6.5];
/// Colours of the loads, in their order.
const COLOURS: [&str; 6] = ["#1b6ca8", "#2a7f62", "#7b4fa3", "#b5851a", "#3aa0a0", "#c05080"];

/// The section.
pub(super) fn text(results: &Results) -> String {
    let Some(part) = &results.bonnie else { return String::new() };
    let mut heads = vec!["load".to_owned(), "no snapshot".to_owned()];
    heads.extend(COUNTS[1..].iter().map(u32::to_string));
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for series in &part.series {
        let none = series.rounds(0);
        let speed =
            if none.is_empty() { dash() } else { short(median(none) / f64::from(1 << 20)) + " MiB/s" };
        let ratio = |count: &u32| spread(snapshot_ratio(series, *count, 0));
        table.row(&[vec![series.load.clone(), speed], COUNTS[1..].iter().map(ratio).collect()].concat());
    }
    let old = WRITES_2006[1..].iter().map(|speed| format!("{:.3}", speed / WRITES_2006[0]));
    let head = ["2006, dm-snapshot, writes".to_owned(), "373 MB/s".to_owned()];
    table.row(&head.into_iter().chain(old).collect::<Vec<_>>());
    format!(
        "### Bonnie on a filesystem under snapshots\n\nThe loads of bonnie, in their order: a file is written byte by \
         byte, its blocks of 8 KiB are read, changed and written back, it is written anew in blocks, read byte by byte \
         and in blocks, and 2000 blocks are read at random, each tenth of them written back. Throughput as a ratio to \
         that without snapshots; what is written is flushed, and what is read is in no cache of the filesystem.\n\n\
         ![Throughput over the number of snapshots](plots/bonnie.svg)\n\n{}{}- *2006*: bonnie's writes, as \
         they were reported on dm-devel\n\n",
        table.finish(),
        note(&part.world, &part.description, &part.machine)
    )
}

/// File names and content of the pictures.
pub(super) fn pictures(results: &Results) -> Vec<(String, String)> {
    let Some(part) = &results.bonnie else { return Vec::new() };
    let curve = |(series, colour): (&SnapshotSeries, &'static str)| {
        let point = |count: &u32| Some((*count, snapshot_ratio(series, *count, 0)?.median));
        let points = COUNTS.iter().filter_map(point).collect();
        Curve { label: series.load.clone(), colour, dashed: false, points }
    };
    let mut all: Vec<Curve> = part.series.iter().zip(COLOURS).map(curve).collect();
    let old = COUNTS.iter().zip(WRITES_2006).map(|(count, speed)| (*count, speed / WRITES_2006[0]));
    let label = "2006, dm-snapshot, writes".to_owned();
    all.push(Curve { label, colour: "#64707d", dashed: true, points: old.collect() });
    let note = "throughput as a ratio to that without snapshots";
    vec![("bonnie.svg".to_owned(), curves("Bonnie on ext4 under snapshots", note, &COUNTS, &all))]
}
