//! Figures with goals, as a table.

use crate::report::stats::Summary;
use crate::report::table::{Table, dash, short};
use crate::results::{FigurePart, FigureRow};

/// The table of `part`, with a line on what it stands on.
pub(super) fn table(part: &FigurePart) -> String {
    let mut table = Table::new(&["what", "median", "spread", "goal", ""]);
    part.rows.iter().for_each(|row| table.row(&cells(row)));
    format!("{}; {}.\n\n{}", part.machine.line(), part.description, table.finish())
}

/// The figure that is judged.
pub(super) fn median(row: &FigureRow) -> f64 {
    crate::report::stats::median(&row.rounds)
}

fn cells(row: &FigureRow) -> Vec<String> {
    let summary = Summary::of(&row.rounds);
    let told = |value: f64| format!("{} {}", short(value), row.unit);
    let is_exact = row.rounds.len() == 1;
    vec![
        row.name.clone(),
        summary.map_or_else(dash, |summary| told(summary.median)),
        summary
            .filter(|_| !is_exact)
            .map_or_else(dash, |it| format!("{} to {}", short(it.lowest), short(it.highest))),
        row.goal.map_or_else(dash, |goal| format!("{} {}", goal.told(), row.unit)),
        row.goal.map_or_else(String::new, |goal| goal.judged(median(row))),
    ]
}
