//! Thin volumes beside thick ones.

use super::figures;
use crate::report::stats::{Summary, median, ratio};
use crate::report::table::{Table, dash, note, short, spread_fine};
use crate::report::verdict::Goal;
use crate::results::{Results, ThinRival, ThinRow};
use crate::tables::pools::thin_rivals::Rival;

/// The section.
pub(crate) fn text(results: &Results) -> String {
    if results.thin.is_empty() && results.thin_scale.is_empty() {
        return String::new();
    }
    format!("## Thin volumes\n\n{}{}", volumes(results), scale(results))
}

fn speed(rounds: &[f64]) -> String {
    match rounds {
        [] => dash(),
        rounds => short(median(rounds) / (1u64 << 20) as f64) + " MiB/s",
    }
}

/// Thin volumes beside thick ones, and others beside theirs.
fn volumes(results: &Results) -> String {
    if results.thin.is_empty() {
        return String::new();
    }
    let raw = Rival::Raw.name();
    let others = Rival::ALL.into_iter().map(Rival::name).filter(|name| *name != raw);
    let mut heads: Vec<String> =
        ["where, load, thin volume", "thick", "thin", "thin / thick", "goal", "verdict", raw]
            .map(str::to_owned)
            .into();
    heads.extend(others.clone().flat_map(|name| [name.to_owned(), format!("{name} / {raw}")]));
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for (part, row) in results.thin.iter().flat_map(|part| part.rows.iter().map(move |row| (part, row))) {
        let verdict = judged(row).map_or_else(dash, |it| Goal::AtLeast(row.goal).judged(it.median));
        let mut cells = vec![
            format!("{}, {}", part.world, name(row)),
            speed(&row.thick),
            speed(&row.thin),
            spread_fine(judged(row), false),
            Goal::AtLeast(row.goal).told(),
            verdict,
            speed(row.rival(raw)),
        ];
        for other in others.clone() {
            let ratio = ratio(row.rival(other), row.rival(raw)).map_or_else(dash, |it| short(it.median));
            cells.extend([speed(row.rival(other)), ratio]);
        }
        table.row(&cells);
    }
    let mut text = format!(
        "A volume of a pool beside a linear volume that is written in full, in one daemon, in turns. LVM2's thin \
         volumes had 0.41 to 0.5 in an earlier measurement of linear writes to fresh space. The others are served by \
         qemu-nbd: a raw file written in full, which is their thick one, a qcow2 file with an internal snapshot, and a \
         sparse file on XFS with a reflinked copy as its snapshot.\n\n{}",
        table.finish()
    );
    for part in &results.thin {
        text.push_str(&note(&part.world, &part.description, &part.machine));
        let absent = part.rows.iter().flat_map(|row| &row.rivals).find(|rival| rival.absent.is_some());
        if let Some(ThinRival { name, absent: Some(reason), .. }) = absent {
            text.push_str(&format!("- *{}*: no {name}: {reason}\n", part.world));
        }
    }
    text.push('\n');
    text
}

/// Pools of many mappings, snapshots and generations.
fn scale(results: &Results) -> String {
    if results.thin_scale.is_empty() {
        return String::new();
    }
    format!(
        "### Pools at their limits\n\nThe mappings are parts of 4 KiB of which no two are neighbours; activation ends \
         with the first read; a removal ends when its space is free.\n\n{}{}",
        figures::table_by_world(&results.thin_scale),
        figures::notes(&results.thin_scale)
    )
}

/// What is measured.
pub(super) fn name(row: &ThinRow) -> String {
    format!("{}, {}", row.work.name(), row.state)
}

/// Thin over thick.
pub(super) fn judged(row: &ThinRow) -> Option<Summary> {
    ratio(&row.thin, &row.thick)
}
