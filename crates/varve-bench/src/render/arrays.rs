//! Arrays beside one raw member.

use super::figures;
use crate::report::stats::{Summary, median, ratio};
use crate::report::table::{Table, dash, short, spread};
use crate::report::verdict::Goal;
use crate::results::{ArrayRow, FigurePart, ProcessorRow, Results};

const MIB: f64 = (1 << 20) as f64;

/// The section.
pub(super) fn text(results: &Results) -> String {
    let Some(part) = &results.arrays else { return String::new() };
    let mut table = Table::new(&[
        "array",
        "load",
        "member MiB/s",
        "array MiB/s",
        "x member",
        "in virtual time",
        "goal",
        "",
    ]);
    let is_measured = |row: &&ArrayRow| row.exact.is_some() || !row.array_speed.is_empty();
    part.rows.iter().filter(is_measured).for_each(|row| table.row(&cells(row)));
    let mut processor = Table::new(&["what is done", "s a GiB"]);
    part.processor.iter().for_each(|row| processor.row(&processor_cells(row)));
    format!(
        "## Arrays\n\nMirrors and ddraid beside one raw member under the same load; in each round both are measured one \
         right after the other. In virtual time the throttle is all that takes any, so that ratio is exact; it is judged only in \
         the rows without speeds, which were measured there alone. {}; {}.\n\n{}\n{}What a GiB of writes of 1 MiB costs the processor, on members that do nothing, \
         beside a copy in memory:\n\n{}",
        part.machine.line(),
        part.description,
        table.finish(),
        results.array_work.as_ref().map_or_else(String::new, work),
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
        row.exact.map_or_else(dash, |exact| format!("{exact:.2}")),
        row.goal.map_or_else(dash, |goal| Goal::AtLeast(goal).told()),
        row.goal.map_or_else(String::new, |goal| Goal::AtLeast(goal).judged(median_ratio(row))),
    ]
}

fn work(part: &FigurePart) -> String {
    format!("What arrays do beside requests. {}", figures::table(part))
}

/// The array's speed in units of a member's, which is judged: the median over the rounds, or in virtual time if there were none.
pub(super) fn median_ratio(row: &ArrayRow) -> f64 {
    let real = ratio(&row.array_speed, &row.raw_speed).map(|ratio| ratio.median);
    real.or(row.exact).unwrap_or(f64::NAN)
}

fn processor_cells(row: &ProcessorRow) -> Vec<String> {
    let summary = Summary::of(&row.seconds);
    vec![row.name.clone(), summary.map_or_else(dash, |summary| format!("{:.3}", summary.median))]
}
