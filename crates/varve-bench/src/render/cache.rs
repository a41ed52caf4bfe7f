//! Metadata in little memory: the loads of ESnap's figures 5 to 9 under each setting.

use crate::report::plot::{Bar, bars};
use crate::report::stats::Summary;
use crate::report::table::{Table, dash, short};
use crate::report::verdict::{CACHE_GOAL, Goal, METADATA_GOAL_BYTES};
use crate::results::{CachePart, CacheRow, Results};
use crate::tables::snapshot::cache::{
    FIVE_DEPENDENT, FIVE_INDEPENDENT, LOADS, ONE, ORIGIN_RANDOM, ORIGIN_SEQUENTIAL, SEQUENTIAL,
    SNAPSHOT_RANDOM, SNAPSHOT_SEQUENTIAL, SNAPSHOT_SKEWED,
};

/// Loads that are drawn for each setting.
const DRAWN: [&str; 5] =
    [ORIGIN_SEQUENTIAL, SNAPSHOT_SEQUENTIAL, ORIGIN_RANDOM, SNAPSHOT_RANDOM, SNAPSHOT_SKEWED];

/// The section.
pub(super) fn text(results: &Results) -> String {
    let Some(part) = &results.caches else { return String::new() };
    let mut heads = vec!["MiB/s"];
    heads.extend(LOADS);
    heads.push("sequential work");
    let mut table = Table::new(&heads);
    for row in &part.rows {
        let mut cells = vec![row.setting.clone()];
        cells.extend(LOADS.map(|load| cell(part, row, load)));
        cells.push(worst(part, row).map_or_else(dash, |(_, ratio)| Goal::AtLeast(CACHE_GOAL).judged(ratio)));
        table.row(&cells);
    }
    format!(
        "### Metadata in little memory: ESnap's figures 5 to 9\n\nExact, in virtual time: {}. In brackets: as a ratio to \
         the setting with all metadata in memory. A bounded cache may cost sequential work a tenth.\n\n\
         ![Throughput under each setting](plots/cache.svg)\n\n{}\
         Figure 9: what five snapshots leave of the throughput of sequential first touches under one.\n\n{}\
         Metadata that sequential first touches write: bytes for each 64 KiB changed, and both for each GiB. The goal is \
         for what stays, the map; the log has a block of 4 KiB for each of its records, here for each request of 1 MiB, \
         and is used again after the next checkpoint. Where the map is written with each change, that is judged.\n\n{}",
        part.description,
        table.finish(),
        figure_nine(part),
        metadata(part)
    )
}

fn cell(part: &CachePart, row: &CacheRow, load: &str) -> String {
    let Some(speed) = row.speed(load) else { return dash() };
    let told = format!("{:.2}", speed / (1u64 << 20) as f64);
    ratio(part, row, load).map_or_else(|| told.clone(), |ratio| format!("{told} ({ratio:.3})"))
}

fn ratio(part: &CachePart, row: &CacheRow, load: &str) -> Option<f64> {
    Some(row.speed(load)? / part.base(row)?.speed(load)?)
}

/// The sequential load that suffers most from bounded memory, and what is left of it.
pub(super) fn worst(part: &CachePart, row: &CacheRow) -> Option<(&'static str, f64)> {
    row.unbounded.as_ref()?;
    let left = SEQUENTIAL.into_iter().filter_map(|load| Some((load, ratio(part, row, load)?)));
    left.min_by(|one, other| one.1.total_cmp(&other.1))
}

fn figure_nine(part: &CachePart) -> String {
    let mut table = Table::new(&["setting", "5 dependent / 1", "5 independent / 1"]);
    for row in &part.rows {
        let over = |load| Some(format!("{:.3}", row.speed(load)? / row.speed(ONE)?));
        let cells = [FIVE_DEPENDENT, FIVE_INDEPENDENT].map(|load| over(load).unwrap_or_else(dash));
        table.row(&[&[row.setting.clone()][..], &cells].concat());
    }
    table.finish()
}

fn metadata(part: &CachePart) -> String {
    let chunks_a_gib = (1u64 << 14) as f64;
    let goal = Goal::AtMost(METADATA_GOAL_BYTES);
    let mut table = Table::new(&[
        "setting",
        "the map, written back",
        "goal",
        "verdict",
        "the log, and the map with each change",
        "both, KiB a GiB changed",
    ]);
    for row in &part.rows {
        table.row(&[
            row.setting.clone(),
            short(row.map_bytes),
            goal.told(),
            goal.judged(row.lasting_bytes()),
            short(row.log_bytes),
            short((row.map_bytes + row.log_bytes) * chunks_a_gib / 1024.0),
        ]);
    }
    table.finish()
}

/// File names and content of the pictures.
pub(super) fn pictures(results: &Results) -> Vec<(String, String)> {
    let Some(part) = &results.caches else { return Vec::new() };
    let Some(base) = part.rows.first() else { return Vec::new() };
    let exact = |ratio: f64| Summary { median: ratio, lowest: ratio, highest: ratio };
    let mut rows = Vec::new();
    for load in [FIVE_DEPENDENT, FIVE_INDEPENDENT] {
        if let (Some(five), Some(one)) = (base.speed(load), base.speed(ONE)) {
            let label = format!("{load} over 1 ({})", base.setting);
            rows.push(Bar { label, ratio: exact(five / one), goal: None, others: Vec::new() });
        }
    }
    for load in DRAWN {
        for row in &part.rows {
            let Some(ratio) = ratio(part, row, load) else { continue };
            let goal = Goal::AtLeast(CACHE_GOAL).holds(ratio);
            let judged = row.unbounded.is_some() && SEQUENTIAL.contains(&load);
            let goal = judged.then_some((CACHE_GOAL, goal));
            rows.push(Bar {
                label: format!("{load}: {}", row.setting),
                ratio: exact(ratio),
                goal,
                others: vec![],
            });
        }
    }
    let title = "Metadata in little memory, on the model disk";
    let note = "throughput as a ratio to that with all metadata in memory; exact";
    vec![("cache.svg".to_owned(), bars(title, note, None, &rows))]
}
