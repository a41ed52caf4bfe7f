//! What holds and what misses, before any table.

use crate::results::{NbdPart, NbdRow, Results, SnapshotPart};
use crate::stats::median;
use crate::table::{Table, dash};
use crate::verdict::{SNAPSHOT_GOAL, judge, snapshot_ratio};

/// One goal in one place.
struct Line {
    goal: String,
    place: String,
    held: usize,
    missed: Vec<String>,
}

/// The section.
pub(super) fn text(results: &Results) -> String {
    let mut lines = Vec::new();
    results.nbd.iter().for_each(|part| lines.extend(nbd_lines(part)));
    lines.extend(results.snapshots.iter().map(snapshot_line));
    lines.extend(layer_line(results));
    let mut table = Table::new(&["goal", "where", "holds", "misses"]);
    for line in lines.iter().filter(|line| line.held + line.missed.len() > 0) {
        let all = line.held + line.missed.len();
        let missed = if line.missed.is_empty() { dash() } else { line.missed.join("<br>") };
        table.row(&[line.goal.clone(), line.place.clone(), format!("{} of {all}", line.held), missed]);
    }
    format!("## What holds, what misses\n\n{}", table.finish())
}

fn nbd_lines(part: &NbdPart) -> Vec<Line> {
    let fast = |goal: &str, random: bool| {
        let rows = part.rows.iter().filter(|row| row.work.random == random);
        nbd_line(part, goal, rows, |row| {
            let verdict = judge(row);
            let told = verdict.peer.as_ref().map(|peer| format!("{:.2} of {}", peer.ratio.median, peer.name));
            Some((verdict.is_fast(row.work.goal())?, told?))
        })
    };
    let lean =
        nbd_line(part, "no more server CPU a GiB than the leanest like peer", part.rows.iter(), |row| {
            let verdict = judge(row);
            let told = verdict.cpu.as_ref().map(|cpu| format!("{:.2} of {}", cpu.ratio.median, cpu.name));
            Some((verdict.is_lean()?, told?))
        });
    vec![
        fast("NBD, 4 KiB random: at least 1.2 x the best like peer", true),
        fast("NBD, sequential: at least 1.0 x the best like peer", false),
        lean,
    ]
}

fn nbd_line<'a>(
    part: &NbdPart,
    goal: &str,
    rows: impl Iterator<Item = &'a NbdRow>,
    judge: impl Fn(&NbdRow) -> Option<(bool, String)>,
) -> Line {
    let mut line = Line { goal: goal.to_owned(), place: part.medium.clone(), held: 0, missed: Vec::new() };
    for row in rows {
        match judge(row) {
            Some((true, _)) => line.held += 1,
            Some((false, told)) => line.missed.push(format!("{}: {told}", row.work.name())),
            None => {}
        }
    }
    line
}

fn snapshot_line(part: &SnapshotPart) -> Line {
    let goal = format!("first-touch writes with 16 snapshots: at least {SNAPSHOT_GOAL} of those with one");
    let mut line = Line { goal, place: part.world.clone(), held: 0, missed: Vec::new() };
    for series in &part.series {
        match snapshot_ratio(series, 16, 1) {
            Some(ratio) if ratio.median >= SNAPSHOT_GOAL => line.held += 1,
            Some(ratio) => line.missed.push(format!("{}: {:.3}", series.load, ratio.median)),
            None => {}
        }
    }
    line
}

fn layer_line(results: &Results) -> Option<Line> {
    let part = results.layers.as_ref()?;
    let goal = "a layer adds no more than its goal".to_owned();
    let mut line = Line { goal, place: "one core".to_owned(), held: 0, missed: Vec::new() };
    for layer in &part.layers {
        match layer.goal_ns {
            Some(goal) if median(&layer.added_ns) <= goal => line.held += 1,
            Some(goal) => {
                line.missed.push(format!("{}: {:.0} ns of {goal:.0}", layer.name, median(&layer.added_ns)));
            }
            None => {}
        }
    }
    Some(line)
}
