//! Metadata in little memory, in real time: the loads of ESnap's figures 5 to 9 under each setting.

use crate::report::plot::{Bar, bars};
use crate::report::stats::{Summary, median};
use crate::report::table::{Table, dash, short, spread_fine};
use crate::report::verdict::{CACHE_GOAL, Goal};
use crate::results::{CacheTimes, CacheTimesRow, NO_SNAPSHOT, Results};
use crate::tables::snapshot::cache_times::{LOADS, SEQUENTIAL};

/// The section.
pub(super) fn text(results: &Results) -> String {
    results.cache_times.iter().map(part_text).collect()
}

fn part_text(part: &CacheTimes) -> String {
    let mut table = Table::new(&[&["setting"][..], &LOADS, &["sequential work"]].concat());
    for row in &part.rows {
        let mut cells = vec![row.setting.clone()];
        cells.extend(LOADS.map(|load| cell(part, row, load)));
        let judged = worst(part, row).map(|(_, ratio)| Goal::AtLeast(CACHE_GOAL).judged(ratio.median));
        cells.push(judged.unwrap_or_else(dash));
        table.row(&cells);
    }
    format!(
        "### Metadata in little memory, in real time: {}\n\nAll settings in turn, round after round. Without a snapshot: \
         MiB/s. With all metadata in memory: as a ratio to that. With bounded memory: as a ratio to all in memory, written \
         in the same way; it may cost sequential work a tenth.\n\n![Throughput under each setting](plots/{})\n\n{}\
         Measured on {}: {}.\n\n",
        part.world,
        picture(part),
        table.finish(),
        part.machine.line(),
        part.description
    )
}

fn cell(part: &CacheTimes, row: &CacheTimesRow, load: &str) -> String {
    if row.setting != NO_SNAPSHOT {
        return spread_fine(part.ratio(row, load), false);
    }
    let rounds = row.rounds(load).filter(|rounds| !rounds.is_empty());
    rounds.map_or_else(dash, |rounds| short(median(rounds) / (1u64 << 20) as f64))
}

/// The sequential load that suffers most from bounded memory, and what is left of it.
pub(super) fn worst(part: &CacheTimes, row: &CacheTimesRow) -> Option<(&'static str, Summary)> {
    let left = SEQUENTIAL.into_iter().filter(|_| row.is_bounded());
    let left = left.filter_map(|load| Some((load, part.ratio(row, load)?)));
    left.min_by(|one, other| one.1.median.total_cmp(&other.1.median))
}

fn picture(part: &CacheTimes) -> String {
    format!("cache-{}.svg", part.world.replace(", ", "-"))
}

/// File names and content of the pictures.
pub(super) fn pictures(results: &Results) -> Vec<(String, String)> {
    results.cache_times.iter().map(|part| (picture(part), drawn(part))).collect()
}

fn drawn(part: &CacheTimes) -> String {
    let mut rows = Vec::new();
    for load in LOADS {
        for row in part.rows.iter().filter(|row| row.is_bounded()) {
            let Some(ratio) = part.ratio(row, load) else { continue };
            let held = Goal::AtLeast(CACHE_GOAL).holds(ratio.median);
            let goal = SEQUENTIAL.contains(&load).then_some((CACHE_GOAL, held));
            rows.push(Bar { label: format!("{load}: {}", row.setting), ratio, goal, others: Vec::new() });
        }
    }
    let title = format!("Metadata in little memory: {}", part.world);
    bars(&title, "throughput as a ratio to that with all metadata in memory", None, &rows)
}
