//! The third table: what each layer adds to a request.

use crate::report::stats::{Summary, median};
use crate::report::table::{Table, dash, held, short};
use crate::results::{Layer, Results};

/// The section.
pub(super) fn text(results: &Results) -> String {
    let Some(part) = &results.layers else { return String::new() };
    let mut table = Table::new(&["layer", "added ns", "spread", "goal", ""]);
    part.layers.iter().for_each(|layer| table.row(&row(layer)));
    format!(
        "## Layers\n\nNanoseconds that a layer adds to a 4 KiB request, on a device that does nothing and answers at \
         once ({} ns by itself, the checked door included). {}.\n\n{}",
        short(median(&part.bare_ns)),
        part.machine.line(),
        table.finish()
    )
}

fn row(layer: &Layer) -> Vec<String> {
    let summary = Summary::of(&layer.added_ns);
    let added = summary.map_or(f64::NAN, |summary| summary.median);
    vec![
        layer.name.clone(),
        short(added),
        summary
            .map_or_else(dash, |summary| format!("{} to {}", short(summary.lowest), short(summary.highest))),
        layer.goal_ns.map_or_else(dash, |goal| format!("{goal:.0}")),
        layer.goal_ns.map_or_else(String::new, |goal| held(Some(added <= goal))),
    ]
}
