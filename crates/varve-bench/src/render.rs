//! Turns stored results into a document and pictures; measures nothing.
//!
//! `page.md` is the text of the document, and describes each table where it goes (`tables.rs`). What others have published is in
//! `published.json`, in records like our own.

mod cells;
mod pictures;
mod published;
mod summary;
mod tables;

use crate::failed::{Of, Outcome};
use crate::machine::Machine;
use crate::results::{Part, Results};
use published::with_published;
use std::fs;
use std::path::Path;
use tables::Table;

/// Writes the document, and the pictures into `plots` beside it.
pub(crate) fn render(results: &Results, document: &Path, plots: &Path) -> Outcome<()> {
    fs::create_dir_all(plots).of(plots.display())?;
    let parts = with_published(results);
    for (name, picture) in Table::page()
        .iter()
        .filter_map(|(_, table)| table.as_ref())
        .flat_map(|table| pictures::of(table, &parts))
    {
        let path = plots.join(name);
        fs::write(&path, picture).of(path.display())?;
    }
    fs::write(document, page(&parts)).of(document.display())
}

/// The document. Pictures are expected in `plots/`.
fn page(parts: &[Part]) -> String {
    let (description, mut page) = (Table::page(), String::new());
    for (text, table) in &description {
        page.push_str(text);
        if let Some(table) = table {
            page.push_str(tables(table, parts).trim_end());
            page.push('\n');
        }
    }
    let all = description.iter().filter_map(|(_, table)| table.as_ref());
    page.replace("{summary}", summary::text(all, parts).trim_end())
}

/// The tables of one description, one for all worlds or one for each, and what they were measured on.
fn tables(table: &Table, parts: &[Part]) -> String {
    let parts = table.parts(parts);
    let Some(heading) = &table.heading else {
        let notes: String = parts.iter().map(|part| note(part)).collect();
        return if parts.is_empty() { "Not measured.".to_owned() } else { table.grid(&parts) + &notes };
    };
    let one = |part: &&Part| {
        let machine = part.machine.as_ref().map_or_else(String::new, |machine| machine.line() + "; ");
        let picture = table.plot.as_ref().map_or_else(String::new, |plot| {
            format!("![{}](plots/{})\n\n", plot.title(part), plot.file(table, part))
        });
        let (description, grid) = (&part.description, table.grid(&[part]));
        let heading = heading.replace("{}", &part.world);
        format!("### {heading}\n\n{machine}{description}.\n\n{picture}{grid}{}", absences(part))
    };
    parts.iter().map(one).collect()
}

/// A line below a table: what the rows of one world were measured on.
fn note(part: &Part) -> String {
    let machine =
        part.machine.as_ref().map(Machine::line).map_or_else(String::new, |line| format!("; {line}"));
    format!("- *{}*: {}{machine}\n{}", part.world, part.description, absences(part))
}

/// Who could not be measured, and why.
fn absences(part: &Part) -> String {
    let reason = |record: &crate::results::Record| {
        let name = if record.column.is_empty() { &record.row } else { &record.column };
        Some(format!("- *{name}* is absent: {}\n", record.absent.as_ref()?))
    };
    let reasons: std::collections::BTreeSet<_> = part.records.iter().filter_map(reason).collect();
    reasons.into_iter().collect::<String>()
        + if part.records.iter().any(|it| it.absent.is_some()) { "\n" } else { "" }
}

#[cfg(test)]
mod tests;
