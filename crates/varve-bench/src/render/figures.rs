//! Figures with goals, as a table.

use crate::report::stats::Summary;
use crate::report::table::{Table, dash, note, short};
use crate::results::{FigurePart, FigureRow};

/// The table of one part, behind a line on what it was measured on. A figure of one round has no spread.
pub(super) fn table(part: &FigurePart) -> String {
    let mut table = Table::new(&["what", "median", "spread", "goal", ""]);
    for row in &part.rows {
        let spread = if row.rounds.len() == 1 { dash() } else { spread(row) };
        table.row(&cells(row.name.clone(), row, spread));
    }
    format!("{}; {}.\n\n{}", part.machine.line(), part.description, table.finish())
}

/// The table of parts in several worlds.
pub(super) fn table_by_world(parts: &[FigurePart]) -> String {
    let mut table = Table::new(&["where, what", "median", "spread", "goal", "verdict"]);
    for part in parts {
        part.rows.iter().for_each(|row| table.row(&cells(label(part, row), row, spread(row))));
    }
    table.finish()
}

/// What each of `parts` was measured on, below their table.
pub(super) fn notes(parts: &[FigurePart]) -> String {
    let notes: String =
        parts.iter().map(|part| note(&part.world, &part.description, &part.machine)).collect();
    notes + "\n"
}

/// The figure and its world in words.
pub(super) fn label(part: &FigurePart, row: &FigureRow) -> String {
    format!("{}: {}", part.world, row.name)
}

/// The figure that is judged.
pub(super) fn median(row: &FigureRow) -> f64 {
    crate::report::stats::median(&row.rounds)
}

fn spread(row: &FigureRow) -> String {
    let told = |it: Summary| format!("{} to {}", short(it.lowest), short(it.highest));
    Summary::of(&row.rounds).map_or_else(dash, told)
}

fn cells(label: String, row: &FigureRow, spread: String) -> Vec<String> {
    let told = |it: Summary| format!("{} {}", short(it.median), row.unit);
    vec![
        label,
        Summary::of(&row.rounds).map_or_else(dash, told),
        spread,
        row.goal.map_or_else(dash, |goal| format!("{} {}", goal.told(), row.unit)),
        row.goal.map_or_else(String::new, |goal| goal.judged(median(row))),
    ]
}
