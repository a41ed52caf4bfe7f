//! The pictures of the tables that have some.

use super::cells::column_names;
use super::published::published;
use super::tables::{Plot, Table};
use crate::report::plot::{Bar, Curve, bars, curves};
use crate::report::stats::{Summary, median};
use crate::results::{Part, Record};

/// Colours of our own curves, and of those of others.
const COLOURS: [&str; 6] = ["#1b6ca8", "#2a7f62", "#7b4fa3", "#b5851a", "#3aa0a0", "#c05080"];
const OTHER_COLOURS: [&str; 3] = ["#64707d", "#c7602f", "#a32f2f"];

/// File names and content of the pictures: one, or one for each world that has a table of its own.
pub(super) fn of(table: &Table, parts: &[Part]) -> Vec<(String, String)> {
    let (Some(plot), parts) = (&table.plot, table.parts(parts)) else { return Vec::new() };
    let groups: Vec<&[&Part]> = match &table.heading {
        Some(_) => parts.chunks(1).collect(),
        None => parts.chunks(parts.len().max(1)).collect(),
    };
    groups.into_iter().map(|parts| (plot.file(table, parts[0]), plot.picture(table, parts))).collect()
}

impl Plot {
    /// The name of its file.
    pub(super) fn file(&self, table: &Table, part: &Part) -> String {
        let world = format!("-{}", part.world.replace(", ", "-"));
        format!("{}{}.svg", self.file, table.heading.as_ref().map_or("", |_| &world))
    }

    /// What stands above it.
    pub(super) fn title(&self, part: &Part) -> String {
        self.title.replace("{}", &part.world)
    }

    fn picture(&self, table: &Table, parts: &[&Part]) -> String {
        let title = self.title(parts[0]);
        if let Some(base) = &self.curves_from {
            let names = column_names(parts).into_iter().skip_while(|name| name != base);
            let places: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
            return curves(&title, &self.note, &places, &self.curves(parts, base));
        }
        let mut rows = Vec::new();
        let names = column_names(parts);
        for column in &names {
            for part in parts {
                let drawn = part.records.iter().filter(|it| it.column == *column && self.records.takes(it));
                rows.extend(drawn.filter_map(|record| {
                    let label = table.label(part, &record.row, parts);
                    let is_one = parts
                        .iter()
                        .flat_map(|part| &part.records)
                        .all(|it| !self.records.takes(it) || it.column == *column);
                    let label = if is_one { label } else { format!("{column}: {label}") };
                    Some(Bar { label, ..self.bar(table, part, record)? })
                }));
            }
        }
        bars(&title, &self.note, self.others.as_deref(), &rows)
    }

    fn bar(&self, table: &Table, part: &Part, record: &Record) -> Option<Bar> {
        let (it, goal) = (part.judged(record)?, record.goal);
        let whole = if self.shares { goal?.limit() } else { 1.0 };
        let Summary { median, lowest, highest } = it;
        let ratio = Summary { median: median / whole, lowest: lowest / whole, highest: highest / whole };
        let goal = goal.map(|goal| (goal.limit() / whole, goal.holds(median, table.decimals())));
        Some(Bar { label: String::new(), ratio, goal, others: self.standings(part, record) })
    }

    /// Where others stand: what `record` is compared with, beside the hardest of them; or the column of another.
    fn standings(&self, part: &Part, record: &Record) -> Vec<f64> {
        let find = |name: &str| part.find(&record.row, name);
        match (part.ratio(record, &record.over), &self.others) {
            (Some((hardest, _)), _) if record.over.len() > 1 => {
                let stand = |name: &String| Some(part.ratio(find(name)?, &[hardest])?.1.median);
                record.over.iter().filter_map(stand).collect()
            }
            (_, Some(other)) => find(other).map(|it| median(&it.rounds)).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// A curve for each row that is drawn: its ratios to its column `base`, by the number that a column's name is.
    fn curves(&self, parts: &[&Part], base: &str) -> Vec<Curve> {
        let published = published();
        let is_other =
            |part: &Part| published.iter().any(|it| (&it.table, &it.world) == (&part.table, &part.world));
        let (mut own, mut others) = (COLOURS.iter().cycle(), OTHER_COLOURS.iter().cycle());
        let mut curves = Vec::new();
        for part in parts {
            let bases: Vec<_> =
                part.records.iter().filter(|it| it.column == base && self.records.takes(it)).collect();
            for first in &bases {
                let records = part.records.iter().filter(|it| it.row == first.row);
                let point = |record: &Record| {
                    let snapshots = record.column.parse().ok()?;
                    Some((snapshots, part.ratio(record, &[base])?.1.median))
                };
                let from = records.skip_while(|it| it.column != base);
                let dashed = is_other(part);
                let colour = if dashed { others.next() } else { own.next() };
                let label = if bases.len() > 1 { &first.row } else { &part.world }.clone();
                let colour = colour.copied().unwrap_or_default();
                curves.push(Curve { label, colour, dashed, points: from.filter_map(point).collect() });
            }
        }
        curves
    }
}
