//! Everything that was measured, raw, as it is kept in a file: rendering needs no new measurement.

use crate::failed::{Failed, Of, Outcome};
use crate::machine::Machine;
use crate::report::goal::Goal;
use crate::report::stats::{Summary, ratio};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The whole file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// One part a table and world.
    pub(crate) parts: Vec<Part>,
}

/// Records that were measured together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Part {
    /// The table that they are for: `nbd`, `arrays`.
    pub(crate) table: String,
    /// `memory`, `model disk`, `engine, memory`.
    pub(crate) world: String,
    /// What they were measured on, in a sentence.
    pub(crate) description: String,
    /// Where it was measured; nothing if that makes no difference: time was virtual, or others published the figures.
    pub(crate) machine: Option<Machine>,
    /// The records, row by row.
    pub(crate) records: Vec<Record>,
}

/// One figure of one row, measured once a round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    /// What was measured: the load, the disk, the setting.
    pub(crate) row: String,
    /// Of which system, or with how many snapshots; empty in a table of single figures.
    pub(crate) column: String,
    /// `ms`, `MiB/s`, or `x` for a ratio.
    pub(crate) unit: String,
    /// What it has to keep, as a ratio to `over` if there is such; nothing if it only tells.
    pub(crate) goal: Option<Goal>,
    /// Other columns of the row, or other rows of the column: what it is compared with, round by round.
    pub(crate) over: Vec<String>,
    /// One a round.
    pub(crate) rounds: Vec<f64>,
    /// Why there are none.
    pub(crate) absent: Option<String>,
}

impl Record {
    /// Has it compared with another column, or another row.
    pub(crate) fn over(&mut self, other: &str) -> &mut Self {
        if !self.over.iter().any(|known| known == other) {
            self.over.push(other.to_owned());
        }
        self
    }

    /// Sets what it has to keep.
    pub(crate) fn goal(&mut self, goal: impl Into<Option<Goal>>) -> &mut Self {
        self.goal = goal.into();
        self
    }

    /// One more round.
    pub(crate) fn push(&mut self, value: f64) {
        self.rounds.push(value);
    }

    /// One more round, or why there is none. Nothing follows a round that failed, so that rounds of all records have the
    /// same numbers.
    pub(crate) fn outcome(&mut self, outcome: Outcome<f64>) {
        match outcome {
            _ if self.absent.is_some() => {}
            Ok(value) => self.rounds.push(value),
            Err(Failed(reason)) => self.absent = Some(reason),
        }
    }
}

impl Part {
    /// A part without records, to be measured on this machine.
    pub(crate) fn new(table: &str, world: impl Into<String>, description: impl Into<String>) -> Self {
        let machine = Some(Machine::look());
        Self { machine, ..Self::exact(table, world, description) }
    }

    /// A part without records, whose figures are those of every machine.
    pub(crate) fn exact(table: &str, world: impl Into<String>, description: impl Into<String>) -> Self {
        let (world, description) = (world.into(), description.into());
        Self { table: table.to_owned(), world, description, ..Self::default() }
    }

    /// The figure `column` of `row`, if it is known.
    pub(crate) fn find(&self, row: &str, column: &str) -> Option<&Record> {
        self.records.iter().find(|record| (record.row.as_str(), record.column.as_str()) == (row, column))
    }

    /// The figure `column` of `row`, made if there was none.
    pub(crate) fn at(&mut self, row: &str, column: &str, unit: &str) -> &mut Record {
        let known = self
            .records
            .iter()
            .position(|record| (record.row.as_str(), record.column.as_str()) == (row, column));
        let index = known.unwrap_or_else(|| {
            let (row, column, unit) = (row.to_owned(), column.to_owned(), unit.to_owned());
            self.records.push(Record { row, column, unit, ..Record::default() });
            self.records.len() - 1
        });
        &mut self.records[index]
    }

    /// One more round of the single figure of a row.
    pub(crate) fn record(
        &mut self,
        row: impl AsRef<str>,
        unit: &str,
        goal: impl Into<Option<Goal>>,
        value: f64,
    ) {
        self.at(row.as_ref(), "", unit).goal(goal).push(value);
    }

    /// As [`Part::record`], of a figure that only tells.
    pub(crate) fn note(&mut self, row: impl AsRef<str>, unit: &str, value: f64) {
        self.record(row, unit, None, value);
    }

    /// `record` over that of the `others` which is the hardest to beat, and its name.
    pub(crate) fn ratio<'a>(
        &self,
        record: &Record,
        others: &'a [impl AsRef<str>],
    ) -> Option<(&'a str, Summary)> {
        let compare = |other: &'a str| {
            let theirs = self.find(&record.row, other).or_else(|| self.find(other, &record.column))?;
            Some((other, ratio(&record.rounds, &theirs.rounds)?))
        };
        let sign = if matches!(record.goal, Some(Goal::AtMost(_))) { -1.0 } else { 1.0 };
        let ratios = others.iter().filter_map(|other| compare(other.as_ref()));
        ratios.min_by(|(_, one), (_, two)| (sign * one.median).total_cmp(&(sign * two.median)))
    }

    /// Prints each record that has a goal, what it shows, and whether it keeps it.
    pub(crate) fn tell(&self) {
        for record in &self.records {
            let (Some(goal), Some(it)) = (record.goal, self.judged(record)) else { continue };
            let (row, told, judged) = (&record.row, goal.told(), goal.judged(it.median, 3));
            eprintln!("{}, {}: {row}: {:.3} ({told}: {judged})", self.table, self.world, it.median);
        }
    }

    /// What the goal of `record` is for: the figure itself, or its ratio to what it is compared with.
    pub(crate) fn judged(&self, record: &Record) -> Option<Summary> {
        match record.over.is_empty() {
            true => Summary::of(&record.rounds),
            false => self.ratio(record, &record.over).map(|(_, ratio)| ratio),
        }
    }
}

