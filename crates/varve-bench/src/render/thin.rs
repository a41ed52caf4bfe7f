//! Thin volumes beside thick ones.

use super::machine_line;
use crate::results::{Results, ThinRow};
use crate::stats::{Summary, median, ratio};
use crate::table::{Table, dash, short, spread_fine};
use crate::verdict::Goal;

/// The section.
pub(super) fn text(results: &Results) -> String {
    if results.thin.is_empty() {
        return String::new();
    }
    let mut table =
        Table::new(&["where, load, thin volume", "thick", "thin", "thin / thick", "goal", "verdict"]);
    let speed = |rounds: &[f64]| match rounds {
        [] => dash(),
        rounds => short(median(rounds) / (1u64 << 20) as f64) + " MiB/s",
    };
    for part in &results.thin {
        for row in &part.rows {
            let verdict = judged(row).map_or_else(dash, |it| Goal::AtLeast(row.goal).judged(it.median));
            table.row(&[
                format!("{}, {}", part.world, name(row)),
                speed(&row.thick),
                speed(&row.thin),
                spread_fine(judged(row), false),
                Goal::AtLeast(row.goal).told(),
                verdict,
            ]);
        }
    }
    let mut text = format!(
        "## Thin volumes\n\nA volume of a pool beside a linear volume that is written in full, in one daemon, in turns. \
         LVM2's thin volumes had 0.41 to 0.5 in the seed's measurement of linear writes to fresh space.\n\n{}",
        table.finish()
    );
    for part in &results.thin {
        text.push_str(&format!(
            "- *{}*: {}; {}\n",
            part.world,
            part.description,
            machine_line(&part.machine)
        ));
    }
    text.push('\n');
    text
}

/// What is measured.
pub(super) fn name(row: &ThinRow) -> String {
    format!("{}, {}", row.work.name(), row.state)
}

/// Thin over thick.
pub(super) fn judged(row: &ThinRow) -> Option<Summary> {
    ratio(&row.thin, &row.thick)
}
