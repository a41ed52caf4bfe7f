//! What copy-on-write overlays cost whole pieces of work, beside the figures reported in 2006.

use crate::report::table::{Table, dash, short, spread_fine};
use crate::report::verdict::Goal;
use crate::results::{OverlayPart, OverlayRow, Results};

const HEAD: &str = "\
## Machines and files on copy-on-write images

The two tables of dm-userspace (2006) again: a virtual machine boots for the first time and makes its keys, and 20 MB are
copied to a filesystem that is mounted before and unmounted after. In 2006 an image took 27 s for a boot, beside 26 s of a raw
volume (1.04), and 10 s for the copy, beside 1 s. *x raw* is the ratio to the raw disk of the same server. *CPU* is the time
for which the server's threads ran; *requests* are reads, writes and flushes: those of the guest, or those of the kernel to the
export.

";

/// The section.
pub(super) fn text(results: &Results) -> String {
    if results.overlays.is_empty() {
        return String::new();
    }
    let mut text = HEAD.to_owned();
    for part in &results.overlays {
        let heads = ["disk", "s", "x raw", "goal", "", "CPU ms", "x raw", "requests", "x raw"];
        let mut table = Table::new(&heads);
        part.rows.iter().for_each(|row| table.row(&cells(part, row)));
        text.push_str(&format!(
            "### {}: {}\n\n{}; {}.\n\n{}",
            part.work,
            part.world,
            part.machine.line(),
            part.description,
            table.finish()
        ));
        for row in &part.rows {
            if let Some(reason) = &row.absent {
                text.push_str(&format!("- *{}* is absent: {reason}\n", row.disk));
            }
        }
        if part.rows.iter().any(|row| row.absent.is_some()) {
            text.push('\n');
        }
    }
    text
}

fn cells(part: &OverlayPart, row: &OverlayRow) -> Vec<String> {
    let median = |figure| row.summary(figure).map_or_else(dash, |it| short(it.median));
    let ratio = |figure| spread_fine(part.ratio(row, figure), false);
    let goal = row.goal.map(Goal::AtMost);
    vec![
        row.disk.clone(),
        median(|taken| taken.seconds),
        ratio(|taken| taken.seconds),
        goal.map_or_else(dash, Goal::told),
        goal.map_or_else(dash, |goal| goal.judged(time_ratio(part, row))),
        median(|taken| taken.server_cpu_seconds * 1e3),
        ratio(|taken| taken.server_cpu_seconds),
        median(|taken| taken.requests as f64),
        ratio(|taken| taken.requests as f64),
    ]
}

/// How many times the seconds of its raw disk a row took; not a number if either was not measured.
pub(super) fn time_ratio(part: &OverlayPart, row: &OverlayRow) -> f64 {
    part.ratio(row, |taken| taken.seconds).map_or(f64::NAN, |it| it.median)
}