impl Results {
    /// From a file; empty if there is none.
    pub(crate) fn load(path: &Path) -> Outcome<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(path).of(path.display())?;
        serde_json::from_str(&text).of(format!("{} is no result file", path.display()))
    }

    /// Into a file.
    pub(crate) fn store(&self, path: &Path) -> Outcome<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        // Beside it first: a process that is killed while writing has lost nothing.
        let beside = path.with_extension("new");
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&beside, text))
            .and_then(|()| fs::rename(&beside, path))
            .of(path.display())
    }

    /// Puts `part` where an older one of the same table and world was, or at the end. Rows that were not measured anew stay,
    /// and each row keeps its place.
    pub(crate) fn put(&mut self, mut part: Part) {
        let is_like = |old: &Part| (&old.table, &old.world) == (&part.table, &part.world);
        let Some(old) = self.parts.iter_mut().find(|old| is_like(old)) else { return self.parts.push(part) };
        let mut records: Vec<Record> = Vec::new();
        for record in old.records.drain(..) {
            let is_kept = |records: &[Record]| records.iter().any(|known| known.row == record.row);
            if !is_kept(&part.records) {
                records.push(record);
            } else if !is_kept(&records) {
                records.extend(part.records.iter().filter(|new| new.row == record.row).cloned());
            }
        }
        part.records.retain(|new| records.iter().all(|known| known.row != new.row));
        records.append(&mut part.records);
        *old = Part { records, ..part };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(world: &str, rows: &[(&str, f64)]) -> Part {
        let mut part = Part::exact("table", world, "");
        rows.iter().for_each(|(row, value)| part.record(row, "x", None, *value));
        part
    }

    #[test]
    fn rows_that_were_not_measured_anew_stay_and_each_keeps_its_place() {
        let mut results = Results::default();
        for (world, rows) in [
            ("memory", &[("a", 1.0), ("a", 2.0), ("b", 3.0)][..]),
            ("disk", &[("a", 4.0)]),
            ("memory", &[("c", 5.0), ("a", 6.0)]),
        ] {
            results.put(part(world, rows));
        }
        let rows = |part: &Part| {
            let row = |record: &Record| (record.row.clone(), record.rounds.clone());
            part.records.iter().map(row).collect::<Vec<_>>()
        };
        let row = |row: &str, rounds: &[f64]| (row.to_owned(), rounds.to_vec());
        assert_eq!(results.parts.len(), 2);
        assert_eq!(rows(&results.parts[0]), [row("a", &[6.0]), row("b", &[3.0]), row("c", &[5.0])]);
        assert_eq!(rows(&results.parts[1]), [row("a", &[4.0])]);
    }

    #[test]
    fn a_record_is_compared_round_by_round_with_what_is_hardest_to_beat() {
        let mut part = Part::default();
        for round in [1.0, 2.0, 1.0] {
            part.at("load", "ours", "k/s").over("fast").over("slow").over("absent").push(120.0 * round);
            part.at("load", "fast", "k/s").push(100.0 * round);
            part.at("load", "slow", "k/s").push(50.0 * round);
            part.at("double", "fast", "k/s").over("load").push(200.0 * round);
        }
        let ours = part.find("load", "ours").expect("recorded").clone();
        let (name, ratio) = part.ratio(&ours, &ours.over).expect("both were measured");
        assert_eq!((name, ratio.lowest, ratio.median, ratio.highest), ("fast", 1.2, 1.2, 1.2));
        let lean = Record { goal: Some(Goal::AtMost(1.0)), ..ours.clone() };
        assert_eq!(
            part.ratio(&lean, &lean.over).map(|(name, ratio)| (name, ratio.median)),
            Some(("slow", 2.4))
        );
        assert_eq!(
            part.judged(part.find("double", "fast").expect("recorded")).map(|it| it.median),
            Some(2.0)
        );
        assert_eq!(part.judged(&Record { over: vec!["absent".to_owned()], ..ours }), None);
        assert_eq!(part.judged(part.find("load", "slow").expect("recorded")).map(|it| it.median), Some(50.0));
    }

    #[test]
    fn nothing_is_recorded_behind_a_round_that_failed() {
        let mut record = Record::default();
        [Ok(1.0), Err("no".into()), Ok(2.0)].into_iter().for_each(|outcome| record.outcome(outcome));
        assert_eq!((record.rounds, record.absent.as_deref()), (vec![1.0], Some("no")));
    }

    #[test]
    fn what_is_stored_is_loaded_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("plots/results.json");
        assert!(Results::load(&path).expect("no file, no results").parts.is_empty());
        let mut results = Results::default();
        results.put(part("memory", &[("a", 7.0)]));
        results.store(&path).expect("a file");
        let loaded = Results::load(&path).expect("the file");
        assert_eq!(loaded.parts[0].records, results.parts[0].records);
        assert_eq!(fs::read_dir(directory.path().join("plots")).expect("a directory").count(), 1);
        fs::write(&path, "{").expect("a file");
        assert!(Results::load(&path).is_err());
    }
}
