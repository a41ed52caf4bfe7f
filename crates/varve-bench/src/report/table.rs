//! Tables and figures as Markdown.

use crate::machine::Machine;
use crate::report::stats::Summary;

/// A table in the making.
pub(crate) struct Table {
    text: String,
    columns: usize,
}

impl Table {
    /// With these column heads; the first column is text, the others are figures.
    pub(crate) fn new(heads: &[&str]) -> Self {
        let rule: Vec<&str> = (0..heads.len()).map(|index| if index == 0 { "---" } else { "--:" }).collect();
        let text = format!("| {} |\n| {} |\n", heads.join(" | "), rule.join(" | "));
        Self { text, columns: heads.len() }
    }

    /// One more row.
    pub(crate) fn row(&mut self, cells: &[String]) {
        assert_eq!(cells.len(), self.columns, "a row has a cell for each head");
        self.text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }

    /// The text, with an empty line after it.
    pub(crate) fn finish(mut self) -> String {
        self.text.push('\n');
        self.text
    }
}

/// `1.23 (1.10 to 1.30)`; a dash for nothing.
pub(crate) fn spread(summary: Option<Summary>) -> String {
    summary.map_or_else(dash, |summary| {
        format!("{:.2} ({:.2} to {:.2})", summary.median, summary.lowest, summary.highest)
    })
}

/// As [`spread`], with three decimals; without brackets where the figure is exact.
pub(crate) fn spread_fine(summary: Option<Summary>, exact: bool) -> String {
    match summary {
        Some(summary) if exact => format!("{:.3}", summary.median),
        Some(Summary { median, lowest, highest }) => format!("{median:.3} ({lowest:.3} to {highest:.3})"),
        None => dash(),
    }
}

/// A line below a table: what the rows of one world were measured on.
pub(crate) fn note(world: &str, description: &str, machine: &Machine) -> String {
    format!("- *{world}*: {description}; {}\n", machine.line())
}

/// What stands where there is no figure.
pub(crate) fn dash() -> String {
    "–".to_owned()
}

/// A figure with three digits that count.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => dash(),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `holds`, `**misses**`, or a dash when it was not measured.
pub(crate) fn held(held: Option<bool>) -> String {
    match held {
        Some(true) => "holds".to_owned(),
        Some(false) => "**misses**".to_owned(),
        None => dash(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(
            [0.1234, 1.0, 9.999, 12.345, 99.96, 123.4].map(short),
            ["0.12", "1.00", "10.0", "12.3", "100", "123"]
        );
        assert_eq!(short(f64::NAN), "–");
    }

    #[test]
    fn a_table_has_a_rule_and_its_rows() {
        let mut table = Table::new(&["load", "ratio"]);
        table.row(&["read".to_owned(), "1.0".to_owned()]);
        assert_eq!(table.finish(), "| load | ratio |\n| --- | --: |\n| read | 1.0 |\n\n");
    }

    #[test]
    #[should_panic(expected = "a cell for each head")]
    fn a_short_row_is_a_bug() {
        Table::new(&["a", "b"]).row(&["1".to_owned()]);
    }
}
