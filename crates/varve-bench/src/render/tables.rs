//! What a table of the page is, as `page.md` describes it: which records it shows, in which columns, with which goals, and how
//! it is drawn.

use crate::results::Record;
use serde::Deserialize;

/// What a column shows of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Show {
    /// The median.
    Value,
    /// The least and the greatest.
    Spread,
    /// The ratio to what it is compared with.
    Ratio,
    /// What it has to keep.
    Goal,
    /// Whether it is kept.
    Verdict,
    /// A column for each that has no other place: the ratio to what it is compared with, or the median if that is nothing.
    Others,
    /// The median; and a column for each later one, as a ratio to that.
    From,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Column {
    #[serde(default)]
    pub(super) head: String,
    /// The column of the records; for goals and verdicts, `*` is each column of the row.
    #[serde(default)]
    pub(super) of: String,
    pub(super) show: Show,
    /// Columns of which a ratio is to the one that is hardest to beat, instead of those that the record names.
    #[serde(default)]
    pub(super) to: Vec<String>,
}

/// Which records are meant; an empty list is no condition.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Filter {
    /// How the row begins.
    row: String,
    columns: Vec<String>,
    /// What the row does not contain.
    except: Vec<String>,
}

impl Filter {
    pub(super) fn takes(&self, record: &Record) -> bool {
        record.row.starts_with(&self.row)
            && (self.columns.is_empty() || self.columns.contains(&record.column))
            && !self.except.iter().any(|part| record.row.contains(part))
    }
}

/// A goal of the summary, and the records that it is for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SummaryGoal {
    pub(super) goal: String,
    #[serde(default)]
    pub(super) records: Filter,
}

/// A picture of a table, or of each world's: bars of ratios, if it says nothing else.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Plot {
    /// The name of its file, without the world.
    pub(super) file: String,
    /// What stands above it; `{}` is the world.
    pub(super) title: String,
    /// What the figures are a ratio to.
    pub(super) note: String,
    /// What rings on the bars are: the column of another, or all that a record is compared with.
    pub(super) others: Option<String>,
    pub(super) records: Filter,
    /// Bars are shares of what is allowed.
    pub(super) shares: bool,
    /// Curves instead, of ratios to this column, over the numbers that are the names of columns.
    pub(super) curves_from: Option<String>,
}

/// A table of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Table {
    /// The table of its records, unless `of` names others.
    pub(super) key: String,
    pub(super) of: Vec<String>,
    /// What stands above the table that each world has then for itself; `{}` is the world.
    pub(super) heading: Option<String>,
    /// The head of the rows.
    pub(super) head: Option<String>,
    /// None: those of single figures.
    pub(super) columns: Vec<Column>,
    /// Decimals with which ratios are printed and judged.
    decimals: Option<usize>,
    pub(super) goals: Vec<SummaryGoal>,
    pub(super) plot: Option<Plot>,
}

impl Table {
    pub(super) fn decimals(&self) -> usize {
        self.decimals.unwrap_or(3)
    }

    /// The page as a text and the table behind it, again and again; behind the last text there is none.
    pub(super) fn page() -> Vec<(&'static str, Option<Table>)> {
        let mut page = Vec::new();
        let mut rest = include_str!("page.md");
        while let Some((text, (json, left))) =
            rest.split_once("```table\n").and_then(|(text, rest)| Some((text, rest.split_once("\n```\n")?)))
        {
            let mut table: Table = serde_json::from_str(json).expect("page.md describes a table in JSON");
            if table.columns.is_empty() {
                table.columns = single_figures();
            }
            page.push((text, Some(table)));
            rest = left;
        }
        page.push((rest, None));
        page
    }
}

fn single_figures() -> Vec<Column> {
    let columns =
        [("median", Show::Value), ("spread", Show::Spread), ("goal", Show::Goal), ("verdict", Show::Verdict)];
    columns
        .map(|(head, show)| Column { head: head.to_owned(), of: String::new(), show, to: Vec::new() })
        .into()
}
