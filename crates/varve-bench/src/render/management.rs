//! Snapshots come and go while the origin is written to.

use crate::report::plot::{Bar, bars};
use crate::report::stats::Summary;
use crate::report::table::{Table, dash, short};
use crate::report::verdict::Goal;
use crate::results::{Figure, Results};

/// The section.
pub(super) fn text(results: &Results) -> String {
    if results.management.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["where, what", "median", "spread", "goal", "verdict"]);
    for part in &results.management {
        for figure in &part.figures {
            table.row(&row(&part.world, figure));
        }
    }
    let mut text = format!(
        "### Creating and removing snapshots under writes\n\nEach figure is the median over the rounds of what a round \
         showed: the median or the slowest of its creations and removals, or the 99th percentile of its writes. An \
         entry is a part of 4 KiB in a chunk of its own; each deletion hands its million to the next older snapshot.\
         \n\n![As a share of what is allowed](plots/management.svg)\n\n{}",
        table.finish()
    );
    for part in &results.management {
        text.push_str(&format!("- *{}*: {}; {}\n", part.world, part.description, part.machine.line()));
    }
    text.push('\n');
    text
}

pub(super) fn row(world: &str, figure: &Figure) -> Vec<String> {
    let summary = Summary::of(&figure.rounds);
    let goal = figure.goal.map(Goal::AtMost);
    let told = |value: f64| format!("{} {}", short(value), figure.unit);
    vec![
        format!("{world}: {}", figure.name),
        summary.map_or_else(dash, |summary| told(summary.median)),
        summary.map_or_else(dash, |it| format!("{} to {}", short(it.lowest), short(it.highest))),
        goal.map_or_else(dash, |goal| format!("{} {}", goal.told(), figure.unit)),
        match (goal, summary) {
            (Some(goal), Some(summary)) => goal.judged(summary.median),
            _ => String::new(),
        },
    ]
}

/// File names and content of the pictures.
pub(super) fn pictures(results: &Results) -> Vec<(String, String)> {
    if results.management.is_empty() {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for part in &results.management {
        for figure in &part.figures {
            let (Some(limit), Some(it)) = (figure.goal, Summary::of(&figure.rounds)) else { continue };
            let share = |value: f64| value / limit;
            let ratio =
                Summary { median: share(it.median), lowest: share(it.lowest), highest: share(it.highest) };
            let goal = Some((1.0, Goal::AtMost(limit).holds(it.median)));
            rows.push(Bar { label: format!("{}: {}", part.world, figure.name), ratio, goal, others: vec![] });
        }
    }
    let title = "Creating and removing snapshots under writes";
    let note = "as a share of what is allowed: less is better";
    vec![("management.svg".to_owned(), bars(title, note, None, &rows))]
}
