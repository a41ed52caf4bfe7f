//! Aligned columns and plans, for users.

use crate::units;
use std::fmt::Write;
use varve_api::Plan;

/// Between two columns.
const SPACE: usize = 2;

/// A table; a heading that ends in `>` aligns its column to the right.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each heading.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    /// The lines; `nothing` if there is no row.
    pub(crate) fn render(&self, nothing: &str) -> String {
        match self.rows.as_slice() {
            [] => nothing.to_owned(),
            _ => self.lines(usize::MAX).iter().map(|line| format!("{line}\n")).collect(),
        }
    }

    /// The headings and the rows, no longer than `width_max`: the last columns are left out where there is no room for all, since a figure
    /// that is cut would be another figure. The first one is never left out.
    pub(crate) fn lines(&self, width_max: usize) -> Vec<String> {
        let right: Vec<bool> = self.headings.iter().map(|heading| heading.ends_with('>')).collect();
        let headings = self.headings.iter().map(|heading| heading.trim_end_matches('>').to_owned()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&headings).chain(&self.rows).collect();
        let width =
            |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
        let fits = |end: &mut usize, column: usize| {
            let width = width(column);
            *end += width + if column == 0 { 0 } else { SPACE };
            (column == 0 || *end <= width_max).then_some(width)
        };
        let widths: Vec<usize> = (0..right.len()).scan(0, fits).collect();
        let line = |cells: &&Vec<String>| {
            let columns = cells.iter().zip(&widths).zip(&right);
            let line: String = columns
                .map(|((cell, &width), is_right)| match is_right {
                    true => format!("{cell:>width$}{:SPACE$}", ""),
                    false => format!("{cell:<width$}{:SPACE$}", ""),
                })
                .collect();
            line.trim_end().to_owned()
        };
        lines.iter().map(line).collect()
    }
}

/// Aligned `name: value` lines.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    pairs.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{:<width$} {value}", format!("{name}:"));
        text
    })
}

/// What would be done.
pub(crate) fn plan(plan: &Plan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        let _ = writeln!(text, "{step}");
    }
    let _ = writeln!(
        text,
        "would take {} and free {}; nothing was changed",
        units::size(plan.bytes_taken),
        units::size(plan.bytes_freed)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_without_trailing_spaces() {
        let mut table = Table::new(&["NAME", "SIZE>", "STATE"]);
        table.row(vec!["data/home".into(), "1.0 GiB".into(), "active".into()]);
        table.row(vec!["data/x".into(), "512 B".into(), "".into()]);
        let wanted = "NAME          SIZE  STATE\ndata/home  1.0 GiB  active\ndata/x       512 B\n";
        assert_eq!(table.render("none"), wanted);
        assert_eq!(Table::new(&["NAME"]).render("none"), "none");
        assert_eq!(table.lines(26)[1], "data/home  1.0 GiB  active");
        assert_eq!(table.lines(25), ["NAME          SIZE", "data/home  1.0 GiB", "data/x       512 B"]);
        assert_eq!(table.lines(3), ["NAME", "data/home", "data/x"]);
    }
}
