//! What holds and what misses, before any table.

use super::tables::{SummaryGoal, Table};
use crate::report::stats::dash;
use crate::results::Part;

/// A row for each goal in each world.
pub(super) fn text<'a>(tables: impl Iterator<Item = &'a Table>, parts: &[Part]) -> String {
    let mut text = "| goal | where | holds | misses |\n| --- | --: | --: | --: |\n".to_owned();
    for table in tables {
        for part in table.parts(parts) {
            text.extend(table.goals.iter().filter_map(|goal| line(table, goal, part)));
        }
    }
    text
}

fn line(table: &Table, SummaryGoal { goal, records }: &SummaryGoal, part: &Part) -> Option<String> {
    let judged = part.records.iter().filter(|record| records.takes(record));
    let judged = judged.filter_map(|record| Some((record, record.goal?, part.judged(record)?.median)));
    let judged: Vec<_> = judged.collect();
    let missed = judged.iter().filter(|(_, goal, value)| !goal.holds(*value, table.decimals()));
    let told = missed.map(|(record, _, value)| {
        let is_alone = judged.iter().filter(|(other, ..)| other.row == record.row).count() == 1;
        let column = if is_alone { String::new() } else { format!(", {}", record.column) };
        let other = part.ratio(record, &record.over).filter(|_| record.over.len() > 1);
        let other = other.map_or_else(String::new, |(name, _)| format!(" of {name}"));
        format!("{}{column}: {value:.*}{other}", record.row, table.decimals())
    });
    let (told, all): (Vec<String>, _) = (told.collect(), judged.len());
    let misses = if told.is_empty() { dash() } else { told.join("<br>") };
    (all > 0).then(|| format!("| {goal} | {} | {} of {all} | {misses} |\n", part.world, all - told.len()))
}
