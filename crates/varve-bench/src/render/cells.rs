//! The cells of a table, from its description and the records.

use super::tables::{Column, Show, Table};
use crate::report::stats::{Summary, dash, median, short};
use crate::results::{Part, Record};

impl Table {
    /// Those of `all` that it shows.
    pub(super) fn parts<'a>(&self, all: &'a [Part]) -> Vec<&'a Part> {
        let names = if self.of.is_empty() { std::slice::from_ref(&self.key) } else { &self.of };
        all.iter().filter(|part| names.contains(&part.table)).collect()
    }

    /// What a row is called; its world comes first if the table has several.
    pub(super) fn label(&self, part: &Part, row: &str, parts: &[&Part]) -> String {
        let is_alone = self.heading.is_some() || parts.len() == 1;
        if is_alone { row.to_owned() } else { format!("{}: {row}", part.world) }
    }

    /// The rows of `parts` as Markdown, with an empty line after them.
    pub(super) fn grid(&self, parts: &[&Part]) -> String {
        let columns = self.columns(parts);
        let heads = columns.iter().map(|column| column.head.clone());
        let mut text =
            line([self.head.clone().unwrap_or_else(|| "what".to_owned())].into_iter().chain(heads));
        text.push_str(&line(["---"].into_iter().chain(columns.iter().map(|_| "--:")).map(str::to_owned)));
        for part in parts {
            for row in rows(part) {
                let cells: Vec<_> = columns.iter().map(|column| self.cell(part, row, column)).collect();
                if cells.iter().any(|cell| !cell.is_empty() && *cell != dash()) {
                    text.push_str(&line([self.label(part, row, parts)].into_iter().chain(cells)));
                }
            }
        }
        text + "\n"
    }

    /// The columns as they are printed.
    fn columns(&self, parts: &[&Part]) -> Vec<Column> {
        let known = column_names(parts);
        let named = |name: &str, show, to: &[&String]| {
            let to = to.iter().map(ToString::to_string).collect();
            Column { head: name.to_owned(), of: name.to_owned(), show, to }
        };
        let mut columns = Vec::new();
        for column in &self.columns {
            if column.show == Show::Others {
                let others = known.iter().filter(|name| self.columns.iter().all(|it| it.of != **name));
                columns.extend(others.map(|name| named(name, Show::Others, &[])));
                continue;
            }
            columns.push(column.clone());
            if column.show == Show::From {
                let others = known.iter().skip_while(|name| **name != column.of).skip(1);
                columns.extend(others.map(|name| named(name, Show::Ratio, &[&column.of])));
            }
        }
        columns
    }

    fn cell(&self, part: &Part, row: &str, column: &Column) -> String {
        if matches!(column.show, Show::Goal | Show::Verdict) {
            return self.goals(part, row, column);
        }
        let Some(record) = part.find(row, &column.of) else { return dash() };
        match column.show {
            Show::Spread => {
                Summary::of(&record.rounds).filter(|_| record.rounds.len() > 1).map_or_else(dash, ends)
            }
            Show::Ratio => {
                let others = if column.to.is_empty() { &record.over } else { &column.to };
                self.spread(record, part.ratio(record, others).map(|(_, ratio)| ratio))
            }
            Show::Others if !record.over.is_empty() => self.spread(record, part.judged(record)),
            _ => value(record),
        }
    }

    /// The goal of a record, or of each of the row; or whether it is kept.
    fn goals(&self, part: &Part, row: &str, column: &Column) -> String {
        let is_meant = |it: &&Record| it.row == row && (column.of == "*" || it.column == column.of);
        let records: Vec<_> = part.records.iter().filter(is_meant).filter(|it| it.goal.is_some()).collect();
        let told = records.iter().filter_map(|record| {
            let (goal, unit) = (record.goal?, if record.over.is_empty() { record.unit.as_str() } else { "" });
            let value = part.judged(record).map_or(f64::NAN, |it| it.median);
            let name = if records.len() > 1 { format!("{}: ", record.column) } else { String::new() };
            Some(match column.show {
                Show::Goal => format!("{name}{} {unit}", goal.told()).trim_end().to_owned(),
                _ if goal.holds(value, self.decimals()) => "holds".to_owned(),
                _ => name + &goal.judged(value, self.decimals()),
            })
        });
        let told: Vec<String> = told.collect();
        let mut missed = told.iter().filter(|it| *it != "holds").cloned().collect::<Vec<_>>();
        missed.extend(told.first().filter(|_| missed.is_empty()).cloned());
        if missed.is_empty() && matches!(column.show, Show::Goal) { dash() } else { missed.join(", ") }
    }

    /// `1.23 (1.10 to 1.30)`; without brackets if there was one round.
    fn spread(&self, record: &Record, summary: Option<Summary>) -> String {
        let Some(Summary { median, lowest, highest }) = summary else { return dash() };
        let told = |value: f64| format!("{value:.*}", self.decimals());
        match record.rounds.len() {
            1 => told(median),
            _ => format!("{} ({} to {})", told(median), told(lowest), told(highest)),
        }
    }
}

/// The median with its unit; what has no unit is a ratio, or a count for each.
fn value(record: &Record) -> String {
    let median = median(&record.rounds);
    match record.unit.as_str() {
        _ if !median.is_finite() => dash(),
        "" => format!("{median:.3}"),
        unit => format!("{} {unit}", short(median)),
    }
}

fn ends(it: Summary) -> String {
    format!("{} to {}", short(it.lowest), short(it.highest))
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// The rows of a part, in their order.
fn rows(part: &Part) -> Vec<&str> {
    distinct(part.records.iter().map(|record| record.row.as_str()))
}

/// The columns of the records of `parts`: in their order, or by their numbers.
pub(super) fn column_names<'a>(parts: &[&'a Part]) -> Vec<&'a str> {
    let mut names = distinct(parts.iter().flat_map(|part| &part.records).map(|it| it.column.as_str()));
    if names.iter().all(|name| name.parse::<u32>().is_ok()) {
        names.sort_by_key(|name| name.parse::<u32>().ok());
    }
    names
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    names.for_each(|name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
    });
    seen
}
