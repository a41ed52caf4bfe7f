//! Arrays beside one raw member.

use super::machine_line;
use crate::results::{ArrayRow, ProcessorRow, Results};
use crate::stats::{Summary, median, ratio};
use crate::table::{Table, dash, short, spread};
use crate::verdict::Goal;

const MIB: f64 = (1 << 20) as f64;

/// The section.
pub(super) fn text(results: &Results) -> String {
    let Some(part) = &results.arrays else { return String::new() };
    let mut table = Table::new(&["array", "load", "member MiB/s", "array MiB/s", "x member", "goal", ""]);
    part.rows.iter().for_each(|row| table.row(&cells(row)));
    let mut processor = Table::new(&["what is done", "s a GiB"]);
    part.processor.iter().for_each(|row| processor.row(&processor_cells(row)));
    format!(
        "## Arrays\n\nMirrors and ddraid beside one raw member under the same load; in each round both are measured one \
         right after the other. {}; {}.\n\n{}\nWhat a GiB of writes of 1 MiB costs the processor, on members that do nothing, \
         beside a copy in memory:\n\n{}",
        machine_line(&part.machine),
        part.description,
        table.finish(),
        processor.finish()
    )
}

fn cells(row: &ArrayRow) -> Vec<String> {
    vec![
        row.array.clone(),
        row.load.clone(),
        short(median(&row.raw_speed) / MIB),
        short(median(&row.array_speed) / MIB),
        spread(ratio(&row.array_speed, &row.raw_speed)),
        row.goal.map_or_else(dash, |goal| Goal::AtLeast(goal).told()),
        row.goal.map_or_else(String::new, |goal| Goal::AtLeast(goal).judged(median_ratio(row))),
    ]
}

/// The median over the rounds of the array's speed in units of a member's.
pub(super) fn median_ratio(row: &ArrayRow) -> f64 {
    ratio(&row.array_speed, &row.raw_speed).map_or(f64::NAN, |ratio| ratio.median)
}

fn processor_cells(row: &ProcessorRow) -> Vec<String> {
    let summary = Summary::of(&row.seconds);
    vec![row.name.clone(), summary.map_or_else(dash, |summary| format!("{:.3}", summary.median))]
}
